"""What it costs to record each update, between snapshots.

The transformer, recorded and not, interleaved.
"""

from __future__ import absolute_import, division, print_function

import os
import shutil
import tempfile

import gradaccum_compat as ga
from benchmarks import contenders, harness, problems

#: The first cycles have sketches of their micro-batches too, and the first is a snapshot.
WARM = 4


def run(settings):
    problem = problems.transformer(
        4, 8, width=32 if settings.quick else 256, length=16 if settings.quick else 128
    )
    folder = tempfile.mkdtemp()
    try:
        plain, _ = contenders.make(problem, "step")
        with ga.upgrade.record(os.path.join(folder, "record"), snapshots=[0]):
            recorded, _ = contenders.make(problem, "step")
            cycles = [("step", plain), ("recorded", recorded)]
            timings = harness.measure(cycles, settings.rounds, "recording", WARM)
    finally:
        shutil.rmtree(folder)
    rows = harness.rows(timings, ["step", "recorded"], lambda name: "step")
    return [{"title": "K = 8, micro-batch 4", "kind": "times", "rows": rows, "skipped": {}}]
