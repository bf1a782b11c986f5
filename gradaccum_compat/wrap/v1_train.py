"""Wrapped optimizers of tf.compat.v1.train."""

from __future__ import absolute_import, division, print_function

import contextlib

import tensorflow as tf

from gradaccum_compat import errors
from gradaccum_compat.backends import BACKEND
from gradaccum_compat.backends.base import no_autograph
from gradaccum_compat.core import _arguments
from gradaccum_compat.optimizers import references
from gradaccum_compat.wrap import loss_scale, wrapped

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
    counts = _arguments.option(
        "global_step", options.pop("global_step", UPDATES), (UPDATES, MICRO_BATCHES)
    )
    accumulated = wrapped.wrap(AccumulatedOptimizer, optimizer, weight, options)
    accumulated._begin(counts)
    return accumulated


def _refuse_aggregating(optimizer):
    """Raises for optimizers that reduce gradients over workers in apply_gradients: they have to
    reduce before a micro-batch is added."""
    remedies = {
        v1.train.SyncReplicasOptimizer: (
            "SyncReplicasOptimizer(ga.wrap_optimizer(optimizer, steps=4,"
            ' global_step="micro_batches"), ...).'
        ),
        v1.tpu.CrossShardOptimizer: "CrossShardOptimizer(ga.wrap_optimizer(optimizer, steps=4)).",
    }
    for aggregating, remedy in remedies.items():
        if isinstance(optimizer, aggregating):
            raise errors.OptimizerError(
                "An optimizer that aggregates over workers goes around the one that accumulates.",
                type(optimizer).__name__,
                "Wrap the optimizer inside: " + remedy,
            )


class _HandOver(wrapped.HandOver):
    """Passes on a global step that counts updates, and knows the graphs in which the optimizer is
    used."""

    MORE_VARIABLES = (
        "Wrap an optimizer for each train op, with the variables that it trains as its var_list."
    )

    counts = UPDATES
    #: The global step that each update increments.
    global_step = None

    def apply_gradients(self, pairs):
        # In a graph a train op keeps the variables that it was made with: no layer is frozen later.
        return (
            self.update(pairs)
            if BACKEND.outermost_graph()
            else super(_HandOver, self).apply_gradients(pairs)
        )

    def update(self, pairs):
        if self.global_step is None:
            return self.plain.apply_gradients(pairs)
        return _counted_once(self.global_step, lambda step: self.plain.apply_gradients(pairs, step))

    def take(self, global_step):
        """Keeps the global step, for the updates to increment. Returns it to the caller instead if
        no branch can increment it, or if it counts micro-batches."""
        with_the_update = self.counts == UPDATES and (
            global_step is None or references.can_be_updated_in_a_branch(global_step)
        )
        self.global_step = global_step if with_the_update else None
        return None if with_the_update else global_step


class AccumulatedOptimizer(wrapped.Wrapped):

    HAND_OVER = _HandOver

    def _arguments(self):
        counts = self._accumulation.hand_over.counts
        return dict(super(AccumulatedOptimizer, self)._arguments(), global_step=counts)

    def _begin(self, counts):
        first = super(AccumulatedOptimizer, self)._accumulation
        hand_over = first.hand_over
        hand_over.counts, hand_over.latest, hand_over.by_graph = (
            counts,
            first,
            {BACKEND.outermost_graph(): first},
        )

    @property
    def accumulator(self):
        """The Accumulator of the graph at hand; of the graph that was used last, where the graph at
        hand has none."""
        hand_over = super(AccumulatedOptimizer, self)._accumulation.hand_over
        here = hand_over.by_graph.get(BACKEND.outermost_graph())
        return (here if here is not None and here.is_built else hand_over.latest).accumulator

    @property
    def _accumulation(self):
        """One for each graph, as the plain optimizer has its slots: Estimator trains in a new graph
        each time."""
        first = super(AccumulatedOptimizer, self)._accumulation
        by_graph, graph = first.hand_over.by_graph, BACKEND.outermost_graph()
        if graph not in by_graph:
            by_graph[graph] = first.another()
        return by_graph[graph]

    @no_autograph
    def minimize(self, loss, *args, **kwargs):
        # In Estimator, optimizers divide the loss by the number of replicas before they take the
        # gradients.
        noted = self._accumulation.with_loss_noted(loss, self._scale_loss)
        return super(AccumulatedOptimizer, self).minimize(noted, *args, **kwargs)

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        grads_and_vars = list(grads_and_vars)
        accumulation, pairs = self._accumulation, self._pairs(grads_and_vars)
        if all(gradient is None for gradient, _ in grads_and_vars):
            # Nothing would ever train. The plain optimizer raises, as nearly all do.
            return accumulation.hand_over.plain.apply_gradients(grads_and_vars)
        accumulation.hand_over.latest = accumulation
        _check_global_step(accumulation, pairs, global_step)
        global_step = accumulation.hand_over.take(global_step)
        with _train_ops() as train_ops:
            updated = accumulation.step(pairs)
        counted = [] if global_step is None else [self._count(global_step, updated)]
        if tf.executing_eagerly():
            return updated
        with tf.control_dependencies([updated] + counted):
            # tf.contrib's MovingAverageOptimizer has no name: it skips the base constructor.
            train_ops.append(tf.no_op(name=name or getattr(self, "_name", None)))
        return train_ops[-1]

    def _pairs(self, grads_and_vars):
        """The pairs without those that never have a gradient: None in a graph stays None, and the
        plain optimizer makes no slots for such a variable either."""
        return [
            pair
            for pair in grads_and_vars
            if pair[0] is not None or BACKEND.outermost_graph() is None
        ]

    def _count(self, global_step, updated):
        """Increments the global step, once for all replicas, after the micro-batch."""
        home = self._accumulation.accumulator._replicas
        with tf.control_dependencies([updated]):
            more = tf.cast(
                (
                    updated
                    if self._accumulation.hand_over.counts == UPDATES
                    else tf.ones_like(updated)
                ),
                global_step.dtype.base_dtype,
            )
        return home.across(
            lambda mores: tf.group(
                tf.distribute.get_strategy().extended.update(
                    global_step,
                    lambda variable, one: variable.assign_add(one),
                    args=(home.first(mores),),
                )
            ),
            more,
        )


def _counted_once(global_step, update):
    """Calls update(global_step), after which the global step is one higher.

    Most optimizers increment the global step that they are given. Google's BERT leaves it alone,
    and others find it by themselves. So the new value is assigned, whatever the optimizer did.

    Returns:
        The op that makes the update and the assignment, in a graph.
    """
    # Before the update: the value of a reference variable is read when the sum is made.
    incremented = global_step + 1
    with _after([incremented]):
        updated = update(global_step)
    with _after([updated]):
        return BACKEND.merge(_assign_of_first, (global_step, incremented))


def _assign_of_first(variable, values):
    """Assigns the first replica's value to the variable, on each replica."""
    strategy = tf.distribute.get_strategy()
    value = strategy.experimental_local_results(values)[0]
    return tf.group(
        strategy.extended.update(variable, lambda each, one: each.assign(one), args=(value,))
    )


def _after(ops):
    """The context of tf.control_dependencies; in eager code nothing has to wait."""
    return tf.control_dependencies([] if tf.executing_eagerly() else ops)


def _check_global_step(accumulation, pairs, global_step):
    """Says what a global step of updates means to those who watch it."""
    steps = accumulation.options["steps"]
    if global_step is None or accumulation.hand_over.counts != UPDATES or steps == 1:
        return
    if any(
        getattr(each, "op", None) is not None and "AccumulatorTakeGradient" in each.op.type
        for each, _ in pairs
    ):
        raise errors.OptionError(
            "SyncReplicasOptimizer takes a step of its workers for stale unless the global step"
            " counts all of them.",
            'global_step="updates"',
            'Wrap with wrap_optimizer(optimizer, steps, global_step="micro_batches").',
        )
    if not tf.executing_eagerly():
        v1.logging.warning(
            "The global step counts updates, one in %s micro-batches. Where a hook says"
            ' "It seems that global step (tf.train.get_global_step) has not been increased", that'
            ' is as it should be. wrap_optimizer(..., global_step="micro_batches") counts'
            " micro-batches.",
            steps if _arguments.is_positive_integer(steps) else "`steps`",
        )


@contextlib.contextmanager
def _train_ops():
    """The graph's collection of train ops. Those that are added inside the block are taken out
    again: they are in a branch, which nothing may run from outside."""
    if tf.executing_eagerly():
        yield []
        return
    collection = v1.get_collection_ref(v1.GraphKeys.TRAIN_OP)
    before = list(collection)
    yield collection
    collection[:] = before
