"""What statistics=True costs, beside the same step without it, interleaved."""

from __future__ import absolute_import, division, print_function

from benchmarks import contenders, harness, problems
from benchmarks.contenders import ours


def run(settings):
    width, length = (32, 16) if settings.quick else (256, 128)
    return [
        _section(
            "Dense layers, K = 8, micro-batch 4",
            problems.dense(4, 8, width=64 if settings.quick else 2048),
            settings,
        ),
        _section(
            "Transformer blocks, K = 8, micro-batch 4",
            problems.transformer(4, 8, width=width, length=length),
            settings,
        ),
    ]


def _section(title, problem, settings):
    without, _ = contenders.make(problem, "step")
    cycles = [("step", without), ("statistics", ours.step_with_statistics(problem))]
    timings = harness.measure(cycles, settings.rounds, title)
    rows = harness.rows(timings, ["step", "statistics"], lambda name: "step")
    return {"title": title, "kind": "times", "rows": rows, "skipped": {}}
