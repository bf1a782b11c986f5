"""adaptive_clip: the accumulated gradient of each unit is at most a share of its weights'
length."""

from __future__ import absolute_import, division, print_function

import numpy as np
import pytest

import gradaccum_compat as ga
from support import modes
from support.reference import Slices

SHARE = 0.25
SHAPES = [(3, 3, 2, 4), (5, 4), (4,), (), (6, 3)]
#: What one output is made from.
UNITS = [(0, 1, 2), (0,), (0,), (), (0,)]


def draw(seed, scale=1.0):
    random = np.random.RandomState(seed)
    return [np.asarray(scale * random.randn(*shape), np.float32) for shape in SHAPES]


def formula(gradient, weights, axes):
    """The published one, in float64."""

    def length(value):
        return np.sqrt(np.sum(np.square(value.astype(np.float64)), axis=axes, keepdims=True))

    longest = SHARE * np.maximum(length(weights), 1e-3)
    too_long = length(gradient) > longest
    return np.where(too_long, gradient * (longest / np.maximum(length(gradient), 1e-6)), gradient)


def test_each_unit_is_clipped_by_the_formula(mode):
    weights = draw(0)
    weights[2][:] = 0  # new biases can begin to move
    run = mode(weights, loss_reduction="mean", adaptive_clip=SHARE)
    for cycle in range(2):
        before = run.weights()
        micro_batches = [
            (draw(10 * cycle + seed, scale), weight)
            for seed, scale, weight in ((1, 2.0, 1), (2, 0.1, 3))
        ]
        for gradients, weight in micro_batches:
            run.accumulate(gradients, weight)
        run.apply()
        for position, (start, got) in enumerate(zip(before, run.weights())):
            mean = (
                sum(
                    weight * gradients[position].astype(np.float64)
                    for gradients, weight in micro_batches
                )
                / 4
            )
            np.testing.assert_allclose(
                start - got, formula(mean, start, UNITS[position]), rtol=0, atol=1e-6
            )


def test_a_gradient_shorter_than_that_is_left_alone(mode):
    weights = [np.full([5, 4], 10.0, np.float32)]
    run = mode(weights, adaptive_clip=SHARE)
    run.accumulate([np.ones([5, 4], np.float32)])
    run.apply()
    np.testing.assert_array_equal(run.weights()[0], weights[0] - 1)


def test_a_sparse_gradient_is_clipped_as_the_dense_one(mode):
    weights = draw(0)[4:]
    run = mode(weights, adaptive_clip=SHARE)
    rows = np.array([4, 1, 4])
    values = 3 * np.random.RandomState(1).randn(3, 3).astype(np.float32)
    run.accumulate([Slices(values, rows)])
    run.apply()
    dense = np.zeros_like(weights[0], np.float64)
    np.add.at(dense, rows, values)
    np.testing.assert_allclose(
        weights[0] - run.weights()[0], formula(dense, weights[0], (0,)), rtol=0, atol=1e-6
    )


def test_the_global_norm_is_clipped_afterwards():
    run = modes.Eager(draw(0), adaptive_clip=SHARE, clip_norm=1e-3)
    run.accumulate(draw(1))
    length = np.sqrt(sum(np.sum(np.square(each.astype(np.float64))) for each in run.gradients()))
    np.testing.assert_allclose(length, 1e-3, rtol=1e-6)


@pytest.mark.parametrize("value", [0, -1, float("nan"), "0.01", True])
def test_it_is_a_positive_number(value):
    with pytest.raises(ga.errors.OptionError, match="adaptive_clip"):
        modes.Eager(draw(0), adaptive_clip=value)
