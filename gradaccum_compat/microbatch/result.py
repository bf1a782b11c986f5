"""MicrobatchGradients: the value that microbatch_gradients returns."""

from __future__ import absolute_import, division, print_function

import collections
import dis
import sys

from gradaccum_compat import errors

_Fields = collections.namedtuple("MicrobatchGradients", ["loss", "gradients", "extras", "weight"])


class MicrobatchGradients(_Fields):
    """A namedtuple of loss, gradients, extras and weight that unpacks into the first three.

    TensorFlow takes all four: the weight survives a tf.function or strategy.run that returns it.

    Attributes:
        loss: the mean loss over the batch.
        gradients: a list, one for each variable.
        extras: the third value of loss_fn, stacked over the slices, or None.
        weight: the weight of the batch, a float32 scalar.
    """

    __slots__ = ()

    def __iter__(self):
        caller = sys._getframe(1)
        if _takes_apart_to_rebuild(caller):
            return iter(self[:])
        _refuse_zip(caller)
        return iter(self[:3])

    # namedtuple's own three go through __iter__, which leaves the weight out.

    def __getnewargs__(self):
        return self[:]

    def _asdict(self):
        return collections.OrderedDict(zip(self._fields, self[:]))

    def _replace(self, **values):
        return type(self)(**dict(self._asdict(), **values))


def _takes_apart_to_rebuild(caller):
    """Whether TensorFlow iterates for itself, and not in the user's code that AutoGraph runs."""
    module = caller.f_globals.get("__name__", "")
    return module.startswith(("tensorflow.", "tensorflow_core.")) and ".autograph." not in module


def _refuse_zip(caller):
    """Raises where zip(result, variables) asks for the items.

    It pairs the loss with the first variable, which an optimizer may take as a gradient. Python
    does not tell __iter__ who calls, so the caller's frame is asked: it is in the middle of a call,
    not of an unpacking, and its code names zip, or a local is zip, as in AutoGraph of TF 1.14.
    """
    code, values = caller.f_code, caller.f_locals.values()
    if not dis.opname[bytearray(code.co_code)[caller.f_lasti]].startswith(("CALL", "PRECALL")):
        return
    if {"zip", "izip"}.intersection(code.co_names) or any(each is zip for each in values):
        # No TypeError: up to Python 3.7 zip puts one of its own in its place.
        raise errors.GradientsError(
            "zip pairs each gradient with its variable.",
            "the whole result of microbatch_gradients, whose first item is the loss",
            "Pass its gradients: zip(result.gradients, variables).",
        )
