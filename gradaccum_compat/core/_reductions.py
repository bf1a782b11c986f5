"""How sums cross replicas and workers: one table from a strategy to one of a few classes.

A further strategy is a row of STRATEGIES. Whatever is reduced is reduced by all replicas and
workers, in the same order: one that reduces alone waits for ever.
"""

from __future__ import absolute_import, division, print_function

import collections

import tensorflow as tf

from gradaccum_compat import errors
from gradaccum_compat.backends import BACKEND
from gradaccum_compat.core import _gradients, _state
from gradaccum_compat.core._gradients import GradientSum, is_rows
from gradaccum_compat.core._graph import control_dependencies
from gradaccum_compat.core._tables import Tables


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
            ending: where the cycle is about to be ended, a bool or a scalar bool tensor.
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
        return self._cycle.only(parts, indices)

    def _reduced(self, sums, destinations):
        sums = [self._rows_of_all(each) for each in sums]
        pairs = [
            pair for pair in zip(sums, destinations) if pair[0] is not None and not is_rows(pair[0])
        ]
        strategy = self._replicas.strategy
        reduced = iter(BACKEND.sum_batch(strategy, pairs, self.several_processes) if pairs else [])
        return [each if each is None or is_rows(each) else next(reduced) for each in sums]

    def _rows_of_all(self, rows):
        """The rows of all replicas, each once; anything else as it is.

        TensorFlow's own reduction, of 2.15 to 2.21 at least, ends the process where no replica has
        a row.
        """
        local = self._replicas.local(rows)
        if not is_rows(local[0]):
            return rows
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
