"""Cycle: what an accumulator remembers between two calls, and how a micro-batch is added to it.

The rule that keeps it fast: ending a cycle sets its counters and the small sums to zero and touches nothing
else. The first micro-batch of the next cycle is assigned over what large sums were left with (so that nothing
large is zero-filled, and no NaN survives), and cleans up where it has nothing dense to assign.
"""

from __future__ import absolute_import, division, print_function

import numpy as np
import tensorflow as tf

from gradaccum_compat import _algebra, _dense_sums
from gradaccum_compat._layout import DENSE, DENSE_MARK, SEEN, SLICES, SPARSE, Layout, is_dense
from gradaccum_compat._order import after, done, joined, only_if
from gradaccum_compat._touched_rows import TouchedRows
from gradaccum_compat.backends import BACKEND

SUM = tf.VariableAggregation.SUM
MEAN = tf.VariableAggregation.MEAN
SAME = tf.VariableAggregation.ONLY_FIRST_REPLICA


class Cycle(tf.Module):
    """The state. Attribute names and positions are the checkpoint's keys and stay as they are.

    Attributes:
        sums: for each variable the sum of its weighted gradients; meaningless while micro_count is 0, but for small ones.
        micro_count: micro-batches handed in in this cycle.
        total_weight: their weight on this replica; NaN while one is being added, and after one that failed meanwhile.
        update_count: updates of the optimizer so far.
        skipped_count: micro-batches that were dropped so far.
        seen: for each variable, whether it has ever had a gradient (above 0), and a dense one first (above 1).
        dense: for each variable of sparse gradients, whether its sum holds more than its touched rows (above 0).
        rows: the rows that sparse gradients have touched.
    """

    # How sums are handed to what reduces them.

    #: Not at all, where one replica is alone: whoever needs them reads them, and there is a micro-batch in them then.
    OWN = "own"
    #: Nothing where this replica got no micro-batch in this cycle: what they hold is left over from the last one.
    MASKED = "masked"
    #: The same, dense and followed by the flags, for workers that can only add up tensors of one shape. Every
    #: worker hands in the same list, whatever it has seen; what is sparse comes back as the rows touched anywhere.
    WHOLE = "whole"

    def __init__(self, variables, dtype, name):
        super(Cycle, self).__init__(name=name)
        self._layout = Layout(variables, dtype)
        self.sums = [self._state(shape, sum_dtype, "sum_%d" % index) for index, (shape, sum_dtype) in
                     enumerate(zip(self._layout.shapes, self._layout.dtypes))]
        self.micro_count = self._state([], tf.int64, "micro_count", SAME)
        self.total_weight = self._state([], self._layout.weight_dtype, "total_weight")
        self.update_count = self._state([], tf.int64, "update_count", SAME)
        # A float: TF 1.14 shares out what was summed over replicas by a multiplication, which an integer fails.
        self.skipped_count = self._state([], tf.float64, "skipped_count")
        self.seen = self._flags([len(variables)], "seen")
        self.dense = self._flags([len(variables)], "dense")
        self.rows = TouchedRows(self._layout.heights, self._flags)

    def _state(self, shape, dtype, label, aggregation=SUM):
        return BACKEND.state_variable(shape, dtype, "{}/{}".format(self.name, label), aggregation)

    def _flags(self, shape, label):
        return self._state(shape, tf.float32, label, MEAN)

    @property
    def dtypes(self):
        return self._layout.dtypes

    # Adding a micro-batch

    def add(self, gradients, factor, weight, skipped):
        """Adds one micro-batch on this replica, and returns how many the cycle has now.

        Args:
            gradients: gradients in the sums' dtypes.
            factor: what they are multiplied by, a number or a scalar tensor, or None for one.
            weight: what they add to the total weight.
            skipped: how many of what came in was dropped, a float64 tensor, or None where nothing ever is.
        """
        self._layout.learn(gradients)
        # A micro-batch that fails before it has gradients changes nothing: fit() ends an epoch by running the step
        # once more on an exhausted iterator.
        with after(_first_made(gradients)):
            count, total, seen = map(BACKEND.read, (self.micro_count, self.total_weight, self.seen))
            dense = None if self._layout.all_dense(gradients) else BACKEND.read(self.dense)
        first = tf.equal(count, 0)
        with after([count, total, seen, dense]):
            begun = joined(self._begin(first, gradients, seen, dense))
        with after(begun):
            written = _dense_sums.add(first, self.sums, gradients, self._layout.small, factor) + self._add_rows(
                gradients, factor)
        with after(begun + written):
            count = count + 1
            counted = self._count(count, total + tf.cast(weight, total.dtype), skipped)
        with after(counted):
            return tf.identity(count)

    def _begin(self, first, gradients, seen, dense):
        """Says that something is being added, with a total weight that is no number, and where to clean up after it.

        Each sum is added to as soon as its gradient is there and still in the processor's cache: four layers of 2048
        take 0.100 s a cycle that way, and 0.106 s if all wait for the last one (TensorFlow 2.21, 2 cores). So what
        fails halfway leaves a part of itself behind; the next update finds the weight and refuses the cycle.
        """
        cleaned = [] if dense is None else self._clean(first, gradients, seen > 0, dense > 0)
        with after(cleaned):
            return cleaned + self._flag(first, gradients, seen, dense) + [
                BACKEND.write(self.total_weight, tf.constant(np.nan, self._layout.weight_dtype))]

    def _count(self, count, total, skipped):
        counted = [BACKEND.write(self.micro_count, count), BACKEND.write(self.total_weight, total)]
        return counted if skipped is None else counted + [BACKEND.add(self.skipped_count, skipped)]

    def _add_rows(self, gradients, factor):
        ops = []
        slices = [None if is_dense(gradient) else gradient for gradient in gradients]
        for index, gradient in enumerate(_algebra.scale(slices, factor)):
            if type(gradient) is SLICES:
                ops.append(BACKEND.add_rows(self.sums[index], gradient.indices, gradient.values))
                if self._layout.kinds[index] == SPARSE:
                    ops.extend(self.rows.mark(index, gradient.indices))
        return ops

    def _flag(self, first, gradients, seen, dense):
        """Notes which variables had a gradient, and whose sums now hold more than touched rows."""
        kinds = [None if gradient is None else kind for gradient, kind in zip(gradients, self._layout.kinds)]
        flags = [BACKEND.write(self.seen, tf.maximum(seen, np.array([SEEN[kind] for kind in kinds], np.float32)))]
        if dense is None:
            return flags
        whole = [is_dense(gradient) or kind == DENSE for gradient, kind in zip(gradients, kinds)]
        kept = dense * (1 - tf.cast(first, tf.float32))
        return flags + [BACKEND.write(self.dense, tf.maximum(kept, np.array(whole, np.float32)))]

    # Cleaning up after the last cycle. Conditionals stand side by side here, not in one another: TF 1.14
    # loses the result of a branch that writes a variable which a branch inside it has read.

    def _clean(self, first, gradients, seen, dense):
        """At a cycle's first micro-batch, makes the sums zero that get no dense gradient to begin with."""
        ops = []
        for index, gradient in enumerate(gradients):
            if not is_dense(gradient):
                ops.extend(self._clean_one(index, first, seen[index], dense[index]))
        return ops

    def _clean_one(self, index, first, seen, dense):
        if self._layout.kinds[index] == DENSE and self._layout.small[index]:
            return []  # zero since the last cycle ended
        if self._layout.kinds[index] != SPARSE:
            return [only_if(tf.logical_and(first, seen), lambda: self._wipe(index))]
        return [only_if(tf.logical_and(first, dense), lambda: self._wipe(index)),
                only_if(tf.logical_and(first, tf.logical_not(dense)), lambda: self._wipe_touched(index))]

    def _wipe(self, index):
        zeros = tf.zeros(self._layout.shapes[index], self._layout.dtypes[index])
        return [BACKEND.write(self.sums[index], zeros)] + self.rows.clear_all(index)

    def _wipe_touched(self, index):
        rows, blocks = self.rows.touched(index)
        shape = tf.concat([tf.shape(rows), self._layout.shapes[index][1:]], 0)
        zeros = tf.zeros(shape, self._layout.dtypes[index])
        with after([BACKEND.set_rows(self.sums[index], rows, zeros)]):
            return self.rows.clear(blocks)

    # Reading

    def known(self):
        """The positions of the variables that have had a gradient, as far as can be known now."""
        return self._layout.known(self.seen)

    def known_to_all(self, marks):
        """The same, but on no worker alone: in eager code, where the sum of all workers' marks can be read."""
        self._layout.learn_marks(marks.numpy(), DENSE_MARK)
        return [index for index, mark in enumerate(marks.numpy()) if mark > 0]

    def share_and_sums(self, known, unknown, layout):
        """This replica's share, and its sums in a layout, None for a variable in neither list.

        The share is its total weight, its micro-batches, and a mark for each unknown variable: 0 if it has not
        seen a gradient of it, DENSE_MARK or more if a dense one came first.
        """
        total, seen = BACKEND.read(self.total_weight), tf.gather(BACKEND.read(self.seen), np.array(unknown, int))
        marks = tf.cast(seen > 0, total.dtype) + DENSE_MARK * tf.cast(seen > SEEN[SPARSE], total.dtype)
        share = tf.concat([[total, tf.cast(BACKEND.read(self.micro_count), total.dtype)], marks], 0)
        if layout == self.OWN:
            return share, []
        sums = {self.MASKED: self._masked_sums, self.WHOLE: self._whole_sums}[layout]
        return share, sums(known + unknown, share[1] > 0)

    def own_sums(self, indices):
        sums = [self._sum_of(index) if index in indices else None for index in range(len(self.sums))]
        return _algebra.with_dense_shapes(sums, self._layout.shapes)

    def _masked_sums(self, indices, came):
        if not indices:
            return self.own_sums(indices)
        own = lambda: self.own_sums(indices)
        sums = _algebra.cond_gradients(came, own, lambda: _algebra.emptied(own()))
        return _algebra.with_dense_shapes(sums, self._layout.shapes)

    def _whole_sums(self, indices, came):
        own = _algebra.cond_list(came, lambda: list(map(BACKEND.read, self.sums)),
                                 lambda: [tf.zeros_like(each) for each in self.sums])
        return own + [tf.cast(came, tf.float32) * BACKEND.read(each) for each in (self.dense, self.rows.flags)]

    def from_whole(self, whole, marks, indices):
        """The sums of all workers, None for a variable that is not among the indices, from whole ones added up.

        Args:
            whole: the whole layout, added up.
            marks: each variable's mark, added up.
            indices: the positions of the variables that are wanted.
        """
        dense, row_flags = whole[len(self.sums):]
        dense = tf.logical_or(dense > 0, marks >= DENSE_MARK)
        return [self._from_whole(index, whole[index], dense[index], row_flags) if index in indices else None
                for index in range(len(self.sums))]

    def _from_whole(self, index, total, dense, row_flags):
        if self._layout.kinds[index] == DENSE or not self._layout.heights[index]:
            return total
        touched = tf.logical_or(self.rows.of(index, row_flags) > 0, dense)
        rows = tf.reshape(tf.compat.v2.where(touched), [-1])
        return tf.IndexedSlices(tf.gather(total, rows), rows, tf.constant(self._layout.shapes[index], tf.int64))

    def _sum_of(self, index):
        """The sum: whole if the variable's gradients are dense, its touched rows otherwise.

        A graph that is older than the variable's first gradient cannot know which, and takes rows: all rows
        of what is dense, and none where nothing ever came in, which is as near to no gradient as a device gets.
        """
        if self._layout.kinds[index] == DENSE or not self._layout.heights[index]:
            return BACKEND.read(self.sums[index])
        dense = tf.logical_or(BACKEND.read(self.dense)[index] > 0, BACKEND.read(self.seen)[index] > SEEN[SPARSE])
        height = tf.constant(self._layout.heights[index], tf.int64)
        rows = tf.cond(dense, lambda: tf.range(height), lambda: self.rows.touched(index)[0])
        return tf.IndexedSlices(tf.gather(BACKEND.local(self.sums[index]), rows), rows)

    # Ending a cycle

    def end(self):
        """Forgets the cycle on this replica."""
        return done([BACKEND.write(self.micro_count, tf.zeros([], tf.int64)),
                     BACKEND.write(self.total_weight, tf.zeros([], self._layout.weight_dtype))] +
                    _dense_sums.zero_small(self.sums, self._layout))

    def count_update(self):
        return done([BACKEND.add(self.update_count, tf.ones([], tf.int64))])


def _first_made(gradients):
    """What backpropagation makes first, when the whole forward pass is over: the last variable's gradient.

    A matrix's: that of a vector may be a constant, which waits for nothing.
    """
    values = _algebra.values(gradients)
    return [each for each in values if (each.shape.ndims or 0) > 1][-1:] or values
