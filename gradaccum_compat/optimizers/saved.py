"""Wrapped Keras optimizers in saved models: their configuration, and the cycle that they are in."""

from __future__ import absolute_import, division, print_function

import numbers
import sys
import warnings

import six
import tensorflow as tf

#: What the configuration of a wrapped optimizer has besides the plain one's.
_KEY = "accumulation"


def keras_of(optimizer_class):
    """The Keras that an optimizer class is from: there may be two beside each other."""
    roots = [each.__module__.split(".")[0] for each in optimizer_class.__mro__]
    return keras_named("tf_keras" if "tf_keras" in roots else "keras")


def keras_named(name):
    return sys.modules[name] if name == "tf_keras" else tf.keras


class Saved(object):
    """Mixin for wrapped Keras optimizers."""

    def get_config(self):
        """The plain optimizer's configuration, and how it accumulates."""
        plain = self._accumulation.hand_over.plain
        identity = keras_of(type(plain)).optimizers.serialize(plain)
        config = dict(plain.get_config())
        config[_KEY] = dict(self._options_to_save(), optimizer={
            name: value for name, value in identity.items() if name != "config"})
        return config

    @classmethod
    def from_config(cls, config, custom_objects=None):
        return from_config(keras_of(cls), config, custom_objects)

    def _options_to_save(self):
        options = dict(self._accumulation.options, weight=self._accumulation.weight)
        lost = [name for name, value in options.items() if not _is_plain(value)]
        if lost:
            warnings.warn("gradaccum_compat: a saved model does not hold {}, since it is no number or string. Wrap the "
                          "optimizer again after loading.".format(", ".join(sorted(lost))))
        return {name: value for name, value in options.items() if name not in lost}

    # The h5 format of Keras 2

    def get_weights(self):
        plain = self._accumulation.hand_over.plain
        return list(plain.get_weights()) + keras_of(type(plain)).backend.batch_get_value(self._accumulation.state())

    def set_weights(self, weights):
        """Sets the plain optimizer's variables, and the cycle's; without those the cycle begins afresh."""
        state = self._accumulation.state()
        held = len(weights) - len(state) if len(weights) > len(state) else len(weights)
        plain = self._accumulation.hand_over.plain
        plain.set_weights(weights[:held])
        # Not assign(): TF 1.14 loads in a graph that is not run.
        keras_of(type(plain)).backend.batch_set_value(list(zip(state, weights[held:])))

    # The .keras format, and BackupAndRestore of Keras 3

    def save_own_variables(self, store):
        plain = self._accumulation.hand_over.plain
        plain.save_own_variables(store)
        for position, variable in enumerate(self._accumulation.state()):
            store["{}_{}".format(_KEY, position)] = variable.numpy()

    def load_own_variables(self, store):
        names = [name for name in store.keys() if name.startswith(_KEY)]
        plain = self._accumulation.hand_over.plain
        plain.load_own_variables({name: store[name] for name in store.keys() if name not in names})
        # Without them, as where a plain optimizer was saved, the cycle begins afresh.
        for position, variable in enumerate(self._accumulation.state() if names else []):
            variable.assign(store["{}_{}".format(_KEY, position)])


def _is_plain(value):
    return value is None or isinstance(value, (numbers.Number,) + six.string_types)


def from_config(keras, config, custom_objects=None):
    """Makes a wrapped optimizer from what get_config returned, with the optimizers of this Keras."""
    from gradaccum_compat.optimizers import wrapping  # which imports this module
    config = dict(config)
    options = dict(config.pop(_KEY))
    identity = options.pop("optimizer")
    plain = keras.optimizers.deserialize(dict(identity, config=config), custom_objects)
    return wrapping.wrap_optimizer(plain, **options)
