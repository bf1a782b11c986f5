"""What users write: no type checker finds a fault in it. It is checked, and not run."""

from __future__ import absolute_import, division, print_function

import numpy as np
import tensorflow as tf

import gradaccum_compat as ga

model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
weight = tf.Variable(tf.constant(1.0))


def own_loop(optimizer, batches):
    accumulator = ga.Accumulator(optimizer, [weight], steps=4, clip_norm=1.0)
    for x, y in batches:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(x * weight - y))
        updated = accumulator.step(tape.gradient(loss, [weight]), weight=len(x))
        if updated:
            print(accumulator.update_count.numpy(), accumulator.total_weight)
    accumulator.accumulate([tf.constant(1.0)], np.float32(3.0))
    accumulator.accumulate([None], tf.shape(weight)[0])
    norm = tf.linalg.global_norm([each for each in accumulator.gradients() if each is not None])
    accumulator.apply()
    accumulator.reset()
    return norm


def schedules(optimizer):
    ga.Accumulator(optimizer, lambda: model.trainable_variables, steps={0: 2, 1000: 8})
    ga.Accumulator(optimizer, (weight,), lambda updates: 2 + updates // 100, "none")
    return ga.Accumulator(optimizer, [weight], dtype=tf.float64, statistics=True, adaptive_clip=0.1)


def fit():
    optimizer = ga.wrap_optimizer(tf.keras.optimizers.Adam(), steps=4, nonfinite="skip")
    model.compile(optimizer=optimizer, loss="mse")
    model.fit(np.ones([8, 1]), np.ones([8, 1]), callbacks=[ga.keras.ExactCycles()])
    print(optimizer.learning_rate, optimizer.accumulator.micro_count)
    ga.keras.check_batch_normalization(model)
    return ga.unwrap_optimizer(optimizer)


def one_graph(x):
    def loss_fn(part):
        return tf.reduce_mean(part * weight), tf.shape(part)[0]

    result = ga.microbatch_gradients(loss_fn, [weight], x, steps="auto")
    loss, gradients, _ = result
    return loss, gradients, result.weight


def upgrade(loss_fn, batch):
    with ga.upgrade.record("new", follow="old"):
        report = ga.upgrade.verify(loss_fn, [weight], batch, 4)
    assert report.equal, report.causes
    return ga.upgrade.compare("old", "new").verdict.upper()


def errors():
    try:
        name, version, why = ga.backend()
        print(name.upper(), version.split("."), why)
    except ga.errors.TensorFlowError as error:
        print(error.remedy.lower())
