"""IndexedSlices: rows that come twice, rows of different micro-batches, dense and sparse mixed, and
reuse."""

from __future__ import absolute_import, division, print_function

import numpy as np
import pytest
import tensorflow as tf

from support.reference import Reference, Slices, dense

v1 = tf.compat.v1
HEIGHT, WIDTH = 100, 3
SHAPES = [(HEIGHT, WIDTH), (2,)]
BIAS = np.array([1.0, -1.0], np.float32)


def table():
    return np.random.RandomState(7).randn(HEIGHT, WIDTH).astype(np.float32)


def slices(rows, seed=0, scale=1.0):
    values = scale * np.random.RandomState(seed + 1).randn(len(rows), WIDTH)
    return Slices(values.astype(np.float32), rows)


def whole(seed):
    return np.random.RandomState(seed).randn(HEIGHT, WIDTH).astype(np.float32)


#: What a variable's first gradient is decides how its sum is kept, so that each is a run of its
#: own.
CYCLES = {
    "sparse first": [
        ("none first", [None, slices([2])]),
        ("different rows", [slices([1, 2]), slices([2, 99], 1)]),
        ("the same table again", [slices([0, 5]), slices([5, 1], 2)]),
        ("a row twice in one micro-batch", [slices([4, 4, 7]), slices([7, 7], 1)]),
        ("no rows, and some", [slices([]), slices([3])]),
        ("no rows", [slices([]), slices([])]),
        ("then dense", [slices([1]), whole(1)]),
        ("sparse after dense", [slices([2]), slices([3])]),
        ("dense alone", [whole(2)]),
        ("sparse after dense alone", [slices([1])]),
        ("with none between", [slices([1]), None, slices([1], 1)]),
        ("none twice", [None, None, slices([9])]),
    ],
    "dense first": [
        ("none, then dense", [None, whole(1)]),
        ("dense, then sparse", [whole(1), slices([1, 1])]),
        ("sparse alone", [slices([2]), slices([3])]),
        ("sparse, then dense", [slices([4]), whole(2)]),
        ("none, then sparse", [None, slices([2])]),
        ("sparse, then none", [slices([3]), None]),
    ],
}


@pytest.mark.parametrize("cycles", sorted(CYCLES))
def test_rows_add_up_to_the_big_batch(mode, cycles):
    run, reference = mode([table(), BIAS]), Reference(SHAPES)
    expected = [table().astype(np.float64), BIAS.astype(np.float64)]
    for story, cycle in CYCLES[cycles]:
        reference.reset()
        for weight, gradient in enumerate(cycle, 1):
            run.accumulate([gradient, BIAS * weight], weight)
            reference.accumulate([gradient, BIAS * weight], weight)
        assert run.apply()
        expected = [value - gradient for value, gradient in zip(expected, reference.gradients())]
        for got, want in zip(run.weights(), expected):
            np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6, err_msg="after " + story)


def test_the_optimizer_gets_each_touched_row_once(mode):
    run, reference = mode([table(), BIAS], clip_norm=0.7), Reference(SHAPES, clip_norm=0.7)
    for rows, weight in [([9, 3, 9], 1.0), ([3, 50], 4.0)]:
        run.accumulate([slices(rows), BIAS], weight)
        reference.accumulate([slices(rows), BIAS], weight)
    got = run.gradients()[0]
    assert sorted(got.rows) == [3, 9, 50]
    np.testing.assert_allclose(dense(got, SHAPES[0]), reference.gradients()[0], atol=1e-6)


def test_rows_of_the_last_cycle_are_gone(mode):
    run = mode([table(), BIAS])
    run.accumulate([slices([1, 2, 3]), BIAS])
    run.apply()
    run.accumulate([slices([7]), BIAS])
    assert list(run.gradients()[0].rows) == [7]
    run.reset()
    run.accumulate([slices([8, 64]), BIAS])
    assert sorted(run.gradients()[0].rows) == [8, 64]


def test_no_rows_when_nothing_came_in(mode):
    run = mode([table(), BIAS])
    run.accumulate([slices([1]), BIAS])
    run.apply()
    assert run.gradients()[0].values.shape == (0, WIDTH)


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda: v1.train.GradientDescentOptimizer(0.5),
        lambda: v1.train.MomentumOptimizer(0.5, 0.9),
        lambda: v1.train.AdagradOptimizer(0.5),
        lambda: v1.train.AdamOptimizer(0.5),
    ],
)
def test_lazy_optimizers_move_the_touched_rows_alone(mode, optimizer):
    """The plain optimizer gets the big batch's rows; a row that no micro-batch touched gets no
    momentum either."""
    run, plain = mode([table(), BIAS], optimizer), mode([table(), BIAS], optimizer)
    for number, cycle in enumerate([([1, 2], [2, 5]), ([5, 5], [7]), ([1], [99, 1])]):
        reference = Reference(SHAPES)
        for rows in cycle:
            gradients = [slices(rows, number), BIAS * len(rows)]
            run.accumulate(gradients, len(rows))
            reference.accumulate(gradients, len(rows))
        try:
            assert run.apply()
        except NotImplementedError:
            if mode.__name__ != "CentralStorage":
                raise
            pytest.skip(
                "v1's Adam asks, up to TF 2.0, for the value() of a variable that replicas share:"
                " plain, it fails there too"
            )
        touched = sorted(set(cycle[0] + cycle[1]))
        big = [each.astype(np.float32) for each in reference.gradients()]
        plain.plain_apply([Slices(big[0][touched], touched), big[1]])
        for got, want in zip(run.weights(), plain.weights()):
            np.testing.assert_allclose(
                got, want, rtol=1e-6, atol=1e-6, err_msg="after cycle %d" % number
            )


def test_rows_of_a_vector_variable(mode):
    run = mode([np.zeros(40, np.float32)])
    run.accumulate([Slices(np.array([1.0, 2.0, 4.0], np.float32), [39, 0, 39])])
    assert run.apply()
    expected = np.zeros(40)
    expected[[0, 39]] = [-2.0, -5.0]
    np.testing.assert_array_equal(run.weights()[0], expected)


@pytest.mark.not_under(
    "Mirrored",
    reason="replicas do not ask each other before a boundary: the others have counted theirs",
)
def test_a_bad_row_changes_nothing(mode):
    run = mode([table(), BIAS])
    run.accumulate([slices([1]), BIAS])
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError)) as caught:
        run.accumulate([slices([2, HEIGHT]), BIAS])
    assert "row" in str(caught.value)
    assert run.counter("micro_count") == 1
    assert list(run.gradients()[0].rows) == [1]
    np.testing.assert_array_equal(run.gradients()[1], BIAS)
