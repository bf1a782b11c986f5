"""fit in micro-batches: how far the weights are from those of fit with the big batch.

The data has 216 examples. Big batches have 64, micro-batches 16, so each epoch ends with a partial
cycle, and its last micro-batch has 8 examples. ExactCycles makes both exact.
"""

from __future__ import absolute_import, division, print_function

import sys

import numpy as np
import tensorflow as tf

import gradaccum_compat as ga
import pictures

BATCH, STEPS, EPOCHS = 64, 4, 15
#: The largest difference that float32 rounding explains.
LIMIT = 1e-6

random = np.random.RandomState(0)
X = random.randn(216, 6).astype("float32")
Y = np.tanh(X.dot(random.randn(6, 1))).astype("float32") + 0.5 * X[:, :1]
START = [0.4 * random.randn(*shape) for shape in ((6, 8), (8,), (8, 1), (1,))]


def trained(optimizer, batch_size, callbacks):
    """The weights after each epoch, and the losses."""
    model = tf.keras.Sequential(
        [
            tf.keras.Input((6,)),
            tf.keras.layers.Dense(8, activation="tanh"),
            tf.keras.layers.Dense(1),
        ]
    )
    model.set_weights(START)
    model.compile(optimizer, loss="mse")
    weights = []
    keep = tf.keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: weights.append(
            np.concatenate([each.ravel() for each in model.get_weights()])
        )
    )
    history = model.fit(
        X, Y, batch_size, EPOCHS, shuffle=False, verbose=0, callbacks=callbacks + [keep]
    )
    return weights, history.history["loss"]


def sgd(rate=0.1, **options):
    return tf.keras.optimizers.SGD(rate, momentum=0.9, **options)


def train():
    ways = [
        ("a smaller learning rate", sgd(0.1 / STEPS), []),
        ("wrap_optimizer alone", ga.wrap_optimizer(sgd(), STEPS), []),
        ("with ExactCycles", ga.wrap_optimizer(sgd(), STEPS), [ga.keras.ExactCycles()]),
    ]
    if hasattr(sgd(), "gradient_accumulation_steps"):  # Keras 3
        own = sgd(gradient_accumulation_steps=STEPS)
        ways.insert(1, ("Keras 3's own option", own, []))
    big, big_losses = trained(sgd(), BATCH, [])
    apart, losses = {}, {"big batch": big_losses}
    for name, optimizer, callbacks in ways:
        weights, losses[name] = trained(optimizer, BATCH // STEPS, callbacks)
        apart[name] = [np.max(np.abs(one - other)) for one, other in zip(weights, big)]
    lines = ["{}: {:.1e} from the big batch".format(name, apart[name][-1]) for name, _, _ in ways]
    return (apart, losses), lines, apart["with ExactCycles"][-1] <= LIMIT


def draw(drawn, axes):
    apart, losses = drawn
    epochs = range(1, EPOCHS + 1)
    axes[0].set_title("Largest difference of a weight from the big batch's")
    axes[0].set_yscale("log")
    for name in apart:
        style = "--" if name == "wrap_optimizer alone" else "-"  # it lies upon Keras 3's option
        axes[0].plot(epochs, apart[name], style, label=name)
    axes[1].set_title("Loss")
    axes[1].plot(epochs, losses["big batch"], "0.75", linewidth=6, label="big batch")
    axes[1].plot(epochs, losses["with ExactCycles"], "C3--", label="with ExactCycles")
    for axis in axes:
        axis.set_xlabel("epoch")
        axis.legend()


if __name__ == "__main__":
    sys.exit(pictures.run(__doc__, train, draw))
