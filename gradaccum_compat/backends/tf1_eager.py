"""TF 1.14 and 1.15, eager or in graphs."""

from __future__ import absolute_import, division, print_function

import tensorflow as tf

from gradaccum_compat.backends import base


class TF1Backend(base.Backend):
    """Variables as tf.contrib.eager makes them."""

    name = "tf1"

    def state_variable(self, shape, dtype, name, aggregation, values=None):
        # As tf.contrib.eager.Variable is, without the seconds that importing tf.contrib takes.
        return self._restoring_its_share(
            tf.compat.v1.Variable(
                use_resource=True, **self._variable_options(shape, dtype, name, aggregation, values)
            )
        )


BACKEND = TF1Backend()
