"""record(follow=...).

Updates begin from the weights and slots of another record, whatever optimizer wrote them.
"""

from __future__ import absolute_import, division, print_function

import os

import numpy as np
import pytest
import tensorflow as tf

import gradaccum_compat as ga
from gradaccum_compat import errors
from support import modes, optimizers, recorded

v1 = tf.compat.v1
MODES = pytest.mark.parametrize(
    "mode", [modes.Eager, modes.Function, modes.Graph], ids=["eager", "function", "graph"]
)
VALUES = [np.array([[1.0, -2.0], [0.5, 4.0]], np.float32), np.array([3.0], np.float32)]
OTHERS = [np.zeros([2, 2], np.float32), np.array([-1.0], np.float32)]

#: By what both sides have: tf.train's optimizer, and the name and options of Keras's, of one rule.
PAIRS = {
    "SGD": (lambda: v1.train.GradientDescentOptimizer(0.1), {}),
    "momentum": (lambda: v1.train.MomentumOptimizer(0.1, 0.9), dict(momentum=0.9)),
    "Adam": (lambda: v1.train.AdamOptimizer(0.1, epsilon=1e-7), dict(epsilon=1e-7)),
    "Adagrad": (lambda: v1.train.AdagradOptimizer(0.1), {}),
    "RMSprop": (
        lambda: v1.train.RMSPropOptimizer(0.1, momentum=0.9, epsilon=1e-7),
        dict(momentum=0.9),
    ),
    "Ftrl": (lambda: v1.train.FtrlOptimizer(0.1), {}),
}


def gradients(number):
    random = np.random.RandomState(number)
    return [random.randn(*np.shape(each)).astype(np.float32) for each in VALUES]


def train(run, updates=5):
    for number in range(updates):
        run.step(gradients(number))
    return run.weights()


def keras_families():
    return [family for family in optimizers.FAMILIES if family != "v1"]


def keras(family, name):
    module = {"keras": tf.keras.optimizers}.get(family)
    module = tf.keras.optimizers.legacy if family == "keras.legacy" else module
    return lambda: getattr(module, name if name != "momentum" else "SGD")(0.1, **PAIRS[name][1])


@MODES
@pytest.mark.parametrize("name", ["momentum", "Adam"])
def test_updates_with_a_state_begin_from_it(tmp_path, mode, name):
    with recorded.into(tmp_path / "old", snapshots=[0, 2, 3]) as old:
        want = train(modes.Eager(VALUES, PAIRS[name][0], steps=1))
    with recorded.into(tmp_path / "new", follow=str(tmp_path / "old")) as new:
        run = mode(OTHERS, PAIRS[name][0], steps=1)
        got = train(run)
    assert [each.followed for each in new[0]] == [True, False, True, True, False]
    assert new[0].snapshots == [0, 2, 3] and new[0].manifest["followed"] == str(tmp_path / "old")
    for index, each in enumerate(want):
        np.testing.assert_array_equal(new[0].state(3).after(index), old[0].state(3).after(index))
        np.testing.assert_array_equal(got[index], each)


@MODES
def test_what_was_wrong_is_set_right_at_the_next_state(tmp_path, mode):
    with recorded.into(tmp_path / "old", snapshots=[0, 2]) as old:
        train(modes.Eager(VALUES, steps=1))
    with recorded.into(tmp_path / "new", follow=str(tmp_path / "old")) as new:
        run = mode(OTHERS, steps=1)
        run.step(gradients(7))  # another gradient: the second update begins elsewhere
        train(run, 2)
    assert [each.followed for each in new[0]] == [True, False, True]
    np.testing.assert_array_equal(new[0].state(2).weight(0), old[0].state(2).weight(0))


@MODES
def test_the_program_s_own_first_weights_are_kept(tmp_path, mode):
    with recorded.into(tmp_path / "old"):
        train(modes.Eager(VALUES, PAIRS["Adam"][0], steps=1), 1)
    with recorded.into(tmp_path / "new", follow=str(tmp_path / "old")) as new:
        train(mode(OTHERS, PAIRS["Adam"][0], steps=1), 1)
    for index in range(2):
        np.testing.assert_array_equal(new[0].initial().weight(index), OTHERS[index])
        np.testing.assert_array_equal(new[0].initial().slots(index)["m"], 0 * OTHERS[index])
        np.testing.assert_array_equal(new[0].state(0).weight(index), VALUES[index])


def test_a_model_that_fit_builds_follows_too(tmp_path):
    def trained(name, **options):
        with recorded.into(tmp_path / name, **options):
            model = tf.keras.Sequential([tf.keras.layers.Dense(1, name="one")], name="model")
            model.compile(ga.wrap_optimizer(tf.keras.optimizers.SGD(0.1), steps=2), loss="mse")
            model.fit(np.ones([8, 3]), np.ones([8, 1]), batch_size=2, verbose=0)

    trained("old")
    trained("new", follow=str(tmp_path / "old"))
    report = ga.upgrade.compare(str(tmp_path / "old"), str(tmp_path / "new"))
    assert report.verdict != "not comparable"  # the first weights are random, so any other will do


@pytest.mark.parametrize("family", keras_families())
@pytest.mark.parametrize("name", sorted(PAIRS))
def test_keras_goes_on_from_tf_train(tmp_path, family, name):
    if family.startswith("tf_keras"):
        pytest.skip("the same classes as of `keras` in TensorFlow 2.15")
    with recorded.into(tmp_path / "old", snapshots=[3]) as old:
        train(modes.Eager(VALUES, PAIRS[name][0], steps=1))
    variable = optimizers.VARIABLES.get(family, tf.Variable)
    with recorded.into(tmp_path / "new", follow=str(tmp_path / "old")) as new:
        train(modes.Eager(OTHERS, keras(family, name), variable=variable, steps=1))
    assert new[0].at(3).followed
    for index in range(2):
        np.testing.assert_allclose(
            new[0].state(3).after(index), old[0].state(3).after(index), rtol=1e-6, atol=1e-7
        )


def test_another_optimizer_takes_the_weights_alone(tmp_path):
    with recorded.into(tmp_path / "old") as old:
        train(modes.Eager(VALUES, PAIRS["momentum"][0], steps=1))
    with recorded.into(tmp_path / "new", follow=str(tmp_path / "old")) as new:
        train(modes.Function(OTHERS, PAIRS["RMSprop"][0], steps=1))
    np.testing.assert_array_equal(new[0].state(2).weight(0), old[0].state(2).weight(0))
    assert np.all(new[0].state(2).slots(0)["rms"] > 0)


# A callable, as wrapped optimizers hand in, is asked at the first use


class Late(object):
    """Variables that the accumulator learns of at its first call."""

    def __init__(self):
        self.variables = [tf.Variable(each) for each in OTHERS]
        self.accumulator = ga.Accumulator(
            v1.train.GradientDescentOptimizer(0.1), lambda: self.variables, steps=1
        )

    def step(self):
        # Half the square of the weights, whose gradient they are.
        with tf.GradientTape() as tape:
            loss = tf.add_n([tf.reduce_sum(each * each) / 2 for each in self.variables])
        self.accumulator.step(tape.gradient(loss, self.variables))


def late(tmp_path, step_of):
    with recorded.into(tmp_path / "old") as old:
        run = modes.Eager(VALUES, lambda: v1.train.GradientDescentOptimizer(0.1), steps=1)
        for factor in (1.0, 0.9):
            run.step([factor * each for each in VALUES])
    with recorded.into(tmp_path / "new", follow=str(tmp_path / "old")) as new:
        step = step_of(Late())
        step()
        step()
    return old[0], new[0]


def test_a_gradient_that_came_before_the_state_is_not_in_lockstep(tmp_path):
    old, new = late(tmp_path, lambda each: each.step)
    assert [each.followed for each in new] == [False, True]
    np.testing.assert_array_equal(new.state(1).gradient(0), old.state(1).weight(0))


def test_in_a_function_the_gradient_comes_after_the_state(tmp_path):
    old, new = late(tmp_path, lambda each: tf.function(each.step))
    assert [each.followed for each in new] == [True, True]
    np.testing.assert_array_equal(new.state(0).gradient(0), VALUES[0])


# What is refused, and what is said


def old_record(tmp_path, values=VALUES):
    with recorded.into(tmp_path / "old"):
        modes.Eager(values, steps=1).step(values)
    return str(tmp_path / "old")


@pytest.mark.parametrize(
    "values, word",
    [([np.zeros([2, 3], np.float32), VALUES[1]], "(2, 3)"), (VALUES[:1], "1 variables")],
)
def test_other_shapes_are_refused(tmp_path, values, word):
    follow = old_record(tmp_path)
    with pytest.raises(errors.RecordError) as raised:
        with ga.upgrade.record(str(tmp_path / "new"), follow=follow):
            modes.Eager(values, steps=1)
    assert word in str(raised.value)


def test_what_is_no_record_is_not_followed(tmp_path):
    with pytest.raises(errors.RecordError):
        with ga.upgrade.record(str(tmp_path / "new"), follow=str(tmp_path / "nothing")):
            pass


@MODES
def test_a_state_that_cannot_be_read_ends_the_following(tmp_path, mode, capsys):
    with recorded.into(tmp_path / "old"):
        train(modes.Eager(VALUES, steps=1))
    with open(os.path.join(str(tmp_path / "old"), "accumulator", "state-1.npz"), "wb") as stream:
        stream.write(b"nothing")
    with recorded.into(tmp_path / "new", follow=str(tmp_path / "old")) as new:
        run = mode(VALUES, steps=1)
        plain = modes.Eager(VALUES, steps=1)
        for left, right in zip(train(run), train(plain)):
            np.testing.assert_array_equal(left, right)
    assert [each.followed for each in new[0]] == [True, False, False, False, False]
    assert capsys.readouterr().err.count("following has stopped") == 1
