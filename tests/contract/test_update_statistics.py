"""What the last update knew, against NumPy, and the noise scale against a known distribution."""

from __future__ import absolute_import, division, print_function

import numpy as np
import pytest
import tensorflow as tf

import gradaccum_compat as ga
from support import modes

SIZES = [[2.0, 3.0, 1.0], [1.0, 4.0, 4.0]]
DECAY = 0.95


def expected(gradients):
    """gradient_norm, weight, micro_batches and noise_scale of each cycle."""
    averages, told = np.zeros(2), []
    for sizes, cycle in zip(SIZES, gradients):
        total = sum(sizes)
        mean = sum(size * each for size, each in zip(sizes, cycle)) / total
        squares = sum(size * np.sum(each**2) for size, each in zip(sizes, cycle))
        trace = (squares - total * np.sum(mean**2)) / (len(sizes) - 1)
        square = np.sum(mean**2) - trace / total
        averages = DECAY * averages + (1 - DECAY) * np.array([trace, square])
        told.append([np.sqrt(np.sum(mean**2)), total, len(sizes), averages[0] / averages[1]])
    return told


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("compiled", [False, True])
def test_the_formula(reduction, compiled):
    gradients = np.random.RandomState(0).randn(2, 3, 4)
    accumulator = ga.Accumulator(
        modes.sgd(), [tf.Variable(tf.zeros([4]))], 3, reduction, clip_norm=0.5, statistics=True
    )
    step = accumulator.step
    if compiled:
        step = tf.function(lambda gradients, weight: accumulator.step(gradients, weight))
    for sizes, cycle, want in zip(SIZES, gradients, expected(gradients)):
        for size, each in zip(sizes, cycle):
            factor = size if reduction == "sum" else 1
            step([tf.constant(each * factor, tf.float32)], tf.constant(size))
        got = accumulator.statistics()
        told = [got.gradient_norm, got.weight, got.micro_batches, got.noise_scale]
        # float32 gradients; the trace is a difference that loses one more digit.
        np.testing.assert_allclose([float(each) for each in told], want, rtol=1e-5)
        np.testing.assert_allclose(float(got["clip_factor"]), 0.5 / want[0], rtol=1e-5)


def test_unbiased_for_a_gaussian():
    """Gradients of examples are drawn around (3, 4) with a covariance of trace 8."""
    random = np.random.RandomState(0)
    accumulator = ga.Accumulator(modes.sgd(), [tf.Variable(tf.zeros([2]))], 4, statistics=True)
    step = tf.function(lambda gradient: accumulator.step([gradient], 8.0))
    scales = []
    for _ in range(400):
        for _ in range(4):
            mean = (np.array([3.0, 4.0]) + 2 * random.randn(8, 2)).mean(0)
            step(tf.constant(mean, tf.float32))
        scales.append(float(accumulator.statistics().noise_scale))
    assert abs(np.mean(scales[50:]) - 8.0 / 25) < 0.03


def test_both_parts_are_unbiased_with_uneven_sizes():
    """Gradients of examples are drawn around (0.3, 0.4) with a covariance of trace 5."""
    random, draws = np.random.RandomState(0), 400
    accumulator = ga.Accumulator(modes.sgd(), [tf.Variable(tf.zeros([2]))], 3, statistics=True)
    step = tf.function(lambda gradient, size: accumulator.step([gradient], size))
    averages = [np.zeros(2)]
    for _ in range(draws):
        for size in (3, 10, 5):
            examples = np.array([0.3, 0.4]) + np.array([1, 2]) * random.randn(size, 2)
            step(tf.constant(examples.mean(0), tf.float32), tf.constant(size))
        averages.append(accumulator._statistics.last.numpy()[5:7])
    of_each = np.diff(averages, axis=0) / (1 - DECAY) + averages[:-1]
    error = of_each.std(0) / np.sqrt(draws)
    assert (np.abs(of_each.mean(0) - [5.0, 0.25]) < 3 * error).all()
    # Without the correction for B the square would be larger by 5 / 18.
    assert error[1] < 5.0 / 18 / 6


def test_one_micro_batch_tells_no_noise():
    accumulator = ga.Accumulator(modes.sgd(), [tf.Variable([0.0])], 1, statistics=True)
    accumulator.step([tf.ones([1])])
    got = accumulator.statistics()
    assert np.isnan(float(got.noise_scale)) and float(got.gradient_norm) == 1.0


def test_rows_that_come_twice_are_one():
    accumulator = ga.Accumulator(modes.sgd(), [tf.Variable(tf.zeros([5, 1]))], 1, statistics=True)
    rows = tf.IndexedSlices(tf.constant([[1.0], [2.0]]), tf.constant([3, 3]), tf.constant([5, 1]))
    accumulator.step([rows])
    assert float(accumulator.statistics().gradient_norm) == 3.0


def test_without_the_option_it_is_refused_and_there_is_no_state():
    accumulator = ga.Accumulator(modes.sgd(), [tf.Variable([0.0])], 1)
    with pytest.raises(ga.errors.OptionError):
        accumulator.statistics()
    assert not [each for each in accumulator.variables if "statistics" in each.name]
