"""record.

What an accumulator does is written down, in eager code, in functions and in graphs alike.
"""

from __future__ import absolute_import, division, print_function

import numpy as np
import pytest
import tensorflow as tf

import gradaccum_compat as ga
from gradaccum_compat import errors
from support import modes, optimizers, recorded
from support.reference import Slices

v1 = tf.compat.v1
MODES = pytest.mark.parametrize(
    "mode", [modes.Eager, modes.Function, modes.Graph], ids=["eager", "function", "graph"]
)
ONE, TWO = np.array([[1.0, 2.0], [0.0, 4.0]], np.float32), np.array([3.0], np.float32)


def train(run, cycles=2):
    """Cycles of two micro-batches: gradients of 1 and 2 times ONE and TWO, weights 1 and 3."""
    for _ in range(cycles):
        run.step([ONE, TWO], 1.0)
        run.step([2 * ONE, 2 * TWO], 3.0)
    return run.weights()


@MODES
def test_each_update_is_recorded(tmp_path, mode):
    with recorded.into(tmp_path) as records:
        final = train(mode([ONE, TWO], steps=2))
    recorded.check_course(records[0], final)
    first, second = records[0]
    for update in (first, second):
        recorded.check_array(update.gradient[0], 7 / 4 * ONE)
        recorded.check_array(update.update_[1], -7 / 4 * TWO)
        assert (update.micro_batches, update.weight, update.learning_rate, update.applied) == (
            2,
            4.0,
            1.0,
            True,
        )
        assert not update.followed
    assert (first.update, second.update) == (0, 1)
    recorded.check_array(second.weights[1], TWO - 7 / 4 * TWO)


@MODES
def test_nothing_changes_in_the_numbers(tmp_path, mode):
    def adam():
        return v1.train.AdamOptimizer(0.1)

    plain = train(mode([ONE, TWO], adam, steps=2))
    with recorded.into(tmp_path):
        watched = train(mode([ONE, TWO], adam, steps=2))
    for one, other in zip(plain, watched):
        np.testing.assert_array_equal(one, other)


@MODES
def test_rows_are_recorded_as_the_whole(tmp_path, mode):
    table = np.arange(8, dtype=np.float32).reshape(4, 2)
    with recorded.into(tmp_path) as records:
        run = mode([table], steps=2)
        run.step([Slices(np.ones([3, 2], np.float32), [1, 3, 1])])
        run.step([Slices(np.ones([1, 2], np.float32), [0])])
        recorded_weights = run.weights()
    recorded.check_course(records[0], recorded_weights)
    want = np.array([[1, 1], [2, 2], [0, 0], [1, 1]]) / 2
    recorded.check_array(records[0].at(0).gradient[0], want)
    np.testing.assert_array_equal(records[0].state(0).gradient(0), want)
    np.testing.assert_allclose(
        records[0].at(0).micro_sketches[0][0],
        recorded.SKETCHER.sketch([[0, 0], [2, 2], [0, 0], [1, 1]]),
    )


@MODES
def test_a_variable_without_a_gradient_has_none_in_the_record(tmp_path, mode):
    with recorded.into(tmp_path) as records:
        run = mode([ONE, TWO], steps=1)
        run.step([ONE, None])
    update = records[0].at(0)
    assert (
        update.gradient[1] is None
        and update.update_[1].norm == 0
        and update.micro_sketches[0][1] is None
    )
    assert records[0].state(0).gradient(1) is None


@MODES
def test_micro_batches_are_recorded_one_by_one_in_the_first_cycles(tmp_path, mode):
    with recorded.into(tmp_path) as records:
        train(mode([ONE, TWO], steps=2), cycles=32)
    first = records[0].at(0)
    np.testing.assert_allclose(first.micro_sketches[0][0], recorded.SKETCHER.sketch(ONE))
    np.testing.assert_allclose(first.micro_sketches[1][1], recorded.SKETCHER.sketch(2 * TWO))
    assert [len(each.micro_sketches or []) for each in records[0]] == 30 * [2] + 2 * [0]


def test_micro_batches_of_a_large_model_are_recorded_in_three_cycles(tmp_path):
    with recorded.into(tmp_path) as records:
        run = modes.Eager([np.zeros(100001, np.float32)], steps=1)
        for _ in range(4):
            run.step([np.ones(100001, np.float32)])
    assert [len(each.micro_sketches or []) for each in records[0]] == [1, 1, 1, 0]


@MODES
def test_a_cycle_that_is_forgotten_leaves_no_micro_batch(tmp_path, mode):
    with recorded.into(tmp_path) as records:
        run = mode([ONE, TWO], steps=2)
        run.accumulate([5 * ONE, 5 * TWO])
        run.reset()
        train(run, 1)
    assert len(records[0].at(0).micro_sketches) == 2


@MODES
def test_half_precision_is_recorded_in_float32(tmp_path, mode):
    with recorded.into(tmp_path) as records:
        run = mode([np.array([1.0, 2.0], np.float16)], steps=1)
        run.step([np.array([1.0, 0.5], np.float16)])
    assert (
        records[0].variables[0].dtype == "float16"
        and records[0].state(0).weight(0).dtype == np.float32
    )
    np.testing.assert_array_equal(records[0].state(0).after(0), np.array([0, 1.5], np.float32))


@MODES
def test_what_is_not_finite_is_counted(tmp_path, mode):
    with recorded.into(tmp_path) as records:
        run = mode([np.zeros(4, np.float32)], steps=1)
        run.step([np.array([3, np.nan, np.inf, 4], np.float32)])
    gradient = records[0].at(0).gradient[0]
    assert (gradient.nonfinite, gradient.norm, gradient.max) == (2, 5.0, 4.0)


@MODES
def test_reference_variables_are_recorded_as_they_were(tmp_path, mode):
    if mode is not modes.Graph or tf.__version__.startswith("2"):
        pytest.skip("TF 1 alone updates reference variables in a conditional")
    with recorded.into(tmp_path) as records:
        final = train(
            mode([ONE, TWO], lambda: v1.train.AdamOptimizer(0.1), variable=v1.Variable, steps=2)
        )
    recorded.check_course(records[0], final)


@MODES
def test_a_variable_that_has_a_gradient_in_some_cycles_has_none_in_the_others(tmp_path, mode):
    with recorded.into(tmp_path) as records:
        run = mode([ONE, TWO], steps=1)
        for gradients in ([ONE, TWO], [ONE, None], [ONE, TWO]):
            run.step(gradients)
    assert [each.gradient[1] is None for each in records[0]] == [False, True, False]
    assert records[0].state(1).gradient(1) is None


@MODES
def test_an_update_that_is_refused_is_not_recorded(tmp_path, mode):
    with recorded.into(tmp_path) as records:
        run = mode([ONE, TWO], steps=1, nonfinite="raise")
        with pytest.raises((errors.NonFiniteGradientsError, tf.errors.InvalidArgumentError)):
            run.step([ONE * np.nan, TWO])
        run.step([ONE, TWO], 2.0)
    assert [(each.update, each.weight) for each in records[0]] == [(0, 2.0)]
    np.testing.assert_allclose(records[0].at(0).micro_sketches[0][0], recorded.SKETCHER.sketch(ONE))


# Snapshots


def updates_with_a_state(tmp_path, count, **options):
    with recorded.into(tmp_path, **options) as records:
        run = modes.Function([TWO], steps=1)
        for _ in range(count):
            run.step([TWO])
    return records[0].snapshots


def test_snapshots_are_taken_ever_more_rarely(tmp_path):
    assert updates_with_a_state(tmp_path, 102) == [0, 1, 2, 3, 10, 30, 100]


def test_snapshots_are_taken_where_told_and_of_the_first(tmp_path):
    assert updates_with_a_state(tmp_path, 9, snapshots=[4, 7]) == [0, 4, 7]


@pytest.mark.parametrize("snapshots", [3, [-1], ["x"], [1.5], "1,x"])
def test_snapshots_are_numbers(tmp_path, snapshots):
    with pytest.raises(errors.OptionError):
        with ga.upgrade.record(str(tmp_path), snapshots=snapshots):
            pass


# The optimizer

ADAMS = [("v1", "AdamOptimizer")] + [
    (family, "Adam") for family in optimizers.FAMILIES if family != "v1"
]


def adam(family):
    if family == "v1":
        return v1.train.AdamOptimizer(0.1)
    return optimizers.FAMILIES[family]["Adam"]()


@pytest.mark.parametrize("family, class_name", ADAMS)
def test_slots_have_the_same_names_in_each_generation(tmp_path, family, class_name):
    variable = optimizers.VARIABLES.get(family, tf.Variable)
    with recorded.into(tmp_path) as records:
        train(modes.Eager([ONE, TWO], lambda: adam(family), variable=variable, steps=2))
    manifest, state = records[0].manifest, records[0].state(1)
    assert records[0].slots == [["m", "v"]] * 2
    np.testing.assert_allclose(state.slots(0)["m"], 0.1 * 7 / 4 * ONE, rtol=1e-6)
    # Keras has 1 - 0.999 in float64, tf.train in float32.
    np.testing.assert_allclose(
        state.slots(0)["v"] * TWO**2, state.slots(1)["v"] * ONE**2, rtol=1e-6
    )
    assert manifest["optimizer"]["class"] == class_name
    assert (
        state.iterations == 1
        and records[0].at(0).iterations == 0
        and records[0].at(1).iterations == 1
    )
    assert 0 < manifest["optimizer"]["settings"]["epsilon"] < 1e-6


def test_a_schedule_s_learning_rate_is_that_of_each_update(tmp_path):
    schedule = tf.keras.optimizers.schedules.ExponentialDecay(0.5, 1, 0.5)
    variable = optimizers.VARIABLES.get("keras", tf.Variable)
    with recorded.into(tmp_path) as records:
        train(
            modes.Eager(
                [ONE, TWO], lambda: tf.keras.optimizers.SGD(schedule), variable=variable, steps=2
            ),
            3,
        )
    assert [each.learning_rate for each in records[0]] == [0.5, 0.25, 0.125]


# Which accumulators


def test_each_accumulator_has_a_record_of_its_own(tmp_path):
    with recorded.into(tmp_path) as records:
        first, second = modes.Eager([ONE], steps=1), modes.Eager([TWO], steps=1, name="critic")
        second.step([TWO])
        first.step([ONE])
    assert [each.name for each in records] == ["accumulator", "critic"]
    assert [each.variables[0].shape for each in records] == [(2, 2), (1,)]


def test_nothing_is_recorded_after_the_end(tmp_path):
    with recorded.into(tmp_path) as records:
        run = modes.Function([TWO], steps=1)
        run.step([TWO])
    run.step([TWO])
    assert len(records[0]) == 1 and [each.update for each in records[0]] == [0]
    assert recorded._format.read(str(tmp_path))[0].updates == [0]


def test_an_accumulator_made_outside_is_not_recorded(tmp_path):
    run = modes.Eager([TWO], steps=1)
    with pytest.raises(errors.RecordError):
        with recorded.into(tmp_path):
            run.step([TWO])


def test_one_record_at_a_time(tmp_path):
    with ga.upgrade.record(str(tmp_path / "one")):
        with pytest.raises(errors.RecordError):
            with ga.upgrade.record(str(tmp_path / "two")):
                pass


def test_a_block_that_makes_no_accumulator_says_so(tmp_path, capsys):
    accumulator = ga.Accumulator(
        tf.compat.v1.train.GradientDescentOptimizer(0.1), [tf.Variable(1.0)], 1
    )
    with ga.upgrade.record(str(tmp_path)):
        accumulator.step([tf.constant(1.0)])
    assert "nothing is recorded into {}".format(tmp_path) in capsys.readouterr().err


# XLA


@pytest.mark.skipif(
    modes.JIT is None or not hasattr(tf.config, "list_logical_devices"),
    reason="XLA compiles tf.functions from 2.1 on",
)
def test_under_xla_recording_says_how_to_go_on(tmp_path):
    with ga.upgrade.record(str(tmp_path)):
        with pytest.raises((errors.RecordError, tf.errors.OpError)) as raised:
            modes.Compiled([TWO], steps=1).step([TWO])
    assert "jit_compile" in str(raised.value)
