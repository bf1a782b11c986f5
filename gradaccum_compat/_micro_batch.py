"""One micro-batch on its way in, on one replica: checked on the device, cast, weighed, dropped if need be."""

from __future__ import absolute_import, division, print_function

import tensorflow as tf

from gradaccum_compat import _algebra, _checks


def device_checks(gradients, weight, variables):
    """Ops that check what only the device knows: the value of a weight tensor, the rows of slices."""
    checks = []
    if tf.is_tensor(weight):
        checks.append(_checks.on_device(_checks.weight_is_sound(weight), _checks.weight_error()))
    for gradient, variable in zip(gradients, variables):
        if isinstance(gradient, tf.IndexedSlices):
            inside = _checks.rows_are_inside(gradient, variable)
            checks.append(_checks.on_device(inside, _checks.rows_error(variable)))
    return checks


def prepare(gradients, weight, shapes, dtypes, options):
    """What is added to the sums.

    Returns:
        Weighted gradients in these dtypes, the weight, and, with nonfinite="skip", whether it is kept.
    """
    weight = _sound_or_nan(weight)
    gradients = _algebra.cast(_with_shapes(gradients, shapes), dtypes)
    if options.loss_reduction in ("mean", "global_mean"):
        gradients = _algebra.scale(gradients, weight)
    if options.nonfinite != "skip":
        return gradients, weight, None
    kept = _algebra.all_finite(gradients)
    gradients = _algebra.nothing_if(tf.logical_not(kept), gradients)
    return gradients, tf.compat.v2.where(kept, tf.cast(weight, tf.float64), tf.zeros([], tf.float64)), kept


def _sound_or_nan(weight):
    """XLA drops checks: there an unsound weight makes the update NaN, instead of silently wrong."""
    if not tf.is_tensor(weight):
        return weight
    return tf.compat.v2.where(_checks.weight_is_sound(weight), weight, weight * float("nan"))


def _with_shapes(gradients, shapes):
    """Has the device check shapes that are not known when the graph is built: assigning would change the sum's."""
    shaped = []
    # Only where it is needed: XLA of 1.15 knows no EnsureShape.
    for gradient, shape in zip(gradients, shapes):
        if isinstance(gradient, tf.IndexedSlices):
            shape = tf.TensorShape([None]).concatenate(shape[1:])
        shaped.extend(_algebra.each_value(lambda value, shape=shape: _with_shape(value, shape), [gradient]))
    return shaped


def _with_shape(value, shape):
    known = value.shape.ndims is not None and value.shape[1:].is_fully_defined() and (
        shape.ndims == 0 or shape[0:1].as_list() == [None] or value.shape.is_fully_defined())
    return value if known else tf.ensure_shape(value, shape)
