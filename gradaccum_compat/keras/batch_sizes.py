"""BatchSizes: the sizes of fit's batches, counted outside, for a Keras that ExactCycles cannot
follow."""

from __future__ import absolute_import, division, print_function

import numbers

import tensorflow as tf

from gradaccum_compat import errors
from gradaccum_compat.backends.keras_features import FIT_HAS_A_STEP
from gradaccum_compat.keras.callback import Callback

_LEFT_OUT = errors.OptionError(
    "BatchSizes is the optimizer's weight and one of fit()'s callbacks.",
    "a training without it among the callbacks",
    "Pass the same object to both: ga.wrap_optimizer(..., weight=sizes) and"
    " model.fit(..., callbacks=[sizes]).",
)


class BatchSizes(Callback):
    """Weighs each micro-batch by its examples, so that a short last one is exact.

    For TensorFlow before 2.2 and for TF 1 graphs; elsewhere ExactCycles needs no sizes. Keras
    averages over a batch and does not tell the optimizer its size. If all batches weigh alike, the
    examples of a short batch weigh too much. Hand this object to the optimizer and to fit().

    Example:
        >>> sizes = ga.keras.BatchSizes(examples=len(x), batch_size=8)
        >>> optimizer = ga.wrap_optimizer(tf.keras.optimizers.Adam(), steps=4, weight=sizes)
        >>> model.compile(optimizer, loss="mse")
        >>> model.fit(x, y, batch_size=8, callbacks=[sizes])

    Args:
        examples: the number of examples of an epoch.
        batch_size: the size of each batch but the last, which has the rest.

    Raises:
        OptionError: if one of the two is no positive integer; when training begins, if the model
            has steps_per_execution > 1; at a batch that the examples do not fill.
    """

    def __init__(self, examples, batch_size):
        super(BatchSizes, self).__init__()
        for name, value in (("examples", examples), ("batch_size", batch_size)):
            if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
                raise errors.OptionError(
                    "{} must be a positive integer.".format(name),
                    repr(value),
                    "Pass len(x), and fit()'s batch_size.",
                )
        self._examples, self._batch_size = int(examples), int(batch_size)
        # Not a number outside of a training with this callback, which XLA passes on to the weights:
        # it drops the check below.
        self._size = tf.compat.v1.Variable(
            float("nan"), trainable=False, use_resource=True, name="batch_size"
        )
        self._trains = False

    def __call__(self):
        """The weight of the micro-batch at hand."""
        # From 2.2 on, Keras builds its training step after on_train_begin.
        if FIT_HAS_A_STEP and not self._trains:
            raise _LEFT_OUT
        size = tf.identity(self._size)
        if tf.executing_eagerly():
            return size
        said = tf.debugging.check_numerics(size, str(_LEFT_OUT))
        with tf.control_dependencies([said]):
            return tf.identity(size)

    def on_train_begin(self, logs=None):
        at_once = getattr(
            self.model, "steps_per_execution", getattr(self.model, "_steps_per_execution", 1)
        )
        if int(tf.keras.backend.get_value(at_once) if tf.is_tensor(at_once) else at_once or 1) > 1:
            raise errors.OptionError(
                "BatchSizes counts batches as fit() begins them, one by one.",
                "a model with steps_per_execution > 1",
                "Use ga.keras.ExactCycles, or compile it with steps_per_execution=1.",
            )
        self._trains = True

    def on_train_end(self, logs=None):
        self._trains = False
        tf.keras.backend.set_value(self._size, float("nan"))

    def on_train_batch_begin(self, batch, logs=None):
        size = min(self._batch_size, self._examples - batch * self._batch_size)
        if size < 1:
            raise errors.OptionError(
                "An epoch has as many batches as its examples fill.",
                "batch {} of {} examples in batches of {}".format(
                    batch, self._examples, self._batch_size
                ),
                "Pass the examples of one epoch, and fit()'s batch_size.",
            )
        tf.keras.backend.set_value(self._size, float(size))
