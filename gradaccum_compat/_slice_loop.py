"""Which slices of a big batch are unrolled into the graph, one after another, and which run in a loop.

The first ones are unrolled: they may make state on their first call, and tell which variables have a gradient. So are
all others where there are few, and where they are not alike for sure. Unrolled they are a little faster where next to
nothing is computed, since more forward passes run ahead, but every slice takes memory and time for its part of the
graph. TensorFlow 2.21, two cores, time over that without slices, and the peak of memory above it:

                                                             unrolled          in a loop
    4 layers of 2048, micro-batches of 4, 16 slices          1.09              1.12
    the same, 32 slices                                      1.14              1.14
    4 transformer blocks of width 256, 32 slices             0.97              0.97
    16 layers of 2048, 64 slices                             7.9 B a weight    4.2 B a weight

Medians of three processes. With eight slices in a turn the loop takes 1.10 for 16 slices, and 4.8 B.
"""

from __future__ import absolute_import, division, print_function

import tensorflow as tf

from gradaccum_compat import _slices, errors
from gradaccum_compat.backends import BACKEND
from gradaccum_compat.backends.base import no_autograph

#: Slices in one turn of the loop, among which forward passes may run ahead.
TURN = 4


@no_autograph
def unrolled(slices):
    """The numbers of the slices that are unrolled, those first that are so in any case."""
    first = slices.steps if slices.steps <= 2 * TURN or not _may_loop(slices) else slices.steps % TURN or TURN
    for number in range(first):
        yield number
    if first < slices.steps and not _are_alike(slices):
        for number in range(first, slices.steps):
            yield number


def _may_loop(slices):
    """Eager code has no graph to grow, and TF 1's loops take no gradients of what is outside of them.

    Replicas may talk to each other in loss_fn, as a synchronised batch normalisation does, which none can in a loop.
    """
    return slices.even and not tf.executing_eagerly() and BACKEND.outermost_graph() is None and (
        tf.distribute.get_strategy().num_replicas_in_sync == 1)


def _are_alike(slices):
    """Whether what a slice adds has one shape: not the rows of sparse gradients, nor extras of unknown shape."""
    return all(total.is_dense() for total in slices.sums) and all(
        isinstance(each, tf.Tensor) and each.shape.is_fully_defined() for each in _tensors(slices.extras[-1]))


@no_autograph
def turns(slices):
    """How many turns the loop has, when the unrolled slices are through."""
    return (slices.steps - len(slices.extras)) // TURN


@no_autograph
def begin(slices):
    """What the first turn is given: its position, the sums so far, and where extras go."""
    extras = [tf.TensorArray(each.dtype, turns(slices), element_shape=[TURN] + each.shape.as_list())
              for each in _tensors(slices.extras[-1])]
    numbers = _numbers(slices)
    # A loop's first turn waits for nothing but what it uses first: its position, and the sums last.
    with tf.control_dependencies(numbers):
        return tuple([tf.constant(0)] + numbers + extras)


@no_autograph
def part(slices, position, so_far):
    """The slices of one turn."""
    first = len(slices.extras) + position * TURN
    sums, share, weight, _ = _unpacked(slices, so_far)
    return slices.part([first + number for number in range(TURN)], sums, share, weight)


@no_autograph
def end_of_turn(slices, part, position, so_far):
    """What the next turn is given."""
    if [total.value() is None for total in part.sums] != [total.value() is None for total in slices.sums]:
        raise errors.VariablesError(
            "The loss of each slice depends on the same variables.", "a loss that depends on others in later slices",
            "Let loss_fn depend on nothing but the slice and the variables.")
    stacked = map(_slices.stack, zip(*map(_tensors, part.extras)))
    extras = [array.write(position, each) for array, each in zip(_unpacked(slices, so_far)[3], stacked)]
    return tuple([position + 1] + _numbers(part) + extras)


@no_autograph
def take(slices, after):
    """Takes what the last turn has returned for the sums of all slices."""
    sums, share, weight, extras = _unpacked(slices, after[1:])
    whole = slices.part([], sums, share, weight)
    slices.sums, slices.shares, slices.weights = whole.sums, whole.shares, whole.weights
    # From one row a turn to one a slice.
    stacked = [each.stack() for each in extras]
    slices.more_extras = [tf.reshape(each, [-1] + each.shape.as_list()[2:]) for each in stacked]


def _numbers(slices):
    """All sums but the extras, one tensor each."""
    sums = [total.value() for total in slices.sums]
    return [each for each in sums if each is not None] + [
        sum(tf.cast(each, tf.float64) for each in parts) for parts in (slices.shares, slices.weights)]


def _unpacked(slices, so_far):
    """The sums, with None where there is none, the share, the weight, and the arrays of extras."""
    rest = iter(so_far)
    sums = [None if total.value() is None else next(rest) for total in slices.sums]
    return sums, next(rest), next(rest), list(rest)


def _tensors(extras):
    return [each for each in tf.nest.flatten(extras) if each is not None]
