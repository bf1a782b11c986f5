"""For models that are trained by fit(): callbacks that go with a wrapped optimizer, and BatchNormalization."""

from __future__ import absolute_import, division, print_function

import numbers

import tensorflow as tf

from gradaccum_compat import errors
from gradaccum_compat._batch_normalization import (  # noqa: F401, two of them public names of this module
    CycleBatchNormalization, check_batch_normalization, cycle_layers)
from gradaccum_compat.backends import BACKEND
from gradaccum_compat.optimizers import loss_scale, wrapped


class _Callback(tf.keras.callbacks.Callback):
    """A callback of tf.keras that tf_keras takes too, which asks these where Keras 3 does not."""

    def _implements_train_batch_hooks(self):
        return True

    def _implements_test_batch_hooks(self):
        return False

    def _implements_predict_batch_hooks(self):
        return False


class FlushPartialCycle(_Callback):
    """Makes an update of what has come in, where an epoch ends in mid-cycle.

    Without it the cycle goes on into the next epoch. Put it before callbacks that save the model.

    Example:
        >>> model.fit(data, epochs=10, callbacks=[ga.keras.FlushPartialCycle()])   # doctest: +SKIP
    """

    def __init__(self):
        super(FlushPartialCycle, self).__init__()
        self._apply = None

    def on_epoch_end(self, epoch, logs=None):
        accumulator = _accumulator_of(self.model)
        if self._apply is None:
            self._apply = _callable(accumulator.apply)
        self._apply()
        for layer in cycle_layers(self.model):
            layer.end_cycle()


class BatchSizes(_Callback):
    """Weighs each micro-batch by its examples, so that a short last one is exact.

    Keras averages within a batch and does not say how large it is. Where all batches weigh alike, those examples weigh
    too much that are in a short one. This tells the optimizer the sizes: hand it to both.

    Example:
        >>> sizes = ga.keras.BatchSizes(examples=len(x), batch_size=8)                       # doctest: +SKIP
        >>> optimizer = ga.wrap_optimizer(tf.keras.optimizers.Adam(), steps=4, weight=sizes)  # doctest: +SKIP
        >>> model.fit(x, y, batch_size=8, callbacks=[sizes])                                 # doctest: +SKIP

    Args:
        examples: how many there are in an epoch.
        batch_size: of each batch but the last, which has the rest.
    """

    def __init__(self, examples, batch_size):
        super(BatchSizes, self).__init__()
        for name, value in (("examples", examples), ("batch_size", batch_size)):
            if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
                raise errors.OptionError(
                    "{} must be a positive integer.".format(name), repr(value), "Pass len(x), and fit()'s batch_size.")
        self._examples, self._batch_size = int(examples), int(batch_size)
        # Not a number until fit() says which batch it is: a fit() without this callback fails instead of guessing.
        self._size = tf.compat.v1.Variable(float("nan"), trainable=False, use_resource=True, name="batch_size")
        self._set = None

    def __call__(self):
        """The weight of the micro-batch at hand."""
        return tf.identity(self._size)

    def on_train_begin(self, logs=None):
        at_once = getattr(self.model, "steps_per_execution", getattr(self.model, "_steps_per_execution", 1))
        if int(tf.keras.backend.get_value(at_once) if tf.is_tensor(at_once) else at_once or 1) > 1:
            raise errors.OptionError(
                "BatchSizes counts batches as fit() begins them, one by one.", "a model with steps_per_execution > 1",
                "Compile it with steps_per_execution=1, or weigh the micro-batches in a loop of your own.")

    def on_train_batch_begin(self, batch, logs=None):
        size = min(self._batch_size, self._examples - batch * self._batch_size)
        if size < 1:
            raise errors.OptionError(
                "An epoch has as many batches as its examples fill.",
                "batch {} of {} examples in batches of {}".format(batch, self._examples, self._batch_size),
                "Pass the examples of one epoch, and fit()'s batch_size.")
        tf.keras.backend.set_value(self._size, float(size))


def _accumulator_of(model):
    optimizer = loss_scale.inner(model.optimizer)
    if not wrapped.is_wrapped(optimizer):
        raise errors.OptimizerError(
            "FlushPartialCycle goes with an optimizer that accumulates.", type(optimizer).__name__,
            "Compile the model with ga.wrap_optimizer(optimizer, steps=...).")
    return optimizer.accumulator


def _callable(call):
    """A function that makes the accumulator's call, each time it is called."""
    if BACKEND.outermost_graph() is None:
        # Compiled, since in eager code a MirroredStrategy takes up to a second for each way to its replicas.
        return tf.function(call, autograph=False)
    result = call()
    return lambda: tf.compat.v1.keras.backend.get_session().run(result)
