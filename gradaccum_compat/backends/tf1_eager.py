"""TF 1.14 and 1.15, eager or in graphs."""

from __future__ import absolute_import, division, print_function

import tensorflow as tf

from gradaccum_compat.backends import base


class TF1Backend(base.Backend):
    """Variables as tf.contrib.eager makes them, experimental_run_v2, explicit reduction."""

    name = "tf1"

    def state_variable(self, shape, dtype, name, aggregation):
        # What tf.contrib.eager.Variable is, without the seconds that importing tf.contrib takes.
        return self._restoring_its_share(tf.compat.v1.Variable(
            use_resource=True, **self._variable_options(shape, dtype, name, aggregation)))

    def local(self, variable):
        return variable.get() if hasattr(variable, "get") else variable

    def run(self, strategy, function, args=()):
        return strategy.experimental_run_v2(function, args=args)


BACKEND = TF1Backend()
