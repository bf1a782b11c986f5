"""Rows under XLA, whose shapes may not depend on values: the numbers are the plain optimizer's."""

from __future__ import absolute_import, division, print_function

import numpy as np
import pytest
import tensorflow as tf

import gradaccum_compat as ga
from support import modes, optimizers

pytestmark = pytest.mark.skipif(modes.JIT is None, reason=modes.NO_JIT)
needs_nan = pytest.mark.skipif(
    not modes.XLA_KNOWS_NAN, reason="XLA's arithmetic up to TF 2.2 has no NaN on a CPU"
)
ROWS = [[1, 5, 5], [70, 1, 199]]
#: Those that update touched rows alone, in each family that has them.
LAZY = [
    each
    for each in optimizers.ALL
    if each in [("v1", "Momentum"), ("v1", "RMSProp"), ("v1", "Ftrl")]
    or (each[0] != "v1" and each[1] in ("SGD with momentum", "Adadelta", "Nadam"))
]
FAMILIES = [each for each in optimizers.ALL if each[0] in ("keras", "keras.legacy", "v1")]


def ids_of(cycle, height):
    """Of two micro-batches; each cycle leaves rows alone that another one has touched."""
    return (np.array(ROWS) + 4 * cycle) % height


def values(height):
    random = np.random.RandomState(0)
    start = random.randn(height, 3).astype(np.float32), random.randn(3, 2).astype(np.float32)
    return start, random.randn(3, 2, 3, 3).astype(np.float32)


def plain(make, height, variable=tf.Variable):
    """Three updates of the plain optimizer, by the big batch's rows, which come once each."""
    start, given = values(height)
    table, dense = [variable(each) for each in start]
    optimizer = make()

    def update(rows, gradient, other):
        sparse = tf.IndexedSlices(gradient, rows, tf.constant([height, 3]))
        optimizer.apply_gradients([(sparse, table), (other, dense)])

    if hasattr(optimizer, "build"):
        optimizer.build([table, dense])
    compiled = tf.function(update)
    for number, cycle in enumerate(given):
        whole, ids = np.zeros([height, 3], np.float32), ids_of(number, height)
        for micro, micro_ids in zip(cycle, ids):
            np.add.at(whole, micro_ids, micro / 2)
        rows = np.unique(ids)
        compiled(tf.constant(rows), tf.constant(whole[rows]), tf.constant(cycle.mean(0)[:, :2]))
    return table.numpy(), dense.numpy()


def accumulated(make, height, variable=tf.Variable):
    start, given = values(height)
    variables = [variable(each) for each in start]
    accumulator = ga.Accumulator(make(), variables, steps=2)

    def step(ids, micro):
        rows = tf.IndexedSlices(micro, ids, tf.constant([height, 3]))
        return accumulator.step([rows, micro[:, :2]])

    step = tf.function(step, **modes.JIT)
    for number, cycle in enumerate(given):
        ids = ids_of(number, height)
        assert not step(tf.constant(ids[0]), tf.constant(cycle[0]))
        assert step(tf.constant(ids[1]), tf.constant(cycle[1]))
    return [each.numpy() for each in variables]


def accumulated_by_itself(make, height, variable=tf.Variable):
    """As accumulated(), by wrap_optimizer."""
    start, given = values(height)
    variables = [variable(each) for each in start]
    optimizer = ga.wrap_optimizer(make(), steps=2)

    def step(ids, micro):
        rows = tf.IndexedSlices(micro, ids, tf.constant([height, 3]))
        optimizer.apply_gradients(zip([rows, micro[:, :2]], variables))

    if hasattr(optimizer, "build"):
        optimizer.build(variables)
    step = tf.function(step, **modes.JIT)
    for number, cycle in enumerate(given):
        for micro_ids, micro in zip(ids_of(number, height), cycle):
            step(tf.constant(micro_ids), tf.constant(micro))
    return [each.numpy() for each in variables]


def dense_updates(make, options):
    """Three updates of the plain optimizer by dense gradients."""
    variable, optimizer = tf.Variable(values(200)[0][0]), make()
    optimizer.iterations, optimizer._create_hypers(), optimizer._create_slots([variable])

    def update(gradient):
        optimizer.apply_gradients([(gradient, variable)])

    update = tf.function(update, **options)
    for seed in range(3):
        update(tf.constant(np.random.RandomState(seed).randn(200, 3).astype(np.float32)))
    return variable.numpy()


@pytest.mark.parametrize("family, name", FAMILIES)
def test_every_optimizer_updates_as_without_xla(family, name):
    make, variable = optimizers.maker(family, name), optimizers.VARIABLES.get(family, tf.Variable)
    if getattr(make(), "amsgrad", False) and hasattr(make(), "_create_hypers"):
        pytest.skip("TensorFlow has no XLA kernel for OptimizerV2's fused Adam with amsgrad")
    skip_where_xla_rounds_otherwise(name, make)
    for got, want in zip(accumulated(make, 200, variable), plain(make, 200, variable)):
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)


def skip_where_xla_rounds_otherwise(name, make):
    if name == "Nadam" and hasattr(make(), "_create_hypers"):
        parted = np.abs(dense_updates(make, modes.JIT) - dense_updates(make, {})).max()
        if parted > 1e-6:  # 3.6e-6 on TF 2.4
            pytest.skip("XLA computes the plain Nadam otherwise, without rows too")


@pytest.mark.parametrize("family, name", LAZY)
def test_wrapped_it_leaves_rows_alone_as_the_plain_one(family, name):
    make = optimizers.maker(family, name)
    skip_where_xla_rounds_otherwise(name, make)
    for got, want in zip(accumulated_by_itself(make, 200), plain(make, 200)):
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)


def momentum():
    return tf.compat.v1.train.MomentumOptimizer(0.1, 0.9)


@pytest.mark.parametrize("height", [7, 64, 65, 5000])
def test_tables_of_every_height(height):
    for got, want in zip(accumulated(momentum, height), plain(momentum, height)):
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)


@needs_nan
def test_skipped_rows_are_not_touched():
    table = tf.Variable(tf.ones([100, 2]))
    accumulator = ga.Accumulator(momentum(), [table], steps=2, nonfinite="skip")

    def step(ids, micro):
        return accumulator.step([tf.IndexedSlices(micro, ids, tf.constant([100, 2]))])

    step = tf.function(step, **modes.JIT)
    for cycle in range(2):
        step(tf.constant([3]), tf.constant([[1.0, 1.0]]))
        step(tf.constant([4]), tf.constant([[2.0, float("nan")]]))
    expected = np.ones([100, 2], np.float32)
    expected[3] = 1 - 0.1 - (0.1 + 0.9 * 0.1)
    np.testing.assert_allclose(table.numpy(), expected, rtol=1e-6)
    assert int(accumulator.skipped_count) == 2


def test_clipping_and_gradients_see_all_rows():
    table = tf.Variable(tf.zeros([70, 1]))
    accumulator = ga.Accumulator(modes.sgd(), [table], clip_norm=1.0)
    rows = tf.IndexedSlices(tf.constant([[3.0], [4.0]]), tf.constant([2, 69]), tf.constant([70, 1]))
    tf.function(lambda: accumulator.accumulate([rows]), **modes.JIT)()
    gradient = tf.function(accumulator.gradients, **modes.JIT)()[0]
    np.testing.assert_allclose(gradient.numpy()[[2, 69], 0], [0.6, 0.8], rtol=1e-6)
    tf.function(accumulator.apply, **modes.JIT)()
    np.testing.assert_allclose(table.numpy()[[2, 69], 0], [-0.6, -0.8], rtol=1e-6)


@needs_nan
def test_a_negative_weight_makes_the_update_nan():
    variable = tf.Variable([1.0])
    accumulator = ga.Accumulator(modes.sgd(), [variable], steps=1)
    step = tf.function(lambda weight: accumulator.step([tf.ones([1])], weight), **modes.JIT)
    step(tf.constant(-1.0))
    assert np.isnan(variable.numpy()).all()
