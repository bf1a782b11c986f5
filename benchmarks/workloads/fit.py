"""fit() of transformer blocks as large as a small BERT, with micro-batches of one size: an update
after each of them, and after every eighth."""

from __future__ import absolute_import, division, print_function

import inspect

import numpy as np
import tensorflow as tf

import gradaccum_compat as ga
from benchmarks import harness

K, CYCLES = 8, 2


def run(settings):
    sizes = (1, 8, 4) if settings.quick else (8, 512, 64)
    micro_batch, _, length = 4, sizes[1], sizes[2]
    x = np.random.RandomState(1).standard_normal([micro_batch * K * CYCLES, length, sizes[1]])
    x = x.astype("float32")
    cycles = [
        (name, _fitting(_model(sizes, optimizer()), x, micro_batch))
        for name, optimizer in (
            ("fit_plain", tf.keras.optimizers.Adam),
            ("fit_wrapped", lambda: ga.wrap_optimizer(tf.keras.optimizers.Adam(), K)),
            ("fit_keras", _keras_option()),
        )
        if optimizer
    ]
    timings = harness.measure(cycles, settings.rounds, "fit")
    title = "16 micro-batches of {}, K = {}, {} variables, {:,} parameters".format(
        micro_batch, K, *_counts(sizes)
    )
    return [
        {
            "title": title,
            "kind": "times",
            "rows": harness.rows(timings, [name for name, _ in cycles], lambda name: "fit_plain"),
            "skipped": ({} if _keras_option() else {"fit_keras": "this Keras has no such option"}),
        }
    ]


def _keras_option():
    made = tf.keras.optimizers.Adam.__init__
    signature = getattr(inspect, "signature", None)
    if signature and "gradient_accumulation_steps" in signature(made).parameters:
        return lambda: tf.keras.optimizers.Adam(gradient_accumulation_steps=K)
    return None


def _model(sizes, optimizer):
    model = tf.keras.Sequential([Block(sizes[1]) for _ in range(sizes[0])])
    model.compile(optimizer, "mse")
    return model


def _counts(sizes):
    model = _model(sizes, "sgd")
    model.build((None, sizes[2], sizes[1]))
    shapes = [each.shape for each in model.trainable_variables]
    return len(shapes), int(sum(np.prod([int(side) for side in shape]) for shape in shapes))


def _fitting(model, x, micro_batch):
    return lambda: model.fit(x, x, batch_size=micro_batch, epochs=1, shuffle=False, verbose=0)


class Block(tf.keras.layers.Layer):
    """A transformer block: attention and two dense layers, with biases, gains and residuals."""

    def __init__(self, width, heads=8, **options):
        super(Block, self).__init__(**options)
        self._width, self._heads = width, heads

    def build(self, shape):
        width = self._width
        shapes = {
            "inner": (width, 3 * width),
            "outer": (width, width),
            "up": (width, 4 * width),
            "down": (4 * width, width),
        }
        self._own = {}
        for name, each in sorted(shapes.items()):
            self._own[name] = self.add_weight(name=name, shape=each, initializer="glorot_uniform")
            self._own[name + "_bias"] = self.add_weight(
                name=name + "_bias", shape=each[1:], initializer="zeros"
            )
        for name in ("first", "second"):
            for part, start in (("gain", "ones"), ("shift", "zeros")):
                self._own[name + part] = self.add_weight(
                    name=name + "_" + part, shape=(width,), initializer=start
                )
        self.built = True

    def call(self, x):
        heads, length, width = self._heads, x.shape[1], self._width
        parts = tf.reshape(
            self._dense(self._normalised(x, "first"), "inner"),
            [-1, length, 3, heads, width // heads],
        )
        query, key, value = tf.unstack(tf.transpose(parts, [2, 0, 3, 1, 4]))
        scores = tf.matmul(query, key, transpose_b=True) / np.sqrt(width / heads)
        mixed = tf.transpose(tf.matmul(tf.nn.softmax(scores), value), [0, 2, 1, 3])
        x = x + self._dense(tf.reshape(mixed, [-1, length, width]), "outer")
        hidden = tf.nn.relu(self._dense(self._normalised(x, "second"), "up"))
        return x + self._dense(hidden, "down")

    def _dense(self, x, name):
        kernel, bias = [tf.convert_to_tensor(self._own[name + end]) for end in ("", "_bias")]
        flat = tf.matmul(tf.reshape(x, [-1, int(kernel.shape[0])]), kernel) + bias
        return tf.reshape(flat, [-1, x.shape[1], int(kernel.shape[1])])

    def _normalised(self, x, name):
        mean, variance = tf.nn.moments(x, [-1], keepdims=True)
        gain, shift = [tf.convert_to_tensor(self._own[name + part]) for part in ("gain", "shift")]
        return (x - mean) * tf.math.rsqrt(variance + 1e-6) * gain + shift
