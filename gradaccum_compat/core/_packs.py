"""Packs: small tensors of one dtype in one flat tensor, so that one op serves all of them.

An op takes microseconds in eager code and in a graph, however little its tensors hold. Tensors that
differ in their first dimension alone are a group: one op joins them, and one op parts them.
"""

from __future__ import absolute_import, division, print_function

import collections

import numpy as np
import tensorflow as tf


class Pack(object):
    """Which tensors lie in one flat tensor, and where.

    Args:
        dtype: of all of them.
        indices: the positions of their variables.
        shapes: the shape of each variable, by position.

    Attributes:
        dtype: the same.
        indices: the same.
        shapes: the shape of each, by position.
        size: how many elements the flat tensor has.
    """

    def __init__(self, dtype, indices, shapes):
        self.dtype, self.indices = dtype, list(indices)
        self.shapes = dict((index, list(shapes[index])) for index in self.indices)
        groups = collections.OrderedDict()
        for index in self.indices:
            # Scalars have no first dimension: they are a group of their own.
            rest = tuple(shapes[index][1:]) if shapes[index] else None
            groups.setdefault(rest, []).append(index)
        self._groups = [
            (_Scalars(members) if rest is None else _Group(rest, members, shapes))
            for rest, members in groups.items()
        ]
        self._sizes = np.array([each.size for each in self._groups], np.int64)
        self.size = int(self._sizes.sum())

    def joined(self, tensors):
        """The flat tensor.

        Args:
            tensors: a tensor for each position, which None or its absence makes zero.
        """
        parts = [each.joined(tensors, self.dtype) for each in self._groups]
        return parts[0] if len(parts) == 1 else tf.concat(parts, 0)

    def parted(self, flat):
        """The tensors that lie in the flat one, by position."""
        alone = len(self._groups) == 1
        tensors = {}
        for group, part in zip(self._groups, [flat] if alone else tf.split(flat, self._sizes)):
            tensors.update(zip(group.members, group.parted(part)))
        return tensors


def packs_of(indices, dtypes, shapes):
    """A Pack for each dtype of the tensors at these positions."""
    by_dtype = collections.OrderedDict((dtype, []) for dtype in (tf.float32, tf.float64))
    for index in indices:
        by_dtype[dtypes[index]].append(index)
    return [Pack(dtype, members, shapes) for dtype, members in by_dtype.items() if members]


def as_numbers(packs):
    """Tells a checkpoint what lies in packs: of each tensor its position, the bytes of an element,
    the number of its dimensions, and these."""
    numbers = []
    for pack in packs:
        for index in pack.indices:
            shape = pack.shapes[index]
            numbers += [index, pack.dtype.size, len(shape)] + shape
    return np.array(numbers, np.int64)


def from_numbers(numbers):
    """The packs that as_numbers tells of. Raises ValueError for numbers that tell of none."""
    numbers, dtypes, shapes = list(map(int, numbers)), {}, collections.OrderedDict()
    while numbers:
        index, size, rank = numbers[:3]
        shape = numbers[3 : 3 + rank]
        if rank < 0 or len(shape) < rank or min(shape + [0]) < 0:
            raise ValueError("dimensions {} of {} in all".format(shape, rank))
        dtypes[index] = tf.float64 if size == tf.float64.size else tf.float32
        shapes[index] = shape
        del numbers[: 3 + rank]
    return packs_of(list(shapes), dtypes, shapes)


class _Group(object):
    """Tensors of one rank that differ in their first dimension alone."""

    def __init__(self, rest, members, shapes):
        self.members, self._rest = members, list(rest)
        self._heights = np.array([shapes[index][0] for index in members], np.int64)
        self._height = int(self._heights.sum())
        self.size = self._height * int(np.prod(rest, dtype=np.int64))

    def joined(self, tensors, dtype):
        found = [
            tf.zeros([height] + self._rest, dtype) if tensors.get(index) is None else tensors[index]
            for index, height in zip(self.members, self._heights)
        ]
        whole = found[0] if len(found) == 1 else tf.concat(found, 0)
        return tf.reshape(whole, [-1]) if self._rest else whole

    def parted(self, flat):
        whole = tf.reshape(flat, [self._height] + self._rest) if self._rest else flat
        if len(self.members) == 1:
            return [whole]
        alike = len(set(self._heights)) == 1
        return tf.split(whole, len(self.members) if alike else self._heights)


class _Scalars(object):
    """Tensors without dimensions."""

    def __init__(self, members):
        self.members, self.size = members, len(members)

    def joined(self, tensors, dtype):
        return tf.stack(
            [
                tf.zeros([], dtype) if tensors.get(index) is None else tensors[index]
                for index in self.members
            ]
        )

    def parted(self, flat):
        return tf.unstack(flat, self.size)
