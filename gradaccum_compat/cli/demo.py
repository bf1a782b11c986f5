"""gradaccum-compat demo: one small network trained twice, with big batches and accumulated.

Each run has a process of its own, so that its peak of memory is its own; the runs are compared
here. The training is in demo_training.py. No TensorFlow here: see process.py.
"""

from __future__ import absolute_import, division, print_function

import os
import shutil
import sys
import tempfile

from gradaccum_compat import _detect, errors
from gradaccum_compat.cli import parsing, process, terminal

#: The largest difference of a weight that float32 rounding accounts for.
LIMIT = 1e-6
BIG, ACCUMULATED = "big batch", "accumulated"
DESCRIPTION = (
    "Trains a small network twice on the TensorFlow found here, on the CPU: with big batches and a"
    " plain optimizer, and accumulated from uneven micro-batches. Compares the weights, the memory"
    " and the time."
)
# Memory is measured on the host, and GPUs may round products to TF32: both runs stay on the CPU.
_ON_CPU = {"CUDA_VISIBLE_DEVICES": "-1"}


def add_to(commands):
    """Adds the command."""
    parser = parsing.add_command(
        commands,
        "demo",
        "train the same network with big batches and accumulated, and compare",
        DESCRIPTION,
        "0 if both end with the same weights, 1 if not",
        run,
    )
    parsing.add_number(parser, "--updates", 20, "updates of the optimizer in each run", 1)
    parsing.add_number(parser, "--batch", 16384, "examples for one update", 2)
    parsing.add_number(
        parser, "--micro-batches", 8, "uneven micro-batches to cut each batch into", 2
    )
    # The seeds that NumPy takes.
    parsing.add_number(
        parser, "--seed", 0, "seed of the data, the weights and the cuts", 0, 2**32 - 1
    )


def run(arguments):
    """Runs the command, and returns the exit code."""
    if arguments.micro_batches > arguments.batch:
        arguments.fail(
            "--micro-batches must be at most --batch: a micro-batch holds at least one example"
        )
    return main(arguments.updates, arguments.batch, arguments.micro_batches, arguments.seed)


def main(updates, batch, micro_batches, seed):
    """Trains twice, prints the comparison and returns the exit code."""
    options = {"updates": updates, "batch": batch, "seed": seed}
    folder = tempfile.mkdtemp(prefix="gradaccum_compat")
    try:
        big = _train(BIG, folder, dict(options, micro_batches=None))
        accumulated = _train(ACCUMULATED, folder, dict(options, micro_batches=micro_batches))
        difference = largest_difference(big["weights"], accumulated["weights"])
    except errors.TensorFlowError as error:
        return _failed(error)
    except process.ProcessDied as death:
        return _failed("Training did not finish: {}".format(death))
    finally:
        shutil.rmtree(folder)
    print("\n".join(_introduction(accumulated, options) + table(big, accumulated)))
    return _conclude(difference)


def _train(name, folder, options):
    """Trains in a process of its own; returns what it measured, and the path of the weights."""
    path = os.path.join(folder, name.replace(" ", "_") + ".npz")
    bar = terminal.Bar(name, "updates", sys.stderr)
    try:
        measured = process.call(
            "gradaccum_compat.cli.demo:train_here",
            dict(options, path=path),
            lambda done: bar.show(done, options["updates"]),
            _ON_CPU,
        )
    finally:
        bar.clear()
    return dict(measured, weights=path)


def train_here(report, **options):
    """In the process of its own: trains, once it is known that there is a TensorFlow to train
    with."""
    _detect.backend()
    from gradaccum_compat.cli import demo_training  # needs NumPy, which comes with TensorFlow

    return demo_training.train(report, **options)


def _failed(reason):
    print(reason, file=sys.stderr)
    return 1


def largest_difference(one, other):
    """The largest difference of any weight between two files of weights; NaN where one holds
    NaN."""
    import numpy as np  # comes with TensorFlow, and is not needed for anything else here

    with np.load(one) as first, np.load(other) as second:
        return float(np.max([np.max(np.abs(first[name] - second[name])) for name in first.files]))


# What is printed


def _introduction(measured, options):
    sizes = measured["sizes"]
    return [
        "Trained a network of {:,} weights twice on {}, on the CPU.".format(
            measured["weight_count"], measured["backend"]
        ),
        "An update sees {} examples: at once, or in {} micro-batches of {} to {}.".format(
            options["batch"], len(sizes), min(sizes), max(sizes)
        ),
        "",
    ]


def table(big, accumulated):
    """The lines of the table that sets the two runs side by side."""
    rows = [("", BIG, ACCUMULATED)]
    for label, shown in ROWS:
        rows.append((label, shown(big), shown(accumulated)))
    return ["{:<26}{:>18}{:>18}".format(*row) for row in rows]


def _memory(measured):
    size = measured["peak_bytes"]
    return "not known here" if size is None else "{:.1f} MiB".format(size / 2.0**20)


ROWS = (
    ("updates of the optimizer", lambda measured: str(measured["updates"])),
    (
        "loss, first and last",
        lambda measured: "{:.4f}, {:.4f}".format(measured["losses"][0], measured["losses"][-1]),
    ),
    ("peak memory of training", _memory),
    ("time for an update", lambda measured: "{:.1f} ms".format(measured["seconds"] * 1000)),
)


def _conclude(difference):
    print(
        "{:<26}{:>36}\n".format(
            "largest difference", "{:.1e} (limit {:.0e})".format(difference, LIMIT)
        )
    )
    verdict, code = judge(difference)
    print(terminal.painted(verdict, "red" if code else "green", sys.stdout))
    return code


def judge(difference):
    """The verdict on the largest difference of any weight, and the exit code. NaN is a
    difference."""
    if difference <= LIMIT:
        return "The same weights: accumulating gave what the big batch gives.", 0
    return "NOT the same weights: they differ by more than float32 rounding accounts for.", 1
