"""A reducer sums over workers that TensorFlow does not know of: once the weights, once the
gradients."""

from __future__ import absolute_import, division, print_function

import numpy as np
import pytest
import tensorflow as tf

import gradaccum_compat as ga
from support import modes
from support.reference import Reference, Slices, dense

SHAPES = [(3,), (40, 2), ()]


#: What a worker adds to the first reduction that has one micro-batch of weight 1, with a gradient
#: of no variable.
ONE_MORE = [1.0, 1.0] + [0.0] * len(SHAPES)


class Twin(object):
    """A second worker that has exactly what this one has."""

    def __init__(self):
        self.calls = []

    def __call__(self, tensors):
        self.calls.append(len(tensors))
        # Not tensor + tensor: the graph optimizer of TF 1.14 rewrites that in a conditional, and
        # loses the result.
        return [2.0 * tensor for tensor in tensors]


def start():
    return [np.zeros(shape, np.float32) for shape in SHAPES]


def draw(seed):
    random = np.random.RandomState(seed)
    rows = Slices(random.randn(3, 2).astype(np.float32), [seed, 39, seed])
    return [random.randn(3).astype(np.float32), rows, np.float32(random.randn())]


@pytest.mark.parametrize("loss_reduction", ["mean", "sum", "none"])
def test_the_update_is_that_of_both_workers(mode, loss_reduction):
    run = mode(start(), reducer=Twin(), loss_reduction=loss_reduction)
    expected = start()
    for cycle in range(2):
        reference = Reference(SHAPES, loss_reduction)
        for seed, weight in [(1, 1.0), (2, 7.0)]:
            gradients = draw(10 * cycle + seed)
            run.accumulate(gradients, weight)
            reference.accumulate_on_replicas([(gradients, weight)] * 2)
        for got, want in zip(run.gradients(), reference.gradients()):
            np.testing.assert_allclose(dense(got, np.shape(want)), want, rtol=1e-6, atol=1e-6)
        assert run.apply()
        expected = [value - gradient for value, gradient in zip(expected, reference.gradients())]
        for got, want in zip(run.weights(), expected):
            np.testing.assert_allclose(
                got, want, rtol=1e-6, atol=1e-6, err_msg="after cycle %d" % cycle
            )


def test_rows_stay_rows(mode):
    run = mode(start(), reducer=Twin())
    run.accumulate(draw(5))
    assert sorted(run.gradients()[1].rows) == [5, 39]


def test_two_calls_a_cycle_whatever_the_number_of_micro_batches():
    twin = Twin()
    run = modes.Eager(start(), reducer=twin)
    for seed in range(1, 6):
        run.accumulate(draw(seed))
    assert twin.calls == []
    run.apply()
    assert len(twin.calls) == 2


def test_a_worker_whose_data_has_run_out_adds_nothing(mode):
    """What its sums hold is left over from the last cycle."""
    others = [np.full(shape, 4.0, np.float32) for shape in SHAPES]

    def with_another_worker(tensors):
        if len(tensors) == 1:
            return [tensors[0] + ONE_MORE + np.array([0, 0] + [1e6 + 1] * len(SHAPES))]
        sums = [tensor + other for tensor, other in zip(tensors, others)]
        dense_flags, row_flags = tensors[len(SHAPES) :]
        return sums + [dense_flags + 1.0, row_flags]

    run = mode(start(), reducer=with_another_worker)
    run.accumulate([np.ones(shape, np.float32) for shape in SHAPES])
    assert run.apply()
    assert run.apply()
    for got in run.weights():
        np.testing.assert_array_equal(got, np.full_like(got, -2.5 - 4.0))


def test_rows_of_the_last_cycle_are_gone_where_data_has_run_out(mode):
    run = mode(
        start(), reducer=lambda tensors: [tensors[0] + ONE_MORE] if len(tensors) == 1 else tensors
    )
    run.accumulate(draw(5))
    run.apply()
    assert list(run.gradients()[1].rows) == []


def test_one_engine_reduces():
    with pytest.raises(ga.errors.OptionError):
        ga.Accumulator(
            modes.sgd(),
            [tf.Variable([0.0])],
            reducer=Twin(),
            nonfinite="skip",
            loss_reduction="global_mean",
        )


# Workers that differ in what they have seen hand in the same list of tensors, and take what the
# others have


def shapes_handed_in(mode, gradients):
    """The shapes that a worker hands in for gradients() and apply(), whose micro-batch had these
    gradients."""
    handed = []

    def watch(tensors):
        handed.append([tuple(each.shape.as_list()) for each in tensors])
        return [2.0 * each for each in tensors]

    run = mode(start(), reducer=watch)
    if gradients is not None:
        run.accumulate(gradients)
    run.gradients()
    run.apply()
    return handed


@pytest.mark.parametrize("positions", [[0], [1], [1, 2], []], ids=repr)
def test_the_list_is_the_same_whatever_had_a_gradient(mode, positions):
    some = [each if index in positions else None for index, each in enumerate(draw(1))]
    every = shapes_handed_in(mode, draw(1))
    # What a graph may have to do twice, in two branches, it does with the same tensors.
    assert set(map(tuple, shapes_handed_in(mode, some))) == set(map(tuple, every))


def test_a_gradient_that_only_another_worker_has(mode):
    """It moves the variable here too, and gradients() shows it."""
    vector, row = np.array([1.0, 2.0, 3.0], np.float32), np.array(
        [[4.0, 5.0]] + [[0.0, 0.0]] * 39, np.float32
    )

    def with_another_worker(tensors):
        if len(tensors) == 1:
            return [tensors[0] + np.array([1.0, 1.0, 1e6 + 1, 1.0, 0.0], np.float32)]
        return [
            tensors[0] + vector,
            tensors[1] + row,
            1.0 * tensors[2],
            tensors[3] + np.array([1.0, 0.0, 0.0], np.float32),
            tensors[4] + 1.0,
        ]

    run = mode(start(), reducer=with_another_worker)
    run.accumulate([None, None, None])
    for got, want in zip(run.gradients()[:2], [vector, row]):
        np.testing.assert_allclose(dense(got, want.shape), want / 2.0, rtol=1e-6)
    assert run.apply()
    for got, want in zip(run.weights(), [vector, row, np.float32(0.0)]):
        np.testing.assert_allclose(got, -want / 2.0, rtol=1e-6)
