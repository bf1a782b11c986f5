"""What differs between optimizers below the accumulator: they make their state, and they update."""

from __future__ import absolute_import, division, print_function

import tensorflow as tf

from gradaccum_compat.optimizers import keras_build, references, slots, updates
from gradaccum_compat.optimizers.patches import reductions_done

#: The first generation that serves an optimizer is used; one that none serves makes no state.
GENERATIONS = (keras_build, slots)


def check(variables):
    """Raises for variables that an optimizer cannot update inside a conditional, where updates are
    made."""
    references.refuse_where_conditionals_copy(variables)


def create_state(optimizer, variables):
    """Makes the optimizer's own variables: a tf.cond could not make them later."""
    generation = _generation_of(optimizer)
    if generation is not None:
        generation.create_state(optimizer, list(variables))


def apply_gradients(optimizer, parts):
    """Has the optimizer make an update, inside a replica, with gradients that are reduced already.

    Args:
        optimizer: the optimizer.
        parts: an updates.Update for each variable that has a gradient.

    Returns:
        The ops that make the update, in a graph.
    """
    generation = _generation_of(optimizer) or slots
    if tf.executing_eagerly():
        # No conditionals are needed: variables without a gradient are left out of the parts. Nor is
        # control over the order: eager code runs line by line.
        with reductions_done():
            return generation.apply_gradients(optimizer, parts)
    with reductions_done(), updates.one_by_one(optimizer, parts):
        return generation.apply_gradients(optimizer, parts)


def _generation_of(optimizer):
    return next((each for each in GENERATIONS if each.serves(optimizer)), None)
