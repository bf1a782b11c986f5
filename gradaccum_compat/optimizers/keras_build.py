"""Keras optimizers that build(): tf.keras of 2.11 to 2.15, tf_keras, and Keras 3."""

from __future__ import absolute_import, division, print_function


def serves(optimizer):
    return callable(getattr(optimizer, "build", None))


def create_state(optimizer, variables):
    # The base class of 2.11 to 2.15 has no public `built`. Building twice would forget the first variables.
    if not getattr(optimizer, "built", getattr(optimizer, "_built", False)):
        optimizer.build(variables)
