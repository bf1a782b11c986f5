"""Control dependencies and conditionals in a graph. Eager code runs as it is written."""

from __future__ import absolute_import, division, print_function

import contextlib

import tensorflow as tf

# Looked up once: each look into a module of TF 1.14 takes a microsecond, and eager code asks often.
executing_eagerly = tf.executing_eagerly


class _Nothing(object):
    """contextlib.nullcontext, which came with Python 3.7."""

    def __enter__(self):
        pass

    def __exit__(self, *error):
        pass


#: A block that waits for nothing.
NOTHING = getattr(contextlib, "nullcontext", _Nothing)()


def after(ops):
    """tf.control_dependencies on ops and tensors; None among them is skipped.

    Assignments are None in eager code. TF 2.4 takes no tensor of an outer graph, as there is one
    in a branch where a loss scale calls us: so each tensor stands for its op. An eager tensor has
    no op and is there already.
    """
    if executing_eagerly():
        return NOTHING
    ops = [op if isinstance(op, tf.Operation) else getattr(op, "op", None) for op in ops]
    return tf.control_dependencies([op for op in ops if op is not None])


def running_after(ops, function):
    """The function, whose ops run after these.

    The dependencies are entered inside the function: replicas are threads, in a TF 1 graph too,
    and threads inherit none.
    """
    if executing_eagerly():
        return function

    def call(*args):
        with after(ops):
            return function(*args)

    return call


def done(ops):
    """A scalar True that is there once all ops have run."""
    with after(list(ops)):
        return tf.constant(True)


def grouped(ops):
    """Groups ops into one, so that each consumer gets one control edge."""
    return ops if executing_eagerly() or len(ops) < 2 else [done(ops)]


def only_if(condition, make_ops):
    """Runs the ops that the function makes where the condition holds."""
    return tf.cond(condition, lambda: done(make_ops()), lambda: done([]))


def cond_list(predicate, true_fn, false_fn):
    """tf.cond over functions that return lists; TF 1's unpacks a list of one."""
    chosen = tf.cond(predicate, true_fn, false_fn)
    return list(chosen) if isinstance(chosen, (list, tuple)) else [chosen]
