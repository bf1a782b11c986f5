"""What Keras divides the losses of a micro-batch by, as its loss objects divide.

A Keras loss is called with the targets, the predictions and the sample weights. It computes a value
for each example or token, multiplies by the weights, adds up and divides. `watching` follows these
calls; a Divisor says what one of them has divided by.
"""

from __future__ import absolute_import, division, print_function

import collections
import sys
import threading

import tensorflow as tf

#: The number that a loss was divided by.
#:
#: count: a scalar tensor; None if the loss is no mean over what can be counted.
#: over: equal for divisors that are in proportion in every micro-batch; None if that is unknown.
#: is_sum: whether the loss was divided by nothing.
Divisor = collections.namedtuple("Divisor", ["count", "over", "is_sum"])

_EXAMPLES = "examples"
_MEANS = ("auto", "sum_over_batch_size", "mean", "mean_with_sample_weight")

_here = threading.local()


def begin():
    """Begins to collect the divisors of this thread's losses; returns what end() takes."""
    if not hasattr(_here, "collected"):
        _here.collected = []
    _here.collected.append([])
    return len(_here.collected)


def end(depth):
    """Returns the Divisors since the begin() that returned this depth."""
    # An exception may have kept inner collections from their end.
    found = [each for collected in _here.collected[depth - 1 :] for each in collected]
    del _here.collected[depth - 1 :]
    if _here.collected:
        _here.collected[-1].extend(found)
    return found


class Watch(object):
    """Follows the calls of all losses of one Keras, from on() to off().

    It stands in for `Loss.__call__`, which Keras calls from 2.2 to 3.15. Where a loss does not go
    through it, nothing is collected, and the micro-batch weighs its examples.
    """

    def __init__(self, keras):
        self._loss = keras.losses.Loss
        self._original = self._loss.__call__
        self._masks = _masks_that_divide(keras)
        self._times = 0

    @classmethod
    def of(cls, model):
        """The one Watch of a model's Keras."""
        keras = _keras_of(model)
        if keras not in _watches:
            _watches[keras] = cls(keras)
        return _watches[keras]

    def on(self):
        if not self._times:
            self._loss.__call__ = self._watched()
        self._times += 1

    def off(self):
        self._times -= 1
        if not self._times:
            self._loss.__call__ = self._original

    def _watched(self):
        original, noted = self._original, self._noted

        # Without control flow and try, since AutoGraph may convert it on the way to the loss.
        def __call__(self, y_true, y_pred, sample_weight=None):
            values = _values_of(self)
            result = original(self, y_true, y_pred, sample_weight)
            noted(self, values, y_pred, sample_weight)
            return result

        return __call__

    def _noted(self, loss, values, y_pred, sample_weight):
        loss.__dict__.pop("call", None)
        if values:
            divisor = _divisor(loss, values[-1], self._mask_of(values[-1], y_pred), sample_weight)
            _here.collected[-1].append(divisor)

    def _mask_of(self, values, y_pred):
        """The masks that this Keras divides by, as a list."""
        masks = [getattr(each, "_keras_mask", None) for each in (y_pred, values)]
        return [mask for mask, divides in zip(masks, self._masks) if divides and mask is not None]


_watches = {}


def _values_of(loss):
    """Returns a list that the next call of the loss puts its values into, before it reduces."""
    values = []
    if getattr(_here, "collected", None):
        loss.__dict__.pop("call", None)
        original = loss.call

        def call(y_true, y_pred):
            result = original(y_true, y_pred)
            values.append(result)
            return result

        loss.__dict__["call"] = call
    return values


def _divisor(loss, values, masks, sample_weight):
    if loss.reduction not in _MEANS:
        return Divisor(None, None, is_sum=True)
    if values.shape.rank == 0:
        return Divisor(None, None, is_sum=False)
    if loss.reduction == "mean_with_sample_weight" and (sample_weight is not None or masks):
        return _sum_of_weights(values, masks, sample_weight)
    size = tf.size(values, out_type=tf.int64)
    fixed = values.shape[1:].is_fully_defined()
    if not masks:
        return Divisor(size, (_EXAMPLES,) if fixed else None, is_sum=False)
    mask = _as_one(masks)
    places = tf.maximum(tf.size(mask, out_type=tf.int64), 1)
    valid = tf.reduce_sum(tf.cast(tf.cast(mask, tf.bool), tf.int64))
    # A mask without the last axes of the values counts once for all values of a place.
    fixed = fixed or mask.shape.rank == values.shape.rank
    over = tuple(id(each) for each in masks) if fixed else None
    return Divisor(valid * (size // places), over, is_sum=False)


def _sum_of_weights(values, masks, sample_weight):
    """Keras adds up the sample weights times the mask, as they come or in the mask's shape."""
    weights = [tf.cast(each, tf.float32) for each in masks]
    if sample_weight is not None:
        weights.insert(0, tf.cast(tf.convert_to_tensor(sample_weight), tf.float32))
    over = tuple(id(each) for each in [sample_weight] + masks)
    return Divisor(tf.reduce_sum(_product(weights)), over, is_sum=False)


def _product(weights):
    product = weights[0]
    for each in weights[1:]:
        lower, higher = sorted((product, each), key=lambda tensor: tensor.shape.rank)
        for _ in range(higher.shape.rank - lower.shape.rank):
            lower = lower[..., tf.newaxis]
        product = lower * higher
    return product


def _as_one(masks):
    mask = tf.cast(masks[0], tf.bool)
    for each in masks[1:]:
        mask = tf.logical_and(mask, tf.cast(each, tf.bool))
    return mask


def divides_by_unmasked(model):
    """Whether the losses of a model's Keras are means over the unmasked predictions alone."""
    with tf.init_scope():
        return _masks_that_divide(_keras_of(model))[0]


def _keras_of(model):
    """There may be two in a process."""
    roots = [each.__module__.split(".")[0] for each in type(model).__mro__]
    return sys.modules["tf_keras"] if "tf_keras" in roots else tf.keras


def _masks_that_divide(keras):
    """Whether losses of this Keras are means over what is unmasked alone, by the mask of the
    predictions and by that of the values.

    Up to TensorFlow 2.10 a masked prediction is a value of zero, and counts. One eager call of a
    loss for each tells.
    """
    return [
        _loss_of_two(keras, on_predictions, on_values) != _loss_of_two(keras, False, False)
        for on_predictions, on_values in ((True, False), (False, True))
    ]


def _loss_of_two(keras, mask_predictions, mask_values):
    def masked(tensor, wanted):
        if wanted:
            tensor._keras_mask = tf.constant([[True, False]])
        return tensor

    class Ones(keras.losses.Loss):
        def call(self, y_true, y_pred):
            return masked(tf.ones([1, 2]), mask_values)

    loss = Ones()
    # Keras 2 asks for it under a strategy; compile() sets it too.
    loss._allow_sum_over_batch_size = True
    half = tf.constant([[1.0, 0.0]])
    return float(loss(half, masked(tf.ones([1, 2]), mask_predictions), sample_weight=half))
