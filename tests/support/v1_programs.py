"""A small TF 1 program, as users of graphs and sessions write them, for wrapped optimizers and for
plain ones.

`MICRO` holds three cycles of micro-batches that all differ; the last one is cut short. `BIG` holds
the same examples in big batches: what the plain optimizer ends with on those is what a wrapped one
must end with on the others.
"""

from __future__ import absolute_import, division, print_function

import numpy as np
import tensorflow as tf

import gradaccum_compat as ga

v1 = tf.compat.v1
STEPS, SIZE, ROWS = 4, 2, 20

_random = np.random.RandomState(7)
X = _random.randn(3 * STEPS * SIZE, 3).astype(np.float32)
IDS = _random.randint(0, ROWS, size=len(X)).astype(np.int64)
Y = _random.randn(len(X), 1).astype(np.float32)


def batches(size):
    """The examples in batches: a list of (x, ids, y)."""
    return [
        (X[start : start + size], IDS[start : start + size], Y[start : start + size])
        for start in range(0, len(X), size)
    ]


MICRO, BIG = batches(SIZE), batches(STEPS * SIZE)

OPTIMIZERS = {
    "sgd": lambda: v1.train.GradientDescentOptimizer(0.1),
    "momentum": lambda: v1.train.MomentumOptimizer(0.1, 0.9),
    "adam": lambda: v1.train.AdamOptimizer(0.1),
}


def model(x, ids, use_resource=True, **options):
    """A dense layer and an embedding, with get_variable."""
    start = v1.initializers.constant(0.5)
    kernel = v1.get_variable(
        "kernel", [3, 1], initializer=start, use_resource=use_resource, **options
    )
    table = v1.get_variable(
        "table", [ROWS, 1], initializer=start, use_resource=use_resource, **options
    )
    return tf.matmul(x, kernel) + tf.nn.embedding_lookup(table, ids)


def placeholders():
    return (
        v1.placeholder(tf.float32, [None, 3]),
        v1.placeholder(tf.int64, [None]),
        v1.placeholder(tf.float32, [None, 1]),
    )


def mean_loss(prediction, y):
    return tf.reduce_mean(tf.square(prediction - y))


class Program(object):
    """One graph with a model, a train op and a Session.

    Args:
        optimizer: the name of one, or a function that makes it.
        train: function of (optimizer, loss, global_step) that returns the train op.
        build: function of (x, ids) that returns the prediction.
        options: for wrap_optimizer; None for the plain optimizer.
    """

    def __init__(self, optimizer="momentum", train=None, build=model, options=()):
        self.graph = tf.Graph()
        with self.graph.as_default():
            self.global_step = v1.train.get_or_create_global_step()
            self.inputs = placeholders()
            self.loss = mean_loss(build(*self.inputs[:2]), self.inputs[2])
            self.optimizer = OPTIMIZERS.get(optimizer, optimizer)()
            if options is not None:
                self.optimizer = ga.wrap_optimizer(
                    self.optimizer, **dict({"steps": STEPS}, **dict(options))
                )
            self.train_op = (train or minimize)(self.optimizer, self.loss, self.global_step)
            self.weights = v1.trainable_variables()
            self._initializer = v1.global_variables_initializer()
        self.session = v1.Session(graph=self.graph)
        self.session.run(self._initializer)

    def run(self, batches):
        """Trains on the batches, and returns the weights after each."""
        return [self.train(batch) for batch in batches]

    def train(self, batch):
        self.session.run(self.train_op, dict(zip(self.inputs, batch)))
        return self.values()

    def values(self):
        return [self.session.run(each) for each in self.weights]

    def global_steps(self):
        return int(self.session.run(self.global_step))


def minimize(optimizer, loss, global_step):
    return optimizer.minimize(loss, global_step=global_step)


def plain(optimizer="momentum", **options):
    """The weights after each update of the plain optimizer on the big batches."""
    return Program(optimizer, options=None, **options).run(BIG)


def assert_big_batch(got, want):
    """Weights after each micro-batch are those after as many whole big batches, and stand still in
    between."""
    for number, values in enumerate(got):
        if number % STEPS != STEPS - 1 and number:
            for value, before in zip(values, got[number - 1]):
                np.testing.assert_array_equal(
                    value, before, err_msg="moved at micro-batch {}".format(number)
                )
        elif number:
            assert_same_weights(
                values, want[number // STEPS], "after cycle {}".format(number // STEPS + 1)
            )


def assert_same_weights(got, want, when=""):
    assert len(got) == len(want)
    for value, expected in zip(got, want):
        np.testing.assert_allclose(value, expected, rtol=1e-6, atol=1e-6, err_msg=when)
