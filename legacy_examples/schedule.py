"""A learning-rate schedule in a TF 1 graph: `minimize` counts in the global step, and the rate
decays with it.

The hand-written graph hands the optimizer zeros in between. So the global step counts
micro-batches, the rate decays four times as fast, and momentum moves the weights on every one of
them.
"""

from __future__ import absolute_import, division, print_function

import sys

import tensorflow as tf

import gradaccum_compat as ga
from comparing import regression, report, start_values

v1 = tf.compat.v1

BATCH, STEPS, EPOCHS = 32, 4, 5
MICRO = BATCH // STEPS
X, Y = regression(examples=3 * BATCH)


def network():
    """Placeholders, the weights and the mean loss."""
    x, y = v1.placeholder(tf.float32, [None, 6]), v1.placeholder(tf.float32, [None, 1])
    kernel, bias, out = [
        v1.get_variable(name, initializer=value, use_resource=True)
        for name, value in zip(["kernel", "bias", "out"], start_values((6, 8), (8,), (8, 1)))
    ]
    loss = tf.reduce_mean(tf.square(tf.matmul(tf.tanh(tf.matmul(x, kernel) + bias), out) - y))
    return x, y, [kernel, bias, out], loss


def optimizer_of(global_step):
    """Momentum, with a rate that is halved after every four updates."""
    rate = v1.train.exponential_decay(
        0.2, global_step, decay_steps=4, decay_rate=0.5, staircase=True
    )
    return v1.train.MomentumOptimizer(rate, 0.9)


def train(minimize, size):
    """Trains on batches of this size, with the operation that minimize makes of a loss."""
    with tf.Graph().as_default():
        x, y, weights, loss = network()
        global_step = v1.train.get_or_create_global_step()
        operation = minimize(loss, weights, global_step)
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            for _ in range(EPOCHS):
                for start in range(0, len(X), size):
                    session.run(operation, {x: X[start : start + size], y: Y[start : start + size]})
            return session.run(weights)


def big_batch():
    return train(
        lambda loss, _, global_step: optimizer_of(global_step).minimize(
            loss, global_step=global_step
        ),
        BATCH,
    )


def by_hand():
    def minimize(loss, weights, global_step):
        optimizer = optimizer_of(global_step)
        sums = [
            v1.get_variable(
                "sum%d" % index,
                initializer=tf.zeros(weight.shape),
                trainable=False,
                use_resource=True,
            )
            for index, weight in enumerate(weights)
        ]
        last = tf.equal(global_step % STEPS, STEPS - 1)
        added = [
            total.assign_add(gradient) for total, gradient in zip(sums, tf.gradients(loss, weights))
        ]
        with tf.control_dependencies(added):
            gradients = [
                tf.cond(
                    last,
                    lambda total=total: total / STEPS,
                    lambda total=total: tf.zeros_like(total),
                )
                for total in sums
            ]
        with tf.control_dependencies(gradients):
            kept = [
                tf.cond(
                    last,
                    lambda total=total: tf.zeros_like(total),
                    lambda total=total: tf.identity(total),
                )
                for total in sums
            ]
        with tf.control_dependencies(kept):
            emptied = [total.assign(value) for total, value in zip(sums, kept)]
        with tf.control_dependencies(emptied):
            return optimizer.apply_gradients(list(zip(gradients, weights)), global_step=global_step)

    return train(minimize, MICRO)


def with_library():
    def minimize(loss, _, global_step):
        return ga.wrap_optimizer(optimizer_of(global_step), steps=STEPS).minimize(
            loss, global_step=global_step
        )

    return train(minimize, MICRO)


if __name__ == "__main__":
    sys.exit(report("schedule", big_batch(), with_library(), {"zeros in between": by_hand()}))
