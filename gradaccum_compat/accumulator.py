"""Accumulator: gradient accumulation, written once for every TensorFlow.

`accumulate` and `apply` are read here from top to bottom. What they stand on is in core/: the state
(_state), pure functions on gradients (_gradients), the way across replicas (_replicas), and what a
call may be given (_arguments). What differs between optimizers is in optimizers/, and what differs
between TensorFlows in backends/.
"""

from __future__ import absolute_import, division, print_function

import collections
import functools
import os
import threading

import tensorflow as tf

import gradaccum_compat
from gradaccum_compat import errors, optimizers, saver
from gradaccum_compat.backends import BACKEND
from gradaccum_compat.backends.base import compiled_by_xla, no_autograph
from gradaccum_compat.core import _arguments, _gradients, _replicas, _state, _statistics
from gradaccum_compat.core._graph import NOTHING, cond_list, control_dependencies, only_if
from gradaccum_compat.core._state import Cycle
from gradaccum_compat.optimizers.updates import Update


class Accumulator(tf.Module):
    """Adds up the gradients of micro-batches and has the optimizer update once per cycle.

    Every call works in eager code, inside tf.function, and in a TF 1 graph, where it returns a
    tensor and running that tensor performs the call.

    Example:
        >>> accumulator = ga.Accumulator(optimizer, model.trainable_variables, steps=4)
        >>> accumulator.step(tape.gradient(loss, model.trainable_variables), weight=len(x))

    Args:
        optimizer: anything with apply_gradients.
        variables: non-empty list or tuple of variables, or a callable that returns one and is asked
            at the first use, for a model that is built on its first call.
        steps: how many micro-batches make a cycle, for step(): an integer; a schedule by updates
            such as {0: 2, 1000: 8}, cycles of two and from update 1,000 on cycles of eight; or a
            function of the update count.
        loss_reduction: how the loss was reduced whose gradients are handed in: "mean" over the
            replica's micro-batch, "sum" over it, "global_mean" over the micro-batch of all
            replicas, or "none" to add up and divide by nothing.
        dtype: dtype of the sums, "float32" or "float64"; variables of float64 have float64 sums
            anyway.
        clip_norm: largest global norm of the gradients that the optimizer gets.
        nonfinite: "propagate" NaN and infinity, "skip" micro-batches that hold them, or "raise" at
            apply().
        reducer: function that takes a list of tensors and returns their sums over all workers, such
            as ga.horovod.sum_over_workers.
        name: prefix of the state's variable names.
        adaptive_clip: how long the gradient of a unit of a layer may be, as a share of its weights'
            length: adaptive gradient clipping. Comes before clip_norm.
        statistics: whether statistics() tells of the last update. Costs one more read of each
            gradient.

    Raises:
        GradAccumError: one of its subclasses, for an argument that cannot be used.
    """

    def __init__(
        self,
        optimizer,
        variables,
        steps=None,
        loss_reduction="mean",
        dtype="float32",
        clip_norm=None,
        nonfinite="propagate",
        reducer=None,
        name="accumulator",
        adaptive_clip=None,
        statistics=False,
    ):
        super(Accumulator, self).__init__(name=_arguments.state_name(name))
        self._options = _arguments.Options(
            steps=steps,
            loss_reduction=loss_reduction,
            dtype=dtype,
            clip_norm=clip_norm,
            nonfinite=nonfinite,
            reducer=reducer,
            adaptive_clip=adaptive_clip,
            statistics=statistics,
        )
        self._target = _Target(_arguments.optimizer(optimizer), variables)
        self._replicas = _replicas.Replicas()
        named = getattr(reducer, "for_accumulator", None)
        self._reducer = named(self.name, self._replicas.graph) if named else reducer
        self._calls = _Calls()
        self._cycle = self._reduction = self._statistics = None
        self._recorder = _recorder_of(self)
        if not callable(variables):
            self._build()

    # The public calls

    @no_autograph
    def accumulate(self, gradients, weight=1.0):
        """Adds one micro-batch.

        Args:
            gradients: a tensor, tf.IndexedSlices or None for each variable, in their order.
            weight: the micro-batch's examples or tokens, a Python number or a scalar tensor.

        Returns:
            The cycle's micro-batch count, a scalar int64 tensor.
        """
        self._ready_for(gradients)
        return self._accumulate(gradients, weight)

    @no_autograph
    def apply(self):
        """Hands the big batch's gradients to the optimizer and starts over.

        Returns:
            A scalar bool tensor: whether the optimizer updated. It does not if the total weight is
            zero.
        """
        self._ready()
        with self._calls.one("apply", self._replicas):
            return self._replicas.across(self._apply)

    @no_autograph
    def step(self, gradients, weight=1.0):
        """accumulate(), and apply() once `steps` micro-batches are in; decides on the device.

        Returns:
            A scalar bool tensor: whether the optimizer updated.
        """
        if self._options.steps is None:
            raise _arguments.no_steps_error()
        self._ready_for(gradients)
        self._refuse_nothing(gradients)
        with self._calls.one("step", self._replicas):
            return self._apply_if_full(self._accumulate(gradients, weight), gradients)

    @no_autograph
    def reset(self):
        """Forgets the current cycle. Returns a scalar True."""
        self._ready()
        with self._calls.one("reset", self._replicas):
            ended = self._reduction.on_state(self._reduction.end)
            return ended if self._replicas.inside() else self._replicas.first(ended)

    @no_autograph
    def gradients(self):
        """The big batch's gradients so far, as apply() would hand them over; zeros if nothing came.

        Returns:
            A tensor, tf.IndexedSlices (each row once) or None for each variable. Eager code returns
            None for a variable without a gradient in this cycle, and a graph, which cannot know,
            zeros. What XLA compiles returns tensors alone.
        """
        self._ready()
        with self._calls.one("gradients", self._replicas):
            return self._replicas.across(self._gradients_so_far)

    @no_autograph
    def statistics(self):
        """What the last update knew, for an accumulator that was made with statistics=True.

        Returns:
            A namedtuple of scalar float64 tensors: gradient_norm before clipping, clip_factor,
            weight, micro_batches, and noise_scale, which is NaN until a cycle has had two
            micro-batches. Zeros before the first update.

        Raises:
            OptionError: the accumulator was made without statistics=True.
        """
        if not self._options.statistics:
            raise errors.OptionError(
                "statistics() tells of an accumulator that keeps them.",
                "one made without statistics=True",
                "Make it with Accumulator(..., statistics=True).",
            )
        self._ready()
        return self._replicas.in_scope(self._statistics.values)

    @property
    def micro_count(self):
        """Micro-batches handed in in the current cycle."""
        return self._read("micro_count")

    @property
    def total_weight(self):
        """Their total weight, a float64 tensor: on this replica inside one, on all outside."""
        self._ready()
        return self._replicas.in_scope(self._cycle.weight)

    @property
    def update_count(self):
        """Updates of the optimizer so far."""
        return self._read("update_count")

    @property
    def skipped_count(self):
        """Micro-batches that nonfinite="skip" has dropped so far."""
        return tf.cast(tf.round(self._read("skipped_count")), tf.int64)

    @property
    def steps(self):
        """Micro-batches that the cycle at hand is to have; None where apply() ends each cycle.

        An int, and for a schedule a scalar int64 tensor.
        """
        given = self._options.steps
        if given is None or not (callable(given) or isinstance(given, dict)):
            return given
        return _arguments.steps_of_cycle(given, self.update_count)

    def __setattr__(self, name, value):
        _arguments.is_no_option(name, value)
        super(Accumulator, self).__setattr__(name, value)

    # Getting ready

    @no_autograph
    def build(self):
        """Makes the state and the optimizer's own now, instead of at the first use."""
        self._ready()

    def __repr__(self):
        optimizer = type(self._target.optimizer).__name__
        known = self._target.variables
        return "<Accumulator {!r}: {}, {}, steps={!r}, loss_reduction={!r}>".format(
            self.name,
            optimizer,
            "variables not built yet" if known is None else "{} variables".format(len(known)),
            self._options.steps,
            self._options.loss_reduction,
        )

    @no_autograph
    def _read(self, counter):
        self._ready()
        return self._replicas.in_scope(tf.identity, getattr(self._cycle, counter))

    def _ready(self):
        if self._cycle is None:
            self._build()
        self._replicas.check()

    def _ready_for(self, gradients):
        fresh = self._cycle is None
        self._ready()
        if fresh and self._recorder is not None:
            self._recorder.gradients_came_first(gradients)

    def _build(self):
        """Makes the state, the optimizer's too: a tf.cond could not make variables later."""
        variables = self._target.ask()
        optimizers.check(variables)
        self._replicas.settle(variables)
        _replicas.served_by(self._replicas.strategy)
        _arguments.skip_is_exact(self._options, self._replicas.count)
        _arguments.one_engine(self._options, self._replicas.count)
        BACKEND.at_top_level(lambda: self._replicas.in_scope(self._make_state))
        if self._recorder is not None:
            self._recorder.built()

    def _make_state(self):
        target, replicas = self._target, self._replicas
        if replicas.count == 1 or not replicas.inside():
            target.make_optimizer_state()
        with tf.name_scope(""):
            cycle = Cycle(target.raw, self._options.dtype, self.name)
            if self._options.statistics:
                self._statistics = _statistics.Statistics(self.name + "_statistics")
                saver.note_state(self._statistics.variables)
        saver.note_state(cycle.variables)
        self._reduction = _replicas.reduction_for(
            replicas, cycle, target.raw, self._reducer, self._statistics
        )
        self._cycle = cycle

    # Adding a micro-batch: check, weigh, add

    def _accumulate(self, gradients, weight):
        if not self._options.counts_weight:
            weight = 1.0
        gradients, weight = self._replicas.admit(gradients, weight, self._target.raw)
        with self._calls.one("accumulate", self._replicas):
            count = self._replicas.on_each(self._add_and_record, gradients, weight)
            return count if self._replicas.inside() else self._replicas.first(count)

    # On one replica

    def _add_and_record(self, gradients, weight):
        count = self._add(gradients, weight)
        if self._recorder is None:
            return count
        # After the micro-batch is added: each sum is added to as soon as its gradient is there.
        with control_dependencies([count] + self._recorder.micro_batch(gradients, weight, count)):
            return tf.identity(count)

    def _add(self, gradients, weight):
        with control_dependencies(_arguments.device_checks(gradients, weight, self._target.raw)):
            weight = _arguments.nan_if_unsound(weight)
            layout = self._cycle.layout
            gradients = _gradients.as_addends(gradients, layout.shapes, layout.dtypes)
            weighed, factor, weight, dropped = self._weigh(gradients, weight)
            if self._statistics is None:
                return self._reduction.add(weighed, factor, weight, dropped)
            with control_dependencies(self._note_squares(gradients, weight)):
                return self._reduction.add(weighed, factor, weight, dropped)

    def _weigh(self, gradients, weight):
        """What the gradients are multiplied by, and with nonfinite="skip" whether to drop them."""
        one = isinstance(weight, float) and weight == 1.0
        by_weight = self._options.loss_reduction in ("mean", "global_mean") and not one
        factor = weight if by_weight else None
        if self._options.nonfinite != "skip":
            return gradients, factor, weight, None
        gradients = _gradients.scale(gradients, factor)
        dropped = tf.logical_not(_gradients.all_finite(gradients))
        weight = _gradients.as_dtype(weight, tf.float64)
        weight = tf.compat.v2.where(dropped, tf.zeros_like(weight), weight)
        return _gradients.nothing_if(dropped, gradients), None, weight, dropped

    def _note_squares(self, gradients, weight):
        """For the statistics, before the gradients are weighted and added."""
        reduction = self._options.loss_reduction
        shared = float(self._replicas.count) if reduction == "global_mean" else 1.0
        return self._statistics.add(gradients, weight, reduction == "sum", shared)

    def _refuse_nothing(self, gradients):
        """Says that nothing can train, as the plain optimizer does, where it is sure."""
        # Other replicas and workers may have gradients.
        several = self._replicas.count > 1 or self._reduction.several_processes
        if several or not isinstance(gradients, (list, tuple)):
            return
        if all(each is None for each in gradients) and not self._cycle.known():
            raise _arguments.nothing_has_a_gradient(self._target.raw)

    # Ending a cycle. From here on everything is called once for all replicas.

    def _apply_if_full(self, count, gradients=None):
        """apply(), where this count of micro-batches makes a cycle."""
        at_boundary = functools.partial(self._apply_at_boundary, self._sure_to_have_one(gradients))
        with self._calls.one("apply", self._replicas):
            return self._replicas.across(at_boundary, count)

    def _apply_at_boundary(self, sure, count):
        self._target.make_optimizer_state()
        steps = _arguments.steps_of_cycle(
            self._options.steps, _state.read(self._cycle.update_count)
        )
        full = self._replicas.first(count) >= steps
        if tf.executing_eagerly() or self._reduction.reduces:
            # What is reduced is reduced at the end of a cycle alone.
            apply_ = functools.partial(self._apply, sure=sure, steps=steps)
            return tf.cond(full, apply_, lambda: tf.constant(False))
        # Conditionals side by side: each passes on all that the update reads, and one inside
        # another took 30 MB more for 129 variables and Adam (TensorFlow 2.21 and 2.15).
        return self._apply(full, sure, steps)

    def _apply(self, full=None, sure=None, steps=None):
        """Ends a cycle: summarise, reduce, normalise and clip, hand over, start over.

        Args:
            full: in a graph, ends the cycle where this holds; None to end it in any case.
            sure: positions of the variables that are sure to have a gradient in the cycle.
            steps: of the cycle, if they decide about its end.
        """
        self._target.make_optimizer_state()
        if full is None:
            summary = self._summarise(True, sure, steps)
        else:
            summary = self._summarise_where(full, sure, steps)
        updated, finite = self._where_due(
            summary.due,
            lambda: self._update(summary),
            lambda: [tf.constant(False), tf.constant(True)],
        )
        ended = self._start_over(updated, full, summary.whole)
        with control_dependencies(ended):
            # On all replicas: a check that raises stops what has not run by then.
            raised = self._checks_of_cycle(summary)
            if self._options.nonfinite == "raise":
                raised.append(_arguments.on_device(finite, _arguments.nonfinite_error))
        with control_dependencies(raised + ended):
            return tf.identity(updated)

    def _where_due(self, due, update, skip):
        """tf.cond(due, update, skip); in a graph it is one op, where one replica holds all sums."""
        if tf.executing_eagerly() or self._replicas.count > 1 or self._reduction.reduces:
            return tf.cond(due, update, skip)
        variables = list(self._target.raw) + list(self._cycle.variables)
        return BACKEND.cond_in_one_op(due, update, skip, variables)

    def _summarise(self, ending, sure, steps=None):
        """What decides about the cycle, from one small reduction: the same on every replica.

        Args:
            ending: whether the cycle is about to be ended.
            sure: as for _apply.
            steps: the same.
        """
        known = [] if tf.executing_eagerly() else self._cycle.known()
        total, parts = self._reduction.summarise(ending, 0 if steps is None else steps)
        count = len(self._target.raw)
        weight, marks, squares = total[0], total[2 : 2 + count], total[2 + count :]
        whole, restored = _state.is_whole(weight), _state.has_this_layout(weight)
        came = _state.came(marks)
        due, usual, compiled = weight > 0, None, False
        if tf.executing_eagerly():
            self._cycle.learn_from_marks(marks.numpy())
            known = sure = [index for index, each in enumerate(came.numpy()) if each]
        else:
            usual, sure = self._as_traced(came, known, sure)
            compiled = compiled_by_xla()
        if compiled:
            # XLA drops checks: there the weight is NaN, and with it the update, not silently none.
            weight = _arguments.nan_unless(restored, _arguments.nan_if_no_steps(weight, steps))
            due = tf.logical_or(weight > 0, tf.math.is_nan(weight))
        due = tf.logical_and(due, tf.reduce_any(came))
        sure = frozenset(sure)
        return _Summary(
            whole, restored, due, weight, marks, came, squares, usual, known, sure, compiled, parts
        )

    def _summarise_where(self, full, sure, steps):
        """The same where the cycle is full, in a graph. Elsewhere none of it runs: no check fails,
        and nothing is due."""
        made = []

        def summarise():
            made.append(self._summarise(True, sure, steps))
            return made[0].tensors()

        tensors = cond_list(full, summarise, lambda: made[0].nothing_due())
        return made[0].with_tensors(tensors)

    def _checks_of_cycle(self, summary):
        return [
            _arguments.on_device(summary.whole, _arguments.incomplete_error),
            _arguments.on_device(summary.restored, _arguments.former_layout_error),
        ]

    def _as_traced(self, came, known, sure):
        """Whether the device finds what is known while a graph is built; and what is sure then.

        An unknown variable may have its first gradient later. Where apply() is traced by itself,
        micro-batches come from elsewhere, and may be the first without a gradient for a variable.
        """
        unknown = sorted(set(range(len(self._target.raw))).difference(known))
        surprises = [tf.reduce_any(tf.gather(came, unknown))] if unknown else []
        if sure is None:
            always = self._cycle.layout.always
            sure = [index for index in known if always[index]]
            if sure:
                surprises.append(tf.logical_not(tf.reduce_all(tf.gather(came, sure))))
        if not surprises:
            return None, sure
        return tf.logical_not(tf.reduce_any(tf.stack(surprises))), sure

    def _update(self, summary):
        """Returns whether the optimizer updated, and whether the gradients were finite."""
        summary = summary._replace(parts=self._reduction.ahead_of_conditionals(summary.parts))
        if summary.usual is None:
            return self._update_by(summary, summary.known)
        everything = range(len(self._target.variables))
        return tf.cond(
            summary.usual,
            lambda: self._update_by(summary, summary.known),
            lambda: self._update_by(summary._replace(sure=()), everything),
        )

    def _update_by(self, summary, indices):
        replicas, indices = self._replicas, tuple(indices)
        sums = self._reduction.sums(summary.parts, summary.marks, indices)
        normalise = functools.partial(self._normalised_and_noted, summary, indices)
        hand_over = functools.partial(self._hand_over, summary)
        if self._options.nonfinite != "raise":
            # In one call: under MirroredStrategy each way to the replicas may take TensorFlow a
            # second, in eager code and when a graph is built.
            both = functools.partial(self._normalise_and_hand_over, summary, indices)
            return [replicas.first(replicas.on_each(both, sums)), tf.constant(True)]
        gradients = replicas.on_each(normalise, sums)
        finite = replicas.first(replicas.on_each(_gradients.all_finite, gradients))
        updated = tf.cond(
            finite,
            lambda: replicas.first(replicas.on_each(hand_over, gradients)),
            lambda: tf.constant(False),
        )
        return [updated, finite]

    # On one replica

    def _divided(self, summary, indices, sums):
        """The sums over all replicas, divided by their weight. The one place that divides.

        Args:
            summary: the cycle's summary.
            indices: the positions that are wanted.
            sums: over all replicas, or None where this one reads its own.
        """
        weight = self._weight_of_all(summary)
        if sums is None:
            sums = self._cycle.own_sums(indices)
        else:
            sums = self._cycle.only(sums, indices)
        if self._options.counts_weight:
            sums = _gradients.divide(sums, weight)
        return self._cycle.parted(sums, indices)

    def _weight_of_all(self, summary):
        """The cycle's weight: each replica of a global mean has counted the same micro-batches."""
        shared = self._options.loss_reduction == "global_mean"
        return summary.weight / self._replicas.count if shared else summary.weight

    def _clipped(self, gradients):
        options = self._options
        if options.adaptive_clip is not None:
            gradients = _gradients.clip_adaptively(
                gradients, self._target.raw, options.adaptive_clip
            )
        if options.clip_norm is not None:
            gradients = _gradients.clip_by_global_norm(gradients, options.clip_norm)
        return gradients

    def _normalised(self, summary, indices, sums):
        """The big batch's gradients: divided, clipped, in the variables' dtypes."""
        gradients = self._clipped(self._divided(summary, indices, sums))
        return _gradients.cast(gradients, self._target.dtypes)

    def _normalised_and_noted(self, summary, indices, sums):
        """The same, and what the statistics say of it."""
        if self._statistics is None:
            return self._normalised(summary, indices, sums)
        divided = self._divided(summary, indices, sums)
        clipped = self._clipped(divided)
        # Where nothing is divided, the mean gradient is that of a micro-batch.
        mean = 1.0 if self._options.counts_weight else tf.maximum(summary.squares[1], 1)
        before = _statistics.global_norm(divided)
        kept = tf.compat.v2.where(before > 0, _statistics.global_norm(clipped) / before, 1.0)
        note = functools.partial(self._note_update, summary)
        noted = self._reduction.on_state(note, before / mean, kept * before / mean)
        with control_dependencies([noted]):
            gradients = _gradients.with_values(tf.identity, clipped)
        return _gradients.cast(gradients, self._target.dtypes)

    def _note_update(self, summary, before, clipped):
        first = self._replicas.first
        return self._statistics.update(
            summary.squares, self._weight_of_all(summary), first(before), first(clipped)
        )

    def _normalise_and_hand_over(self, summary, indices, sums):
        gradients = self._normalised_and_noted(summary, indices, sums)
        again = None
        if self._options.clip_norm is None:
            again = functools.partial(self._normalised_alone, summary, sums)
        return self._hand_over(summary, gradients, again)

    def _normalised_alone(self, summary, sums, index):
        return self._normalised(summary, (index,), sums)[index]

    def _hand_over(self, summary, gradients, again=None):
        """Calls the optimizer with the variables that have a gradient.

        Args:
            summary: the cycle's summary.
            gradients: what the optimizer gets.
            again: function that makes the gradient at a position once more, or None.
        """
        wanted = [index for index, each in enumerate(gradients) if each is not None]
        if not wanted:
            return tf.constant(False)
        updates = [
            Update(
                self._target.variables[index],
                self._target.raw[index],
                gradients[index],
                again=None if again is None else functools.partial(again, index),
                came=None if index in summary.sure else summary.came[index],
                touched=self._cycle.touched(index) if summary.compiled else None,
            )
            for index in wanted
        ]
        if self._recorder is None:
            updated = optimizers.apply_gradients(self._target.optimizer, updates)
        else:
            recorded = self._recorder.before(gradients, summary.weight, summary.came)
            with control_dependencies(recorded):
                updated = optimizers.apply_gradients(self._target.optimizer, updates)
            with control_dependencies(updated):
                updated = updated + self._recorder.after()
        with control_dependencies(updated):
            return self._reduction.on_state(self._cycle.count_update)

    # Across the replicas again

    def _start_over(self, updated, full, whole):
        """Forgets the cycle, after the update, where it is full."""
        if full is None:
            ended = self._reduction.on_state(self._reduction.end, whole, updated)
            return list(self._replicas.local(ended))
        with control_dependencies([updated]):
            full = tf.identity(full)
        return [only_if(full, functools.partial(self._end, whole))]

    def _end(self, whole):
        return [self._replicas.first(self._reduction.on_state(self._reduction.end, whole))]

    def _gradients_so_far(self):
        summary = self._summarise(False, ())
        indices = self._wanted(summary)
        checks = self._checks_of_cycle(summary)
        unknown = sorted(set(range(len(self._target.raw))).difference(indices))
        if unknown and not tf.executing_eagerly():
            late = tf.reduce_any(tf.gather(summary.came, unknown))
            checks.append(_arguments.on_device(tf.logical_not(late), _arguments.stale_error))
        with control_dependencies(checks):
            summary = summary._replace(
                weight=tf.identity(summary.weight),
                parts=self._reduction.ahead_of_conditionals(summary.parts),
            )
        if not indices:
            return [None] * len(self._target.raw)
        sums = self._reduction.sums(summary.parts, summary.marks, indices)
        return self._replicas.on_each(
            functools.partial(self._normalised_or_nothing, summary, indices), sums
        )

    def _wanted(self, summary):
        """The positions for which gradients() returns something."""
        layout = self._cycle.layout
        if tf.executing_eagerly():
            return tuple(summary.known or layout.known())
        # A graph cannot know what other workers have seen, nor what the first micro-batch brings.
        if self._reduction.several_processes or not layout.has_had_one:
            return tuple(range(len(self._target.raw)))
        return tuple(summary.known)

    def _normalised_or_nothing(self, summary, indices, sums):
        layout = self._cycle.layout
        # Divided by one where there is no weight: NaN would set off tf.debugging's numeric checks.
        alike = summary._replace(weight=tf.ones_like(summary.weight))
        gradients = _gradients.cond_gradients(
            summary.weight > 0,
            lambda: self._normalised(summary, indices, sums),
            lambda: _gradients.emptied(self._normalised(alike, indices, sums)),
        )
        gradients = _gradients.with_dense_shapes(gradients, layout.shapes)
        # The kind of a variable without a gradient so far is not known.
        return [
            tf.convert_to_tensor(each) if _gradients.is_rows(each) and kind is None else each
            for each, kind in zip(gradients, layout.kinds)
        ]

    def _sure_to_have_one(self, gradients):
        """The positions of the variables that have a gradient in this micro-batch, for a graph."""
        if tf.executing_eagerly() or not isinstance(gradients, (list, tuple)):
            return None
        # A micro-batch that is dropped gives no variable a gradient.
        always = self._cycle.layout.always
        return [
            index
            for index, each in enumerate(gradients)
            if each is not None and (self._options.nonfinite != "skip" or always[index])
        ]


def _recorder_of(accumulator):
    """What records each update, or None. Off, it imports nothing and adds no op."""
    if gradaccum_compat._recording is None and not os.environ.get("GRADACCUM_RECORD"):
        return None
    from gradaccum_compat.upgrade import _recorder  # which nothing else needs

    return _recorder.recorder_of(accumulator)


#: What a conditional can return of a _Summary: tensors.
_DECIDED = ("whole", "restored", "due", "weight", "marks", "came", "squares", "usual")


class _Summary(
    collections.namedtuple("_Summary", _DECIDED + ("known", "sure", "compiled", "parts"))
):
    """What decides about a cycle.

    Attributes:
        whole: whether no micro-batch failed halfway.
        restored: whether the cycle began in this layout of the state.
        due: whether an update is due.
        weight: of all replicas.
        marks: of each variable, see Cycle.summary.
        came: whether each variable had a gradient.
        squares: what the statistics need.
        usual: whether the device finds `known` and `sure` to be so; None if it does for certain.
        known: the positions of the variables that have had a gradient.
        sure: of those that are sure to have one in this cycle.
        compiled: whether XLA compiles the update.
        parts: what is reduced if an update is due.
    """

    __slots__ = ()

    def tensors(self):
        return [getattr(self, name) for name in self._made()]

    def with_tensors(self, tensors):
        return self._replace(**dict(zip(self._made(), tensors)))

    def nothing_due(self):
        """Such tensors of a cycle that is not ended: both checks hold, and no update is due."""
        make = {"whole": tf.ones, "restored": tf.ones}
        return [
            make.get(name, tf.zeros)(each.shape, each.dtype)
            for name, each in zip(self._made(), self.tensors())
        ]

    def _made(self):
        return [name for name in _DECIDED if getattr(self, name) is not None]


class _Target(object):
    """The optimizer and the variables, which may be a callable that is asked at the first use.

    Neither is trackable by tf.train.Checkpoint here: the model and the optimizer are saved by
    themselves.

    Attributes:
        optimizer: the optimizer.
        variables: as they were given, for the optimizer.
        raw: TensorFlow's own, where those are Keras 3's.
        shapes: a tf.TensorShape for each.
        dtypes: a tf.DType for each, never a reference's.
    """

    def __init__(self, optimizer, variables):
        self.optimizer = optimizer
        self._given = variables
        self._has_state = False
        self.variables = None
        # A model is callable too, and refused. The class is asked: TF 1.14 raises where the model
        # is not built yet.
        if not callable(variables) or hasattr(type(variables), "trainable_variables"):
            self._take(variables)

    def ask(self):
        if self.variables is None:
            self._take(self._given())
        return self.raw

    def make_optimizer_state(self):
        """To be called outside of the replicas.

        Estimator's model functions are inside when an accumulator is made: the update comes later.
        """
        if not self._has_state:
            with tf.init_scope():
                optimizers.create_state(self.optimizer, self.variables)
            self._has_state = True

    def _take(self, variables):
        # Once, and not in every call: with 400 variables each of these lists takes a millisecond in
        # eager code.
        self.variables = _arguments.variables(variables)
        self.raw = [_arguments.raw_variable(each) for each in self.variables]
        self.shapes = [tf.TensorShape(each.shape) for each in self.raw]
        self.dtypes = [tf.as_dtype(each.dtype).base_dtype for each in self.raw]


class _Calls(object):
    """Eager calls: one at a time, and none after one that was interrupted until reset()."""

    def __init__(self):
        self._lock = threading.RLock()
        self._interrupted = None

    def __reduce__(self):
        return _Calls, ()  # a copy has a lock of its own

    def one(self, name, replicas):
        # A graph runs later: the device finds what was interrupted.
        return _Call(self, name, replicas) if tf.executing_eagerly() else NOTHING


class _Call(object):

    def __init__(self, calls, name, replicas):
        self._calls, self._name = calls, name
        # Replicas are threads that wait for one another inside the call.
        self._locks = not (replicas.count > 1 and replicas.inside())

    def __enter__(self):
        if self._locks:
            self._calls._lock.acquire()
        interrupted = self._calls._interrupted
        if interrupted is not None and self._name != "reset":
            self._release()
            raise _arguments.interrupted_error(interrupted)

    def __exit__(self, kind, error, trace):
        if kind is None:
            if self._name == "reset":
                self._calls._interrupted = None
        elif self._name != "gradients" and not issubclass(kind, errors.GradAccumError):
            # Our own errors come before anything is written, or when all is.
            self._calls._interrupted = self._calls._interrupted or self._name
        self._release()

    def _release(self):
        if self._locks:
            self._calls._lock.release()
