"""Lets each Keras load models with wrapped optimizers, once this package is imported.

Keras looks for a class that is not its own in its register of custom objects. Entering it there would
take importing TensorFlow: so it is entered as soon as a Keras is there, which may be before or after.
"""

from __future__ import absolute_import, division, print_function

import importlib
import sys

#: The name under which saved models know a wrapped optimizer.
CLASS_NAME = "AccumulatedOptimizer"
#: The modules that are a Keras, and the one of each that has the register.
_KERAS = {
    "tf_keras": "tf_keras.utils",
    "keras": "keras.utils",
    # TensorFlow's own, up to 2.5. Its package was called tensorflow_core in 1.15, 2.0 and 2.1.
    "tensorflow.python.keras": "tensorflow.python.keras.utils.generic_utils",
    "tensorflow_core.python.keras": "tensorflow_core.python.keras.utils.generic_utils",
}


def register_with_each_keras():
    """Registers with what is imported already, and waits for the others."""
    waiting = [name for name in _KERAS if not _register(name)]
    if waiting:
        sys.meta_path.insert(0, _Waiting(waiting))


def _register(keras):
    utils = sys.modules.get(_KERAS[keras]) if keras in sys.modules else None
    if not hasattr(utils, "get_custom_objects"):
        return False
    utils.get_custom_objects()[CLASS_NAME] = type(CLASS_NAME, (_Loader,), {"KERAS": keras})
    return True


class _Loader(object):
    """What Keras finds under the name."""

    KERAS = None

    @classmethod
    def from_config(cls, config, custom_objects=None):
        from gradaccum_compat.optimizers import saved
        return saved.from_config(saved.keras_named(cls.KERAS), config, custom_objects)


class _Waiting(object):
    """A finder that finds nothing itself: it has the others find a Keras, and registers once that is imported."""

    def __init__(self, names):
        self._names = set(names)
        self._asking = False

    def find_spec(self, name, path=None, target=None):
        # TensorFlow looks for Keras before it imports it: so a name is waited for until it is there.
        if self._asking or name not in self._names:
            return None
        from importlib import util  # Python 3 has it, and it alone calls this
        self._asking = True
        try:
            spec = util.find_spec(name)
        finally:
            self._asking = False
        if spec is not None and hasattr(spec.loader, "exec_module"):
            execute = spec.loader.exec_module
            spec.loader.exec_module = lambda module: (execute(module), self._arrived(name))
        return spec

    def _arrived(self, name):
        if _register(name):
            self._names.discard(name)

    # The same for Python 2

    def find_module(self, name, path=None):
        return self if name in self._names and not self._asking else None

    def load_module(self, name):
        self._asking = True
        try:
            module = importlib.import_module(name)
        finally:
            self._asking = False
        self._arrived(name)
        return module
