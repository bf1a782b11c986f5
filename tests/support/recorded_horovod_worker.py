"""One of Horovod's workers, which trains for three updates and is recorded.

recorded_horovod_worker.py RECORD    writes its weights to its standard output
"""

from __future__ import absolute_import, division, print_function

import json
import sys

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf

import gradaccum_compat as ga

UPDATES, STEPS = 3, 2


def micro_batch(rank, number):
    """The gradient and the weight of a worker's micro-batch."""
    random = np.random.RandomState(10 * number + rank)
    return random.randn(3).astype(np.float32), float(random.randint(1, 5))


def main(record):
    tf.compat.v1.enable_eager_execution()
    hvd.init()
    variable = tf.Variable(np.ones(3, np.float32))
    with ga.upgrade.record(record):
        accumulator = ga.Accumulator(
            tf.compat.v1.train.MomentumOptimizer(0.5, 0.9),
            [variable],
            steps=STEPS,
            reducer=ga.horovod.sum_over_workers,
        )
        for number in range(UPDATES * STEPS):
            gradient, weight = micro_batch(hvd.rank(), number)
            accumulator.step([tf.constant(gradient)], weight)
    print(json.dumps(variable.numpy().tolist()))


if __name__ == "__main__":
    main(*sys.argv[1:])
