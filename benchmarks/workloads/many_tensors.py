"""400 variables of 32 x 32: the time goes into handling tensors, in Python and in the executor."""

from __future__ import absolute_import, division, print_function

import tensorflow as tf

import gradaccum_compat as ga
from benchmarks import contenders, harness, problems
from benchmarks.contenders import by_hand
from benchmarks.workloads import _timed

#: Few: there it shows what an accumulator does besides.
FEW = 10


def run(settings):
    many, few = [
        problems.many_tensors(8, count=count) for count in (20 if settings.quick else 400, FEW)
    ]
    return [
        _timed.section("tf.function, K = 8", many, contenders.WITH_FLOOR, settings),
        _adding_up("Eager", _as_it_is, many, settings),
        _adding_up("tf.function", tf.function, many, settings),
        _adding_up("Eager, {} variables".format(FEW), _as_it_is, few, settings),
    ]


def _as_it_is(function):
    return function


def _adding_up(kind, decorate, problem, settings):
    gradients = [tf.ones(each.shape) for each in problem.variables()]
    cycles = [
        ("bare_loop", _bare_loop(problem, gradients, decorate)),
        ("accumulate", _accumulate(problem, gradients, decorate)),
    ]
    timings = harness.measure(cycles, settings.rounds, kind + ", adding up alone")
    return {
        "title": kind + ", K = 8, adding up alone",
        "kind": "times",
        "skipped": {},
        "rows": harness.rows(timings, [name for name, _ in cycles], lambda name: "bare_loop"),
    }


def _bare_loop(problem, gradients, decorate):
    sums = by_hand.sums_of(gradients)
    first = decorate(lambda gradients: by_hand.assign(sums, gradients))
    later = decorate(lambda gradients: by_hand.assign_add(sums, gradients))

    def cycle():
        first(gradients)
        for _ in range(problem.steps - 1):
            later(gradients)

    return cycle


def _accumulate(problem, gradients, decorate):
    accumulator = ga.Accumulator(problem.optimizer(), problem.variables())
    accumulate, reset = decorate(lambda gradients: accumulator.accumulate(gradients)), decorate(
        accumulator.reset
    )

    def cycle():
        for _ in range(problem.steps):
            accumulate(gradients)
        reset()

    return cycle
