"""Whether XLA compiles what is being traced."""

from __future__ import absolute_import, division, print_function

import sys

import tensorflow as tf
from tensorflow.python.eager import def_function
from tensorflow.python.ops import control_flow_util

#: TF 2.4, which can gather, enters XLA's control flow context before it traces; earlier ones do
#: not.
_HAS_A_CONTEXT = hasattr(tf.distribute.Strategy, "gather")


def compiled_by_xla():
    """Whether XLA will compile the ops that are made now. To be asked while a function is traced.

    From TensorFlow 2.4 on, a tf.function(jit_compile=True) enters XLA's control flow context before
    it traces. Every graph inside is within that context: branches, loops, replicas, functions that
    are traced there, and the training step of fit(jit_compile=True).

    One case cannot be seen: a plain tf.function that was traced elsewhere, and is then called in a
    compiled one with the same signature. TensorFlow takes the old trace there.
    """
    if tf.executing_eagerly():
        return False
    graph = tf.compat.v1.get_default_graph()
    return control_flow_util.GraphOrParentsInXlaContext(graph) or (
        not _HAS_A_CONTEXT and _in_a_function_to_compile()
    )


def _in_a_function_to_compile():
    """Whether this thread is tracing a tf.function(experimental_compile=True), which stands further
    up among its calls."""
    frame = sys._getframe()
    while frame is not None:
        if frame.f_globals.get("__name__") == def_function.__name__:
            if getattr(frame.f_locals.get("self"), "_experimental_compile", False):
                return True
        frame = frame.f_back
    return False
