"""Loss-scale optimizers: the accumulating one goes inside, so that gradients are unscaled before they are added up."""

from __future__ import absolute_import, division, print_function

import tensorflow as tf

#: Where they keep the optimizer that they are around: a property or an attribute, an attribute alone before 2.4.
_INNER = ("inner_optimizer", "_optimizer")


def serves(optimizer):
    return "LossScale" in " ".join(each.__name__ for each in type(optimizer).__mro__)


def inner(optimizer):
    """The optimizer inside of a loss-scale optimizer; any other as it is."""
    if not serves(optimizer):
        return optimizer
    return next(getattr(optimizer, name) for name in _INNER if hasattr(optimizer, name))


def around(optimizer, wrap):
    """The same loss-scale optimizer, scale and all, around its wrapped inner optimizer.

    Args:
        optimizer: the loss-scale optimizer.
        wrap: function that wraps the inner optimizer.
    """
    twin = object.__new__(type(optimizer))
    object.__setattr__(twin, "__dict__", dict(optimizer.__dict__))
    plain = inner(optimizer)
    wrapped = wrap(plain)
    for name, value in optimizer.__dict__.items():
        if value is plain and name in _INNER:
            twin.__dict__[name] = wrapped
    return twin


class CountingUpdates(object):
    """Mixin for Keras 2, whose loss-scale optimizers count a batch that they drop as an iteration from 2.3 on.

    A dropped micro-batch is none, and no update either. They count it by `optimizer.iterations`, where everything
    else that counts uses the plain optimizer's: so what is handed out here cannot be counted up that way.
    """

    @property
    def iterations(self):
        """How many updates the optimizer has made."""
        return _uncounted(self._accumulation.hand_over.plain.iterations)

    @iterations.setter
    def iterations(self, variable):
        self._accumulation.hand_over.plain.iterations = variable


class _Uncounted(object):

    def assign_add(self, delta, use_locking=None, name=None, read_value=True):
        if read_value:
            return super(_Uncounted, self).assign_add(delta, use_locking, name, read_value)
        return tf.no_op()


def _uncounted(variable):
    view = object.__new__(type(variable).__class__("Iterations", (_Uncounted, type(variable)), {}))
    object.__setattr__(view, "__dict__", dict(variable.__dict__))
    return view
