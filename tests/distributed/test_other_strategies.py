"""OneDeviceStrategy and CentralStorageStrategy: the weights of one big batch, like everywhere else."""

from __future__ import absolute_import, division, print_function

import numpy as np
import pytest
import tensorflow as tf

import gradaccum_compat as ga
import modes
from reference import Reference, Slices

v1 = tf.compat.v1
SHAPES = [(2,), (50, 2)]


def central_storage(*devices):
    return tf.distribute.experimental.CentralStorageStrategy(compute_devices=devices, parameter_device="/cpu:0")


def share(replica, number):
    """(gradients, weight) as functions of the replica's number, which may be a tensor."""
    return ([(1.0 + 3.0 * replica) * number, Slices(np.ones((2, 2), np.float32), [replica, 5])], 1.0 + 2.0 * replica)


@pytest.fixture(params=[
    lambda: tf.distribute.OneDeviceStrategy("/cpu:0"), lambda: central_storage("/cpu:0"),
    lambda: central_storage("/cpu:0", "/cpu:1")], ids=["onedevice", "centralstorage", "two_on_centralstorage"])
def strategy(request):
    return request.param()


@pytest.mark.parametrize("make_optimizer", [
    lambda: v1.train.GradientDescentOptimizer(0.5), lambda: v1.train.MomentumOptimizer(0.5, 0.5),
    lambda: tf.keras.optimizers.SGD(0.5, momentum=0.5)], ids=["sgd", "momentum", "keras"])
def test_updates_are_the_big_batch_s(strategy, make_optimizer):
    run = getattr(strategy, "run", None) or strategy.experimental_run_v2
    with strategy.scope():
        variables = [tf.Variable(np.zeros(shape, np.float32)) for shape in SHAPES]
        accumulator = ga.Accumulator(make_optimizer(), variables, steps=2)

    @tf.function
    def train(number):
        def on_replica():
            replica = tf.cast(tf.distribute.get_replica_context().replica_id_in_sync_group, tf.int32)
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
                [([np.full(2, gradients[0], np.float32), gradients[1]], weight) for gradients, weight in shares])
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
        np.testing.assert_array_equal(got, -updates * strategy.num_replicas_in_sync * np.array([1.0, 2.0]))
