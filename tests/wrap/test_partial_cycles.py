"""fit() that ends in mid-cycle, and batches of different sizes."""

from __future__ import absolute_import, division, print_function

import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

import gradaccum_compat as ga
from support import processes

RANDOM = np.random.RandomState(0)
COUNT, SIZE, STEPS = 26, 4, 4  # six batches of 4 and one of 2: a cycle of four, and a partial one
X, Y = RANDOM.randn(COUNT, 3).astype(np.float32), RANDOM.randn(COUNT, 1).astype(np.float32)
START = [RANDOM.randn(3, 1).astype(np.float32), np.zeros(1, np.float32)]
OPTIMIZERS = {
    "SGD": lambda: tf.keras.optimizers.SGD(0.1),
    "Adam": lambda: tf.keras.optimizers.Adam(0.1),
}


def fit(optimizer, batch_size, callbacks=(), epochs=2):
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(3,))])
    model.compile(optimizer=optimizer, loss="mse")
    model.set_weights(START)
    model.fit(
        X,
        Y,
        batch_size=batch_size,
        epochs=epochs,
        shuffle=False,
        verbose=0,
        callbacks=list(callbacks),
    )
    return model


def updates(model):
    return int(model.optimizer.iterations.numpy())


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_sizes_and_flushes_give_the_big_batch(name):
    """Two epochs of a big batch of 16 and one of 10."""
    sizes = ga.keras.BatchSizes(examples=COUNT, batch_size=SIZE)
    optimizer = ga.wrap_optimizer(OPTIMIZERS[name](), steps=STEPS, weight=sizes)
    accumulated = fit(optimizer, SIZE, [sizes, ga.keras.FlushPartialCycle()])
    whole = fit(OPTIMIZERS[name](), SIZE * STEPS)
    for expected, actual in zip(whole.get_weights(), accumulated.get_weights()):
        np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-6)
    assert updates(accumulated) == updates(whole) == 4


def test_without_sizes_a_short_batch_weighs_as_much_as_the_others():
    """The documented meaning: the mean over micro-batches, here of the last cycle of 4, 4 and 2
    examples."""
    model = fit(
        ga.wrap_optimizer(OPTIMIZERS["SGD"](), steps=3),
        SIZE,
        [ga.keras.FlushPartialCycle()],
        epochs=1,
    )
    kernel, bias = [each.astype(np.float64) for each in START]
    for cycle in ([0, 4, 8], [12, 16, 20], [24]):
        gradients = []
        for begin in cycle:
            x, y = X[begin : begin + SIZE], Y[begin : begin + SIZE]
            error = 2 * (x.dot(kernel) + bias - y) / len(x)
            gradients.append((x.T.dot(error), error.sum(0)))
        kernel, bias = [
            value - 0.1 * np.mean([each[position] for each in gradients], 0)
            for position, value in enumerate((kernel, bias))
        ]
    for expected, actual in zip((kernel, bias), model.get_weights()):
        np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-6)


def test_without_a_flush_the_cycle_goes_on_into_the_next_epoch():
    model = fit(
        ga.wrap_optimizer(OPTIMIZERS["SGD"](), steps=STEPS), SIZE, epochs=4
    )  # 28 micro-batches
    assert updates(model) == 7
    assert int(model.optimizer.accumulator.micro_count.numpy()) == 0


_ENDS_IN_MID_CYCLE = """
import numpy as np
import tensorflow as tf
tf.compat.v1.enable_eager_execution()
import gradaccum_compat as ga
model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(3,))])
model.compile(optimizer=ga.wrap_optimizer(tf.keras.optimizers.SGD(0.1), steps={steps}), loss="mse")
for _ in range(3):
    model.fit(np.ones([24, 3], np.float32), np.ones([24, 1], np.float32), batch_size=4, verbose=0)
"""


@pytest.mark.parametrize("steps, times", [(4, 1), (3, 0)], ids=["in mid-cycle", "at a boundary"])
def test_pending_micro_batches_are_told_once(steps, times):
    process = subprocess.Popen(
        [sys.executable, "-W", "always", "-c", _ENDS_IN_MID_CYCLE.format(steps=steps)],
        stderr=subprocess.PIPE,
        env=processes.environment(TF_CPP_MIN_LOG_LEVEL="3"),
        universal_newlines=True,
    )
    output = process.communicate()[1]
    assert process.returncode == 0
    assert output.count("ended in mid-cycle: 2 of 4") == times
    assert "pending.py" not in output  # the user's line with fit(), or none of the package's


def test_a_flush_without_accumulation_is_refused_before_the_first_batch():
    optimizer = OPTIMIZERS["SGD"]()
    with pytest.raises(ga.errors.OptimizerError, match="wrap_optimizer"):
        fit(optimizer, SIZE, [ga.keras.FlushPartialCycle()])
    assert int(tf.keras.backend.get_value(optimizer.iterations)) == 0


LEFT_OUT = r"one of fit\(\)'s callbacks"


def test_sizes_that_are_left_out_of_the_callbacks_are_said():
    sizes = ga.keras.BatchSizes(examples=COUNT, batch_size=SIZE)
    with pytest.raises(Exception, match=LEFT_OUT):
        fit(ga.wrap_optimizer(OPTIMIZERS["SGD"](), steps=2, weight=sizes), SIZE)


def test_sizes_that_are_left_out_of_the_second_fit_are_said():
    sizes = ga.keras.BatchSizes(examples=COUNT, batch_size=SIZE)
    model = fit(ga.wrap_optimizer(OPTIMIZERS["SGD"](), steps=2, weight=sizes), SIZE, [sizes])
    with pytest.raises(Exception, match=LEFT_OUT):
        model.fit(X, Y, batch_size=SIZE, verbose=0)


@pytest.mark.skipif(
    hasattr(tf.keras.Model, "train_step"), reason="ExactCycles is there from TensorFlow 2.2 on"
)
def test_where_fit_cannot_be_followed_exact_cycles_names_what_serves():
    optimizer = ga.wrap_optimizer(OPTIMIZERS["SGD"](), steps=2)
    with pytest.raises(ga.errors.OptionError, match="FlushPartialCycle.*BatchSizes"):
        fit(optimizer, SIZE, [ga.keras.ExactCycles()])
    assert int(tf.keras.backend.get_value(optimizer.iterations)) == 0


@pytest.mark.parametrize("examples, batch_size", [(0, 4), (10, 0), (10.0, 4), (10, True)])
def test_sizes_are_positive_integers(examples, batch_size):
    with pytest.raises(ga.errors.OptionError):
        ga.keras.BatchSizes(examples=examples, batch_size=batch_size)


def test_sizes_that_do_not_fit_the_data():
    sizes = ga.keras.BatchSizes(examples=COUNT - SIZE, batch_size=SIZE)
    with pytest.raises(ga.errors.OptionError, match="batch 6"):
        fit(ga.wrap_optimizer(OPTIMIZERS["SGD"](), steps=2, weight=sizes), SIZE, [sizes])


@pytest.mark.skipif(
    not hasattr(tf.keras.Model, "train_step"), reason="steps_per_execution came with TF 2.4"
)
def test_sizes_count_batches_one_by_one():
    sizes = ga.keras.BatchSizes(examples=COUNT, batch_size=SIZE)
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(3,))])
    try:
        model.compile(
            optimizer=ga.wrap_optimizer(OPTIMIZERS["SGD"](), steps=4, weight=sizes),
            loss="mse",
            steps_per_execution=2,
        )
    except TypeError:
        pytest.skip("compile() takes steps_per_execution from TF 2.4 on")
    with pytest.raises(ga.errors.OptionError, match="steps_per_execution"):
        model.fit(X, Y, batch_size=SIZE, verbose=0, callbacks=[sizes])
