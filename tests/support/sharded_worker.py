"""One worker of several, as a program that reads its own shard of a tf.data pipeline, of another
length on each worker.

sharded_worker.py OUT
"""

from __future__ import absolute_import, division, print_function

import json
import os
import sys

import numpy as np
import tensorflow as tf

import gradaccum_compat as ga
from support import worker

v1 = tf.compat.v1
#: The examples of each file. Two workers get files 0 and 2, and file 1: 7 examples, and 4.
FILES = [range(0, 4), range(4, 8), range(8, 11)]
BATCH, STEPS, EPOCHS, TABLE = 2, 3, 2, 5

OPTIMIZERS = {
    "sgd": lambda: v1.train.GradientDescentOptimizer(0.1),
    "momentum": lambda: v1.train.MomentumOptimizer(0.1, 0.9),
}
#: An optimizer, and what a worker does whose data has run out, until all workers' has: it steps
#: with an empty batch, accumulates None with no weight, or waits at apply.
CASES = [("sgd", "empty"), ("momentum", "empty"), ("momentum", "none"), ("momentum", "nothing")]


def examples():
    """(features, targets, rows of the table) of all examples."""
    random = np.random.RandomState(1)
    count = FILES[-1][-1] + 1
    return (
        random.randn(count, 3).astype(np.float32),
        random.randn(count).astype(np.float32),
        random.randint(0, TABLE, size=count),
    )


def start():
    return [np.ones(3, np.float32), np.zeros(TABLE, np.float32)]


def shard(count, index):
    """A worker's micro-batches, as a user would write it: the files are sharded, then read, then
    batched."""
    features, targets, rows = [tf.constant(each) for each in examples()]
    first = tf.constant([each[0] for each in FILES], tf.int64)
    last = tf.constant([each[-1] + 1 for each in FILES], tf.int64)
    dataset = tf.data.Dataset.range(len(FILES)).shard(count, index)
    dataset = dataset.flat_map(lambda file_: tf.data.Dataset.range(first[file_], last[file_]))
    dataset = dataset.map(lambda number: (features[number], targets[number], rows[number]))
    return dataset.batch(BATCH)


NOTHING_LEFT = (np.zeros([0, 3], np.float32), np.zeros([0], np.float32), np.zeros([0], np.int64))


class Training(object):
    """Trains until an update finds no example on any worker."""

    def __init__(self, strategy, make_optimizer, name):
        self._run = getattr(strategy, "run", None) or strategy.experimental_run_v2
        self._strategy = strategy
        with strategy.scope():
            self.variables = [
                tf.Variable(value, name="%s_%d" % (name, number))
                for number, value in enumerate(start())
            ]
            self.accumulator = ga.Accumulator(
                make_optimizer(), self.variables, steps=STEPS, name=name
            )
        # One trace for batches of every size: each trace of a reduction is a reduction of its own
        # to TensorFlow, and a worker that traces more often than another waits for ever for its
        # partners.
        batch = [
            tf.TensorSpec(shape, dtype)
            for shape, dtype in (([None, 3], tf.float32), ([None], tf.float32), ([None], tf.int64))
        ]
        self.accumulate, self.step = [
            tf.function(each, batch) for each in (self._accumulate, self._step)
        ]
        self.accumulate_none, self.apply = [
            tf.function(each) for each in (self._accumulate_none, self._apply)
        ]

    def _gradients(self, features, targets, rows):
        with tf.GradientTape() as tape:
            predicted = tf.reduce_sum(features * self.variables[0], axis=1) + tf.gather(
                self.variables[1], rows
            )
            loss = tf.reduce_mean(tf.square(predicted - targets))
        return tape.gradient(loss, self.variables), tf.shape(targets)[0]

    # TF before 2.1 cannot return a worker's tensor from a function.

    def _accumulate(self, features, targets, rows):
        self._run(lambda: self.accumulator.accumulate(*self._gradients(features, targets, rows)))

    def _accumulate_none(self):
        self._run(lambda: self.accumulator.accumulate([None, None], 0.0))

    def _step(self, features, targets, rows):
        self._run(lambda: self.accumulator.step(*self._gradients(features, targets, rows)))

    def _apply(self):
        self._run(self.accumulator.apply)

    def updates(self):
        return int(self.accumulator.update_count)

    def epoch(self, dataset, after_the_end):
        batches, moved = iter(dataset), True
        while moved:
            before = self.updates()
            self._cycle(batches, after_the_end)
            moved = self.updates() > before

    def _cycle(self, batches, after_the_end):
        for _ in range(STEPS):
            batch = next(batches, None)
            if after_the_end == "empty":
                self.step(
                    *[tf.constant(each) for each in (NOTHING_LEFT if batch is None else batch)]
                )
            elif batch is not None:
                self.accumulate(*batch)
            elif after_the_end == "none":
                self.accumulate_none()
        if after_the_end != "empty":
            self.apply()

    def weights(self):
        return [
            self._strategy.experimental_local_results(each)[0].numpy().tolist()
            for each in self.variables
        ]


def main(out):
    if not tf.executing_eagerly():
        v1.enable_eager_execution()
    strategy = worker.make_strategy()
    config = json.loads(os.environ["TF_CONFIG"])
    dataset = shard(len(config["cluster"]["worker"]), config["task"]["index"])
    results = {}
    for optimizer, after_the_end in CASES:
        name = "%s_%s" % (optimizer, after_the_end)
        training = Training(strategy, OPTIMIZERS[optimizer], name)
        for _ in range(EPOCHS):
            training.epoch(dataset, after_the_end)
        results[name] = {
            "updates": training.updates(),
            "weights": training.weights(),
            "examples": sum(int(each[1].shape[0]) for each in dataset),
        }
    with open(out, "w") as result:
        json.dump(results, result)


if __name__ == "__main__":
    main(sys.argv[1])
