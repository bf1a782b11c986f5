"""Times a cycle on two workers: one reduction per cycle (gradaccum_compat), or one per micro-batch
(usual); and of a table with sparse gradients, the touched rows or the whole table.

Two processes on this machine train a model whose gradients are large and whose computation is
small, under MultiWorkerMirroredStrategy, with gRPC on the loopback. All ways run in the same two
processes, in turns. distributed.md says what is compared, and how to read the result.
"""

from __future__ import absolute_import, division, print_function

import argparse
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

import distributed_report

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
LAUNCHER = os.path.join(ROOT, "legacy_examples", "launch_workers.py")
#: Of the model, and of the table.
WAYS = 2 + 2


class Progress(object):
    """A bar on a terminal, and nothing anywhere else."""

    WIDTH = 30

    def __init__(self, total, stream=sys.stderr):
        self._total, self._stream, self._done = total, stream, 0
        self._shown, self._begun = stream.isatty(), None
        self._show("starting the workers")

    def advance(self):
        self._begun = self._begun or time.time()
        self._done += 1
        left = (time.time() - self._begun) / self._done * (self._total - self._done)
        self._show("{}/{} cycles, about {:.0f} s left".format(self._done, self._total, left))

    def _show(self, text):
        if self._shown:
            bar = "#" * (self.WIDTH * self._done // self._total)
            self._stream.write("\r[{}] {:<40}".format(bar.ljust(self.WIDTH, "."), text))
            self._stream.flush()

    def close(self):
        if self._shown:
            self._stream.write("\n")


def parse(arguments):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rounds", type=int, default=15, help="how often each is timed (default: %(default)s)"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help=(
            "3 rounds, a model of 2 million parameters, a table of 50,000 rows, cycles of 1, 2 and"
            " 4: to see that it works"
        ),
    )
    parser.add_argument(
        "--parameters", type=int, default=20 * 10**6, help="of the model (default: %(default)s)"
    )
    parser.add_argument(
        "--rows", type=int, default=10**6, help="of the table (default: %(default)s)"
    )
    parser.add_argument(
        "--micro-batches",
        type=int,
        nargs="+",
        default=[1, 2, 4, 8, 16],
        metavar="N",
        help="the cycles that are timed (default: 1 2 4 8 16)",
    )
    parser.add_argument(
        "--python",
        default=sys.executable,
        help=(
            "a Python with TensorFlow, which runs the workers (default: this one); this one draws"
            " the plot, if it has matplotlib"
        ),
    )
    parser.add_argument(
        "--results",
        default=os.path.join(HERE, "results"),
        metavar="FOLDER",
        help="where JSON, Markdown table and plot go (default: benchmarks/results)",
    )
    parser.add_argument(
        "--limit",
        type=int,
        default=3600,
        metavar="SECONDS",
        help="end the workers after so long (default: %(default)s)",
    )
    options = parser.parse_args(arguments)
    if options.quick:
        options.rounds, options.parameters, options.micro_batches = 3, 2 * 10**6, [1, 2, 4]
        options.rows = 50000
    if min([options.rounds] + options.micro_batches) < 1:
        parser.error("--rounds and --micro-batches are 1 or more")
    return options


def measure(options, folder):
    """Runs the two workers; returns what the chief has measured, or None where they failed."""
    out = os.path.join(folder, "out.json")
    task = json.dumps(
        {
            "parameters": options.parameters,
            "rounds": options.rounds,
            "micro_batches": options.micro_batches,
            "rows": options.rows,
            "out": out,
        }
    )
    command = [
        options.python,
        "-W",
        "ignore",
        LAUNCHER,
        "--local",
        "2",
        "--limit",
        str(options.limit),
        os.path.join(HERE, "distributed_worker.py"),
        task,
    ]
    environment = dict(os.environ, PYTHONPATH=ROOT, PYTHONWARNINGS="ignore")
    environment.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with open(os.path.join(folder, "log"), "w+") as log:
        code = _watch(
            subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=log),
            Progress(options.rounds * len(options.micro_batches) * WAYS),
        )
        if code:
            log.seek(0)
            print("The workers failed:\n" + log.read()[-5000:], file=sys.stderr)
            return None
    with open(out) as result:
        return json.load(result)


def _watch(process, progress):
    """Shows how far it is; returns the exit code. The launcher ends its workers, whatever ends
    this."""
    try:
        for line in iter(process.stdout.readline, b""):
            if line.strip() == b"cycle":
                progress.advance()
    finally:
        progress.close()
        process.stdout.close()
        if sys.exc_info()[0] is not None:
            process.terminate()
        code = process.wait()
    return code


def write(measured, folder):
    """Writes JSON, the table, and a plot where there is matplotlib; prints the table."""
    if not os.path.isdir(folder):
        os.makedirs(folder)
    name = os.path.join(folder, "distributed-tf" + ".".join(measured["tensorflow"].split(".")[:2]))
    text = distributed_report.markdown(measured)
    for suffix, content in (
        (".json", json.dumps(measured, indent=1, sort_keys=True) + "\n"),
        (".md", text),
    ):
        with io.open(name + suffix, "w", encoding="ascii") as result:
            result.write("" + content)
    print(text)
    if not distributed_report.plot(measured, name + ".png"):
        print("No plot: this Python has no matplotlib.", file=sys.stderr)


def main(arguments=None):
    options = parse(arguments)
    folder = tempfile.mkdtemp()
    try:
        measured = measure(options, folder)
    finally:
        shutil.rmtree(folder)
    if measured is None:
        return 1
    write(measured, options.results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
