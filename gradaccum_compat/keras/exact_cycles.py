"""ExactCycles: with this callback, fit in micro-batches ends with the weights of the big batch."""

from __future__ import absolute_import, division, print_function

import tensorflow as tf

from gradaccum_compat import _detect, errors
from gradaccum_compat.keras.flush_partial_cycle import FlushPartialCycle
from gradaccum_compat.keras.loss_weight import LossWeight


class ExactCycles(FlushPartialCycle):
    """Weighs each micro-batch by what its loss is a mean over, and applies partial cycles.

    The weight is the number that Keras divides the micro-batch's loss by: its examples, with a mask
    its unmasked tokens where this Keras divides by those, with sample weights their sum where the
    loss divides by that. A partial cycle is applied at the end of an epoch, before the validation.
    Put it before callbacks that save the model.

    One weight per micro-batch is exact for one loss, and for several losses that are means over
    numbers in proportion, such as the same examples or the same unmasked tokens. Losses that are
    means over different numbers warn once, and each micro-batch weighs its examples.

    Example:
        >>> model.compile(ga.wrap_optimizer(tf.keras.optimizers.Adam(), steps=4), loss="mse")
        >>> model.fit(x, y, batch_size=8, callbacks=[ga.keras.ExactCycles()])

    Raises:
        OptimizerError: when training begins, if the model's optimizer does not accumulate.
        OptionError: when training begins, if this Keras does not say what a loss is a mean over
            (before TensorFlow 2.2, and in a TF 1 graph); if the optimizer was wrapped with a
            weight, or with a loss_reduction that is not what Keras hands over. When the training
            step is built, if the loss is a sum and loss_reduction is not "none".
    """

    def __init__(self):
        super(ExactCycles, self).__init__()
        self._weight = None

    def on_train_begin(self, logs=None):
        accumulation = self.wrapped_optimizer()._accumulation
        _check_keras(self.model)
        interrupted = accumulation.weight
        if isinstance(interrupted, LossWeight):
            interrupted.end()
        _check_options(accumulation)
        if self._weight is None or not self._weight.serves(self.model, accumulation):
            self._weight = LossWeight(self.model, accumulation)
        self._weight.begin()

    def on_test_begin(self, logs=None):
        # The validation in fit() comes before on_epoch_end, and after the big batch's last update.
        if self._weight is not None and self._weight.is_on:
            self.flush()

    def on_train_end(self, logs=None):
        self._weight.end()


def _check_keras(model):
    # Keras computes losses in a method that can be followed from TensorFlow 2.2 on, outside of TF 1
    # graphs.
    if not hasattr(model, "train_step") or not tf.executing_eagerly():
        raise errors.OptionError(
            "ExactCycles learns from Keras's training step what a loss is a mean over.",
            "TensorFlow {}{}".format(
                _detect.backend().tensorflow_version,
                "" if tf.executing_eagerly() else " without eager execution",
            ),
            "Pass callbacks=[sizes, ga.keras.FlushPartialCycle()] to fit(), with"
            " sizes = ga.keras.BatchSizes(examples, batch_size), and"
            " ga.wrap_optimizer(..., weight=sizes).",
        )


def _check_options(accumulation):
    weight = accumulation.weight
    if callable(weight) or tf.is_tensor(weight) or weight != 1:
        raise errors.OptionError(
            "ExactCycles weighs the micro-batches.",
            "an optimizer that was wrapped with weight={!r}".format(weight),
            "Leave weight out of ga.wrap_optimizer, or leave ExactCycles out and pass"
            " ga.keras.FlushPartialCycle().",
        )
    reduction = accumulation.options["loss_reduction"]
    alone = tf.distribute.get_strategy().num_replicas_in_sync == 1
    if reduction not in ("global_mean", "none") and not (reduction == "mean" and alone):
        raise errors.OptionError(
            "Keras hands a wrapped optimizer gradients of a loss that is divided by the number of"
            " replicas.",
            "an optimizer that was wrapped with loss_reduction={!r}".format(reduction),
            "Leave loss_reduction out of ga.wrap_optimizer.",
        )
