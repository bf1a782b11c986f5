"""Wrapped optimizers whose cycles grow: `steps` by a dictionary or a function of the updates."""

from __future__ import absolute_import, division, print_function

import json
import logging
import warnings

import numpy as np
import pytest
import tensorflow as tf

import gradaccum_compat as ga
from support import fitting

v1 = tf.compat.v1
SIZE = 4
X, Y = fitting.data(10 * SIZE)
#: Ten micro-batches in updates of 2, 4 and 4.
BEGINS, ENDS = [0, 2, 6], [2, 6, 10]
SCHEDULES = {
    "dictionary": {0: 2, 1: 4},
    "function": lambda updates: tf.where(tf.equal(updates, 0), 2, 4),
}
FORMATS = ["keras"] if hasattr(tf.keras, "Variable") else ["h5", "keras"]


@pytest.fixture(params=sorted(SCHEDULES))
def schedule(request):
    return SCHEDULES[request.param]


def test_fit(generation, schedule):
    def momentum():
        return generation.optimizers.SGD(0.1, momentum=0.9)

    whole, _ = fitting.compiled(generation, momentum, fitting.linear)
    for begin, end in zip(BEGINS, ENDS):
        whole.train_on_batch(X[SIZE * begin : SIZE * end], Y[SIZE * begin : SIZE * end])
    accumulated, _ = fitting.compiled(
        generation, lambda: ga.wrap_optimizer(momentum(), schedule), fitting.linear
    )
    accumulated.fit(X, Y, SIZE, shuffle=False, verbose=0)
    for got, want in zip(accumulated.get_weights(), whole.get_weights()):
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)


def test_minimize(schedule, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("tensorflow"), "propagate", True)  # for pytest to see
    with tf.Graph().as_default(), v1.Session() as session:
        variable = v1.Variable(0.0, use_resource=True)
        target, step = v1.placeholder(tf.float32, []), v1.train.get_or_create_global_step()
        optimizer = ga.wrap_optimizer(v1.train.GradientDescentOptimizer(0.5), schedule)
        with caplog.at_level(logging.WARNING, "tensorflow"):
            train_op = optimizer.minimize(tf.square(variable - target) / 2, step)
        session.run(v1.global_variables_initializer())
        steps, want = [], 0.0
        for begin, end in zip(BEGINS, ENDS):
            for number in range(begin, end):
                session.run(train_op, {target: number})
                steps.append(session.run(step))
            want += 0.5 * np.mean(np.arange(begin, end) - want)
            np.testing.assert_allclose(session.run(variable), want, rtol=1e-6)
    assert steps == [0, 1, 1, 1, 1, 2, 2, 2, 2, 3]
    assert "one in `steps` micro-batches" in caplog.text


def compiled(steps):
    model = tf.keras.Sequential([tf.keras.layers.Dense(2, input_shape=(fitting.FEATURES,))])
    loss = tf.keras.losses.MeanSquaredError() if hasattr(tf.keras, "Variable") else "mse"
    model.compile(ga.wrap_optimizer(tf.keras.optimizers.Adam(0.05), steps), loss)
    return model


def train(model, begin, end):
    for number in range(begin, end):
        model.train_on_batch(X[SIZE * number :][:SIZE], Y[SIZE * number :][:SIZE])


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_saved_model_holds_a_dictionary(tmpdir, suffix):
    model, path = compiled(SCHEDULES["dictionary"]), str(tmpdir.join("model." + suffix))
    train(model, 0, 4)
    model.save(path)
    loaded = tf.keras.models.load_model(path)
    for each in (model, loaded):
        train(each, 4, 10)
    for got, want in zip(loaded.get_weights(), model.get_weights()):
        np.testing.assert_array_equal(got, want)
    assert int(loaded.optimizer.iterations.numpy()) == 3


def test_a_configuration_in_json_holds_a_dictionary():
    optimizer = ga.wrap_optimizer(tf.keras.optimizers.SGD(), {0: np.int64(2), np.int32(1): 4})
    config = optimizer.get_config()
    passed = json.loads(json.dumps(dict(config.items()), default=float))
    assert type(optimizer).from_config(passed).get_config()["accumulation"]["steps"] == {0: 2, 1: 4}


@pytest.fixture(params=FORMATS)
def with_a_function(tmpdir, request):
    """A model in the first micro-batch of its second cycle, and what is loaded of it."""
    model, path = compiled(SCHEDULES["function"]), str(tmpdir.join("model." + request.param))
    train(model, 0, 3)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.save(path)
    assert any("does not hold steps" in str(each.message) for each in caught)
    return model, tf.keras.models.load_model(path)


def test_a_saved_model_holds_no_function(with_a_function):
    loaded = with_a_function[1]
    weights = loaded.get_weights()
    refused = (ga.errors.OptionError, tf.errors.InvalidArgumentError)
    with pytest.raises(refused, match="wrap_optimizer"):
        train(loaded, 3, 4)
    for got, want in zip(loaded.get_weights(), weights):
        np.testing.assert_array_equal(got, want)


def test_wrapped_with_its_function_again_a_loaded_model_goes_on(with_a_function):
    model, loaded = with_a_function
    loaded.compile(ga.wrap_optimizer(loaded.optimizer, SCHEDULES["function"]), model.loss)
    for each in with_a_function:
        train(each, 3, 10)
    for got, want in zip(loaded.get_weights(), model.get_weights()):
        np.testing.assert_array_equal(got, want)
    assert int(loaded.optimizer.iterations.numpy()) == 3


def test_what_is_pending_is_told_with_the_steps_of_its_cycle(recwarn):
    from gradaccum_compat.wrap import pending

    model = compiled(SCHEDULES["dictionary"])
    train(model, 0, 5)
    pending.warn(model.optimizer._accumulation, "fit()", "")
    assert any("3 of 4 micro-batches" in str(each.message) for each in recwarn)
