"""Wrapped optimizers of Keras 3."""

from __future__ import absolute_import, division, print_function

from gradaccum_compat import errors
from gradaccum_compat.backends.base import no_autograph
from gradaccum_compat.wrap import loss_scale, pending, saved, wrapped


def serves(optimizer):
    return callable(getattr(optimizer, "build", None)) and hasattr(optimizer, "stateless_apply")


def wrap(optimizer, weight, options):
    if loss_scale.serves(optimizer):
        return loss_scale.around(optimizer, lambda inner: wrap(inner, weight, options))
    if optimizer.gradient_accumulation_steps:
        raise errors.OptimizerError(
            "One of the two accumulates.",
            "an optimizer with gradient_accumulation_steps={}".format(
                optimizer.gradient_accumulation_steps
            ),
            "Leave gradient_accumulation_steps out, and pass steps to wrap_optimizer.",
        )
    return wrapped.wrap(AccumulatedOptimizer, optimizer, weight, options)


class AccumulatedOptimizer(pending.EndOfFit, saved.Saved, wrapped.Wrapped):

    _in_a_loss_scale = False

    def __setattr__(self, name, value):
        # A loss-scale optimizer, compile()'s own too, sets this to None in its inner optimizer.
        if name == "loss_scale_factor":
            self.__dict__["_in_a_loss_scale"] = value is None
        super(AccumulatedOptimizer, self).__setattr__(name, value)

    def build(self, variables):
        # Variables that are overwritten with their gradient, such as float8's scales, have no sum.
        plain = self._accumulation.hand_over.plain
        if not plain.built:
            plain.build(variables)
        summed = [each for each in variables if not getattr(each, "overwrite_with_gradient", False)]
        if summed:
            self._accumulation.build(summed)

    @no_autograph
    def scale_loss(self, loss):
        # fit() calls it with its loss; if a loss-scale optimizer is around, that one's instead.
        scaled = super(AccumulatedOptimizer, self).scale_loss(loss)
        return self._accumulation.with_loss_noted(scaled)

    def apply(self, grads, trainable_variables=None):
        # apply_gradients, fit() and the loss-scale optimizer call this. The loss-scale optimizer
        # looks for an overflow on the first replica alone.
        plain = self._accumulation.hand_over.plain
        if not len(grads) or (trainable_variables is None and not plain.built):
            return plain.apply(grads, trainable_variables)
        variables = (
            plain._trainable_variables if trainable_variables is None else trainable_variables
        )
        if not self._accumulation.is_built:
            self.build(list(variables))
        plain._filter_empty_gradients(grads, variables)  # says which are missing
        # Keras 3.0 to 3.3 overwrites nothing.
        if hasattr(plain, "_overwrite_variables_directly_with_gradients"):
            grads, variables = _overwritten(plain, grads, variables)
            if not grads:
                return None
        self._accumulation.step(
            zip(grads, variables), drop_overflow=self._in_a_loss_scale and wrapped.replicas() > 1
        )


def _overwritten(plain, grads, variables):
    """Overwrites the variables that hold their last gradient. Returns the gradients of the other
    variables, and these variables."""
    rest = [number for number, each in enumerate(grads) if each is None]
    given = [number for number, each in enumerate(grads) if each is not None]
    kept = plain._overwrite_variables_directly_with_gradients(
        [grads[number] for number in given], [variables[number] for number in given]
    )
    return (
        list(kept[0]) + [None] * len(rest),
        list(kept[1]) + [variables[number] for number in rest],
    )
