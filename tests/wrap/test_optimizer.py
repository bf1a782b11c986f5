"""A wrapped optimizer is one of its own class: its rates, callbacks, averages and decays work as
they do without."""

from __future__ import absolute_import, division, print_function

import os

import numpy as np
import pytest

import gradaccum_compat as ga
from support import fitting

MICRO, STEPS = fitting.BIG // fitting.STEPS, fitting.STEPS


def adam(generation):
    return lambda: generation.optimizers.Adam(0.1)


def rate(optimizer):
    return float(fitting.number(optimizer.learning_rate))


def test_it_is_an_instance_of_its_class(generation):
    for name in ("SGD", "Adam"):
        kind = getattr(generation.optimizers, name)
        optimizer = ga.wrap_optimizer(kind(0.1), steps=STEPS)
        assert isinstance(optimizer, kind)
        assert isinstance(optimizer.accumulator, ga.Accumulator)


def test_its_configuration_has_the_plain_one_s(generation):
    def make():
        return generation.optimizers.SGD(0.1, momentum=0.9, name="descent")

    config = ga.wrap_optimizer(make(), steps=STEPS).get_config()
    assert {name: config[name] for name in make().get_config()} == make().get_config()


def test_its_learning_rate_is_read_and_set(generation):
    def after_a_change(make, size):
        model, optimizer = fitting.compiled(generation, make, fitting.linear)
        assert abs(rate(optimizer) - 0.1) < 1e-6
        fitting.fit(model, size, epochs=1)
        optimizer.learning_rate = 0.05
        assert abs(rate(optimizer) - 0.05) < 1e-6
        fitting.fit(model, size, epochs=1)
        return model.get_weights()

    make = adam(generation)
    fitting.check_same(
        after_a_change(fitting.accumulating(make), MICRO), after_a_change(make, fitting.BIG)
    )


# Callbacks


@pytest.mark.parametrize(
    "callback",
    [
        lambda callbacks: callbacks.LearningRateScheduler(lambda epoch: 0.2 / (epoch + 1)),
        lambda callbacks: callbacks.ReduceLROnPlateau(
            monitor="loss", factor=0.5, patience=1, min_delta=100.0
        ),
    ],
    ids=["scheduler", "plateau"],
)
def test_callbacks_that_set_the_learning_rate(generation, callback):
    ends = []
    for size, make in (
        (fitting.BIG, adam(generation)),
        (MICRO, fitting.accumulating(adam(generation))),
    ):
        model, optimizer = fitting.compiled(generation, make, fitting.linear)
        fitting.fit(model, size, epochs=3, callbacks=[callback(generation.keras.callbacks)])
        ends.append(model.get_weights() + [rate(optimizer)])
    fitting.check_same(*ends)
    assert abs(ends[0][-1] - 0.1) > 0.01


def test_model_checkpoint(generation, tmpdir):
    path = str(tmpdir.join("model.weights.h5"))
    model, _ = fitting.compiled(generation, fitting.accumulating(adam(generation)), fitting.linear)
    fitting.fit(
        model,
        MICRO,
        callbacks=[generation.keras.callbacks.ModelCheckpoint(path, save_weights_only=True)],
    )
    other = fitting.linear(generation)
    other.load_weights(path)
    fitting.check_same(other.get_weights(), model.get_weights())


def test_tensorboard(generation, tmpdir):
    pytest.importorskip("tensorboard")  # TensorFlow 2.21 installs without it
    model, _ = fitting.compiled(generation, fitting.accumulating(adam(generation)), fitting.linear)
    fitting.fit(model, MICRO, callbacks=[generation.keras.callbacks.TensorBoard(str(tmpdir))])
    assert [names for _, _, names in os.walk(str(tmpdir)) if names]


# What counts updates


def test_adam_s_first_update_is_its_learning_rate(generation):
    """Its bias is corrected for one update, not for as many as there were micro-batches."""

    def make():
        return generation.optimizers.Adam(0.1, epsilon=1e-12)

    model, _ = fitting.compiled(generation, fitting.accumulating(make), fitting.linear)
    before = model.get_weights()
    x, y = fitting.data()
    fitting.fit(model, MICRO, (x[: fitting.BIG], y[: fitting.BIG]), epochs=1)
    for got, begun in zip(model.get_weights(), before):
        np.testing.assert_allclose(np.abs(got - begun), 0.1, rtol=1e-6, atol=1e-6)


def test_nothing_moves_before_the_cycle_is_full(generation):
    def make():
        return generation.optimizers.SGD(0.1, momentum=0.9)

    model, optimizer = fitting.compiled(generation, fitting.accumulating(make), fitting.linear)
    before = model.get_weights()
    x, y = fitting.data()
    for count in range(STEPS):
        for got, begun in zip(model.get_weights(), before):
            np.testing.assert_array_equal(got, begun)
        assert fitting.updates(optimizer) == 0
        model.train_on_batch(x[:MICRO], y[:MICRO])
    assert fitting.updates(optimizer) == 1
    assert not np.array_equal(model.get_weights()[0], before[0])


def has_averages(generation):
    return not fitting.is_optimizer_v2(generation)


@pytest.mark.parametrize(
    "generation",
    fitting.having(has_averages, "use_ema and weight_decay came with 2.11's base class"),
)
@pytest.mark.parametrize(
    "options",
    [
        dict(use_ema=True, ema_momentum=0.5),
        dict(use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=2),
        dict(weight_decay=0.1),
    ],
    ids=["ema", "ema-overwrites", "weight-decay"],
)
def test_moving_averages_and_weight_decay(generation, options):
    fitting.check_fit(generation, lambda: generation.optimizers.SGD(0.1, momentum=0.9, **options))


@pytest.mark.parametrize(
    "generation", fitting.having(has_averages, "use_ema came with 2.11's base class")
)
def test_moving_averages_on_replicas(generation):
    def make():
        return generation.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.5)

    fitting.check_fit(generation, make, fitting.linear, replicated=True)
