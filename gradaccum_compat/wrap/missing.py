"""Variables without a gradient: Keras 2 says which, and raises where no variable has one."""

from __future__ import absolute_import, division, print_function

import sys


def say(plain, pairs):
    """Says of a micro-batch's (gradient, variable) pairs what the plain optimizer would say."""
    for kind in type(plain).__mro__:
        if "apply_gradients" in vars(kind):
            module = sys.modules[kind.__module__]
            # A function of OptimizerV2's module up to 2.2 or so, of its utils later on. One that
            # overrides apply_gradients says by itself what it has to say.
            filtered = getattr(module, "_filter_grads", None) or getattr(
                getattr(module, "optimizer_utils", None), "filter_empty_gradients", None
            )
            if filtered is not None:
                filtered(pairs)
                return
