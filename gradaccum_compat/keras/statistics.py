"""Statistics: what an accumulator knows of its last update, in fit's logs."""

from __future__ import absolute_import, division, print_function

import math

from gradaccum_compat import errors
from gradaccum_compat.keras.callback import Callback, compiled


class Statistics(Callback):
    """Puts the statistics of the last update into fit's logs.

    They are what `accumulator.statistics()` returns: gradient_norm, clip_factor, weight,
    micro_batches and noise_scale. From there the progress bar (from TensorFlow 2.2 on, which shows
    the mean over an epoch, as of any log that is no metric), History and TensorBoard have them. Put
    it before callbacks that read the logs. Each batch reads a few scalars from the device.

    Example:
        >>> optimizer = ga.wrap_optimizer(tf.keras.optimizers.Adam(), steps=4, statistics=True)
        >>> model.compile(optimizer, loss="mse")
        >>> history = model.fit(x, y, callbacks=[ga.keras.Statistics()])
        >>> history.history["gradient_norm"]

    Raises:
        OptimizerError: when training begins, if the model's optimizer does not accumulate.
        OptionError: when training begins, if it was wrapped without statistics=True.
    """

    # Keras 2 hands other callbacks a copy of the logs.
    _supports_tf_logs = True

    def __init__(self):
        super(Statistics, self).__init__()
        self._read_from, self._read = None, None

    def on_train_begin(self, logs=None):
        optimizer = self.wrapped_optimizer()
        if not optimizer._accumulation.options.get("statistics"):
            raise errors.OptionError(
                "Statistics shows what an optimizer keeps that was wrapped with statistics=True.",
                "an optimizer that keeps none",
                "Pass statistics=True to ga.wrap_optimizer.",
            )

    def on_train_batch_end(self, batch, logs=None):
        # The progress bar takes means, and one NaN would stay in them.
        self._add(logs, _is_finite)

    def on_epoch_end(self, epoch, logs=None):
        self._add(logs, lambda value: True)

    def _add(self, logs, wanted):
        accumulator = self.wrapped_optimizer().accumulator
        if self._read_from is not accumulator:
            self._read_from = accumulator
            self._read = compiled(lambda: (accumulator.update_count, accumulator.statistics()))
        updates, statistics = self._read()
        if logs is None or int(updates) == 0:
            return
        values = {name: float(value) for name, value in statistics._asdict().items()}
        logs.update((name, value) for name, value in values.items() if wanted(value))


def _is_finite(value):
    return not math.isnan(value) and not math.isinf(value)
