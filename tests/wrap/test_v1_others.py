"""Wrapped tf.compat.v1.train optimizers in eager code and on replicas, and inside of other
optimizers."""

from __future__ import absolute_import, division, print_function

import numpy as np
import pytest
import tensorflow as tf

import gradaccum_compat as ga
from support import replicas, v1_programs
from support.v1_programs import (
    MICRO,
    SIZE,
    STEPS,
    Program,
    assert_big_batch,
    assert_same_weights,
    plain,
)

v1 = tf.compat.v1
UPDATES = [0, 0, 0, 1, 1, 1, 1, 2]


class Eager(object):
    """The same model as a Program's, with variables of eager code."""

    def __init__(self, optimizer, **options):
        self.weights = [
            tf.Variable(np.full([height, 1], 0.5, np.float32)) for height in (3, v1_programs.ROWS)
        ]
        self.global_step = tf.Variable(0, dtype=tf.int64, trainable=False)
        self.optimizer = ga.wrap_optimizer(
            v1_programs.OPTIMIZERS[optimizer](), steps=STEPS, **options
        )

    def loss(self, x, ids, y):
        kernel, table = self.weights
        return v1_programs.mean_loss(tf.matmul(x, kernel) + tf.nn.embedding_lookup(table, ids), y)

    def minimize(self, x, ids, y):
        self.optimizer.minimize(
            lambda: self.loss(x, ids, y), global_step=self.global_step, var_list=self.weights
        )

    def values(self):
        return [each.numpy() for each in self.weights]


@pytest.mark.parametrize("optimizer", ["momentum", "adam"])
@pytest.mark.parametrize(
    "decorate", [lambda function: function, tf.function], ids=["eager", "function"]
)
@pytest.mark.parametrize(
    "counts, want", [("updates", UPDATES), ("micro_batches", list(range(1, 9)))]
)
def test_minimize_in_eager_code(optimizer, decorate, counts, want):
    program = Eager(optimizer, global_step=counts)
    minimize, got, steps = decorate(program.minimize), [], []
    for batch in MICRO:
        minimize(*[tf.constant(each) for each in batch])
        got.append(program.values())
        steps.append(int(program.global_step.numpy()))
    assert_big_batch(got, plain(optimizer))
    assert steps[:8] == want


@pytest.mark.parametrize(
    "counts, want", [("updates", UPDATES), ("micro_batches", list(range(1, 9)))]
)
def test_minimize_under_mirrored_strategy(counts, want):
    """As the plain optimizer does, a wrapped one adds up what the replicas hand in, once in a
    cycle."""
    strategy = replicas.strategy()
    with strategy.scope():
        program = Eager("adam", global_step=counts)

    def on_replica(batch):
        gradients = tf.gradients(
            program.loss(*batch) / strategy.num_replicas_in_sync, program.weights
        )
        program.optimizer.apply_gradients(
            zip(gradients, program.weights), global_step=program.global_step
        )

    @tf.function
    def train(x, ids, y):
        def mine():
            number = replicas.replica()
            return on_replica([each[number : number + 1] for each in (x, ids, y)])

        replicas.run(mine)

    got, steps = [], []
    for batch in MICRO:
        train(*[tf.constant(each) for each in batch])
        got.append([replicas.local(each)[0].numpy() for each in program.weights])
        steps.append(int(program.global_step.numpy()))
    assert_big_batch(got, plain("adam"))
    assert steps[:8] == want and SIZE == strategy.num_replicas_in_sync


# SyncReplicasOptimizer


def synchronous(counts):
    def train(optimizer, loss, global_step):
        optimizer = v1.train.SyncReplicasOptimizer(
            optimizer, replicas_to_aggregate=1, total_num_replicas=1
        )
        train_op = optimizer.minimize(loss, global_step=global_step)
        train.hook = optimizer.make_session_run_hook(
            is_chief=True, num_tokens=0
        )  # none ahead of the updates
        return train_op

    return train, {"global_step": counts}


def test_sync_replicas_around_a_wrapped_optimizer():
    train, options = synchronous("micro_batches")
    program = Program("adam", train=train, options=options)
    with program.graph.as_default():
        with v1.train.MonitoredTrainingSession(
            hooks=[train.hook], stop_grace_period_secs=1
        ) as session:
            for batch in MICRO:
                session.run(program.train_op, dict(zip(program.inputs, batch)))
            raw = session._tf_sess()
            got = [raw.run(each) for each in program.weights]
    assert_same_weights(got, plain("adam")[-1])


def test_sync_replicas_needs_a_global_step_of_micro_batches():
    """It would drop the second micro-batch of a cycle as stale, and wait for ever."""
    train, options = synchronous("updates")
    with pytest.raises(ga.errors.OptionError, match='global_step="micro_batches"'):
        Program("adam", train=train, options=options)


def test_sync_replicas_is_not_wrapped_itself():
    optimizer = v1.train.SyncReplicasOptimizer(v1.train.AdamOptimizer(), 1, 1)
    with pytest.raises(ga.errors.OptimizerError, match="SyncReplicasOptimizer.ga.wrap_optimizer"):
        ga.wrap_optimizer(optimizer, steps=4)


# CrossShardOptimizer


def test_cross_shard_is_not_wrapped_itself():
    with pytest.raises(ga.errors.OptimizerError, match="CrossShardOptimizer.ga.wrap_optimizer"):
        ga.wrap_optimizer(v1.tpu.CrossShardOptimizer(v1.train.AdamOptimizer()), steps=4)


def test_cross_shard_around_a_wrapped_optimizer_sums_before_it_adds():
    """A graph of it alone: to run one takes a TPU."""
    with tf.Graph().as_default() as graph:
        weight = v1.get_variable("weight", [2], use_resource=True)
        optimizer = v1.tpu.CrossShardOptimizer(ga.wrap_optimizer(v1.train.AdamOptimizer(), steps=4))
        train_op = optimizer.minimize(tf.reduce_sum(tf.square(weight)))
        sums = [each for each in graph.get_operations() if each.type == "CrossReplicaSum"]
        assert len(sums) == 1
        assert sums[0] in upstream(train_op)


def upstream(op):
    """All operations that one waits for."""
    found, waiting = set(), [op]
    while waiting:
        each = waiting.pop()
        if each not in found:
            found.add(each)
            waiting.extend([tensor.op for tensor in each.inputs] + list(each.control_inputs))
    return found


# Loss scales

SCALES = {
    "fixed": lambda: 128.0,
    "dynamic": lambda: v1.train.experimental.DynamicLossScale(128.0, 1000),
}


@pytest.mark.parametrize("scale", sorted(SCALES))
@pytest.mark.parametrize("inside", [True, False], ids=["inside", "outside"])
def test_loss_scale(scale, inside):
    def train(optimizer, loss, global_step):
        if inside:
            optimizer = ga.wrap_optimizer(optimizer, steps=STEPS)
        optimizer = v1.train.experimental.MixedPrecisionLossScaleOptimizer(
            optimizer, SCALES[scale]()
        )
        if not inside:
            optimizer = ga.wrap_optimizer(optimizer, steps=STEPS)
        return optimizer.minimize(loss, global_step=global_step)

    program = Program("adam", train=train, options=None)
    assert_big_batch(program.run(MICRO), plain("adam"))
    assert program.global_steps() == 3


def test_a_micro_batch_that_overflows_is_left_out():
    """The loss-scale optimizer hands it to nobody, and lowers its scale."""

    def train(optimizer, loss, global_step):
        optimizer = v1.train.experimental.MixedPrecisionLossScaleOptimizer(
            optimizer, SCALES["dynamic"]()
        )
        return ga.wrap_optimizer(optimizer, steps=STEPS).minimize(loss, global_step=global_step)

    program = Program("adam", train=train, options=None)
    bad = (MICRO[0][0] * np.float32("inf"),) + MICRO[0][1:]
    program.run([bad])
    assert_big_batch(program.run(MICRO[:2] + [bad] + MICRO[2:STEPS])[-1:], plain("adam"))
    assert_same_weights(program.values(), plain("adam")[0])
