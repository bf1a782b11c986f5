"""ExactCycles on two replicas: the weights of the big batch on one device, uneven replicas too."""

from __future__ import absolute_import, division, print_function

import numpy as np
import pytest
import tensorflow as tf

import gradaccum_compat as ga
from support import fitting

if not hasattr(tf.keras.Model, "train_step"):
    pytest.skip("ExactCycles is for TensorFlow 2.2 and later", allow_module_level=True)

# Micro-batches of 2 and 2 examples, and a last one of 2 and 1.
COUNT, MICRO, BIG, TIMES, IDS = 27, 4, 16, 6, 9
RANDOM = np.random.RandomState(0)
X, Y = RANDOM.randn(COUNT, 5).astype("f"), RANDOM.randn(COUNT, 2).astype("f")
TOKENS = np.where(
    np.arange(TIMES) < RANDOM.randint(1, TIMES + 1, (COUNT, 1)),
    RANDOM.randint(1, IDS, (COUNT, TIMES)),
    0,
)
TAGS = RANDOM.randn(COUNT, TIMES, 1).astype("f")


def masked(generation):
    layers = generation.keras.layers
    ids = layers.Input((TIMES,))
    vectors = layers.Embedding(IDS, 3, mask_zero=True, embeddings_initializer=fitting.initial)(ids)
    return generation.keras.Model(ids, fitting.dense(generation, 1)(vectors))


def train(generation, make, size, arrays, replicated, callbacks, **options):
    model, _ = fitting.compiled(generation, make, replicated=replicated, **options)
    batches = tf.data.Dataset.from_tensor_slices(arrays).batch(size)
    model.fit(batches, epochs=2, verbose=0, callbacks=callbacks)
    return model.get_weights()


def check(generation, make, arrays, **options):
    """Trains with the big batch on one device, and in micro-batches on two replicas."""
    big = train(generation, make, BIG, arrays, False, [], **options)
    callbacks = [ga.keras.ExactCycles()]
    accumulating = fitting.accumulating(make)
    small = train(generation, accumulating, MICRO, arrays, True, callbacks, **options)
    fitting.check_same(small, big)


def test_uneven_replicas_and_a_partial_cycle(generation):
    check(generation, lambda: generation.optimizers.SGD(0.1, momentum=0.9), (X, Y))


def adam(generation):
    # An epsilon that does not blow up the rounding of small gradients.
    return generation.optimizers.Adam(0.05, epsilon=1e-3)


def penalised(generation):
    return fitting.linear(generation, kernel_regularizer=generation.keras.regularizers.L2(0.1))


def test_adam_and_a_penalty_on_weights(generation):
    check(generation, lambda: adam(generation), (X, Y), build=penalised)


def test_several_steps_in_an_execution(generation):
    if fitting.is_keras_3(generation):
        pytest.skip("Keras 3 itself fails under MirroredStrategy with steps_per_execution")
    try:
        check(
            generation,
            lambda: adam(generation),
            (X, Y),
            build=fitting.linear,
            steps_per_execution=2,
        )
    except TypeError:
        pytest.skip("compile() takes steps_per_execution from TensorFlow 2.4 on")


def test_each_token_counts_once(generation):
    check(generation, lambda: generation.optimizers.SGD(0.1), (TOKENS, TAGS), build=masked)


def test_statistics_are_in_examples(generation):
    """The cycle of ten examples: shares of 2 and 2, 2 and 2, 1 and 1."""
    random = np.random.RandomState(0)
    x, y = random.randn(10, fitting.FEATURES).astype("f"), random.randn(10, 2).astype("f")
    make = fitting.accumulating(lambda: generation.optimizers.SGD(0.1), statistics=True)
    model, optimizer = fitting.compiled(generation, make, fitting.linear, replicated=True)
    kernel, _ = model.get_weights()
    gradients = (2 * (x.dot(kernel) - y) / 2).astype(np.float64)  # of a mean over two targets
    gradients = np.concatenate([(x[:, :, None] * gradients[:, None]).reshape(10, -1), gradients], 1)
    shares = np.split(gradients, [2, 4, 6, 8, 9])
    sizes, big = np.array([len(each) for each in shares]), gradients.mean(0)
    squares = sizes.dot([np.sum(np.square(each.mean(0))) for each in shares])
    trace = (squares - 10 * big.dot(big)) / (len(shares) - 1)
    examples = tf.data.Dataset.from_tensor_slices((x, y)).batch(4)
    model.fit(examples, verbose=0, callbacks=[ga.keras.ExactCycles()])
    last = optimizer.accumulator.statistics()
    got = [float(fitting.number(each)) for each in last]
    want = [np.sqrt(big.dot(big)), 1.0, 10, 6, trace / (big.dot(big) - trace / 10)]
    np.testing.assert_allclose(got, want, rtol=1e-5)
