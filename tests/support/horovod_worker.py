"""One of Horovod's workers, as a program: goes through CASES in one mode and prints what came of
each as JSON.

horovodrun --gloo -np 2 python horovod_worker.py MODE SENT

SENT is what is sent of a table: "rows" if they are fewer bytes, however small the table; or
"whole", which is right for tables as small as these.
"""

from __future__ import absolute_import, division, print_function

import collections
import json
import sys

import numpy as np
import tensorflow as tf

import gradaccum_compat as ga
from gradaccum_compat.core import _state, _tables
from support import modes
from support.reference import Slices, dense

v1 = tf.compat.v1
MODES = {
    "eager": modes.Eager,
    "function": modes.Function,
    "graph": modes.Graph,
    "graph_v2": modes.Graph,
}
OPTIMIZERS = {
    "sgd": modes.sgd,
    "momentum": lambda: v1.train.MomentumOptimizer(0.5, 0.9),
    "adam": lambda: v1.train.AdamOptimizer(0.1, epsilon=0.1),
}

#: Cycles are lists of micro-batches, these lists of each worker's (gradients, weight); None is none
#: at all.
Case = collections.namedtuple("Case", ["optimizer", "values", "cycles", "options"])


def draw(seed, *kinds):
    """Gradients of [3], [40, 2] and a scalar: d(ense), s(parse, of as many rows as the seed says)
    or None."""
    random = np.random.RandomState(seed)
    shapes = [(3,), (40, 2), ()]
    drawn = []
    for shape, kind in zip(shapes, kinds):
        rows = random.randint(0, 40, size=1 + seed % 4)
        drawn.append(
            {
                "d": random.randn(*shape),
                "s": Slices(random.randn(len(rows), 2).astype(np.float32), rows),
                "n": None,
            }[kind]
        )
    return [
        np.asarray(each, np.float32) if isinstance(each, (float, np.ndarray)) else each
        for each in drawn
    ]


def ones():
    return [np.ones(shape, np.float32) for shape in [(3,), (40, 2), ()]]


def uneven():
    """Weights of 1 and 7, other rows and more of them on one worker, and the NaN of a mean over no
    examples."""
    nothing = [
        np.full(3, np.nan, np.float32),
        Slices(np.zeros([0, 2], np.float32), np.zeros([0], int)),
        np.float32(np.nan),
    ]
    cycles = [
        [
            [
                (draw(10 * cycle + 2 * number, *"dsd"), 1.0 + 3 * number),
                (draw(10 * cycle + 2 * number + 1, *"dsd"), 7.0),
            ]
            for number in range(2 + cycle)
        ]
        for cycle in range(3)
    ]
    cycles[1][0][1] = (nothing, 0.0)
    return cycles


def with_nones():
    """A vector on worker 0 alone, rows on worker 1 alone and later; a scalar that nobody has but
    once."""
    return [
        [
            [(draw(1, *"dnn"), 1.0), (draw(2, *"nnn"), 2.0)],
            [(draw(3, *"nnn"), 5.0), (draw(4, *"nnn"), 1.0)],
        ],
        [[(draw(5, *"nnn"), 1.0), (draw(6, *"nsn"), 3.0)]],
        [[(draw(7, *"dnn"), 4.0), (draw(8, *"nnd"), 3.0)]],
        [[(draw(9, *"nsn"), 4.0), (draw(10, *"dnn"), 3.0)]],
    ]


def with_empty_workers():
    """One has no micro-batch at all, then the other, then both."""
    return [
        [[(draw(1, *"dsd"), 2.0), None]],
        [[None, (draw(2, *"dsd"), 3.0)], [None, (draw(3, *"dnd"), 1.0)]],
        [],
        [[(draw(4, *"dsd"), 2.0), (draw(5, *"dsd"), 1.0)]],
    ]


def with_two_kinds():
    """A table whose gradient is dense on one worker, and rows on the other."""
    return [
        [[(draw(1, *"ddd"), 2.0), (draw(2, *"dsd"), 3.0)]],
        [[(draw(3, *"dnd"), 2.0), (draw(5, *"dsd"), 1.0)]],
        [[(draw(6, *"dsd"), 1.0), (draw(7, *"dsd"), 1.0)]],
    ]


def with_a_nan():
    cycles = [
        [[(draw(1, *"dsd"), 2.0), (draw(2, *"dsd"), 3.0)]],
        [[(draw(3, *"dsd"), 2.0), (draw(4, *"dsd"), 3.0)]],
    ]
    cycles[0][0][1][0][0][1] = np.nan
    return cycles


def many(count):
    """So many variables of both types, the first of them a scalar."""

    def make(seed):
        return [
            np.asarray(
                np.random.RandomState(seed + index).randn(*((2,) * (index % 3))),
                np.float64 if index % 2 else np.float32,
            )
            for index in range(count)
        ]

    return make(0), [
        [[(make(1 + 10 * cycle), 1.0), (make(2 + 10 * cycle), 7.0)]] for cycle in range(2)
    ]


CASES = {
    "sgd": Case("sgd", ones(), uneven(), {}),
    "momentum": Case("momentum", ones(), uneven(), {}),
    "adam": Case("adam", ones(), uneven(), {}),
    "clipped": Case("sgd", ones(), uneven(), dict(clip_norm=0.3)),
    "added up": Case("sgd", ones(), with_empty_workers(), dict(loss_reduction="none")),
    "nones": Case("momentum", ones(), with_nones(), {}),
    "empty workers": Case("momentum", ones(), with_empty_workers(), {}),
    "two kinds": Case("momentum", ones(), with_two_kinds(), {}),
    "nan": Case("momentum", ones(), with_a_nan(), dict(nonfinite="raise")),
    "many": Case("sgd", many(30)[0], many(30)[1], {}),
    "scalars": Case("sgd", many(1)[0], many(1)[1], {}),
}


def apply(run):
    try:
        return run.apply()
    except (ga.errors.NonFiniteGradientsError, tf.errors.InvalidArgumentError):
        return "raised"


def go_through(case, mode, rank):
    """What the cycles have led to: whether the optimizer moved, the gradients before, the weights
    after."""
    run = mode(
        case.values, OPTIMIZERS[case.optimizer], reducer=ga.horovod.sum_over_workers, **case.options
    )
    came = []
    for cycle in case.cycles:
        for micro_batch in cycle:
            if micro_batch[rank] is not None:
                run.accumulate(*micro_batch[rank])
        gradients = [
            dense(each, np.shape(value)).tolist()
            for each, value in zip(run.gradients(), case.values)
        ]
        moved = apply(run)
        came.append(
            dict(
                moved=moved, gradients=gradients, weights=[each.tolist() for each in run.weights()]
            )
        )
    return came


def two_in_one_run(rank):
    """Two accumulators of one graph, whose updates are made in one session.run: the weights of
    both."""
    with tf.Graph().as_default():
        variables = [v1.Variable(np.zeros(3, np.float32), use_resource=True) for _ in range(2)]
        made = [
            ga.Accumulator(modes.sgd(), [each], reducer=ga.horovod.sum_over_workers)
            for each in variables
        ]
        added = [
            each.accumulate([tf.fill([3], 10.0**number)], 1.0 + rank)
            for number, each in enumerate(made)
        ]
        # Horovod's order is that of the executor: each worker begins with another one.
        applied = [each.apply() for each in (made if rank else made[::-1])]
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            for _ in range(20):
                session.run(added)
                session.run(applied)
            return [each.tolist() for each in session.run(variables)]


def built_and_not_run(rank, handed_in):
    """Worker 0 has a micro-batch with both gradients in its graph, and never runs it: (moved,
    weights)."""
    with tf.Graph().as_default():
        variables = [
            v1.Variable(np.zeros([], dtype), use_resource=True)
            for dtype in (np.float64, np.float32)
        ]
        accumulator = ga.Accumulator(modes.sgd(), variables, reducer=ga.horovod.sum_over_workers)
        gradients = [tf.constant(2.0, tf.float64), tf.constant(3.0)]
        if rank == 0:
            accumulator.accumulate(gradients)
        added = accumulator.accumulate([gradients[0] if handed_in else None, None])
        applied = accumulator.apply()
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            session.run(added)
            return [bool(session.run(applied))] + [float(each) for each in session.run(variables)]


def main(name, sent):
    import horovod.tensorflow as hvd

    if sent == "rows":
        _tables.SMALLEST = _state.SMALL = 0
    if name == "graph_v2":
        v1.enable_control_flow_v2()
    if not tf.executing_eagerly():
        v1.enable_eager_execution()
    hvd.init()
    came = {}
    for case in sorted(CASES):
        print(case, file=sys.stderr)  # where it hangs, if it does
        came[case] = go_through(CASES[case], MODES[name], hvd.rank())
    if name.startswith("graph"):
        came["two in one run"] = two_in_one_run(hvd.rank())
        came["built and not run"] = [
            built_and_not_run(hvd.rank(), handed_in) for handed_in in (True, False)
        ]
    print(json.dumps(came))
    hvd.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
