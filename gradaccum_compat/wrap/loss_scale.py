"""Loss-scale optimizers: the accumulating one goes inside, so that gradients are unscaled before
they are added up."""

from __future__ import absolute_import, division, print_function

import tensorflow as tf

#: Where they keep the optimizer that they are around: a property or an attribute, an attribute
#:     alone before 2.4.
_INNER = ("inner_optimizer", "_optimizer")
#: Where Trackable keeps what a checkpoint holds.
_TRACKED = ("_self_unconditional_checkpoint_dependencies", "_self_unconditional_dependency_names")


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
    plain = inner(optimizer)
    wrapped = wrap(plain)
    twin = object.__new__(type(optimizer))
    # Past its __setattr__, which sets some attributes of the inner optimizer.
    object.__setattr__(
        twin,
        "__dict__",
        {
            name: (
                wrapped
                if value is plain and name in _INNER
                else _tracked(value, plain, wrapped) if name in _TRACKED else value
            )
            for name, value in optimizer.__dict__.items()
        },
    )
    return twin


def _tracked(value, plain, wrapped):
    """Returns the list or dictionary that a checkpoint is made of, with the wrapped optimizer in
    place of the plain one."""
    if isinstance(value, dict):
        return type(value)(
            (name, wrapped if each is plain else each) for name, each in value.items()
        )
    return [type(each)(each.name, wrapped) if each.ref is plain else each for each in value]


class CountingUpdates(object):
    """Mixin for Keras 2, whose loss-scale optimizers increment `iterations` for a batch that they
    drop, from 2.3 on.

    A dropped micro-batch makes no update, so it must not count. The loss-scale optimizer increments
    the `iterations` of the wrapped optimizer, and updates increment those of the plain one. So the
    wrapped optimizer returns a view of the plain one's, whose assign_add does nothing. With steps=1
    each batch counts, as it does without accumulation.
    """

    @property
    def iterations(self):
        """How many updates the optimizer has made."""
        iterations = self._accumulation.hand_over.plain.iterations
        if self._accumulation.options["steps"] == 1:
            return iterations  # they count as for the plain optimizer
        # The plain optimizer takes a number too.
        return _uncounted(iterations) if hasattr(iterations, "assign_add") else iterations

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
