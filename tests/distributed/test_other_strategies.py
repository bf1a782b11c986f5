"""OneDeviceStrategy, CentralStorageStrategy, and MirroredStrategy with one replica: the weights of
one big batch."""

from __future__ import absolute_import, division, print_function

import numpy as np
import pytest
import tensorflow as tf

import gradaccum_compat as ga
from support import modes, replicas
from support.reference import Reference, Slices

v1 = tf.compat.v1
SHAPES = [(2,), (50, 2)]


def central_storage(*devices):
    return tf.distribute.experimental.CentralStorageStrategy(
        compute_devices=devices, parameter_device="/cpu:0"
    )


def share(replica, number):
    """(gradients, weight) as functions of the replica's number, which may be a tensor."""
    return (
        [(1.0 + 3.0 * replica) * number, Slices(np.ones((2, 2), np.float32), [replica, 5])],
        1.0 + 2.0 * replica,
    )


@pytest.fixture(
    params=[
        lambda: tf.distribute.OneDeviceStrategy("/cpu:0"),
        lambda: tf.distribute.MirroredStrategy(["/cpu:0"]),
        lambda: central_storage("/cpu:0"),
        lambda: central_storage("/cpu:0", "/cpu:1"),
    ],
    ids=["onedevice", "one_mirrored", "centralstorage", "two_on_centralstorage"],
)
def strategy(request):
    replicas.look_often()
    return request.param()


@pytest.mark.parametrize(
    "make_optimizer",
    [
        lambda: v1.train.GradientDescentOptimizer(0.5),
        lambda: v1.train.MomentumOptimizer(0.5, 0.5),
        lambda: tf.keras.optimizers.SGD(0.5, momentum=0.5),
    ],
    ids=["sgd", "momentum", "keras"],
)
def test_updates_are_the_big_batch_s(strategy, make_optimizer):
    run = getattr(strategy, "run", None) or strategy.experimental_run_v2
    with strategy.scope():
        variables = [tf.Variable(np.zeros(shape, np.float32)) for shape in SHAPES]
        accumulator = ga.Accumulator(make_optimizer(), variables, steps=2)

    @tf.function
    def train(number):
        def on_replica():
            replica = tf.cast(
                tf.distribute.get_replica_context().replica_id_in_sync_group, tf.int32
            )
            vector = tf.fill([2], (1.0 + 3.0 * tf.cast(replica, tf.float32)) * number)
            rows = tf.IndexedSlices(tf.ones([2, 2]), tf.stack([replica, 5]))
            return accumulator.step([vector, rows], 1 + 2 * replica)

        return run(on_replica)

    plain = modes.Eager([np.zeros(shape, np.float32) for shape in SHAPES], make_optimizer)
    for cycle in ((1.0, 2.0), (3.0, 4.0)):
        reference = Reference(SHAPES)
        for number in cycle:
            train(tf.constant(number))
            shares = [share(replica, number) for replica in range(strategy.num_replicas_in_sync)]
            reference.accumulate_on_replicas(
                [
                    ([np.full(2, gradients[0], np.float32), gradients[1]], weight)
                    for gradients, weight in shares
                ]
            )
        big = [gradient.astype(np.float32) for gradient in reference.gradients()]
        rows = list(range(strategy.num_replicas_in_sync)) + [5]
        plain.plain_apply([big[0], Slices(big[1][rows], rows)])
        for variable, want in zip(variables, plain.weights()):
            got = strategy.experimental_local_results(variable)[0].numpy()
            np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)


def test_what_is_the_same_object_on_all_replicas_counts_for_each(strategy):
    run = getattr(strategy, "run", None) or strategy.experimental_run_v2
    gradient = tf.constant([1.0, 2.0])
    with strategy.scope():
        variable = tf.Variable([0.0, 0.0])
        accumulator = ga.Accumulator(modes.sgd(), [variable], loss_reduction="none")
    accumulate = tf.function(lambda: run(lambda: accumulator.accumulate([gradient])))
    for updates in (1, 2):
        accumulate()
        assert accumulator.total_weight.numpy() == strategy.num_replicas_in_sync
        accumulator.apply()
        assert accumulator.update_count.numpy() == updates and accumulator.micro_count.numpy() == 0
        got = strategy.experimental_local_results(variable)[0].numpy()
        np.testing.assert_array_equal(
            got, -updates * strategy.num_replicas_in_sync * np.array([1.0, 2.0])
        )


def test_a_replica_that_is_a_thread_reads_in_a_graph_what_has_been_written(strategy):
    """It inherits no control dependencies, and nothing else orders the two."""
    run = getattr(strategy, "run", None) or strategy.experimental_run_v2
    with tf.Graph().as_default(), strategy.scope():
        value, weight = [v1.placeholder(tf.float32, []) for _ in range(2)]
        variable = v1.get_variable(
            "w", [300, 300], initializer=v1.zeros_initializer(), use_resource=True
        )
        accumulator = ga.Accumulator(modes.sgd(), [variable], steps=2)
        result = run(lambda: accumulator.step([value * tf.ones([300, 300])], weight))
        step = strategy.experimental_local_results(result)[0]
        weights = strategy.experimental_local_results(variable)[0].read_value()
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            for cycle in range(1, 21):
                assert not session.run(step, {value: 1.0, weight: 3.0})
                assert session.run(step, {value: 5.0, weight: 1.0})
                np.testing.assert_array_equal(
                    session.run(weights), np.full([300, 300], -2.0 * cycle)
                )
