"""One micro-batch on its way in, on one replica: checked on the device, cast, weighed, dropped if need be."""

from __future__ import absolute_import, division, print_function

import tensorflow as tf

from gradaccum_compat import _algebra, _checks
from gradaccum_compat._layout import SLICES


def device_checks(gradients, weight, variables):
    """Ops that check what only the device knows: the value of a weight tensor, the rows of slices."""
    checks = []
    if tf.is_tensor(weight):
        checks.append(_checks.on_device(_checks.weight_is_sound(weight), _checks.weight_error()))
    for gradient, variable in zip(gradients, variables):
        if type(gradient) is SLICES:
            inside = _checks.rows_are_inside(gradient, variable)
            checks.append(_checks.on_device(inside, _checks.rows_error(variable)))
    return checks


def prepare(gradients, weight, shapes, dtypes, options):
    """What is added to the sums.

    Returns:
        Gradients in these dtypes, the factor that they are added with or None for one, the weight, and, with
        nonfinite="skip", 1.0 if it is dropped, 0.0 if not.
    """
    weight = _sound_or_nan(weight)
    gradients = [_as_addend(*each) for each in zip(gradients, shapes, dtypes)]
    factor = _factor(weight, options.loss_reduction)
    if options.nonfinite != "skip":
        return gradients, factor, weight, None
    gradients = _algebra.scale(gradients, factor)
    kept = _algebra.all_finite(gradients)
    dropped = tf.logical_not(kept)
    weight = tf.compat.v2.where(kept, tf.cast(weight, tf.float64), tf.zeros([], tf.float64))
    return _algebra.nothing_if(dropped, gradients), None, weight, tf.cast(dropped, tf.float64)


def _factor(weight, loss_reduction):
    if loss_reduction not in ("mean", "global_mean") or isinstance(weight, float) and weight == 1.0:
        return None
    return weight


def _sound_or_nan(weight):
    """XLA drops checks: there an unsound weight makes the update NaN, instead of silently wrong."""
    if not tf.is_tensor(weight):
        return weight
    return tf.compat.v2.where(_checks.weight_is_sound(weight), weight, weight * float("nan"))


def _as_addend(gradient, shape, dtype):
    """The gradient in the sum's dtype, its shape checked by the device where it is not known yet."""
    if gradient is None:
        return None
    # Asked for every gradient in eager code, so the short way comes first.
    if type(gradient) is not SLICES:
        return gradient if gradient.dtype == dtype and gradient.shape == shape else tf.cast(
            _with_shape(gradient, shape), dtype)
    shape = tf.TensorShape([None]).concatenate(shape[1:])
    return _algebra.each_value(lambda value: tf.cast(_with_shape(value, shape), dtype), [gradient])[0]


def _with_shape(value, shape):
    # Assigning another shape would change the sum's. Only where it is needed: XLA of 1.15 knows no EnsureShape.
    known = value.shape.ndims is not None and value.shape[1:].is_fully_defined() and (
        shape.ndims == 0 or shape[0:1].as_list() == [None] or value.shape.is_fully_defined())
    return value if known else tf.ensure_shape(value, shape)
