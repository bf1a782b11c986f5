"""Training that begins in a TF 1 graph with a Saver and goes on with a Keras optimizer.

Run as a program it is one half of a test across versions: `carried_training.py begin DIR` trains
with each optimizer in a graph, saves a checkpoint in mid-cycle and trains to the end;
`carried_training.py finish DIR` carries the checkpoints over and goes on. Each writes the weights
that it ends with to DIR as JSON.
"""

from __future__ import absolute_import, division, print_function

import collections
import json
import os
import sys

import numpy as np
import tensorflow as tf

import gradaccum_compat as ga
from support import replicas

v1 = tf.compat.v1
STEPS, INTERRUPTED_AT, END = 4, 10, 20
SHAPES = collections.OrderedDict(
    [("dense/kernel", [3, 2]), ("dense/bias", [2]), ("head/kernel", [2, 2])]
)
_random = np.random.RandomState(11)
START = [_random.randn(*shape).astype(np.float32) for shape in SHAPES.values()]
#: Uneven micro-batches.
MICRO = [_random.randn(1 + number % 3, 3).astype(np.float32) for number in range(END)]

keras = tf.keras.optimizers
#: Up to 2.10 and in `legacy` Keras has epsilon outside of the root, where tf.train has none or has
#: it inside.
OUTSIDE = not hasattr(keras.SGD, "build")

OLD = {
    "sgd": lambda: v1.train.GradientDescentOptimizer(0.1),
    "momentum": lambda: v1.train.MomentumOptimizer(0.02, 0.9),
    "nesterov": lambda: v1.train.MomentumOptimizer(0.02, 0.9, use_nesterov=True),
    "adam": lambda: v1.train.AdamOptimizer(0.1),
    "adagrad": lambda: v1.train.AdagradOptimizer(0.1),
    "rmsprop": lambda: v1.train.RMSPropOptimizer(0.01),
    "rmsprop_momentum": lambda: v1.train.RMSPropOptimizer(0.01, momentum=0.5),
    "rmsprop_centered": lambda: v1.train.RMSPropOptimizer(0.01, momentum=0.5, centered=True),
    "ftrl": lambda: v1.train.FtrlOptimizer(
        0.1, l1_regularization_strength=0.01, l2_regularization_strength=0.02
    ),
}
NEW = {
    "sgd": lambda: keras.SGD(0.1),
    "momentum": lambda: keras.SGD(0.02, momentum=0.9),
    "nesterov": lambda: keras.SGD(0.02, momentum=0.9, nesterov=True),
    "adam": lambda: keras.Adam(0.1, epsilon=1e-8),
    "adagrad": lambda: keras.Adagrad(0.1, epsilon=1e-30 if OUTSIDE else 1e-7),
    "rmsprop": lambda: keras.RMSprop(0.01, epsilon=1e-30 if OUTSIDE else 1e-10),
    "rmsprop_momentum": lambda: keras.RMSprop(0.01, momentum=0.5, epsilon=1e-10),
    "rmsprop_centered": lambda: keras.RMSprop(0.01, momentum=0.5, epsilon=1e-10, centered=True),
    "ftrl": lambda: keras.Ftrl(
        0.1, l1_regularization_strength=0.01, l2_regularization_strength=0.02
    ),
}


def loss_of(variables, x):
    hidden = tf.tanh(tf.matmul(x, variables[0]) + variables[1])
    return tf.reduce_mean(
        tf.square(tf.matmul(hidden, variables[2]) - tf.reduce_sum(x, 1, keepdims=True))
    )


def begin(optimizer, path, accumulates=True, stop=INTERRUPTED_AT, end=END):
    """Trains in a TF 1 graph, saves a checkpoint on the way, and returns the weights at the end.

    Args:
        optimizer: one of tf.compat.v1.train.
        path: where the Saver writes.
        accumulates: False to update with each micro-batch.
        stop: micro-batches before the checkpoint.
        end: micro-batches in all.
    """
    with tf.Graph().as_default():
        variables = [
            v1.get_variable(name, initializer=tf.constant(value), use_resource=True)
            for name, value in zip(SHAPES, START)
        ]
        x, global_step = v1.placeholder(tf.float32, [None, 3]), v1.train.get_or_create_global_step()
        gradients = tf.gradients(loss_of(variables, x), variables)
        pairs = list(zip(gradients, variables))
        if accumulates:
            optimizer = ga.wrap_optimizer(
                optimizer, steps=STEPS, loss_reduction="mean", weight=lambda: tf.shape(x)[0]
            )
        train = optimizer.apply_gradients(pairs, global_step=global_step)
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            for number in range(end):
                if number == stop:
                    v1.train.Saver().save(session, path)
                session.run(train, {x: MICRO[number]})
            return session.run(variables)


class Continued(object):
    """A program of TensorFlow 2: variables, a Keras optimizer, and what accumulates for it."""

    def __init__(self, optimizer, names=SHAPES):
        self.variables = [
            tf.Variable(tf.zeros(shape), name=name) for name, shape in zip(names, SHAPES.values())
        ]
        self.optimizer = optimizer
        self.weight = 1.0

    def checkpoint(self, inner):
        """A checkpoint of TensorFlow 2 of the program, whose accumulator is around `inner`."""
        model = tf.Module()
        model.weights = self.variables
        return tf.train.Checkpoint(model=model, optimizer=inner, accumulator=self.optimizer)

    def carry_over(self, path, **options):
        return ga.upgrade.carry_over(path, self.optimizer, self.variables, **options)

    def train(self, start, end=END):
        for x in MICRO[start:end]:
            with tf.GradientTape() as tape:
                loss = loss_of(self.variables, x)
            gradients = tape.gradient(loss, self.variables)
            self.weight = float(len(x))
            if isinstance(self.optimizer, ga.Accumulator):
                self.optimizer.step(gradients, self.weight)
            else:
                self.optimizer.apply_gradients(zip(gradients, self.variables))
        return [each.numpy() for each in self.variables]


def wrapped(optimizer):
    """A program whose wrapped optimizer accumulates as the one in the graph does."""
    program = Continued(None)
    program.optimizer = ga.wrap_optimizer(
        optimizer, steps=STEPS, loss_reduction="mean", weight=lambda: program.weight
    )
    return program


class OnReplicas(Continued):
    """The same on two replicas, each of which takes every other example of a micro-batch."""

    def __init__(self, optimizer):
        with replicas.strategy().scope():
            super(OnReplicas, self).__init__(None)
            self.optimizer = ga.Accumulator(optimizer, self.variables, steps=STEPS)
        signature = [tf.TensorSpec([None, 3], tf.float32)]
        self._train = tf.function(
            lambda x: replicas.run(self._on_replica, (x,)), input_signature=signature
        )

    def train(self, start, end=END):
        for x in MICRO[start:end]:
            self._train(x)
        return [
            replicas.strategy().experimental_local_results(each)[1].numpy()
            for each in self.variables
        ]

    def _on_replica(self, x):
        share = x[tf.distribute.get_replica_context().replica_id_in_sync_group :: replicas.COUNT]
        with tf.GradientTape() as tape:
            loss = loss_of(self.variables, share)
        self.optimizer.step(tape.gradient(loss, self.variables), weight=tf.shape(share)[0])


def with_accumulator(optimizer):
    program = Continued(None)
    program.optimizer = ga.Accumulator(optimizer, program.variables, steps=STEPS)
    return program


def main(part, folder):
    weights = {}
    if not tf.executing_eagerly():
        v1.enable_eager_execution()
    for name in sorted(NEW):
        path = os.path.join(folder, name + ".ckpt")
        if part == "begin":
            weights[name] = [each.tolist() for each in begin(OLD[name](), path)]
        else:
            program = wrapped(NEW[name]())
            program.carry_over(path)
            weights[name] = [each.tolist() for each in program.train(INTERRUPTED_AT)]
    with open(os.path.join(folder, part + ".json"), "w") as out:
        json.dump(weights, out)


if __name__ == "__main__":
    main(*sys.argv[1:])
