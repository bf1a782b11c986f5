"""A custom loop on two replicas, with a loss that is divided by the global batch.

The hand-written loop keeps a sum on each replica, and reads it outside of them: that is the first
replica's alone.
"""

from __future__ import absolute_import, division, print_function

import sys

import numpy as np
import tensorflow as tf

import gradaccum_compat as ga
from comparing import regression, report, start_values

BATCH, STEPS, EPOCHS = 32, 4, 3
MICRO = BATCH // STEPS  # examples of all replicas
X, Y = regression(examples=3 * BATCH)


def two_replicas():
    """A MirroredStrategy on one CPU that is taken for two."""
    if not tf.executing_eagerly():  # TF 1
        tf.compat.v1.enable_eager_execution(
            config=tf.compat.v1.ConfigProto(device_count={"CPU": 2})
        )
    else:
        config = tf.config.experimental
        config.set_virtual_device_configuration(
            config.list_physical_devices("CPU")[0], [config.VirtualDeviceConfiguration()] * 2
        )
    return tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])


STRATEGY = two_replicas()
RUN = (
    STRATEGY.run if hasattr(STRATEGY, "run") else STRATEGY.experimental_run_v2
)  # `run` came with TF 2.2


def new_model():
    model = tf.keras.Sequential(
        [
            tf.keras.layers.Dense(8, activation="tanh", input_shape=(6,)),
            tf.keras.layers.Dense(1),
        ]
    )
    model.set_weights(start_values((6, 8), (8,), (8, 1), (1,)))
    optimizer = tf.keras.optimizers.SGD(0.1, momentum=0.9)
    if hasattr(
        optimizer, "build"
    ):  # the optimizers since TF 2.11 cannot make their state inside replicas
        optimizer.build(model.trainable_variables)
    return model, optimizer


def gradients_of(model, x, y, global_batch):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.square(model(x) - y)) / global_batch
    return tape.gradient(loss, model.trainable_variables)


def batches(size):
    dataset = tf.data.Dataset.from_tensor_slices((X, Y)).batch(size, drop_remainder=True)
    for _ in range(EPOCHS):
        for x, y in STRATEGY.experimental_distribute_dataset(dataset):
            yield x, y


def big_batch():
    with STRATEGY.scope():
        model, optimizer = new_model()

    def replica_step(x, y):
        optimizer.apply_gradients(zip(gradients_of(model, x, y, BATCH), model.trainable_variables))

    @tf.function
    def train(x, y):
        RUN(replica_step, args=(x, y))

    for x, y in batches(BATCH):
        train(x, y)
    return model.get_weights()


def by_hand():
    with STRATEGY.scope():
        model, optimizer = new_model()
        sums = [
            tf.Variable(
                np.zeros_like(each),
                trainable=False,
                synchronization=tf.VariableSynchronization.ON_READ,
                aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
            )
            for each in model.get_weights()
        ]

    def replica_accumulate(x, y):
        for total, gradient in zip(sums, gradients_of(model, x, y, MICRO)):
            total.assign_add(gradient / STEPS)

    def replica_apply(gradients):
        here = [tf.identity(each) for each in gradients]
        optimizer.apply_gradients(zip(here, model.trainable_variables))
        for total in sums:
            total.assign(tf.zeros_like(total))

    @tf.function
    def accumulate(x, y):
        RUN(replica_accumulate, args=(x, y))

    @tf.function
    def apply():
        with STRATEGY.scope():
            totals = [tf.identity(each) for each in sums]  # the first replica's, twice
        RUN(replica_apply, args=(totals,))

    for number, (x, y) in enumerate(batches(MICRO), start=1):
        accumulate(x, y)
        if number % STEPS == 0:
            apply()
    return model.get_weights()


def with_library():
    with STRATEGY.scope():
        model, optimizer = new_model()
        accumulator = ga.Accumulator(
            optimizer, model.trainable_variables, steps=STEPS, loss_reduction="global_mean"
        )

    def replica_step(x, y):
        accumulator.step(gradients_of(model, x, y, MICRO), weight=MICRO)

    @tf.function
    def train(x, y):
        RUN(replica_step, args=(x, y))

    for x, y in batches(MICRO):
        train(x, y)
    return model.get_weights()


if __name__ == "__main__":
    sys.exit(report("two replicas", big_batch(), with_library(), {"not reduced": by_hand()}))
