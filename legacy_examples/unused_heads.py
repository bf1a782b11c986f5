"""Two heads on one body, of which a micro-batch uses one or both: a head that was not used has None
for a gradient.

The hand-written loop makes its sums at the first micro-batch, for what has a gradient there. What
comes in later for the other head is lost.
"""

from __future__ import absolute_import, division, print_function

import sys

import numpy as np
import tensorflow as tf

import gradaccum_compat as ga
from comparing import regression, report, start_values

tf.compat.v1.enable_eager_execution()  # changes nothing on TF 2

MICRO, STEPS, EPOCHS = 8, 4, 5
BATCH = MICRO * STEPS
X, Y = regression(examples=3 * BATCH)
HEAD = np.repeat([0, 0, 1, 0, 1, 1, 0, 1, 0, 0, 0, 1], MICRO)  # the head of each example


def new_variables():
    return [tf.Variable(value) for value in start_values((6, 8), (8,), (8, 1), (8, 1))]


def new_optimizer():
    return tf.compat.v1.train.MomentumOptimizer(0.1, 0.9)


def gradients_of(variables, start, end):
    kernel, bias, heads = variables[0], variables[1], variables[2:]
    with tf.GradientTape() as tape:
        losses = []
        for number, head in enumerate(heads):
            rows = start + np.flatnonzero(HEAD[start:end] == number)
            if len(rows):
                hidden = tf.tanh(tf.matmul(X[rows], kernel) + bias)
                losses.append(
                    tf.reduce_sum(tf.square(tf.matmul(hidden, head) - (1 - 2 * number) * Y[rows]))
                )
        loss = tf.add_n(losses) / (end - start)
    return tape.gradient(loss, variables)


def batches(size):
    for _ in range(EPOCHS):
        for start in range(0, len(X), size):
            yield start, start + size


def values(variables):
    return [each.numpy() for each in variables]


def big_batch():
    variables, optimizer = new_variables(), new_optimizer()
    for start, end in batches(BATCH):
        optimizer.apply_gradients(zip(gradients_of(variables, start, end), variables))
    return values(variables)


def by_hand():
    variables, optimizer, sums = new_variables(), new_optimizer(), []
    for number, (start, end) in enumerate(batches(MICRO), start=1):
        gradients = gradients_of(variables, start, end)
        if not sums:
            sums = [
                None if each is None else tf.Variable(tf.zeros_like(each)) for each in gradients
            ]
        for total, gradient in zip(sums, gradients):
            if total is not None and gradient is not None:
                total.assign_add(gradient / STEPS)
        if number % STEPS == 0:
            pairs = [
                (tf.identity(total), variable)
                for total, variable in zip(sums, variables)
                if total is not None
            ]
            optimizer.apply_gradients(pairs)
            for total in sums:
                if total is not None:
                    total.assign(tf.zeros_like(total))
    return values(variables)


def with_library():
    variables, optimizer = new_variables(), new_optimizer()
    accumulator = ga.Accumulator(optimizer, variables, steps=STEPS)
    for start, end in batches(MICRO):
        accumulator.step(gradients_of(variables, start, end))
    return values(variables)


if __name__ == "__main__":
    sys.exit(
        report(
            "heads used in turns",
            big_batch(),
            with_library(),
            {"None of the first kept": by_hand()},
        )
    )
