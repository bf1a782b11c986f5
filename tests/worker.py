"""One worker of several, as a program: trains under MultiWorkerMirroredStrategy and writes its weights as JSON.

    worker.py OUT    with TF_CONFIG in the environment, as on several machines
"""

from __future__ import absolute_import, division, print_function

import json
import os
import sys

import numpy as np
import tensorflow as tf

import gradaccum_compat as ga

v1 = tf.compat.v1
SHAPES = [(3,), (40, 2)]
#: Weights of each worker's micro-batches, cycle by cycle; workers repeat them if there are more.
#: None is no micro-batch at all: that worker's data has run out.
CYCLES = [[(1.0, 7.0, 2.0), (4.0, 0.0, 3.0)], [(5.0, None, 1.0)], [(None, 2.0, None)]]


def share(worker, number, weights):
    """(gradients, weight) of a worker: dense and sparse, and the NaN of a mean over no examples."""
    random = np.random.RandomState(100 * number + worker)
    rows = random.randint(0, 40, size=3)
    weight = weights[worker % len(weights)]
    vector = random.randn(3) if weight else np.full(3, np.nan)
    return vector.astype(np.float32), random.randn(3, 2).astype(np.float32), rows, weight


def numbered():
    """(cycle, number, weights) of each micro-batch."""
    number = 0
    for cycle, micro_batches in enumerate(CYCLES):
        for weights in micro_batches:
            yield cycle, number, weights
            number += 1


def make_strategy():
    kind = getattr(tf.distribute, "MultiWorkerMirroredStrategy", None)
    return (kind or tf.distribute.experimental.MultiWorkerMirroredStrategy)()


def main(out):
    if not tf.executing_eagerly():
        v1.enable_eager_execution()
    strategy = make_strategy()
    run = getattr(strategy, "run", None) or strategy.experimental_run_v2
    worker = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
    with strategy.scope():
        # The collectives of TF 1.14 know variables by their names.
        variables = [tf.Variable(np.ones(shape, np.float32), name="v%d" % index) for index, shape in enumerate(SHAPES)]
        accumulator = ga.Accumulator(v1.train.MomentumOptimizer(0.5, 0.9), variables)

    @tf.function
    def accumulate(vector, values, rows, weight):
        run(lambda: accumulator.accumulate([vector, tf.IndexedSlices(values, rows)], weight))

    @tf.function
    def apply():
        # TF before 2.1 cannot return a worker's tensor from a function.
        run(accumulator.apply)

    last = 0
    for cycle, number, weights in numbered():
        if cycle != last:
            apply()
            last = cycle
        mine = share(worker, number, weights)
        if mine[-1] is not None:
            accumulate(*[tf.convert_to_tensor(each) for each in mine])
    apply()
    with open(out, "w") as result:
        json.dump([strategy.experimental_local_results(each)[0].numpy().tolist() for each in variables], result)


if __name__ == "__main__":
    main(sys.argv[1])
