"""Batch: a nested structure of tensors with a common first dimension, cut into slices.

Nothing here computes a loss or a gradient.
"""

from __future__ import absolute_import, division, print_function

import numpy as np
import tensorflow as tf

from gradaccum_compat import errors
from gradaccum_compat.core import _arguments

_REMEDY = (
    "Pass the tensors of one batch, such as (x, y), with as many examples each; close over"
    " everything else."
)


class Batch(object):
    """The tensors of a batch.

    Attributes:
        structure: the batch's structure, with True for each tensor and False for each None.
        tensors: a list, without the Nones.
        examples: their first dimension: an int, or a tensor where only the device knows it.
    """

    def __init__(self, structure):
        self.structure = tf.nest.map_structure(lambda each: each is not None, structure)
        self.tensors = [_tensor(each) for each in tf.nest.flatten(structure) if each is not None]
        if not self.tensors:
            raise errors.OptionError("A batch holds at least one tensor.", repr(structure), _REMEDY)
        heights = [_height(each) for each in self.tensors]
        known = sorted({each for each in heights if not tf.is_tensor(each)})
        if len(known) > 1:
            raise _heights_error(
                "first dimensions of {}".format(" and ".join(str(each) for each in known))
            )
        self.examples = known[0] if known else heights[0]
        self._checks = [
            _same(self.examples, each)
            for each in heights
            if tf.is_tensor(each) and each is not heights[0]
        ]

    def cut(self, bounds):
        """Returns the examples from bounds.begin to bounds.end, in the batch's structure."""
        with tf.control_dependencies([each for each in self._checks if each is not None]):
            return pack(self.structure, [_cut(each, bounds) for each in self.tensors])


def pack(structure, tensors):
    """Returns the tensors in the structure of a Batch, with its Nones."""
    tensors = iter(tensors)
    flat = [next(tensors) if there else None for there in tf.nest.flatten(structure)]
    return tf.nest.pack_sequence_as(structure, flat)


class Bounds(object):
    """Where slice `number` of `steps` lies in a batch.

    Where the batch does not divide, the first slices have one example more. If it has fewer
    examples than steps, each surplus slice holds the last example again and has size 0: some
    kernels and batch normalisation fail on an empty slice, and replicas must run equally many.

    Attributes:
        begin: the first example of the slice; an int, or a tensor where `examples` is one.
        end: the example after its last.
        size: how many of its examples count.
    """

    def __init__(self, examples, steps, number):
        least, most = (tf.minimum, tf.maximum) if tf.is_tensor(examples) else (min, max)
        even, rest = examples // steps, examples % steps
        self.size = even + least(1, most(rest - number, 0))
        self.begin = least(number * even + least(number, rest), most(examples - 1, 0))
        self.end = least(self.begin + most(self.size, 1), examples)


class EvenBounds(object):
    """Bounds of slice `number`, a tensor, where all slices have `size` examples, an int."""

    def __init__(self, size, number):
        self.size, self.begin = size, number * size


def _cut(tensor, bounds):
    if not isinstance(bounds, EvenBounds):
        return tensor[bounds.begin : bounds.end]
    # XLA before TF 2.5 or so takes no size that is computed.
    rest = [-1 if each is None else each for each in tensor.shape.as_list()[1:]]
    return tf.slice(tensor, tf.stack([bounds.begin] + [0] * len(rest)), [bounds.size] + rest)


def _tensor(value):
    if isinstance(value, np.ndarray):
        value = tf.convert_to_tensor(value)
    if not isinstance(value, tf.Tensor):
        raise errors.OptionError(
            "A batch is a nested structure of dense tensors.",
            "{} {!r:.80}".format(type(value).__name__, value),
            _REMEDY,
        )
    if value.shape.ndims == 0:
        raise errors.OptionError(
            "The first dimension of each tensor of a batch is its examples.",
            "a scalar, {!r:.80}".format(value),
            _REMEDY,
        )
    return value


def _height(tensor):
    known = tf.compat.dimension_value(tensor.shape[0]) if tensor.shape.ndims else None
    return tf.shape(tensor)[0] if known is None else known


def _same(examples, height):
    return _arguments.on_device(
        tf.equal(examples, height), lambda: _heights_error("first dimensions that differ")
    )


def _heights_error(received):
    return errors.OptionError(
        "The tensors of a batch have a common first dimension: its examples.", received, _REMEDY
    )
