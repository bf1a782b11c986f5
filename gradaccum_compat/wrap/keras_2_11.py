"""Wrapped optimizers of the base class that Keras had from 2.11 to 2.15, and tf_keras has."""

from __future__ import absolute_import, division, print_function

from gradaccum_compat.wrap import loss_scale, missing, pending, saved, wrapped


def serves(optimizer):
    return callable(getattr(optimizer, "build", None)) and hasattr(optimizer, "aggregate_gradients")


def wrap(optimizer, weight, options):
    if loss_scale.serves(optimizer):
        return loss_scale.around(optimizer, lambda inner: wrap(inner, weight, options))
    return wrapped.wrap(AccumulatedOptimizer, optimizer, weight, options)


class AccumulatedOptimizer(
    pending.EndOfFit,
    saved.Saved,
    loss_scale.CountingUpdates,
    wrapped.Minimizing,
    wrapped.Wrapped,
):

    def build(self, var_list):
        if not var_list:
            return self._accumulation.hand_over.plain.build(var_list)
        self._accumulation.build(var_list)

    @property
    def variables(self):
        # The values that h5 files hold; a list that can be called, as the plain one returns.
        variables = self._accumulation.hand_over.plain.variables
        variables.extend(self._accumulation.state())
        return variables

    def aggregate_gradients(self, grads_and_vars):
        return self._accumulation.left_to_the_cycle(grads_and_vars)

    def apply_gradients(
        self, grads_and_vars, name=None, skip_gradients_aggregation=False, **kwargs
    ):
        pairs = list(grads_and_vars)
        if not pairs:
            return self._accumulation.hand_over.plain.apply_gradients(pairs)
        missing.say(self._accumulation.hand_over.plain, pairs)
        if name is not None:
            # The scope in which the plain one would name its variables.
            self._accumulation.hand_over.name = name
        aggregated = skip_gradients_aggregation or not kwargs.get(
            "experimental_aggregate_gradients", True
        )
        self._accumulation.step(pairs, aggregated)
        return self.iterations
