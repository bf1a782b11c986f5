"""A custom training loop in eager code, as it was written on TensorFlow 1.14.

The hand-written loop forgets one line: it never sets its sums back to zero.
"""

from __future__ import absolute_import, division, print_function

import sys

import numpy as np
import tensorflow as tf

import gradaccum_compat as ga
from comparing import regression, report, start_values

tf.compat.v1.enable_eager_execution()  # changes nothing on TF 2

BATCH, STEPS, EPOCHS = 32, 4, 5
MICRO = BATCH // STEPS
X, Y = regression(examples=3 * BATCH)


def new_model():
    model = tf.keras.Sequential(
        [
            tf.keras.layers.Dense(8, activation="tanh", input_shape=(6,)),
            tf.keras.layers.Dense(1),
        ]
    )
    model.set_weights(start_values((6, 8), (8,), (8, 1), (1,)))
    return model, tf.keras.optimizers.SGD(0.1, momentum=0.9)


def gradients_of(model, x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(x) - y))
    return tape.gradient(loss, model.trainable_variables)


def batches(size):
    for _ in range(EPOCHS):
        for start in range(0, len(X), size):
            yield tf.constant(X[start : start + size]), tf.constant(Y[start : start + size])


def big_batch():
    model, optimizer = new_model()
    for x, y in batches(BATCH):
        optimizer.apply_gradients(zip(gradients_of(model, x, y), model.trainable_variables))
    return model.get_weights()


def by_hand():
    model, optimizer = new_model()
    sums = [tf.Variable(np.zeros_like(each), trainable=False) for each in model.get_weights()]
    for number, (x, y) in enumerate(batches(MICRO), start=1):
        for total, gradient in zip(sums, gradients_of(model, x, y)):
            total.assign_add(gradient / STEPS)
        if number % STEPS == 0:
            optimizer.apply_gradients(
                zip([tf.identity(each) for each in sums], model.trainable_variables)
            )
            # Missing: for total in sums: total.assign(tf.zeros_like(total))
    return model.get_weights()


def with_library():
    model, optimizer = new_model()
    accumulator = ga.Accumulator(optimizer, model.trainable_variables, steps=STEPS)
    for x, y in batches(MICRO):
        accumulator.step(gradients_of(model, x, y))
    return model.get_weights()


if __name__ == "__main__":
    sys.exit(report("eager loop", big_batch(), with_library(), {"not reset": by_hand()}))
