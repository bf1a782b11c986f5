"""Half precision: the micro-batches are computed in float16, the weights and the sums are float32.

The hand-written loop adds up in float16, as the gradients come: what is added to a large sum is
rounded away.

The big batch is computed in float32. The features are small whole numbers and the loss is linear in
them, so that a micro-batch's gradient is exact in float16, and the sums are all that can differ.
"""

from __future__ import absolute_import, division, print_function

import sys

import numpy as np
import tensorflow as tf

import gradaccum_compat as ga
from comparing import report

tf.compat.v1.enable_eager_execution()  # changes nothing on TF 2

MICRO, STEPS, EPOCHS = 16, 64, 3
BATCH = MICRO * STEPS
SCALE = 128.0  # of the loss, so that small gradients do not vanish in float16
RANDOM = np.random.RandomState(0)
X = RANDOM.randint(0, 16, size=(BATCH, 6)).astype(np.float32)
Y = np.where(X.dot([3, 1, -2, 0, -1, 2]) > 20, 1, -1).astype(np.float32)


def new_variables():
    return [tf.Variable(np.zeros((6, 1), np.float32)), tf.Variable(np.zeros(1, np.float32))]


def new_optimizer():
    return tf.compat.v1.train.MomentumOptimizer(0.1, 0.9)


def gradients_of(variables, start, end, dtype):
    """Gradients of the scaled loss, in this precision."""
    copies = [tf.cast(tf.identity(each), dtype) for each in variables]
    with tf.GradientTape() as tape:
        tape.watch(copies)
        scores = tf.matmul(tf.cast(X[start:end], dtype), copies[0])[:, 0] + copies[1]
        loss = -tf.reduce_mean(tf.cast(Y[start:end], dtype) * scores) * SCALE
    return tape.gradient(loss, copies)


def micro_batches():
    for _ in range(EPOCHS):
        for start in range(0, BATCH, MICRO):
            yield start, start + MICRO


def unscaled(gradients):
    return [tf.cast(each, tf.float32) / SCALE for each in gradients]


def values(variables):
    return [each.numpy() for each in variables]


def big_batch():
    variables, optimizer = new_variables(), new_optimizer()
    for _ in range(EPOCHS):
        gradients = unscaled(gradients_of(variables, 0, BATCH, tf.float32))
        optimizer.apply_gradients(zip(gradients, variables))
    return values(variables)


def by_hand():
    variables, optimizer = new_variables(), new_optimizer()
    sums = None
    for number, (start, end) in enumerate(micro_batches(), start=1):
        gradients = [each / STEPS for each in gradients_of(variables, start, end, tf.float16)]
        sums = gradients if sums is None else [total + each for total, each in zip(sums, gradients)]
        if number % STEPS == 0:
            optimizer.apply_gradients(zip(unscaled(sums), variables))
            sums = None
    return values(variables)


def with_library():
    variables, optimizer = new_variables(), new_optimizer()
    accumulator = ga.Accumulator(optimizer, variables, steps=STEPS)
    for start, end in micro_batches():
        accumulator.step(unscaled(gradients_of(variables, start, end, tf.float16)))
    return values(variables)


if __name__ == "__main__":
    sys.exit(report("mixed precision", big_batch(), with_library(), {"sums in float16": by_hand()}))
