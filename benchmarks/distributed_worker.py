"""One worker of the benchmark distributed.py, which starts it: times cycles of several ways, in
turns.

distributed_worker.py '{"parameters": ..., "rounds": ..., "micro_batches": [...], "rows": ...,
    "out": ...}'
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
from gradaccum_compat.core import _tables
from gradaccum_compat.optimizers import reductions_done

v1 = tf.compat.v1
LAYERS, EXAMPLES, LEARNING_RATE = 5, 4, 1e-3
#: Of a table: numbers in a row, and rows that a micro-batch touches.
WIDTH, TOUCHED = 64, 1000
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
                tf.Variable(
                    (random.randn(side, side) / side**0.5).astype(np.float32),
                    name="%s_%d" % (name, number),
                )
                for number in range(LAYERS)
            ]
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

    Their sums are the same on all workers then. The optimizer is kept from reducing them once more,
    as it would.
    """

    def make_state(self, name):
        self.sums = [
            tf.Variable(
                tf.zeros(each.shape),
                trainable=False,
                name="%s_sum_%d" % (name, number),
                aggregation=tf.VariableAggregation.SUM,
            )
            for number, each in enumerate(self.layers)
        ]
        self.total = tf.Variable(
            0.0, trainable=False, name=name + "_total", aggregation=tf.VariableAggregation.SUM
        )

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


class Table(object):
    """A table whose micro-batches touch few rows, and an accumulator.

    Args:
        strategy: the workers'.
        name: prefix of the variables' names.
        rows: of the table.
        whole: whether the whole table is sent, as up to TensorFlow 2.3.
    """

    def __init__(self, strategy, name, rows, whole):
        self.strategy = strategy
        replica_run = getattr(strategy, "run", None) or strategy.experimental_run_v2
        smallest = _tables.SMALLEST
        with strategy.scope():
            self.layers = [tf.Variable(tf.ones([rows, WIDTH]), name=name)]
            _tables.SMALLEST = float("inf") if whole else smallest
            self.accumulator = ga.Accumulator(
                v1.train.GradientDescentOptimizer(LEARNING_RATE), self.layers, name=name + "_sums"
            )
            _tables.SMALLEST = smallest
        self._accumulate = tf.function(
            lambda touched, values: replica_run(
                lambda: self.accumulator.accumulate([tf.IndexedSlices(values, touched)])
            )
        )
        # TF before 2.1 cannot return a worker's tensor from a function.
        self._apply = tf.function(lambda: replica_run(lambda: self.accumulator.apply() is None))

    def cycle(self, gradients, micro_batches):
        for touched, values in gradients[:micro_batches]:
            self._accumulate(touched, values)
        self._apply()

    def weights(self):
        return [self.strategy.experimental_local_results(self.layers[0])[0].numpy()]


def rows_of(worker, rows, micro_batches):
    """(numbers of rows, their values) of so many micro-batches."""
    random = np.random.RandomState(worker)
    return [
        (
            tf.constant(random.randint(0, rows, size=TOUCHED), tf.int64),
            tf.constant(random.randn(TOUCHED, WIDTH).astype(np.float32)),
        )
        for _ in range(micro_batches)
    ]


class Barrier(object):
    """Workers leave it together: a sum of one number over all of them."""

    def __init__(self, strategy):
        run = getattr(strategy, "run", None) or strategy.experimental_run_v2
        with strategy.scope():
            count = tf.Variable(
                0.0, trainable=False, name="barrier", aggregation=tf.VariableAggregation.SUM
            )
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
    """{(micro-batches, way): [(seconds, bytes)]}, round by round, the ways in turns and each of
    them first in turns."""
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


def cycles_of(found, way):
    """The measured cycles, as JSON takes them; `way` is the key of what differs."""
    return [
        {
            "micro_batches": count,
            way: name,
            "seconds": [each[0] for each in cycles],
            "sent_bytes": [each[1] for each in cycles],
        }
        for (count, name), cycles in sorted(found.items())
    ]


def main(parameters, rounds, micro_batches, rows, out):
    v1.enable_eager_execution()
    v1.logging.set_verbosity(v1.logging.ERROR)
    strategy = make_strategy()
    task = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
    ways = {
        "once per cycle": OncePerCycle(strategy, "once", parameters),
        "per micro-batch": PerMicroBatch(strategy, "often", parameters),
    }
    barrier = Barrier(strategy)
    side = ways["once per cycle"].layers[0].shape.as_list()[0]
    x = tf.constant(np.random.RandomState(task).randn(EXAMPLES, side).astype(np.float32))
    tell = (lambda: (print("cycle"), sys.stdout.flush())) if task == 0 else lambda: None
    measure(ways, barrier, x, 1, [1, 2], lambda: None)  # traces, and warms up
    found = measure(ways, barrier, x, rounds, micro_batches, tell)
    tables = {
        "rows": Table(strategy, "rows", rows, whole=False),
        "whole": Table(strategy, "whole", rows, whole=True),
    }
    gradients = rows_of(task, rows, max(micro_batches))
    measure(tables, barrier, gradients, 1, [1], lambda: None)
    found_of_tables = measure(tables, barrier, gradients, rounds, micro_batches, tell)
    if task == 0:
        with open(out, "w") as result:
            json.dump(
                {
                    "tensorflow": ga.backend().tensorflow_version,
                    "gradaccum_compat": ga.__version__,
                    "python": platform.python_version(),
                    "cpus": multiprocessing.cpu_count(),
                    "rounds": rounds,
                    "workers": strategy.num_replicas_in_sync,
                    "parameters": ways["once per cycle"].parameters,
                    "examples": EXAMPLES,
                    "largest_difference": largest_difference(ways),
                    "cycles": cycles_of(found, "reductions"),
                    "table": {
                        "rows": rows,
                        "width": WIDTH,
                        "touched": TOUCHED,
                        "largest_difference": largest_difference(tables),
                        "cycles": cycles_of(found_of_tables, "sent"),
                    },
                },
                result,
            )


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
