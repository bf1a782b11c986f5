"""Gradient accumulation with one API and the same numbers on every TensorFlow from 1.14 on.

Importing this package imports no TensorFlow: the public names are looked up when they are first
used. What stands here must stay cheap, and must work where TensorFlow is missing or broken.
"""

from __future__ import absolute_import, division, print_function

import importlib
import sys
import types

from gradaccum_compat import _loading

__version__ = "0.1.0"

_DETECTION = "gradaccum_compat._detect"
#: Each public name and the module that defines it.
_HOMES = {
    "Accumulator": "gradaccum_compat.accumulator",
    "Saver": "gradaccum_compat.saver",
    "backend": _DETECTION,
    "microbatch_gradients": "gradaccum_compat.microbatch",
    "unwrap_optimizer": "gradaccum_compat.optimizers.wrapping",
    "wrap_optimizer": "gradaccum_compat.optimizers.wrapping",
}
_SUBMODULES = ("errors", "horovod", "keras")
#: What can be looked up where there is none.
_WITHOUT_TENSORFLOW = ("backend", "errors", "horovod")

__all__ = sorted(_HOMES) + sorted(_SUBMODULES)


class _LazyPackage(types.ModuleType):
    """This module, with public names that are imported on first use.

    A module-level ``__getattr__`` would do on Python 3.7 and later; 2.7 and 3.6 need the class.
    """

    def __getattr__(self, name):
        if name not in _HOMES and name not in _SUBMODULES:
            raise AttributeError("module {!r} has no attribute {!r}".format(__name__, name))
        if name not in _WITHOUT_TENSORFLOW:
            importlib.import_module(_DETECTION).backend()  # its typed error, before a home's own `import tensorflow`
        if name in _SUBMODULES:
            return importlib.import_module(__name__ + "." + name)
        value = getattr(importlib.import_module(_HOMES[name]), name)
        setattr(self, name, value)
        return value

    def __dir__(self):
        return sorted(set(self.__dict__) | set(__all__))


def _make_lazy():
    package = _LazyPackage(__name__, __doc__)
    package.__dict__.update(sys.modules[__name__].__dict__)
    # Python 2 empties a module's globals once nothing refers to it, these functions' globals included.
    package._replaced = sys.modules[__name__]
    sys.modules[__name__] = package


_make_lazy()
_loading.register_with_each_keras()
