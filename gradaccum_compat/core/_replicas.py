"""The strategy and the graph that an accumulator was made in, and the ways between its replicas.

A call comes from inside a replica, from outside of the replicas in the strategy's scope, or from
outside of both. The methods here take each caller where the algorithm needs it.
"""

from __future__ import absolute_import, division, print_function

import tensorflow as tf

from gradaccum_compat import errors
from gradaccum_compat.backends import BACKEND
from gradaccum_compat.backends.base import no_autograph
from gradaccum_compat.core import _arguments

# Looked up once: each look into a module of TF 1.14 takes a microsecond.
_strategy_now, _replica_now = tf.distribute.get_strategy, tf.distribute.get_replica_context


class Replicas(object):
    """Calls functions inside the replicas or across them.

    Attributes:
        graph: the outermost graph, or None in eager code.
        strategy: the strategy.
        count: how many replicas it has on all workers.
    """

    def __init__(self):
        self.graph = BACKEND.outermost_graph()
        self._take(tf.distribute.get_strategy())
        in_replica = tf.distribute.has_strategy() and not tf.distribute.in_cross_replica_context()
        if in_replica and self.graph is None:
            raise errors.ContextError(
                "An accumulator is made once, for all replicas.",
                "one made inside strategy.run, once in each replica",
                "Make it inside `with strategy.scope():`, before the training step.",
            )

    def __deepcopy__(self, memo):
        # A strategy cannot be copied.
        copied = object.__new__(type(self))
        copied.graph = self.graph
        copied._take(self.strategy)
        return copied

    def _take(self, strategy):
        self.strategy = strategy
        self.count = strategy.num_replicas_in_sync
        self._is_default = type(strategy).__name__ == "_DefaultDistributionStrategy"

    def check(self):
        """Raises ContextError where a call could only give wrong numbers or an obscure error."""
        graph = BACKEND.outermost_graph()
        if graph is not self.graph:
            raise errors.ContextError(
                "An accumulator is used in the graph that it was made in.",
                "one made in {}, used in {}".format(_place(self.graph), _place(graph)),
                "Make it inside the same `with graph.as_default():` block, after enabling eager"
                " execution or not at all.",
            )
        current = _strategy_now()
        if current is not self.strategy and tf.distribute.has_strategy():
            made, used = type(self.strategy).__name__, type(current).__name__
            raise errors.ContextError(
                "An accumulator is used under the strategy that it was made in.",
                "one made under {}, used under {}".format(
                    made, used if used != made else "another {}".format(used)
                ),
                "Make it inside `with strategy.scope():` of the strategy that runs the training"
                " step.",
            )

    def settle(self, variables):
        """Takes the strategy of the variables, now that they are known."""
        self._take(_strategy_of(variables[0]) or self.strategy)
        for variable in variables if self.count > 1 else ():
            if _strategy_of(variable) is not self.strategy:
                raise errors.VariablesError(
                    "The variables are made under the strategy that the accumulator is made in.",
                    "{} under {}".format(
                        _arguments.describe(variable), type(self.strategy).__name__
                    ),
                    "Make the model, the optimizer and the accumulator inside `with"
                    " strategy.scope():`.",
                )

    def inside(self):
        """Whether the caller is inside a replica."""
        return _replica_now() is not None and _strategy_now() is self.strategy

    def in_scope(self, function, *args):
        """Calls the function in the strategy's scope, outside of the replicas if the caller is."""
        if _strategy_now() is self.strategy:
            return function(*args)
        with self.strategy.scope():
            return function(*args)

    def on_each(self, function, *args):
        """Calls the function on each replica: directly where the caller is inside one."""
        if self.inside():
            return function(*args)
        return self.in_scope(BACKEND.run, self.strategy, no_autograph(function), args)

    def across(self, function, *args):
        """Calls the function once for all replicas; inside a replica, args become per-replica."""
        if self._is_default:  # whose one replica is everywhere
            return function(*args)
        if self.inside():
            return BACKEND.merge(function, args)
        return self.in_scope(function, *args)

    # Values of several replicas

    def local(self, value):
        """What each replica of this worker has of a value that may be per-replica."""
        return self.strategy.experimental_local_results(value)

    def on_local(self, function, *values):
        """Calls the function with the values of each replica of this worker, from outside of them.

        No thread is made, and so no second is lost as in on_each.
        """
        local = zip(*[self.local(each) for each in values])
        return self.as_local([function(*each) for each in local], values[0])

    def as_local(self, local, like):
        """A list of what each replica of this worker has, as a value that is per-replica if the
        other one is."""
        return tf.nest.pack_sequence_as(like, local, expand_composites=True)

    def of_each(self, value):
        """The same, one for each replica: TensorFlow makes one of what is one object in all."""
        local = list(self.local(value))
        return local * (self.count // len(local))

    def first(self, value):
        """The value of one replica, where all replicas have the same."""
        local = self.local(value)
        if len(local) == 1 or self.graph is None:
            return local[0]
        # A TF 1 graph runs what a result depends on, and nothing else.
        with tf.control_dependencies(list(local)):
            return tf.identity(local[0])

    def admit(self, gradients, weight, variables):
        """Checks the gradients and the weight of each replica, before any state is touched."""
        if self.inside() or not isinstance(gradients, (list, tuple)):
            return _arguments.gradients(gradients, variables), _arguments.weight(weight)
        local = [self.local(each) for each in gradients]
        for replica in range(max([1] + [len(each) for each in local])):
            _arguments.gradients([each[replica % len(each)] for each in local], variables)
        for each in self.local(weight):
            _arguments.weight_now(_arguments.weight(each))
        return gradients, weight


def _strategy_of(variable):
    """The strategy that a variable was made under, or None."""
    raw = _arguments.raw_variable(variable)
    for attribute in ("distribute_strategy", "_distribute_strategy"):
        if getattr(raw, attribute, None) is not None:
            return getattr(raw, attribute)
    return None


def _place(graph):
    return "eager execution" if graph is None else "a tf.Graph"
