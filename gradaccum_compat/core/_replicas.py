"""The way across replicas and workers: how calls go there, and how sums come back.

A call comes from inside a replica, from outside of the replicas in the strategy's scope, or from
outside of both. The methods of Replicas take each caller where the algorithm needs it.

How sums are reduced is one table, STRATEGIES, from a strategy to one of a few classes. A further
strategy is a row. Whatever is reduced is reduced by all replicas and workers, in the same order:
one that reduces alone waits for ever.
"""

from __future__ import absolute_import, division, print_function

import collections

import tensorflow as tf

from gradaccum_compat import errors
from gradaccum_compat.backends import BACKEND
from gradaccum_compat.backends.base import no_autograph
from gradaccum_compat.core import _arguments, _gradients, _state
from gradaccum_compat.core._gradients import DENSE, GradientSum
from gradaccum_compat.core._graph import control_dependencies
from gradaccum_compat.core._tables import Tables

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
        graph = None if tf.executing_eagerly() else BACKEND.outermost_graph()
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


# How sums are reduced


class Alone(object):
    """One replica: nothing is sent; each reader reads the sums directly."""

    #: Whether other replicas hold a part of the sums.
    reduces = False
    #: Whether all replicas share one value of each variable.
    shares_state = False
    #: Whether other processes hold a part of the sums.
    several_processes = False

    def __init__(self, replicas, cycle, variables, reducer=None, statistics=None):
        self._replicas, self._cycle, self._statistics = replicas, cycle, statistics
        self._variables, self._reducer = variables, reducer

    def on_state(self, function, *args):
        """Calls the function where the state is: on each replica."""
        return self._replicas.on_each(function, *args)

    def add(self, gradients, factor, weight, dropped):
        """Adds one replica's micro-batch."""
        return self._cycle.add(gradients, factor, weight, dropped)

    def summarise(self, ending, least):
        """The one small reduction of a cycle.

        Args:
            ending: whether the cycle is about to be ended.
            least: how many micro-batches there are, if no other thread has ended the cycle.

        Returns:
            The sum of the summaries of all replicas, and what `sums` is to reduce.
        """
        return self._replicas.first(self.on_state(self._summary, ending, least)), None

    def _summary(self, ending, least):
        summary = self._cycle.summary(ending, least)
        if self._statistics is None:
            return summary
        with control_dependencies([summary]):
            return tf.concat([summary, _state.read(self._statistics.squares)], 0)

    def end(self, whole=False, updated=None):
        """Forgets the cycle, after the update, where the state is; for `whole` see Cycle.end."""
        # Inside the function: replicas are threads, in a TF 1 graph too, and threads inherit no
        # control dependencies.
        with control_dependencies([] if updated is None else [updated]):
            ended = [] if self._statistics is None else self._statistics.end()
            with control_dependencies(ended):
                return self._cycle.end(whole)

    def ahead_of_conditionals(self, parts):
        """The one reduction of gradients in a cycle, once an update is due.

        It comes ahead of the conditionals that depend on which variables had a gradient.
        """
        return parts

    def sums(self, parts, marks, indices):
        """The sums over all replicas at these positions; None where each replica reads its own."""
        return None


class SharedState(Alone):
    """Replicas that share one value of each variable: they add to one sum, together."""

    shares_state = True

    def on_state(self, function, *args):
        return self._replicas.across(function, *args)

    def add(self, gradients, factor, weight, dropped):
        gradients = _gradients.scale(gradients, factor)
        return self._replicas.across(self._add_of_all, gradients, weight, dropped)

    def _add_of_all(self, gradients, weights, dropped):
        of_each = self._replicas.of_each
        gradients = [GradientSum(of_each(each)).value() for each in gradients]
        weight = sum(_gradients.as_dtype(each, tf.float64) for each in of_each(weights))
        return self._cycle.add(gradients, None, weight, self._any_dropped(dropped))

    def _any_dropped(self, dropped):
        return None if dropped is None else tf.stack(self._replicas.of_each(dropped))


class OneProcess(Alone):
    """Replicas of one process: each has sums of its own, rows included."""

    reduces = True

    def summarise(self, ending, least):
        # In one call: under MirroredStrategy each way to the replicas may take TensorFlow a
        # second, since its coordinator looks once a second whether their threads are done.
        summary, sums = self.on_state(self._summary_and_sums, ending, least)
        return self._sum_over_replicas(summary), sums

    def _summary_and_sums(self, ending, least):
        summary = self._summary(ending, least)
        with control_dependencies([summary]):
            return summary, self._cycle.sums_of_this_cycle()

    def _sum_over_replicas(self, value):
        # Not strategy.reduce: on TF 1.14 it names a device that no worker has.
        extended = self._replicas.strategy.extended
        op = tf.distribute.ReduceOp.SUM
        return self._replicas.first(extended.reduce_to(op, value, self._variables[0]))

    def ahead_of_conditionals(self, parts):
        return self._reduced(parts, list(self._variables) + self._where_packs_go())

    def _where_packs_go(self):
        return [self._variables[pack.indices[0]] for pack in self._cycle.layout.packs]

    def sums(self, parts, marks, indices):
        return parts

    def _reduced(self, sums, destinations):
        kinds = _gradients.kinds([self._replicas.local(each)[0] for each in sums])
        pairs = [
            (total, destination)
            for total, destination, kind in zip(sums, destinations, kinds)
            if kind == DENSE
        ]
        strategy = self._replicas.strategy
        reduced = iter(BACKEND.sum_batch(strategy, pairs, self.several_processes) if pairs else [])
        return [
            next(reduced) if kind == DENSE else kind and self._rows_of_all(total)
            for total, kind in zip(sums, kinds)
        ]

    def _rows_of_all(self, rows):
        """The rows of all replicas, each once.

        TensorFlow's own reduction, of 2.15 to 2.21 at least, ends the process where no replica has
        a row.
        """
        local = self._replicas.local(rows)
        values, indices = [
            tf.concat([getattr(each, part) for each in local], 0) for part in ("values", "indices")
        ]
        rows = tf.IndexedSlices(values, indices, local[0].dense_shape)
        return _gradients.unique_rows([rows])[0]


#: What several workers are to reduce: the sums that are always sent whole, and their flags; what
#: each replica has of the tables, and their counts and marks of all replicas.
_Parts = collections.namedtuple("_Parts", ["whole", "tables", "counts", "marks"])


class Workers(OneProcess):
    """Replicas of several processes: they send whole sums, and flags that tell the touched rows.

    One worker may have had no gradient, or a dense one, where another has rows. So they agree on
    which tables they send as rows, where TensorFlow can send uneven numbers of them.
    """

    several_processes = True

    def __init__(self, replicas, cycle, variables, *others):
        super(Workers, self).__init__(replicas, cycle, variables, *others)
        gathered = self._gathered if self._can_gather() else None
        self._tables = Tables(cycle, replicas, self._reduced_at, gathered)
        self._whole = [
            index for index in range(len(variables)) if index not in self._tables.indices
        ]

    def _can_gather(self):
        """Whether workers can send each other uneven numbers of rows."""
        return BACKEND.can_gather(self._replicas.strategy)

    def _gathered(self, value, name):
        """The rows of all replicas, one replica after another."""
        return self._replicas.strategy.gather(value, axis=0)

    def summarise(self, ending, least):
        total, (whole, own) = super(Workers, self).summarise(ending, least)
        tables = self._tables.indices
        # The marks follow the weight and the number of micro-batches; the counts come last.
        marks = [total[2 + index] for index in tables]
        counts = [total[number - len(tables)] for number in range(len(tables))]
        return total[: -len(tables)] if tables else total, _Parts(whole, own, counts, marks)

    def _summary_and_sums(self, ending, least):
        summary = self._summary(ending, least)
        with control_dependencies([summary]):
            counts, own = self._tables.own()
            return tf.concat([summary] + counts, 0), (self._cycle.whole_sums(self._whole), own)

    def ahead_of_conditionals(self, parts):
        """TensorFlow numbers the workers' reductions while graphs are built, to tell them apart.

        A worker whose graph has one in each of two branches would wait for ever for one that has a
        single branch. What a branch depends on is what a worker has seen.
        """
        # The packs and two tensors of flags follow the large sums.
        packs = [pack.indices[0] for pack in self._cycle.layout.packs]
        whole = self._reduced_at(parts.whole, self._cycle.large(self._whole) + packs + [0, 0])
        return whole, self._tables.sums(parts.tables, parts.counts, parts.marks)

    def _reduced_at(self, sums, indices, name=None):
        return self._reduced(sums, [self._variables[index] for index in indices])

    def sums(self, parts, marks, indices):
        whole, tables = parts
        sums = self._replicas.on_each(self._cycle.from_whole, whole, self._whole, marks, indices)
        indices = frozenset(indices)
        return [
            tables[index] if index in tables and index in indices else each
            for index, each in enumerate(sums)
        ]


class ReducedByFunction(Workers):
    """Processes that TensorFlow does not know of, which the user's reducer sums over."""

    def _can_gather(self):
        return hasattr(self._reducer, "gather")

    def _gathered(self, value, name):
        return self._reducer.gather(value, name)

    def _sum_over_replicas(self, value):
        return self._reducer([self._replicas.first(value)])[0]

    def _reduced_at(self, sums, indices, name=None):
        return list(self._reducer(sums, name) if name else self._reducer(sums))


#: Strategies by the beginning of their class's name, since they moved between modules and have V1
#: twins. Their replicas update in step, and their reductions are exact.
STRATEGIES = (
    ("MirroredStrategy", OneProcess),
    ("TPUStrategy", OneProcess),
    ("CentralStorageStrategy", SharedState),
    ("MultiWorkerMirroredStrategy", Workers),
    ("CollectiveAllReduceStrategy", Workers),
    ("OneDeviceStrategy", Alone),
    ("_DefaultDistributionStrategy", Alone),
)


def reduction_for(replicas, cycle, variables, reducer=None, statistics=None):
    """Returns the reduction of this strategy, or of the reducer if there is one."""
    served = served_by(replicas.strategy)
    if reducer is not None:
        served = ReducedByFunction
    elif replicas.count == 1:
        served = Alone
    return served(replicas, cycle, variables, reducer, statistics)


def served_by(strategy):
    """Returns the class that serves a strategy."""
    names = [each.__name__ for each in type(strategy).__mro__]
    for beginning, served in STRATEGIES:
        if any(name.startswith(beginning) for name in names):
            return served
    raise errors.ContextError(
        "Accumulation is exact under a strategy whose replicas update in step.",
        type(strategy).__name__,
        "Its workers apply their updates each for itself, so that no cycle has a common end. Use"
        " MirroredStrategy, MultiWorkerMirroredStrategy, CentralStorageStrategy, OneDeviceStrategy"
        " or TPUStrategy.",
    )
