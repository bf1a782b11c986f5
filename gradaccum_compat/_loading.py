"""Lets each Keras load models with wrapped optimizers.

A saved model names the optimizer's class. Keras of TensorFlow 2.12 to 2.15 imports it from the
module that a .keras file names; for h5 files, and in Keras 3, it looks in its register of custom
objects. The class is entered there as soon as a Keras and something of this package are both in
use: when this package is imported after Keras, and whenever gradaccum_compat.wrap is imported.
"""

from __future__ import absolute_import, division, print_function

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


class AccumulatedOptimizer(object):
    """The class that Keras finds under the name, and makes a wrapped optimizer with."""

    #: The Keras that asks, where it is known: there may be two beside each other.
    KERAS = None

    @classmethod
    def from_config(cls, config, custom_objects=None):
        from gradaccum_compat.wrap import saved

        return saved.from_config(config, custom_objects, cls.KERAS)


def register_with_each_keras():
    """Enters the class in the register of each Keras that is imported already."""
    for keras, module in _KERAS.items():
        utils = sys.modules.get(module) if keras in sys.modules else None
        if hasattr(utils, "get_custom_objects"):
            found = utils.get_custom_objects()
            if CLASS_NAME not in found:
                found[CLASS_NAME] = type(CLASS_NAME, (AccumulatedOptimizer,), {"KERAS": keras})
                # convert_to_legacy_optimizer (2.11 to 2.15, tf_keras) asks for the lower case.
                found[CLASS_NAME.lower()] = found[CLASS_NAME]
