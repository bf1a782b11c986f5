"""ga.upgrade.compare: whether two records are of the same training, and why not.

The levels are gone through in turn: the manifests, the initial weights, the updates in lockstep,
the rule of the optimizer. An update is in lockstep where both sides began it from the same weights
and slots: the new run followed the old one, or it is the first, or nothing has differed by a bit so
far. The verdict comes from these updates. The free course is looked at for the page alone. NumPy
alone, no TensorFlow.
"""

from __future__ import absolute_import, division, print_function

import json
import re

import numpy as np
import six

from gradaccum_compat import errors
from gradaccum_compat.upgrade import _causes, _format, _replay

SAME, DIFFERENT, INCONCLUSIVE = "same", "different", "inconclusive"
NOT_COMPARABLE = "not comparable"

#: Elements that are kept of all snapshots together, and the columns of the map.
_ELEMENTS, _COLUMNS = 1500000, 240
#: The updates whose micro-batches are looked for in another place: more are not recorded.
_FIRST = 30
#: Updates in lockstep that are looked at closely, where there are more.
_STEPS = 64
#: A weight before the first update is one number on both sides, but for its last digits.
_WEIGHTS_ROUNDING = 1e-6


def compare(old, new, map=None, progress=None):
    """Compares two records of one training.

    Example:
        >>> comparison = ga.upgrade.compare("old", "new")
        >>> print(comparison.verdict)

    Args:
        old: the folder that the old training was recorded into.
        new: the folder of the new one.
        map: {name of an old variable: name of the new one}, for those that names and order do not
            match.
        progress: a function that is called with the part that is done, from 0 to 1; or None.

    Returns:
        A `Comparison`.

    Raises:
        RecordError: if one of them cannot be read.
    """
    sides = [_format.read(path) for path in (old, new)]
    matched, reason = _accumulators(*sides)
    if reason:
        return Comparison(NOT_COMPARABLE, None, [], [], [reason], (old, new))
    parts = []
    for index, (one, other) in enumerate(matched):

        def report(part, index=index):
            if progress is not None:
                progress((index + part) / len(matched))

        parts.append(_Part(one, other, dict(map or {}), report))
    return _together(parts, (old, new))


class Comparison(object):
    """What compare found.

    Attributes:
        verdict: "same", "different", "inconclusive" or "not comparable".
        first: where they first part, {"update", "variable", "quantity", "difference", "rounding"};
        the last two
            are parts of the old side's length. None where nothing parts.
        causes: the causes, most likely first, each with `id`, `evidence` and `text`.
        notes: sentences on what the verdict rests on, and what to do.
    """

    def __init__(self, verdict, first, causes, parts, notes, paths):
        self.verdict, self.first, self.causes = verdict, first, causes
        self.parts, self.notes, self.paths = parts, notes, paths

    def to_json(self):
        """The comparison as a dict that JSON can write."""
        return {
            "verdict": self.verdict,
            "first": self.first,
            "causes": [
                {"id": each.id, "evidence": each.evidence, "text": each.text}
                for each in self.causes
            ],
            "notes": list(self.notes),
        }

    def json(self):
        """The comparison as JSON."""
        return json.dumps(self.to_json(), indent=2, sort_keys=True)

    def to_html(self):
        """The comparison as one self-contained page."""
        from gradaccum_compat.upgrade import _page

        return _page.page(self)

    def where(self):
        """A sentence on where they first part; empty where nothing parts."""
        if self.first is None:
            return ""
        first = self.first
        if first["difference"] is None:
            return "They first part at update {update}, in the {quantity} of {variable}.".format(
                **first
            )
        return (
            "They first part at update {update}, in the {quantity} of {variable}: by {difference} "
            "of its length, "
            "where rounding explains {rounding}."
        ).format(
            **dict(
                first,
                difference=_causes.number(first["difference"], 3),
                rounding=_causes.number(first["rounding"], 3),
            )
        )

    def __str__(self):
        lines = [self.verdict]
        if self.first is not None:
            lines += ["", self.where()]
        for cause in self.causes:
            lines += [
                "",
                "{}: {}".format(cause.id, cause.text),
                "  evidence: {}".format(cause.evidence),
            ]
        if self.notes:
            lines += [""] + list(self.notes)
        return "\n".join(lines)

    def __repr__(self):
        return "<Comparison: {}>".format(self.verdict)


#: Control characters, those that turn the direction of writing, and halves of characters.
_NO_TEXT = re.compile(
    six.u(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
)


def clean(text, most=200):
    """A text of a record as it may be shown: it comes from somewhere else and goes to terminals
    and pages.

    Control characters, and those that turn the direction of writing, become question marks.
    """
    text = _NO_TEXT.sub("?", text)
    text = text if len(text) <= most else text[: most - 3] + "..."
    return text.encode("ascii", "backslashreplace") if six.PY2 else text


def _accumulators(old, new):
    """Pairs of records, and why there are none."""
    if len(old) != len(new):
        return [], "The old program has {} accumulators and the new one {}.".format(
            len(old), len(new)
        )
    names = {each.name: each for each in new}
    if set(names) == {each.name for each in old}:
        return [(each, names[each.name]) for each in old], None
    return list(zip(old, new)), None


def _together(parts, paths):
    """One comparison of those of several accumulators."""
    order = (NOT_COMPARABLE, DIFFERENT, INCONCLUSIVE, SAME)
    verdict = min((part.verdict for part in parts), key=order.index)
    causes, seen = [], set()
    for part in parts:
        for cause in part.causes:
            if cause.id not in seen or len(parts) > 1:
                seen.add(cause.id)
                causes.append(cause)
    firsts = [part.first for part in parts if part.first is not None]
    first = min(firsts, key=lambda each: each["update"]) if firsts else None
    notes = []
    for part in parts:
        prefix = "{}: ".format(clean(part.old.name)) if len(parts) > 1 else ""
        notes += [prefix + each for each in part.notes]
    if verdict == NOT_COMPARABLE:
        first, causes = None, []
    return Comparison(verdict, first, causes, parts, notes, paths)


def _bare(name):
    return re.sub(r":\d+$", "", name)


def match(old, new, renamed):
    """Which old variable is which new one.

    Args:
        old, new: the variables of both sides.
        renamed: {old name: new name}.

    Returns:
        [(index of old, index of new)] in the old order, and a reason where they do not match.
    """
    names = [[_bare(each.name) for each in side] for side in (old, new)]
    renamed = {_bare(key): _bare(value) for key, value in renamed.items()}
    for side, given, which in ((names[0], renamed, "old"), (names[1], renamed.values(), "new")):
        unknown = sorted(set(given) - set(side))
        if unknown:
            return [], "The map names {}, which the {} side does not have.".format(
                ", ".join(map(clean, unknown[:5])), which
            )
    wanted = [renamed.get(each, each) for each in names[0]]
    unique = len(set(wanted)) == len(wanted) and len(set(names[1])) == len(names[1])
    if unique and set(wanted) == set(names[1]):
        pairs = [(index, names[1].index(name)) for index, name in enumerate(wanted)]
        return _same_shapes(old, new, pairs)
    fixed = [(names[0].index(one), names[1].index(other)) for one, other in renamed.items()]
    rest = [
        [index for index in range(len(side)) if index not in {pair[place] for pair in fixed}]
        for place, side in enumerate((old, new))
    ]
    pairs = sorted(fixed + list(zip(*rest)))
    if len(rest[0]) == len(rest[1]) and _same_shapes(old, new, pairs)[1] is None:
        return pairs, None
    return [], _mismatch(old, new, rest)


def _same_shapes(old, new, pairs):
    for one, other in pairs:
        if tuple(old[one].shape) != tuple(new[other].shape):
            return [], "{} has the shape {} on the old side and {} on the new one.".format(
                clean(old[one].name), list(old[one].shape), list(new[other].shape)
            )
    return pairs, None


def _mismatch(old, new, rest):
    if len(rest[0]) != len(rest[1]):
        only = sorted({_bare(each.name) for each in old} ^ {_bare(each.name) for each in new})
        return (
            "The old side trains {} variables and the new one {}; on one side only: {}. If they "
            "are the same under "
            "other names, say so with --map OLD=NEW.".format(
                len(old), len(new), ", ".join(map(clean, only[:6]))
            )
        )
    for one, other in zip(*rest):
        if tuple(old[one].shape) != tuple(new[other].shape):
            return (
                "Names do not match, and neither does the order: in the place of {} {} stands {} "
                "{}. Say which is which "
                "with --map OLD=NEW.".format(
                    clean(old[one].name),
                    list(old[one].shape),
                    clean(new[other].name),
                    list(new[other].shape),
                )
            )
    return "The variables do not match."


class _Line(object):
    """A line of updates.jsonl with the variables in the matched order, which are read when they
    are asked for."""

    def __init__(self, line, order):
        self._line, self._order = line, order
        for key in (
            "micro_batches",
            "weight",
            "learning_rate",
            "iterations",
            "loss",
            "applied",
            "followed",
        ):
            setattr(self, key, getattr(line, key))

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        every = getattr(self._line, name)
        if name == "micro_sketches":
            value = every and [[each[index] for index in self._order] for each in every]
        else:
            value = [every[index] for index in self._order]
        setattr(self, name, value)
        return value


class _Part(object):
    """The comparison of one accumulator's records."""

    def __init__(self, old, new, renamed, report):
        self.old, self.new = old, new
        self.manifests = (old.manifest, new.manifest)
        self.causes, self.notes, self.first = [], [], None
        self.names, self.numbers, self.lockstep = [], [], []
        self.map, self.course = {}, {}
        pairs, reason = match(old.variables, new.variables, renamed)
        if reason:
            self.verdict = NOT_COMPARABLE
            self.notes.append(reason)
            return
        self.order = ([one for one, _ in pairs], [other for _, other in pairs])
        self.names = [clean(old.variables[index].name) for index in self.order[0]]
        self.shapes = [tuple(old.variables[index].shape) for index in self.order[0]]
        places = [
            {number: place for place, number in enumerate(each.updates)} for each in (old, new)
        ]
        self.numbers = sorted(set(places[0]) & set(places[1]))
        if not self.numbers:
            self.verdict = NOT_COMPARABLE
            self.notes.append(
                "No update is in both records: nothing was trained, or the counts do not meet."
            )
            return
        for each, which in ((old, "old"), (new, "new")):
            if each.cut_off:
                self.notes.append(
                    "The {} record is cut off; what is whole is compared.".format(which)
                )
        with np.errstate(all="ignore"):
            self._read(places, report)
            self._judge()

    # Reading

    def _read(self, places, report):
        """Goes over both files once, line by line."""
        count = len(self.numbers)
        snapshots = set(self.old.snapshots) & set(self.new.snapshots)
        chosen = set(np.unique(np.linspace(0, count - 1, min(count, _COLUMNS)).astype(int)))
        keys = (
            "old_rate",
            "new_rate",
            "old_loss",
            "new_loss",
            "old_norm",
            "new_norm",
            "micro_batches",
        )
        self.course = {key: np.full(count, np.nan) for key in keys}
        self.course["numbers"] = np.array(self.numbers)
        self.lockstep = np.zeros(count, bool)
        self.map = {"columns": [], "gradient": [], "update": [], "weights": []}
        self.kept, self.skips, self.largest, self.firsts = [], [], 0.0, []
        lines = zip(
            self.old.each([places[0][number] for number in self.numbers]),
            self.new.each([places[1][number] for number in self.numbers]),
        )
        chained, equal = True, 0
        for at, (old, new) in enumerate(lines):
            number = self.numbers[at]
            old, new = _Line(old, self.order[0]), _Line(new, self.order[1])
            self._course(at, old, new)
            if at < _FIRST:
                self.firsts.append((number, old, new))
            if at % 50 == 0:
                report(0.8 * at / count)
            # Of most updates of a long free course nothing more is read.
            if not (chained or new.followed or number in snapshots or at in chosen):
                continue
            self._lengths(at, old, new)
            same = [
                _all_equal(getattr(old, key), getattr(new, key))
                for key in ("weights", "gradient", "update_")
            ]
            locked = new.followed or (same[0] and (chained or self._same_state(number, snapshots)))
            if at == 0 and not new.followed and self._was_set_late(number):
                locked = False
            chained = locked and all(same) and old.applied == new.applied
            equal += chained
            self.lockstep[at] = locked
            if locked and old.applied != new.applied or _unfinite(old) or _unfinite(new):
                if len(self.skips) < 100:
                    self.skips.append((number, old, new))
            if locked and (not chained or number in snapshots or len(self.kept) < 8):
                self._keep(number, old, new, at, number in snapshots)
            if at in chosen or (locked and not chained and len(self.map["columns"]) < 2 * _COLUMNS):
                self._column(at, old, new)
        self.equal = equal
        report(0.8)
        self.steps = self._steps(snapshots, report)

    def _course(self, at, old, new):
        for key, line in (("old", old), ("new", new)):
            if line.learning_rate is not None:
                self.course[key + "_rate"][at] = line.learning_rate
            if line.loss is not None:
                self.course[key + "_loss"][at] = line.loss
        if old.micro_batches is not None:
            self.course["micro_batches"][at] = old.micro_batches

    def _lengths(self, at, old, new):
        for key, line in (("old", old), ("new", new)):
            whole = np.sqrt(sum(each.norm**2 for each in line.gradient if each is not None))
            self.course[key + "_norm"][at] = whole
            if np.isfinite(whole):
                self.largest = max(self.largest, float(whole))

    def _was_set_late(self, number):
        """Whether the new program's own weights were others than those that its first update began
        from: a gradient may have come before they were set."""
        own = self.new.initial()
        if own is None or number not in self.new.snapshots:
            return False
        state = self.new.state(number)
        return not all(
            np.array_equal(own.weight(index), state.weight(index)) for index in self.order[1]
        )

    def _same_state(self, number, snapshots):
        """Whether weights and slots are the same to the bit, as snapshots say."""
        if number not in snapshots:
            return False
        states = self.old.state(number), self.new.state(number)
        for one, other in zip(*self.order):
            if not np.array_equal(states[0].weight(one), states[1].weight(other)):
                return False
            slots = states[0].slots(one), states[1].slots(other)
            if set(slots[0]) != set(slots[1]):
                return False
            if not all(np.array_equal(slots[0][key], slots[1][key]) for key in slots[0]):
                return False
        return True

    def _keep(self, number, old, new, at, snapshot):
        """Keeps an update in lockstep; of many, those with snapshots and an even choice of the
        others."""
        self.kept.append((number, old, new, at, snapshot))
        if len(self.kept) > 4 * _STEPS:
            free = [each for each in self.kept if not each[4]]
            dropped = {id(each) for each in free[1::2]}
            self.kept = [each for each in self.kept if id(each) not in dropped]

    def _column(self, at, old, new):
        """A column of the map: difference over rounding, of each quantity in each variable."""
        self.map["columns"].append(at)
        for quantity, key in (
            ("gradient", "gradient"),
            ("update", "update_"),
            ("weights", "weights"),
        ):
            column = np.full(len(self.names), np.nan)
            for index, (one, other) in enumerate(zip(getattr(old, key), getattr(new, key))):
                if one is None or other is None:
                    if one is not None or other is not None:
                        present = one if other is None else other
                        column[index] = np.inf if present.norm > 0 else 0.0
                    continue
                column[index] = self._over_rounding(quantity, one, other, old.weights[index])
            self.map[quantity].append(column)

    def _over_rounding(self, quantity, one, other, weights):
        difference = _causes.length(_sketch_of(one) - _sketch_of(other))
        own = max(one.norm, other.norm)
        if one.nonfinite != other.nonfinite:
            return np.inf
        if quantity == "gradient":
            rounding = _causes.GRADIENT_ROUNDING * own + _causes.COURSE_ROUNDING * self.largest
        elif quantity == "update":
            still = weights.norm if weights is not None else 0.0
            rounding = _causes.SKETCHED_ROUNDING * own + 4 * _replay.EPS32 * still
        else:
            rounding = _WEIGHTS_ROUNDING * own
        return difference / rounding if rounding else (0.0 if not difference else np.inf)

    def _steps(self, snapshots, report):
        """The updates in lockstep with what is known of them: elements at snapshots, sketches
        else."""
        kept = self.kept
        exact = [each for each in kept if each[4]]
        rest = [each for each in kept if not each[4]]
        if len(rest) > _STEPS:
            rest = [rest[index] for index in np.linspace(0, len(rest) - 1, _STEPS).astype(int)]
        if len(exact) > _STEPS:
            exact = [exact[index] for index in np.linspace(0, len(exact) - 1, _STEPS).astype(int)]
        room = max(256, _ELEMENTS // max(1, len(exact) * len(self.names)))
        steps = []
        for done, (number, old, new, at, snapshot) in enumerate(
            sorted(exact + rest, key=lambda each: each[0])
        ):
            before = tuple(self._rate_before(key, at) for key in ("old_rate", "new_rate"))
            pairs = self._exact(number, old, new, room) if snapshot else self._sketched(old, new)
            steps.append(_causes.Step(number, old, new, pairs, before))
            report(0.8 + 0.15 * done / len(kept))
        return steps

    def _rate_before(self, key, at):
        if (
            at == 0
            or self.numbers[at - 1] != self.numbers[at] - 1
            or not np.isfinite(self.course[key][at - 1])
        ):
            return None
        return float(self.course[key][at - 1])

    def _sketched(self, old, new):
        pairs = []
        for index in range(len(self.names)):
            both = [[_sketch_of(getattr(line, key)[index]) for line in (old, new)] for key in _KEYS]
            norms = tuple(_norm_of(line.gradient[index]) for line in (old, new))
            gradient, weights, change = both
            weights = [np.zeros(64) if each is None else each for each in weights]
            pairs.append(
                _causes.Pair(
                    False,
                    tuple(gradient),
                    tuple(weights),
                    tuple(change),
                    course=self.largest,
                    norms=norms,
                )
            )
        return pairs

    def _exact(self, number, old, new, room):
        states = self.old.state(number), self.new.state(number)
        pairs = []
        for index, (one, other) in enumerate(zip(*self.order)):
            ids = (one, other)
            weights = [state.weight(each) for state, each in zip(states, ids)]
            after = [state.after(each) for state, each in zip(states, ids)]
            gradient = [state.gradient(each) for state, each in zip(states, ids)]
            if weights[0] is None or weights[1] is None:
                pairs.append(self._sketched(old, new)[index])
                continue
            size = int(np.prod(self.shapes[index], dtype=np.int64))
            chosen = (
                np.unique(np.linspace(0, size - 1, room).astype(np.int64))
                if size > room
                else slice(None)
            )

            def flat(values, chosen=chosen):
                return None if values is None else values.reshape(-1)[chosen].astype(np.float64)

            slots = []
            for state, each in zip(states, ids):
                every = state.slots(each)
                fits = all(value.shape == self.shapes[index] for value in every.values())
                slots.append({key: flat(value) for key, value in every.items()} if fits else None)
            part = np.sqrt(min(1.0, room / float(size))) if size else 1.0
            change = [
                None if each is None else flat(each) - flat(before)
                for before, each in zip(weights, after)
            ]
            pairs.append(
                _causes.Pair(
                    True,
                    tuple(flat(each) for each in gradient),
                    tuple(flat(each) for each in weights),
                    tuple(change),
                    tuple(slots),
                    flat_untouched(gradient, self.shapes[index], chosen),
                    self.largest * part,
                    tuple(_norm_of(line.gradient[index]) for line in (old, new)),
                )
            )
        return pairs

    # Judging

    def _judge(self):
        self.differences = (
            []
        )  # (update, order of the quantity, variable, quantity, difference, rounding)
        causes = self._initial()
        skipped = _causes.skipped_updates(self.skips)
        if skipped is not None:
            number = next(each for each in self.skips if str(each[0]) in skipped.evidence)[0]
            self._part_at(number, 2, 0, "update", None, None)
            causes.append(skipped)
        bad = {each[0] for each in self.skips}
        steps = [step for step in self.steps if step.number not in bad]
        self.sporadic = False
        if steps:
            causes += self._slots(steps)
            gradients = _causes.Gradients(steps, self.names, self.manifests, self.firsts)
            found = gradients.causes()
            if found or not gradients.sporadic():
                for cell in gradients.differ:
                    scale = _causes.length(cell[2]) or _causes.length(cell[3]) or 1.0
                    left = _causes.apart(cell[2], cell[3])
                    self._part_at(
                        cell[0].number, 1, cell[1], "gradient", left / scale, cell[5] / scale
                    )
            else:
                self.sporadic = bool(gradients.differ)
            for index in gradients.missing:
                quantity = "gradient" if self._lacks(steps, index) else "update"
                self._part_at(steps[0].number, 1, index, quantity, 1.0, _causes.GRADIENT_ROUNDING)
            updates = _causes.Updates(
                steps, self.names, self.manifests, gradients.missing, bool(gradients.differ)
            )
            updates.course = self.course
            ids = {each.id for each in causes}
            own = [each for each in updates.causes() + updates.latent() if each.id not in ids]
            if updates.hidden is not None:
                self._part_at(updates.hidden, 2, 0, "update", None, None)
            if not {"lost-slots", "slot-initial-value"} & ids or updates.replayed:
                for cell in updates.differ:
                    left = _causes.apart(cell.pair.change[1], cell.expected)
                    scale = (
                        _causes.length(cell.pair.change[0])
                        or _causes.length(cell.pair.change[1])
                        or 1.0
                    )
                    bound = _causes.length(cell.rounding) if cell.pair.exact else cell.rounding
                    self._part_at(
                        cell.step.number, 2, cell.index, "update", left / scale, bound / scale
                    )
            causes += found + own
            if updates.differ and not own and not causes:
                said = _unexplained(updates.rules, self.manifests)
                self.notes += [said] if said else []
        self.causes = causes
        if self.differences or causes:
            self.verdict = DIFFERENT
            self._set_first()
            if not causes:
                self.notes.append("No known pattern explains the difference.")
        else:
            self.verdict = self._same_or_not()

    def _lacks(self, steps, index):
        sides = [_causes.length(each) > 0 for each in steps[0].pairs[index].gradient]
        return sides[0] != sides[1]

    def _part_at(self, number, order, index, quantity, difference, rounding):
        self.differences.append((number, order, index, quantity, difference, rounding))

    def _set_first(self):
        if not self.differences:
            return
        number, order = min(each[:2] for each in self.differences)
        here = [each for each in self.differences if each[:2] == (number, order)]
        worst = max(here, key=lambda each: each[4] / each[5] if each[5] else 0.0)
        self.first = {
            "update": int(number),
            "variable": self.names[worst[2]],
            "quantity": worst[3],
            "difference": None if worst[4] is None else float(worst[4]),
            "rounding": None if worst[5] is None else float(worst[5]),
        }

    def _initial(self):
        """Level 1: the weights as both programs made them."""
        states = [each.initial() for each in (self.old, self.new)]
        first = self.numbers[0]
        if None in states:
            snapshots = set(self.old.snapshots) & set(self.new.snapshots)
            kept = first in snapshots and not self._followed_first()
            states = [self.old.state(first), self.new.state(first)] if kept else None
        if states is None:
            return []
        differing, arrays = [], {}
        for index, (one, other) in enumerate(zip(*self.order)):
            both = [state.weight(each) for state, each in zip(states, (one, other))]
            if both[0] is None or both[1] is None:
                continue
            both = [each.reshape(-1).astype(np.float64) for each in both]
            size = max(_causes.length(each) for each in both)
            left = _causes.apart(*both)
            if left > _WEIGHTS_ROUNDING * size and np.isfinite(size):
                differing.append(index)
                arrays[index] = tuple(each[:100000] for each in both)
                self._part_at(first, 0, index, "weights", left / (size or 1.0), _WEIGHTS_ROUNDING)
        return [_causes.initial_values(differing, arrays, self.names)] if differing else []

    def _followed_first(self):
        return bool(self.manifests[1].get("followed"))

    def _slots(self, steps):
        found = _causes.slot_causes(steps, self._own_slots(), self.names, self.manifests)
        if found:
            self._part_at(steps[0].number, 2, 0, "update", None, None)
        return found

    def _own_slots(self):
        """The slots as both programs had them before their first update; None where not
        recorded."""
        first = self.numbers[0]
        sides, counts = [], []
        for record, order in ((self.old, self.order[0]), (self.new, self.order[1])):
            state = record.initial()
            slots = [state.slots(index) for index in order] if state is not None else []
            if not any(slots):
                followed = record is self.new and self._followed_first()
                if followed or first not in record.snapshots:
                    return None
                state = record.state(first)
                slots = [state.slots(index) for index in order]
            sides.append([each or None for each in slots])
            counts.append(state.iterations)
        return {"update": first, "old": sides[0], "new": sides[1], "iterations": tuple(counts)}

    def _same_or_not(self):
        locked = int(np.sum(self.lockstep))
        followed = bool(self.manifests[1].get("followed"))
        if locked == len(self.numbers) or (followed and locked >= 2):
            what = (
                "All {}".format(locked)
                if locked == len(self.numbers)
                else "{} of {}".format(locked, len(self.numbers))
            )
            self.notes.append(
                "{} updates are in lockstep, and differ by no more than rounding.".format(what)
            )
            if self.sporadic:
                self.notes.append(
                    "A few gradients differ by what a kink (ReLU, maximum) makes of rounding."
                )
            return SAME
        self.notes.append(
            "Only {} of {} updates are in lockstep: the two runs are free, and rounding drives "
            "free runs apart. What is in "
            "lockstep agrees.".format(locked, len(self.numbers))
        )
        self.notes.append(
            "Record the new one again so that it follows: gradaccum-compat record NEW --follow "
            "OLD -- COMMAND"
        )
        return INCONCLUSIVE


_KEYS = ("gradient", "weights", "update_")


def flat_untouched(gradient, shape, chosen):
    """Which elements are in rows where both gradients are zero; None where a row is an element."""
    if not shape or shape[0] < 2 or gradient[0] is None or gradient[1] is None:
        return None
    rows = np.ones(shape[0], bool)
    for each in gradient:
        rows &= ~np.any(each.reshape(shape[0], -1) != 0, axis=1)
    width = int(np.prod(shape[1:], dtype=np.int64))
    return np.repeat(rows, width)[chosen] if np.any(rows) and width else None


def _unexplained(rules, manifests):
    """Causes that the manifests show, where no pattern names one."""
    optimizers = [each.get("optimizer") or {} for each in manifests]
    classes = [clean(each.get("class") or "unknown", 100) for each in optimizers]
    kinds = [None if each is None else each.kind for each in rules]
    if classes[0] != classes[1] and (None in kinds or kinds[0] != kinds[1]):
        return "The optimizers are {} and {}.".format(*classes)
    told = []
    if None not in rules:
        settings = [dict(each.settings, **each.form) for each in rules]
        for key in sorted(set(settings[0]) & set(settings[1])):
            if settings[0][key] != settings[1][key]:
                told.append("{} {} and {}".format(key, settings[0][key], settings[1][key]))
    return "The optimizers' settings differ: {}.".format(", ".join(told)) if told else ""


def _unfinite(line):
    return any(each is not None and each.nonfinite for each in line.gradient)


def _all_equal(old, new):
    for one, other in zip(old, new):
        if (one is None) != (other is None) or (one is not None and not one.same(other)):
            return False
    return True


def _sketch_of(quantity):
    """The sketch of a quantity, None where there is none."""
    try:
        return None if quantity is None else quantity.sketch
    except ValueError as error:
        raise errors.RecordError(
            "A sketch is 64 numbers.",
            "one of which {}".format(error),
            "Record again, or copy the record again.",
        )


def _norm_of(quantity):
    return 0.0 if quantity is None else quantity.norm
