"""An accumulator's cycle on its way from a Saver's checkpoint into another accumulator.

One function reads it by the names of its variables, and one writes it; nothing else knows how
either is laid out.
"""

from __future__ import absolute_import, division, print_function

import re

import numpy as np
import tensorflow as tf

from gradaccum_compat.core import _arguments, _state

#: The variables of an accumulator besides its sums and flags.
COUNTERS = ("micro_count", "total_weight", "update_count", "skipped_count", "weight_exact")


class CarriedCycle(object):
    """An accumulator's state, whatever variables it is kept in.

    Attributes:
        sums: an array for each variable.
        counters: the values of COUNTERS.
        seen: for each variable, the kind that it had in the cycles before, as Cycle keeps it.
        dense: for each variable, what came in this cycle, as Cycle keeps it.
        touched: for each variable, which rows were touched, an array of booleans.
        names: the checkpoint's names of all of this.
        positions: for each sum, the position of its variable among those that were given.
    """

    positions = ()

    def is_sparse(self):
        """For each variable, whether it has sparse gradients, as far as the cycle tells."""
        # A variable's first cycle has not been seen before it ends.
        return np.where(
            self.seen > 0,
            self.seen <= _state.SEEN[_state.SPARSE],
            (self.dense > 0) & (self.dense < _state._IS_WHOLE),
        )


def names_in(checkpoint):
    """The names of the accumulators that a checkpoint has, in their scopes."""
    ends = "/micro_count", "/total_weight"
    return sorted(
        name[: -len(ends[0])]
        for name in checkpoint.shapes
        if name.endswith(ends[0]) and name[: -len(ends[0])] + ends[1] in checkpoint.shapes
    )


def read(checkpoint, prefix):
    """The cycle of the accumulator of this name."""
    cycle = CarriedCycle()
    names = sorted(
        name for name in checkpoint.shapes if re.match(re.escape(prefix) + r"/sum_\d+$", name)
    )
    names.sort(key=lambda name: int(name.rpartition("_")[2]))
    cycle.sums = [checkpoint.value(name) for name in names]
    cycle.seen, cycle.dense = [
        checkpoint.value("{}/{}".format(prefix, each)) for each in ("seen", "dense")
    ]
    if checkpoint.value(prefix + "/micro_count") and _state.is_former(cycle.dense):
        raise _arguments.former_layout_error()
    cycle.counters = {
        each: checkpoint.value(name) if name in checkpoint.shapes else 0
        for each, name in ((each, "{}/{}".format(prefix, each)) for each in COUNTERS)
    }
    flags = checkpoint.value(prefix + "/row_flags")
    heights = [each.shape[0] if each.ndim else 0 for each in cycle.sums]
    cycle.touched = [
        part.reshape([-1])[:height] > 0 for part, height in zip(_of_each(flags, heights), heights)
    ]
    cycle.names = [name for name in checkpoint.shapes if name.startswith(prefix + "/")]
    return cycle


def write(accumulator, cycle, numbers):
    """Writes a cycle into an accumulator, for whose variables it has the sums of these numbers, or
    None."""
    state = accumulator._cycle
    begun = int(cycle.counters["micro_count"]) > 0
    layout = state.layout
    heights, sums = layout.heights, []
    flags = np.zeros(state.rows.flags.shape.as_list(), np.float32)
    seen, dense = [np.zeros(state.seen.shape.as_list(), np.float32) for _ in range(2)]
    for index, number in enumerate(numbers):
        # Between two cycles large sums hold what is left of the last one.
        value = (
            cycle.sums[number] if begun and number is not None else np.zeros(layout.shapes[index])
        )
        sums.append(tf.cast(tf.constant(value), layout.dtypes[index]))
        if number is None:
            continue
        seen[index], dense[index] = cycle.seen[number], cycle.dense[number] if begun else 0
        if begun and heights[index]:
            part = _of_each(flags, heights)[index]
            whole = np.zeros(part.size, np.float32)
            whole[: heights[index]] = cycle.touched[number]
            part[...] = whole.reshape(part.shape)
    for variable, value in zip(state.sums, sums):
        if variable is not None:
            variable.assign(value)
    for variable, pack in zip(state.packed, layout.packs):
        variable.assign(pack.joined(dict(enumerate(sums))))
    for variable, value in (
        (state.seen, seen),
        (state.dense, dense),
        (state.rows.flags, flags),
        (state.rows.blocks, flags.max(1) if len(flags) else np.zeros([0], np.float32)),
    ):
        variable.assign(value)
    for name, value in cycle.counters.items():
        variable = getattr(state, name)
        variable.assign(tf.cast(tf.constant(value), variable.dtype))


def _of_each(flags, heights):
    """Each variable's part of the flags of all rows, as views."""
    blocks = [-(-height // _state.BLOCK) for height in heights]
    ends = np.cumsum(blocks, dtype=int)
    return [flags[end - count : end] for end, count in zip(ends, blocks)]
