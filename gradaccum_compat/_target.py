"""What an accumulator was made for: the optimizer and the variables.

Neither is trackable by tf.train.Checkpoint here: the model and the optimizer are saved by themselves.
"""

from __future__ import absolute_import, division, print_function

import tensorflow as tf

from gradaccum_compat import _checks, optimizers


class Target(object):
    """What is updated. The variables may be a callable, which is asked when they are needed first.

    Attributes:
        variables: as they were given, for the optimizer.
        raw: TensorFlow's own, where those are Keras 3's.
        shapes: a tf.TensorShape for each.
        dtypes: a tf.DType for each, never a reference's.
    """

    def __init__(self, optimizer, variables):
        self.optimizer = optimizer
        self._given = variables
        self._optimizer_ready = False
        self.variables = None
        if not callable(variables):
            self._take(variables)

    def ask(self):
        if self.variables is None:
            self._take(self._given())
        return self.variables

    def make_optimizer_state(self):
        """To be called outside of the replicas: Estimator's model functions are inside, and make it on the way out."""
        if not self._optimizer_ready:
            with tf.init_scope():
                optimizers.create_state(self.optimizer, self.variables)
            self._optimizer_ready = True

    def _take(self, variables):
        # Once, and not in every call: with 400 variables each of these lists takes a millisecond in eager code.
        self.variables = _checks.variables(variables)
        self.raw = [_checks.raw_variable(each) for each in self.variables]
        self.shapes = [tf.TensorShape(each.shape) for each in self.raw]
        self.dtypes = [tf.as_dtype(each.dtype).base_dtype for each in self.raw]
