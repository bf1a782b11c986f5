"""The global step counts each update once, whatever the plain optimizer does with it."""

from __future__ import absolute_import, division, print_function

import pytest
import tensorflow as tf

from support import replicas, v1_programs
from support.v1_programs import MICRO, STEPS, Program, assert_big_batch, plain

v1 = tf.compat.v1
MOMENTUM = v1.train.MomentumOptimizer


class Ignoring(MOMENTUM):
    """Leaves the global step to its caller, as Google's BERT has its optimizer do."""

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        return super(Ignoring, self).apply_gradients(grads_and_vars, name=name)


class Counting(MOMENTUM):
    """Finds the global step by itself, and increments it as it ends an update."""

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        updated = super(Counting, self).apply_gradients(grads_and_vars, name=name)
        with tf.control_dependencies([updated]):
            return v1.train.get_global_step().assign_add(1).op


class Asking(MOMENTUM):
    """Cannot do without a global step."""

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        assert global_step is not None
        return super(Asking, self).apply_gradients(grads_and_vars, global_step, name)


def counts(kind, **options):
    program = Program(lambda: kind(0.1, 0.9), **options)
    got, steps = [], []
    for batch in MICRO:
        got.append(program.train(batch))
        steps.append(program.global_steps())
    assert_big_batch(got, plain())
    return steps


@pytest.mark.parametrize("kind", [MOMENTUM, Ignoring, Counting, Asking])
def test_each_update_counts_once(kind):
    assert counts(kind) == [0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3]


def test_micro_batches_count_once_where_the_optimizer_counts_none():
    assert counts(Ignoring, options={"global_step": "micro_batches"}) == list(range(1, 13))


def test_a_schedule_reads_the_step_before_it_is_counted():
    def decaying(kind):
        def make():
            step = v1.train.get_or_create_global_step()
            return kind(v1.train.exponential_decay(0.1, step, 1, 0.5), 0.9)

        return make

    assert_big_batch(Program(decaying(Ignoring)).run(MICRO), plain(decaying(MOMENTUM)))


@pytest.mark.parametrize("kind", [MOMENTUM, Ignoring])
def test_under_mirrored_strategy(kind):
    strategy = replicas.strategy()
    with strategy.scope():
        weight = tf.Variable([1.0])
        step = tf.Variable(0, dtype=tf.int64, trainable=False)
        optimizer = v1_programs.ga.wrap_optimizer(kind(0.1, 0.9), steps=STEPS)

    @tf.function
    def train():
        replicas.run(
            lambda: optimizer.apply_gradients([(tf.ones([1]), weight)], global_step=step) and None
        )

    steps = []
    for _ in range(2 * STEPS):
        train()
        steps.append(int(step.numpy()))
    assert steps == [0] * (STEPS - 1) + [1] * STEPS + [2]


class Around(v1.train.Optimizer):
    """Around another optimizer, without the base constructor, as tf.contrib.opt has some."""

    def __init__(self, optimizer):
        self._optimizer = optimizer

    def compute_gradients(self, *args, **kwargs):
        return self._optimizer.compute_gradients(*args, **kwargs)

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        return self._optimizer.apply_gradients(grads_and_vars, global_step, name)

    def _create_slots(self, var_list):
        return self._optimizer._create_slots(var_list)


def test_an_optimizer_around_another_one():
    program = Program(lambda: Around(MOMENTUM(0.1, 0.9)))
    assert_big_batch(program.run(MICRO), plain())
    assert program.global_steps() == 3
