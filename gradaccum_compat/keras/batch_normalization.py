"""BatchNormalization under accumulation: what it sees, said in words, and a layer whose statistics
are the cycle's."""

from __future__ import absolute_import, division, print_function

import warnings

import tensorflow as tf

from gradaccum_compat import errors
from gradaccum_compat.backends.keras_features import FIT_HAS_A_STEP, IS_KERAS_3
from gradaccum_compat.core import _arguments


def check_batch_normalization(model):
    """Warns of layers that normalise each micro-batch by itself, which the big batch would not do.

    Example:
        >>> layers = ga.keras.check_batch_normalization(model)

    Args:
        model: a Keras model.

    Returns:
        The layers, a list: BatchNormalization that is trained, in the model and the models in it.
    """
    layers = [each for each in _layers(model) if _is_batch_normalization(each) and each.trainable]
    other = [each for each in layers if not isinstance(each, CycleBatchNormalization)]
    if other:
        warnings.warn(
            "gradaccum_compat: {} (and {} more) sees micro-batches: it normalises by the mean and"
            " variance of each, and its moving averages change once per micro-batch. The result is"
            " not the big batch's. Freeze it, normalise in another way (LayerNormalization,"
            " GroupNormalization), or use ga.keras.CycleBatchNormalization, whose moving averages"
            " are the big batch's.".format(other[0].name, len(other) - 1)
        )
    return layers


def _layers(model):
    for layer in model.layers:
        yield layer
        for nested in (_layers(layer) if hasattr(layer, "layers") else ()):
            yield nested


def _is_batch_normalization(layer):
    return any(each.__name__ == "BatchNormalization" for each in type(layer).__mro__)


def cycle_layers(model):
    """The layers of a model whose statistics are the cycle's."""
    return [each for each in _layers(model) if isinstance(each, CycleBatchNormalization)]


class CycleBatchNormalization(tf.keras.layers.BatchNormalization):
    """BatchNormalization whose moving averages change once per cycle, by the mean and variance of
    all its examples.

    The moving averages are exact: for the same inputs to the layer, they are after each cycle those
    that the plain layer has after the big batch, to float32 rounding, with uneven micro-batches
    too.
    Outputs and gradients are not: in training each micro-batch is still normalised by its own mean
    and variance. No layer can give the big batch's without seeing the big batch at once.

    On several replicas each layer sees its own examples, and the moving averages are the mean over
    the replicas, as the plain layer's are.

    Example:
        >>> model.add(ga.keras.CycleBatchNormalization(steps=4))

    Args:
        steps: micro-batches of a cycle, as for wrap_optimizer.
        **options: the options of BatchNormalization.

    Raises:
        OptionError: before TensorFlow 2.2; or steps that are no positive number.
    """

    def __init__(self, steps=4, **options):
        if not FIT_HAS_A_STEP:
            raise errors.OptionError(
                "CycleBatchNormalization needs layers that are called in the training step.",
                "TensorFlow older than 2.2",
                "Use another normalisation, or freeze the BatchNormalization layers.",
            )
        super(CycleBatchNormalization, self).__init__(**options)
        self.steps = _arguments.steps(steps)

    def build(self, input_shape):
        super(CycleBatchNormalization, self).build(input_shape)
        shape = tuple(int(each) for each in self.moving_mean.shape)
        self.cycle_count, self.cycle_micro_batches = [
            self._cycle_weight(name, ()) for name in ("cycle_count", "cycle_micro_batches")
        ]
        self.cycle_mean, self.cycle_squares = [
            self._cycle_weight(name, shape) for name in ("cycle_mean", "cycle_squares")
        ]

    def _cycle_weight(self, name, shape):
        return self.add_weight(
            name=name,
            shape=shape,
            dtype="float32",
            initializer="zeros",
            trainable=False,
            **_OF_EACH_REPLICA
        )

    def call(self, inputs, training=None, **kwargs):
        momentum, self.momentum = (
            self.momentum,
            1.0,
        )  # at which the plain layer's moving averages stay where they are
        try:
            outputs = super(CycleBatchNormalization, self).call(inputs, training=training, **kwargs)
        finally:
            self.momentum = momentum
        if self.trainable and isinstance(training, (bool, int)) and training:
            self._collect(tf.cast(inputs, tf.float32))
        return outputs

    def _collect(self, inputs):
        """Adds a micro-batch to the cycle's mean and squared deviations (Chan et al. 1979), and
        ends a full cycle."""
        axis = self.axis if isinstance(self.axis, int) else self.axis[0]
        axes = [each for each in range(len(inputs.shape)) if each != axis % len(inputs.shape)]
        mean, variance = tf.nn.moments(inputs, axes)
        count = tf.cast(tf.size(inputs) / tf.size(mean), tf.float32)
        before, total = _value(self.cycle_count), _value(self.cycle_count) + count
        away = mean - _value(self.cycle_mean)
        squares = (
            _value(self.cycle_squares) + variance * count + tf.square(away) * before * count / total
        )
        self._settle(
            total,
            _value(self.cycle_mean) + away * count / total,
            squares,
            _value(self.cycle_micro_batches) + 1.0,
            least=float(self.steps),
        )

    def end_cycle(self):
        """Updates the averages by what has come in, if anything has: where a cycle ends early."""
        self._settle(
            *[
                _value(each)
                for each in (
                    self.cycle_count,
                    self.cycle_mean,
                    self.cycle_squares,
                    self.cycle_micro_batches,
                )
            ],
            least=1.0
        )

    def _settle(self, count, mean, squares, micro_batches, least):
        ends = micro_batches >= least
        # TensorFlow's fused kernel, where Keras 2 uses it, estimates the variance of the
        # population.
        variance = squares / tf.maximum(
            count - (1.0 if getattr(self, "fused", False) else 0.0), 1.0
        )
        for variable, value in ((self.moving_mean, mean), (self.moving_variance, variance)):
            old = _value(variable)
            new = old * self.momentum + tf.cast(value, old.dtype) * (1.0 - self.momentum)
            variable.assign(tf.compat.v2.where(ends, new, old))
        for variable, value in (
            (self.cycle_count, count),
            (self.cycle_mean, mean),
            (self.cycle_squares, squares),
            (self.cycle_micro_batches, micro_batches),
        ):
            variable.assign(tf.compat.v2.where(ends, tf.zeros_like(value), value))

    def get_config(self):
        return dict(super(CycleBatchNormalization, self).get_config(), steps=self.steps)


#: As for the plain layer's moving averages: one for each replica, whose mean is read outside. Keras
#: 3 has one for all replicas, the mean of the values that they assign. Under mixed precision they
#: are read in float32, since half precision would round small changes away.
_OF_EACH_REPLICA = (
    dict(aggregation="mean", autocast=False)
    if IS_KERAS_3
    else dict(
        aggregation=tf.VariableAggregation.MEAN,
        synchronization=tf.VariableSynchronization.ON_READ,
        experimental_autocast=False,
    )
)


def _value(variable):
    return tf.convert_to_tensor(variable)
