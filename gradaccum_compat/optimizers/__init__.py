"""What the generations of optimizers do differently, one small file for each."""

from __future__ import absolute_import, division, print_function

from gradaccum_compat.optimizers import keras_build, slots

#: The first generation that serves an optimizer is used; one that none serves has no state to make.
GENERATIONS = (keras_build, slots)


def create_state(optimizer, variables):
    """Makes the optimizer's own variables, without moving a weight: a tf.cond could not make them later."""
    for generation in GENERATIONS:
        if generation.serves(optimizer):
            return generation.create_state(optimizer, list(variables))
