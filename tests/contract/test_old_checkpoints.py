"""Checkpoints and models that this layout of the state has written go on in mid-cycle, and those of
the layouts before it are refused in words: see tests/data/README.md."""

from __future__ import absolute_import, division, print_function

import os
import shutil

import numpy as np
import pytest
import tensorflow as tf

import gradaccum_compat as ga
from support import cycles, small_sums

v1 = tf.compat.v1
DATA = os.path.join(os.path.dirname(os.path.dirname(__file__)), "data")
FORMER = ["one_sum_for_each_variable", "without_weight_exact"]
IS_KERAS_3 = hasattr(tf.keras, "Variable")


@pytest.fixture
def small_elements():
    """As users have it: the data was written so."""
    return small_sums.SMALL


def assert_same(got, want):
    for each, other in zip(got, want):
        np.testing.assert_allclose(each, other, rtol=1e-6, atol=1e-6)


def checkpoint(layout, version):
    return os.path.join(DATA, layout, "checkpoint-" + version, "checkpoint")


@pytest.mark.parametrize("late", [False, True], ids=["built", "built on first call"])
@pytest.mark.parametrize("version", ["1.14", "2.21"])
def test_a_checkpoint(version, late):
    program = cycles.Program(late=late)
    program.checkpoint.restore(checkpoint("packed", version))
    program.run(cycles.INTERRUPTED_AT, cycles.END)
    assert_same(program.weights(), cycles.Program().run(0, cycles.END).weights())


@pytest.mark.parametrize("decorate", [lambda call: call, tf.function], ids=["eager", "function"])
@pytest.mark.parametrize("version", ["1.14", "2.21"])
@pytest.mark.parametrize("layout", FORMER)
def test_a_checkpoint_of_a_former_layout_is_refused_in_mid_cycle(layout, version, decorate):
    program = cycles.Program()
    program.checkpoint.restore(checkpoint(layout, version))
    before = program.weights()
    for call in (program.accumulator.gradients, program.accumulator.apply):
        with pytest.raises(
            (tf.errors.InvalidArgumentError, ga.errors.IncompleteCycleError)
        ) as refused:
            decorate(lambda: tf.nest.flatten(call()))()
        assert "a release before 1.0.0" in str(refused.value)
    assert_same(program.weights(), before)


@pytest.mark.parametrize("layout", FORMER)
def test_after_a_reset_training_goes_on_from_a_former_checkpoint(layout):
    program = cycles.Program()
    program.checkpoint.restore(checkpoint(layout, "2.21"))
    program.accumulator.reset()
    program.run(4, cycles.END)  # the cycle that the checkpoint is in the middle of, once more
    assert_same(program.weights(), cycles.Program().run(0, cycles.END).weights())


# In a graph


class Training(object):
    """Cycles of three weighted micro-batches with a ga.Saver."""

    def __init__(self, **options):
        self.graph = tf.Graph()
        with self.graph.as_default():
            self.variable = v1.Variable([1.0, 2.0], use_resource=True, name="weights")
            self.inputs = [v1.placeholder(tf.float32, shape) for shape in ([2], [])]
            optimizer = v1.train.MomentumOptimizer(0.1, 0.9)
            accumulator = ga.Accumulator(optimizer, [self.variable], steps=3, **options)
            self.step = accumulator.step([self.inputs[0]], self.inputs[1])
            self.saver = ga.Saver()
            self.session = v1.Session()
            self.session.run(v1.global_variables_initializer())

    def run(self, begin, end):
        for number in range(begin, end):
            fed = [[number + 1.0, -number], number + 1.0]
            self.session.run(self.step, dict(zip(self.inputs, fed)))
        return self

    def restore(self, path):
        with self.graph.as_default():
            self.saver.restore(self.session, path)
        return self

    def weights(self):
        return self.session.run(self.variable)


def finished():
    return Training().run(0, 9).weights()


def saved(layout):
    return os.path.join(DATA, layout, "saver-1.14", "model")


@pytest.mark.parametrize("options", [{}, {"statistics": True}], ids=["plain", "statistics"])
def test_a_saver(options):
    restored = Training(**options).restore(saved("packed"))
    assert_same(restored.run(5, 9).weights(), finished())


def test_a_saver_keeps_the_cycle_where_statistics_alone_are_missing(tmpdir):
    before = Training().run(0, 5)
    with before.graph.as_default():
        path = before.saver.save(before.session, str(tmpdir.join("model")))
    assert_same(Training(statistics=True).restore(path).run(5, 9).weights(), finished())


def test_a_saver_in_a_finished_graph():
    training = Training()
    training.graph.finalize()
    assert_same(training.restore(saved("packed")).run(5, 9).weights(), finished())


def test_a_saver_begins_a_fresh_cycle_and_says_so_for_a_former_layout(monkeypatch):
    said = []
    monkeypatch.setattr(v1.logging, "warning", lambda text, *args: said.append(text % args))
    restored = Training().run(0, 2).restore(saved("without_weight_exact"))
    assert_same(restored.run(3, 9).weights(), finished())  # the second cycle from its beginning
    assert ["a fresh cycle begins" in each for each in said] == [True]


# Models


STEPS, SIZE = 4, 3
X = np.arange(12 * SIZE * 3).reshape(-1, 3) % 7 / 7.0
Y = np.arange(12 * SIZE).reshape(-1, 1) % 5 / 5.0


def new_model():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(3,))])
    optimizer = ga.wrap_optimizer(tf.keras.optimizers.Adam(0.05), steps=STEPS)
    model.compile(optimizer, tf.keras.losses.MeanSquaredError() if IS_KERAS_3 else "mse")
    model.set_weights([np.ones((3, 1), np.float32), np.zeros(1, np.float32)])
    return model


def train(model, begin, end):
    for number in range(begin, end):
        model.train_on_batch(X[SIZE * number :][:SIZE], Y[SIZE * number :][:SIZE])
    return model


of_this_keras = pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            "model-1.14.h5",
            marks=pytest.mark.skipif(
                not hasattr(tf.keras.optimizers.Adam, "_create_hypers"),
                reason="Adam of 2.11 on loads no h5 files of before, accumulating or not",
            ),
        ),
        pytest.param(
            "model-2.21.keras",
            marks=pytest.mark.skipif(not IS_KERAS_3, reason="Keras 2 reads no files of Keras 3"),
        ),
    ],
)


def loaded(tmpdir, layout, name):
    shutil.copy(os.path.join(DATA, layout, name), str(tmpdir))
    return tf.keras.models.load_model(str(tmpdir.join(name)))


@of_this_keras
def test_a_model(tmpdir, name):
    model = loaded(tmpdir, "packed", name)
    assert_same(train(model, 6, 12).get_weights(), train(new_model(), 0, 12).get_weights())
    assert int(model.optimizer.iterations.numpy()) == 3


@of_this_keras
def test_a_model_of_a_former_layout_begins_a_fresh_cycle_and_says_so(tmpdir, name):
    with pytest.warns(UserWarning, match="A fresh cycle begins"):
        model = loaded(tmpdir, "without_weight_exact", name)
        train(model, 4, 12)  # the cycle that it was in the middle of, once more
    assert_same(model.get_weights(), train(new_model(), 0, 12).get_weights())
