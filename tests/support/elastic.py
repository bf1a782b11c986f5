"""A training program on any number of replicas that can be interrupted in mid-cycle.

elastic.py REPLICAS PART DIR    REPLICAS: 2, 2-sharing; PART: save, finish or whole, as in cycles.py
"""

from __future__ import absolute_import, division, print_function

import json
import os
import sys

import numpy as np
import tensorflow as tf

import gradaccum_compat as ga
from support import devices
from support import replicas as on_replicas

v1 = tf.compat.v1
STEPS, INTERRUPTED_AT, END = 4, 6, 12
EXAMPLES = 12


def examples(number):
    """The gradients of each example of a micro-batch: of a vector, and of one row of a table."""
    random = np.random.RandomState(number)
    return (
        random.randn(EXAMPLES, 3),
        random.randn(EXAMPLES, 2),
        random.randint(0, 40, size=EXAMPLES),
    )


def strategy_of(count, sharing):
    devices = ["/cpu:%d" % index for index in range(count)]
    if sharing:
        return tf.distribute.experimental.CentralStorageStrategy(devices, "/cpu:0")
    return tf.distribute.MirroredStrategy(devices) if count > 1 else tf.distribute.get_strategy()


def main(replicas, part, folder):
    devices.set_up(tf)
    on_replicas.look_often()
    count = int(replicas.split("-")[0])
    strategy = strategy_of(count, "sharing" in replicas)
    run = getattr(strategy, "run", None) or strategy.experimental_run_v2
    with strategy.scope():
        vector, table = tf.Variable(np.ones(3, np.float32)), tf.Variable(
            np.ones((40, 2), np.float32)
        )
        optimizer = v1.train.MomentumOptimizer(0.1, 0.9)
        accumulator = ga.Accumulator(optimizer, [vector, table], steps=STEPS)
        checkpoint = tf.train.Checkpoint(
            vector=vector, table=table, optimizer=optimizer, accumulator=accumulator
        )

    @tf.function
    def train(vectors, values, rows):
        def on_replica():
            each = EXAMPLES // count
            first = (
                tf.cast(tf.distribute.get_replica_context().replica_id_in_sync_group, tf.int32)
                * each
            )
            mine = [part_[first : first + each] for part_ in (vectors, values, rows)]
            slices = tf.IndexedSlices(mine[1] / each, mine[2])
            return accumulator.step([tf.reduce_mean(mine[0], 0), slices], each)

        run(on_replica)

    path = os.path.join(folder, "checkpoint")
    start, stop = {"save": (0, INTERRUPTED_AT), "finish": (INTERRUPTED_AT, END), "whole": (0, END)}[
        part
    ]
    if part == "finish":
        # TF 1.14 restores what each replica has for itself in the scope alone.
        with strategy.scope():
            checkpoint.restore(path)
    for number in range(start, stop):
        vectors, values, rows = examples(number)
        train(
            tf.constant(vectors, tf.float32),
            tf.constant(values, tf.float32),
            tf.constant(rows, tf.int32),
        )
    if part == "save":
        checkpoint.write(path)
    with open(os.path.join(folder, part + ".json"), "w") as out:
        json.dump(
            [
                strategy.experimental_local_results(each)[0].numpy().tolist()
                for each in (vector, table)
            ],
            out,
        )


if __name__ == "__main__":
    main(sys.argv[1], *sys.argv[2:])
