"""One worker of the benchmark distributed.py, which starts it: times cycles of two ways, in turns.

    distributed_worker.py '{"parameters": ..., "rounds": ..., "micro_batches": [...], "out": ...}'
"""

from __future__ import absolute_import, division, print_function

import json
import multiprocessing
import os
import platform
import sys
import time

import numpy as np
import tensorflow as tf

import gradaccum_compat as ga
from gradaccum_compat._reduced import reductions_done

v1 = tf.compat.v1
LAYERS, EXAMPLES, LEARNING_RATE = 5, 4, 1e-3
#: What the kernel has sent on the loopback, where it says so.
SENT = "/sys/class/net/lo/statistics/tx_bytes"


class Way(object):
    """A model and a way to accumulate its gradients.

    Args:
        strategy: the workers'.
        name: prefix of the variables' names.
        parameters: about how many the model has.
    """

    def __init__(self, strategy, name, parameters):
        self.strategy = strategy
        self.replica_run = getattr(strategy, "run", None) or strategy.experimental_run_v2
        side = int(round((parameters / LAYERS) ** 0.5))
        random = np.random.RandomState(0)
        with strategy.scope():
            self.layers = [
                tf.Variable((random.randn(side, side) / side ** 0.5).astype(np.float32), name="%s_%d" % (name, number))
                for number in range(LAYERS)]
            self.optimizer = v1.train.GradientDescentOptimizer(LEARNING_RATE)
            self.make_state(name)
        self._accumulate = tf.function(lambda x: self.replica_run(lambda: self._add(x)))
        self._apply = tf.function(lambda: self.replica_run(self.update))

    @property
    def parameters(self):
        return sum(int(np.prod(each.shape.as_list())) for each in self.layers)

    def _add(self, x):
        with tf.GradientTape() as tape:
            y = x
            for layer in self.layers:
                y = tf.tanh(tf.matmul(y, layer))
            loss = tf.reduce_mean(tf.square(y - 1.0))
        self.add(tape.gradient(loss, self.layers))

    def cycle(self, x, micro_batches):
        for _ in range(micro_batches):
            self._accumulate(x)
        self._apply()

    def weights(self):
        return [self.strategy.experimental_local_results(each)[0].numpy() for each in self.layers]


class OncePerCycle(Way):
    """gradaccum_compat: workers add up each for itself, and reduce at the end of the cycle."""

    def make_state(self, name):
        self.accumulator = ga.Accumulator(self.optimizer, self.layers, name=name)

    def add(self, gradients):
        self.accumulator.accumulate(gradients)

    def update(self):
        self.accumulator.apply()


class PerMicroBatch(Way):
    """The usual recipe: variables that are summed over workers whenever something is added to them.

    Their sums are the same on all workers then. The optimizer is kept from reducing them once more, as it would.
    """

    def make_state(self, name):
        self.sums = [tf.Variable(tf.zeros(each.shape), trainable=False, name="%s_sum_%d" % (name, number),
                                 aggregation=tf.VariableAggregation.SUM) for number, each in enumerate(self.layers)]
        self.total = tf.Variable(0.0, trainable=False, name=name + "_total", aggregation=tf.VariableAggregation.SUM)

    def add(self, gradients):
        for total, gradient in zip(self.sums + [self.total], gradients + [tf.ones([])]):
            total.assign_add(gradient)

    def update(self):
        read = [tf.identity(each) for each in self.sums]
        gradients = [each / tf.identity(self.total) for each in read]
        with reductions_done():
            self.optimizer.apply_gradients(list(zip(gradients, self.layers)))
            with tf.control_dependencies(gradients):
                for each in self.sums + [self.total]:
                    each.assign(tf.zeros(each.shape))


class Barrier(object):
    """Workers leave it together: a sum of one number over all of them."""

    def __init__(self, strategy):
        run = getattr(strategy, "run", None) or strategy.experimental_run_v2
        with strategy.scope():
            count = tf.Variable(0.0, trainable=False, name="barrier", aggregation=tf.VariableAggregation.SUM)
        self.wait = tf.function(lambda: run(lambda: count.assign_add(tf.ones([])) is None))


def sent_bytes():
    """All bytes that were sent on the loopback so far, or None."""
    if not os.path.exists(SENT):
        return None
    with open(SENT) as source:
        return int(source.read())


def timed(barrier, way, x, micro_batches):
    """(seconds, bytes sent) of one cycle."""
    barrier.wait()
    sent, begun = sent_bytes(), time.time()
    way.cycle(x, micro_batches)
    seconds = time.time() - begun
    barrier.wait()  # the other worker's bytes are sent as well
    return seconds, None if sent is None else sent_bytes() - sent


def measure(ways, barrier, x, rounds, micro_batches, tell):
    """{(micro-batches, way): [(seconds, bytes)]}, round by round, the ways in turns and each of them first in turns."""
    found = {(count, name): [] for count in micro_batches for name in ways}
    for number in range(rounds):
        for count in micro_batches:
            for name in sorted(ways, reverse=number % 2):
                found[count, name].append(timed(barrier, ways[name], x, count))
                tell()
    return found


def largest_difference(ways):
    one, other = [way.weights() for way in ways.values()]
    return float(max(np.max(np.abs(mine - theirs)) for mine, theirs in zip(one, other)))


def make_strategy():
    kind = getattr(tf.distribute, "MultiWorkerMirroredStrategy", None)
    return (kind or tf.distribute.experimental.MultiWorkerMirroredStrategy)()


def main(parameters, rounds, micro_batches, out):
    v1.enable_eager_execution()
    v1.logging.set_verbosity(v1.logging.ERROR)
    strategy = make_strategy()
    task = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
    ways = {"once per cycle": OncePerCycle(strategy, "once", parameters),
            "per micro-batch": PerMicroBatch(strategy, "often", parameters)}
    barrier = Barrier(strategy)
    side = ways["once per cycle"].layers[0].shape.as_list()[0]
    x = tf.constant(np.random.RandomState(task).randn(EXAMPLES, side).astype(np.float32))
    tell = (lambda: (print("cycle"), sys.stdout.flush())) if task == 0 else lambda: None
    measure(ways, barrier, x, 1, [1, 2], lambda: None)  # traces, and warms up
    found = measure(ways, barrier, x, rounds, micro_batches, tell)
    if task == 0:
        with open(out, "w") as result:
            json.dump({
                "tensorflow": ga.backend().tensorflow_version, "gradaccum_compat": ga.__version__,
                "python": platform.python_version(), "cpus": multiprocessing.cpu_count(), "rounds": rounds,
                "workers": strategy.num_replicas_in_sync, "parameters": ways["once per cycle"].parameters,
                "examples": EXAMPLES, "largest_difference": largest_difference(ways),
                "cycles": [{"micro_batches": count, "reductions": name, "seconds": [each[0] for each in cycles],
                            "sent_bytes": [each[1] for each in cycles]}
                           for (count, name), cycles in sorted(found.items())]}, result)


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
