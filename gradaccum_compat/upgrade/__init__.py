"""The upgrade kit: record a training, compare two records, and carry a checkpoint over.

Importing it imports neither TensorFlow nor NumPy: the public names are looked up when they are
first used. `compare` needs NumPy alone, so that records can be compared where there is no
TensorFlow.
"""

from __future__ import absolute_import, division, print_function

from gradaccum_compat._lazy import make_lazy

#: Each public name and the module that defines it.
_HOMES = {
    "carry_over": "gradaccum_compat.upgrade.carrying",
    "compare": "gradaccum_compat.upgrade.comparing",
    "record": "gradaccum_compat.upgrade.recording",
    "verify": "gradaccum_compat.upgrade.verifying",
}

__all__ = sorted(_HOMES)

make_lazy(__name__)
