"""What is done to one micro-batch's or one cycle's gradients: lists of tensors, IndexedSlices and None.

Pure functions: no variable is read or written here.
"""

from __future__ import absolute_import, division, print_function

import tensorflow as tf

from gradaccum_compat._layout import SLICES


def each_value(function, gradients):
    """Applies function to the values of each gradient, and leaves the rows and the Nones as they are."""
    return [_with_values(gradient, function) for gradient in gradients]


def _with_values(gradient, function):
    if gradient is None:
        return None
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(function(gradient.values), gradient.indices, gradient.dense_shape)
    return function(gradient)


def with_dense_shapes(gradients, shapes):
    """The gradients, with slices that know the shape of the whole; tensors made in a branch stay in it."""
    return [tf.IndexedSlices(gradient.values, gradient.indices, tf.constant(shape, tf.int64))
            if isinstance(gradient, tf.IndexedSlices) else gradient for gradient, shape in zip(gradients, shapes)]


def values(gradients):
    """The value tensors of the gradients that there are."""
    return [gradient.values if type(gradient) is SLICES else gradient for gradient in gradients if gradient is not None]


def only(gradients, indices):
    """The gradients at these positions, and None at the others."""
    return [each if index in indices else None for index, each in enumerate(gradients)]


def cast(gradients, dtypes):
    return [_with_values(gradient, lambda value, dtype=dtype: tf.cast(value, dtype))
            for gradient, dtype in zip(gradients, dtypes)]


def scale(gradients, factor):
    """gradient * factor, where a factor of zero makes nothing even of NaN: the mean over no examples is NaN."""
    if factor is None:
        return gradients
    return each_value(lambda value: tf.math.multiply_no_nan(value, tf.cast(factor, value.dtype)), gradients)


def divide(gradients, total):
    return each_value(lambda value: value / tf.cast(total, value.dtype), gradients)


def all_finite(gradients):
    """A scalar bool tensor: whether no gradient holds NaN or infinity."""
    finite = [tf.reduce_all(tf.math.is_finite(value)) for value in values(gradients)]
    return tf.reduce_all(tf.stack(finite)) if finite else tf.constant(True)


def clip_by_global_norm(gradients, limit):
    """Scales all gradients so that their common norm is at most limit; all become NaN where it is not finite."""
    norms = [tf.cast(tf.reduce_sum(tf.square(value)), tf.float64) for value in values(gradients)]
    if not norms:
        return gradients
    norm = tf.sqrt(tf.add_n(norms))
    factor = tf.compat.v2.where(tf.math.is_finite(norm), limit / tf.maximum(norm, limit), norm * float("nan"))
    return each_value(lambda value: value * tf.cast(factor, value.dtype), gradients)


def nothing_if(dropped, gradients):
    """The gradients, or nothing at all where the scalar bool `dropped` holds: zeros, and no rows."""
    flat = _flatten(gradients)
    if not flat:
        return gradients
    chosen = cond_list(dropped, lambda: _flatten(emptied(gradients)), lambda: [tf.identity(each) for each in flat])
    return _pack_like(gradients, chosen)


def emptied(gradients):
    """Nothing, in the layout of gradients: zeros, and no rows."""
    return [tf.IndexedSlices(gradient.values[:0], gradient.indices[:0], gradient.dense_shape)
            if isinstance(gradient, tf.IndexedSlices) else None if gradient is None else tf.zeros_like(gradient)
            for gradient in gradients]


def cond_list(predicate, true_fn, false_fn):
    """tf.cond over functions that return lists; TF 1's unpacks a list of one."""
    chosen = tf.cond(predicate, true_fn, false_fn)
    return list(chosen) if isinstance(chosen, (list, tuple)) else [chosen]


def unique_rows(gradients):
    """Slices whose rows each come once, in ascending order: a sum over replicas has the rows of each of them."""
    return [_unique(gradient) if isinstance(gradient, tf.IndexedSlices) else gradient for gradient in gradients]


def _unique(slices):
    order = tf.argsort(slices.indices, stable=True)
    rows, positions = tf.unique(tf.gather(slices.indices, order))
    values_ = tf.math.unsorted_segment_sum(tf.gather(slices.values, order), positions, tf.size(rows))
    return tf.IndexedSlices(values_, rows, slices.dense_shape)


def cond_gradients(predicate, true_fn, false_fn):
    """tf.cond over functions that return gradients of one layout; slices lose their dense_shape."""
    layout = []

    def flattened(function):
        gradients = function()
        layout.append(gradients)
        return _flatten(gradients)

    flat = cond_list(predicate, lambda: flattened(true_fn), lambda: flattened(false_fn))
    return _pack_like(layout[0], flat)


def _flatten(gradients):
    flat = []
    for gradient in gradients:
        if isinstance(gradient, tf.IndexedSlices):
            flat.extend([gradient.values, gradient.indices])
        elif gradient is not None:
            flat.append(gradient)
    return flat


def _pack_like(layout, flat):
    tensors = iter(flat)
    packed = []
    for gradient in layout:
        if isinstance(gradient, tf.IndexedSlices):
            packed.append(tf.IndexedSlices(next(tensors), next(tensors)))
        else:
            packed.append(None if gradient is None else next(tensors))
    return packed
