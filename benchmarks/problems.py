"""What is trained: fresh variables, a loss, and K micro-batches of it. Plain TensorFlow, no Keras
layers."""

from __future__ import absolute_import, division, print_function

import numpy as np
import tensorflow as tf


class Problem(object):
    """One training problem.

    Attributes:
        steps: the micro-batches of a cycle.
        micro_batches: a list of `steps` tuples of tensors.
        batch: all of them in one.
        legacy: whether optimizers are those of `tf.keras.optimizers.legacy`, which TF 2.11 to 2.15
            have.
    """

    def __init__(self, shapes, loss, arrays, steps, optimizer=("Adam", 1e-4), dtype="float32"):
        self._shapes, self._loss, self._optimizer, self._dtype = shapes, loss, optimizer, dtype
        self.steps = steps
        self.batch = tuple(tf.constant(each) for each in arrays)
        size = len(arrays[0]) // steps
        self.micro_batches = [
            tuple(tf.constant(each[number * size : (number + 1) * size]) for each in arrays)
            for number in range(steps)
        ]
        self.legacy = False

    def variables(self):
        """The weights, the same values in each call."""
        random = np.random.RandomState(0)
        return [
            tf.Variable(tf.cast(tf.constant(_drawn(random, shape)), self._dtype))
            for shape in self._shapes
        ]

    def loss(self, variables, micro_batch):
        return self._loss(variables, *micro_batch)

    def gradients(self, variables, micro_batch):
        with tf.GradientTape() as tape:
            loss = self.loss(variables, micro_batch)
        return tape.gradient(loss, variables)

    def optimizer(self, **options):
        name, rate = self._optimizer
        module = tf.keras.optimizers.legacy if self.legacy else tf.keras.optimizers
        return getattr(module, name)(rate, **options)

    def v1_optimizer(self):
        name, rate = self._optimizer
        return getattr(
            tf.compat.v1.train, {"SGD": "GradientDescent"}.get(name, name) + "Optimizer"
        )(rate)

    def parameters(self):
        return int(sum(np.prod(shape) for shape in self._shapes))


def _drawn(random, shape):
    """Row by row: NumPy draws float64, which for a table of GiBs would be twice as much beside
    it."""
    values = np.empty(shape, "float32")
    for row in values.reshape(shape[0], -1):
        row[:] = random.standard_normal(row.shape) / np.sqrt(shape[0])
    return values


def dense(micro_batch, steps, width=2048, layers=4, dtype="float32"):
    """A stack of dense layers: the smaller the micro-batch, the more of the time is reading and
    writing weights."""
    shapes = [(width, width)] * layers + [(width, 10)] + [(width,)] * layers + [(10,)]

    def loss(variables, x, y):
        hidden = tf.cast(x, dtype)
        for layer in range(layers + 1):
            hidden = tf.matmul(hidden, variables[layer]) + variables[layers + 1 + layer]
            hidden = tf.tanh(hidden) if layer < layers else hidden
        return tf.reduce_mean(tf.square(tf.cast(hidden, tf.float32) - y))

    random = np.random.RandomState(1)
    arrays = [
        random.standard_normal([micro_batch * steps, size]).astype("float32")
        for size in (width, 10)
    ]
    return Problem(shapes, loss, arrays, steps, dtype=dtype)


def many_tensors(steps, count=400, width=32):
    """Many small variables, each with a gradient that costs next to nothing: what is left is
    overhead."""

    def loss(variables, x):
        return tf.add_n([tf.reduce_sum(variable * x[0, 0]) for variable in variables])

    arrays = [np.random.RandomState(1).standard_normal([steps, 1]).astype("float32")]
    return Problem([(width, width)] * count, loss, arrays, steps, optimizer=("SGD", 1e-4))


def embedding(height, steps, optimizer, rows=1000, width=64):
    """A table of which each micro-batch touches some rows; the gradient is an IndexedSlices."""

    def loss(variables, ids):
        return tf.reduce_sum(tf.square(tf.gather(variables[0], ids)))

    arrays = [np.random.RandomState(1).randint(0, height, [rows * steps]).astype("int32")]
    return Problem([(height, width)], loss, arrays, steps, optimizer=(optimizer, 0.01))


def transformer(micro_batch, steps, layers=4, width=256, length=128, heads=4):
    """A stack of transformer blocks."""
    each = [
        (width, 3 * width),
        (width, width),
        (width, 4 * width),
        (4 * width, width),
        (3 * width,),
        (width,),
        (4 * width,),
        (width,),
        (width,),
        (width,),
    ]

    def attention(x, inner, outer, inner_bias, outer_bias):
        parts = tf.reshape(
            tf.matmul(tf.reshape(x, [-1, width]), inner) + inner_bias,
            [-1, length, 3, heads, width // heads],
        )
        query, key, value = tf.unstack(tf.transpose(parts, [2, 0, 3, 1, 4]))
        weights = tf.nn.softmax(tf.matmul(query, key, transpose_b=True) / np.sqrt(width / heads))
        mixed = tf.reshape(tf.transpose(tf.matmul(weights, value), [0, 2, 1, 3]), [-1, width])
        return tf.reshape(tf.matmul(mixed, outer) + outer_bias, [-1, length, width])

    def normalised(x, gain):
        mean, variance = tf.nn.moments(x, [-1], keepdims=True)
        return (x - mean) * tf.math.rsqrt(variance + 1e-6) * (1.0 + gain)

    def block(x, weights):
        inner, outer, up, down, inner_bias, outer_bias, up_bias, down_bias, first, second = weights
        x = x + attention(normalised(x, first), inner, outer, inner_bias, outer_bias)
        hidden = tf.nn.relu(tf.matmul(tf.reshape(normalised(x, second), [-1, width]), up) + up_bias)
        return x + tf.reshape(tf.matmul(hidden, down) + down_bias, [-1, length, width])

    def loss(variables, x):
        target = x
        for layer in range(layers):
            x = block(x, variables[layer * len(each) : (layer + 1) * len(each)])
        return tf.reduce_mean(tf.square(x - target))

    arrays = [
        np.random.RandomState(1)
        .standard_normal([micro_batch * steps, length, width])
        .astype("float32")
    ]
    return Problem(each * layers, loss, arrays, steps)
