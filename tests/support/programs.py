"""Runs the programs in legacy_examples/, each in a process of its own.

Imports no TensorFlow: another Python than this one may run them.
"""

from __future__ import absolute_import, division, print_function

import json
import os
import sys

from support import processes

FOLDER = os.path.join(processes.ROOT, "legacy_examples")

#: Not a program of this kind: what they share, and the two that several processes run.
OTHERS = {"comparing.py", "launch_workers.py", "several_workers.py"}
PROGRAMS = sorted(
    name[:-3] for name in os.listdir(FOLDER) if name.endswith(".py") and name not in OTHERS
)


class Outcome(object):
    """What a program did: its exit code, what it printed, and what it wrote to its file, None if
    nothing."""

    def __init__(self, code, printed, result):
        self.code, self.printed, self.result = code, printed, result


def run(python, name, folder, before=None):
    """Runs a program under a Python and returns its Outcome.

    Args:
        python: the path of the Python.
        name: the program's.
        folder: where it may write, a py.path.local.
        before: code to run first in the same process.
    """
    path, out = os.path.join(FOLDER, name + ".py"), folder.join(name + ".json")
    program = (
        [path] if before is None else ["-c", _AFTER.format(before=before, folder=FOLDER, path=path)]
    )
    errors = folder.join(name + ".errors")
    printed, code = processes.output_of(
        program + ["--json", str(out)], folder.join(name + ".printed"), errors=errors, python=python
    )
    if code:
        sys.stderr.write(errors.read())  # which pytest shows where the test fails
    return Outcome(code, printed, json.loads(out.read()) if out.check() else None)


_AFTER = """
import runpy, sys
sys.path.insert(0, {folder!r})
{before}
runpy.run_path({path!r}, run_name="__main__")
"""
