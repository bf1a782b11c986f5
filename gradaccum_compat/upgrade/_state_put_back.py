"""Variables and random numbers put back as they were, whatever the user's loss did to them."""

from __future__ import absolute_import, division, print_function

import contextlib
import gc
import random

import numpy as np
import tensorflow as tf


@contextlib.contextmanager
def all_put_back():
    """Puts back every variable and the state of random numbers.

    Yields a list of every variable and the value that it began with, which grows by those that are
    made meanwhile. The values share the variables' memory until those are written.
    """
    # Whatever loss_fn may write: TensorFlow 1.14 has no list of what a function captures.
    # TensorFlow 1.14 takes a microsecond to look up tf.Variable, and there are millions of objects.
    kind = tf.Variable
    living = [each for each in gc.get_objects() if issubclass(type(each), kind)]
    began = [pair for each in living for pair in _with_value(each)]

    def creator(next_creator, **options):
        variable = next_creator(**options)
        began.extend(_with_value(variable))
        return variable

    put_back_random_numbers = _random_numbers()
    try:
        with tf.compat.v1.variable_creator_scope(creator):
            yield began
    finally:
        put_back(began)
        put_back_random_numbers()


def _with_value(variable):
    if hasattr(variable, "values") or getattr(variable, "_in_graph_mode", False):
        return []  # one of several replicas, whose components come by themselves; or in a graph
    try:
        return [(variable, tf.identity(variable))]
    except Exception:  # not initialised, deleted, or in a graph: nothing that could be put back
        return []


def was_written(variable, value):
    """Whether a variable has another value than this by now, bit for bit."""
    if not (value.dtype.is_floating or value.dtype.is_integer or value.dtype.is_bool):
        return False
    return tf.identity(variable).numpy().tobytes() != value.numpy().tobytes()


def put_back(values):
    """Assigns these values to their variables, a list of pairs, where they are others."""
    for variable, value in values:
        if was_written(variable, value):
            variable.assign(value)


def _random_numbers():
    """Returns a function that puts back the state of Python's, NumPy's and TensorFlow's random
    numbers."""
    python, numpy = random.getstate(), np.random.get_state()
    # TensorFlow has no public way to read where the sequence of seeds is that tf.random.set_seed
    # began.
    from tensorflow.python.eager import context

    seeds = getattr(context.context(), "_rng", None)
    state = None if seeds is None else seeds.getstate()

    def put_random_back():
        random.setstate(python)
        np.random.set_state(numpy)
        if state is not None:
            # Forgets the kernels too: one that was made for a seed meanwhile would go on where it
            #     is.
            tf.compat.v1.set_random_seed(context.global_seed())
            context.context()._rng.setstate(state)

    return put_random_back
