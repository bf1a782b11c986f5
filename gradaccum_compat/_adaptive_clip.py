"""Adaptive gradient clipping (Brock et al. 2021): no unit's gradient is longer than a share of its weights."""

from __future__ import absolute_import, division, print_function

import tensorflow as tf

#: Weights of zero, such as new biases, could not begin to move; gradients of zero could not be divided by.
_SHORTEST_WEIGHTS, _SHORTEST_GRADIENT = 1e-3, 1e-6


def adaptively_clipped(gradients, variables, share):
    """Scales down, unit by unit, what is longer than `share` of the unit's weights.

    A unit is what one output of a layer is made from: a column of a matrix, a filter of a convolution, and a
    whole vector or scalar.
    """
    return [gradient if gradient is None else _clipped(gradient, variable, share)
            for gradient, variable in zip(gradients, variables)]


def _clipped(gradient, variable, share):
    sparse = isinstance(gradient, tf.IndexedSlices)
    values = gradient.values if sparse else gradient
    axes = list(range(max(variable.shape.ndims - 1, 1))) if variable.shape.ndims else []
    weights = tf.cast(tf.convert_to_tensor(variable), values.dtype)
    # A sparse gradient's rows come once each, so that their columns are as long as those of the dense one.
    longest = share * tf.maximum(_length(weights, axes), _SHORTEST_WEIGHTS)
    length = _length(values, axes)
    scale = tf.compat.v2.where(length > longest, longest / tf.maximum(length, _SHORTEST_GRADIENT), tf.ones_like(length))
    return tf.IndexedSlices(values * scale, gradient.indices, gradient.dense_shape) if sparse else values * scale


def _length(value, axes):
    return tf.sqrt(tf.reduce_sum(tf.square(value), axis=axes, keepdims=True))
