"""Variables of every float type: sums are at least float32, and hold what half precision would
lose."""

from __future__ import absolute_import, division, print_function

import numpy as np
import pytest
import tensorflow as tf

import gradaccum_compat as ga

v1 = tf.compat.v1


def accumulate(variable_dtype, values, weights=None, **options):
    """The update that an SGD of learning rate 1 makes of these micro-batches, and the
    accumulator."""
    variable = tf.Variable(tf.zeros([2], variable_dtype))
    accumulator = ga.Accumulator(v1.train.GradientDescentOptimizer(1.0), [variable], **options)
    for value, weight in zip(values, weights or [1.0] * len(values)):
        accumulator.accumulate(
            [tf.cast(tf.constant([value] * 2, tf.float64), variable_dtype)], weight
        )
    accumulator.apply()
    return -tf.cast(variable, tf.float64).numpy()[0], accumulator


def test_4096_ones_in_float16():
    assert accumulate("float16", [1.0] * 4096, loss_reduction="none")[0] == 4096


def test_2000_thousandths_in_bfloat16():
    """In bfloat16 the sum stops growing at 0.25. The addend itself is rounded to 0.00099945."""
    addend = float(tf.cast(tf.cast(1e-3, tf.bfloat16), tf.float64))
    got, _ = accumulate("bfloat16", [1e-3] * 2000, loss_reduction="none")
    assert got == float(tf.cast(tf.cast(2000 * addend, tf.bfloat16), tf.float64))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_every_float_type(dtype):
    got, accumulator = accumulate(dtype, [1.0, 4.0], [1.0, 2.0])
    assert got == 3.0
    assert accumulator.gradients()[0].dtype.name == dtype


def test_half_precision_is_cast_before_it_is_weighted():
    """60000 * 7 is infinite in float16; the mean is not."""
    assert accumulate("float16", [60000.0, 60000.0], [7.0, 1.0])[0] == 60000.0


def test_float64_stays_exact():
    third = 1.0 / 3
    got, _ = accumulate("float64", [third, third, third], [0.1, 0.7, 1e-9])
    np.testing.assert_allclose(got, third, rtol=1e-15)


def sums_of(accumulator):
    return [each for each in accumulator.variables if "/sum_" in each.name or "_float" in each.name]


def test_sums_are_at_least_float32():
    _, accumulator = accumulate("float16", [1.0])
    assert {each.dtype.base_dtype.name for each in sums_of(accumulator)} == {"float32"}
    _, accumulator = accumulate("float32", [1.0], dtype="float64")
    assert {each.dtype.base_dtype.name for each in sums_of(accumulator)} == {"float64"}


def test_float64_sums_of_float32_gradients():
    """1 is lost beside 2 ** 24 in float32."""
    got, _ = accumulate("float32", [2.0**24, 1.0, 1.0], loss_reduction="none", dtype="float64")
    assert got == 2.0**24 + 2


def test_a_gradient_of_another_float_type():
    variable = tf.Variable([0.0, 0.0])
    accumulator = ga.Accumulator(v1.train.GradientDescentOptimizer(1.0), [variable])
    for dtype in ("float16", "bfloat16", "float64"):
        accumulator.accumulate([tf.cast([1.0, 2.0], dtype)])
    accumulator.apply()
    np.testing.assert_array_equal(variable.numpy(), [-1.0, -2.0])
