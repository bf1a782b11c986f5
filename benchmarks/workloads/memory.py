"""The peak of the process's memory over that of the same run without accumulation."""

from __future__ import absolute_import, division, print_function

import json
import os
import subprocess
import sys

from benchmarks import contenders, harness, problems

STEPS = (2, 16, 64)
#: Seconds that a process may take: the bfloat16 kernels of old TensorFlows would take hours.
PATIENCE = 120


def run(settings):
    names = [name for name in contenders.WITH_FLOOR if name not in ("plain", "gradient_accumulator")]
    dtypes = ("float32", "bfloat16")
    return [_section(dtype, names, (2, 4) if settings.quick else STEPS, settings) for dtype in dtypes]


def _section(dtype, names, steps, settings):
    jobs = [(name, count) for count in steps for name in ["plain"] + names]
    progress = harness.Progress("memory, " + dtype, len(jobs))
    peaks, skipped = {}, {}
    for name, count in jobs:
        progress.advance()
        # Whoever fails once is not asked again with a larger K, nor is anybody where there is nothing to compare with.
        if name in skipped or "plain" in skipped:
            continue
        outcome = _in_a_process(name, count, dtype, settings.quick)
        if "peak" in outcome:
            peaks[name, count] = outcome["peak"]
        else:
            skipped[name] = outcome["reason"]
    parameters = _problem(2, settings.quick).parameters()
    rows = [{"contender": name, "x": count,
             "bytes_per_parameter": (peaks[name, count] - peaks["plain", count]) / parameters}
            for name, count in jobs if name != "plain" and (name, count) in peaks]
    return {"title": dtype + " variables", "kind": "bytes_by_x", "x": "K", "rows": rows, "skipped": skipped}


def _problem(steps, quick, dtype="float32"):
    """Sixteen layers: what is alive for one of them alone is a sixteenth of what is measured."""
    return problems.dense(4, steps, width=64 if quick else 2048, layers=16, dtype=dtype)


def _in_a_process(name, steps, dtype, quick):
    code = "from benchmarks.workloads import memory; memory.child({!r}, {!r}, {!r}, {!r})".format(
        name, steps, dtype, quick)
    # What is freed goes back at once: otherwise the peak is glibc's, with what each thread keeps for later. And without
    # oneDNN, whose allocator takes twice as much from the system each time and writes 1/32 of that at once: half a byte
    # a parameter here, for whoever passes the point.
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path), MALLOC_MMAP_THRESHOLD_="65536",
                       TF_ENABLE_ONEDNN_OPTS="0")
    process = subprocess.Popen([sys.executable, "-W", "ignore", "-c", code], stdout=subprocess.PIPE,
                               stderr=open(os.devnull, "w"), env=environment)
    lines = process.communicate()[0].decode("utf-8").strip().splitlines()
    if process.returncode or not lines:
        return {"reason": "the process ended with {}".format(process.returncode)}
    return json.loads(lines[-1])


def child(name, steps, dtype, quick):
    """Two cycles in this process; prints the peak of its memory in bytes."""
    import resource
    import signal
    import tensorflow as tf
    tf.compat.v1.enable_eager_execution()
    signal.alarm(PATIENCE)
    problem = _problem(steps, quick, dtype)
    cycle, reason = contenders.make(problem, name)
    if reason:
        print(json.dumps({"reason": reason}))
        return
    try:
        for _ in range(2):
            cycle()
    except Exception as error:  # this TensorFlow or this contender has no bfloat16, each says so in its own way
        print(json.dumps({"reason": "{}: {:.60}".format(type(error).__name__, str(error).split("\n")[0])}))
        return
    unit = 1 if sys.platform == "darwin" else 1024
    print(json.dumps({"peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit}))
