"""microbatch_gradients: the gradients of a big batch, computed slice by slice in one graph.

A slice is a part of the batch. arguments.py checks the arguments, batch.py cuts the batch,
slices.py adds up over its slices, loop.py decides how many of them are in a graph, order.py when
the next may begin, and size.py finds how large one may be. Nothing here holds state or reduces over
replicas: Accumulator does both.
"""

from __future__ import absolute_import, division, print_function

import inspect

import tensorflow as tf

from gradaccum_compat.backends.base import no_autograph
from gradaccum_compat.microbatch import arguments, loop, size
from gradaccum_compat.microbatch.batch import Batch
from gradaccum_compat.microbatch.slices import Slices

#: AutoGraph converts the functions below, which call loss_fn, and nothing that they call besides.
_steps_of = no_autograph(arguments.steps_of)
_is_auto = no_autograph(arguments.is_auto)


def microbatch_gradients(loss_fn, variables, batch, *steps, **options):
    """Computes the gradients of the mean loss over a big batch, in the memory of one slice of it.

    The batch is cut along its first dimension into `steps` slices, as even as can be. Each slice
    runs forward and backward once the gradients of the slice before have been added. It works in
    eager code, in tf.function, in a TF 1 graph, and inside strategy.run, where each replica gets
    the mean over its own batch: nothing is reduced here.

    In a tf.function, more than 8 slices of one known size are a loop, whose graph does not grow
    with them: loss_fn is traced for 5 to 8 of them.

    In a tf.function(jit_compile=True) the gradients are dense tensors, since XLA needs shapes that
    do not depend on values. XLA orders the slices as it likes, so the memory of one slice is not
    promised there: compile loss_fn instead of its caller.

    A summed loss is not noticed. Its gradients are those of the sum, divided by `steps` where the
    slices are even. Return (sum / examples, examples) instead.

    Example:
        >>> big = ga.microbatch_gradients(loss_fn, model.trainable_variables, (x, y), steps=4)
        >>> optimizer.apply_gradients(zip(big.gradients, model.trainable_variables))

    Args:
        loss_fn: function of one argument, a slice of the batch in the batch's structure. Returns
            the mean loss over the slice, or (loss, weight), or (loss, weight, extras). The weight
            is a number or a scalar tensor: what the loss is a mean over, tokens for instance. It is
            the examples of the slice unless given. The extras are any structure of tensors, each of
            the same shape in every slice.
        variables: non-empty list or tuple of variables, or a callable that returns one and is asked
            after loss_fn has run, for a model that is built on its first call.
        batch: nested structure of dense tensors with a common first dimension, static or not. It
            may hold None.
        steps: number of slices. Or "auto", in eager code, for as few as memory allows: where memory
            runs out, the same batch is tried again with twice the slices, and every variable that
            loss_fn wrote is set back. The size that fits is remembered for this code of loss_fn,
            these variables, and this structure, dtypes and shape of an example. loss_fn is traced
            by tf.function, and the traces are kept with the loss_fn object: define it once. Inside
            strategy.run all replicas take the same steps, so each has to make this call.

    Returns:
        A MicrobatchGradients, which unpacks into loss, gradients and extras, and has a weight too.

        loss: sum(weight * loss) / sum(weight) over the slices, float32, or float64 if the loss is.
        gradients: a list of sum(weight * gradient) / sum(weight) in the variables' dtypes, summed
            in float32 at least. Each is a tensor, a tf.IndexedSlices with unique rows, or None.
        extras: the structure that loss_fn returned. Each tensor is stacked along a new first axis,
            with one row for a slice. None where loss_fn returned none.
        weight: sum(weight), a float32 scalar.

        A slice of weight zero adds nothing, NaN included. If all weights are zero, so are loss and
        gradients. If the batch has fewer examples than `steps`, loss_fn sees the last example again
        in the surplus slices, which have weight zero and no row in the extras. Of an empty batch it
        sees empty slices.

    Raises:
        GradAccumError: one of its subclasses, for an argument that cannot be used, or a value of
            loss_fn.
        EagerRequiredError: steps="auto" inside a tf.function or a TF 1 graph.
        tf.errors.ResourceExhaustedError: steps="auto", and memory has no room for one example.
    """
    steps = _steps_of(steps, options)
    if _is_auto(steps):
        return size.find(_slice_by_slice, loss_fn, variables, batch)
    return _slice_by_slice(loss_fn, variables, batch, steps)


# The real signature takes any arguments, so that `loss_fn, variables, x, y, steps=4` is refused in
# words. Python 2 shows that one.
if hasattr(inspect, "signature"):
    microbatch_gradients.__signature__ = inspect.signature(
        lambda loss_fn, variables, batch, steps: None
    )


def _slice_by_slice(loss_fn, variables, batch, steps):
    # AutoGraph converts loss_fn, with the user's own `if tensor:`, only where it is called in code
    # that AutoGraph converts too. These two loops are that code.
    slices = _prepare(loss_fn, variables, batch, steps)
    for number in loop.unrolled(slices):
        with slices.recorded(number) as micro_batch:
            slices.take(loss_fn(micro_batch))

    def turn(position, *so_far):
        part = loop.part(slices, position, so_far)
        for number in range(loop.TURN):
            with part.recorded(number) as micro_batch:
                part.take(loss_fn(micro_batch))
        return loop.end_of_turn(slices, part, position, so_far)

    turns = loop.turns(slices)
    if turns:
        # parallel_iterations=1: one turn after another, in the memory of one.
        loop.take(
            slices,
            tf.while_loop(
                lambda position, *so_far: position < turns,
                turn,
                loop.begin(slices),
                parallel_iterations=1,
            ),
        )
    return slices.result()


@no_autograph
def _prepare(loss_fn, variables, batch, steps):
    arguments.check(loss_fn, variables, steps)
    return Slices(variables, Batch(batch), int(steps))
