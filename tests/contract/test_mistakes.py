"""Mistakes that would give wrong numbers, or train nothing: refused where they are made."""

from __future__ import absolute_import, division, print_function

import copy

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context

import gradaccum_compat as ga
from support import modes

v1 = tf.compat.v1


def test_two_that_accumulate():
    plain = tf.keras.optimizers.SGD(0.1)
    with pytest.raises(ga.errors.OptimizerError):
        ga.Accumulator(ga.wrap_optimizer(plain, steps=2), [tf.Variable([0.0])])


@pytest.mark.skipif(not hasattr(tf.keras, "Variable"), reason="Keras 3 accumulates by itself")
def test_keras_s_own_accumulation():
    plain = tf.keras.optimizers.SGD(0.1, gradient_accumulation_steps=4)
    with pytest.raises(ga.errors.OptimizerError) as caught:
        ga.Accumulator(plain, [tf.Variable([0.0])])
    assert "gradient_accumulation_steps=4" in caught.value.received


@pytest.mark.skipif(
    not hasattr(tf.keras.optimizers, "MultiOptimizer"), reason="Keras has MultiOptimizer from 3.15"
)
@pytest.mark.parametrize("by_name", [True, False], ids=["a map", "a function"])
@pytest.mark.parametrize("accumulate", ["wrapped", "Keras's own"])
def test_parts_of_a_multi_optimizer_that_accumulate(by_name, accumulate):
    part = tf.keras.optimizers.SGD(0.1)
    if accumulate == "wrapped":
        part = ga.wrap_optimizer(part, steps=2)
    else:
        part = tf.keras.optimizers.SGD(0.1, gradient_accumulation_steps=2)
    parts = tf.keras.optimizers.OptimizerMap(part) if by_name else lambda variable: part
    variable = tf.keras.Variable([0.0])
    for _ in range(2):  # the second call is refused as the first is
        plain = tf.keras.optimizers.MultiOptimizer(parts)
        with pytest.raises(ga.errors.OptimizerError):
            ga.wrap_optimizer(plain, steps=2).apply([tf.constant([1.0])], [variable])
        with pytest.raises(ga.errors.OptimizerError):
            ga.Accumulator(plain, [variable], steps=2).step([tf.constant([1.0])])


def test_an_optimizer_around_one_that_accumulates():
    with tf.Graph().as_default():
        inside = ga.wrap_optimizer(
            v1.train.GradientDescentOptimizer(0.1), steps=2, global_step="micro_batches"
        )
        variable = v1.get_variable("w", [1], use_resource=True)
        with pytest.raises(ga.errors.OptimizerError) as caught:
            ga.Accumulator(v1.train.SyncReplicasOptimizer(inside, 1), [variable], steps=2)
    assert caught.value.received.startswith("SyncReplicasOptimizer around")


@pytest.mark.parametrize("mode", [modes.Eager, modes.Function, modes.Graph])
def test_nothing_has_a_gradient(mode):
    run = mode([np.zeros(2, np.float32)], steps=2)
    with pytest.raises(ga.errors.GradientsError) as caught:
        run.step([None])
    assert "No gradients provided for any variable" in str(caught.value)


def test_setting_steps():
    accumulator = ga.Accumulator(modes.sgd(), [tf.Variable([0.0])], steps=4)
    with pytest.raises(ga.errors.OptionError):
        accumulator.steps = 1
    assert accumulator.steps == 4


@pytest.mark.parametrize("option", ["clip_norm", "nonfinite", "loss_reduction", "statistics"])
def test_setting_another_option(option):
    """It was taken, and nothing came of it."""
    accumulator = ga.Accumulator(modes.sgd(), [tf.Variable([0.0])], steps=4)
    with pytest.raises(ga.errors.OptionError) as caught:
        setattr(accumulator, option, 1)
    assert caught.value.received == "accumulator.{} = 1".format(option)


@pytest.mark.parametrize("name", ["my acc", "", "1st", None, "a/b"])
def test_a_name_that_tensorflow_does_not_take(name):
    with pytest.raises(ga.errors.OptionError):
        ga.Accumulator(modes.sgd(), [tf.Variable([0.0])], name=name)


@pytest.mark.parametrize("built", [{"input_shape": (2,)}, {}], ids=["built", "not built yet"])
def test_a_model_in_place_of_its_variables(built):
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, **built)])
    with pytest.raises(ga.errors.VariablesError) as caught:
        ga.Accumulator(modes.sgd(), model)
    assert "model.trainable_variables" in caught.value.remedy
    assert caught.value.received.startswith("Sequential <")


def test_errors_keep_their_type_and_parts_inside_a_function():
    accumulator = ga.Accumulator(modes.sgd(), [tf.Variable([0.0, 0.0])])
    with pytest.raises(ga.errors.GradientsError) as caught:
        tf.function(lambda: accumulator.accumulate([tf.ones([3])]))()
    assert caught.value.rule == "A gradient has its variable's shape."
    assert caught.value.remedy and caught.value.received


@pytest.mark.skipif(
    not hasattr(tf.debugging, "enable_check_numerics"), reason="TF 2.1 brought the checks"
)
def test_numeric_checks_find_nothing_of_ours():
    variable = tf.Variable(tf.zeros([3, 2]))
    tf.debugging.enable_check_numerics()
    try:
        accumulator = ga.Accumulator(modes.sgd(), [variable], steps=2, clip_norm=1.0)
        step = tf.function(lambda weight: accumulator.step([tf.ones([3, 2])], weight))
        for _ in range(4):
            step(tf.constant(2.0))
        # Nothing came in: zeros, and nothing divided by a weight of zero.
        for gradients in (accumulator.gradients, tf.function(accumulator.gradients)):
            np.testing.assert_array_equal(gradients()[0].numpy(), np.zeros([3, 2]))
    finally:
        tf.debugging.disable_check_numerics()
    assert int(accumulator.update_count) == 2


def test_a_copy_is_independent():
    variable = tf.Variable([0.0])
    accumulator = ga.Accumulator(modes.sgd(), [variable], steps=2)
    accumulator.step([tf.ones([1])])
    twin = copy.deepcopy(accumulator)
    assert accumulator.step([tf.ones([1])])
    assert [int(twin.micro_count), int(accumulator.micro_count)] == [1, 0]


def test_repr_says_what_it_is():
    accumulator = ga.Accumulator(modes.sgd(), [tf.Variable([0.0])], steps=4)
    assert repr(accumulator) == (
        "<Accumulator 'accumulator': GradientDescentOptimizer, 1 variables, steps=4,"
        " loss_reduction='mean'>"
    )


@pytest.mark.skipif(
    not hasattr(context.context(), "scalar_cache"), reason="TF 1.14 and 1.15 cache each scalar"
)
@pytest.mark.parametrize("options", [{}, {"clip_norm": 1.0}, {"nonfinite": "skip"}], ids=str)
def test_eager_calls_leave_nothing_in_tensorflow_s_cache_of_scalars(options):
    """NaN equals no key: each use of it as a Python number left a tensor behind."""
    accumulator = ga.Accumulator(modes.sgd(), [tf.Variable([0.0])], steps=2, **options)
    gradient, weight = tf.ones([1]), tf.constant(2.0)
    sizes = []
    for _ in range(8):
        accumulator.step([gradient], weight)
        sizes.append(len(context.context().scalar_cache()))
    assert sizes[4:] == [sizes[3]] * 4


def test_a_restored_accumulator_knows_what_was_dense(tmpdir):
    """Rows came after a dense cycle: the large sum held the last cycle's values, 6 instead of 1,
    and momentum updated the rows that were not touched."""

    def made():
        table = tf.Variable(tf.zeros([20000, 1]))
        momentum = v1.train.MomentumOptimizer(1.0, 0.5)
        return table, ga.Accumulator(momentum, [table], steps=1)

    _, first = made()
    first.step([tf.fill([20000, 1], 6.0)])
    path = tf.train.Checkpoint(accumulator=first).save(str(tmpdir.join("saved")))
    table, second = made()
    tf.train.Checkpoint(accumulator=second).restore(path)
    rows = tf.IndexedSlices(tf.ones([1, 1]), tf.constant([4]))
    second.step([rows])
    assert table.numpy()[3:6].ravel().tolist() == [0.0, -1.0, 0.0]
    second.step([rows])
    assert table.numpy()[3:6].ravel().tolist() == [0.0, -2.5, 0.0]
