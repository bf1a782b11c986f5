"""FlushPartialCycle: an update at the end of each epoch, where the epoch ends in mid-cycle."""

from __future__ import absolute_import, division, print_function

from gradaccum_compat.keras.batch_normalization import cycle_layers
from gradaccum_compat.keras.callback import Callback, compiled


class FlushPartialCycle(Callback):
    """Applies a partial cycle at the end of each epoch.

    Without it the cycle goes on into the next epoch. Put it before callbacks that save the model.
    ExactCycles does this too, and weighs the micro-batches.

    Example:
        >>> model.fit(data, epochs=10, callbacks=[ga.keras.FlushPartialCycle()])

    Raises:
        OptimizerError: when training begins, if the model's optimizer does not accumulate.
    """

    def __init__(self):
        super(FlushPartialCycle, self).__init__()
        self._flushed, self._apply = None, None

    def on_train_begin(self, logs=None):
        self.wrapped_optimizer()

    def on_epoch_end(self, epoch, logs=None):
        self.flush()

    def flush(self):
        """Applies what has come in since the last update, if anything has."""
        accumulator = self.wrapped_optimizer().accumulator
        if self._flushed is not accumulator:
            self._flushed, self._apply = accumulator, compiled(accumulator.apply)
        self._apply()
        for layer in cycle_layers(self.model):
            layer.end_cycle()
