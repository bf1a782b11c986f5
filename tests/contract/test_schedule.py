"""Steps by schedule: the number of micro-batches of a cycle, by the updates before it."""

from __future__ import absolute_import, division, print_function

import numpy as np
import pytest
import tensorflow as tf

import gradaccum_compat as ga
from support import modes

ONE = [np.ones(2, np.float32)]


def updates(run, count):
    return [bool(run.step(ONE)) for _ in range(count)]


@pytest.mark.parametrize(
    "steps", [{0: 1, 2: 3}, lambda count: tf.where(count < 2, 1, 3)], ids=["table", "function"]
)
def test_cycles_grow_with_the_updates(mode, steps):
    if not isinstance(steps, dict) and not hasattr(tf, "function"):
        pytest.skip("no tf.function")
    run = mode([np.zeros(2, np.float32)], steps=steps)
    assert updates(run, 8) == [True, True, False, False, True, False, False, True]
    assert run.counter("update_count") == 4


def test_steps_says_what_the_cycle_is_to_have():
    run = modes.Eager([np.zeros(2, np.float32)], steps={0: 2, 1: 5})
    assert int(run.accumulator.steps) == 2
    updates(run, 2)
    assert int(run.accumulator.steps) == 5


def test_one_trace():
    traces = []
    accumulator = ga.Accumulator(modes.sgd(), [tf.Variable([0.0])], steps={0: 1, 1: 2, 2: 4})

    @tf.function
    def step():
        traces.append(1)
        return accumulator.step([tf.ones([1])])

    assert [bool(step()) for _ in range(7)] == [True, False, True, False, False, False, True]
    assert len(traces) == 1


def test_restored_in_mid_ramp(tmpdir):
    def program():
        variable = tf.Variable([0.0])
        accumulator = ga.Accumulator(modes.sgd(), [variable], steps={0: 1, 1: 3})
        return accumulator, tf.train.Checkpoint(accumulator=accumulator, variable=variable)

    accumulator, checkpoint = program()
    for _ in range(2):
        accumulator.step([tf.ones([1])])
    path = checkpoint.write(str(tmpdir.join("checkpoint")))
    accumulator, checkpoint = program()
    checkpoint.restore(path)
    assert [bool(accumulator.step([tf.ones([1])])) for _ in range(2)] == [False, True]


BAD = [{}, {1: 2}, {0: 0}, {0: 2.5}, {-1: 2, 0: 2}, {0: True}, {0: 2**63}, {0: 2, 2**63: 4}, 2**63]


@pytest.mark.parametrize("steps", BAD + ["four"])
def test_a_bad_schedule_is_refused_when_it_is_made(steps):
    with pytest.raises(ga.errors.OptionError):
        ga.Accumulator(modes.sgd(), [tf.Variable([0.0])], steps=steps)


@pytest.mark.parametrize("value", [0, -1, 2.5, None, "two"])
def test_a_bad_value_of_a_function_is_refused_when_it_comes(value):
    accumulator = ga.Accumulator(modes.sgd(), [tf.Variable([0.0])], steps=lambda count: value)
    with pytest.raises(ga.errors.OptionError):
        accumulator.step([tf.ones([1])])


@pytest.mark.skipif(modes.JIT is None, reason=modes.NO_JIT)
@pytest.mark.skipif(not modes.XLA_KNOWS_NAN, reason="XLA's arithmetic has no NaN there")
def test_a_bad_value_of_a_function_is_not_silently_wrong_under_xla():
    """XLA drops assertions: the update becomes NaN."""
    variable = tf.Variable([0.0])
    steps = lambda count: 1 - tf.cast(count, tf.int32)  # noqa: E731
    accumulator = ga.Accumulator(modes.sgd(), [variable], steps=steps)
    step = tf.function(lambda: accumulator.step([tf.ones([1])]), **modes.JIT)
    step()
    assert variable.numpy() == [-1.0]
    try:
        step()
    except tf.errors.InvalidArgumentError:
        return
    assert np.isnan(variable.numpy())


@pytest.mark.parametrize("value", [0, -1])
def test_a_bad_tensor_of_a_function_is_refused_when_it_comes(mode, value):
    run = mode([np.zeros(2, np.float32)], steps=lambda count: tf.where(count < 1, 1, value))
    assert updates(run, 1) == [True]
    with pytest.raises((ga.errors.OptionError, tf.errors.InvalidArgumentError), match="positive"):
        updates(run, 1)
    np.testing.assert_array_equal(run.weights()[0], [-1, -1])
