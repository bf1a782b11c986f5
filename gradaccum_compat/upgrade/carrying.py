"""carry_over: a TF 1 Saver's checkpoint brought into a TF 2 model, its optimizer and its
accumulator.

Everything is read, matched and checked first; then everything is written. A mismatch is
refused, and nothing is written. The slots of each generation of optimizers are in _slots.py.
"""

from __future__ import absolute_import, division, print_function

import collections
import re

import tensorflow as tf

from gradaccum_compat import errors
from gradaccum_compat.core import _arguments
from gradaccum_compat.upgrade import _carried_cycle, _slots, _updates_made
from gradaccum_compat.upgrade._carried_optimizer import SLOT_NAMES, CarriedTo, optimizers_in
from gradaccum_compat.upgrade._saver_checkpoint import Checkpoint, matching, name_of, only, some


class CarriedOver(object):
    """The report of carry_over.

    Attributes:
        matched: from each name in the checkpoint that was used to what it went to, in order.
        converted: the same names where the value is kept differently here, and how it was
            converted.
        fresh: names here of variables whose slots the checkpoint does not have: they begin anew.
        left_over: names in the checkpoint that nothing here asked for.
        notes: sentences about what a checkpoint does not say, such as the old optimizer's settings.
    """

    def __init__(self):
        self.matched = collections.OrderedDict()
        self.converted = collections.OrderedDict()
        self.fresh = []
        self.left_over = []
        self.notes = []

    def add(self, name, place, how=None):
        """Notes what a name in the checkpoint went to, and how it was converted if it was."""
        self.matched.setdefault(name, place)
        if how is not None:
            self.converted[name] = how

    def __repr__(self):
        return "<CarriedOver matched={} converted={} fresh={} left_over={}>".format(
            len(self.matched), len(self.converted), len(self.fresh), len(self.left_over)
        )

    def __str__(self):
        lines = ["{} values are carried over:".format(len(self.matched))]
        for name, place in self.matched.items():
            how = ", converted: {}".format(self.converted[name]) if name in self.converted else ""
            lines.append("  {} -> {}{}".format(name, place, how))
        if self.fresh:
            lines += ["No slots in the checkpoint; these begin anew:"] + [
                "  " + each for each in self.fresh
            ]
        if self.left_over:
            lines += ["Left over in the checkpoint:"] + ["  " + each for each in self.left_over]
        return "\n".join(lines + ["Note: " + each for each in self.notes])


def carry_over(checkpoint, optimizer, variables, names=None):
    """Brings a TF 1 Saver's checkpoint into variables, an optimizer and its accumulator.

    Weights go to the variable of the same name, where "dense/kernel" is also "model/dense/kernel"
    if there is one such alone. The optimizer's slots follow their variables, and are converted
    where Keras keeps them differently. An accumulator's sums go by position: the trainable ones of
    `variables` are in the old program's order. If anything does not match, nothing is written.

    Example:
        >>> report = ga.upgrade.carry_over("old/model.ckpt-1000", optimizer, model.variables)
        >>> print(report)

    Args:
        checkpoint: what Saver.save returned, or the folder of it, for the latest one there.
        optimizer: Keras's SGD, Adam, Adagrad, RMSprop or Ftrl of any generation, as it is or
            wrapped by ga.wrap_optimizer; or an Accumulator.
        variables: non-empty list or tuple of variables, all that the optimizer trains among them.
        names: dictionary from a name in the checkpoint to the name here, or a function that returns
            that or None. It may name a variable ({"old/w": "dense/kernel"}), one slot
            ({"old/w/adam_m": "dense/kernel/m"}), the last part of all slots' names ({"adam_m": "m",
            "adam_v": "v"}), a sum of the accumulator ({"accumulator/sum_0": "dense/kernel"}), and
            what the optimizer counts by ({"step": "iterations"}, {"train/beta1_power":
            "beta1_power"}).

    Returns:
        A CarriedOver: what was matched, what was converted, what is left over.

    Raises:
        VariablesError: variables that match no name or shape.
        OptimizerError: an optimizer that cannot go on as the old one, or whose settings cannot.
        OptionError: a checkpoint that is none, or of another kind; names that name nothing.
        EagerRequiredError: in a TF 1 graph.
    """
    if not tf.executing_eagerly():
        raise errors.EagerRequiredError(
            "carry_over brings a checkpoint into TensorFlow 2.",
            "a call inside of a graph",
            "Call it in eager code; in a graph restore with tf.compat.v1.train.Saver or ga.Saver.",
        )
    old = Checkpoint(checkpoint)
    carrying = _Carrying(old, CarriedTo(optimizer), _variables(variables))
    carrying.take_names(names)
    carrying.plan()
    return carrying.carry()


def _variables(value):
    if (
        not isinstance(value, (list, tuple))
        or not value
        or not all(hasattr(_arguments.raw_variable(each), "assign") for each in value)
    ):
        raise errors.VariablesError(
            "variables must be a non-empty list or tuple of variables.",
            _arguments.describe(value),
            "Pass model.variables, or what the optimizer trains. A model that is built on its first"
            " call has none before.",
        )
    return list(value)


class _Carrying(object):
    """Where each value goes: plan() finds out, carry() writes."""

    def __init__(self, old, optimizer, variables):
        self._old, self._optimizer, self._variables = old, optimizer, variables
        self._here = [name_of(each) for each in variables]
        self._trained = [
            index
            for index, each in enumerate(variables)
            if _arguments._is_trainable(_arguments.raw_variable(each))
        ]
        self._report = CarriedOver()
        #: From positions, from (position, slot), and from other things to names in the checkpoint.
        self._weights, self._slots, self._sums, self._special = {}, {}, {}, {}
        self._last_parts = {}
        self._iterations = None
        self._cycle = None

    # Names

    def take_names(self, names):
        names = names or {}
        if callable(names):
            named = [(each, names(each)) for each in sorted(self._old.shapes)]
            names = {each: other for each, other in named if other is not None and other != each}
        if not isinstance(names, dict):
            raise errors.OptionError(
                "names is a dictionary from names in the checkpoint to names here, or a function.",
                _arguments.describe(names),
                'Pass {"old/kernel": "dense/kernel"}, say.',
            )
        for name, place in sorted(names.items()):
            self._take_name(name, place)

    def _take_name(self, name, place):
        if name not in self._old.shapes:
            if place not in _SLOT_WORDS or not any(
                each.endswith("/" + name) for each in self._old.shapes
            ):
                raise self._no_such_name(name, place)
            self._last_parts[place] = name
        elif place == _updates_made.ITERATIONS or place in _updates_made.POWERS:
            self._special[place] = name
        elif re.search(r"/sum_\d+$", name) and self._position(place) is not None:
            self._sums[name] = self._position(place)
        elif self._position(place) is not None:
            self._weights[self._position(place)] = name
        elif (
            place.rpartition("/")[2] in _SLOT_WORDS
            and self._position(place.rpartition("/")[0]) is not None
        ):
            self._slots[self._position(place.rpartition("/")[0]), place.rpartition("/")[2]] = name
        else:
            raise errors.OptionError(
                "names leads to a variable or a slot that is here.",
                "{!r}: {!r}".format(name, place),
                "The variables here are {}; the slots are VARIABLE/{}.".format(
                    some(self._here), " or VARIABLE/".join(self._optimizer.needs() or ["..."])
                ),
            )

    def _no_such_name(self, name, place):
        turned = place in self._old.shapes
        return errors.OptionError(
            "names goes from a name in the checkpoint to the name here.",
            "{!r}: {!r}, and the checkpoint has no {!r}".format(name, place, name),
            (
                "It is the other way round."
                if turned
                else "The checkpoint has {}.".format(some(sorted(self._old.shapes)))
            ),
        )

    def _position(self, name):
        return only(matching(name.split(":")[0], self._here))

    # Planning

    def plan(self):
        self._plan_weights()
        self._plan_slots()
        self._iterations = _updates_made.find(
            self._old, self._optimizer, self._special, self._accumulator_prefix(), self._report
        )
        self._plan_cycle()
        self._optimizer.note_settings(self._report)

    def _plan_weights(self):
        wrong = []
        state = set(self._names_of_slots())
        candidates = sorted(name for name in self._old.shapes if name not in state)
        for index, here in enumerate(self._here):
            if index in self._weights:
                continue
            found = matching(here, candidates)
            if len(found) != 1:
                alike = [each for each in candidates if self._fits(each, index)]
                wrong.append(
                    "{} of shape {}, which {}{}".format(
                        here,
                        self._shape(index),
                        (
                            "may be any of " + some([candidates[each] for each in found])
                            if found
                            else "is no name in the checkpoint"
                        ),
                        "; of this shape it has " + some(alike) if alike and not found else "",
                    )
                )
            else:
                self._weights[index] = candidates[found[0]]
        for name, count in collections.Counter(self._weights.values()).items():
            if count > 1:
                wrong.append(
                    "{} of the checkpoint, which {} variables here match".format(name, count)
                )
        wrong += [
            "{} of shape {}, where the checkpoint's {} has shape {}".format(
                self._here[index], self._shape(index), name, self._old.shapes[name]
            )
            for index, name in sorted(self._weights.items())
            if not self._fits(name, index)
        ]
        if wrong:
            raise errors.VariablesError(
                "Each variable has one of the same name and shape in the checkpoint.",
                "; ".join(wrong[:10]),
                "Map names with names={name in the checkpoint: name here}, or leave the variables"
                " out that begin anew.",
            )

    def _names_of_slots(self):
        """Names in the checkpoint that belong to slots and accumulators, and can be no weights."""
        last = tuple("/" + each for each in self._last_parts.values())
        prefixes = tuple(prefix + "/" for prefix in _carried_cycle.names_in(self._old))
        return [
            name
            for name in self._old.shapes
            if SLOT_NAMES.search(name)
            or (last and name.endswith(last))
            or (prefixes and name.startswith(prefixes))
        ] + list(self._slots.values())

    def _plan_slots(self):
        needed = self._optimizer.needs()
        found = {index: self._slots_found(index) for index in self._trained}
        bare = [index for index in self._trained if not found[index]]
        if needed and len(bare) == len(self._trained) and self._trained:
            raise self._no_slots(needed)
        self._optimizer.refuse_settings(self._old.shapes)
        for index in self._trained:
            missing = [slot for slot in needed if slot not in found[index]]
            if found[index] and missing:
                raise errors.OptimizerError(
                    "{} goes on from all of its slots.".format(self._optimizer),
                    "a checkpoint without the slot {} of {}".format(
                        " and ".join(missing), self._here[index]
                    ),
                    "Map its name with names={{name in the checkpoint: {!r}}}.".format(
                        self._here[index] + "/" + missing[0]
                    ),
                )
            for slot in needed:
                if found[index]:
                    self._check_slot(index, slot, found[index][slot])
                    self._slots[index, slot] = found[index][slot]
        self._report.fresh = [self._here[index] for index in bare] if needed else []

    def _slots_found(self, index):
        """The slots that the checkpoint has for a variable: from canonical name to the checkpoint's
        name."""
        weight, rule = self._weights[index], self._optimizer.rule
        table = _slots.V1_CHECKPOINT[rule]
        if rule == "rmsprop" and self._v1_name(weight + "/RMSProp_2"):
            table = _slots.V1_CHECKPOINT_CENTERED
        found = {}
        for slot, pattern in table:
            name = self._v1_name(pattern.replace("VAR", weight))
            if self._last_parts.get(slot):
                name = self._v1_name(weight + "/" + self._last_parts[slot])
            found[slot] = self._slots.get((index, slot), name)
        return {slot: name for slot, name in found.items() if name}

    def _v1_name(self, name):
        """The one name in the checkpoint that is this, where the train op may have been made in a
        scope."""
        found = self._old.with_suffix(name)
        if len(found) > 1:
            raise errors.OptimizerError(
                "A slot has one name in the checkpoint.",
                "{} for {}".format(some(found), name),
                "Say which with names={name in the checkpoint: VARIABLE/SLOT}.",
            )
        return found[0] if found else None

    def _check_slot(self, index, slot, name):
        if not self._fits(name, index):
            raise errors.OptimizerError(
                "A slot has its variable's shape.",
                "{} of shape {} for the slot {} of {}, of shape {}".format(
                    name, self._old.shapes[name], slot, self._here[index], self._shape(index)
                ),
                "Map names with names={name in the checkpoint: VARIABLE/SLOT}.",
            )

    def _no_slots(self, needed):
        others = optimizers_in(self._old.shapes)
        return errors.OptimizerError(
            "{} goes on from the slots {}.".format(self._optimizer, " and ".join(needed)),
            (
                "a checkpoint with slots of {}".format(" and ".join(others))
                if others
                else "a checkpoint without slots"
            ),
            'Pass an optimizer of the kind that wrote them, or map names with names={"adam_m": "m",'
            ' "adam_v": "v"}, say.',
        )

    # The cycle

    def _accumulator_prefix(self):
        """The accumulator of the checkpoint, or None."""
        found = _carried_cycle.names_in(self._old)
        named = [
            each
            for each in found
            if self._optimizer.accumulator is not None
            and each.rpartition("/")[2] == self._optimizer.accumulator.name
        ]
        found = named if len(named) == 1 else found
        if len(found) > 1:
            raise errors.OptimizerError(
                "One accumulator is carried over.",
                "{} in the checkpoint".format(some(found)),
                "Give the new accumulator the name of the old one: name={!r}.".format(found[0]),
            )
        return found[0] if found else None

    def _plan_cycle(self):
        prefix = self._accumulator_prefix()
        if prefix is None:
            return
        count = int(self._old.value(prefix + "/micro_count"))
        if self._optimizer.accumulator is None:
            if count:
                self._report.notes.append(
                    "The checkpoint is in mid-cycle, and the gradients of {} micro-batches in {}"
                    " are left over: pass the wrapped optimizer, or the Accumulator, to carry them"
                    " over too.".format(count, prefix)
                )
            return
        self._cycle = _carried_cycle.read(self._old, prefix)
        self._cycle.positions = self._positions_of_sums(prefix, len(self._cycle.sums))
        sparse = [
            self._here[index]
            for index, is_sparse in zip(self._cycle.positions, self._cycle.is_sparse())
            if is_sparse
        ]
        if sparse and self._optimizer.updates_all_rows():
            self._report.notes.append(
                "This {} updates all rows of a variable and its slots, and tf.train's those alone"
                " that its sparse gradient has: {} will train in another way.".format(
                    self._optimizer, some(sparse)
                )
            )

    def _positions_of_sums(self, prefix, count):
        """For each sum, the position of its variable here."""
        order = self._trained
        if count != len(order):
            # An optimizer of tf.train is handed no variable that the loss does not reach, and makes
            # no slots for it.
            order = [index for index in order if self._here[index] not in self._report.fresh]
        positions = [
            self._sums.get(
                "{}/sum_{}".format(prefix, number), order[number] if number < len(order) else None
            )
            for number in range(count)
        ]
        if count != len(order) and not set(range(count)) <= {
            int(each.rpartition("_")[2]) for each in self._sums
        }:
            raise errors.VariablesError(
                "The trainable ones of variables are those of the old accumulator, in its order.",
                "{} sums in {} for {} variables".format(count, prefix, len(order)),
                "Pass them in the old program's order, or map each with"
                " names={{{!r}: {!r}}}.".format(prefix + "/sum_0", self._here[0]),
            )
        for number, index in enumerate(positions):
            name = "{}/sum_{}".format(prefix, number)
            if not self._fits(name, index) or positions.count(index) > 1:
                raise errors.VariablesError(
                    "The trainable ones of variables are in the order of the old accumulator's"
                    " sums.",
                    "{} of shape {} for {} of shape {}".format(
                        name, self._old.shapes[name], self._here[index], self._shape(index)
                    ),
                    "Pass the variables in the old program's order, or map sums with names={{{!r}:"
                    " ...}}.".format(name),
                )
            self._report.add(name, "sum of the gradients of " + self._here[index])
        return positions

    # Carrying over

    def carry(self):
        optimizer = self._optimizer
        optimizer.build([self._variables[index] for index in self._trained])
        slots, values = self._slots_here(), self._converted_slots()
        for index, name in sorted(self._weights.items()):
            self._assign(self._variables[index], self._old.value(name))
            self._report.add(name, self._here[index])
        for (index, slot), name in sorted(self._slots.items()):
            value, how = values[index, slot]
            self._assign(slots[index][slot], value)
            self._report.add(name, "{} of {}".format(slot, self._here[index]), how)
        self._carry_cycle()
        self._report.left_over = sorted(set(self._old.shapes) - set(self._report.matched))
        return self._report

    def _converted_slots(self):
        """The slots' values as the optimizer keeps them, with its iterations at what they are to
        be."""
        iterations = self._optimizer.plain.iterations
        before = int(tf.convert_to_tensor(iterations))
        if self._iterations is not None:
            # A schedule has another learning rate for each.
            iterations.assign(self._iterations)
        try:
            return {
                key: self._optimizer.converted(key[1], self._old.value(name))
                for key, name in self._slots.items()
            }
        except errors.GradAccumError:
            iterations.assign(before)
            raise

    def _slots_here(self):
        """The optimizer's slots by position, checked before anything is written."""
        trained = [self._variables[index] for index in self._trained]
        slots = dict(zip(self._trained, _slots.slots_of(self._optimizer.plain, trained)))
        strange = [
            self._here[index] for index, slot in self._slots if slot not in slots.get(index, {})
        ]
        if strange:
            raise errors.VariablesError(
                "variables are those that the optimizer trains.",
                "{}, for which the optimizer has no slots".format(some(strange)),
                "Pass an optimizer that has not been used, or the variables that it was built for.",
            )
        accumulator = self._optimizer.accumulator
        if accumulator is not None:
            own = [id(each) for each in accumulator._target.raw]
            given = [id(_arguments.raw_variable(each)) for each in trained]
            if not set(own) <= set(given):
                raise errors.VariablesError(
                    "variables has all that the accumulator adds up for.",
                    "{} variables, of which {} are the accumulator's {}".format(
                        len(given), len(set(own) & set(given)), len(own)
                    ),
                    "Pass all of them.",
                )
        return slots

    def _carry_cycle(self):
        accumulator = self._optimizer.accumulator
        if accumulator is None:
            return
        # Also takes back that a call was interrupted.
        accumulator.reset()
        if self._cycle is None:
            self._report.notes.append("The checkpoint has no accumulator: the cycle begins anew.")
            return
        here = {
            id(_arguments.raw_variable(self._variables[index])): number
            for number, index in enumerate(self._cycle.positions)
        }
        _carried_cycle.write(
            accumulator, self._cycle, [here.get(id(each)) for each in accumulator._target.raw]
        )
        for name in self._cycle.names:
            self._report.add(name, "the accumulator")

    def _assign(self, variable, value):
        raw = _arguments.raw_variable(variable)
        raw.assign(tf.cast(tf.constant(value), tf.as_dtype(raw.dtype).base_dtype))

    def _fits(self, name, index):
        return list(self._old.shapes[name]) == self._shape(index)

    def _shape(self, index):
        return list(_arguments.raw_variable(self._variables[index]).shape.as_list())


_SLOT_WORDS = frozenset(slot for table in _slots.V1_CHECKPOINT.values() for slot, _ in table) | {
    "mg"
}
