"""What runs before what, in a graph; eager code runs as it is written."""

from __future__ import absolute_import, division, print_function

import tensorflow as tf


def after(ops):
    """tf.control_dependencies on ops or tensors of which some are None, as assignments are in eager code."""
    if tf.executing_eagerly():
        return tf.control_dependencies([])
    # On a tensor's op: TF 2.4 takes no tensor of an outer graph, as in the branch where a loss scale calls us, and no
    # eager one, which has no op and is there already.
    ops = [op if isinstance(op, tf.Operation) else getattr(op, "op", None) for op in ops]
    return tf.control_dependencies([op for op in ops if op is not None])


def following(ops, function):
    """The function, with ops that run after these.

    Said inside of it: replicas are threads, in a TF 1 graph too, and inherit no control dependencies.
    """
    def call(*args):
        with after(ops):
            return function(*args)
    return call


def done(ops):
    """A scalar True that is there once all ops have run; they may come from a generator, which makes them now."""
    with after(list(ops)):
        return tf.constant(True)


def joined(ops):
    """One op in place of many, for whatever waits for them: each that does would wait for all of them by itself."""
    return ops if tf.executing_eagerly() or len(ops) < 2 else [done(ops)]


def only_if(condition, ops):
    """Runs the ops that the function makes, where the condition holds."""
    return tf.cond(condition, lambda: done(ops()), lambda: done([]))
