"""One worker of several, as a program: trains under MultiWorkerMirroredStrategy and writes its
weights as JSON.

    worker.py OUT SENT STORY...    with TF_CONFIG in the environment, as on several machines

What is sent of a table: "rows" if they are fewer bytes, however small the table; or "whole", which
is right for tables as small as these.

A story is what the workers get to see: a list of cycles, each a list of micro-batches, each a pair
for each worker of its weight and its gradients' kinds, one letter a variable: d(ense), s(parse), -
for None. Workers repeat the pairs if there are more of them. A weight of None is no micro-batch at
all: that worker's data has run out.
"""

from __future__ import absolute_import, division, print_function

import json
import os
import sys

import numpy as np
import tensorflow as tf

import gradaccum_compat as ga
from gradaccum_compat.core import _state, _tables
from support import replicas

v1 = tf.compat.v1
SHAPES = [(3,), (40, 2), (30, 3), ()]

#: Micro-batches of the cycles that grow.
GROWING = 8

STORIES = {
    "uneven shares": [
        [
            [(1.0, "dss-"), (7.0, "dss-"), (2.0, "dss-")],
            [(4.0, "dss-"), (0.0, "dss-"), (3.0, "dss-")],
        ],
        [[(5.0, "dss-"), (None, ""), (1.0, "dss-")]],
        [[(None, ""), (2.0, "dss-"), (None, "")]],
    ],
    # Each worker has had None alone where the other has had gradients.
    "heads in turn": [
        [[(1.0, "ds--"), (3.0, "d--d")]],
        [[(2.0, "d--d"), (1.0, "ds--")]],
        [[(1.0, "d---"), (1.0, "d---")], [(4.0, "ds--"), (1.0, "ds-d")]],
    ],
    "a first gradient in another cycle": [
        [[(1.0, "ds--"), (3.0, "d---")]],
        [[(2.0, "d---"), (1.0, "ds--")]],
        [[(2.0, "dsdd"), (1.0, "d---")]],
        [[(2.0, "d---"), (1.0, "dssd")]],
        [[(2.0, "d---"), (1.0, "d---")]],
    ],
    "nothing on one of them": [
        [[(1.0, "dds-"), (3.0, "----")]],
        [[(2.0, "ddsd"), (1.0, "----")]],
        [[(2.0, "----"), (1.0, "dsdd")]],
    ],
    "sparse here, dense there": [
        [[(1.0, "dsd-"), (3.0, "dds-")]],
        [[(2.0, "dss-"), (5.0, "dss-")], [(2.0, "d---"), (5.0, "dsd-")]],
        [[(2.0, "dds-"), (5.0, "dss-")]],
        [[(2.0, "dss-"), (5.0, "----")]],
        [[(2.0, "dss-"), (None, "")]],
    ],
}


def share(worker, number, pairs):
    """(gradients, kinds, weight) of a worker; a gradient is an array, (values, rows), or None.

    A weight of zero comes with the NaN of a mean over no examples.
    """
    weight, kinds = pairs[worker % len(pairs)]
    random = np.random.RandomState(100 * number + worker)
    gradients = []
    for kind, shape in zip(kinds, SHAPES):
        rows = random.randint(0, shape[0], size=3) if kind == "s" else None
        values = np.asarray(random.randn(*((3,) + shape[1:] if kind == "s" else shape)), np.float32)
        values = values * np.float32(1.0 if weight else np.nan)
        gradients.append(None if kind == "-" else (values, rows) if kind == "s" else values)
    return gradients, kinds, weight


def numbered(story):
    """(cycle, number, pairs) of each micro-batch."""
    number = 0
    for cycle, micro_batches in enumerate(STORIES[story]):
        for pairs in micro_batches:
            yield cycle, number, pairs
            number += 1


def make_strategy():
    replicas.look_often()
    kind = getattr(tf.distribute, "MultiWorkerMirroredStrategy", None)
    return (kind or tf.distribute.experimental.MultiWorkerMirroredStrategy)()


class Trainer(object):
    """The training program of one worker."""

    def __init__(self, strategy, story):
        name = story.replace(" ", "_").replace(",", "")
        with strategy.scope():
            # The collectives of TF 1.14 know variables by their names.
            self.variables = [
                tf.Variable(np.ones(shape, np.float32), name="%s_%d" % (name, index))
                for index, shape in enumerate(SHAPES)
            ]
            self.accumulator = ga.Accumulator(
                v1.train.MomentumOptimizer(0.5, 0.9), self.variables, name=name
            )
        self._run = getattr(strategy, "run", None) or strategy.experimental_run_v2
        self._layouts = {}
        self.apply = tf.function(self._apply)

    def accumulate(self, gradients, kinds, weight):
        flat = [
            tf.convert_to_tensor(each)
            for gradient in gradients
            if gradient is not None
            for each in (gradient if isinstance(gradient, tuple) else [gradient])
        ]
        if kinds not in self._layouts:
            self._layouts[kinds] = tf.function(
                lambda flat, weight: self._accumulate(kinds, flat, weight)
            )
        self._layouts[kinds](flat, tf.constant(weight, tf.float32))

    def _accumulate(self, kinds, flat, weight):
        tensors = iter(flat)
        gradients = [
            (
                None
                if kind == "-"
                else (
                    next(tensors) if kind == "d" else tf.IndexedSlices(next(tensors), next(tensors))
                )
            )
            for kind in kinds
        ]
        self._run(lambda: self.accumulator.accumulate(gradients, weight))

    def _apply(self):
        # TF before 2.1 cannot return a worker's tensor from a function.
        self._run(self.accumulator.apply)


def train(strategy, worker, story):
    """Tells a worker its part of a story, and returns the weights that it ends with."""
    trainer, last = Trainer(strategy, story), 0
    for cycle, number, pairs in numbered(story):
        if cycle != last:
            trainer.apply()
            last = cycle
        mine = share(worker, number, pairs)
        if mine[-1] is not None:
            trainer.accumulate(*mine)
    trainer.apply()
    return [
        strategy.experimental_local_results(each)[0].numpy().tolist() for each in trainer.variables
    ]


def micro_batch(worker, number):
    """The gradient and the weight of a worker's micro-batch of the growing cycles."""
    random = np.random.RandomState(10 * number + worker)
    return random.randn(2).astype(np.float32), float(random.randint(1, 5))


def train_growing_cycles(strategy, worker):
    """Cycles of one micro-batch, and from update 2 on of three, with statistics.

    Returns:
        How many updates there were after each micro-batch, the weights, and the number of
        micro-batches and the weight of the last update.
    """
    with strategy.scope():
        variable = tf.Variable(np.zeros(2, np.float32), name="growing")
        accumulator = ga.Accumulator(
            v1.train.MomentumOptimizer(0.5, 0.9),
            [variable],
            steps={0: 1, 2: 3},
            statistics=True,
            name="growing",
        )
    run = getattr(strategy, "run", None) or strategy.experimental_run_v2

    @tf.function
    def step(gradient, weight):
        run(lambda: accumulator.step([gradient], weight))

    counts = []
    for number in range(GROWING):
        gradient, weight = micro_batch(worker, number)
        step(tf.constant(gradient), tf.constant(weight))
        counts.append(int(accumulator.update_count.numpy()))
    weights = strategy.experimental_local_results(variable)[0].numpy().tolist()
    last = accumulator.statistics()
    return counts, weights, float(last.micro_batches), float(last.weight)


def main(out, sent, *stories):
    if sent == "rows":
        _tables.SMALLEST = _state.SMALL = 0
    if not tf.executing_eagerly():
        v1.enable_eager_execution()
    strategy = make_strategy()
    worker = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
    ends = {}
    for story in stories:
        print("Story:", story)
        sys.stdout.flush()
        ends[story] = train(strategy, worker, story)
    ends["growing cycles"] = train_growing_cycles(strategy, worker)
    with open(out, "w") as result:
        json.dump(ends, result)


if __name__ == "__main__":
    main(*sys.argv[1:])
