"""Says once that fit's micro-batches are means over different numbers and weigh alike.

The optimizer asks while fit builds its training step, so that training costs nothing more. What
fit was given is read from its frame, by the public names of its arguments: an optimizer is told of
neither the model nor the data.
"""

from __future__ import absolute_import, division, print_function

import sys
import warnings

import tensorflow as tf

from gradaccum_compat.backends import BACKEND
from gradaccum_compat.backends.keras_features import FIT_HAS_A_STEP
from gradaccum_compat.keras import loss_divisor
from gradaccum_compat.wrap import loss_scale, wrapped

_MESSAGE = (
    "gradaccum_compat: {}, and each micro-batch weighs alike: the updates are not the big batch's."
    " {}"
)
_REMEDY = (
    "Add ga.keras.ExactCycles() to fit()'s callbacks."
    if FIT_HAS_A_STEP
    else (
        "Pass weight=sizes to ga.wrap_optimizer and callbacks=[sizes] to fit(), with sizes ="
        " ga.keras.BatchSizes(examples, batch_size)."
    )
)
#: The batch size of fit() where none is given.
_BATCH_SIZE = 32


def tell(accumulation):
    """Warns if a fit() is under way that an accumulation with equal weights makes inexact.

    Returns:
        Whether it did.
    """
    # The caller's: a frame in a variable of its own would keep all that its callers hold alive.
    caller = sys._getframe(1)
    if tf.distribute.in_cross_replica_context() or wrapped.replicas() == 1:
        return _tell(accumulation, [caller])
    # A replica may have a thread of its own. What is merged runs where fit() does.
    return BACKEND.merge(lambda: _tell(accumulation, [caller, sys._getframe(1)]))


def _tell(accumulation, frames):
    for model, frame in _methods_of_models(frames):
        if _accumulation_of(model) is accumulation:
            found = _unevenness(frame) or _masks(model, frame)
            if found:
                warnings.warn(_MESSAGE.format(found, _REMEDY))
                return True
    return False


def _methods_of_models(frames):
    """The methods of Keras models that the frames and their callers run."""
    for frame in frames:
        while frame is not None:
            # AutoGraph puts tf__ before a name.
            if frame.f_code.co_name in ("fit", "train_step", "tf__train_step"):
                if hasattr(frame.f_locals.get("self"), "optimizer"):
                    yield frame.f_locals["self"], frame
            frame = frame.f_back


def _accumulation_of(model):
    optimizer = loss_scale.inner(model.optimizer)
    return optimizer._accumulation if wrapped.is_wrapped(optimizer) else None


def _unevenness(frame):
    if frame.f_code.co_name != "fit":
        return None
    examples, size = _sizes(frame.f_locals.get("x"), frame.f_locals.get("batch_size"))
    if not examples or examples % size == 0:
        return None
    return "fit() ends an epoch of {} examples in batches of {} with one of {}".format(
        examples, size, examples % size
    )


def _sizes(x, batch_size):
    """The number of examples and the size of a batch, or (None, None) where they are unknown."""
    if isinstance(x, tf.compat.v2.data.Dataset):
        return _sizes_of_dataset(x)
    shapes = [getattr(each, "shape", None) for each in tf.nest.flatten(x)][:1]
    for shape in [tf.TensorShape(each) for each in shapes if each is not None]:
        if shape.ndims:
            return shape.as_list()[0], int(batch_size or _BATCH_SIZE)
    return None, None


def _sizes_of_dataset(dataset):
    # Before 2.3 a dataset does not know its cardinality; where one of the private names is gone,
    # nothing is said.
    while dataset is not None and not hasattr(dataset, "_batch_size"):
        dataset = getattr(dataset, "_input_dataset", None)
    source = getattr(dataset, "_input_dataset", None)
    if source is None or not hasattr(source, "cardinality"):
        return None, None
    with tf.init_scope():
        if not tf.executing_eagerly():
            return None, None
        examples, size = int(source.cardinality()), int(dataset._batch_size)
        drops = bool(getattr(dataset, "_drop_remainder", False))
    return (None, None) if drops or examples < 0 else (examples, size)


def _masks(model, frame):
    predictions = tf.nest.flatten(frame.f_locals.get("y_pred"))
    masked = any(getattr(each, "_keras_mask", None) is not None for each in predictions)
    if not masked or not loss_divisor.divides_by_unmasked(model):
        return None
    return "this Keras averages a loss over the unmasked predictions, whose number varies"
