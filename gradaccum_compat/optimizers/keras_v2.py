"""Wrapped optimizers of Keras's OptimizerV2: tf.keras of 1.14 to 2.10, `legacy` of 2.11 to 2.15 and of tf_keras."""

from __future__ import absolute_import, division, print_function

import contextlib

import tensorflow as tf

from gradaccum_compat.backends import BACKEND
from gradaccum_compat.optimizers import loss_scale, pending, saved, wrapped

v1 = tf.compat.v1


def serves(optimizer):
    return hasattr(optimizer, "_create_hypers")


def wrap(optimizer, weight, options):
    if loss_scale.serves(optimizer):
        return loss_scale.around(optimizer, lambda inner: wrap(inner, weight, options))
    # From 2.4 on apply_gradients clips, after it has reduced. Before, whoever computes the gradients does.
    mixin = AccumulatedOptimizer if hasattr(optimizer, "_transform_gradients") else _ClippingBefore
    accumulated = wrapped.wrap(mixin, optimizer, weight, options)
    pending.warn_at_exit(accumulated._accumulation)
    return accumulated


class AccumulatedOptimizer(saved.Saved, loss_scale.CountingUpdates, wrapped.Wrapped):

    #: fit() of 2.2 and 2.3 would reduce the gradients of each micro-batch before it hands them over.
    _HAS_AGGREGATE_GRAD = False

    def _create_all_weights(self, var_list):
        self._accumulation.build(var_list)

    @property
    def weights(self):
        # What h5 files hold.
        return list(self._accumulation.hand_over.plain.weights) + self._accumulation.state()

    def apply_gradients(self, grads_and_vars, name=None, experimental_aggregate_gradients=True):
        fresh = not self._accumulation.state()
        moved = self._accumulation.step(grads_and_vars, aggregated=not experimental_aggregate_gradients)
        if fresh:
            _initialize_in_a_graph(self._accumulation.state())
        # An operation, as the plain one returns: a loss-scale optimizer has another one in its other branch.
        return self.iterations if tf.executing_eagerly() else moved.op

    def _aggregate_gradients(self, grads_and_vars):
        return self._accumulation.left_to_the_cycle(grads_and_vars)


def _initialize_in_a_graph(variables):
    """In a TF 1 graph Keras initialises the variables that it has made, and has not made these."""
    if BACKEND.outermost_graph() is not None and not tf.distribute.has_strategy():
        v1.keras.backend.get_session().run([each.initializer for each in variables])


class _ClippingHandOver(wrapped.HandOver):
    """Clips what whoever computed the gradients was kept from clipping."""

    clips = False

    def move(self, pairs):
        return self.plain.apply_gradients(self._clipped(pairs) if self.clips else pairs)

    def _clipped(self, pairs):
        norm, value = [getattr(self.plain, name, None) for name in ("clipnorm", "clipvalue")]
        if norm is not None:
            pairs = [(tf.clip_by_norm(gradient, norm), variable) for gradient, variable in pairs]
        if value is not None:
            pairs = [(tf.clip_by_value(gradient, -value, value), variable) for gradient, variable in pairs]
        return pairs


class _ClippingBefore(AccumulatedOptimizer):
    """Where get_gradients and minimize clip, each micro-batch as it comes: here the update is clipped instead."""

    HAND_OVER = _ClippingHandOver

    def get_gradients(self, loss, params):
        with self._clipping_later():
            return super(_ClippingBefore, self).get_gradients(loss, params)

    def _compute_gradients(self, *args, **kwargs):
        with self._clipping_later():
            return super(_ClippingBefore, self)._compute_gradients(*args, **kwargs)

    def _clip_gradients(self, grads):
        self._accumulation.hand_over.clips = True
        return grads

    @contextlib.contextmanager
    def _clipping_later(self):
        """Up to 2.1 they clip if they find these attributes; later on they call _clip_gradients."""
        hidden = {name: self.__dict__.pop(name) for name in ("clipnorm", "clipvalue") if name in self.__dict__}
        self._accumulation.hand_over.clips = True
        try:
            yield
        finally:
            self.__dict__.update(hidden)
