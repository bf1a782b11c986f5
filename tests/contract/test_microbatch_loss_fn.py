"""What the loss_fn of microbatch_gradients may do, and where: randomness, control flow, state,
replicas."""

from __future__ import absolute_import, division, print_function

import numpy as np
import pytest
import tensorflow as tf

import gradaccum_compat as ga
from support import modes, replicas
from support.microbatch_contexts import Made

v1, errors = tf.compat.v1, ga.errors

# What loss_fn may do


def test_each_slice_has_random_numbers_of_its_own(context):
    made = Made([np.ones(16, np.float32)])

    def loss_fn(batch):
        return tf.reduce_mean(v1.nn.dropout(batch * made()[0], rate=0.5))

    def each_slice(batch):
        loss = loss_fn(batch)
        return loss, 1.0, v1.nn.dropout(batch, rate=0.5)

    (masks,) = context(
        lambda batch: [ga.microbatch_gradients(each_slice, made, batch[0], 4).extras],
        [np.ones((8, 16), np.float32)],
    )
    assert len({mask.tobytes() for mask in masks}) == 4


def test_control_flow_of_the_user_is_converted():
    """AutoGraph reaches loss_fn where it is on, and leaves it alone where it is off."""
    variable = tf.Variable([2.0])

    def loss_fn(x):
        if tf.reduce_sum(x) > 0:
            loss = tf.reduce_mean(x * variable)
        else:
            loss = tf.reduce_mean(x * variable * variable)
        return loss

    def compute(x):
        return ga.microbatch_gradients(loss_fn, [variable], x, 2).gradients[0]

    x = tf.constant([[2.0], [-3.0]])
    for call in (compute, tf.function(compute)):
        np.testing.assert_array_equal(call(x).numpy(), [(2 - 12) / 2])
    with pytest.raises(Exception) as caught:
        tf.function(compute, autograph=False)(x)
    assert "bool" in str(caught.value)


def test_the_call_stands_in_a_loop_that_autograph_converts():
    variable = tf.Variable([2.0])

    @tf.function
    def train(x):
        total = tf.zeros([1])
        for number in tf.range(3):
            if number > 0:
                total += ga.microbatch_gradients(
                    lambda batch: tf.reduce_mean(batch * variable), [variable], x, 2
                ).gradients[0]
        return total

    np.testing.assert_array_equal(train(tf.constant([[1.0], [3.0]])).numpy(), [4.0])


def test_state_that_loss_fn_writes_is_written_once_a_slice_in_order():
    variable, seen = tf.Variable([1.0]), tf.Variable(0.0, trainable=False)

    def loss_fn(x):
        loss = tf.reduce_mean(x * variable)
        with tf.control_dependencies([seen.assign(seen * 10 + tf.reduce_sum(x))]):
            return tf.identity(loss)

    for compute in (
        lambda x: ga.microbatch_gradients(loss_fn, [variable], x, 3).loss,
        tf.function(lambda x: ga.microbatch_gradients(loss_fn, [variable], x, 3).loss),
    ):
        seen.assign(0.0)
        compute(tf.constant([[1.0], [2.0], [3.0]]))
        assert seen.numpy() == 123.0


def test_variables_that_are_made_on_the_first_call():
    made = []

    def loss_fn(x):
        if not made:
            made.append(tf.Variable([1.0]))
        return tf.reduce_mean(x * made[0])

    train = tf.function(lambda x: ga.microbatch_gradients(loss_fn, lambda: made, x, 2).gradients[0])
    np.testing.assert_array_equal(train(tf.constant([[1.0], [3.0]])).numpy(), [2.0])


def test_keras_variables():
    layer = tf.keras.layers.Dense(1, kernel_initializer="ones")
    layer.build([None, 2])
    gradients = ga.microbatch_gradients(
        lambda x: tf.reduce_mean(layer(x)),
        layer.trainable_variables,
        tf.constant([[1.0, 2.0], [3.0, 4.0]]),
        2,
    )[1]
    np.testing.assert_array_equal(gradients[0].numpy(), [[2.0], [3.0]])


@pytest.mark.parametrize("resource", [True, False])
def test_loops_and_reference_variables_of_a_tf1_graph(resource):
    with tf.Graph().as_default(), v1.Session() as session:
        variable = v1.Variable([2.0], use_resource=resource)

        def loss_fn(x):
            _, power = tf.while_loop(
                lambda i, _: i < 2, lambda i, p: (i + 1, p * x[0, 0]), (0, tf.ones([]))
            )
            return tf.reduce_sum(variable) * power

        big = ga.microbatch_gradients(loss_fn, [variable], tf.constant([[1.0], [3.0]]), 2)
        session.run(v1.global_variables_initializer())
        assert session.run([big.loss, big.gradients[0][0]]) == [10.0, 5.0]


def test_one_trace_serves_all_sizes_of_a_batch():
    variable, traces = tf.Variable([1.0]), []

    @tf.function(input_signature=[tf.TensorSpec([None, 1], tf.float32)])
    def train(x):
        traces.append(1)
        return ga.microbatch_gradients(
            lambda x: tf.reduce_mean(x * variable), [variable], x, 4
        ).gradients[0]

    for examples in (8, 7, 3, 1):
        x = np.arange(examples, dtype=np.float32)[:, None]
        np.testing.assert_allclose(train(tf.constant(x)).numpy(), [x.mean()], rtol=1e-6)
    assert len(traces) == 1


# Replicas


def test_each_replica_gets_the_mean_over_its_own_batch():
    with replicas.strategy().scope():
        variable = tf.Variable([1.0])
        accumulator = ga.Accumulator(modes.sgd(), [variable])

    def on_replica(x):
        big = ga.microbatch_gradients(lambda x: tf.reduce_mean(x * variable), [variable], x, 2)
        accumulator.accumulate(big.gradients, big.weight)
        return big.weight

    def train(batch):
        return replicas.run(on_replica, (batch,))

    values = [[[1.0], [2.0], [3.0]]] + [[[10.0]]] * (replicas.COUNT - 1)
    expected = (6.0 + 10.0 * (replicas.COUNT - 1)) / (2 + replicas.COUNT)
    for number, call in enumerate((train, tf.function(train)), 1):
        call(replicas.run(lambda: tf.constant(values[replicas.replica()])))
        accumulator.apply()
        np.testing.assert_allclose(
            variable.read_value().numpy(), [1.0 - expected * number], rtol=1e-6
        )


def test_outside_of_the_replicas_is_refused():
    with replicas.strategy().scope():
        variable = tf.Variable([1.0])
        for steps in (2, "auto"):
            with pytest.raises(errors.ContextError) as caught:
                ga.microbatch_gradients(
                    lambda x: tf.reduce_mean(x * variable), [variable], tf.ones([2, 1]), steps
                )
            assert "strategy.run" in str(caught.value)
