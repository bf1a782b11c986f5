"""The noise scale, and a batch that grows with it: `statistics=True` and `steps` as a schedule.

A linear model learns from noisy examples with SGD at one learning rate. Small batches learn fast
and then jitter. Large ones end nearer to the truth, and learn slowly: there are fewer updates. The
noise scale is the batch at which the noise of a gradient is as large as the gradient. It grows as
the model gets better, and the batch of the third training grows below it.
"""

from __future__ import absolute_import, division, print_function

import sys

import numpy as np
import tensorflow as tf

import gradaccum_compat as ga
import pictures

FEATURES, EXAMPLES, MICRO = 30, 8000, 4
WAYS = [
    ("batches of 8", 2),
    ("batches of 128", 32),
    ("8 to 128", {0: 2, 40: 4, 60: 8, 80: 16, 100: 32}),
]

random = np.random.RandomState(0)
TRUTH = random.randn(FEATURES).astype("float32")
X = random.randn(EXAMPLES, FEATURES).astype("float32")
Y = X.dot(TRUTH) + random.randn(EXAMPLES).astype("float32")


def trained(steps):
    """For each update: the examples seen so far, the loss, the batch and the noise scale."""
    w = tf.Variable(tf.zeros([FEATURES]))
    optimizer = tf.keras.optimizers.SGD(0.1)
    accumulator = ga.Accumulator(optimizer, [w], steps=steps, statistics=True)

    @tf.function
    def train(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.linalg.matvec(x, w) - y)) / 2
        updated = accumulator.step(tape.gradient(loss, [w]), weight=MICRO)
        return updated, accumulator.statistics()

    updates = []
    for start in range(0, EXAMPLES, MICRO):
        updated, last = train(X[start : start + MICRO], Y[start : start + MICRO])
        if updated:
            # Expected over all examples, above that of the true weights.
            loss = np.sum(np.square(w.numpy() - TRUTH)) / 2
            updates.append((start + MICRO, loss, float(last.weight), float(last.noise_scale)))
    return np.array(updates)


def train():
    ways = [(name, trained(steps)) for name, steps in WAYS]
    early = [updates[updates[:, 0] <= EXAMPLES / 4][-1, 1] for _, updates in ways]
    end = [updates[-1, 1] for _, updates in ways]
    lines = [
        "{}: loss {:.3f} above the least after a quarter, {:.3f} after all".format(name, *each)
        for (name, _), each in zip(ways, zip(early, end))
    ]
    # As near to the truth as large batches, and earlier: by a factor, for the noise of one run.
    return ways, lines, end[2] < min(end[0] / 5, end[1] * 2) and early[2] < min(early[:2]) / 2


def draw(ways, axes):
    axes[0].set_title("Loss above the least")
    for name, updates in ways:
        axes[0].plot(updates[:, 0], updates[:, 1], label=name)
    axes[0].legend()
    name, ramp = ways[-1]
    axes[1].set_title("The batch that grows")
    axes[1].plot(ramp[:, 0], ramp[:, 3], "C4", label="noise scale")
    axes[1].step(ramp[:, 0], ramp[:, 2], "C2", where="pre", label="examples in an update")
    axes[1].legend()
    for axis in axes:
        axis.set_yscale("log")
        axis.set_xlabel("examples seen")


if __name__ == "__main__":
    sys.exit(pictures.run(__doc__, train, draw))
