"""Optimizers that TF 1 code bases have of their own: subclasses of tf.compat.v1.train.Optimizer
with other ways."""

from __future__ import absolute_import, division, print_function

import tensorflow as tf

from support.v1_programs import MICRO, STEPS, Program, assert_big_batch, plain

v1 = tf.compat.v1


class WeightDecayMomentum(v1.train.Optimizer):
    """Makes its own variables in apply_gradients, with get_variable, and leaves the global step to
    its caller."""

    def __init__(self):
        super(WeightDecayMomentum, self).__init__(False, "WeightDecayMomentum")

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        assignments = []
        for gradient, weight in grads_and_vars:
            momentum = v1.get_variable(
                weight.op.name + "/momentum",
                weight.shape.as_list(),
                tf.float32,
                v1.zeros_initializer(),
                trainable=False,
                use_resource=True,
            )
            following = 0.9 * momentum + tf.convert_to_tensor(gradient)
            assignments += [
                momentum.assign(following),
                weight.assign_sub(0.1 * (following + 0.01 * weight)),
            ]
        return tf.group(*assignments, name=name)


class CountingTwice(v1.train.GradientDescentOptimizer):
    """Its rate falls with the global step that apply_gradients is given."""

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        self._learning_rate = 0.1 / (1.0 + tf.cast(global_step, tf.float32))
        return super(CountingTwice, self).apply_gradients(grads_and_vars, global_step, name)


def test_one_that_makes_its_variables_when_it_applies():
    program = Program(WeightDecayMomentum)
    assert len(program.weights) == 2
    assert_big_batch(program.run(MICRO), plain(WeightDecayMomentum))


def test_one_that_uses_the_global_step_itself():
    def make():
        return CountingTwice(0.1)

    assert_big_batch(Program(make).run(MICRO), plain(make))


def by_hand(optimizer, loss, global_step):
    """Clips, applies and counts the global step by itself, as code for BERT does."""
    weights = v1.trainable_variables()
    gradients, _ = tf.clip_by_global_norm(tf.gradients(loss, weights), 100.0)
    train_op = optimizer.apply_gradients(zip(gradients, weights), global_step=None)
    return tf.group(train_op, [global_step.assign(global_step + 1)])


def test_a_program_that_counts_the_global_step_by_itself():
    program = Program(WeightDecayMomentum, train=by_hand)
    assert_big_batch(program.run(MICRO[:STEPS]), plain(WeightDecayMomentum, train=by_hand))
    assert program.global_steps() == STEPS
