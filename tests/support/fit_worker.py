"""One worker of several, as a program: fit() under MultiWorkerMirroredStrategy; writes its weights
as JSON.

fit_worker.py OUT FAMILY    with TF_CONFIG in the environment, as on several machines
"""

from __future__ import absolute_import, division, print_function

import json
import os
import sys

import numpy as np
import tensorflow as tf

from support import fitting, worker

MICRO = fitting.BIG // fitting.STEPS


def share(index, count):
    """A worker's examples: its part of each micro-batch."""
    return [
        np.concatenate([part for part in np.split(each, len(each) * count // MICRO)[index::count]])
        for each in fitting.data()
    ]


def main(out, family):
    strategy = worker.make_strategy()
    config = json.loads(os.environ["TF_CONFIG"])
    index, count = config["task"]["index"], len(config["cluster"]["worker"])
    generation = next(each for each in fitting.GENERATIONS if each.family == family)
    make = fitting.accumulating(lambda: generation.optimizers.Adam(0.1))
    with strategy.scope():
        model = fitting.linear(generation)
        model.compile(optimizer=make(), loss="mse")
    batches = (
        tf.data.Dataset.from_tensor_slices(tuple(share(index, count)))
        .batch(MICRO // count)
        .repeat()
    )
    distributed = strategy.distribute_datasets_from_function(lambda _: batches)
    model.fit(
        distributed, steps_per_epoch=fitting.EXAMPLES // MICRO, epochs=fitting.EPOCHS, verbose=0
    )
    with open(out, "w") as result:
        json.dump([each.tolist() for each in model.get_weights()], result)


if __name__ == "__main__":
    main(*sys.argv[1:])
