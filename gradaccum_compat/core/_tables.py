"""Tables: sums of several workers that are sent as rows where rows are fewer bytes.

Each worker tells in the cycle's small reduction how many rows of a table it has. So all decide
alike: the touched rows of all workers, one worker after another; or the whole table, and flags that
tell the touched rows; or the whole table alone after a dense gradient.

TensorFlow numbers the workers' reductions while graphs are built, to tell them apart. So every
worker builds all of these branches for the same tables, whatever gradients it has seen.
"""

from __future__ import absolute_import, division, print_function

import collections

import numpy as np
import tensorflow as tf

from gradaccum_compat.core import _gradients, _state
from gradaccum_compat.core._graph import cond_list
from gradaccum_compat.core._state import DENSE, DENSE_MARK

#: Elements from which on a sum is a table: 4 MiB of float32, which are a pack of their own in a
#: reduction. The branches of each table take a graph 0.05 s more to be built.
SMALLEST = 2**20

#: How many rows a replica has after a dense gradient: more than can be touched.
_ALL_ROWS = 1e18

#: What each replica has: whether there was a micro-batch, and the touched rows of each table.
Own = collections.namedtuple("Own", ["came", "rows"])


class Tables(object):
    """The tables among an accumulator's sums.

    Args:
        cycle: the accumulator's state.
        replicas: its Replicas.
        reduce: function that sums values over all replicas, given a list of them, the positions of
            their variables, and a name.
        gather: function that is given a value and a name, and returns the rows of all replicas, one
            replica after another; None where workers cannot send uneven numbers of rows.

    Attributes:
        indices: the tables' positions among the sums, the same on every worker.
    """

    def __init__(self, cycle, replicas, reduce, gather):
        self._cycle, self._layout, self._replicas = cycle, cycle.layout, replicas
        self._reduce, self._gather = reduce, gather
        self.indices = [
            index
            for index, height in enumerate(self._layout.heights)
            if gather
            and height
            and self._elements(index) >= SMALLEST
            and not self._layout.small[index]
        ]

    def _elements(self, index):
        return int(np.prod(self._layout.shapes[index]))

    # On a replica, before the small reduction

    def own(self):
        """How many rows of each table this replica has, and what it has."""
        came = _state.read(self._cycle.micro_count) > 0
        dense = self._cycle.had_dense()
        counts, rows = [], []
        for index in self.indices:
            touched = self._touched(index, tf.logical_and(came, tf.logical_not(dense[index])))
            count = tf.size(touched, out_type=tf.int64)
            all_rows = tf.cast(tf.logical_and(came, dense[index]), tf.float64) * _ALL_ROWS
            counts.append(tf.reshape(tf.cast(count, tf.float64) + all_rows, [1]))
            rows.append(touched)
        return counts, Own(came, rows)

    def _touched(self, index, wanted):
        nothing = tf.zeros([0], tf.int64)
        if self._layout.kinds[index] == DENSE:
            return nothing
        return tf.cond(wanted, lambda: self._cycle.rows.touched(index)[0], lambda: nothing)

    # Across the replicas, once an update is due

    def sums(self, own, counts, marks):
        """The sum of each table over all workers, by position: rows, or a tensor where it is known
        to be dense.

        Args:
            own: what each replica has.
            counts: of the rows of each table, added up.
            marks: of the tables, added up.
        """
        each = zip(self.indices, own.rows, counts, marks)
        return dict((one[0], self._sum(own.came, *one)) for one in each)

    def _sum(self, came, index, rows, count, mark):
        dense = mark >= DENSE_MARK
        rows_alone = tf.logical_and(self._fewer_as_rows(index, count), tf.logical_not(dense))
        parts = cond_list(
            rows_alone,
            lambda: self._of_rows(index, came, rows),
            lambda: cond_list(
                tf.logical_or(dense, count >= _ALL_ROWS),
                lambda: self._of_all(index, came),
                lambda: self._of_flagged(index, came),
            ),
        )
        if self._layout.kinds[index] == DENSE:
            return self._replicas.as_local(parts, came)
        return tf.IndexedSlices(*(parts + [tf.constant(self._layout.shapes[index], tf.int64)]))

    def _fewer_as_rows(self, index, count):
        """Whether so many rows and their numbers are fewer bytes than the table."""
        elements, height = self._elements(index), self._layout.heights[index]
        element = self._layout.dtypes[index].size
        return count * (elements // height * element + tf.int64.size) < elements * element

    # Each branch returns a list: the whole on each replica of this worker if the table is known to
    # be dense, and the values and the numbers of the rows if it is not.

    def _of_rows(self, index, came, rows):
        """One row more from each replica: TF 2.21 ends a process that gathers none at all."""
        extra = tf.constant([-1], tf.int64)
        rows = self._replicas.on_local(lambda own: tf.concat([extra, own], 0), rows)
        values = self._replicas.on_local(
            lambda own, total: tf.gather(total, tf.maximum(own, 0)), rows, self._cycle.sums[index]
        )
        values, rows = [
            self._gather(value, "%s_%d" % (name, index))
            for value, name in ((values, "values"), (rows, "rows"))
        ]
        values = tf.reshape(values, [-1] + self._layout.shapes[index][1:])
        once = _gradients.unique_rows([tf.IndexedSlices(values, tf.reshape(rows, [-1]))])[0]
        values, rows = once.values[1:], once.indices[1:]
        if self._layout.kinds[index] != DENSE:
            return [values, rows]
        height = self._layout.heights[index]
        return [tf.math.unsorted_segment_sum(values, rows, height)] * len(
            self._replicas.local(came)
        )

    def _of_all(self, index, came):
        total = self._reduce([self._whole(index, came)], [index], "table_%d" % index)[0]
        if self._layout.kinds[index] == DENSE:
            return list(self._replicas.local(total))
        height = tf.constant(self._layout.heights[index], tf.int64)
        return [tf.identity(self._replicas.local(total)[0]), tf.range(height)]

    def _of_flagged(self, index, came):
        flags = self._replicas.on_local(
            lambda came, flags: tf.cast(came, tf.float32) * self._cycle.rows.flags_of(index, flags),
            came,
            self._cycle.rows.flags,
        )
        total, flags = self._reduce(
            [self._whole(index, came), flags], [index, 0], "table_%d" % index
        )
        if self._layout.kinds[index] == DENSE:
            return list(self._replicas.local(total))
        rows = tf.reshape(tf.compat.v2.where(self._replicas.local(flags)[0] > 0), [-1])
        return [tf.gather(self._replicas.local(total)[0], rows), rows]

    def _whole(self, index, came):
        """The sum of each replica; large sums hold the last cycle's where no micro-batch came."""
        shape, dtype = self._layout.shapes[index], self._layout.dtypes[index]
        return self._replicas.on_local(
            lambda came, total: tf.cond(
                came, lambda: _state.read(total), lambda: tf.zeros(shape, dtype)
            ),
            came,
            self._cycle.sums[index],
        )
