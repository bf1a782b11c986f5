"""Home: the strategy and the graph that an accumulator was made in, and the ways between its replicas.

A call may come from inside a replica, from outside of them in the strategy's scope, or from outside of
both. Here, and only here, is decided which it is.
"""

from __future__ import absolute_import, division, print_function

import tensorflow as tf

from gradaccum_compat import _checks, _options, errors
from gradaccum_compat.backends import BACKEND
from gradaccum_compat.backends.base import no_autograph

#: Strategies whose replicas move in step and whose reductions are exact; by the names of their classes,
#: since they moved between modules and got V1 twins.
_SERVED = ("MirroredStrategy", "OneDeviceStrategy", "CentralStorageStrategy", "MultiWorkerMirroredStrategy",
           "CollectiveAllReduceStrategy", "TPUStrategy", "_DefaultDistributionStrategy")


class Home(object):
    """Calls functions inside the replicas or across them, wherever the caller stands.

    Args:
        reducer: a function that sums a list of tensors over workers that TensorFlow does not know of.
        name: the accumulator's name, for a reducer that works by names.
    """

    def __init__(self, reducer=None, name=None):
        self._graph = BACKEND.outermost_graph()
        named = getattr(reducer, "for_accumulator", None)
        self._reducer = reducer if named is None else named(name, self._graph)
        self.strategy = tf.distribute.get_strategy()
        if tf.distribute.has_strategy() and not tf.distribute.in_cross_replica_context() and self._graph is None:
            raise errors.ContextError(
                "An accumulator is made once, for all replicas.", "one made inside strategy.run, once in each replica",
                "Make it inside `with strategy.scope():`, before the training step.")

    def check(self):
        """Raises ContextError where a call could only give wrong numbers or an obscure error."""
        graph = BACKEND.outermost_graph()
        if graph is not self._graph:
            raise errors.ContextError(
                "An accumulator is used in the graph that it was made in.",
                "one made in {}, used in {}".format(_place(self._graph), _place(graph)),
                "Make it inside the same `with graph.as_default():` block, after enabling eager execution or not at all.")
        current = tf.distribute.get_strategy()
        if tf.distribute.has_strategy() and current is not self.strategy:
            raise errors.ContextError(
                "An accumulator is used under the strategy that it was made in.",
                "one made under {}, used under {}".format(type(self.strategy).__name__, type(current).__name__),
                "Make it inside `with strategy.scope():` of the strategy that runs the training step.")

    def settle(self, variables, options):
        """Makes sure that the variables and the options go with the strategy, now that the variables are known."""
        self.strategy = _strategy_of(variables) or self.strategy
        _refuse_unknown(self.strategy)
        _options.skip_is_exact(options, self.replicas)
        _options.one_engine(options, self.replicas)
        for variable in variables:
            if self.strategy.num_replicas_in_sync > 1 and _strategy_of([variable]) is not self.strategy:
                raise errors.VariablesError(
                    "The variables are made under the strategy that the accumulator is made in.",
                    "{} under {}".format(_checks.describe(variable), type(self.strategy).__name__),
                    "Make the model, the optimizer and the accumulator inside `with strategy.scope():`.")

    # Ways between the replicas

    @property
    def replicas(self):
        return self.strategy.num_replicas_in_sync

    @property
    def shares_state(self):
        """Whether replicas share one value of each variable, ON_READ or not: then they add to one sum, together."""
        return self.replicas > 1 and any(
            each.__name__.startswith("CentralStorage") for each in type(self.strategy).__mro__)

    def is_alone(self):
        """Whether one state has everything that came in, so that there is nothing to reduce."""
        return self._reducer is None and (self.replicas == 1 or self.shares_state)

    def inside_replica(self):
        return tf.distribute.get_replica_context() is not None and tf.distribute.get_strategy() is self.strategy

    def in_scope(self, function):
        """Calls function in the strategy's scope, outside of its replicas if the caller is."""
        if tf.distribute.get_strategy() is self.strategy:
            return function()
        with self.strategy.scope():
            return function()

    def on_replicas(self, function, *args):
        """Calls function on each replica: directly where the caller is inside one."""
        if self.inside_replica():
            return function(*args)
        return self.in_scope(lambda: BACKEND.run(self.strategy, no_autograph(function), args))

    def at_state(self, function, *args):
        """Calls function where the state is: on each replica, or once for all where they share it."""
        return self.across_replicas(function, *args) if self.shares_state else self.on_replicas(function, *args)

    def across_replicas(self, function, *args):
        """Calls function once for all replicas; inside a replica, args become per-replica values."""
        if self.inside_replica():
            return BACKEND.merge(function, args)
        return self.in_scope(lambda: function(*args))

    def in_replica_or_one(self, function, *args):
        """on_replicas, for what all replicas return alike."""
        value = self.on_replicas(function, *args)
        return value if self.inside_replica() else self.one_of(value)

    # Values of several replicas

    def admit(self, gradients, weight, variables):
        """Checks gradients and weight, of each replica if they are per-replica values, before any state is touched."""
        if self.inside_replica() or not isinstance(gradients, (list, tuple)):
            return _checks.gradients(gradients, variables), _checks.weight(weight)
        shares = [self.shares(each) for each in gradients]
        for replica in range(max([1] + [len(share) for share in shares])):
            _checks.gradients([share[replica % len(share)] for share in shares], variables)
        for each in self.shares(weight):
            _checks.weight_now(_checks.weight(each))
        return gradients, weight

    def shares(self, value):
        """What each replica of this worker has of a value that may be per-replica."""
        return self.strategy.experimental_local_results(value)

    def of_each(self, value):
        """The same, one for each replica, where TensorFlow has made one of what is the same object in all of them."""
        shares = list(self.shares(value))
        return shares * (self.replicas // len(shares))

    def one_of(self, value):
        """The value of one replica, where all replicas have the same."""
        shares = self.shares(value)
        if len(shares) == 1 or self._graph is None:
            return shares[0]
        # A TF 1 graph runs what a result depends on and nothing else: the others' work must not be left out.
        with tf.control_dependencies(list(shares)):
            return tf.identity(shares[0])

    def sum_over_replicas(self, value, variable):
        """The sum over all replicas and workers of a tensor that each of them has; it comes to where the variable is."""
        if self._reducer is not None:
            return self._reducer([self.one_of(value)])[0]
        if self.is_alone():
            return self.one_of(value)
        # Not strategy.reduce: on TF 1.14 it names a device that no worker has.
        return self.one_of(self.strategy.extended.reduce_to(tf.distribute.ReduceOp.SUM, value, variable))

    def adds_rows(self):
        """Whether IndexedSlices can be reduced as such: within one process, where all replicas' gradients are at hand.

        Workers would have to agree on what is sparse, and one may have had no gradient, or a dense one. Up to TF 2.4
        they add up other numbers of rows wrongly besides, or not at all.
        """
        return self._reducer is None and self._one_process()

    def _one_process(self):
        return not any(each.__name__.startswith(("MultiWorkerMirrored", "CollectiveAllReduce"))
                       for each in type(self.strategy).__mro__)

    def sum_gradients(self, gradients, variables):
        """The gradients' sums over all replicas and workers, in one reduction, where these variables are."""
        if self._reducer is not None:
            return list(self._reducer(gradients))
        gradients = [self._all_rows(gradient) for gradient in gradients]
        pairs = [pair for pair in zip(gradients, variables) if pair[0] is not None and not _is_sparse(pair[0])]
        sums = iter(BACKEND.sum_batch(self.strategy, pairs, not self._one_process()) if pairs else [])
        return [gradient if gradient is None or _is_sparse(gradient) else next(sums) for gradient in gradients]

    def _all_rows(self, gradient):
        """The rows of all replicas' IndexedSlices; anything else as it is.

        TensorFlow's own reduction, of 2.15 to 2.21 at least, ends the process where no replica has a row.
        """
        slices = self.shares(gradient)
        if not _is_sparse(slices[0]):
            return gradient
        return tf.IndexedSlices(*[tf.concat([getattr(each, part) for each in slices], 0)
                                  for part in ("values", "indices")] + [slices[0].dense_shape])


def _is_sparse(gradient):
    return isinstance(gradient, tf.IndexedSlices)


def _strategy_of(variables):
    """The strategy that the first of the variables was made under, or None."""
    for variable in (variables or [])[:1]:
        raw = _checks.raw_variable(variable)
        for attribute in ("distribute_strategy", "_distribute_strategy"):
            if getattr(raw, attribute, None) is not None:
                return getattr(raw, attribute)
    return None


def _refuse_unknown(strategy):
    names = [each.__name__ for each in type(strategy).__mro__]
    if not any(name.startswith(served) for name in names for served in _SERVED):
        raise errors.ContextError(
            "Accumulation is exact under a strategy whose replicas move in step.", type(strategy).__name__,
            "Its workers apply their updates each for itself, so that no cycle has a common end. Use MirroredStrategy, "
            "MultiWorkerMirroredStrategy, CentralStorageStrategy, OneDeviceStrategy or TPUStrategy.")


def _place(graph):
    return "eager execution" if graph is None else "a tf.Graph"
