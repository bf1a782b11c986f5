"""tf.data with a short last batch: neither the last batch nor the last cycle of an epoch is full.

The hand-written loop divides by a constant and finishes an epoch's last cycle with it too, and
takes the mean of a short batch for one of a full batch.
"""

from __future__ import absolute_import, division, print_function

import sys

import numpy as np
import tensorflow as tf

import gradaccum_compat as ga
from comparing import regression, report, start_values

tf.compat.v1.enable_eager_execution()  # changes nothing on TF 2

MICRO, STEPS, EPOCHS = 8, 4, 4
X, Y = regression(examples=44)  # batches of 8, 8, 8, 8 and 8, 4


def new_model():
    model = tf.keras.Sequential(
        [
            tf.keras.layers.Dense(8, activation="tanh", input_shape=(6,)),
            tf.keras.layers.Dense(1),
        ]
    )
    model.set_weights(start_values((6, 8), (8,), (8, 1), (1,)))
    return model, tf.keras.optimizers.Adam(0.01)


def gradients_of(model, x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(x) - y))
    return tape.gradient(loss, model.trainable_variables)


def dataset(size):
    return tf.data.Dataset.from_tensor_slices((X, Y)).batch(size)


def big_batch():
    model, optimizer = new_model()
    for _ in range(EPOCHS):
        for x, y in dataset(MICRO * STEPS):
            optimizer.apply_gradients(zip(gradients_of(model, x, y), model.trainable_variables))
    return model.get_weights()


def by_hand():
    model, optimizer = new_model()
    sums = [tf.Variable(np.zeros_like(each), trainable=False) for each in model.get_weights()]

    def apply():
        optimizer.apply_gradients(zip([each / STEPS for each in sums], model.trainable_variables))
        for total in sums:
            total.assign(tf.zeros_like(total))

    for _ in range(EPOCHS):
        for number, (x, y) in enumerate(dataset(MICRO), start=1):
            for total, gradient in zip(sums, gradients_of(model, x, y)):
                total.assign_add(gradient)
            if number % STEPS == 0:
                apply()
        if number % STEPS:
            apply()
    return model.get_weights()


def with_library():
    model, optimizer = new_model()
    accumulator = ga.Accumulator(optimizer, model.trainable_variables, steps=STEPS)
    for _ in range(EPOCHS):
        for x, y in dataset(MICRO):
            accumulator.step(gradients_of(model, x, y), weight=tf.shape(x)[0])
        accumulator.apply()  # what is left of the epoch; does nothing where nothing is
    return model.get_weights()


if __name__ == "__main__":
    sys.exit(
        report(
            "short last batch", big_batch(), with_library(), {"divided by a constant": by_hand()}
        )
    )
