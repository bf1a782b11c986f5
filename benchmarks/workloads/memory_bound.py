"""Dense layers and micro-batches of 4: the time goes into reading and writing weights, gradients
and sums."""

from __future__ import absolute_import, division, print_function

from benchmarks import contenders, problems
from benchmarks.workloads import _timed


def run(settings):
    problem = problems.dense(4, 8, width=64 if settings.quick else 2048)
    return [_timed.section("K = 8, micro-batch 4", problem, contenders.WITH_FLOOR, settings)]
