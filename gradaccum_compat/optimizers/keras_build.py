"""Keras optimizers that build(): tf.keras of 2.11 to 2.15, tf_keras, and Keras 3."""

from __future__ import absolute_import, division, print_function

import tensorflow as tf

from gradaccum_compat import errors
from gradaccum_compat.backends import BACKEND


def serves(optimizer):
    return callable(getattr(optimizer, "build", None))


def create_state(optimizer, variables):
    # The base class of 2.11 to 2.15 has no public `built`. Building twice would forget the first variables.
    if getattr(optimizer, "built", getattr(optimizer, "_built", False)):
        return
    graph = BACKEND.outermost_graph()
    before = len(graph.get_operations()) if graph else 0
    optimizer.build(variables)
    if graph:
        _refuse_lost_assignments(optimizer, graph.get_operations()[before:])


def _refuse_lost_assignments(optimizer, operations):
    """Keras 3's ScheduleFreeAdamW begins with copies of the weights that it assigns: a graph would not run that."""
    initializers = [each.initializer for each in tf.compat.v1.global_variables()]
    if any(each.type == "AssignVariableOp" and each not in initializers for each in operations):
        raise errors.OptimizerError(
            "In a TF 1 graph an optimizer's state begins as its initializers say.",
            "{}, which assigns to it when it is built".format(type(optimizer).__name__),
            "Use it in eager code or tf.function, or another optimizer.")


def apply_gradients(optimizer, pairs):
    if BACKEND.outermost_graph() is None:
        return optimizer.apply_gradients(pairs)
    # These leave the order of their assignments to tf.function, and in a TF 1 graph return nothing that would
    # run them: without one they move nothing, or move by what is read too early.
    gradients, variables = zip(*pairs)
    return tf.function(lambda *values: _moved(optimizer, zip(values, variables)), autograph=False)(*gradients)


def _moved(optimizer, pairs):
    optimizer.apply_gradients(list(pairs))
    return tf.constant(True)
