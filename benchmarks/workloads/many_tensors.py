"""400 variables of 32 x 32: the time goes into handling tensors, in Python and in the executor."""

from __future__ import absolute_import, division, print_function

import tensorflow as tf

import gradaccum_compat as ga
from benchmarks import contenders, harness, problems
from benchmarks.workloads import _timed


def run(settings):
    problem = problems.many_tensors(8, count=20 if settings.quick else 400)
    return [_timed.section("tf.function, K = 8", problem, contenders.EVERYONE, settings), _eager(problem, settings)]


def _eager(problem, settings):
    gradients = [tf.ones(each.shape) for each in problem.variables()]
    cycles = [("bare_loop", _bare_loop(problem, gradients)), ("accumulate", _accumulate(problem, gradients))]
    timings = harness.measure(cycles, settings.rounds, "eager, K = 8")
    return {"title": "Eager, K = 8, adding up alone", "kind": "times", "skipped": {},
            "rows": harness.rows(timings, [name for name, _ in cycles], lambda name: "bare_loop")}


def _bare_loop(problem, gradients):
    sums = [tf.Variable(tf.zeros_like(each), trainable=False) for each in gradients]

    def cycle():
        for total, gradient in zip(sums, gradients):
            total.assign(gradient)
        for _ in range(problem.steps - 1):
            for total, gradient in zip(sums, gradients):
                total.assign_add(gradient)
    return cycle


def _accumulate(problem, gradients):
    accumulator = ga.Accumulator(problem.optimizer(), problem.variables())

    def cycle():
        for _ in range(problem.steps):
            accumulator.accumulate(gradients)
        accumulator.reset()
    return cycle
