"""One worker of several, as a program that saves in mid-cycle and goes on from what it finds saved.

restarted_worker.py OUT FOLDER [INDEX NUMBER]    it stops dead before that micro-batch
"""

from __future__ import absolute_import, division, print_function

import json
import os
import shutil
import sys
import tempfile
import time

import numpy as np
import tensorflow as tf

import gradaccum_compat as ga
from support import worker

v1 = tf.compat.v1
#: A vector with dense gradients, and a table with sparse ones.
SHAPES = worker.SHAPES[:2]
STEPS, END, SAVED_AFTER = 4, 12, (3, 6, 11)
#: The workers' micro-batches are uneven, and one has none in between.
WEIGHTS = [(1.0, 7.0), (4.0, 0.0), (2.0, 3.0)]


def share(index, number):
    """The vector's gradient, the values and rows of the table's, and the weight of a worker's
    micro-batch."""
    pairs = [(weight, "ds") for weight in WEIGHTS[number % len(WEIGHTS)]]
    (vector, (values, rows)), _, weight = worker.share(index, number, pairs)
    return vector, values, rows, weight


class Checkpoints(object):
    """What every worker does at the same time, since reading the sums of all workers takes all of
    them.

    The chief writes to the folder that all workers restore from; what the others write, each to a
    folder of its own, is thrown away.
    """

    def __init__(self, strategy, folder, chief, **parts):
        self._strategy, self._folder, self._chief = strategy, folder, chief
        self._own = folder if chief else tempfile.mkdtemp()
        self._checkpoint = tf.train.Checkpoint(**parts)
        # Made here and now: TF 1.14 would make it in restore, and cannot in the scope of workers.
        self._checkpoint.save_counter
        self._manager = tf.train.CheckpointManager(self._checkpoint, self._own, max_to_keep=2)

    def save(self):
        self._manager.save()

    def restore(self):
        path = tf.train.latest_checkpoint(self._folder)
        if path is not None:
            # In the scope: TF 1.14 restores what each worker has for itself there alone.
            with self._strategy.scope():
                self._checkpoint.restore(path)

    def close(self):
        if not self._chief:
            shutil.rmtree(self._own)


def stop_dead(out):
    with open(out + ".stopped", "w"):
        pass
    time.sleep(1000)


def main(out, folder, stopped=None, at=None):
    if not tf.executing_eagerly():
        v1.enable_eager_execution()
    strategy = worker.make_strategy()
    run = getattr(strategy, "run", None) or strategy.experimental_run_v2
    index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
    with strategy.scope():
        vector, table = [
            tf.Variable(np.ones(shape, np.float32), name="v%d" % number)
            for number, shape in enumerate(SHAPES)
        ]
        optimizer = v1.train.MomentumOptimizer(0.5, 0.9)
        accumulator = ga.Accumulator(optimizer, [vector, table], steps=STEPS)
    checkpoints = Checkpoints(
        strategy,
        folder,
        index == 0,
        vector=vector,
        table=table,
        optimizer=optimizer,
        accumulator=accumulator,
    )

    @tf.function
    def train(gradient, values, rows, weight):
        run(lambda: accumulator.step([gradient, tf.IndexedSlices(values, rows)], weight))

    checkpoints.restore()
    begun = int(accumulator.update_count) * STEPS + int(accumulator.micro_count)
    for number in range(begun, END):
        if (str(index), str(number)) == (stopped, at):
            stop_dead(out)
        train(*[tf.convert_to_tensor(each) for each in share(index, number)])
        if number + 1 in SAVED_AFTER:
            checkpoints.save()
    checkpoints.close()
    weights = [
        strategy.experimental_local_results(each)[0].numpy().tolist() for each in (vector, table)
    ]
    with open(out, "w") as result:
        json.dump({"begun": begun, "weights": weights}, result)


if __name__ == "__main__":
    main(*sys.argv[1:])
