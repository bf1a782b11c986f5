"""What the generations of optimizers do differently, one small file for each."""

from __future__ import absolute_import, division, print_function

from gradaccum_compat.optimizers import in_turn, keras_build, references, slots

#: The first generation that serves an optimizer is used; one that none serves has no state to make.
GENERATIONS = (keras_build, slots)


def check(variables):
    """Raises for variables that no optimizer can update where this package has it do so."""
    references.refuse_where_conditionals_copy(variables)


def create_state(optimizer, variables):
    """Makes the optimizer's own variables, without moving a weight: a tf.cond could not make them later."""
    generation = _generation_of(optimizer)
    if generation is not None:
        generation.create_state(optimizer, list(variables))


def apply_gradients(optimizer, pairs, anew):
    """Lets the optimizer move. Returns what has to run for it, in a graph.

    Args:
        optimizer: the optimizer.
        pairs: (gradient, variable) of each variable that has a gradient.
        anew: functions that make a gradient once more, by the id of its tensor, for when its variable's turn comes.
    """
    generation = _generation_of(optimizer)
    with in_turn.updates(optimizer, anew):
        return (generation or slots).apply_gradients(optimizer, pairs)


def _generation_of(optimizer):
    return next((each for each in GENERATIONS if each.serves(optimizer)), None)
