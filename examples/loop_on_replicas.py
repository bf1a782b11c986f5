"""A loop of your own on two replicas, compared with big batches on one device.

Each replica adds up the gradients of its share of a micro-batch, and the shares are uneven. They
are reduced once for each update.
"""

from __future__ import absolute_import, division, print_function

import sys

import numpy as np
import tensorflow as tf

import gradaccum_compat as ga
import pictures

BATCH, STEPS, UPDATES = 400, 16, 50
#: The largest difference that float32 rounding explains.
LIMIT = 1e-6

# A CPU that is taken for two. With two GPUs, leave out this and the devices' names below.
tf.config.experimental.set_virtual_device_configuration(
    tf.config.list_physical_devices("CPU")[0],
    [tf.config.experimental.VirtualDeviceConfiguration()] * 2,
)


def two_moons(count):
    """Points on two half circles, and which of the two each is on."""
    random = np.random.RandomState(0)
    upper = random.permutation(count) % 2
    angle = np.pi * (random.rand(count) + upper)
    points = np.stack([np.cos(angle) + upper, np.sin(angle) + 0.3 * upper], axis=1)
    points += 0.12 * random.randn(count, 2)
    return points.astype("float32"), upper.astype("float32")[:, None]


POINTS, MOONS = two_moons(BATCH)
random = np.random.RandomState(1)
START = [random.randn(2, 16), 0.5 * random.randn(16), 0.3 * random.randn(16, 1), np.zeros(1)]


def new_model():
    model = tf.keras.Sequential(
        [
            tf.keras.Input((2,)),
            tf.keras.layers.Dense(16, activation="tanh"),
            tf.keras.layers.Dense(1),
        ]
    )
    model.set_weights(START)
    return model, tf.keras.optimizers.SGD(0.5, momentum=0.8)


def gradients_of(model, points, moons):
    with tf.GradientTape() as tape:
        losses = tf.nn.sigmoid_cross_entropy_with_logits(moons, model(points))
        loss = tf.reduce_mean(losses)
    return loss, tape.gradient(loss, model.trainable_variables)


def big_batches():
    """The model and the loss of each update, with the plain optimizer on one device."""
    model, optimizer = new_model()

    @tf.function
    def train(points, moons):
        loss, gradients = gradients_of(model, points, moons)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    return model, [float(train(POINTS, MOONS)) for _ in range(UPDATES)]


def on_two_replicas():
    """The same in micro-batches, on two replicas."""
    strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
    with strategy.scope():
        model, optimizer = new_model()
        if hasattr(optimizer, "build"):  # since TensorFlow 2.11, which cannot do it in a replica
            optimizer.build(model.trainable_variables)
        accumulator = ga.Accumulator(optimizer, model.trainable_variables, steps=STEPS)

    def replica_step(points, moons):
        loss, gradients = gradients_of(model, points, moons)
        size = tf.shape(points)[0]
        return accumulator.step(gradients, weight=size), loss * tf.cast(size, tf.float32)

    @tf.function
    def train(points, moons):
        updated, loss = strategy.run(replica_step, args=(points, moons))
        loss = strategy.reduce(tf.distribute.ReduceOp.SUM, loss, axis=None)
        return strategy.experimental_local_results(updated)[0], loss  # all replicas say the same

    data = tf.data.Dataset.from_tensor_slices((POINTS, MOONS)).batch(BATCH // STEPS)
    data = strategy.experimental_distribute_dataset(data.repeat(UPDATES))
    losses, summed = [], 0.0
    for points, moons in data:
        updated, loss = train(points, moons)
        summed += float(loss)
        if updated:
            losses.append(summed / BATCH)
            summed = 0.0
    return model, losses


def train():
    big, big_losses = big_batches()
    model, losses = on_two_replicas()
    pairs = zip(model.get_weights(), big.get_weights())
    apart = max(np.max(np.abs(one - other)) for one, other in pairs)
    line = "two replicas: {:.1e} from the big batch after {} updates".format(apart, len(losses))
    return (big_losses, losses, model), [line], apart <= LIMIT


def draw(drawn, axes):
    big_losses, losses, model = drawn
    axes[0].set_title("Loss")
    axes[0].plot(big_losses, "0.75", linewidth=6, label="big batches, one device")
    axes[0].plot(losses, "C3--", label="16 micro-batches, two replicas")
    axes[0].set_xlabel("update")
    axes[0].legend()

    across, along = np.meshgrid(np.linspace(-1.6, 2.6, 60), np.linspace(-1.2, 1.6, 40))
    grid = np.stack([across.ravel(), along.ravel()], axis=1).astype("float32")
    heights = tf.sigmoid(model(grid)).numpy().reshape(across.shape)
    axes[1].set_title("What the model on two replicas has learned")
    levels = [0, 0.1, 0.5, 0.9, 1]
    axes[1].contourf(across, along, heights, levels=levels, cmap="coolwarm", alpha=0.5)
    axes[1].scatter(POINTS[:, 0], POINTS[:, 1], s=6, c=MOONS[:, 0], cmap="coolwarm")
    axes[1].grid(False)


if __name__ == "__main__":
    sys.exit(pictures.run(__doc__, train, draw))
