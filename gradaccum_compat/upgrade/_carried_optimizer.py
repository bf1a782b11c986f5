"""The optimizer that a checkpoint is carried to: what it needs, which settings cannot go on, what
it keeps differently."""

from __future__ import absolute_import, division, print_function

import re

import tensorflow as tf

from gradaccum_compat import errors, optimizers
from gradaccum_compat.accumulator import Accumulator
from gradaccum_compat.core import _arguments
from gradaccum_compat.upgrade import _slots
from gradaccum_compat.wrap import loss_scale, wrapped

#: The rules that both sides have.
_SERVED = ("sgd", "adam", "adagrad", "rmsprop", "ftrl")
#: The defaults of epsilon of tf.train's optimizers. Adagrad has none.
_V1_EPSILON = {"adam": 1e-8, "rmsprop": 1e-10}
#: An epsilon that adds nothing in float32. OptimizerV2 takes 0 for its default.
_NO_EPSILON = 1e-20
#: The last parts of the names that tf.train's optimizers give their slots.
SLOT_NAMES = re.compile(r"/(Momentum|Adam|Adagrad|RMSProp|Ftrl|Adadelta|adam_m|adam_v)(_\d+)?$")


def optimizers_in(names):
    """tf.train's names for the optimizers whose slots are among these names, sorted."""
    return sorted({match.group(1) for match in map(SLOT_NAMES.search, names) if match})


class CarriedTo(object):
    """The optimizer that is carried to, and the accumulator behind it or None."""

    def __init__(self, given):
        self.accumulator, self._accumulation = None, None
        inner = loss_scale.inner(given)
        if isinstance(given, Accumulator):
            self.accumulator = given
            given = given._target.optimizer
        elif wrapped.is_wrapped(inner):
            self._accumulation = inner._accumulation
            self.accumulator = inner.accumulator
        else:
            _arguments.optimizer(given)
        self.plain = _slots.plain(given)
        self.generation, self.rule = _slots.generation_of(self.plain), _slots.rule_of(self.plain)
        if (
            self.generation not in (_slots.KERAS_V2, _slots.KERAS_2_11, _slots.KERAS_3)
            or self.rule not in _SERVED
        ):
            raise errors.OptimizerError(
                "carry_over goes on with Keras's SGD, Adam, Adagrad, RMSprop or Ftrl.",
                "{} of {}".format(type(self.plain).__name__, type(self.plain).__module__),
                "Pass one of them. A Saver restores optimizers of tf.compat.v1.train.",
            )
        self.settings = _slots.settings_of(self.plain)
        if self.accumulator is not None and self.accumulator._replicas.count > 1:
            raise errors.ContextError(
                "A checkpoint is carried over on one replica.",
                "an accumulator on {}".format(self.accumulator._replicas.count),
                "Carry it over without a strategy, save it with tf.train.Checkpoint, and restore"
                " that on the replicas.",
            )

    def setting(self, name, default=0.0):
        return self.settings.get(name, default)

    def needs(self):
        """The slots that the optimizer keeps, with the settings that it has."""
        if self.rule == "sgd":
            return ["momentum"] if self.setting("momentum") else []
        if self.rule == "rmsprop":
            return (
                ["rms"]
                + (["mg"] if self.setting("centered", False) else [])
                + (["momentum"] if self.setting("momentum") else [])
            )
        return {"adam": ["m", "v"], "adagrad": ["accumulator"], "ftrl": ["accumulator", "linear"]}[
            self.rule
        ]

    def build(self, variables):
        if self._accumulation is not None:
            self._accumulation.build(variables)
        elif self.accumulator is not None:
            self.accumulator.build()
        optimizers.create_state(self.plain, variables)

    def updates_all_rows(self):
        """Whether it updates rows or slots that a sparse gradient does not have, where tf.train's
        does not."""
        since_2_11 = self.generation in (_slots.KERAS_2_11, _slots.KERAS_3)
        momentum = self.rule == "sgd" and bool(self.setting("momentum"))
        return self.rule == "rmsprop" or momentum and since_2_11

    def refuse_settings(self, names):
        """Refuses settings that cannot go on from slots of these names.

        Args:
            names: all names in the checkpoint.
        """
        others = optimizers_in(names)
        if not self.needs() and others:
            raise errors.OptimizerError(
                "SGD without momentum has no slots.",
                "a checkpoint with slots of {}".format(" and ".join(others)),
                "Pass SGD with the old momentum, or the optimizer that wrote them.",
            )
        if self.rule == "adam" and self.setting("amsgrad", False):
            raise errors.OptimizerError(
                "tf.train.AdamOptimizer keeps no largest second moment.",
                "Adam with amsgrad=True",
                "Pass amsgrad=False.",
            )
        if self.rule == "rmsprop":
            self._refuse_rmsprop(names)
        if (
            self.rule == "adagrad"
            and self.generation == _slots.KERAS_V2
            and self.setting("epsilon") > _NO_EPSILON
        ):
            raise errors.OptimizerError(
                "tf.train.AdagradOptimizer has no epsilon, and this one has it outside of the"
                " root.",
                "{} with epsilon={}".format(self, self.setting("epsilon")),
                "Pass epsilon=1e-30, which is none.",
            )

    def _refuse_rmsprop(self, names):
        old_centered = any(re.search(r"/RMSProp_2$", each) for each in names)
        if old_centered != bool(self.setting("centered", False)):
            raise errors.OptimizerError(
                "RMSprop goes on centered if it was, and only then.",
                "a checkpoint of {} one and {} with centered={}".format(
                    "a centered" if old_centered else "no centered", self, not old_centered
                ),
                "Pass centered={}.".format(old_centered),
            )
        outside = self.generation == _slots.KERAS_V2 and not self.setting("momentum")
        if outside and self.setting("epsilon") > _NO_EPSILON:
            raise errors.OptimizerError(
                "tf.train.RMSPropOptimizer has epsilon inside of the root: g / sqrt(rms +"
                " epsilon).",
                "{} with epsilon={}, which has it outside: g / (sqrt(rms) + epsilon)".format(
                    self, self.setting("epsilon")
                ),
                "Pass epsilon=1e-30, which is none, and differs where rms is small alone; or use an"
                " RMSprop of Keras 2.11 or later, which has it inside.",
            )

    def converted(self, slot, value):
        """A slot's value as the optimizer keeps it, and how that was found."""
        if self.rule == "sgd":
            rate = float(tf.convert_to_tensor(_slots.learning_rate_of(self.plain)))
            if not rate:
                raise errors.OptimizerError(
                    "Keras's momentum holds the learning rate, which is not zero.",
                    "{} whose next update has the learning rate 0".format(self),
                    "Carry over with the learning rate that the next update is to have.",
                )
            how = (
                "times -{:.6g}, the learning rate of the next update: tf.train adds up gradients,"
                " Keras updates"
            ).format(rate)
            return _slots.converted(slot, value, "sgd", _slots.V1, self.generation, rate), how
        epsilon = self.setting("epsilon")
        if self.rule == "adagrad" and epsilon and self.generation != _slots.KERAS_V2:
            return (
                value - epsilon,
                "less {:.6g}, the epsilon that Keras adds to it and tf.train does not".format(
                    epsilon
                ),
            )
        return value, None

    def note_settings(self, report):
        """Notes what the checkpoint does not say."""
        rule = self.rule
        epsilon, before = self.setting("epsilon"), _V1_EPSILON.get(rule)
        if before is not None and epsilon != before and epsilon > _NO_EPSILON:
            report.notes.append(
                "A checkpoint holds no settings. tf.train's default for epsilon is {:g}, and this"
                " {} has {:g}: pass epsilon={:g} unless the old program gave another.".format(
                    before, self, epsilon, before
                )
            )
        if rule == "sgd" and self.setting("momentum"):
            report.notes.append(
                "Keras keeps the learning rate in the momentum's buffer: if the rate changes later,"
                " the two part by definition, for as long as the momentum remembers."
            )

    def __str__(self):
        return type(self.plain).__name__
