"""Gradient accumulation with one API and the same numbers on every TensorFlow from 1.14 on.

Importing this package imports no TensorFlow: the public names are looked up when they are first
used. This module must stay cheap, and must work where TensorFlow is missing or broken.
"""

from __future__ import absolute_import, division, print_function

import importlib

from gradaccum_compat import _loading
from gradaccum_compat._lazy import make_lazy

__version__ = "1.0.0"

_DETECTION = "gradaccum_compat._detect"
#: Each public name and the module that defines it.
_HOMES = {
    "Accumulator": "gradaccum_compat.accumulator",
    "Saver": "gradaccum_compat.saver",
    "backend": _DETECTION,
    "microbatch_gradients": "gradaccum_compat.microbatch",
    "unwrap_optimizer": "gradaccum_compat.wrap",
    "wrap_optimizer": "gradaccum_compat.wrap",
}
_SUBMODULES = ("errors", "horovod", "keras", "upgrade")
#: Names that can be looked up where there is no TensorFlow.
_WITHOUT_TENSORFLOW = ("backend", "errors", "horovod", "upgrade")

#: Where ga.upgrade.record has accumulators record; None while it does not.
_recording = None

__all__ = sorted(_HOMES) + sorted(_SUBMODULES)


def _before_import(name):
    """Raises the detection's typed error, before a home's own `import tensorflow` fails."""
    if name not in _WITHOUT_TENSORFLOW:
        importlib.import_module(_DETECTION).backend()


make_lazy(__name__)
_loading.register_with_each_keras()
