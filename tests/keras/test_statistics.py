"""Statistics: the last update's statistics in fit's logs."""

from __future__ import absolute_import, division, print_function

import numpy as np
import pytest

import gradaccum_compat as ga
from support import fitting

NAMES = ["clip_factor", "gradient_norm", "micro_batches", "noise_scale", "weight"]
X, Y = fitting.data(16)


def logs_of_batches(generation):
    """A callback that keeps what a callback behind Statistics gets after each batch."""

    class Logs(generation.keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            self.of_batches = []

        def on_train_batch_end(self, batch, logs=None):
            self.of_batches.append({name: logs[name] for name in NAMES if name in logs})

    return Logs()


def trained(generation, callbacks, **options):
    make = fitting.accumulating(
        lambda: generation.optimizers.SGD(0.1), steps=2, statistics=True, **options
    )
    model, _ = fitting.compiled(generation, make, fitting.linear)
    history = model.fit(X, Y, 4, shuffle=False, verbose=0, callbacks=callbacks)
    return model, history.history


def test_history_has_the_last_update_s(generation):
    model, history = trained(generation, [ga.keras.Statistics()])
    last = model.optimizer.accumulator.statistics()
    assert sorted(set(history) - {"loss"}) == NAMES
    for name in NAMES:
        np.testing.assert_allclose(history[name], [float(fitting.number(last[name]))])
    assert history["micro_batches"] == [2]


def test_each_batch_has_them_from_the_first_update_on(generation):
    logs = logs_of_batches(generation)
    _, history = trained(generation, [ga.keras.Statistics(), logs], clip_norm=0.5)
    assert [sorted(each) for each in logs.of_batches] == [[], NAMES, NAMES, NAMES]
    assert logs.of_batches[1] == logs.of_batches[2] != logs.of_batches[3]
    norms = [logs.of_batches[number]["gradient_norm"] for number in (1, 3)]
    factors = [logs.of_batches[number]["clip_factor"] for number in (1, 3)]
    np.testing.assert_allclose(factors, np.minimum(1, 0.5 / np.array(norms)), rtol=1e-6)
    assert history["gradient_norm"] == norms[1:]


def test_an_optimizer_that_keeps_none_is_refused(generation):
    make = fitting.accumulating(lambda: generation.optimizers.SGD(0.1))
    model, _ = fitting.compiled(generation, make, fitting.linear)
    with pytest.raises(ga.errors.OptionError, match="statistics=True"):
        model.fit(X, Y, verbose=0, callbacks=[ga.keras.Statistics()])
