"""matrix: one program under several TensorFlows, each recorded, all compared with the first.

The environments are made with virtualenv and kept between runs. Each row's program runs under its
own Python, which records too; so this module needs neither TensorFlow nor NumPy.
"""

from __future__ import absolute_import, division, print_function

import collections
import json
import os

from gradaccum_compat import errors
from gradaccum_compat.upgrade import _environments, _pins

SAME, DIFFERENT, INCONCLUSIVE = 0, 1, 2


class Outcome(
    collections.namedtuple("Outcome", ["tensorflow", "python", "verdict", "text", "log", "page"])
):
    """The outcome of one row.

    Attributes:
        tensorflow: the version that was asked for.
        python: the Python that it ran on, such as "3.8", or None.
        verdict: "recorded" for the first, what compare says for the others, "not run".
        text: a sentence or more about it.
        log: the file with what the program printed, or None.
        page: the file with the comparison's page, or None.
    """

    __slots__ = ()


class Matrix(object):
    """The rows of one run.

    Args:
        tensorflows: their versions, such as ["1.14", "2.21"].
        program: the path of the user's program.
        arguments: what it is called with.
        cache: the folder where environments are kept.
        folder: the folder for the records; each run makes one of its own in it.
        renamed: pairs of an old variable's name and the new one's.
        packages: what pip installs besides.
        say: called with each line of progress.
    """

    def __init__(
        self, tensorflows, program, arguments, cache, folder, renamed=(), packages=(), say=None
    ):
        self._rows = [_row(each) for each in tensorflows]
        if len(set(tensorflows)) != len(tensorflows) or len(tensorflows) < 2:
            raise errors.OptionError(
                "A matrix has two TensorFlows or more, each once.",
                " ".join(tensorflows) or "none",
                "Pass --tf once for each, the one to compare with first.",
            )
        if not os.path.isfile(program):
            raise errors.OptionError(
                "PROGRAM is a Python file.",
                repr(program),
                "Pass the path of your training program.",
            )
        self._program, self._arguments = os.path.abspath(program), list(arguments)
        self._environments = _environments.Environments(cache, packages, say or _quiet)
        self._folder, self._renamed, self._say = (
            os.path.abspath(folder),
            list(renamed),
            say or _quiet,
        )

    def run(self):
        """Runs all rows. Returns an Outcome for each."""
        self.records = _new_folder(self._folder)
        outcomes, first = [], None
        for number, row in enumerate(self._rows):
            self._say("[{}/{}] TensorFlow {}".format(number + 1, len(self._rows), row.tensorflow))
            try:
                outcome = self._run_row(row, first)
            except errors.GradAccumError as error:
                outcome = Outcome(row.tensorflow, None, "not run", str(error), None, None)
            self._say("  " + outcome.verdict)
            if outcome.verdict == "recorded":
                first = self._record_of(row)
                if outcomes:
                    outcome = outcome._replace(
                        text=outcome.text + "\nThe others are compared with this one."
                    )
            outcomes.append(outcome)
        return outcomes

    def _record_of(self, row):
        return os.path.join(self.records, "tf-" + row.tensorflow)

    def _run_row(self, row, first):
        python = self._environments.of(row)
        log = self._record_of(row) + ".log"
        command = ["record", self._record_of(row)] + (["--follow", first] if first else [])
        command += ["--", python.path, self._program] + self._arguments
        code = self._environments.run(python, command, log, "training")
        if code:
            return Outcome(
                row.tensorflow,
                python.number,
                "not run",
                "The program ended with exit code {}:\n{}".format(code, _environments.end_of(log)),
                log,
                None,
            )
        if not first:
            return Outcome(
                row.tensorflow, python.number, "recorded", _environments.last_line(log), log, None
            )
        return self._compared(row, python, first, log)

    def _compared(self, row, python, first, log):
        page, answer = self._record_of(row) + ".html", self._record_of(row) + ".json"
        command = ["compare", first, self._record_of(row), "--json", "--html", page]
        for names in self._renamed:
            command += ["--map", "=".join(names)]
        self._environments.run(python, command, answer, "comparing", errors_to=log)
        try:
            with open(answer) as stream:
                found = json.load(stream)
        except ValueError:
            return Outcome(
                row.tensorflow,
                python.number,
                "not run",
                "Comparing failed:\n" + _environments.end_of(log),
                log,
                None,
            )
        return Outcome(
            row.tensorflow,
            python.number,
            found["verdict"],
            _explained(found),
            log,
            page if os.path.exists(page) else None,
        )


def _quiet(line, goes_on=False):
    """Progress that prints nothing."""


def exit_code(outcomes):
    """0 if all are the same, 1 if one differs, 2 if one could not run or be judged."""
    verdicts = [each.verdict for each in outcomes]
    if "different" in verdicts:
        return DIFFERENT
    return SAME if set(verdicts) <= {"recorded", "same"} else INCONCLUSIVE


def _row(version):
    row = _pins.row(version)
    if row is None:
        raise errors.OptionError(
            "The matrix runs the TensorFlows that this project is tested with.",
            repr(version),
            "Pass one of {}.".format(", ".join(each.tensorflow for each in _pins.ROWS)),
        )
    return row


def _explained(found):
    lines = [] if found["verdict"] == "same" else list(found.get("notes") or [])
    first = found.get("first")
    if first:
        lines.append("First at update {update}, in the {quantity} of {variable}.".format(**first))
    return "\n".join(
        lines + ["{}: {}".format(each["id"], each["text"]) for each in found.get("causes") or []]
    )


def _new_folder(folder):
    """A folder for this run, so that no run overwrites the records of another."""
    number = 1
    while True:
        path = os.path.join(folder, "run-{}".format(number))
        if not os.path.exists(path):
            rule = "Records are written into a folder of your own."
            _environments.make_folder(path, rule, "--records")
            return path
        number += 1
