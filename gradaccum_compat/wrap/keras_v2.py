"""Wrapped optimizers of Keras's OptimizerV2: tf.keras of 1.14 to 2.10, `legacy` of 2.11 to 2.15 and
of tf_keras."""

from __future__ import absolute_import, division, print_function

import contextlib
import sys

import tensorflow as tf

from gradaccum_compat import errors
from gradaccum_compat.backends import BACKEND
from gradaccum_compat.backends.base import no_autograph
from gradaccum_compat.wrap import loss_scale, missing, pending, saved, wrapped

v1 = tf.compat.v1
#: The gradient_aggregator that an optimizer has where none is given; 2.2 and 2.3 have no such
#: attribute.
_KERAS_AGGREGATOR = "all_reduce_sum_gradients"


def serves(optimizer):
    return hasattr(optimizer, "_create_hypers")


def wrap(optimizer, weight, options):
    if loss_scale.serves(optimizer):
        return loss_scale.around(optimizer, lambda inner: wrap(inner, weight, options))
    # From 2.4 on apply_gradients clips, after it has reduced. Before, get_gradients and minimize
    # clip.
    mixin = AccumulatedOptimizer if hasattr(optimizer, "_transform_gradients") else _ClippingBefore
    accumulated = wrapped.wrap(mixin, optimizer, weight, options)
    pending.warn_at_exit(accumulated._accumulation)
    return accumulated


class AccumulatedOptimizer(
    saved.Saved, loss_scale.CountingUpdates, wrapped.Minimizing, wrapped.Wrapped
):

    #: fit() of 2.2 and 2.3 would reduce the gradients of each micro-batch before it hands them
    #: over.
    _HAS_AGGREGATE_GRAD = False

    def _create_all_weights(self, var_list):
        self._accumulation.build(var_list)

    @property
    def weights(self):
        # The values that h5 files hold.
        return list(self._accumulation.hand_over.plain.weights) + self._accumulation.state()

    @no_autograph
    def get_updates(self, loss, params):
        # fit() calls this in a TF 1 graph.
        noted = self._accumulation.with_loss_noted(loss)
        return super(AccumulatedOptimizer, self).get_updates(noted, params)

    def apply_gradients(self, grads_and_vars, name=None, experimental_aggregate_gradients=True):
        pairs = list(grads_and_vars)
        if not pairs:
            return self._accumulation.hand_over.plain.apply_gradients(pairs)
        missing.say(self._accumulation.hand_over.plain, pairs)
        fresh = not self._accumulation.state()
        updated = self._accumulation.step(pairs, aggregated=not experimental_aggregate_gradients)
        if fresh:
            _have_keras_initialize(self._accumulation)
        # An operation, as the plain one returns: a loss-scale optimizer has another one in its
        #     other branch.
        return self.iterations if tf.executing_eagerly() else updated.op

    def _aggregate_gradients(self, grads_and_vars):
        # A loss-scale optimizer calls this before it looks for an overflow.
        aggregator = getattr(self._accumulation.hand_over.plain, "gradient_aggregator", None)
        own = getattr(aggregator, "__name__", None) == _KERAS_AGGREGATOR
        if aggregator is not None and not own:
            raise errors.OptimizerError(
                "Inside a loss-scale optimizer gradients are checked for an overflow before they"
                " are added up.",
                "a gradient_aggregator, which runs on their sum",
                "Leave gradient_aggregator out, or use the optimizer without a loss scale.",
            )
        return self._accumulation.left_to_the_cycle(grads_and_vars)


def _have_keras_initialize(accumulation):
    """In a TF 1 graph Keras's session initialises the variables that its Keras was told of."""
    if BACKEND.outermost_graph() is not None and not tf.distribute.has_strategy():
        bases = type(accumulation.hand_over.plain).__mro__
        base = next(each for each in bases if each.__name__ == "OptimizerV2")
        for variable in accumulation.state():
            sys.modules[base.__module__].backend.track_variable(variable)


class _ClippingHandOver(wrapped.HandOver):
    """Clips the update, where get_gradients and minimize were kept from clipping each
    micro-batch."""

    clips = False

    def update(self, pairs):
        return self.plain.apply_gradients(self._clipped(pairs) if self.clips else pairs)

    def _clipped(self, pairs):
        norm, value = [getattr(self.plain, name, None) for name in ("clipnorm", "clipvalue")]
        if norm is not None:
            pairs = [(tf.clip_by_norm(gradient, norm), variable) for gradient, variable in pairs]
        if value is not None:
            pairs = [
                (tf.clip_by_value(gradient, -value, value), variable)
                for gradient, variable in pairs
            ]
        return pairs


class _ClippingBefore(AccumulatedOptimizer):
    """For versions whose get_gradients and minimize would clip each micro-batch: clips the update
    instead."""

    HAND_OVER = _ClippingHandOver

    def _aggregate_gradients(self, grads_and_vars):
        # 2.2 and 2.3 want the gradients alone.
        pairs = super(_ClippingBefore, self)._aggregate_gradients(grads_and_vars)
        return [gradient for gradient, _ in pairs]

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
        attributes = self._accumulation.hand_over.plain.__dict__
        hidden = {
            name: attributes.pop(name) for name in ("clipnorm", "clipvalue") if name in attributes
        }
        self._accumulation.hand_over.clips = True
        try:
            yield
        finally:
            attributes.update(hidden)
