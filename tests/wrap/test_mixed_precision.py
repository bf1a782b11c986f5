"""wrap_optimizer with mixed_float16: the overflow of a micro-batch drops it, on all replicas, and
nothing else.

The data are whole numbers over 64, and all else are powers of two, so that half precision loses
nothing.
"""

from __future__ import absolute_import, division, print_function

import contextlib

import numpy as np
import pytest
import tensorflow as tf

import gradaccum_compat as ga
from support import replicas

_experimental = getattr(getattr(tf.keras, "mixed_precision", None), "experimental", None)
_set_policy = getattr(
    getattr(tf.keras, "mixed_precision", None),
    "set_global_policy",
    getattr(_experimental, "set_policy", None),
)
LossScaleOptimizer = getattr(
    tf.keras.mixed_precision,
    "LossScaleOptimizer",
    getattr(_experimental, "LossScaleOptimizer", None),
)
#: tf.keras.Model.train_step came with 2.2; fit() of 2.1 unscales in another way and has no policy
#: by this name before.
needs_policy = pytest.mark.skipif(
    not hasattr(tf.keras.Model, "train_step"),
    reason="fit() makes a loss-scale optimizer from TF 2.2 on",
)

STEPS, SIZE, MICRO_BATCHES = 2, 4, 5
OVERFLOW = 1  # the second micro-batch
X = np.random.RandomState(0).randint(-2, 3, (MICRO_BATCHES * SIZE, 3)).astype(np.float32)
Y = np.random.RandomState(1).randint(-2, 3, (MICRO_BATCHES * SIZE, 1)).astype(np.float32) / 64
START = np.array([[1.0], [-1.0], [2.0]], np.float32) / 64


@pytest.fixture
def mixed_float16():
    _set_policy("mixed_float16")
    yield
    _set_policy("float32")


def data(overflow_at):
    x = X.copy()
    x[OVERFLOW * SIZE + overflow_at] = 3e38  # infinite in half precision
    return x


def trained(optimizer, overflow_at, strategy=None):
    """(weights, optimizer) after fit() with micro-batches, of which one overflows."""
    with strategy.scope() if strategy else contextlib.suppress():
        model = tf.keras.Sequential([tf.keras.layers.Dense(1, use_bias=False, input_shape=(3,))])
        model.compile(optimizer=optimizer(), loss="mse")
    model.set_weights([START])
    dataset = tf.data.Dataset.from_tensor_slices((data(overflow_at), Y)).batch(SIZE).repeat()
    model.fit(dataset, steps_per_epoch=MICRO_BATCHES, epochs=1, verbose=0)
    return model.get_weights()[0], model.optimizer


def expected(optimizer):
    """What the plain optimizer makes of the big batches of the micro-batches that are left."""
    weights, optimizer = tf.Variable(START), optimizer()
    kept = [number for number in range(MICRO_BATCHES) if number != OVERFLOW]
    for cycle in (kept[:STEPS], kept[STEPS:]):
        rows = np.concatenate([np.arange(SIZE) + SIZE * number for number in cycle])
        gradient = 2 * X[rows].T.dot(X[rows].dot(weights.numpy()) - Y[rows]) / len(rows)
        optimizer.apply_gradients([(tf.constant(gradient), weights)])
    return weights.numpy()


def scale_of(optimizer):
    scale = getattr(optimizer, "dynamic_scale", None)
    scale = optimizer.loss_scale if scale is None else scale
    return float(np.array(tf.convert_to_tensor(scale() if callable(scale) else scale)))


OPTIMIZERS = {
    "SGD": lambda: tf.keras.optimizers.SGD(0.125),
    "momentum": lambda: tf.keras.optimizers.SGD(0.125, momentum=0.5),
}
WRAPPED = {
    "compile makes the loss scale": lambda plain: ga.wrap_optimizer(plain(), steps=STEPS),
    "the user makes it, wrapped": lambda plain: ga.wrap_optimizer(
        LossScaleOptimizer(plain()), steps=STEPS
    ),
}


@needs_policy
@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
@pytest.mark.parametrize(
    "how",
    (
        sorted(WRAPPED)
        if hasattr(tf.keras.mixed_precision, "LossScaleOptimizer")
        else ["compile makes the loss scale"]
    ),
)
def test_an_overflow_drops_the_micro_batch(mixed_float16, name, how):
    weights, optimizer = trained(lambda: WRAPPED[how](OPTIMIZERS[name]), overflow_at=0)
    np.testing.assert_array_equal(weights, expected(OPTIMIZERS[name]))
    assert int(np.array(tf.convert_to_tensor(optimizer.iterations))) == 2
    assert scale_of(optimizer) == 2.0**14  # begins at 2 ** 15, and is halved by an overflow


@needs_policy
def test_with_one_step_a_dropped_batch_counts_as_it_does_for_the_plain_optimizer(mixed_float16):
    """Keras 2's loss scale counts it from 2.3 on, Keras 3's does not."""
    plain = OPTIMIZERS["SGD"]
    want = trained(plain, overflow_at=0)[1].iterations
    got = trained(lambda: ga.wrap_optimizer(plain(), steps=1), overflow_at=0)[1].iterations
    assert int(got.numpy()) == int(want.numpy())


@needs_policy
@pytest.mark.parametrize(
    "overflow_at", [0, SIZE - 1], ids=["on the first replica", "on the last replica"]
)
def test_an_overflow_on_one_replica_drops_it_on_all(mixed_float16, overflow_at):
    weights, optimizer = trained(
        lambda: WRAPPED["compile makes the loss scale"](OPTIMIZERS["SGD"]),
        overflow_at,
        replicas.strategy(),
    )
    np.testing.assert_array_equal(weights, expected(OPTIMIZERS["SGD"]))
    assert int(np.array(tf.convert_to_tensor(optimizer.iterations))) == 2


@pytest.mark.skipif(
    LossScaleOptimizer is None or not hasattr(LossScaleOptimizer, "get_unscaled_gradients"),
    reason="Keras 3 unscales by itself, and TF 1.14 has no loss-scale optimizer for Keras",
)
def test_in_a_loop_of_one_s_own():
    arguments = () if hasattr(tf.keras.mixed_precision, "LossScaleOptimizer") else ("dynamic",)
    optimizer = ga.wrap_optimizer(
        LossScaleOptimizer(tf.keras.optimizers.SGD(1.0), *arguments), steps=2
    )
    variable = tf.Variable([1.0, 2.0])

    @tf.function
    def train(gradient):
        optimizer.get_scaled_loss(tf.constant(0.0))  # else it warns
        unscaled = optimizer.get_unscaled_gradients([gradient * scale_in_graph(optimizer)])
        optimizer.apply_gradients(zip(unscaled, [variable]))

    for gradient in ([1.0, 1.0], [np.inf, 1.0], [3.0, 5.0]):
        train(tf.constant(gradient))
    np.testing.assert_array_equal(variable.numpy(), [-1.0, -1.0])


def scale_in_graph(optimizer):
    return optimizer.loss_scale() if callable(optimizer.loss_scale) else optimizer.loss_scale


@pytest.fixture
def mixed_bfloat16():
    _set_policy("mixed_bfloat16")
    yield
    _set_policy("float32")


@pytest.mark.skipif(
    not hasattr(tf.keras.mixed_precision, "set_global_policy"),
    reason="mixed_bfloat16 came with TF 2.4",
)
@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_bfloat16_gradients_are_added_up_in_float32(mixed_bfloat16, name):
    """Two cycles, beside the plain optimizer with the means of the gradients that the same layer
    gives."""

    def model():
        made = tf.keras.Sequential([tf.keras.layers.Dense(1, use_bias=False, input_shape=(3,))])
        made.set_weights([START])
        return made

    accumulated, plain = model(), model()
    accumulated.compile(
        optimizer=ga.wrap_optimizer(OPTIMIZERS[name](), steps=STEPS), loss="mse", run_eagerly=True
    )
    optimizer = OPTIMIZERS[name]()
    micro_batches = [slice(begin, begin + SIZE) for begin in range(0, 2 * STEPS * SIZE, SIZE)]
    for cycle in (micro_batches[:STEPS], micro_batches[STEPS:]):
        gradients = []
        for rows in cycle:
            accumulated.train_on_batch(X[rows], Y[rows])
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(
                    tf.square(tf.cast(plain(X[rows], training=True), tf.float32) - Y[rows])
                )
            gradients.append(
                tape.gradient(loss, plain.trainable_variables)[0].numpy().astype(np.float64)
            )
        mean = tf.constant(np.mean(gradients, 0).astype(np.float32))
        optimizer.apply_gradients([(mean, plain.trainable_variables[0])])
        np.testing.assert_allclose(
            accumulated.get_weights()[0], plain.get_weights()[0], rtol=0, atol=1e-6
        )
