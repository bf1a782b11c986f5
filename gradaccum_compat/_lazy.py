"""A package whose public names are imported on first use, on Python 2.7 and 3.6 too.

A module-level `__getattr__` would do on Python 3.7 and later. No TensorFlow here.
"""

from __future__ import absolute_import, division, print_function

import importlib
import sys
import types


class _LazyPackage(types.ModuleType):
    """Looks up names in the package's own `_HOMES` and `_SUBMODULES`."""

    def __getattr__(self, name):
        own = self.__dict__
        homes, submodules = own.get("_HOMES", {}), own.get("_SUBMODULES", ())
        if name not in homes and name not in submodules:
            raise AttributeError("module {!r} has no attribute {!r}".format(self.__name__, name))
        if "_before_import" in own:
            own["_before_import"](name)
        if name in submodules:
            return importlib.import_module(self.__name__ + "." + name)
        value = getattr(importlib.import_module(homes[name]), name)
        setattr(self, name, value)
        return value

    def __dir__(self):
        special = {name for name in self.__dict__ if name.startswith("__")}
        return sorted(special | set(self.__all__))


def make_lazy(name):
    """Replaces the package of this name, which calls this at its end, by a lazy one."""
    package = _LazyPackage(name, sys.modules[name].__doc__)
    package.__dict__.update(sys.modules[name].__dict__)
    # Python 2 empties a module's globals once nothing refers to it, its functions' globals
    # included.
    package._replaced = sys.modules[name]
    sys.modules[name] = package
