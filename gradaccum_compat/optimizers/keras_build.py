"""Keras optimizers that build(): tf.keras of 2.11 to 2.15, tf_keras, and Keras 3."""

from __future__ import absolute_import, division, print_function

import contextlib

import tensorflow as tf

from gradaccum_compat import errors
from gradaccum_compat.backends import BACKEND
from gradaccum_compat.core import _arguments, _state
from gradaccum_compat.core._graph import control_dependencies


def serves(optimizer):
    return callable(getattr(optimizer, "build", None))


def create_state(optimizer, variables):
    # The base class of 2.11 to 2.15 has no public `built`. Building twice would forget the first
    # variables.
    if not getattr(optimizer, "built", getattr(optimizer, "_built", False)):
        _build(optimizer, variables)
    # Keras 3's MultiOptimizer asks a function for its optimizers when it is built.
    _arguments.refuse_accumulating(optimizer)


def _build(optimizer, variables):
    graph = BACKEND.outermost_graph()
    before = len(graph.get_operations()) if graph else 0
    with _scope_of(optimizer):
        optimizer.build(variables)
    if graph:
        _refuse_lost_assignments(optimizer, graph.get_operations()[before:])


def _scope_of(optimizer):
    """The scope that apply_gradients builds in, which is part of the variables' names. Keras 3
    names its variables by itself."""
    # Keras 3 has no such method.
    if not hasattr(optimizer, "aggregate_gradients"):
        return _no_scope()
    return tf.name_scope(optimizer.name or "optimizer")


@contextlib.contextmanager
def _no_scope():
    yield


def _refuse_lost_assignments(optimizer, operations):
    """Keras 3's ScheduleFreeAdamW begins with copies of the weights that it assigns: a graph would
    not run that."""
    initializers = [each.initializer for each in tf.compat.v1.global_variables()]
    if any(each.type == "AssignVariableOp" and each not in initializers for each in operations):
        raise errors.OptimizerError(
            "In a TF 1 graph an optimizer's state begins as its initializers say.",
            "{}, which assigns to it when it is built".format(type(optimizer).__name__),
            "Use it in eager code or tf.function, or another optimizer.",
        )


def apply_gradients(optimizer, parts):
    if tf.executing_eagerly() or BACKEND.outermost_graph() is None:
        return _updated(optimizer, parts, [part.gradient for part in parts])
    # These leave the order of their assignments to tf.function, and in a TF 1 graph return nothing
    # that would run them: without one they update nothing, or by what is read too early.
    function = tf.function(lambda *values: _updated(optimizer, parts, values)[0], autograph=False)
    return [function(*[part.gradient for part in parts])]


def _updated(optimizer, parts, gradients):
    optional = [part.raw for part in parts if part.came is not None]
    came = [part.came for part in parts if part.came is not None]
    before = [_state.read(variable) for variable in optional]
    with control_dependencies(before):
        optimizer.apply_gradients(list(zip(gradients, [part.variable for part in parts])))
        # update_step is left out for a variable without a gradient; weight decay is not.
        for each, variable, old in zip(came, optional, before):
            _state.write(variable, tf.compat.v2.where(each, _state.read(variable), old))
    return [tf.constant(True)]
