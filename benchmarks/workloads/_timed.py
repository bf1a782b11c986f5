"""A table of times: the contenders on one problem, interleaved."""

from __future__ import absolute_import, division, print_function

from benchmarks import contenders, harness


def section(title, problem, names, settings, warm=2):
    cycles, skipped, baseline_of = contenders.cycles(problem, names)
    timings = harness.measure(cycles, settings.rounds, title, warm)
    return {
        "title": title,
        "kind": "times",
        "rows": harness.rows(timings, [name for name, _ in cycles], baseline_of),
        "skipped": skipped,
    }
