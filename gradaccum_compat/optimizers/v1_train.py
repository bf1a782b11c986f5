"""Wrapped optimizers of tf.compat.v1.train."""

from __future__ import absolute_import, division, print_function

import contextlib

import tensorflow as tf

from gradaccum_compat import _options, errors
from gradaccum_compat.backends import BACKEND
from gradaccum_compat.optimizers import loss_scale, references, wrapped

v1 = tf.compat.v1

#: What the global step counts.
UPDATES, MICRO_BATCHES = "updates", "micro_batches"


def serves(optimizer):
    return isinstance(optimizer, v1.train.Optimizer)


def wrap(optimizer, weight, options):
    _refuse_aggregating(optimizer)
    if loss_scale.serves(optimizer):
        return loss_scale.around(optimizer, lambda inner: wrap(inner, weight, options))
    options = dict(options)
    counts = _options.option("global_step", options.pop("global_step", UPDATES), (UPDATES, MICRO_BATCHES))
    accumulated = wrapped.wrap(AccumulatedOptimizer, optimizer, weight, options)
    accumulated._begin(counts)
    return accumulated


def _refuse_aggregating(optimizer):
    """These reduce gradients over workers in apply_gradients: that has to come before a micro-batch is added."""
    remedies = {
        v1.train.SyncReplicasOptimizer:
            'SyncReplicasOptimizer(ga.wrap_optimizer(optimizer, global_step="micro_batches"), ...).',
        v1.tpu.CrossShardOptimizer: "CrossShardOptimizer(ga.wrap_optimizer(optimizer)).",
    }
    for aggregating, remedy in remedies.items():
        if isinstance(optimizer, aggregating):
            raise errors.OptimizerError(
                "What aggregates each micro-batch over workers goes around the optimizer that accumulates.",
                type(optimizer).__name__, "Wrap the optimizer inside: " + remedy)


class _HandOver(wrapped.HandOver):
    """Passes on a global step that counts updates; and knows the graphs that the optimizer is used in."""

    MORE_VARIABLES = "Wrap an optimizer for each train op, with the variables that it trains as its var_list."

    counts = UPDATES
    #: What the plain optimizer increments when it moves.
    global_step = None

    def apply_gradients(self, pairs):
        # In a graph a train op has the variables that it was made with for good.
        return self.move(pairs) if BACKEND.outermost_graph() else super(_HandOver, self).apply_gradients(pairs)

    def move(self, pairs):
        return self.plain.apply_gradients(pairs, global_step=self.global_step)

    def take(self, global_step):
        """Leaves the global step to the plain optimizer; returns it, if it has to be incremented beside it."""
        with_the_update = self.counts == UPDATES and (
            global_step is None or references.can_be_updated_in_a_branch(global_step))
        self.global_step = global_step if with_the_update else None
        return None if with_the_update else global_step


class AccumulatedOptimizer(wrapped.Wrapped):

    HAND_OVER = _HandOver

    def _begin(self, counts):
        first = super(AccumulatedOptimizer, self)._accumulation
        hand_over = first.hand_over
        hand_over.counts, hand_over.latest, hand_over.by_graph = counts, first, {BACKEND.outermost_graph(): first}

    @property
    def accumulator(self):
        """The Accumulator behind it, in the graph at hand; outside of those, in the one that was used last."""
        hand_over = super(AccumulatedOptimizer, self)._accumulation.hand_over
        here = hand_over.by_graph.get(BACKEND.outermost_graph())
        return (here if here is not None and here.is_built else hand_over.latest).accumulator

    @property
    def _accumulation(self):
        """One for each graph, as the plain optimizer has its slots: Estimator trains in a new graph each time."""
        first = super(AccumulatedOptimizer, self)._accumulation
        by_graph, graph = first.hand_over.by_graph, BACKEND.outermost_graph()
        if graph not in by_graph:
            by_graph[graph] = first.another()
        return by_graph[graph]

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        accumulation, pairs = self._accumulation, self._pairs(grads_and_vars)
        accumulation.hand_over.latest = accumulation
        _check_global_step(accumulation, pairs, global_step)
        global_step = accumulation.hand_over.take(global_step)
        with _train_ops() as train_ops:
            moved = accumulation.step(pairs)
        counted = [] if global_step is None else [self._count(global_step, moved)]
        if tf.executing_eagerly():
            return moved
        with tf.control_dependencies([moved] + counted):
            train_ops.append(tf.no_op(name=name or self.get_name()))
        return train_ops[-1]

    def _pairs(self, grads_and_vars):
        """In a graph, None is no gradient for good: the plain optimizer makes no slots for that variable either."""
        return [pair for pair in grads_and_vars if pair[0] is not None or BACKEND.outermost_graph() is None]

    def _count(self, global_step, moved):
        """Increments the global step, once for all replicas, after the micro-batch."""
        home = self._accumulation.accumulator._home
        with tf.control_dependencies([moved]):
            more = tf.cast(moved if self._accumulation.hand_over.counts == UPDATES else tf.ones_like(moved),
                           global_step.dtype.base_dtype)
        return home.across_replicas(lambda mores: tf.group(tf.distribute.get_strategy().extended.update(
            global_step, lambda variable, one: variable.assign_add(one), args=(home.one_of(mores),))), more)


def _check_global_step(accumulation, pairs, global_step):
    """Says what a global step of updates means to those who watch it."""
    steps = accumulation.options["steps"]
    if global_step is None or accumulation.hand_over.counts != UPDATES or steps == 1:
        return
    if any(getattr(each, "op", None) is not None and "AccumulatorTakeGradient" in each.op.type for each, _ in pairs):
        raise errors.OptionError(
            "SyncReplicasOptimizer takes a step of its workers for stale unless the global step counts all of them.",
            'global_step="updates"', 'Wrap with wrap_optimizer(optimizer, global_step="micro_batches").')
    if not tf.executing_eagerly():
        v1.logging.warning(
            "The global step counts updates, one in %d micro-batches. Where a hook says \"It seems that global step "
            "(tf.train.get_global_step) has not been increased\", that is as it should be. "
            "wrap_optimizer(..., global_step=\"micro_batches\") counts micro-batches.", steps)


@contextlib.contextmanager
def _train_ops():
    """The graph's collection of train ops, without those that are made meanwhile, in a branch that nothing may run."""
    if tf.executing_eagerly():
        yield []
        return
    collection = v1.get_collection_ref(v1.GraphKeys.TRAIN_OP)
    before = list(collection)
    yield collection
    collection[:] = before
