"""Keras: compile and fit, with the optimizer wrapped and nothing else changed.

By hand there is no place in fit to accumulate. What people did instead is to let every micro-batch
move the weights, at a smaller learning rate; that is another training.
"""

from __future__ import absolute_import, division, print_function

import sys

import tensorflow as tf

import gradaccum_compat as ga
from comparing import regression, report, start_values

BATCH, STEPS, EPOCHS = 32, 4, 3
MICRO = BATCH // STEPS
RATE = 0.1
X, Y = regression(examples=4 * BATCH)


def trained(optimizer, batch_size):
    model = tf.keras.Sequential(
        [
            tf.keras.layers.Dense(8, activation="tanh", input_shape=(6,)),
            tf.keras.layers.Dense(1),
        ]
    )
    model.set_weights(start_values((6, 8), (8,), (8, 1), (1,)))
    model.compile(optimizer=optimizer, loss="mse")
    model.fit(X, Y, batch_size=batch_size, epochs=EPOCHS, shuffle=False, verbose=0)
    return model.get_weights()


def big_batch():
    return trained(tf.keras.optimizers.SGD(RATE, momentum=0.9), BATCH)


def by_hand():
    return trained(tf.keras.optimizers.SGD(RATE / STEPS, momentum=0.9), MICRO)


def with_library():
    return trained(
        ga.wrap_optimizer(tf.keras.optimizers.SGD(RATE, momentum=0.9), steps=STEPS), MICRO
    )


if __name__ == "__main__":
    sys.exit(
        report("Keras fit", big_batch(), with_library(), {"a smaller learning rate": by_hand()})
    )
