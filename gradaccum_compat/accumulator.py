"""Accumulator: gradient accumulation, written once for every TensorFlow.

The algorithm stands here; where state lives is in _cycle.py, what is done to gradients in _algebra.py,
what differs between TensorFlows in backends/ and between optimizers in optimizers/.
"""

from __future__ import absolute_import, division, print_function

import functools

import tensorflow as tf

from gradaccum_compat import _algebra, _checks, _micro_batch, _options, _shares, optimizers, saver
from gradaccum_compat._big_batch import big_batch
from gradaccum_compat._cycle import Cycle
from gradaccum_compat._gradient_sum import GradientSum
from gradaccum_compat._home import Home
from gradaccum_compat._layout import is_dense
from gradaccum_compat._order import after, following, only_if
from gradaccum_compat._reduced import reductions_done
from gradaccum_compat._target import Target
from gradaccum_compat.backends import BACKEND
from gradaccum_compat.backends.base import no_autograph


class Accumulator(tf.Module):
    """Adds up the gradients of micro-batches and lets the optimizer move once per cycle.

    Every call works in eager code, inside tf.function, and in a TF 1 graph, where it returns a tensor
    and running that tensor performs the call.

    Example:
        >>> accumulator = ga.Accumulator(optimizer, model.trainable_variables, steps=4)   # doctest: +SKIP
        >>> accumulator.step(tape.gradient(loss, model.trainable_variables), weight=len(x))  # doctest: +SKIP

    Args:
        optimizer: anything with apply_gradients.
        variables: non-empty list or tuple of variables, or a callable that returns one and is asked at
            the first use, for a model that is built on its first call.
        steps: how many micro-batches make a cycle, for step().
        loss_reduction: how the loss was reduced whose gradients are handed in: "mean" over the replica's
            micro-batch, "sum" over it, "global_mean" over the micro-batch of all replicas, or "none" to
            add up and divide by nothing.
        dtype: dtype of the sums, "float32" or "float64"; variables of float64 have float64 sums anyway.
        clip_norm: largest global norm of the gradients that the optimizer gets.
        nonfinite: "propagate" NaN and infinity, "skip" micro-batches that hold them, or "raise" at apply().
        reducer: function that takes a list of tensors and returns their sums over all workers, such as
            ga.horovod.sum_over_workers.
        name: prefix of the state's variable names.
        adaptive_clip: how long the gradient of a unit of a layer may be, as a share of its weights' length:
            adaptive gradient clipping. Comes before clip_norm.

    Raises:
        GradAccumError: one of its subclasses, for an argument that cannot be used.
    """

    def __init__(self, optimizer, variables, steps=None, loss_reduction="mean", dtype="float32",
                 clip_norm=None, nonfinite="propagate", reducer=None, name="accumulator", adaptive_clip=None):
        super(Accumulator, self).__init__(name=name)
        self._options = _options.Options(
            steps=steps, loss_reduction=loss_reduction, dtype=dtype, clip_norm=clip_norm, nonfinite=nonfinite,
            reducer=reducer, adaptive_clip=adaptive_clip)
        self._target = Target(_checks.optimizer(optimizer), variables)
        self._home = Home(self._options.reducer, self.name)
        self._cycle = None
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
        self._ready()
        gradients, weight = self._home.admit(
            gradients, 1.0 if self._options.loss_reduction == "none" else weight, self._target.raw)
        return self._home.in_replica_or_one(self._accumulate, gradients, weight)

    @no_autograph
    def apply(self):
        """Hands the big batch's gradients to the optimizer and starts over.

        Returns:
            A scalar bool tensor: whether the optimizer moved. It does not if the total weight is zero.
        """
        self._ready()
        return self._home.across_replicas(self._apply)

    @no_autograph
    def step(self, gradients, weight=1.0):
        """accumulate(), and apply() once `steps` micro-batches are in; decides on the device.

        Returns:
            A scalar bool tensor: whether the optimizer moved.
        """
        _options.has_steps(self._options.steps)
        return self._apply_if_full(self.accumulate(gradients, weight))

    @no_autograph
    def reset(self):
        """Forgets the current cycle. Returns a scalar True."""
        self._ready()
        return self._home.in_replica_or_one(self._end)

    @no_autograph
    def gradients(self):
        """The big batch's gradients so far, as apply() would hand them over; zeros if nothing came in.

        Returns:
            A tensor, tf.IndexedSlices (each row once) or None for each variable.
        """
        self._ready()
        # Where workers differ, one that knows of nothing takes part in the reduction like the others.
        if not self._cycle.known() and _shares.layout_of(self._home) != Cycle.WHOLE:
            return [None] * len(self._target.variables)
        return self._home.across_replicas(self._gradients_so_far)

    @property
    def micro_count(self):
        """Micro-batches handed in in the current cycle."""
        return self._read("micro_count")

    @property
    def total_weight(self):
        """Their total weight on this replica; outside of the replicas, or where those share it, on all of them."""
        return self._read("total_weight")

    @property
    def update_count(self):
        """Updates of the optimizer so far."""
        return self._read("update_count")

    @property
    def skipped_count(self):
        """Micro-batches that nonfinite="skip" has dropped so far."""
        return tf.cast(tf.round(self._read("skipped_count")), tf.int64)

    # Getting ready

    @no_autograph
    def build(self):
        """Makes the state and the optimizer's own now, instead of at the first use."""
        self._ready()

    @no_autograph
    def _read(self, counter):
        self._ready()
        return self._home.in_scope(lambda: tf.identity(getattr(self._cycle, counter)))

    def _ready(self):
        if self._cycle is None:
            self._build()
        self._home.check()

    def _build(self):
        """Makes the state, the optimizer's too: a tf.cond could not make variables later."""
        variables = self._target.ask()
        optimizers.check(variables)
        self._home.settle(variables, self._options)
        BACKEND.at_top_level(lambda: self._home.in_scope(self._make_state))

    def _make_state(self):
        with tf.name_scope(""):
            self._cycle = Cycle(
                self._target.raw, self._options.dtype, self.name)
        saver.note_state(self._cycle.variables)
        if self._home.replicas == 1 or not self._home.inside_replica():
            self._target.make_optimizer_state()

    def _accumulate(self, gradients, weight):
        """Adds a micro-batch on one replica."""
        with after(_micro_batch.device_checks(gradients, weight, self._target.raw)):
            gradients, factor, weight, skipped = _micro_batch.prepare(
                gradients, weight, self._target.shapes, self._cycle.dtypes, self._options)
            if not self._home.shares_state:
                return self._cycle.add(gradients, factor, weight, skipped)
            return self._home.at_state(
                self._add_of_all_replicas, _algebra.scale(gradients, factor), weight, skipped)

    def _add_of_all_replicas(self, gradients, weights, skipped):
        gradients = [GradientSum(self._home.of_each(each)).value() for each in gradients]
        skipped = None if skipped is None else sum(self._home.of_each(skipped))
        return self._cycle.add(gradients, None, sum(self._home.of_each(weights)), skipped)

    def _end(self):
        return self._home.at_state(self._cycle.end)

    def _apply_if_full(self, count):
        return self._home.across_replicas(self._apply_at_boundary, count)

    # Ending a cycle: everything from here on is called once for all replicas

    def _apply_at_boundary(self, count):
        self._target.make_optimizer_state()
        full = self._home.one_of(count) >= self._options.steps
        if tf.executing_eagerly() or not self._home.is_alone():
            # What is reduced, is reduced at the end of a cycle alone.
            return tf.cond(full, self._apply, lambda: tf.constant(False))
        # Conditionals side by side: each passes on all that the update reads, and one in another took 30 MB more for
        # 129 variables and Adam (TensorFlow 2.21 and 2.15).
        return self._apply(full)

    def _apply(self, full=None):
        """Ends a cycle; in a graph, where `full` holds if that is given."""
        self._target.make_optimizer_state()
        shares = _shares.where(full, self._shares([full]))
        moved, finite = _algebra.cond_list(
            shares.due, lambda: self._update(shares), lambda: [tf.constant(False), tf.constant(True)])
        # On all replicas, not on one of them: the check that raises stops what has not run by then.
        ended = self._ended(moved, full)
        with after(ended):
            raised = [_checks.on_device(shares.intact, _checks.incomplete_error())]
            if self._options.nonfinite == "raise":
                raised.append(_checks.on_device(finite, _checks.nonfinite_error()))
        with after(raised + ended):
            return tf.identity(moved)

    def _ended(self, moved, full):
        if full is None:
            return list(self._home.shares(self._home.on_replicas(following([moved], self._end))))
        with after([moved]):
            full = tf.identity(full)
        return [only_if(full, lambda: [self._home.one_of(self._home.on_replicas(self._end))])]

    def _shares(self, before=()):
        return _shares.collect(self._cycle, self._home, self._target.raw, before)

    def _reduced(self, shares, indices):
        return _shares.reduced(shares, indices, self._cycle, self._home, self._target.raw)

    def _update(self, shares):
        """Returns whether the optimizer moved, and whether the gradients were finite."""
        shares = _shares.added_up_whole(shares, self._home, self._target.raw)
        if shares.late is None:
            return self._move(shares, shares.known)
        # A graph that was built before one of the variables had its first gradient may find one here.
        everything = range(len(self._target.variables))
        return _algebra.cond_list(
            shares.late, lambda: self._move(shares, everything), lambda: self._move(shares, shares.known))

    def _move(self, shares, indices):
        given = self._reduced(shares, indices), shares.total, tuple(indices)
        if self._options.nonfinite != "raise":
            return [self._home.one_of(self._home.on_replicas(self._normalise_and_hand_over, *given)), tf.constant(True)]
        gradients = self._home.on_replicas(self._big_batch, *given)
        finite = self._home.one_of(self._home.on_replicas(_algebra.all_finite, gradients))
        hand_over = lambda: self._home.one_of(self._home.on_replicas(self._hand_over, gradients, {}))
        return [tf.cond(finite, hand_over, lambda: tf.constant(False)), finite]

    def _big_batch(self, sums, total, indices):
        sums = self._cycle.own_sums(indices) if sums is None else _algebra.only(sums, indices)
        return big_batch(sums, total, self._home.replicas, self._target, self._options)

    def _normalise_and_hand_over(self, sums, total, indices):
        # In one go: under MirroredStrategy each way to the replicas may take TensorFlow a second, in eager code
        # and when a graph is built, since its coordinator looks once a second whether their threads are done.
        gradients = self._big_batch(sums, total, indices)
        alone = lambda index: self._big_batch(sums, total, (index,))[index]
        # Rows are looked for once: they are few, and looking for them is most of making them.
        return self._hand_over(gradients, {} if self._options.clip_norm is not None else {
            id(gradient): functools.partial(alone, index) for index, gradient in enumerate(gradients)
            if is_dense(gradient)})

    def _hand_over(self, gradients, anew):
        """Calls the optimizer on each replica, with the variables that have a gradient, and anew as it takes it."""
        pairs = [pair for pair in zip(gradients, self._target.variables) if pair[0] is not None]
        if not pairs:
            return tf.constant(False)
        with reductions_done():
            updated = optimizers.apply_gradients(self._target.optimizer, pairs, anew)
        with after([updated]):
            return self._home.at_state(self._cycle.count_update)

    def _gradients_so_far(self):
        shares = self._shares()
        with after([_checks.on_device(shares.intact, _checks.incomplete_error())]):
            shares = _shares.added_up_whole(
                shares._replace(total=tf.identity(shares.total)), self._home, self._target.raw)
        indices = shares.known
        if _shares.layout_of(self._home) == Cycle.WHOLE and not tf.executing_eagerly():
            indices = range(len(self._target.variables))  # a graph cannot know what other workers have seen
        return self._home.on_replicas(
            self._big_batch_or_nothing, self._reduced(shares, indices), shares.total, tuple(indices))

    def _big_batch_or_nothing(self, *given):
        gradients = _algebra.cond_gradients(
            given[1] > 0, lambda: self._big_batch(*given), lambda: _algebra.emptied(self._big_batch(*given)))
        return _algebra.with_dense_shapes(gradients, [shape.as_list() for shape in self._target.shapes])
