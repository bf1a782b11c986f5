"""Placeholders and a Session: micro-batches are fed one by one.

The hand-written graph is the well-known one with three operations, to zero the sums, to add to them
and to apply them. It adds up the gradients of mean losses and does not divide.
"""

from __future__ import absolute_import, division, print_function

import sys

import tensorflow as tf

import gradaccum_compat as ga
from comparing import regression, report, start_values

v1 = tf.compat.v1

BATCH, EPOCHS = 32, 5
CUTS = [10, 2, 13, 7]  # micro-batches of a big batch
X, Y = regression(examples=3 * BATCH)


class Network(object):
    """A graph with placeholders, weights, the mean loss and an optimizer."""

    def __init__(self):
        self.x, self.y = v1.placeholder(tf.float32, [None, 6]), v1.placeholder(
            tf.float32, [None, 1]
        )
        self.weights = [
            v1.get_variable(name, initializer=value, use_resource=True)
            for name, value in zip(["kernel", "bias", "out"], start_values((6, 8), (8,), (8, 1)))
        ]
        kernel, bias, out = self.weights
        hidden = tf.tanh(tf.matmul(self.x, kernel) + bias)
        self.loss = tf.reduce_mean(tf.square(tf.matmul(hidden, out) - self.y))
        self.optimizer = v1.train.MomentumOptimizer(0.05, 0.9)

    def feed(self, start, end):
        return {self.x: X[start:end], self.y: Y[start:end]}


def batches():
    """(start, end) of each big batch."""
    for _ in range(EPOCHS):
        for start in range(0, len(X), BATCH):
            yield start, start + BATCH


def micro_batches(start):
    for size in CUTS:
        yield start, start + size
        start += size


def big_batch():
    with tf.Graph().as_default(), v1.Session() as session:
        network = Network()
        train = network.optimizer.minimize(network.loss)
        session.run(v1.global_variables_initializer())
        for start, end in batches():
            session.run(train, network.feed(start, end))
        return session.run(network.weights)


def by_hand():
    with tf.Graph().as_default(), v1.Session() as session:
        network = Network()
        sums = [
            v1.get_variable(
                "sum%d" % index,
                initializer=tf.zeros(weight.shape),
                trainable=False,
                use_resource=True,
            )
            for index, weight in enumerate(network.weights)
        ]
        zero = [total.assign(tf.zeros_like(total)) for total in sums]
        pairs = network.optimizer.compute_gradients(network.loss, network.weights)
        add = [total.assign_add(gradient) for total, (gradient, _) in zip(sums, pairs)]
        apply = network.optimizer.apply_gradients(
            [(tf.identity(total), weight) for total, (_, weight) in zip(sums, pairs)]
        )
        session.run(v1.global_variables_initializer())
        for start, _ in batches():
            session.run(zero)
            for each in micro_batches(start):
                session.run(add, network.feed(*each))
            session.run(apply)
        return session.run(network.weights)


def with_library():
    with tf.Graph().as_default(), v1.Session() as session:
        network = Network()
        accumulator = ga.Accumulator(network.optimizer, network.weights)
        add = accumulator.accumulate(
            tf.gradients(network.loss, network.weights), weight=tf.shape(network.x)[0]
        )
        apply = accumulator.apply()
        session.run(v1.global_variables_initializer())
        for start, _ in batches():
            for each in micro_batches(start):
                session.run(add, network.feed(*each))
            session.run(apply)
        return session.run(network.weights)


if __name__ == "__main__":
    sys.exit(
        report(
            "placeholders and a Session", big_batch(), with_library(), {"not divided": by_hand()}
        )
    )
