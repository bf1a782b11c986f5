"""Decides which slices are unrolled into the graph, one after another, and which run in a loop.

The first slices are unrolled: loss_fn may make state on its first call, and they tell which
variables have a gradient. The others are unrolled too where they are few, or where their shapes may
differ. Unrolled slices are a little faster where little is computed, since more forward passes run
ahead, but each takes memory and time for its part of the graph. TensorFlow 2.21, two cores, time
over that without slices, and the peak of memory above it:

                                                             unrolled          in a loop
    4 layers of 2048, micro-batches of 4, 16 slices          1.09              1.12
    the same, 32 slices                                      1.14              1.14
    4 transformer blocks of width 256, 32 slices             0.97              0.97
    16 layers of 2048, 64 slices                             7.9 B a weight    4.2 B a weight

Medians of three processes. With eight slices in a turn, 16 slices take 1.10 and 4.8 B in a loop.
"""

from __future__ import absolute_import, division, print_function

import tensorflow as tf

from gradaccum_compat import errors
from gradaccum_compat.backends import BACKEND
from gradaccum_compat.backends.base import no_autograph
from gradaccum_compat.microbatch.slices import stack

#: Slices in one turn of the loop, among which forward passes may run ahead.
TURN = 4


@no_autograph
def unrolled(slices):
    """Yields the numbers of the slices that are unrolled."""
    first = (
        slices.steps
        if slices.steps <= 2 * TURN or not _may_loop(slices)
        else slices.steps % TURN or TURN
    )
    for number in range(first):
        yield number
    if first < slices.steps and not _are_alike(slices):
        for number in range(first, slices.steps):
            yield number


def _may_loop(slices):
    """Whether a loop can hold the slices.

    Eager code has no graph that grows. TF 1's loops give no gradients of tensors from outside. In
    loss_fn replicas may talk to each other, as a synchronised batch normalisation does, and they
    cannot in a loop.
    """
    return (
        slices.even
        and not tf.executing_eagerly()
        and BACKEND.outermost_graph() is None
        and (tf.distribute.get_strategy().num_replicas_in_sync == 1)
    )


def _are_alike(slices):
    """Whether all slices add tensors of the same shapes. Sparse gradients do not: each may have
    another number of rows."""
    return all(total.is_dense() for total in slices.sums) and all(
        isinstance(each, tf.Tensor) and each.shape.is_fully_defined()
        for each in _tensors(slices.extras[-1])
    )


@no_autograph
def turns(slices):
    """Returns how many turns the loop has, once the unrolled slices have run."""
    return (slices.steps - len(slices.extras)) // TURN


@no_autograph
def begin(slices):
    """Returns the arguments of the first turn: its position, the sums so far, arrays for extras."""
    extras = [
        tf.TensorArray(each.dtype, turns(slices), element_shape=[TURN] + each.shape.as_list())
        for each in _tensors(slices.extras[-1])
    ]
    numbers = _numbers(slices)
    # The first turn uses its position first and the sums last, so it would begin before the
    # unrolled slices have ended. Therefore its position waits for their sums.
    with tf.control_dependencies(numbers):
        return tuple([tf.constant(0)] + numbers + extras)


@no_autograph
def part(slices, position, so_far):
    """Returns the slices of one turn."""
    first = len(slices.extras) + position * TURN
    sums, factor, weight, _ = _unpacked(slices, so_far)
    return slices.part([first + number for number in range(TURN)], sums, factor, weight)


@no_autograph
def end_of_turn(slices, part, position, so_far):
    """Returns the arguments of the next turn."""
    if [total.value() is None for total in part.sums] != [
        total.value() is None for total in slices.sums
    ]:
        raise errors.VariablesError(
            "The loss of each slice depends on the same variables.",
            "a loss that depends on others in later slices",
            "Let loss_fn depend on nothing but the slice and the variables.",
        )
    stacked = map(stack, zip(*map(_tensors, part.extras)))
    extras = [
        array.write(position, each) for array, each in zip(_unpacked(slices, so_far)[3], stacked)
    ]
    return tuple([position + 1] + _numbers(part) + extras)


@no_autograph
def take(slices, after):
    """Takes the arguments that a next turn would get as the sums over all slices."""
    sums, factor, weight, extras = _unpacked(slices, after[1:])
    whole = slices.part([], sums, factor, weight)
    slices.sums, slices.factors, slices.weights = whole.sums, whole.factors, whole.weights
    # From one row for a turn to one for a slice.
    stacked = [each.stack() for each in extras]
    slices.more_extras = [tf.reshape(each, [-1] + each.shape.as_list()[2:]) for each in stacked]


def _numbers(slices):
    """Returns all sums but the extras, one tensor each."""
    sums = [total.value() for total in slices.sums]
    return [each for each in sums if each is not None] + [
        sum(tf.cast(each, tf.float64) for each in parts)
        for parts in (slices.factors, slices.weights)
    ]


def _unpacked(slices, so_far):
    """Returns the sums, with None where there is none, the factor, the weight, the arrays."""
    rest = iter(so_far)
    sums = [None if total.value() is None else next(rest) for total in slices.sums]
    return sums, next(rest), next(rest), list(rest)


def _tensors(extras):
    return [each for each in tf.nest.flatten(extras) if each is not None]
