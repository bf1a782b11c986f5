"""Training begun in a graph on the oldest TensorFlow goes on under the newest with Keras's
optimizers.

GRADACCUM_OLD and GRADACCUM_NEW name the Pythons of the two.
"""

from __future__ import absolute_import, division, print_function

import json
import os
import subprocess

import pytest

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OPTIMIZERS = [
    "sgd",
    "momentum",
    "nesterov",
    "adam",
    "adagrad",
    "rmsprop",
    "rmsprop_momentum",
    "rmsprop_centered",
    "ftrl",
]


@pytest.fixture(scope="module")
def ended(tmpdir_factory):
    """The weights that each of the two ends with, by optimizer."""
    folder = tmpdir_factory.mktemp("carried")
    return [run(variable, part, folder) for variable, part in (("OLD", "begin"), ("NEW", "finish"))]


def run(variable, part, folder):
    python = os.environ["GRADACCUM_" + variable]
    if not os.path.exists(python) and "CI" not in os.environ:
        pytest.skip(
            "the row of {} is not built: its Python is missing, or run it first".format(python)
        )
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join([os.path.dirname(TESTS), TESTS]))
    program = os.path.join(TESTS, "support", "carried_training.py")
    subprocess.check_call([python, program, part, str(folder)], env=environment)
    return json.loads(folder.join(part + ".json").read())


def flat(nested):
    return (
        [number for each in nested for number in flat(each)]
        if isinstance(nested, list)
        else [nested]
    )


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_goes_on_in_mid_cycle_as_the_oldest_does(ended, optimizer):
    old, new = ended
    assert flat(new[optimizer]) == pytest.approx(flat(old[optimizer]), rel=1e-6, abs=1e-6)
