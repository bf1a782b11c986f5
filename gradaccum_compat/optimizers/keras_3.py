"""Wrapped optimizers of Keras 3."""

from __future__ import absolute_import, division, print_function

from gradaccum_compat import errors
from gradaccum_compat.optimizers import loss_scale, wrapped


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


class AccumulatedOptimizer(wrapped.Wrapped):

    def build(self, variables):
        self._accumulation.build(variables)

    def apply(self, grads, trainable_variables=None):
        # What apply_gradients, fit() and the loss-scale optimizer call.
        variables = self._trainable_variables if trainable_variables is None else trainable_variables
        self._accumulation.step(zip(grads, variables))
