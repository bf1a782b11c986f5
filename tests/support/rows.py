"""What the name of a row of tox says: its TensorFlow, and what else it needs.

The rows are named in tox.ini: `py37-tf114`, `py311-tf215-gpu`, `py27-notf`.
"""

from __future__ import absolute_import, division, print_function

import os
import re

#: tox would run a misspelt factor too, as a row that lacks what the factor stands for.
FACTOR = re.compile(r"(py\d+|tf\d+(rc)?|notf|gpu|tfkeras|horovod)$")
TENSORFLOW = re.compile(r"tf(\d)(\d+)")


def factors():
    """The factors of the row that runs, an empty list outside of tox."""
    return [each for each in os.environ.get("TOX_ENV_NAME", "").split("-") if each]


def meant():
    """The TensorFlow that this run is to test: "1.14", "2.21", ..., "none", or None for any.

    A row whose name does not say it, such as `quick`, says it in GRADACCUM_TF.

    Raises:
        ValueError: the name of the row has a factor that is none of ours, or no TensorFlow.
    """
    if "GRADACCUM_TF" in os.environ or not factors():
        return os.environ.get("GRADACCUM_TF")
    for factor in factors():
        if not FACTOR.match(factor):
            raise ValueError("tox.ini has no factor {!r}".format(factor))
    found = [TENSORFLOW.match(each) for each in factors() if TENSORFLOW.match(each)]
    if len(found) + ("notf" in factors()) != 1:
        raise ValueError("the row {} names no TensorFlow".format("-".join(factors())))
    return "{}.{}".format(*found[0].groups()) if found else "none"
