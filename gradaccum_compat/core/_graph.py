"""Control dependencies and conditionals in a graph. Eager code runs as it is written."""

from __future__ import absolute_import, division, print_function

import contextlib

import tensorflow as tf

# Looked up once: each look into a module of TF 1.14 takes a microsecond, and eager code asks often.
# In eager code it waits for nothing, and takes assignments, which are None there.
control_dependencies = tf.control_dependencies


class _Nothing(object):
    """contextlib.nullcontext, which came with Python 3.7."""

    def __enter__(self):
        pass

    def __exit__(self, *error):
        pass


#: A block that waits for nothing.
NOTHING = getattr(contextlib, "nullcontext", _Nothing)()


def ops_of(values):
    """The values' ops, for control_dependencies; what has none is left out.

    An optimizer may return anything. TF 2.4 takes no tensor of an outer graph there, as there is
    one in a branch where a loss scale calls us.
    """
    if tf.executing_eagerly():
        return []
    ops = [each if isinstance(each, tf.Operation) else getattr(each, "op", None) for each in values]
    return [each for each in ops if each is not None]


def done(ops):
    """A scalar True that is there once all ops have run."""
    with control_dependencies(list(ops)):
        return tf.constant(True)


def only_if(condition, make_ops):
    """Runs the ops that the function makes where the condition holds."""
    return tf.cond(condition, lambda: done(make_ops()), lambda: done([]))


def cond_list(predicate, true_fn, false_fn):
    """tf.cond over functions that return lists; TF 1's unpacks a list of one."""
    chosen = tf.cond(predicate, true_fn, false_fn)
    return list(chosen) if isinstance(chosen, (list, tuple)) else [chosen]
