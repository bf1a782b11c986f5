"""Weights: token counts are exact, and what is no weight is refused before any state is touched."""

from __future__ import absolute_import, division, print_function

import numpy as np
import pytest
import tensorflow as tf

import gradaccum_compat as ga
from support import modes


def start(size=1):
    return [np.zeros(size, np.float32)]


def test_whole_numbers_beyond_2_to_24_are_exact(mode):
    run = mode(start())
    for weight in (2.0**24, 1.0, 1.0, 3e7):
        run.accumulate(start(), weight)
    assert run.counter("total_weight") == 2**24 + 30000002


def test_many_small_weights_do_not_drift():
    run = modes.Eager(start(), dtype="float64")
    for _ in range(3000):
        run.accumulator.accumulate([tf.ones([1])], 0.1)
    assert abs(run.counter("total_weight") - 300) < 1e-9
    assert run.apply()
    np.testing.assert_allclose(run.weights()[0], [-1.0], rtol=2e-6)


HALF_INFINITY = np.float16("inf")


@pytest.mark.parametrize(
    "weight", [1e39, 10**400, -1, float("nan"), float("inf"), HALF_INFINITY, True, "2"]
)
def test_what_is_no_weight_changes_nothing(weight):
    run = modes.Eager(start())
    run.accumulate(start(), 2.0)
    with pytest.raises(ga.errors.WeightError):
        run.accumulator.accumulate([tf.ones([1])], weight)
    assert run.counter("total_weight") == 2 and run.counter("micro_count") == 1


def test_the_value_of_a_bad_tensor_is_shown():
    run = modes.Eager(start())
    with pytest.raises(ga.errors.WeightError) as caught:
        run.accumulator.accumulate([tf.ones([1])], tf.constant(-3.0))
    assert caught.value.received == "-3.0"
