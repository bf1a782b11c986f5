"""gradaccum-compat matrix: arguments, progress, output and exit codes. No TensorFlow here."""

from __future__ import absolute_import, division, print_function

import os
import shlex
import sys

from gradaccum_compat.cli import parsing

DESCRIPTION = (
    "Runs a training program under several TensorFlows, in environments that it makes and keeps,"
    " records each run, and compares all with the first. Needs virtualenv: pip install"
    " gradaccum_compat[matrix]."
)


def add_to(commands):
    """Adds the command."""
    parser = parsing.add_command(
        commands,
        "matrix",
        "train under several TensorFlows, and compare",
        DESCRIPTION,
        "0 if all train the same, 1 if one does not, 2 if one could not run or be judged",
        run,
    )
    parser.add_argument("program", metavar="PROGRAM", help="your training program, a Python file")
    parser.add_argument(
        "--tf",
        metavar="X.Y",
        action="append",
        required=True,
        dest="tensorflows",
        help="a TensorFlow, such as 2.4; given once for each, the one to compare with first",
    )
    parser.add_argument(
        "--args",
        metavar="STRING",
        default="",
        help='what the program is called with, such as --args="--epochs 3"',
    )
    parser.add_argument(
        "--with",
        metavar="REQUIREMENT",
        action="append",
        default=[],
        dest="packages",
        help="what pip installs besides, such as pandas; may be repeated",
    )
    parsing.add_map(parser, "a variable's name under the first TensorFlow and under the others")
    parser.add_argument(
        "--records",
        metavar="DIR",
        default="gradaccum-matrix",
        help="where the records go, each run into a folder of its own (gradaccum-matrix)",
    )
    parser.add_argument(
        "--cache",
        metavar="DIR",
        default=None,
        help="where the environments are kept ({})".format(_cache()),
    )


def _cache():
    base = (
        os.environ.get("XDG_CACHE_HOME")
        or os.environ.get("LOCALAPPDATA")
        or os.path.join("~", ".cache")
    )
    return os.path.join(base, "gradaccum-compat")


def run(arguments):
    """Runs the command. Returns the exit code."""
    from gradaccum_compat import errors
    from gradaccum_compat.upgrade import matrix

    progress = _Progress(sys.stderr)
    try:
        made = matrix.Matrix(
            arguments.tensorflows,
            arguments.program,
            shlex.split(arguments.args),
            arguments.cache or os.path.expanduser(_cache()),
            arguments.records,
            arguments.map,
            arguments.packages,
            progress.say,
        )
        outcomes = made.run()
    except errors.GradAccumError as error:
        progress.end()
        print("gradaccum-compat matrix: {}".format(error), file=sys.stderr)
        return matrix.INCONCLUSIVE
    finally:
        progress.end()
    print("\n".join(_lines(outcomes)))
    print("Records: {}".format(made.records))
    return matrix.exit_code(outcomes)


def _lines(outcomes):
    for each in outcomes:
        python = " on Python {}".format(each.python) if each.python else ""
        yield "TensorFlow {}{}: {}".format(each.tensorflow, python, each.verdict)
        if each.text:
            for line in each.text.splitlines():
                yield "    " + line
        if each.page and each.verdict != "same":
            yield "    Page: {}".format(each.page)


class _Progress(object):
    """Lines on stderr; on a terminal the last one counts the seconds."""

    def __init__(self, stream):
        self._stream, self._open = stream, 0
        self._counts = hasattr(stream, "isatty") and stream.isatty()

    def say(self, line, goes_on=False):
        """Shows a line; one that goes on is replaced by the next, and shown on a terminal alone."""
        if goes_on and not self._counts:
            return
        self._stream.write(
            ("\r" if self._open else "") + line.ljust(self._open) + ("" if goes_on else "\n")
        )
        self._stream.flush()
        self._open = len(line) if goes_on else 0

    def end(self):
        """Leaves no line open."""
        if self._open:
            self._stream.write("\n")
            self._open = 0
