"""NaN and infinity: carried on, dropped exactly, or refused, and never in the next cycle."""

from __future__ import absolute_import, division, print_function

import numpy as np
import pytest
import tensorflow as tf

import gradaccum_compat as ga
from support import modes
from support.reference import Reference, Slices

SHAPES = [(2,), (50, 2)]
GOOD = [np.array([1.0, 2.0], np.float32), Slices(np.ones((2, 2), np.float32), [3, 40])]
ALSO_GOOD = [np.array([-4.0, 8.0], np.float32), Slices(np.full((1, 2), 3.0, np.float32), [40])]
BAD = {
    "nan": [np.array([np.nan, 0.0], np.float32), Slices(np.ones((1, 2), np.float32), [9])],
    "inf": [np.array([0.0, np.inf], np.float32), Slices(np.ones((1, 2), np.float32), [9])],
    "nan in a row": [np.zeros(2, np.float32), Slices(np.full((1, 2), np.nan, np.float32), [9])],
}


def make(mode, **options):
    return mode([np.zeros(shape, np.float32) for shape in SHAPES], **options)


def expected_after(*micro_batches):
    reference = Reference(SHAPES)
    for gradients, weight in micro_batches:
        reference.accumulate(gradients, weight)
    return [-gradient for gradient in reference.gradients()]


def check(run, expected):
    for got, want in zip(run.weights(), expected):
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("position", [0, 1, 2])
def test_skip_drops_the_micro_batch_and_its_weight(mode, position):
    run = make(mode, nonfinite="skip")
    step = expected_after((GOOD, 2.0), (ALSO_GOOD, 3.0))
    for cycle, bad in enumerate(sorted(BAD), 1):
        micro_batches = [(GOOD, 2.0), (ALSO_GOOD, 3.0)]
        micro_batches.insert(position, (BAD[bad], 50.0))
        for gradients, weight in micro_batches:
            run.accumulate(gradients, weight)
        counters = [run.counter(name) for name in ("micro_count", "total_weight", "skipped_count")]
        assert counters == [3, 5, cycle], bad
        assert 9 not in run.gradients()[1].rows, bad
        assert run.apply()
        check(run, [cycle * each for each in step])


def test_a_skipped_micro_batch_counts_towards_steps(mode):
    run = make(mode, nonfinite="skip", steps=2)
    assert not run.step(BAD["nan"])
    assert run.step(GOOD)
    check(run, expected_after((GOOD, 1.0)))


def test_a_cycle_of_skipped_micro_batches_moves_nothing(mode):
    run = make(mode, nonfinite="skip", steps=2)
    for _ in range(2):
        assert not run.step(BAD["nan"]) and not run.step(BAD["inf"])
    assert run.counter("update_count") == 0 and run.counter("skipped_count") == 4
    check(run, [np.zeros(shape) for shape in SHAPES])
    assert not run.step(GOOD)
    assert run.step(ALSO_GOOD)
    check(run, expected_after((GOOD, 1.0), (ALSO_GOOD, 1.0)))


def test_propagate_hands_it_over(mode):
    run = make(mode)
    run.accumulate(BAD["nan"])
    run.accumulate(GOOD)
    assert run.apply()
    assert np.isnan(run.weights()[0][0])


def test_nothing_survives_a_reset(mode):
    run = make(mode)
    for cycle, bad in enumerate(sorted(BAD), 1):
        run.accumulate(GOOD)
        run.accumulate(BAD[bad])
        run.reset()
        run.accumulate(GOOD)
        assert run.apply()
        check(run, [cycle * each for each in expected_after((GOOD, 1.0))])


def test_raise_fails_at_apply_moves_nothing_and_drops_the_cycle(mode):
    run = make(mode, nonfinite="raise", steps=2)
    before, step = [np.zeros(shape) for shape in SHAPES], expected_after(
        (GOOD, 1.0), (ALSO_GOOD, 1.0)
    )
    for cycle, bad in enumerate(sorted(BAD)):
        run.accumulate(GOOD)
        run.accumulate(BAD[bad])
        with pytest.raises(
            (ga.errors.NonFiniteGradientsError, tf.errors.InvalidArgumentError)
        ) as caught:
            run.apply()
        assert "finite" in str(caught.value)
        assert mode is not modes.Eager or isinstance(
            caught.value, ga.errors.NonFiniteGradientsError
        )
        check(run, before)
        assert run.counter("update_count") == cycle
        assert not run.step(GOOD)
        assert run.step(ALSO_GOOD)
        before = [value + each for value, each in zip(before, step)]
        check(run, before)


def test_clipping_a_norm_that_is_not_finite_shows_it(mode):
    run = make(mode, clip_norm=1.0)
    run.accumulate(BAD["inf"])
    assert run.apply()
    assert np.isnan(run.weights()[0]).all()
