"""TouchedRows: which rows of which variable sparse gradients have touched in a cycle.

One flag a row and one a block of rows, in two flat variables for all variables of the accumulator:
finding the touched rows reads the blocks' flags and the flags of the touched blocks, so that it
costs what was touched and not what the table holds. (One flag a row alone costs a pass over all:
4 ms at 4 million rows, as much as the cycle itself.)

The flags are floats: a checkpoint holds their mean over the replicas, which is above zero if any is.
"""

from __future__ import absolute_import, division, print_function

import tensorflow as tf

from gradaccum_compat.backends import BACKEND

BLOCK = 32


class TouchedRows(tf.Module):
    """The flags of the rows of all variables; variable number `index` has heights[index] rows."""

    def __init__(self, heights, make_variable):
        super(TouchedRows, self).__init__(name="touched_rows")
        blocks = [-(-height // BLOCK) for height in heights]
        self._shape = _Shape(heights, blocks)
        self.flags = make_variable([sum(blocks) * BLOCK], "row_flags")
        self.blocks = make_variable([sum(blocks)], "block_flags")

    def mark(self, index, rows):
        """Marks rows of a variable; returns the ops that do."""
        return self._set(index, rows, 1.0)

    def clear(self, index, rows):
        """Unmarks rows of a variable; every touched row must be among them."""
        return self._set(index, rows, 0.0)

    def clear_all(self, index):
        """Unmarks all rows of a variable."""
        count = self._shape.blocks[index] * BLOCK
        return self._set(index, tf.range(count, dtype=tf.int64), 0.0) if count else []

    def touched(self, index):
        """The touched rows of a variable, each once, in ascending order."""
        blocks = _positions(self._block_flags(index) > 0)
        candidates = tf.reshape(blocks[:, tf.newaxis] * BLOCK + tf.range(BLOCK, dtype=tf.int64), [-1])
        flags = tf.gather(BACKEND.local(self.flags), candidates + self._shape.first_row(index))
        return tf.gather(candidates, _positions(flags > 0))

    def of(self, index, flags):
        """The part of a flag for each row of all variables that is this variable's."""
        first = self._shape.first_row(index)
        return flags[first:first + self._shape.heights[index]]

    def _block_flags(self, index):
        first = self._shape.first_block[index]
        return tf.identity(BACKEND.local(self.blocks))[first:first + self._shape.blocks[index]]

    def _set(self, index, rows, flag):
        rows = tf.cast(rows, tf.int64) + self._shape.first_row(index)
        flags = tf.fill(tf.shape(rows), flag)
        return [BACKEND.set_rows(self.flags, rows, flags), BACKEND.set_rows(self.blocks, rows // BLOCK, flags)]


def _positions(flags):
    """Where a vector of bools holds True. TF 1.14 warns of tf.where, and of tf.boolean_mask, which calls it."""
    return tf.reshape(tf.compat.v2.where(flags), [-1])


class _Shape(object):
    """Where each variable's blocks begin. Not trackable: it is no state and has no place in a checkpoint."""

    def __init__(self, heights, blocks):
        self.heights = heights
        self.blocks = blocks
        self.first_block = [sum(blocks[:index]) for index in range(len(blocks))]

    def first_row(self, index):
        return self.first_block[index] * BLOCK
