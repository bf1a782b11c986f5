"""Makes every table and plot of benchmarks/README.md.

    python benchmarks/run.py                           everything, on this TensorFlow
    python benchmarks/run.py --python A/python B/python   on other Pythons, one by one
    python benchmarks/run.py --only memory_bound sparse             some workloads
    python benchmarks/run.py --quick                   small shapes, few rounds: does it run?
    python benchmarks/run.py --render                  tables and plots from the results

Each workload runs in a process of its own, and all that it compares in that one process,
interleaved.
"""

from __future__ import absolute_import, division, print_function

import argparse
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

from benchmarks import harness, machine, render, workloads  # noqa: E402


def main(arguments=None):
    options = _parser().parse_args(arguments)
    if options.child:
        return _child(options)
    if not options.render:
        for python in options.python:
            for name in options.only:
                _run(python, name, options)
    for path in render.everything(options.results, options.readme):
        print("wrote", os.path.relpath(path))
    return 0


def _parser():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--python",
        nargs="+",
        default=[sys.executable],
        metavar="PATH",
        help="the Pythons to run with, each with a TensorFlow; this one unless given",
    )
    parser.add_argument(
        "--only",
        nargs="+",
        default=list(workloads.NAMES),
        choices=workloads.NAMES,
        metavar="NAME",
        help="the workloads to run: " + ", ".join(workloads.NAMES),
    )
    parser.add_argument(
        "--rounds", type=int, default=15, help="how often each contender is timed (15)"
    )
    parser.add_argument(
        "--quick", action="store_true", help="small shapes; with --rounds 2 it takes a minute"
    )
    parser.add_argument(
        "--render", action="store_true", help="run nothing; make tables and plots from the results"
    )
    parser.add_argument(
        "--results",
        default=os.path.join(HERE, "results"),
        metavar="FOLDER",
        help="where results and plots go (benchmarks/results)",
    )
    parser.add_argument(
        "--readme",
        default=os.path.join(HERE, "README.md"),
        metavar="FILE",
        help="the page whose tables are renewed (benchmarks/README.md)",
    )
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--out", help=argparse.SUPPRESS)
    parser.add_argument("--part", type=int, help=argparse.SUPPRESS)
    return parser


def _run(python, name, options):
    """One workload, in as many processes as it takes; their result goes into the file of its
    TensorFlow."""
    results = [
        _once(python, name, options)
        for _ in range(1 if options.quick else workloads.PROCESSES.get(name, 1))
    ]
    if None not in results:
        _keep(
            dict(
                results[0],
                processes=len(results),
                sections=harness.pooled([each["sections"] for each in results]),
            ),
            options.results,
        )


def _once(python, name, options):
    """One workload, its parts one after another: their result, or None."""
    parts = (
        range(workloads.PARTS[name]) if name in workloads.PARTS and not options.quick else [None]
    )
    results = [_in_a_process(python, name, part, options) for part in parts]
    return (
        None
        if None in results
        else dict(
            results[0], sections=[section for each in results for section in each["sections"]]
        )
    )


def _in_a_process(python, name, part, options):
    """A part of a workload in a process of its own: its result, or None."""
    handle, path = tempfile.mkstemp(suffix=".json")
    os.close(handle)
    command = (
        [
            python,
            "-W",
            "ignore",
            os.path.abspath(__file__),
            "--child",
            name,
            "--out",
            path,
            "--rounds",
            str(options.rounds),
        ]
        + (["--quick"] if options.quick else [])
        + ([] if part is None else ["--part", str(part)])
    )
    status = subprocess.call(command, env=dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3"))
    try:
        if status:
            print(
                "{}: the process ended with {}; nothing is written".format(name, status),
                file=sys.stderr,
            )
            return None
        with open(path) as stream:
            return json.load(stream)
    finally:
        os.remove(path)


def _keep(result, folder):
    if not os.path.isdir(folder):
        os.makedirs(folder)
    path = os.path.join(folder, "tf-{}.json".format(result["machine"]["tensorflow"]))
    known = {}
    if os.path.exists(path):
        with open(path) as stream:
            known = json.load(stream)
    known[result["workload"]] = result
    with open(path, "w") as stream:
        stream.write(json.dumps(known, indent=1, sort_keys=True, separators=(",", ": ")) + "\n")


def _child(options):
    import tensorflow as tf

    tf.compat.v1.enable_eager_execution()
    workload = workloads.load(options.child)
    sections = workload.run(workloads.Settings(options.rounds, options.quick, options.part))
    result = {
        "workload": options.child,
        "rounds": options.rounds,
        "quick": options.quick,
        "machine": machine.description(),
        "sections": sections,
    }
    with open(options.out, "w") as stream:
        json.dump(result, stream)
    return 0


if __name__ == "__main__":
    sys.exit(main())
