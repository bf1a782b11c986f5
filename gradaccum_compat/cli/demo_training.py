"""What `gradaccum-compat demo` trains and measures, in a process that does nothing else.

Plain variables and ops, an optimizer and calls that every TensorFlow from 1.14 on has: this is how
a training step is written once for all of them. Nothing is printed here.
"""

from __future__ import absolute_import, division, print_function

import sys
import time

import numpy as np

from gradaccum_compat import _detect

WIDTHS = (128, 256, 256, 10)
LEARNING_RATE, MOMENTUM = 0.05, 0.9


def train(report, updates, batch, micro_batches, seed, path):
    """Trains once.

    Args:
        report: is called with the number of updates made so far.
        updates: updates of the optimizer.
        batch: examples for one update.
        micro_batches: how many micro-batches to cut the batch into; None for the plain optimizer.
        seed: of the data, the weights and the cuts.
        path: file to save the trained weights to.

    Returns:
        What was measured, a dict.
    """
    tf = _eager_tensorflow()
    random = np.random.RandomState(seed)
    examples, labels = make_data(random, batch)
    before = _peak_from_here()
    network = Network(tf, random)
    sizes = micro_batch_sizes(random, batch, micro_batches or 1)
    optimizer = tf.compat.v1.train.MomentumOptimizer(LEARNING_RATE, MOMENTUM)
    make = plain_step if micro_batches is None else accumulating_step
    step, update_count = make(tf, network, optimizer, len(sizes))
    measured = _measure(lambda: _update(step, examples, labels, sizes), updates, report, before)
    np.savez(path, *[weight.numpy() for weight in network.weights])
    return dict(
        measured,
        sizes=sizes,
        updates=int(update_count()),
        backend=_backend_text(),
        weight_count=sum(int(np.prod(weight.shape.as_list())) for weight in network.weights),
    )


def _eager_tensorflow():
    tf = _detect.import_tensorflow()
    if not tf.executing_eagerly():
        tf.compat.v1.enable_eager_execution()
    return tf


def _backend_text():
    detected = _detect.backend()
    return "TensorFlow {} ({} backend)".format(detected.tensorflow_version, detected.name)


# The data and the network


def make_data(random, count):
    """Examples with the labels that a random linear teacher gives them."""
    examples = random.standard_normal((count, WIDTHS[0])).astype(np.float32)
    teacher = random.standard_normal((WIDTHS[0], WIDTHS[-1])).astype(np.float32)
    return examples, np.argmax(np.dot(examples, teacher), axis=1).astype(np.int64)


def micro_batch_sizes(random, batch, count):
    """Cuts a batch into count uneven micro-batches of at least one example, and returns their
    sizes.

    Every update is cut alike: TF 1.14 and 1.15 build a tf.function anew for each new shape.
    """
    shares = random.uniform(0.5, 1.5, count)
    sizes = 1 + np.floor(shares / shares.sum() * (batch - count)).astype(int)
    sizes[-1] += batch - sizes.sum()
    return [int(size) for size in sizes]


class Network(object):
    """A classifier with two hidden layers.

    They are tanh, which is smooth. At relu's kink one rounding error switches an example's gradient
    on or off: float32 then parts from float64 by 1e-5 within 20 updates, big batch or not.
    """

    def __init__(self, tf, random):
        self._tf = tf
        self.weights = []
        for inputs, outputs in zip(WIDTHS, WIDTHS[1:]):
            kernel = random.standard_normal((inputs, outputs)) * np.sqrt(1.0 / inputs)
            self.weights.append(tf.Variable(kernel.astype(np.float32)))
            self.weights.append(tf.Variable(np.zeros(outputs, np.float32)))

    def loss(self, examples, labels):
        """The mean loss over the examples."""
        tf, values = self._tf, examples
        for layer in range(0, len(self.weights), 2):
            values = tf.tanh(values) if layer else values
            values = tf.matmul(values, self.weights[layer]) + self.weights[layer + 1]
        return tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=values)
        )


# The two training steps; each comes with a function that says how often the optimizer updated


def plain_step(tf, network, optimizer, _):
    """The step of a plain optimizer, for a big batch."""
    updated = tf.Variable(np.int64(0), trainable=False)

    def step(examples, labels):
        loss, gradients = _gradients(tf, network, examples, labels)
        optimizer.apply_gradients(zip(gradients, network.weights))
        updated.assign_add(1)
        return loss

    return _compiled(tf, step), updated.numpy


def accumulating_step(tf, network, optimizer, steps):
    """The same step for a micro-batch: what changes is the one line that takes the gradients."""
    import gradaccum_compat as ga

    accumulator = ga.Accumulator(optimizer, network.weights, steps=steps)

    def step(examples, labels):
        loss, gradients = _gradients(tf, network, examples, labels)
        accumulator.step(gradients, weight=tf.shape(examples)[0])
        return loss

    return _compiled(tf, step), lambda: accumulator.update_count.numpy()


def _gradients(tf, network, examples, labels):
    with tf.GradientTape() as tape:
        loss = network.loss(examples, labels)
    return loss, tape.gradient(loss, network.weights)


def _compiled(tf, step):
    signature = [tf.TensorSpec([None, WIDTHS[0]], tf.float32), tf.TensorSpec([None], tf.int64)]
    return tf.function(step, input_signature=signature)


def _update(step, examples, labels, sizes):
    """Makes one update, and returns the mean loss over its batch."""
    total, start = 0.0, 0
    for size in sizes:
        end = start + size
        total += size * float(step(examples[start:end], labels[start:end]))
        start = end
    return total / start


# Measuring


def _measure(update, updates, report, before):
    """Time and memory of the updates; the time is the median's, so that tracing does not count."""
    losses, seconds = [], []
    for done in range(updates):
        began = time.time()
        losses.append(update())
        seconds.append(time.time() - began)
        report(done + 1)
    peak = None if before is None else peak_bytes() - before
    return {"losses": losses, "seconds": float(np.median(seconds)), "peak_bytes": peak}


def peak_bytes():
    """The most memory that this process ever held, or None where the system does not say
    (Windows)."""
    try:
        import resource
    except ImportError:
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _peak_from_here():
    """Forgets the peak of importing TensorFlow, where that can be done (Linux), and returns the
    peak."""
    try:
        with open("/proc/self/clear_refs", "w") as control:
            control.write("5")
    except (IOError, OSError):
        pass
    return peak_bytes()
