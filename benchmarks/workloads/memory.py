"""The peak of the process's memory over that of the same run without accumulation."""

from __future__ import absolute_import, division, print_function

import collections
import json
import os
import subprocess
import sys

from benchmarks import contenders, harness, problems

STEPS = {"float32": (2, 16, 64), "bfloat16": (2, 16)}  # whose kernels are slow
#: What is alive for one of sixteen layers alone is a sixteenth of what is measured.
LAYERS = 16
WIDTH = 2048
#: Beside a gigabyte of weights, the last one's, a graph is small.
WIDTHS = (1024, WIDTH, 4096)
#: Seconds that a process may take: the bfloat16 kernels of old TensorFlows would take hours.
PATIENCE = 240

#: What one process trains: K, how many layers, how wide, of which dtype.
Job = collections.namedtuple("Job", "steps layers width dtype")


def run(settings):
    steps, widths = (dict.fromkeys(STEPS, (2, 4)), (32, 64)) if settings.quick else (STEPS, WIDTHS)
    job = Job(2, 2, 64, "float32") if settings.quick else Job(2, LAYERS, WIDTH, "float32")
    by_steps = [
        _section(
            dtype + " variables",
            "K",
            [(count, job._replace(steps=count, dtype=dtype)) for count in steps[dtype]],
        )
        for dtype in ("float32", "bfloat16")
    ]
    return by_steps + [
        _section(
            "float32 variables, K = 2",
            "width",
            [(width, job._replace(width=width)) for width in widths],
        )
    ]


def _section(title, x, jobs):
    """Rows of all contenders, for each pair of a value of x and its Job."""
    names = [
        name for name in contenders.WITH_FLOOR if name not in ("plain", "gradient_accumulator")
    ]
    progress = harness.Progress("memory, " + title, len(jobs) * (1 + len(names)))
    rows, skipped = [], {}
    for value, job in jobs:
        peaks = {}
        for name in ["plain"] + names:
            progress.advance()
            # Whoever fails once is not asked again for more, nor is anybody where there is nothing
            # to compare with.
            if name not in skipped and "plain" not in skipped:
                outcome = _in_a_process(name, job)
                (skipped if "reason" in outcome else peaks)[name] = outcome.get(
                    "reason", outcome.get("peak")
                )
        parameters = _problem(job).parameters()
        rows += [
            {
                "contender": name,
                "x": value,
                "bytes_per_parameter": (peaks[name] - peaks["plain"]) / parameters,
            }
            for name in names
            if name in peaks
        ]
    return {"title": title, "kind": "bytes_by_x", "x": x, "rows": rows, "skipped": skipped}


def _problem(job):
    return problems.dense(4, job.steps, width=job.width, layers=job.layers, dtype=job.dtype)


def _in_a_process(name, job):
    code = "from benchmarks.workloads import memory; memory.child({!r}, *{!r})".format(
        name, tuple(job)
    )
    # What is freed goes back at once: otherwise the peak is glibc's, with what each thread keeps
    # for later. And without oneDNN, whose allocator takes twice as much from the system each time
    # and writes 1/32 of that at once: half a byte a parameter here, for whoever passes the point.
    environment = dict(
        os.environ,
        PYTHONPATH=os.pathsep.join(sys.path),
        MALLOC_MMAP_THRESHOLD_="65536",
        TF_ENABLE_ONEDNN_OPTS="0",
    )
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", code],
        stdout=subprocess.PIPE,
        stderr=open(os.devnull, "w"),
        env=environment,
    )
    lines = process.communicate()[0].decode("utf-8").strip().splitlines()
    if process.returncode or not lines:
        return {"reason": "the process ended with {}".format(process.returncode)}
    return json.loads(lines[-1])


def child(name, *job):
    """Two cycles in this process; prints the peak of its memory in bytes."""
    import resource
    import signal

    import tensorflow as tf

    tf.compat.v1.enable_eager_execution()
    signal.alarm(PATIENCE)
    problem = _problem(Job(*job))
    cycle, reason = contenders.make(problem, name)
    if reason:
        print(json.dumps({"reason": reason}))
        return
    try:
        for _ in range(2):
            cycle()
    except (
        Exception
    ) as error:  # this TensorFlow or this contender has no bfloat16, each says so in its own way
        print(
            json.dumps(
                {"reason": "{}: {:.60}".format(type(error).__name__, str(error).split("\n")[0])}
            )
        )
        return
    unit = 1 if sys.platform == "darwin" else 1024
    print(json.dumps({"peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit}))
