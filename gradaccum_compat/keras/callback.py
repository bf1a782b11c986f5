"""Callback: the base of this package's callbacks, which work on the model's wrapped optimizer."""

from __future__ import absolute_import, division, print_function

import tensorflow as tf

from gradaccum_compat import errors
from gradaccum_compat.backends import BACKEND
from gradaccum_compat.wrap import loss_scale, wrapped


class Callback(tf.keras.callbacks.Callback):
    """A callback for tf.keras, Keras 3 and tf_keras, which asks for the three methods below."""

    def _implements_train_batch_hooks(self):
        return True

    def _implements_test_batch_hooks(self):
        return False

    def _implements_predict_batch_hooks(self):
        return False

    def wrapped_optimizer(self):
        """Returns the model's optimizer that accumulates, from inside a loss-scale optimizer too.

        Raises:
            OptimizerError: the model's optimizer does not accumulate.
        """
        optimizer = loss_scale.inner(self.model.optimizer)
        if not wrapped.is_wrapped(optimizer):
            raise errors.OptimizerError(
                "{} goes with an optimizer that accumulates.".format(type(self).__name__),
                type(optimizer).__name__,
                "Compile the model with ga.wrap_optimizer(optimizer, steps=...).",
            )
        return optimizer


def compiled(call):
    """Returns a function that makes the accumulator's call each time it is called."""
    if BACKEND.outermost_graph() is None:
        # In eager code a MirroredStrategy takes up to a second for each way to its replicas. A
        # function of its own, since TensorFlow counts the traces of a method over all objects, and
        # warns of many.
        return tf.function(lambda: call(), autograph=False)
    result = call()
    return lambda: tf.compat.v1.keras.backend.get_session().run(result)
