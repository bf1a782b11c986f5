"""BatchNormalization under accumulation: what it sees, said in words, and a layer whose statistics are the cycle's."""

from __future__ import absolute_import, division, print_function

import warnings

import tensorflow as tf

from gradaccum_compat import _options, errors

# The layer's weights below are made and read as Keras does from tf.keras.Model.train_step on, which came with TF 2.2.
_SERVED = hasattr(tf.keras.Model, "train_step")


def check_batch_normalization(model):
    """Warns of layers that normalise each micro-batch by itself, which the big batch would not do.

    Args:
        model: a Keras model.

    Returns:
        The layers, a list: BatchNormalization that is trained, in the model and the models in it.
    """
    layers = [each for each in _layers(model) if _is_batch_normalization(each) and each.trainable]
    other = [each for each in layers if not isinstance(each, CycleBatchNormalization)]
    if other:
        warnings.warn(
            "gradaccum_compat: {} (and {} more) sees micro-batches: it normalises by the mean and variance of each, and "
            "its moving averages move once per micro-batch. The result is not the big batch's. Freeze it, normalise in "
            "another way (LayerNormalization, GroupNormalization), or use ga.keras.CycleBatchNormalization, whose moving "
            "averages are the big batch's.".format(other[0].name, len(other) - 1))
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
    """BatchNormalization whose moving averages move once per cycle, by the mean and variance of all its examples.

    What it equals: for the same inputs to the layer, the moving averages after each cycle are those that the
    plain layer has after the big batch, to float32 rounding, also with uneven micro-batches.
    What it does not: in training each micro-batch is still normalised by its own mean and variance, so that outputs
    and gradients are not the big batch's. No layer can give those without seeing the big batch at once.

    Under several replicas each collects what it sees, and the moving averages are their mean, as the plain layer's are.

    Args:
        steps: micro-batches of a cycle, as for wrap_optimizer.
        **options: BatchNormalization's.
    """

    def __init__(self, steps=4, **options):
        if not _SERVED:
            raise errors.OptionError(
                "CycleBatchNormalization needs layers that are called in the training step.", "TensorFlow older than 2.2",
                "Use another normalisation, or freeze the BatchNormalization layers.")
        super(CycleBatchNormalization, self).__init__(**options)
        self.steps = _options.steps(steps)

    def build(self, input_shape):
        super(CycleBatchNormalization, self).build(input_shape)
        shape = tuple(int(each) for each in self.moving_mean.shape)
        self.cycle_count, self.cycle_micro_batches = [
            self._cycle_weight(name, ()) for name in ("cycle_count", "cycle_micro_batches")]
        self.cycle_mean, self.cycle_squares = [
            self._cycle_weight(name, shape) for name in ("cycle_mean", "cycle_squares")]

    def _cycle_weight(self, name, shape):
        return self.add_weight(
            name=name, shape=shape, dtype="float32", initializer="zeros", trainable=False, **_OF_EACH_REPLICA)

    def call(self, inputs, training=None, **kwargs):
        momentum, self.momentum = self.momentum, 1.0  # at which the plain layer's moving averages stay where they are
        try:
            outputs = super(CycleBatchNormalization, self).call(inputs, training=training, **kwargs)
        finally:
            self.momentum = momentum
        if self.trainable and isinstance(training, (bool, int)) and training:
            self._collect(tf.cast(inputs, tf.float32))
        return outputs

    def _collect(self, inputs):
        """Adds a micro-batch to the cycle's mean and squared deviations (Chan et al. 1979), and ends a full cycle."""
        axis = self.axis if isinstance(self.axis, int) else self.axis[0]
        axes = [each for each in range(len(inputs.shape)) if each != axis % len(inputs.shape)]
        mean, variance = tf.nn.moments(inputs, axes)
        count = tf.cast(tf.size(inputs) / tf.size(mean), tf.float32)
        before, total = _value(self.cycle_count), _value(self.cycle_count) + count
        away = mean - _value(self.cycle_mean)
        squares = _value(self.cycle_squares) + variance * count + tf.square(away) * before * count / total
        self._settle(total, _value(self.cycle_mean) + away * count / total, squares,
                     _value(self.cycle_micro_batches) + 1.0, least=float(self.steps))

    def end_cycle(self):
        """Moves the averages by what has come in, if anything has: where a cycle ends early."""
        self._settle(*[_value(each) for each in (
            self.cycle_count, self.cycle_mean, self.cycle_squares, self.cycle_micro_batches)], least=1.0)

    def _settle(self, count, mean, squares, micro_batches, least):
        ends = micro_batches >= least
        # TensorFlow's fused kernel, where Keras 2 uses it, estimates the variance of the population.
        variance = squares / tf.maximum(count - (1.0 if getattr(self, "fused", False) else 0.0), 1.0)
        for variable, value in ((self.moving_mean, mean), (self.moving_variance, variance)):
            old = _value(variable)
            new = old * self.momentum + tf.cast(value, old.dtype) * (1.0 - self.momentum)
            variable.assign(tf.compat.v2.where(ends, new, old))
        for variable, value in ((self.cycle_count, count), (self.cycle_mean, mean), (self.cycle_squares, squares),
                                (self.cycle_micro_batches, micro_batches)):
            variable.assign(tf.compat.v2.where(ends, tf.zeros_like(value), value))

    def get_config(self):
        return dict(super(CycleBatchNormalization, self).get_config(), steps=self.steps)


#: As the plain layer's moving averages are: one for each replica, whose mean is what is read outside; with Keras 3,
#: which has one for all, the mean of what the replicas assign.
_OF_EACH_REPLICA = dict(aggregation="mean") if hasattr(tf.keras, "Variable") else dict(
    aggregation=tf.VariableAggregation.MEAN, synchronization=tf.VariableSynchronization.ON_READ)


def _value(variable):
    return tf.convert_to_tensor(variable)
