"""Wrapped optimizers of the base class that Keras had from 2.11 to 2.15, and tf_keras has."""

from __future__ import absolute_import, division, print_function

from gradaccum_compat.optimizers import loss_scale, pending, saved, wrapped


def serves(optimizer):
    return callable(getattr(optimizer, "build", None)) and hasattr(optimizer, "aggregate_gradients")


def wrap(optimizer, weight, options):
    if loss_scale.serves(optimizer):
        return loss_scale.around(optimizer, lambda inner: wrap(inner, weight, options))
    return wrapped.wrap(AccumulatedOptimizer, optimizer, weight, options)


class AccumulatedOptimizer(pending.EndOfFit, saved.Saved, loss_scale.CountingUpdates, wrapped.Wrapped):

    def build(self, var_list):
        self._accumulation.build(var_list)

    @property
    def variables(self):
        # What h5 files hold; a list that can be called, as the plain one returns.
        variables = self._accumulation.hand_over.plain.variables
        variables.extend(self._accumulation.state())
        return variables

    def aggregate_gradients(self, grads_and_vars):
        return self._accumulation.left_to_the_cycle(grads_and_vars)

    def apply_gradients(self, grads_and_vars, name=None, skip_gradients_aggregation=False, **kwargs):
        aggregated = skip_gradients_aggregation or not kwargs.get("experimental_aggregate_gradients", True)
        self._accumulation.step(grads_and_vars, aggregated)
        return self.iterations
