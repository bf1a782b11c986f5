"""Wrapped Keras optimizers in saved models: their configuration, and the cycle that they are in."""

from __future__ import absolute_import, division, print_function

import numbers
import sys
import warnings

import numpy as np
import six
import tensorflow as tf

from gradaccum_compat import errors
from gradaccum_compat.backends.base import compiled_by_xla
from gradaccum_compat.core import _arguments
from gradaccum_compat.core._graph import control_dependencies

#: The item that the configuration of a wrapped optimizer has besides the plain one's.
_KEY = "accumulation"


class Configuration(dict):
    """The plain optimizer's configuration as a dictionary, whose items() add how it accumulates.

    Keras saves a configuration by its items(). The plain class's from_config takes the dictionary
    itself, without these, and makes a plain optimizer.

    Attributes:
        accumulation: wrap_optimizer's arguments, and how Keras names the plain class.
    """

    accumulation = None

    def items(self):
        return list(dict(self, **{_KEY: self.accumulation}).items())

    def __missing__(self, key):
        if key == _KEY:
            return self.accumulation
        raise KeyError(key)

    def copy(self):
        return _configuration(dict(self), self.accumulation)

    def __reduce__(self):
        return _configuration, (dict(self), self.accumulation)


def _configuration(plain, accumulation):
    made = Configuration(plain)
    made.accumulation = accumulation
    if six.PY2:
        # Its json reads a dictionary past items(). The plain class refuses the keyword there.
        made[_KEY] = accumulation
    return made


def keras_of(optimizer_class):
    """The Keras that an optimizer class is from: there may be two beside each other."""
    return keras_named(_name_of_keras(optimizer_class))


def _name_of_keras(optimizer_class):
    roots = [each.__module__.split(".")[0] for each in optimizer_class.__mro__]
    return "tf_keras" if "tf_keras" in roots else "keras"


def keras_named(name):
    return sys.modules[name] if name == "tf_keras" else tf.keras


class Saved(object):
    """Mixin for wrapped Keras optimizers."""

    def get_config(self):
        """The plain optimizer's configuration, and how it accumulates."""
        plain = self._accumulation.hand_over.plain
        keras = keras_of(type(plain))
        identity = {
            name: value
            for name, value in keras.optimizers.serialize(plain).items()
            if name != "config"
        }
        accumulation = dict(self._options_to_save(), optimizer=identity)
        accumulation["keras"] = _name_of_keras(type(plain))
        return _configuration(plain.get_config(), accumulation)

    @classmethod
    def from_config(cls, config, custom_objects=None):
        return from_config(config, custom_objects, None)

    def _options_to_save(self):
        options = self._arguments()
        if isinstance(options["steps"], dict):
            options["steps"] = _arguments.schedule(options["steps"])  # Python's integers, for JSON
        lost = [name for name, value in options.items() if not _is_plain(value)]
        if lost:
            warnings.warn(
                "gradaccum_compat: a saved model does not hold {}, since it is no number, string or"
                " dictionary. Wrap the optimizer again after loading.".format(
                    ", ".join(sorted(lost))
                )
            )
        return {name: value for name, value in options.items() if name not in lost}

    # The h5 format of Keras 2

    def get_weights(self):
        plain = self._accumulation.hand_over.plain
        return list(plain.get_weights()) + keras_of(type(plain)).backend.batch_get_value(
            self._accumulation.state()
        )

    def set_weights(self, weights):
        """Sets the plain optimizer's variables, and the cycle's; without those the cycle begins
        afresh."""
        plain = self._accumulation.hand_over.plain
        # From 2.11 on there are no `weights`; OptimizerV2's `variables` is a method.
        held = len(plain.weights if hasattr(plain, "weights") else plain.variables)
        plain.set_weights(weights[:held])
        # Not assign(): TF 1.14 loads in a graph that is not run.
        keras_of(type(plain)).backend.batch_set_value(self._with_values(weights[held:]))

    def _with_values(self, values):
        """Pairs each variable of the cycle with its value, if there are any.

        Variables that may be missing among the values are the last ones: they are zero.
        """
        state = self._accumulation.state() if len(values) else []
        shapes = [tuple(each.shape.as_list()) for each in state]
        if [np.shape(each) for each in values] != shapes[: len(values)]:
            warnings.warn(
                "gradaccum_compat: the saved model's cycle has another layout than this release's"
                " or is of other variables. A fresh cycle begins; the weights and the optimizer's"
                " own state are the saved ones."
            )
            return []
        rest = [np.zeros(each.shape.as_list(), each.dtype.as_numpy_dtype) for each in state]
        return list(zip(state, list(values) + rest[len(values) :]))

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
        values = [store["{}_{}".format(_KEY, position)] for position in range(len(names))]
        # Without them, as where a plain optimizer was saved, the cycle begins afresh.
        for variable, value in self._with_values(values):
            variable.assign(value)


def _is_plain(value):
    plain = (numbers.Number, dict) + six.string_types
    return value is None or isinstance(value, plain)


def from_config(config, custom_objects, keras):
    """Makes a wrapped optimizer from what get_config returned, or what was saved of it.

    Args:
        config: the configuration.
        custom_objects: as for Keras's own from_config.
        keras: the name of the Keras that asks, or None for the one that the optimizer was from.
    """
    from gradaccum_compat import wrap  # which imports this module

    config = dict(config.items())
    if _KEY not in config:
        raise errors.OptionError(
            "The configuration of an optimizer that accumulates says how.",
            "one without {!r}".format(_KEY),
            "Hand in what get_config() returned, or use the plain optimizer's class.",
        )
    options = dict(config.pop(_KEY))
    identity, saved_by = options.pop("optimizer"), options.pop("keras", "keras")
    options["steps"] = _saved_steps(options.get("steps", _steps_were_not_saved))
    plain = _plain(keras_named(keras or saved_by), identity, config, custom_objects)
    return wrap.wrap_optimizer(plain, **options)


def _saved_steps(steps):
    """JSON makes strings of a dictionary's keys."""
    if not isinstance(steps, dict):
        return steps
    return dict((int(update), count) for update, count in steps.items())


def lacks_steps(optimizer):
    """Whether a wrapped optimizer is from a saved model that does not hold its function of
    steps."""
    return optimizer._accumulation.options["steps"] is _steps_were_not_saved


def _steps_were_not_saved(update_count):
    """Stands in for a function, so that a model can be loaded with its optimizer's state."""
    error = errors.OptionError(
        "A saved model does not hold a function of steps.",
        "an optimizer that was wrapped with one, saved and loaded",
        "Compile the model with ga.wrap_optimizer(model.optimizer, steps), which goes on with its"
        " cycle.",
    )
    if compiled_by_xla():  # which drops checks
        raise error
    # Not raised in a graph: TF 1.14 builds the training step when it loads a model.
    with control_dependencies([_arguments.on_device(update_count < 0, lambda: error)]):
        return tf.ones_like(update_count)


def _plain(keras, identity, config, custom_objects):
    kind = _built_in(keras, identity)
    # The configuration that convert_to_legacy_optimizer makes says no more what it is of; that of
    # Keras 3 never does.
    if kind is not None and (is_keras_3(keras) or "is_legacy_optimizer" in config):
        return kind.from_config(config, custom_objects)
    return keras.optimizers.deserialize(dict(identity, config=config), custom_objects)


def _built_in(keras, identity):
    """The class of Keras that a saved optimizer is of, or None.

    Keras's own deserialize knows neither AdamW, Lion and Adafactor on 2.15, nor Lamb on Keras 3.15.
    """
    path = (identity.get("module") or "").split(".") + [identity["class_name"]]
    if path[1:2] != ["optimizers"]:  # before 2.12 the module is not said
        return None
    kind = keras
    for name in path[1:]:
        kind = getattr(kind, name, None)
    return kind


def is_keras_3(keras):
    return hasattr(keras, "Variable")
