"""Followed: the record whose states another training begins chosen updates from. NumPy alone."""

from __future__ import absolute_import, division, print_function

import numpy as np

from gradaccum_compat import errors
from gradaccum_compat.upgrade import _slots
from gradaccum_compat.upgrade._log import say


class Followed(object):
    """One accumulator's record, for the accumulator that follows it.

    Args:
        record: the _format.Record.
        variables: (name, shape) of each variable of the accumulator that follows.

    Raises:
        RecordError: if they are not of the record's shapes.
    """

    def __init__(self, record, variables):
        self.record = record
        _check_shapes(record, variables)
        self._snapshots = frozenset(record.snapshots)
        self._on = True
        self._number, self._values = None, None

    @property
    def snapshots(self):
        """The updates that the record takes snapshots of; None for the default."""
        told = self.record.manifest.get("snapshots")
        return told if isinstance(told, list) else None

    def was_restored(self):
        """Whether the record's training began from a checkpoint: it had iterations or slots that
        were filled before its first update.

        Who follows it restores one too, after its variables are made.
        """
        try:
            state = self.record.state(0)
            return bool(state.iterations) or any(
                value.size and np.any(value != value.flat[0])
                for index in range(len(self.record.variables))
                for value in state.slots(index).values()
            )
        except errors.RecordError:  # said where it is followed
            return False

    def has(self, number):
        """Whether there is a state to begin update `number` from."""
        return self._on and number in self._snapshots

    def values(self, number, slots, rule, generation):
        """The arrays to begin an update from.

        Args:
            number: of the update.
            slots: for each variable the canonical names of the slots to set.
            rule: the follower's rule.
            generation: its generation.

        Returns:
            For each variable its weights, and {name: array} of the slots that the record has. Where
            the state cannot be read, that is said once, all weights are None, and nothing is
            followed from then on.
        """
        try:
            state = self.record.state(number)
            weights = [state.weight(index) for index in range(len(slots))]
            if any(each is None for each in weights):
                raise errors.RecordError(
                    "A state has all weights.",
                    "{!r} without some".format(self.record.folder),
                    "Record again.",
                )
            optimizer = self.record.manifest["optimizer"]
            same = _slots.rule_of_class(optimizer["class"]) == rule
            found = []
            for index, names in enumerate(slots):
                held = state.slots(index) if same else {}
                values = {
                    name: _slots.converted(
                        name,
                        held[name],
                        rule,
                        optimizer["generation"],
                        generation,
                        state.learning_rate,
                    )
                    for name in names
                    if name in held
                }
                found.append({name: each for name, each in values.items() if each is not None})
            self._number, self._values = number, weights
            return weights, found
        except errors.RecordError as error:
            self._on = False
            say("following has stopped, training and recording go on: {}".format(error))
            return [None] * len(slots), [{} for _ in slots]

    def began(self, number, weights):
        """Whether update `number` has begun from this record's weights, to the bit."""
        return self._number == number and all(
            _same(mine, each) for mine, each in zip(self._values, weights)
        )


def _same(one, other):
    return np.array_equal(np.asarray(one, other.dtype), other)


def _check_shapes(record, variables):
    rule = "Who follows a record has its variables: as many, in its order, of its shapes."
    remedy = (
        "Build the same model, in the same order; or record without following, and say which "
        "variable is which "
        "with gradaccum-compat compare --map OLD=NEW."
    )
    if len(record.variables) != len(variables):
        raise errors.RecordError(
            rule,
            "{} variables, where {!r} has {}".format(
                len(variables), record.folder, len(record.variables)
            ),
            remedy,
        )
    for position, (old, (name, shape)) in enumerate(zip(record.variables, variables)):
        if old.shape != tuple(shape):
            raise errors.RecordError(
                rule,
                "{} of shape {} at position {}, where {!r} has {:.100} of shape {}".format(
                    name, tuple(shape), position, record.folder, old.name, old.shape
                ),
                remedy,
            )
