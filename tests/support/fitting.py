"""Small models that are trained by fit(), at once and accumulated, with each Keras that the
environment has.

A big batch has STEPS micro-batches. Initial weights depend on their shapes alone, so that two
models that are built alike begin alike, also where they are built on first call.
"""

from __future__ import absolute_import, division, print_function

import collections
import contextlib

import numpy as np
import pytest
import tensorflow as tf

import gradaccum_compat as ga
from support import optimizers, replicas

BIG, STEPS, EXAMPLES, EPOCHS = 16, 4, 32, 2
UPDATES = EPOCHS * EXAMPLES // BIG
FEATURES, TARGETS = 5, 2

#: The family is support.optimizers' name of the optimizers; `keras` makes the models.
Generation = collections.namedtuple("Generation", ["family", "keras", "optimizers"])


def _generations():
    found = []
    for name, keras in (("keras", tf.keras), ("tf_keras", optimizers.tf_keras)):
        if name in optimizers.FAMILIES:
            found.append(Generation(name, keras, keras.optimizers))
        # In 2.9 and 2.10 `legacy` holds the same optimizers.
        if name + ".legacy" in optimizers.FAMILIES and not issubclass(
            keras.optimizers.legacy.SGD, keras.optimizers.SGD
        ):
            found.append(Generation(name + ".legacy", keras, keras.optimizers.legacy))
    return found


GENERATIONS = _generations()


def is_keras_3(generation):
    return hasattr(generation.keras, "Variable")


def is_optimizer_v2(generation):
    """Whether its optimizers are OptimizerV2, as up to 2.10 and under `legacy`."""
    return hasattr(generation.optimizers.SGD, "_create_hypers")


def having(feature, reason):
    """pytest parameters: the generations that have a feature; those without are skipped for a
    reason."""
    return [
        pytest.param(
            each, id=each.family, marks=[] if feature(each) else [pytest.mark.skip(reason=reason)]
        )
        for each in GENERATIONS
    ]


# Models


def initial(shape, dtype=None, **_):
    shape = [int(each) for each in shape]
    return tf.constant(np.random.RandomState(sum(shape)).randn(*shape) / 2, dtype or tf.float32)


def dense(generation, units, **options):
    return generation.keras.layers.Dense(units, kernel_initializer=initial, **options)


def sequential(generation):
    return generation.keras.Sequential(
        [
            dense(generation, 7, activation="tanh", input_shape=(FEATURES,)),
            dense(generation, TARGETS),
        ]
    )


def linear(generation, **options):
    """One layer: two weights, for what costs seconds on each."""
    return generation.keras.Sequential(
        [dense(generation, TARGETS, input_shape=(FEATURES,), **options)]
    )


def data(examples=EXAMPLES):
    random = np.random.RandomState(0)
    return random.randn(examples, FEATURES).astype("f"), random.randn(examples, TARGETS).astype("f")


# Training


def scope(replicated):
    return replicas.strategy().scope() if replicated else _no_scope()


@contextlib.contextmanager
def _no_scope():
    yield


def compiled(generation, make, build=sequential, replicated=False, loss="mse", **options):
    """A compiled model, and its optimizer."""
    with scope(replicated):
        model, optimizer = build(generation), make()
        model.compile(optimizer=optimizer, loss=loss, **options)
    return model, optimizer


def fit(model, batch, xy=None, replicated=False, epochs=EPOCHS, **options):
    x, y = data() if xy is None else xy
    if not replicated:
        return model.fit(x, y, batch_size=batch, shuffle=False, verbose=0, epochs=epochs, **options)
    # A finite dataset under MirroredStrategy sometimes ends in CancelledError on 1.15 and 2.0.
    repeated = tf.data.Dataset.from_tensor_slices((x, y)).batch(batch).repeat()
    return model.fit(repeated, steps_per_epoch=len(x) // batch, verbose=0, epochs=epochs, **options)


def accumulating(make, **options):
    return lambda: ga.wrap_optimizer(make(), **dict(dict(steps=STEPS), **options))


def check_fit(generation, make, build=sequential, replicated=False, xy=None, **options):
    """Trains with big batches on one device, and accumulated; compares the weights, and returns
    both (model, optimizer)."""
    big = compiled(generation, make, build, **options)
    fit(big[0], BIG, xy)
    small = compiled(generation, accumulating(make), build, replicated, **options)
    fit(small[0], BIG // STEPS, xy, replicated)
    check_same(small[0].get_weights(), big[0].get_weights())
    assert updates(small[1]) == updates(big[1]) == UPDATES
    return big, small


def check_same(got, want):
    assert len(got) == len(want) > 0
    for index, (each, other) in enumerate(zip(got, want)):
        np.testing.assert_allclose(each, other, rtol=1e-6, atol=1e-6, err_msg="weight %d" % index)


def updates(optimizer):
    return int(number(optimizer.iterations))


def number(value):
    """The value of a scalar variable or number; in 1.14 fit() leaves variables to a graph of its
    own."""
    if hasattr(value, "numpy"):
        return value.numpy()
    return tf.keras.backend.get_value(value) if isinstance(value, tf.Variable) else value
