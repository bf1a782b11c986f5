"""A stack of transformer blocks: in between the two others, and what many train."""

from __future__ import absolute_import, division, print_function

from benchmarks import contenders, problems
from benchmarks.workloads import _timed


def run(settings):
    problem = problems.transformer(
        4, 8, width=32 if settings.quick else 256, length=16 if settings.quick else 128
    )
    return [_timed.section("K = 8, micro-batch 4", problem, contenders.WITH_FLOOR, settings)]
