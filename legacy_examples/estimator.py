"""Estimator: the model function wraps its optimizer. For TensorFlow 1.14 to 2.15, the last one that
has tf.estimator.

The hand-written model function asks whether the global step, which begins with zero, is a multiple
of four. So the first update has the gradient of one micro-batch, and all the others come one too
late.
"""

from __future__ import absolute_import, division, print_function

import shutil
import sys
import tempfile

import tensorflow as tf

import gradaccum_compat as ga
from comparing import regression, report, start_values

v1 = tf.compat.v1

BATCH, STEPS, EPOCHS = 32, 4, 5
MICRO = BATCH // STEPS
X, Y = regression(examples=3 * BATCH)


def plain(optimizer, loss, global_step):
    return optimizer.minimize(loss, global_step=global_step)


def wrapped(optimizer, loss, global_step):
    return ga.wrap_optimizer(optimizer, steps=STEPS).minimize(loss, global_step=global_step)


def hand_written(optimizer, loss, global_step):
    pairs = optimizer.compute_gradients(loss)
    sums = [
        v1.get_variable(
            "sum%d" % index, initializer=tf.zeros(weight.shape), trainable=False, use_resource=True
        )
        for index, (_, weight) in enumerate(pairs)
    ]
    added = [total.assign_add(gradient / STEPS) for total, (gradient, _) in zip(sums, pairs)]

    def apply():
        applied = optimizer.apply_gradients(
            [(tf.identity(total), weight) for total, (_, weight) in zip(sums, pairs)]
        )
        with tf.control_dependencies([applied]):
            return tf.group(*[total.assign(tf.zeros_like(total)) for total in sums])

    with tf.control_dependencies(added):
        moved = tf.cond(tf.equal(global_step % STEPS, 0), apply, tf.no_op)
    with tf.control_dependencies([moved]):
        return global_step.assign_add(1)


def model_fn(features, labels, mode, params):
    weights = [
        v1.get_variable(name, initializer=value, use_resource=True)
        for name, value in zip(["kernel", "bias", "out"], start_values((6, 8), (8,), (8, 1)))
    ]
    kernel, bias, out = weights
    loss = tf.reduce_mean(
        tf.square(tf.matmul(tf.tanh(tf.matmul(features, kernel) + bias), out) - labels)
    )
    train = params["minimize"](
        v1.train.MomentumOptimizer(0.1, 0.9), loss, v1.train.get_or_create_global_step()
    )
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train)


def trained(minimize, batch_size):
    folder = tempfile.mkdtemp()
    try:
        estimator = tf.estimator.Estimator(
            model_fn, model_dir=folder, params={"minimize": minimize}
        )
        estimator.train(
            lambda: tf.data.Dataset.from_tensor_slices((X, Y)).repeat(EPOCHS).batch(batch_size)
        )
        return [estimator.get_variable_value(name) for name in ("kernel", "bias", "out")]
    finally:
        shutil.rmtree(folder)


def big_batch():
    return trained(plain, BATCH)


def by_hand():
    return trained(hand_written, MICRO)


def with_library():
    return trained(wrapped, MICRO)


if __name__ == "__main__":
    if not hasattr(tf, "estimator"):
        print("Estimator: TensorFlow 2.15 was the last one that has tf.estimator")
        sys.exit(2)
    v1.logging.set_verbosity(v1.logging.ERROR)
    sys.exit(report("Estimator", big_batch(), with_library(), {"off by one": by_hand()}))
