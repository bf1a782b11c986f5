"""The same dense layers with micro-batches of 256: the time goes into multiplying."""

from __future__ import absolute_import, division, print_function

from benchmarks import contenders, problems
from benchmarks.workloads import _timed


def run(settings):
    problem = problems.dense(256, 8, width=64 if settings.quick else 2048)
    return [
        _timed.section("K = 8, micro-batch 256", problem, contenders.WITH_FLOOR, settings, warm=1)
    ]
