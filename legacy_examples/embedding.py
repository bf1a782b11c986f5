"""A large embedding, whose gradients are the rows that were looked up: they stay sparse, and cost
what they touch.

The hand-written loop makes them dense. That costs the whole table in every micro-batch, and it is
another training: the optimizer then moves, by their momentum, all rows that were ever touched, and
not those of this update alone.
"""

from __future__ import absolute_import, division, print_function

import sys

import numpy as np
import tensorflow as tf

import gradaccum_compat as ga
from comparing import report, start_values

tf.compat.v1.enable_eager_execution()  # changes nothing on TF 2

ROWS, MICRO, STEPS, EPOCHS = 20000, 8, 4, 4
BATCH = MICRO * STEPS
RANDOM = np.random.RandomState(5)
WORDS = (
    RANDOM.zipf(1.3, size=(4 * BATCH, 5)) % ROWS
)  # five words an example, a few of them very common
LABELS = (WORDS.sum(axis=1) % 2).astype(np.float32)


def new_variables():
    table, out = start_values((ROWS, 8), (8, 1))
    return [tf.Variable(table), tf.Variable(out)]


def new_optimizer():
    return tf.compat.v1.train.MomentumOptimizer(0.5, 0.9)


def gradients_of(variables, start, end):
    table, out = variables
    with tf.GradientTape() as tape:
        document = tf.reduce_mean(
            tf.nn.embedding_lookup(table, tf.constant(WORDS[start:end])), axis=1
        )
        logits = tf.matmul(document, out)[:, 0]
        loss = tf.reduce_mean(
            tf.nn.sigmoid_cross_entropy_with_logits(labels=LABELS[start:end], logits=logits)
        )
    return tape.gradient(loss, variables)


def batches(size):
    for _ in range(EPOCHS):
        for start in range(0, len(WORDS), size):
            yield start, start + size


def values(variables):
    table, out = variables
    return [table.numpy()[np.unique(WORDS)], out.numpy()]  # the other rows never move


def big_batch():
    variables, optimizer = new_variables(), new_optimizer()
    for start, end in batches(BATCH):
        optimizer.apply_gradients(zip(gradients_of(variables, start, end), variables))
    return values(variables)


def by_hand():
    variables, optimizer = new_variables(), new_optimizer()
    sums = [tf.Variable(tf.zeros_like(each), trainable=False) for each in variables]
    for number, (start, end) in enumerate(batches(MICRO), start=1):
        for total, gradient in zip(sums, gradients_of(variables, start, end)):
            total.assign_add(tf.convert_to_tensor(gradient) / STEPS)
        if number % STEPS == 0:
            optimizer.apply_gradients(zip([tf.identity(total) for total in sums], variables))
            for total in sums:
                total.assign(tf.zeros_like(total))
    return values(variables)


def with_library():
    variables, optimizer = new_variables(), new_optimizer()
    accumulator = ga.Accumulator(optimizer, variables, steps=STEPS)
    for start, end in batches(MICRO):
        accumulator.step(gradients_of(variables, start, end))
    return values(variables)


if __name__ == "__main__":
    sys.exit(report("embedding", big_batch(), with_library(), {"made dense": by_hand()}))
