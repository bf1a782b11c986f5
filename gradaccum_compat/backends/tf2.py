"""TF 2.0 to the newest, eager, in tf.function, and in graphs of tf.compat.v1."""

from __future__ import absolute_import, division, print_function

import tensorflow as tf

from gradaccum_compat.backends import base

# Strategy.run was experimental_run_v2 before TF 2.2.
_RUN = "run" if hasattr(tf.distribute.Strategy, "run") else "experimental_run_v2"


class TF2Backend(base.Backend):
    """tf.Variable, tf.function, Strategy.run."""

    name = "tf2"

    def state_variable(self, shape, dtype, name, aggregation):
        options = self._variable_options(shape, dtype, name, aggregation)
        if self.outermost_graph() is None:
            return self._restoring_its_share(tf.Variable(**options))
        # tf.Variable would put each replica's component into the graph's collections beside the whole: a Saver
        # would restore both, in any order.
        return self._restoring_its_share(tf.compat.v1.Variable(use_resource=True, **options))

    def local(self, variable):
        # DistributedValues got its underscore in TF 2.2.
        for accessor in ("_get", "get"):
            if hasattr(variable, accessor):
                return getattr(variable, accessor)()
        return variable

    def run(self, strategy, function, args=()):
        return getattr(strategy, _RUN)(function, args=args)


BACKEND = TF2Backend()
