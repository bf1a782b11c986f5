"""The ways to train other than fit() as it stands, each against the big batch."""

from __future__ import absolute_import, division, print_function

import inspect

import numpy as np
import pytest
import tensorflow as tf

import gradaccum_compat as ga
from support import fitting, optimizers, replicas

MICRO = fitting.BIG // fitting.STEPS


def momentum(generation):
    return lambda: generation.optimizers.SGD(0.1, momentum=0.9)


def adam(generation):
    return lambda: generation.optimizers.Adam(0.1)


def batches(size):
    x, y = fitting.data()
    return [(x[start : start + size], y[start : start + size]) for start in range(0, len(x), size)]


def takes(function, name):
    # Python 2.7 has no signature, which looks through decorators.
    return name in str(
        (inspect.signature if hasattr(inspect, "signature") else inspect.getargspec)(function)
    )


def check_calls(generation, train, make=momentum):
    """Calls train(model, optimizer) on models with and without accumulation, with the size of their
    batches."""
    ends = []
    for size, maker in (
        (fitting.BIG, make(generation)),
        (MICRO, fitting.accumulating(make(generation))),
    ):
        model, optimizer = fitting.compiled(generation, maker)
        train(model, optimizer, size)
        assert fitting.updates(optimizer) == len(batches(fitting.BIG))
        ends.append(model.get_weights())
    fitting.check_same(*ends)


def test_train_on_batch(generation):
    def train(model, optimizer, size):
        for x, y in batches(size):
            model.train_on_batch(x, y)

    check_calls(generation, train)


@pytest.mark.parametrize("make", [momentum, adam])
@pytest.mark.parametrize(
    "decorate", [tf.function, lambda function: function], ids=["function", "eager"]
)
def test_a_loop_with_a_tape(generation, decorate, make):
    def train(model, optimizer, size):
        @decorate
        def step(x, y):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(model(x) - y))
            variables = model.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))

        for x, y in batches(size):
            step(tf.constant(x), tf.constant(y))

    check_calls(generation, train, make)


@pytest.mark.parametrize(
    "generation",
    fitting.having(
        lambda each: hasattr(each.optimizers.SGD, "minimize"), "Keras 3 has no minimize"
    ),
)
def test_minimize_a_function(generation):
    def train(model, optimizer, size):
        for x, y in batches(size):
            optimizer.minimize(
                lambda: tf.reduce_mean(tf.square(model(x) - y)), model.trainable_variables
            )

    check_calls(generation, train)


@pytest.mark.parametrize(
    "generation",
    fitting.having(
        lambda each: hasattr(each.keras.Model, "train_step"), "train_step came with TF 2.2"
    ),
)
def test_a_train_step_of_one_s_own(generation):
    class Model(generation.keras.Sequential):
        def train_step(self, xy):
            x, y = xy
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(self(x, training=True) - y))
            gradients = tape.gradient(loss, self.trainable_variables)
            self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
            return {"loss": loss}

    def build(_):
        return Model([fitting.dense(generation, fitting.TARGETS, input_shape=(fitting.FEATURES,))])

    fitting.check_fit(generation, momentum(generation), build)


def test_fit_that_runs_eagerly(generation):
    fitting.check_fit(generation, adam(generation), run_eagerly=True)


@pytest.mark.parametrize("jit_compile", [True, False])
@pytest.mark.parametrize(
    "generation",
    fitting.having(
        lambda each: takes(each.keras.Model.compile, "jit_compile"),
        "compile() took jit_compile later than this TensorFlow",
    ),
)
def test_fit_compiled_by_xla(generation, jit_compile):
    fitting.check_fit(generation, adam(generation), jit_compile=jit_compile)


@pytest.mark.parametrize(
    "generation",
    fitting.having(
        lambda each: takes(each.keras.Model.compile, "steps_per_execution"),
        "steps_per_execution came later",
    ),
)
def test_several_steps_in_one_execution(generation):
    # 8 micro-batches of each epoch in executions of 3: cycles end inside one, and go on into the
    # next.
    fitting.check_fit(generation, adam(generation), steps_per_execution=3)


# Gradients that the caller has reduced


def reduced_already(generation):
    """apply_gradients' argument that says so, or None where it has none."""
    for name, value in (
        ("experimental_aggregate_gradients", False),
        ("skip_gradients_aggregation", True),
    ):
        if takes(generation.optimizers.SGD.apply_gradients, name):
            return {name: value}
    return None


@pytest.mark.parametrize(
    "generation", fitting.having(reduced_already, "its apply_gradients always reduces by itself")
)
@pytest.mark.parametrize("reduced", [False, True])
def test_gradients_on_replicas_that_the_caller_has_reduced_or_not(generation, reduced):
    ends = []
    for size, maker in (
        (fitting.BIG, momentum(generation)),
        (MICRO, fitting.accumulating(momentum(generation))),
    ):
        model, optimizer = fitting.compiled(generation, maker, fitting.linear, replicated=True)
        step = on_replicas(model, optimizer, size, reduced_already(generation) if reduced else {})
        for x, y in batches(size):
            step(tf.constant(x), tf.constant(y))
        assert fitting.updates(optimizer) == 2
        ends.append(model.get_weights())
    fitting.check_same(*ends)


def on_replicas(model, optimizer, size, options):
    share = size // replicas.COUNT

    def on_replica(x, y):
        number = replicas.replica()
        x, y = x[number * share : (number + 1) * share], y[number * share : (number + 1) * share]
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(model(x) - y)) / size
        gradients = tape.gradient(loss, model.trainable_variables)
        if options:
            gradients = tf.distribute.get_replica_context().all_reduce(
                tf.distribute.ReduceOp.SUM, gradients
            )
        optimizer.apply_gradients(zip(gradients, model.trainable_variables), **options)

    return tf.function(lambda x, y: replicas.run(on_replica, (x, y)) and None)


# Every optimizer


KERAS = [each for each in optimizers.ALL if each[0] != "v1"]


@pytest.mark.parametrize("family, name", KERAS)
def test_apply_gradients_of_every_optimizer(family, name):
    make, variable = optimizers.maker(family, name), optimizers.VARIABLES.get(family, tf.Variable)
    values = [
        np.random.RandomState(index).randn(*shape).astype("f")
        for index, shape in enumerate([(3, 2), (2,)])
    ]
    plain, small = make(), ga.wrap_optimizer(make(), steps=3)
    of_plain, of_small = [
        [variable(value, name="v%d" % index) for index, value in enumerate(values)]
        for _ in range(2)
    ]
    for cycle in range(3):
        micro_batches = [
            [
                np.random.RandomState(10 * cycle + micro).randn(*value.shape).astype("f")
                for value in values
            ]
            for micro in range(3)
        ]
        for gradients in micro_batches:
            small.apply_gradients(zip([tf.constant(each) for each in gradients], of_small))
        means = [np.mean(each, 0, dtype="d").astype("f") for each in zip(*micro_batches)]
        plain.apply_gradients(zip([tf.constant(each) for each in means], of_plain))
        fitting.check_same([each.numpy() for each in of_small], [each.numpy() for each in of_plain])
