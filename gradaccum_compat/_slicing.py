"""Batch: a nested structure of tensors with a common first dimension, and how it is cut into slices.

What comes of it is a BigBatch. Nothing here computes a loss or a gradient.
"""

from __future__ import absolute_import, division, print_function

import collections

import numpy as np
import tensorflow as tf

from gradaccum_compat import _checks, errors

_REMEDY = "Pass the tensors of one batch, such as (x, y), with as many examples each; close over everything else."


class BigBatch(collections.namedtuple("BigBatch", ["loss", "gradients", "extras"])):
    """What microbatch_gradients returns: three values, and the weight of the batch beside them."""

    weight = None


class Batch(object):
    """The `tensors` of a batch and `examples`, their first dimension: an int, or a tensor where a graph cannot know."""

    def __init__(self, structure):
        self._structure = structure
        self.tensors = [_tensor(each) for each in tf.nest.flatten(structure) if each is not None]
        if not self.tensors:
            raise errors.OptionError("A batch holds at least one tensor.", repr(structure), _REMEDY)
        heights = [_height(each) for each in self.tensors]
        known = sorted({each for each in heights if not tf.is_tensor(each)})
        if len(known) > 1:
            raise _heights_error("first dimensions of {}".format(" and ".join(str(each) for each in known)))
        self.examples = known[0] if known else heights[0]
        self._checks = [_same(self.examples, each) for each in heights if tf.is_tensor(each) and each is not heights[0]]

    def like(self, tensors):
        """These tensors in the batch's structure, its Nones included."""
        tensors = iter(tensors)
        flat = [each if each is None else next(tensors) for each in tf.nest.flatten(self._structure)]
        return tf.nest.pack_sequence_as(self._structure, flat)

    def cut(self, bounds):
        """The examples from bounds.begin to bounds.end."""
        with tf.control_dependencies([each for each in self._checks if each is not None]):
            return self.like([_cut(each, bounds) for each in self.tensors])


class Bounds(object):
    """Where slice `number` of `steps` lies in a batch; its parts are ints, or tensors where `examples` is one.

    The first slices have an example more where the batch does not divide. Where it has fewer examples
    than steps, the slices too many hold the last one once more, with a size of 0: not every kernel and
    every batch normalisation survives an empty slice, and replicas have to run equally many.

    Attributes:
        begin, end: the slice's first example, and the one after its last.
        size: the examples that count.
    """

    def __init__(self, examples, steps, number):
        least, most = (tf.minimum, tf.maximum) if tf.is_tensor(examples) else (min, max)
        share, rest = examples // steps, examples % steps
        self.size = share + least(1, most(rest - number, 0))
        self.begin = least(number * share + least(number, rest), most(examples - 1, 0))
        self.end = least(self.begin + most(self.size, 1), examples)


class EvenBounds(object):
    """The same where all slices have `size` examples, an int, and the number is a tensor."""

    def __init__(self, size, number):
        self.size, self.begin = size, number * size


def _cut(tensor, bounds):
    if not isinstance(bounds, EvenBounds):
        return tensor[bounds.begin:bounds.end]
    # XLA before TF 2.5 or so takes the size from nothing but a number.
    rest = [-1 if each is None else each for each in tensor.shape.as_list()[1:]]
    return tf.slice(tensor, tf.stack([bounds.begin] + [0] * len(rest)), [bounds.size] + rest)


def _tensor(value):
    if isinstance(value, np.ndarray):
        value = tf.convert_to_tensor(value)
    if not isinstance(value, tf.Tensor):
        raise errors.OptionError("A batch is a nested structure of dense tensors.",
                                 "{} {!r:.80}".format(type(value).__name__, value), _REMEDY)
    if value.shape.ndims == 0:
        raise errors.OptionError("The first dimension of each tensor of a batch is its examples.",
                                 "a scalar, {!r:.80}".format(value), _REMEDY)
    return value


def _height(tensor):
    known = tf.compat.dimension_value(tensor.shape[0]) if tensor.shape.ndims else None
    return tf.shape(tensor)[0] if known is None else known


def _same(examples, height):
    return _checks.on_device(tf.equal(examples, height), _heights_error("first dimensions that differ"))


def _heights_error(received):
    return errors.OptionError("The tensors of a batch have a common first dimension: its examples.", received, _REMEDY)
