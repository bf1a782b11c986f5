"""An embedding table of which each micro-batch touches 1,000 rows."""

from __future__ import absolute_import, division, print_function

import numpy as np
import tensorflow as tf

from benchmarks import contenders, harness, problems
from benchmarks.workloads import _timed

HEIGHTS = (100000, 1000000, 4000000)
#: Few, since the highest table takes a GiB, and its sum and the optimizer's as much again.
BY_HEIGHT = ("plain", "step")


def run(settings):
    parts = [
        (make, optimizer) for make in (_compared, _by_height) for optimizer in ("SGD", "Adagrad")
    ]
    chosen = parts if settings.part is None else [parts[settings.part]]
    return [make(optimizer, settings) for make, optimizer in chosen]


def _compared(optimizer, settings):
    height = 2000 if settings.quick else 1000000
    problem = problems.embedding(height, 8, optimizer, rows=10 if settings.quick else 1000)
    return _timed.section(
        "{}, {:,} rows".format(optimizer, height), problem, contenders.EVERYONE, settings, warm=1
    )


def _by_height(optimizer, settings):
    """Rows of one table per height: ours, and the optimizer by itself."""
    table = []
    for height in (1000, 2000) if settings.quick else HEIGHTS:
        problem = problems.embedding(height, 8, optimizer, rows=10 if settings.quick else 1000)
        cycles, _, _ = contenders.cycles(problem, BY_HEIGHT)
        cycles.append(("optimizer", _optimizer_alone(problem)))
        timings = harness.measure(
            cycles, settings.rounds, "{}, {:,} rows".format(optimizer, height), warm=1
        )
        for name, _ in cycles:
            table.append(
                {
                    "contender": name,
                    "x": height,
                    "min_seconds": harness.least(timings[name]),
                    "median_seconds": harness.median([each.wall for each in timings[name]]),
                }
            )
    return {
        "title": "{}, by height".format(optimizer),
        "kind": "seconds_by_x",
        "x": "rows of the table",
        "rows": table,
    }


def _optimizer_alone(problem):
    variables = problem.variables()
    optimizer = problem.optimizer()
    if hasattr(optimizer, "build"):
        optimizer.build(variables)
    rows = np.unique(problem.batch[0].numpy())
    slices = tf.constant(rows), tf.ones([len(rows), int(variables[0].shape[1])])

    @tf.function
    def update():
        gradient = tf.IndexedSlices(
            slices[1], slices[0], tf.constant(variables[0].shape.as_list(), tf.int64)
        )
        optimizer.apply_gradients([(gradient, variables[0])])
        return tf.constant(True)

    return lambda: update().numpy()
