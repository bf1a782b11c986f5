"""compile() and fit() with a wrapped optimizer end with the weights of the big batch.

Two epochs of two updates each, with a learning rate that decays with every update: state that moves
in between, a wrong scale and a decay that counts micro-batches all show.
"""

from __future__ import absolute_import, division, print_function

import numpy as np
import pytest
import tensorflow as tf

from support import fitting

CORE = [
    ("SGD", {}),
    ("SGD", dict(momentum=0.9)),
    ("SGD", dict(momentum=0.9, nesterov=True)),
    ("Adam", {}),
    ("AdamW", dict(weight_decay=0.1)),
    ("RMSprop", dict(momentum=0.9)),
    ("Adagrad", {}),
    ("Lion", {}),
    ("Ftrl", {}),
]
CASES = [
    pytest.param(
        generation, name, options, id="-".join([generation.family, name] + sorted(options))
    )
    for generation in fitting.GENERATIONS
    for name, options in CORE
    if hasattr(generation.optimizers, name)
]


def decaying(generation, name, options):
    """A function that makes the optimizer with a decaying learning rate."""
    # The schedules are not under `legacy`.
    schedules = generation.keras.optimizers.schedules
    return lambda: getattr(generation.optimizers, name)(
        schedules.ExponentialDecay(0.1, 2, 0.5), **options
    )


@pytest.mark.parametrize("generation, name, options", CASES)
def test_weights_are_the_big_batch_s(generation, name, options):
    fitting.check_fit(generation, decaying(generation, name, options))


@pytest.mark.parametrize("generation, name, options", CASES)
def test_weights_are_the_big_batch_s_on_replicas(generation, name, options):
    fitting.check_fit(
        generation, decaying(generation, name, options), fitting.linear, replicated=True
    )


@pytest.mark.parametrize("generation", fitting.GENERATIONS, ids=lambda each: each.family)
def test_a_dataset_of_unknown_length(generation):
    """fit() finds its end by running the step once more, in mid-cycle: that may change nothing.

    Half a cycle an epoch; the gradient of the bias is a constant, which waits for no example.
    """
    make, options = lambda: generation.optimizers.SGD(0.1, momentum=0.9), dict(
        build=fitting.linear, loss=lambda truth, guess: tf.reduce_sum(guess, -1)
    )
    x, y = fitting.data(fitting.BIG // 2)
    examples = tf.data.Dataset.from_generator(
        lambda: zip(x, y), (tf.float32, tf.float32), (x.shape[1:], y.shape[1:])
    ).batch(fitting.BIG // fitting.STEPS)
    small, _ = fitting.compiled(generation, fitting.accumulating(make), **options)
    small.fit(examples, epochs=4, verbose=0)
    big, _ = fitting.compiled(generation, make, **options)
    fitting.fit(big, fitting.BIG, (np.tile(x, (2, 1)), np.tile(y, (2, 1))))
    fitting.check_same(small.get_weights(), big.get_weights())
