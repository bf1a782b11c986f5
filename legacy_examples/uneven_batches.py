"""Batches of all sizes, as they come from a stream: an update is due when 32 examples are in,
weighted by examples.

The hand-written loop takes the mean of the batches' means, in which an example of a small batch
counts for more.
"""

from __future__ import absolute_import, division, print_function

import sys

import numpy as np
import tensorflow as tf

import gradaccum_compat as ga
from comparing import regression, report, start_values

tf.compat.v1.enable_eager_execution()  # changes nothing on TF 2

BATCH, EPOCHS = 32, 4
SIZES = [17, 1, 14, 3, 29, 8, 8, 9, 7]  # they make 32 in 3, 2 and 4 batches
X, Y = regression(examples=sum(SIZES))


def new_model():
    model = tf.keras.Sequential(
        [
            tf.keras.layers.Dense(8, activation="tanh", input_shape=(6,)),
            tf.keras.layers.Dense(1),
        ]
    )
    model.set_weights(start_values((6, 8), (8,), (8, 1), (1,)))
    return model, tf.keras.optimizers.SGD(0.1, momentum=0.9)


# Without a signature TF 1.14 would make a new graph for each size.
SIGNATURE = [tf.TensorSpec([None, 6], tf.float32), tf.TensorSpec([None, 1], tf.float32)]


def gradient_function(model):
    @tf.function(input_signature=SIGNATURE)
    def gradients_of(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x) - y))
        return tape.gradient(loss, model.trainable_variables)

    return gradients_of


def batches(sizes):
    for _ in range(EPOCHS):
        start = 0
        for size in sizes:
            yield X[start : start + size], Y[start : start + size]
            start += size


def big_batch():
    model, optimizer = new_model()
    gradients_of = gradient_function(model)
    for x, y in batches([BATCH] * (len(X) // BATCH)):
        optimizer.apply_gradients(zip(gradients_of(x, y), model.trainable_variables))
    return model.get_weights()


def by_hand():
    model, optimizer = new_model()
    gradients_of = gradient_function(model)
    sums, count, examples = [np.zeros_like(each) for each in model.get_weights()], 0, 0
    for x, y in batches(SIZES):
        sums = [total + gradient.numpy() for total, gradient in zip(sums, gradients_of(x, y))]
        count, examples = count + 1, examples + len(x)
        if examples == BATCH:
            means = [tf.constant(total / count) for total in sums]
            optimizer.apply_gradients(zip(means, model.trainable_variables))
            sums, count, examples = [np.zeros_like(each) for each in sums], 0, 0
    return model.get_weights()


def with_library():
    model, optimizer = new_model()
    gradients_of = gradient_function(model)
    accumulator = ga.Accumulator(optimizer, model.trainable_variables)
    for x, y in batches(SIZES):
        accumulator.accumulate(gradients_of(x, y), weight=len(x))
        if int(accumulator.total_weight) == BATCH:
            accumulator.apply()
    return model.get_weights()


if __name__ == "__main__":
    sys.exit(report("uneven batches", big_batch(), with_library(), {"mean of means": by_hand()}))
