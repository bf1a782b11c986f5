"""Makes every call in every mode, and prints as JSON what TensorFlow has warned of meanwhile, and
Python in our code.

TensorFlow says most things once in a process, so the plain optimizer goes first: what it is told is
    not about us.
"""

from __future__ import absolute_import, division, print_function

import json
import logging
import os
import sys
import warnings

import numpy as np
import tensorflow as tf

import gradaccum_compat as ga
from support import modes

v1 = tf.compat.v1
DENSE = np.ones((3, 2), np.float32)
GRADIENTS = [DENSE, modes.Slices(np.ones((2, 2), np.float32), [1, 3])]
OPTIONS = [
    dict(),
    dict(nonfinite="skip"),
    dict(nonfinite="raise", dtype="float64", clip_norm=0.5, adaptive_clip=0.1),
]

said = []


class Listener(logging.Handler):

    def emit(self, record):
        # Each accumulator here has a tf.function of its own, made in one place.
        if "triggered tf.function retracing" not in record.getMessage():
            said.append(record.getMessage())


def listen():
    logging.getLogger("tensorflow").addHandler(Listener())
    warnings.simplefilter("always")
    warnings.showwarning = warned


def warned(message, category, path, *more):
    # Elsewhere, AutoGraph on Python 3.13 alone warns some hundred times.
    if os.path.dirname(ga.__file__) in path:
        said.append("{}: {}".format(path, message))


def make(mode, **options):
    return mode(
        [DENSE, np.ones((5, 2), np.float32)],
        lambda: v1.train.MomentumOptimizer(0.1, 0.9),
        **options
    )


def every_call(mode, options):
    run = make(mode, steps=2, **options)
    for weight in (3, 2.0, 1.0):
        run.step(GRADIENTS, weight)
    run.gradients()
    run.apply()
    run.accumulate([DENSE, None])
    run.reset()
    for counter in ("micro_count", "total_weight", "update_count", "skipped_count"):
        run.counter(counter)


def slices():
    variable = tf.Variable([1.0, 2.0])

    def loss(x):
        return tf.reduce_mean(x * variable)

    def by_examples(x):
        return loss(x), tf.shape(x)[0]

    def with_extras(x):
        return loss(x), 2.0, tf.reduce_sum(x)

    for loss_fn in (loss, by_examples, with_extras):

        def compiled(x):
            return ga.microbatch_gradients(loss_fn, [variable], x, 1).loss

        ga.microbatch_gradients(loss_fn, [variable], tf.ones([5, 2]), 2)
        tf.function(compiled, input_signature=[tf.TensorSpec([None, 2], tf.float32)])(
            tf.ones([4, 2])
        )


def wrapped():
    optimizer, variable = ga.wrap_optimizer(
        v1.train.MomentumOptimizer(0.1, 0.9), steps=2
    ), tf.Variable([1.0])
    for _ in range(2):
        optimizer.apply_gradients([(tf.ones([1]), variable)])


def main():
    if not tf.executing_eagerly():
        v1.enable_eager_execution()
    for mode in (modes.Eager, modes.Function, modes.Graph):
        make(mode).plain_apply(GRADIENTS)
    listen()
    for mode in (modes.Eager, modes.Function, modes.Graph):
        for options in OPTIONS:
            every_call(mode, options)
    slices()
    wrapped()
    json.dump(said, sys.stdout)


if __name__ == "__main__":
    main()
