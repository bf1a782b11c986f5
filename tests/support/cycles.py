"""A small training program that can be interrupted in mid-cycle, the same on every TensorFlow.

Run as a program it is one half of a test across versions: `cycles.py save DIR` stops in mid-cycle
and writes a checkpoint, `cycles.py finish DIR` restores it and goes on, `cycles.py whole DIR` does
both in one go; each writes the weights that it ends with to DIR as JSON.
"""

from __future__ import absolute_import, division, print_function

import json
import os
import sys

import numpy as np
import tensorflow as tf

import gradaccum_compat as ga

v1 = tf.compat.v1
STEPS, INTERRUPTED_AT, END = 4, 6, 12


def micro_batch(number):
    """(gradients, weight) number so and so: dense, sparse with a row twice, and None in turn."""
    random = np.random.RandomState(number)
    dense = None if number % 4 == 3 else tf.constant(random.randn(3).astype(np.float32))
    rows = random.randint(0, 50, size=3)
    values = tf.constant(random.randn(4, 2).astype(np.float32))
    slices = (
        None
        if number % 4 == 2
        else tf.IndexedSlices(values, tf.constant([rows[0], rows[1], rows[2], rows[0]]))
    )
    return [dense, slices], 1.0 + number % 3


class Program(object):
    """Weights, an optimizer with state, and an accumulator, in one checkpoint."""

    def __init__(self, optimizer=lambda: v1.train.MomentumOptimizer(0.1, 0.9), late=False):
        self.variables = [
            tf.Variable(np.ones(3, np.float32)),
            tf.Variable(np.ones((50, 2), np.float32)),
        ]
        self.optimizer = optimizer()
        variables = (lambda: self.variables) if late else self.variables
        self.accumulator = ga.Accumulator(self.optimizer, variables, steps=STEPS)
        self.checkpoint = tf.train.Checkpoint(
            vector=self.variables[0],
            table=self.variables[1],
            optimizer=self.optimizer,
            accumulator=self.accumulator,
        )

    def run(self, start, stop):
        for number in range(start, stop):
            self.accumulator.step(*micro_batch(number))
        return self

    def weights(self):
        return [variable.numpy() for variable in self.variables]


def main(part, folder):
    if not tf.executing_eagerly():
        v1.enable_eager_execution()
    program, path = Program(), os.path.join(folder, "checkpoint")
    if part == "save":
        program.run(0, INTERRUPTED_AT).checkpoint.write(path)
    elif part == "finish":
        program.checkpoint.restore(path)
        program.run(INTERRUPTED_AT, END)
    else:
        program.run(0, END)
    with open(os.path.join(folder, part + ".json"), "w") as out:
        json.dump([weight.tolist() for weight in program.weights()], out)


if __name__ == "__main__":
    main(*sys.argv[1:])
