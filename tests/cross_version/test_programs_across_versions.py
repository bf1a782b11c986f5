"""Each program in legacy_examples/ ends with the same weights on the oldest TensorFlow and on the
newest that it is for.

GRADACCUM_OLD and GRADACCUM_NEW name the Pythons of the two, GRADACCUM_ESTIMATOR that of the last
one with tf.estimator.
"""

from __future__ import absolute_import, division, print_function

import os

import pytest

from support import programs

#: The newest TensorFlow of the programs that are not for all of them.
NEWEST = {"estimator": "GRADACCUM_ESTIMATOR"}


def weights(name, variable, folder):
    python = os.environ[variable]
    if not os.path.exists(python) and "CI" not in os.environ:
        pytest.skip(
            "the row of {} is not built: its Python is missing, or run it first".format(python)
        )
    outcome = programs.run(python, name, folder)
    assert outcome.code == 0, outcome.printed
    return flat(outcome.result["weights"])


def flat(nested):
    return (
        [number for each in nested for number in flat(each)]
        if isinstance(nested, list)
        else [nested]
    )


@pytest.mark.parametrize("name", programs.PROGRAMS)
def test_trains_the_same_on_the_oldest_and_the_newest(tmpdir, name):
    old = weights(name, "GRADACCUM_OLD", tmpdir.mkdir("old"))
    new = weights(name, NEWEST.get(name, "GRADACCUM_NEW"), tmpdir.mkdir("new"))
    assert len(old) == len(new) and max(abs(one - other) for one, other in zip(old, new)) <= 1e-5
