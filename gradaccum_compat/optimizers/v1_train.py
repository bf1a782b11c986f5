"""Wrapped optimizers of tf.compat.v1.train."""

from __future__ import absolute_import, division, print_function

import tensorflow as tf

from gradaccum_compat.optimizers import wrapped


def serves(optimizer):
    return isinstance(optimizer, tf.compat.v1.train.Optimizer)


def wrap(optimizer, weight, options):
    return wrapped.wrap(AccumulatedOptimizer, optimizer, weight, options)


class _HandOver(wrapped.HandOver):
    """Passes on the global step, so that it counts updates."""

    global_step = None

    def apply_gradients(self, pairs):
        return self.plain.apply_gradients(pairs, global_step=self.global_step)


class AccumulatedOptimizer(wrapped.Wrapped):

    HAND_OVER = _HandOver

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        self._accumulation.hand_over.global_step = global_step
        moved = self._accumulation.step(grads_and_vars)
        return moved if tf.executing_eagerly() else moved.op
