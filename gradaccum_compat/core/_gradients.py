"""Pure functions on gradients: lists of tensors, tf.IndexedSlices and None. No variable is written.

A gradient is dense (a tensor), rows (a tf.IndexedSlices), or None.
"""

from __future__ import absolute_import, division, print_function

import tensorflow as tf

from gradaccum_compat.backends.base import compiled_by_xla
from gradaccum_compat.core._graph import cond_list

#: Compared by `type(gradient) is ROWS`, for each gradient in eager code: isinstance asks an ABC,
#: which takes a microsecond on Python 2.7 and TF 1.14, as does each look into the module `tf`.
ROWS = tf.IndexedSlices

#: The kinds of gradients.
DENSE, SPARSE = "dense", "sparse"

#: Adaptive clipping: new biases are zero and could not begin to change; zero gradients could not
#: be divided by.
_SHORTEST_WEIGHTS, _SHORTEST_GRADIENT = 1e-3, 1e-6


def is_dense(gradient):
    return gradient is not None and type(gradient) is not ROWS


def is_rows(gradient):
    return type(gradient) is ROWS


def kinds(gradients):
    """DENSE or SPARSE for each gradient, None where there is none."""
    return [None if each is None else SPARSE if type(each) is ROWS else DENSE for each in gradients]


def values(gradients):
    """The value tensors of the gradients that there are."""
    return [each.values if is_rows(each) else each for each in gradients if each is not None]


def with_values(function, gradients):
    """Applies the function to the values of each gradient; rows and Nones stay."""
    return [_with_values(function, each) for each in gradients]


def _with_values(function, gradient):
    if gradient is None:
        return None
    if is_rows(gradient):
        return tf.IndexedSlices(function(gradient.values), gradient.indices, gradient.dense_shape)
    return function(gradient)


def with_dense_shapes(gradients, shapes):
    """The gradients, whose rows know the shape of the whole again.

    A branch of tf.cond cannot return the shape: a tensor made in the branch stays in it.
    """
    return [
        (
            tf.IndexedSlices(each.values, each.indices, tf.constant(shape, tf.int64))
            if is_rows(each)
            else each
        )
        for each, shape in zip(gradients, shapes)
    ]


def as_addends(gradients, shapes, dtypes):
    """The gradients in the sums' dtypes; the device checks the shapes that are not known yet."""
    # In eager code this is asked for each gradient, so the short way comes first: the shape is
    # known there, and was checked.
    known = tf.executing_eagerly()
    return [
        (
            each
            if is_dense(each) and each.dtype == dtype and (known or each.shape == shape)
            else _as_addend(each, shape, dtype)
        )
        for each, shape, dtype in zip(gradients, shapes, dtypes)
    ]


def _as_addend(gradient, shape, dtype):
    if gradient is None:
        return None
    if not is_rows(gradient):
        return tf.cast(_with_shape(gradient, tf.TensorShape(shape)), dtype)
    shape = tf.TensorShape([None] + shape[1:])
    return with_values(lambda value: tf.cast(_with_shape(value, shape), dtype), [gradient])[0]


def _with_shape(value, shape):
    # Assigning another shape would change the sum's. Only where it is needed: XLA of 1.15 knows no
    # EnsureShape.
    known = value.shape.ndims is not None and value.shape[1:].is_fully_defined()
    rows = shape.ndims > 0 and shape[0:1].as_list() == [None]
    known = known and (shape.ndims == 0 or rows or value.shape.is_fully_defined())
    return value if known else tf.ensure_shape(value, shape)


def cast(gradients, dtypes):
    return [
        _with_values(lambda value, dtype=dtype: tf.cast(value, dtype), each)
        for each, dtype in zip(gradients, dtypes)
    ]


def as_dtype(number, dtype):
    """A number or a scalar tensor in this dtype. tf.cast makes float32 of a Python number first."""
    # tf.is_tensor takes 10 microseconds for what is none (TensorFlow 2.21).
    if type(number) is float or not tf.is_tensor(number):
        return tf.constant(number, dtype)
    return tf.cast(number, dtype)


def scale(gradients, factor):
    """gradient * factor. A factor of zero gives zero even for NaN: a mean over no examples is NaN.

    Args:
        gradients: the gradients.
        factor: a number, a scalar tensor, or None for one.
    """
    if factor is None:
        return gradients
    return with_values(
        lambda value: tf.math.multiply_no_nan(value, as_dtype(factor, value.dtype)), gradients
    )


def divide(gradients, total):
    return with_values(lambda value: value / tf.cast(total, value.dtype), gradients)


def all_finite(gradients):
    """A scalar bool tensor: whether no gradient holds NaN or infinity."""
    finite = [tf.reduce_all(tf.math.is_finite(value)) for value in values(gradients)]
    return tf.reduce_all(tf.stack(finite)) if finite else tf.constant(True)


def squared_norm(gradients):
    """The sum of the squares of all values, a float64 scalar. Rows have to be unique."""
    squares = [tf.cast(tf.reduce_sum(tf.square(each)), tf.float64) for each in values(gradients)]
    return tf.add_n(squares) if squares else tf.zeros([], tf.float64)


def clip_factor(norm, limit):
    """What clipping to this global norm multiplies by; NaN where the norm is not finite."""
    # Infinity minus infinity is NaN. A constant NaN would set off tf.debugging's numeric checks.
    finite = tf.math.is_finite(norm)
    return tf.compat.v2.where(finite, limit / tf.maximum(norm, limit), norm - norm)


def clip_by_global_norm(gradients, limit):
    """Scales all gradients so that their common norm is at most the limit."""
    factor = clip_factor(tf.sqrt(squared_norm(gradients)), limit)
    return with_values(lambda value: value * tf.cast(factor, value.dtype), gradients)


def clip_adaptively(gradients, variables, share):
    """Adaptive gradient clipping (Brock et al. 2021): scales down each unit whose gradient is
    longer than `share` of its weights.

    A unit is what one output of a layer is made from: a column of a matrix, a filter of a
    convolution, and a whole vector or scalar.
    """
    return [
        None if each is None else _clip_units(each, variable, share)
        for each, variable in zip(gradients, variables)
    ]


def _clip_units(gradient, variable, share):
    axes = list(range(max(variable.shape.ndims - 1, 1))) if variable.shape.ndims else []

    def length(value):
        return tf.sqrt(tf.reduce_sum(tf.square(value), axis=axes, keepdims=True))

    def clipped(value):
        # Each row comes once, so that a unit of the rows is as long as one of the dense gradient.
        weights = length(tf.cast(tf.convert_to_tensor(variable), value.dtype))
        longest, unit = share * tf.maximum(weights, _SHORTEST_WEIGHTS), length(value)
        scaled = longest / tf.maximum(unit, _SHORTEST_GRADIENT)
        return value * tf.compat.v2.where(unit > longest, scaled, tf.ones_like(unit))

    return _with_values(clipped, gradient)


def emptied(gradients):
    """Nothing, of the same kinds: zeros, and no rows."""
    return [
        (
            tf.IndexedSlices(each.values[:0], each.indices[:0], each.dense_shape)
            if is_rows(each)
            else None if each is None else tf.zeros_like(each)
        )
        for each in gradients
    ]


def nothing_if(dropped, gradients):
    """The gradients, or nothing where the scalar bool `dropped` holds: zeros, and no rows.

    XLA keeps the rows, as zeros, since no number of rows may depend on values there.
    """
    if compiled_by_xla():
        return with_values(
            lambda value: tf.compat.v2.where(dropped, tf.zeros_like(value), value), gradients
        )
    flat = _flatten(gradients)
    if not flat:
        return gradients
    chosen = cond_list(
        dropped,
        lambda: _flatten(emptied(gradients)),
        lambda: [tf.identity(each) for each in flat],
    )
    return _pack_like(gradients, chosen)


def unique_rows(gradients):
    """The gradients, whose rows come once each and in ascending order."""
    return [_unique(each) if is_rows(each) else each for each in gradients]


def _unique(rows):
    order = tf.argsort(rows.indices, stable=True)
    indices, places = tf.unique(tf.gather(rows.indices, order))
    summed = tf.math.unsorted_segment_sum(tf.gather(rows.values, order), places, tf.size(indices))
    return tf.IndexedSlices(summed, indices, rows.dense_shape)


class GradientSum(object):
    """The sum of one variable's gradients from several places, whatever kind each of them is."""

    def __init__(self, gradients=()):
        self._dense, self._rows = None, []
        for each in gradients:
            self.add(each)

    def add(self, gradient):
        if isinstance(gradient, tf.IndexedSlices):
            self._rows.append(gradient)
        elif gradient is not None:
            self._dense = gradient if self._dense is None else self._dense + gradient

    def is_dense(self):
        """Whether the sum is a tensor, or nothing came."""
        return not self._rows

    def tensors(self):
        return [each.values for each in self._rows] + ([] if self._dense is None else [self._dense])

    def value(self):
        """The sum: a tensor where one gradient is dense, unique rows, or None."""
        if not self._rows:
            return self._dense
        dtype = self._rows[0].indices.dtype
        summands = tf.concat([each.values for each in self._rows], 0)
        indices = tf.concat([tf.cast(each.indices, dtype) for each in self._rows], 0)
        if self._dense is not None:
            height = tf.shape(self._dense)[0]
            return self._dense + tf.math.unsorted_segment_sum(summands, indices, height)
        rows, places = tf.unique(indices)
        summed = tf.math.unsorted_segment_sum(summands, places, tf.size(rows))
        return tf.IndexedSlices(summed, rows)


def cond_gradients(predicate, true_fn, false_fn):
    """tf.cond over functions that return gradients alike; rows lose their dense_shape."""
    kinds = []

    def flattened(function):
        gradients = function()
        kinds.append(gradients)
        return _flatten(gradients)

    flat = cond_list(predicate, lambda: flattened(true_fn), lambda: flattened(false_fn))
    return _pack_like(kinds[0], flat)


def _flatten(gradients):
    flat = []
    for each in gradients:
        if is_rows(each):
            flat.extend([each.values, each.indices])
        elif each is not None:
            flat.append(each)
    return flat


def _pack_like(kinds, flat):
    tensors = iter(flat)
    packed = []
    for kind in kinds:
        if is_rows(kind):
            packed.append(tf.IndexedSlices(next(tensors), next(tensors)))
        else:
            packed.append(None if kind is None else next(tensors))
    return packed
