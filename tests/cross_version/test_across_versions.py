"""A cycle begun on one TensorFlow is finished on another: both run here, one after the other.

GRADACCUM_OLD and GRADACCUM_NEW name the Pythons of the two; tox sets them to two of its
environments.
"""

from __future__ import absolute_import, division, print_function

import json
import os
import subprocess

import pytest

from support import processes


def run(python, part, folder):
    """Runs a part of cycles.py under that Python, and returns the weights that it ends with."""
    if not os.path.exists(python) and "CI" not in os.environ:
        pytest.skip(
            "the row of {} is not built: its Python is missing, or run it first".format(python)
        )
    command = [python] + processes.command("cycles", part, folder)[1:]
    subprocess.check_call(command, env=processes.environment())
    with open(str(folder.join(part + ".json"))) as weights:
        return json.load(weights)


def flat(nested):
    return (
        [number for each in nested for number in flat(each)]
        if isinstance(nested, list)
        else [nested]
    )


@pytest.mark.parametrize(
    "first, second", [("OLD", "NEW"), ("NEW", "OLD"), ("OLD", "OLD"), ("NEW", "NEW")]
)
def test_begun_on_one_finished_on_the_other(tmpdir, first, second):
    first, second = [os.environ["GRADACCUM_" + name] for name in (first, second)]
    run(first, "save", tmpdir)
    finished = flat(run(second, "finish", tmpdir))
    for whole in (run(first, "whole", tmpdir), run(second, "whole", tmpdir)):
        assert finished == pytest.approx(flat(whole), rel=1e-6, abs=1e-6)
