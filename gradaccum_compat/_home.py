"""Home: the strategy and the graph that an accumulator was made in, and the ways between its replicas."""

from __future__ import absolute_import, division, print_function

import tensorflow as tf

from gradaccum_compat import errors
from gradaccum_compat.backends import BACKEND
from gradaccum_compat.backends.base import no_autograph


class Home(object):
    """Calls functions inside the replicas or across them, wherever the caller stands."""

    def __init__(self):
        self.strategy = tf.distribute.get_strategy()
        self._graph = BACKEND.outermost_graph()

    def check(self):
        """Raises ContextError where a call could only give wrong numbers or an obscure error."""
        if BACKEND.outermost_graph() is not self._graph:
            raise errors.ContextError(
                "An accumulator is used in the graph that it was made in.",
                "one made in {}, used in {}".format(_place(self._graph), _place(BACKEND.outermost_graph())),
                "Make it inside the same `with graph.as_default():` block, after enabling eager execution or not at all.")
        current = tf.distribute.get_strategy()
        if tf.distribute.has_strategy() and current is not self.strategy:
            raise errors.ContextError(
                "An accumulator is used under the strategy that it was made in.",
                "one made under {}, used under {}".format(type(self.strategy).__name__, type(current).__name__),
                "Make it inside `with strategy.scope():` of the strategy that runs the training step.")

    def on_replicas(self, function, *args):
        """Calls function on each replica: directly where the caller is inside one."""
        if self._inside_replica():
            return function(*args)
        return self._in_scope(lambda: BACKEND.run(self.strategy, no_autograph(function), args))

    def across_replicas(self, function, *args):
        """Calls function once for all replicas; inside a replica, args become per-replica values."""
        if self._inside_replica():
            return BACKEND.merge(function, args)
        return self._in_scope(lambda: function(*args))

    @property
    def replicas(self):
        return self.strategy.num_replicas_in_sync

    def one_of(self, value):
        """The value of one replica, where all replicas have the same."""
        return self.strategy.experimental_local_results(value)[0]

    def sum_over_replicas(self, value):
        """The sum of a scalar over all replicas."""
        return self.strategy.reduce(tf.distribute.ReduceOp.SUM, value, axis=None)

    def sum_gradients(self, gradients, variables):
        """The gradients' sums over all replicas, in one reduction, where their variables are."""
        if not tf.distribute.has_strategy():
            return gradients
        pairs = [pair for pair in zip(gradients, variables) if pair[0] is not None]
        reduced = iter(self.strategy.extended.batch_reduce_to(tf.distribute.ReduceOp.SUM, pairs))
        return [None if gradient is None else next(reduced) for gradient in gradients]

    def _inside_replica(self):
        return tf.distribute.get_replica_context() is not None and tf.distribute.get_strategy() is self.strategy

    def _in_scope(self, function):
        if tf.distribute.get_strategy() is self.strategy:
            return function()
        with self.strategy.scope():
            return function()


def _place(graph):
    return "eager execution" if graph is None else "a tf.Graph"
