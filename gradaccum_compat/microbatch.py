"""microbatch_gradients: the gradients of a big batch, computed slice by slice in one graph.

How a batch is cut is in _slicing.py, what is added up over its slices in _slices.py, how many of them are in a graph
in _slice_loop.py, and how the size of a slice is found in _slice_size.py. No state is kept here, and nothing is
reduced over replicas: Accumulator does both.
"""

from __future__ import absolute_import, division, print_function

import numbers

import six
import tensorflow as tf

from gradaccum_compat import _checks, _slice_loop, _slice_size, errors
from gradaccum_compat._slices import Slices
from gradaccum_compat._slicing import Batch
from gradaccum_compat.backends.base import no_autograph


def microbatch_gradients(loss_fn, variables, batch, steps):
    """The gradients of the mean loss over a big batch, in the memory that one slice of it takes.

    The batch is cut into slices along its first dimension, as even as can be; each runs forward and
    backward once the gradients of the one before have been added. In a tf.function, more than 8 slices
    of one known size are a loop, whose graph does not grow with them: there loss_fn is traced for 5 to 8
    of them. Works in eager code, in tf.function, in a TF 1 graph, and inside strategy.run, where each
    replica gets the mean over its own batch: nothing is reduced here. Works under jit_compile too, where
    gradients are dense, but there XLA orders the slices as it likes and the memory of one slice is not
    promised: compile loss_fn instead of what calls this.

    Example:
        >>> big = ga.microbatch_gradients(loss_fn, model.trainable_variables, (x, y), steps=4)  # doctest: +SKIP

    Args:
        loss_fn: function of a slice of the batch, in the batch's structure. Returns the mean loss over the
            slice, or (loss, weight), or (loss, weight, extras). The weight is what the loss is a mean over,
            a number or a scalar tensor: the slice's examples unless given, its tokens for instance. The
            extras are any structure of tensors, each of the same shape in every slice.
        variables: non-empty list or tuple of variables, or a callable that returns one and is asked when
            loss_fn has run, for a model that is built on its first call.
        batch: nested structure of dense tensors with a common first dimension, static or not; None may
            stand in it and stays.
        steps: how many slices; or "auto", in eager code, for as few as memory allows: loss_fn is traced by
            tf.function, and where memory runs out, the same batch is tried again with twice the slices and
            with every variable that loss_fn writes set back. What fits is remembered for this code of
            loss_fn, these variables, and these structure, dtypes and shapes of an example, and serves
            batches of all sizes; the traces are kept for the same loss_fn object, so define it once. Inside
            strategy.run all replicas take the same steps, and each has to make this call.

    Returns:
        A namedtuple of loss, gradients and extras, with an attribute weight. With g, l and w of the slices: loss is
        sum(w * l) / sum(w) in float32 (float64 if the loss is), gradients a list of sum(w * g) / sum(w)
        in the variables' dtypes, summed in float32 at least: a tensor, tf.IndexedSlices with unique rows,
        or None. A slice of weight zero adds nothing, NaN included; if all are, loss and gradients are zero.
        extras has loss_fn's structure, each tensor stacked along a new first axis, one row a slice, and is
        None where there are none. weight is sum(w), a float32 scalar; a tf.function that returns the tuple
        returns the three alone. Where a batch has fewer examples than
        steps, loss_fn sees the last one again for the slices too many, at weight zero and without a row in
        the extras; of an empty batch it sees empty slices.

    Raises:
        GradAccumError: one of its subclasses, for an argument that cannot be used, what loss_fn returns included.
        EagerRequiredError: steps="auto" inside a tf.function or a TF 1 graph.
        tf.errors.ResourceExhaustedError: with steps="auto", where one example at a time does not fit.
    """
    if _is_auto(steps):
        return _slice_size.find(_slice_by_slice, loss_fn, variables, batch)
    return _slice_by_slice(loss_fn, variables, batch, steps)


def _slice_by_slice(loss_fn, variables, batch, steps):
    # AutoGraph has to find the call of loss_fn in code that it may convert, or else it leaves the user's own
    # `if tensor:` alone: so these loops are all that it gets to see.
    slices = _prepare(variables, batch, steps)
    for number in _slice_loop.unrolled(slices):
        with slices.recorded(number) as micro_batch:
            slices.take(loss_fn(micro_batch))

    def turn(position, *so_far):
        part = _slice_loop.part(slices, position, so_far)
        for number in range(_slice_loop.TURN):
            with part.recorded(number) as micro_batch:
                part.take(loss_fn(micro_batch))
        return _slice_loop.end_of_turn(slices, part, position, so_far)

    turns = _slice_loop.turns(slices)
    if turns:
        # One turn after another, in the memory of one.
        _slice_loop.take(slices, tf.while_loop(
            lambda position, *so_far: position < turns, turn, _slice_loop.begin(slices), parallel_iterations=1))
    return slices.result()


@no_autograph
def _is_auto(steps):
    return isinstance(steps, six.string_types) and steps == "auto"


@no_autograph
def _prepare(variables, batch, steps):
    if tf.distribute.has_strategy() and tf.distribute.in_cross_replica_context():
        raise errors.ContextError(
            "microbatch_gradients works on one replica's batch.", "a call outside of the replicas",
            "Call it in the function that strategy.run calls.")
    if isinstance(steps, bool) or not isinstance(steps, numbers.Integral) or steps < 1:
        raise errors.OptionError(
            'steps must be a positive integer, the number of slices, or "auto".', repr(steps), "Pass steps=4, say.")
    return Slices(variables if callable(variables) else _checks.variables(variables), Batch(batch), int(steps))
