"""A user's training program for the matrix: the same on each TensorFlow, but where it is told to
differ.

python matrix_program.py [--differ-on 2.]
"""

from __future__ import absolute_import, division, print_function

import argparse

import numpy as np
import tensorflow as tf

import gradaccum_compat as ga


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--differ-on", default="none", help="the beginning of a version that learns faster"
    )
    rate = 0.2 if tf.__version__.startswith(parser.parse_args().differ_on) else 0.1
    if not tf.executing_eagerly():
        tf.compat.v1.enable_eager_execution()
    random = np.random.RandomState(0)
    kernel = tf.Variable(random.randn(4, 2).astype(np.float32), name="kernel")
    accumulator = ga.Accumulator(tf.compat.v1.train.AdamOptimizer(rate), [kernel], steps=2)
    for _ in range(8):
        x = tf.constant(random.randn(6, 4).astype(np.float32))
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.tanh(tf.matmul(x, kernel)) - 1.0))
        accumulator.step(tape.gradient(loss, [kernel]), weight=6)
    print("trained on TensorFlow", tf.__version__)


if __name__ == "__main__":
    main()
