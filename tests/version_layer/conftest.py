"""A Python process of its own for each fact about the version layer, with no real TensorFlow in it.

A test writes the `tensorflow` that it wants into the sandbox; the installed one, where there is
one, is out of sight. So the facts are the same in every environment, and none needs TensorFlow.
"""

from __future__ import absolute_import, division, print_function

import json
import os
import subprocess
import sys

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

#: Leaves Python itself, this tree and the sandbox's packages; six is loaded before its folder goes.
PRELUDE = """
import json, os, sys, six
sys.path[:] = [{sandbox!r}, {root!r}] + [
    entry for entry in sys.path if not os.path.isdir(os.path.join(entry, "tensorflow"))]
"""

OUTCOME = """
from gradaccum_compat import errors
try:
    {statement}
    outcome = {{"error": None, "value": value}}
except ImportError as error:
    outcome = {{"error": type(error).__name__, "typed": isinstance(error, errors.TensorFlowError)}}
    if outcome["typed"]:
        outcome.update((part, getattr(error, part)) for part in ("rule", "received", "remedy"))
    outcome["message"] = str(error)
print(json.dumps(outcome))
"""


class Sandbox(object):
    """A folder of fake packages, and Python processes that import them.

    Args:
        folder: an empty folder.
    """

    def __init__(self, folder):
        self.folder = folder

    def package(self, name, source=None):
        """Writes a package with this source; with no source, a folder without an __init__.py."""
        package = self.folder.mkdir(name)
        if source is not None:
            package.join("__init__.py").write(source)

    def run(self, code):
        """Runs code in a new process and returns what it printed, read as JSON."""
        prelude = PRELUDE.format(sandbox=str(self.folder), root=ROOT)
        process = subprocess.Popen(
            [sys.executable, "-c", prelude + code],
            cwd=str(self.folder),
            universal_newlines=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        out, err = process.communicate()
        assert process.returncode == 0, err
        return json.loads(out)

    def outcome(self, statement):
        """Runs a statement that binds `value`, or raises an ImportError, and returns which."""
        return self.run(OUTCOME.format(statement=statement))

    def detect(self, source):
        """The outcome of detection where `tensorflow` has this source."""
        self.package("tensorflow", source)
        return self.outcome("import gradaccum_compat as ga; value = ga.backend()")


@pytest.fixture
def sandbox(tmpdir):
    return Sandbox(tmpdir)


@pytest.fixture
def root():
    return ROOT
