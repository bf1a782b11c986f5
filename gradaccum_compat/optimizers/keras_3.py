"""Wrapped optimizers of Keras 3."""

from __future__ import absolute_import, division, print_function

from gradaccum_compat import errors
from gradaccum_compat.optimizers import loss_scale, pending, saved, wrapped


def serves(optimizer):
    return callable(getattr(optimizer, "build", None)) and hasattr(optimizer, "stateless_apply")


def wrap(optimizer, weight, options):
    if loss_scale.serves(optimizer):
        return loss_scale.around(optimizer, lambda inner: wrap(inner, weight, options))
    if optimizer.gradient_accumulation_steps:
        raise errors.OptimizerError(
            "One of the two accumulates.",
            "an optimizer with gradient_accumulation_steps={}".format(optimizer.gradient_accumulation_steps),
            "Leave gradient_accumulation_steps out, and pass steps to wrap_optimizer.")
    return wrapped.wrap(AccumulatedOptimizer, optimizer, weight, options)


class AccumulatedOptimizer(pending.EndOfFit, saved.Saved, wrapped.Wrapped):

    _in_a_loss_scale = False

    def __setattr__(self, name, value):
        # A loss-scale optimizer, which compile() makes too, switches this off in the optimizer that it is made around.
        if name == "loss_scale_factor":
            self.__dict__["_in_a_loss_scale"] = value is None
        super(AccumulatedOptimizer, self).__setattr__(name, value)

    def build(self, variables):
        self._accumulation.build(variables)

    def apply(self, grads, trainable_variables=None):
        # What apply_gradients, fit() and the loss-scale optimizer call. The latter looks for an overflow on the first
        # replica alone.
        variables = self._trainable_variables if trainable_variables is None else trainable_variables
        self._accumulation.step(
            zip(grads, variables), drop_overflow=self._in_a_loss_scale and wrapped.replicas() > 1)
