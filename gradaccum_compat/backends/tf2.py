"""TF 2.0 to the newest, eager, in tf.function, and in graphs of tf.compat.v1."""

from __future__ import absolute_import, division, print_function

import tensorflow as tf

from gradaccum_compat.backends import base


class TF2Backend(base.Backend):
    """tf.Variable, and in a graph what a Saver restores."""

    name = "tf2"

    def state_variable(self, shape, dtype, name, aggregation, values=None):
        options = self._variable_options(shape, dtype, name, aggregation, values)
        if self.outermost_graph() is None:
            return self._restoring_its_share(tf.Variable(**options))
        # tf.Variable would put each replica's component into the graph's collections beside the
        # whole: a Saver would restore both, in any order.
        return self._restoring_its_share(tf.compat.v1.Variable(use_resource=True, **options))


BACKEND = TF2Backend()
