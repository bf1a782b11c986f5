"""What the numbers mean: each loss_reduction, uneven weights, partial cycles, over several cycles.

SGD with a learning rate of 1 moves the weights by the gradient itself, so that after each update
the weights are compared with what NumPy says; test_optimizers.py does the same with optimizers that
have state.
"""

from __future__ import absolute_import, division, print_function

import numpy as np
import pytest

from support.reference import Reference

SHAPES = [(3,), (2, 2), ()]


def draw(seed, scale=1.0):
    random = np.random.RandomState(seed)
    return [np.asarray(scale * random.randn(*shape), np.float32) for shape in SHAPES]


def check_cycles(mode, cycles, **options):
    """Runs the cycles, lists of weights, and compares the weights after each update with the
    reference."""
    run, reference = mode(draw(0), **options), Reference(
        SHAPES, options.get("loss_reduction", "mean")
    )
    expected, seed = [np.asarray(each, np.float64) for each in draw(0)], 1
    for number, weights in enumerate(cycles):
        reference.reset()
        for weight in weights:
            gradients, seed = draw(seed), seed + 1
            assert run.accumulate(gradients, weight) == len(reference._micro_batches) + 1
            reference.accumulate(gradients, weight)
        assert run.apply()
        expected = [value - gradient for value, gradient in zip(expected, reference.gradients())]
        for got, want in zip(run.weights(), expected):
            np.testing.assert_allclose(
                got, want, rtol=1e-6, atol=1e-6, err_msg="after cycle %d" % number
            )


@pytest.mark.parametrize("loss_reduction", ["mean", "sum", "global_mean", "none"])
def test_uneven_micro_batches_give_the_big_batch(mode, loss_reduction):
    check_cycles(mode, [[1.0, 7.0, 4.0], [5.0, 2.0], [3.0]], loss_reduction=loss_reduction)


def test_a_weight_of_any_numeric_type(mode):
    types = [np.int32, np.int64, np.float32, np.float64, np.uint8, np.float16]
    check_cycles(mode, [[numeric(3), numeric(1)] for numeric in types])


def test_a_weight_that_is_no_float32(mode):
    """Token counts beyond 2 ** 24 and fractions are weighed in float64 before they meet the
    gradients."""
    check_cycles(mode, [[2.0**24 + 1, 0.1], [1e-3, 1e3]])


def test_the_weight_of_none_is_ignored(mode):
    run = mode([np.zeros(2, np.float32)], loss_reduction="none")
    run.accumulate([np.array([1.0, 2.0], np.float32)], 5.0)
    run.accumulate([np.array([1.0, 2.0], np.float32)], 0.0)
    assert run.apply()
    np.testing.assert_array_equal(run.weights()[0], [-2.0, -4.0])


def test_a_partial_cycle_is_divided_by_what_came_in(mode):
    run, reference = mode(draw(0), steps=4), Reference(SHAPES)
    moved = [run.step(draw(seed)) for seed in range(1, 7)]
    assert moved == [False, False, False, True, False, False]
    before = run.weights()
    for seed in (5, 6):
        reference.accumulate(draw(seed))
    assert run.apply()
    for got, start, gradient in zip(run.weights(), before, reference.gradients()):
        np.testing.assert_allclose(got, start - gradient, rtol=1e-6, atol=1e-6)


def test_step_moves_at_the_boundary_and_not_before(mode):
    run = mode(draw(0), steps=3)
    moved = []
    for seed in range(1, 7):
        before = run.weights()
        moved.append(run.step(draw(seed), 2.0))
        assert moved[-1] != all(np.array_equal(*pair) for pair in zip(run.weights(), before))
    assert moved == [False, False, True] * 2
    assert run.counter("update_count") == 2


def test_step_applies_what_accumulate_has_brought_over_the_boundary(mode):
    run = mode(draw(0), steps=2)
    for seed in (1, 2, 3):
        run.accumulate(draw(seed))
    assert run.step(draw(4))
    assert run.counter("micro_count") == 0


def test_counters_follow_the_cycle(mode):
    run = mode(draw(0))

    def read():
        return [
            run.counter(name)
            for name in ("micro_count", "total_weight", "update_count", "skipped_count")
        ]

    assert read() == [0, 0, 0, 0]
    run.accumulate(draw(1), 2.5)
    run.accumulate(draw(2), 4)
    assert read() == [2, 6.5, 0, 0]
    run.apply()
    assert read() == [0, 0, 1, 0]
    run.accumulate(draw(1))
    run.reset()
    assert read() == [0, 0, 1, 0]


def test_reset_forgets_the_cycle(mode):
    run, reference = mode(draw(0)), Reference(SHAPES)
    run.accumulate(draw(1), 100.0)
    run.reset()
    run.accumulate(draw(2), 3.0)
    reference.accumulate(draw(2), 3.0)
    assert run.apply()
    for got, start, gradient in zip(run.weights(), draw(0), reference.gradients()):
        np.testing.assert_allclose(got, start - gradient, rtol=1e-6, atol=1e-6)


def test_no_weight_is_no_update(mode):
    run = mode(draw(0))
    for weights in ([], [0.0], [0.0, 0]):
        for weight in weights:
            run.accumulate(draw(1), weight)
        assert not run.apply()
        assert run.counter("update_count") == 0 and run.counter("micro_count") == 0
        for got, start in zip(run.weights(), draw(0)):
            np.testing.assert_array_equal(got, start)


def test_a_weight_of_zero_adds_nothing_even_to_nan(mode):
    """The mean over no examples is NaN: an empty share must not spoil the cycle."""
    run = mode([np.zeros(2, np.float32)])
    for gradient, weight in [(1.0, 2.0), (np.nan, 0.0), (4.0, 1.0)]:
        run.accumulate([np.full(2, gradient, np.float32)], weight)
    assert run.apply()
    np.testing.assert_array_equal(run.weights()[0], [-2.0, -2.0])


def test_gradients_are_the_big_batch_so_far(mode):
    run, reference = mode(draw(0), clip_norm=0.5), Reference(SHAPES, clip_norm=0.5)
    for seed, weight in [(1, 1.0), (2, 7.0)]:
        run.accumulate(draw(seed), weight)
        reference.accumulate(draw(seed), weight)
        for got, want in zip(run.gradients(), reference.gradients()):
            np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)
    assert run.counter("micro_count") == 2


def test_gradients_are_zero_when_nothing_came_in(mode):
    run = mode(draw(0))
    run.accumulate(draw(1))
    run.apply()
    for gradient in run.gradients():
        np.testing.assert_array_equal(gradient, np.zeros_like(gradient))


def test_one_micro_batch_of_weight_one_is_the_plain_optimizer_bit_for_bit(mode):
    run, plain = mode(draw(0), steps=1), mode(draw(0))
    for seed in range(1, 5):
        assert run.step(draw(seed))
        plain.plain_apply(draw(seed))
        for got, want in zip(run.weights(), plain.weights()):
            np.testing.assert_array_equal(got, want)


def test_clipping_comes_once_after_normalising(mode):
    run, reference = mode(draw(0), clip_norm=0.1), Reference(SHAPES, clip_norm=0.1)
    for cycle in range(2):
        reference.reset()
        before = run.weights()
        for seed in (1, 2, 3):
            gradients = draw(10 * cycle + seed, scale=10.0)
            run.accumulate(gradients, seed)
            reference.accumulate(gradients, seed)
        run.apply()
        moved = [start - got for got, start in zip(run.weights(), before)]
        norm = np.sqrt(sum(np.sum(np.square(each.astype(np.float64))) for each in moved))
        np.testing.assert_allclose(norm, 0.1, rtol=1e-5)  # the difference of two rounded weights
        for got, want in zip(moved, reference.gradients()):
            np.testing.assert_allclose(got, want, atol=1e-6)


def test_a_small_gradient_is_not_scaled_up_by_clipping(mode):
    run = mode([np.zeros(2, np.float32)], clip_norm=100.0)
    run.accumulate([np.array([3.0, 4.0], np.float32)])
    run.apply()
    np.testing.assert_array_equal(run.weights()[0], [-3.0, -4.0])
