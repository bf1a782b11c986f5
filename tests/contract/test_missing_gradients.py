"""None: adds nothing, still counts its weight, and reaches the optimizer as no gradient at all."""

from __future__ import absolute_import, division, print_function

import numpy as np
import pytest
import tensorflow as tf

import gradaccum_compat as ga
from support import modes
from support.reference import Reference

v1 = tf.compat.v1
SHAPES = [(2,), (3,)]
A, B = np.array([1.0, 2.0], np.float32), np.array([3.0, 4.0, 5.0], np.float32)


def zeros():
    return [np.zeros(shape, np.float32) for shape in SHAPES]


def momentum():
    return v1.train.MomentumOptimizer(1.0, 0.5)


PATTERNS = {
    "moves between variables": [[A, None], [None, B], [2 * A, None]],
    "first": [[None, None], [A, B]],
    "last": [[A, B], [None, None]],
    "middle": [[A, B], [A, None], [A, B]],
    "one only": [[A, None], [A, None]],
}


@pytest.mark.parametrize("pattern", sorted(PATTERNS))
def test_none_adds_nothing_and_counts_its_weight(mode, pattern):
    run, reference = mode(zeros()), Reference(SHAPES)
    expected = zeros()
    for cycle in range(3):
        reference.reset()
        for number, gradients in enumerate(PATTERNS[pattern]):
            gradients = [None if each is None else each * (cycle + 1) for each in gradients]
            run.accumulate(gradients, number + 1.0)
            reference.accumulate(gradients, number + 1.0)
        assert run.apply()
        expected = [value - gradient for value, gradient in zip(expected, reference.gradients())]
        for got, want in zip(run.weights(), expected):
            np.testing.assert_allclose(
                got, want, rtol=1e-6, atol=1e-6, err_msg="after cycle %d" % cycle
            )


def test_nothing_of_the_last_cycle_is_left_under_a_none(mode):
    run = mode(zeros())
    run.accumulate([A, B])
    run.apply()
    run.accumulate([A, None])
    run.apply()
    np.testing.assert_array_equal(run.weights()[1], -B)
    np.testing.assert_array_equal(run.weights()[0], -2 * A)


def test_a_variable_that_never_had_a_gradient_is_not_handed_over(mode):
    """Weight decay would move it: Keras decays every variable that it is handed."""
    handed = []

    class Spy(v1.train.GradientDescentOptimizer):

        def apply_gradients(self, pairs, *args, **kwargs):
            pairs = list(pairs)
            handed.append([variable.name.split(":")[0] for _, variable in pairs])
            return super(Spy, self).apply_gradients(pairs, *args, **kwargs)

    run = mode(zeros(), lambda: Spy(1.0))
    run.accumulate([A, None])
    assert run.gradients()[1] is None
    assert run.apply()
    assert handed == [["v0"]] if mode is modes.Eager else ["v0"] in handed


def test_no_gradient_anywhere_is_no_update(mode):
    run = mode(zeros())
    run.accumulate([None, None])
    assert run.counter("total_weight") == 1
    assert not run.apply()
    assert run.counter("micro_count") == 0
    assert run.gradients() == [None, None]


def test_no_gradient_in_a_cycle_is_none_for_the_optimizer(mode):
    """Momentum leaves the variable alone, in whatever order the kinds of cycles come."""
    run, plain = mode(zeros(), momentum), mode(zeros(), momentum)
    for gradients in ([A, B], [A, None], [None, B], [A, B]):
        run.accumulate(gradients)
        run.apply()
        plain.plain_apply(gradients)
        for got, want in zip(run.weights(), plain.weights()):
            np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("optimizer", [modes.sgd, momentum, lambda: v1.train.AdamOptimizer(0.1)])
def test_a_graph_built_before_a_variable_had_a_gradient_applies_it_too(mode, optimizer):
    """Heads used in turn: the trace for head A is older than head B, and must not lose B's
    gradient."""
    run, plain = mode(zeros(), optimizer, steps=2), mode(zeros(), optimizer)
    cycles = [
        ([A, None], [A, None]),
        ([A, None], [None, B]),
        ([None, 2 * B], [3 * A, None]),
        ([A, None], [A, None]),
    ]
    for first, second in cycles:
        assert not run.step(first)
        assert run.step(second)
        came = [[each for each in pair if each is not None] for pair in zip(first, second)]
        plain.plain_apply([sum(each) / 2 if each else None for each in came])
        for got, want in zip(run.weights(), plain.weights()):
            np.testing.assert_allclose(
                got, want, rtol=1e-6, atol=1e-6, err_msg="after {} and {}".format(first, second)
            )


def test_gradients_traced_before_a_variable_had_one_say_so():
    """They would leave it out for ever, and clip by the norm of the others."""
    variables = [tf.Variable([0.0]), tf.Variable([0.0])]
    accumulator = ga.Accumulator(modes.sgd(), variables, clip_norm=1.0)
    so_far = tf.function(lambda: accumulator.gradients()[0])
    accumulator.accumulate([tf.ones([1]), None])
    assert so_far().numpy().tolist() == [1.0]
    accumulator.accumulate([None, tf.ones([1])])
    with pytest.raises(tf.errors.InvalidArgumentError, match="when it was traced"):
        so_far()
