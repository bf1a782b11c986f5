"""What an accumulator was made for: the optimizer and the variables.

Neither is trackable by tf.train.Checkpoint here: the model and the optimizer are saved by themselves.
"""

from __future__ import absolute_import, division, print_function

import tensorflow as tf

from gradaccum_compat import _checks, optimizers


class Target(object):
    """What is updated. The variables may be a callable, which is asked when they are needed first."""

    def __init__(self, optimizer, variables):
        self.optimizer = optimizer
        self._given = variables
        self._optimizer_ready = False
        self.variables = None if callable(variables) else _checks.variables(variables)

    def ask(self):
        if self.variables is None:
            self.variables = _checks.variables(self._given())
        return self.variables

    def make_optimizer_state(self):
        """To be called outside of the replicas: Estimator's model functions are inside, and make it on the way out."""
        if not self._optimizer_ready:
            with tf.init_scope():
                optimizers.create_state(self.optimizer, self.variables)
            self._optimizer_ready = True

    @property
    def shapes(self):
        return [tf.TensorShape(each.shape) for each in self.variables]

    @property
    def dtypes(self):
        return [tf.as_dtype(_checks.raw_variable(each).dtype).base_dtype for each in self.variables]
