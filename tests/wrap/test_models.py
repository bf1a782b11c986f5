"""The kinds of models that fit() trains: several inputs and outputs, built on first call, frozen in
part, embeddings."""

from __future__ import absolute_import, division, print_function

import gc

import numpy as np
import pytest

import gradaccum_compat as ga
from support import fitting
from support.fitting import BIG, FEATURES, STEPS, TARGETS, dense

MICRO = BIG // STEPS
WORDS, LENGTH = 20, 3


def adam(generation):
    return lambda: generation.optimizers.Adam(0.1)


def functional(generation):
    keras = generation.keras
    inputs = keras.layers.Input(shape=(FEATURES,))
    hidden = dense(generation, 7, activation="tanh")(inputs)
    return keras.Model(inputs, dense(generation, TARGETS)(hidden))


def subclassed(generation):
    class Model(generation.keras.Model):
        def __init__(self):
            super(Model, self).__init__()
            self.hidden, self.out = dense(generation, 7, activation="tanh"), dense(
                generation, TARGETS
            )

        def call(self, x):
            return self.out(self.hidden(x))

    return Model()


def sequential_built_on_first_call(generation):
    return generation.keras.Sequential(
        [dense(generation, 7, activation="tanh"), dense(generation, TARGETS)]
    )


@pytest.mark.parametrize("build", [functional, subclassed, sequential_built_on_first_call])
def test_kinds_of_models(generation, build):
    fitting.check_fit(generation, adam(generation), build)


def test_several_inputs_and_outputs(generation):
    keras = generation.keras
    x, y = fitting.data()

    def build():
        inputs = [keras.layers.Input(shape=(FEATURES,)) for _ in range(2)]
        hidden = keras.layers.add(
            [dense(generation, 7, activation="tanh")(inputs[0]), dense(generation, 7)(inputs[1])]
        )
        return keras.Model(
            inputs, [dense(generation, TARGETS)(hidden), dense(generation, 1)(hidden)]
        )

    ends = []
    for size, maker in ((BIG, adam(generation)), (MICRO, fitting.accumulating(adam(generation)))):
        model = build()
        model.compile(optimizer=maker(), loss=["mse", "mae"], loss_weights=[1.0, 0.5])
        model.fit(
            [x, x[:, ::-1]], [y, y[:, :1]], batch_size=size, shuffle=False, verbose=0, epochs=2
        )
        ends.append(model.get_weights())
    fitting.check_same(*ends)


# Layers that are frozen


def frozen_first_layer(generation):
    model = fitting.sequential(generation)
    model.layers[0].trainable = False
    return model


def test_a_frozen_layer(generation):
    (_, _), (small, _) = fitting.check_fit(generation, adam(generation), frozen_first_layer)
    np.testing.assert_array_equal(small.get_weights()[0], fitting.initial((FEATURES, 7)).numpy())


def between_two_fits(generation, change, build=fitting.sequential):
    """Weights of the big batch and of the accumulated one, after a fit, a change to the model, and
    another fit."""
    ends = []

    # SGD with momentum: Keras's own Adam of 2.11 on asks for the same variables at every update.
    def make():
        return generation.optimizers.SGD(0.1, momentum=0.9)

    for size, optimizer in ((BIG, make()), (MICRO, fitting.accumulating(make)())):
        model = build(generation)
        model.compile(optimizer=optimizer, loss="mse")
        fitting.fit(model, size)
        change(model)
        model.compile(optimizer=optimizer, loss="mse")
        fitting.fit(model, size)
        ends.append(model.get_weights())
    return ends


def test_a_layer_that_is_frozen_between_two_fits(generation):
    def freeze(model):
        model.layers[0].trainable = False

    fitting.check_same(*between_two_fits(generation, freeze))


def test_a_layer_that_is_made_trainable_between_two_fits(generation):
    make = fitting.accumulating(adam(generation))
    model, optimizer = fitting.compiled(generation, make, frozen_first_layer)
    x, y = fitting.data()
    model.train_on_batch(x[:MICRO], y[:MICRO])
    model.layers[0].trainable = True
    model.compile(optimizer=optimizer, loss="mse")
    with pytest.raises(ga.errors.VariablesError) as caught:
        # Not fit(): while pytest holds the error of that, TF 2.0's next fit() may end the process.
        model.train_on_batch(x[:MICRO], y[:MICRO])
    assert "trainable" in str(caught.value)


# Embeddings


def embedding(generation):
    layers = generation.keras.layers
    return generation.keras.Sequential(
        [
            layers.Embedding(WORDS, 2, embeddings_initializer=fitting.initial),
            layers.Reshape((LENGTH * 2,)),
            dense(generation, TARGETS),
        ]
    )


def words():
    # Words of the lower half alone: the other rows have no gradient. Each micro-batch has rows
    #     twice.
    return (
        np.random.RandomState(3).randint(0, WORDS // 2, size=(fitting.EXAMPLES, LENGTH)),
        fitting.data()[1],
    )


@pytest.mark.parametrize("name, options", [("SGD", dict(momentum=0.9)), ("Adam", {})])
def test_embeddings(generation, name, options):
    """Equal to the dense reference: each row once, in every micro-batch that touches it."""

    def make():
        return getattr(generation.optimizers, name)(0.1, **options)

    x, y = words()
    small, _ = fitting.compiled(generation, fitting.accumulating(make), embedding)
    fitting.fit(small, MICRO, (x, y))
    want = weights_of_a_dense_loop(generation, make, x, y)
    if fitting.is_optimizer_v2(generation) and name == "SGD":
        # Its momentum is lazy: rows that a big batch does not touch stay.
        big, _ = fitting.compiled(generation, make, embedding)
        fitting.fit(big, BIG, (x, y))
        want = big.get_weights()
    fitting.check_same(small.get_weights(), want)
    np.testing.assert_array_equal(
        small.get_weights()[0][WORDS // 2 :], fitting.initial((WORDS, 2)).numpy()[WORDS // 2 :]
    )


def weights_of_a_dense_loop(generation, make, x, y):
    """The big batch's weights, with an embedding whose gradient is dense: one-hot words times a
    matrix."""
    one_hot = np.eye(WORDS, dtype="f")[x]
    layers = generation.keras.layers
    model = generation.keras.Sequential(
        [
            dense(generation, 2, use_bias=False, input_shape=(LENGTH, WORDS)),
            layers.Flatten(),
            dense(generation, TARGETS),
        ]
    )
    model.compile(optimizer=make(), loss="mse")
    fitting.fit(model, BIG, (one_hot, y))
    return model.get_weights()


def test_the_garbage_collector_leaves_its_attributes_alone(generation):
    """Python 3.13 clears a dict that two objects share while it is the inside of one of them."""
    # Without what other tests have left: TF 1.15 hangs where it deletes some of that. Python 2.7
    #     has no freeze.
    getattr(gc, "freeze", lambda: None)()
    model, optimizer = fitting.compiled(
        generation,
        lambda: ga.wrap_optimizer(generation.optimizers.SGD(0.1), steps=STEPS),
        fitting.linear,
    )
    gc.collect()
    getattr(gc, "unfreeze", lambda: None)()
    fitting.fit(model, MICRO)
    assert fitting.updates(optimizer) == fitting.UPDATES
