"""Each program in legacy_examples/ runs as it stands, agrees with the big batch, and tells when it
does not."""

from __future__ import absolute_import, division, print_function

import re
import sys

import pytest
import tensorflow as tf

from support import programs

#: What a program needs that not every TensorFlow has.
HERE = {"estimator": hasattr(tf, "estimator")}
NUMBER = r"(\d\.\de[+-]\d\d|nan|inf)"
ONE_LINE = re.compile(r"[\w ]+: {0} from the big batch(; by hand, [\w ]+: {0})+\n$".format(NUMBER))
#: A hundred times the limit: this is no rounding.
PLAIN_TO_SEE = 1e-4

#: A library that is wrong: sums take the place of means.
UNDIVIDED = (
    "from gradaccum_compat.core import _gradients; " "_gradients.divide = lambda sums, total: sums"
)


@pytest.mark.parametrize("name", programs.PROGRAMS)
def test_agrees_with_the_big_batch_and_by_hand_does_not(tmpdir, name):
    outcome = programs.run(sys.executable, name, tmpdir)
    if not HERE.get(name, True):
        assert (outcome.code, outcome.result) == (2, None) and "tf." + name in outcome.printed
        return
    assert outcome.code == 0, outcome.printed
    assert ONE_LINE.match(outcome.printed), outcome.printed
    assert outcome.result["difference"] <= 1e-6
    assert [
        mistake for mistake, apart in outcome.result["by_hand"].items() if apart <= PLAIN_TO_SEE
    ] == []


@pytest.mark.parametrize("name", ["eager_loop", "session"])
def test_tells_when_the_library_is_wrong(tmpdir, name):
    outcome = programs.run(sys.executable, name, tmpdir, before=UNDIVIDED)
    assert outcome.code == 1
    assert ONE_LINE.match(outcome.printed) and not outcome.result["difference"] <= PLAIN_TO_SEE
