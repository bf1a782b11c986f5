"""Trains on several workers, each with a shard of the data that is longer or shorter than the
others'.

A program in the style of TensorFlow 1.14 that runs unchanged on every later one, with Python 2.7 or
3. Start it on each machine with its TF_CONFIG, or let launch_workers.py do so:

    python launch_workers.py --local 2 several_workers.py

Without TF_CONFIG it trains alone. It compares its weights with those that big batches give,
computed in NumPy.
"""

from __future__ import absolute_import, division, print_function

import json
import os
import sys

import numpy as np
import tensorflow as tf

import gradaccum_compat as ga

v1 = tf.compat.v1

FEATURES = 4
#: How many examples each file of the data has. Workers take files in turns: two of them have 13 and
#: 10 examples.
FILES = [5, 6, 3, 4, 5]
BATCH, STEPS, EPOCHS = 2, 3, 3
LEARNING_RATE, MOMENTUM = 0.1, 0.9
LIMIT = 1e-6


def worker_of(config):
    """(number of this worker, number of workers) from TF_CONFIG."""
    workers = config.get("cluster", {}).get("worker", [None])
    return config.get("task", {}).get("index", 0), len(workers)


def examples():
    """Made-up data: features, and targets that a linear model does not quite reach."""
    random = np.random.RandomState(0)
    features = random.randn(sum(FILES), FEATURES).astype(np.float32)
    return features, (features.sum(1) + random.randn(sum(FILES))).astype(np.float32)


def numbers_of(file_):
    """The numbers of the examples that are in a file."""
    return list(range(sum(FILES[:file_]), sum(FILES[: file_ + 1])))


def shard(worker, workers):
    """This worker's micro-batches: files are sharded first, then read, then batched."""
    features, targets = [tf.constant(each) for each in examples()]
    bounds = tf.constant(np.cumsum([0] + FILES), tf.int64)
    files = tf.data.Dataset.range(len(FILES)).shard(workers, worker)
    numbers = files.flat_map(lambda file_: tf.data.Dataset.range(bounds[file_], bounds[file_ + 1]))
    return numbers.map(lambda number: (features[number], targets[number])).batch(BATCH)


class Trainer(object):
    """The model, the optimizer and the accumulator, and a training step that is compiled."""

    def __init__(self, strategy):
        self._strategy = strategy
        # Strategy.run was experimental_run_v2 up to TensorFlow 2.1.
        self._run = getattr(strategy, "run", None) or strategy.experimental_run_v2
        with strategy.scope():
            # Names: the reductions of TensorFlow 1.14 know variables by them.
            self._weights = tf.Variable(np.zeros(FEATURES, np.float32), name="weights")
            self._bias = tf.Variable(np.float32(0), name="bias")
            optimizer = v1.train.MomentumOptimizer(LEARNING_RATE, MOMENTUM)
            self._accumulator = ga.Accumulator(optimizer, self.variables, steps=STEPS)
        # A signature, so that batches of every size share one trace. A worker that traces more
        # reductions than the others, for the sake of its last, shorter batch, would wait for them
        # for ever.
        self._step = tf.function(
            self._on_worker,
            [tf.TensorSpec([None, FEATURES], tf.float32), tf.TensorSpec([None], tf.float32)],
        )

    @property
    def variables(self):
        return [self._weights, self._bias]

    def _on_worker(self, features, targets):
        def step():
            with tf.GradientTape() as tape:
                predicted = tf.reduce_sum(features * self._weights, axis=1) + self._bias
                loss = tf.reduce_mean(tf.square(predicted - targets))
            gradients = tape.gradient(loss, self.variables)
            self._accumulator.step(gradients, weight=tf.shape(targets)[0])

        self._run(step)

    def epoch(self, batches):
        """Trains until no worker has an example left: then a cycle ends without an update, on all
        workers alike."""
        batches, updates = iter(batches), None
        # A batch without examples has no weight. All workers take as many steps, whatever they
        # have.
        nothing = tf.zeros([0, FEATURES]), tf.zeros([0])
        while updates != int(self._accumulator.update_count):
            updates = int(self._accumulator.update_count)
            for _ in range(STEPS):
                self._step(*next(batches, nothing))

    def result(self):
        return np.concatenate(
            [
                np.ravel(self._strategy.experimental_local_results(each)[0].numpy())
                for each in self.variables
            ]
        )


def big_batches(workers):
    """The numbers of the examples that an update sees, on all workers together, update by
    update."""
    shards = [
        [number for file_ in range(worker, len(FILES), workers) for number in numbers_of(file_)]
        for worker in range(workers)
    ]
    size = BATCH * STEPS
    for first in range(0, max(len(each) for each in shards), size):
        yield [number for each in shards for number in each[first : first + size]]


def expected(workers):
    """The weights that gradient descent with momentum has after the same updates with big
    batches."""
    features, targets = [each.astype(np.float64) for each in examples()]
    features = np.concatenate([features, np.ones([len(features), 1])], 1)
    weights, velocity = np.zeros(FEATURES + 1), np.zeros(FEATURES + 1)
    for numbers in list(big_batches(workers)) * EPOCHS:
        error = features[numbers].dot(weights) - targets[numbers]
        velocity = MOMENTUM * velocity + 2.0 * features[numbers].T.dot(error) / len(numbers)
        weights -= LEARNING_RATE * velocity
    return weights


def make_strategy():
    # It left `experimental` with TensorFlow 2.4.
    kind = getattr(tf.distribute, "MultiWorkerMirroredStrategy", None)
    return (kind or tf.distribute.experimental.MultiWorkerMirroredStrategy)()


def main():
    v1.enable_eager_execution()  # changes nothing on TensorFlow 2
    strategy = make_strategy()  # before anything else: it starts this worker's server
    worker, workers = worker_of(json.loads(os.environ.get("TF_CONFIG", "{}")))
    trainer, batches = Trainer(strategy), shard(worker, workers)
    for _ in range(EPOCHS):
        trainer.epoch(batches)
    difference = np.max(np.abs(trainer.result() - expected(workers)))
    same = difference <= LIMIT  # False for NaN
    if worker == 0 or not same:
        print(
            "{}: {} worker(s), {} examples, largest difference from big batches {:.1e} (limit"
            " {:.0e})".format("OK" if same else "NOT OK", workers, sum(FILES), difference, LIMIT)
        )
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
