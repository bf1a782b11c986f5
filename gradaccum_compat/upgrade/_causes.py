"""Why two trainings part: a cause is named when its pattern explains the difference.

Here are updates in lockstep alone: both sides began them from the same weights. The gradients are
compared first, then the updates that the optimizers made of them. A pattern is a prediction of the
new side from the old one with a few numbers that are fitted. It explains a difference where no more
of it is left than rounding, or a fiftieth. Patterns are tried from the simplest on, single ones
before pairs. NumPy alone.
"""

from __future__ import absolute_import, division, print_function

import collections

import numpy as np

from gradaccum_compat.upgrade import _replay

#: What rounding explains of a gradient, as a part of its own length and of the whole gradient's in
#: the course.
GRADIENT_ROUNDING, COURSE_ROUNDING = 2e-5, 1e-6
#: What rounding explains of an update: so many last digits of each of its terms.
DIGITS = 8
#: An update that is known by its sketch alone.
SKETCHED_ROUNDING = 3e-5
#: How much of a difference may be left where a pattern explains nearly all of it.
LEFT = 0.02

#: Micro-batches that are looked for in another place, at most.
_MICRO_BATCHES = 400

#: A cause that was found.
Cause = collections.namedtuple("Cause", ["id", "evidence", "text"])


class Pair(object):
    """One variable in one update of both sides. Arrays are flat; old first, new second.

    Args:
        exact: whether they are elements; else they are sketches.
        gradient: (old, new), each an array or None.
        weights: (old, new), before the update.
        change: (old, new), of the weights.
        slots: (old, new), each {name: array}, or None where unknown.
        untouched: which elements are in rows where both gradients are zero; None where rows mean
        nothing.
        course: the largest length of the whole gradient in the course.
        norms: (old, new) lengths of the gradients, of which the arrays may hold a part.
    """

    def __init__(
        self,
        exact,
        gradient,
        weights,
        change,
        slots=(None, None),
        untouched=None,
        course=0.0,
        norms=None,
    ):
        self.exact, self.gradient, self.weights, self.change = exact, gradient, weights, change
        self.slots, self.untouched, self.course = slots, untouched, course
        self.norms = norms or tuple(length(each) for each in gradient)

    def gradients(self):
        """(old, new) where both are there and finite, else None."""
        old, new = self.gradient
        if (
            old is None
            or new is None
            or not (np.all(np.isfinite(old)) and np.all(np.isfinite(new)))
        ):
            return None
        return old, new

    def gradient_rounding(self):
        """The length of the difference that rounding explains."""
        old, new = self.gradient
        own = max(length(old), length(new))
        return GRADIENT_ROUNDING * own + COURSE_ROUNDING * self.course


class Step(object):
    """One update in lockstep.

    Args:
        number: of the update.
        old, new: the lines of the record, or anything with their attributes.
        pairs: a Pair for each matched variable.
        before: (old, new) learning rates of the update before, None where unknown.
    """

    def __init__(self, number, old, new, pairs, before=(None, None)):
        self.number, self.old, self.new, self.pairs, self.before = number, old, new, pairs, before


def length(values):
    return 0.0 if values is None else float(np.sqrt(np.sum(np.square(values))))


def apart(one, other):
    """The length of the difference; what is missing counts as zero."""
    if one is None or other is None:
        return length(one if other is None else other)
    return length(one - other)


def number(value, digits=4):
    """A number as people read it."""
    return "{:.{}g}".format(float(value), digits)


def listed(names, most=3):
    """Names as a list in a sentence."""
    names = list(names)
    if len(names) <= most:
        return ", ".join(names)
    return "{} and {} more".format(", ".join(names[:most]), len(names) - most)


# Gradients


class Gradients(object):
    """Which gradients differ, and why.

    Args:
        steps: the updates in lockstep.
        names: of the variables.
        manifests: (old, new).
        first: (update, old line, new line) of the first updates, in lockstep or not; those of
            `steps` where left out.
    """

    def __init__(self, steps, names, manifests, first=None):
        self.steps, self.names, self.manifests = steps, names, manifests
        self.first = first or [(step.number, step.old, step.new) for step in steps]
        self.missing = self._missing()
        self.cells = []  # (step, variable, old, new, weights, rounding)
        for step in steps:
            for index, pair in enumerate(step.pairs):
                both = pair.gradients()
                if both is not None and index not in self.missing:
                    cell = (
                        step,
                        index,
                        both[0],
                        both[1],
                        pair.weights[0],
                        pair.gradient_rounding(),
                    )
                    self.cells.append(cell)
        self.differ = [cell for cell in self.cells if apart(cell[2], cell[3]) > cell[5]]
        self.left = 0.0

    def _missing(self):
        """Variables that have a gradient, or are updated, on one side only: {index: side that
        lacks it}."""
        found = {}
        for index in range(len(self.names)):
            sides, moved = [], []
            for step in self.steps:
                pair = step.pairs[index]
                has = [length(each) > 0 for each in pair.gradient]
                if not all(has) or pair.change[0] is None or pair.change[1] is None:
                    largest = max(length(each) for each in pair.gradient)
                    if has[0] != has[1] and largest > 10 * COURSE_ROUNDING * pair.course:
                        sides.append(has.index(False))
                        moved.append(has.index(False))
                if pair.change[0] is None or pair.change[1] is None:
                    continue
                moves = [length(each) > 0 for each in pair.change]
                significant = apart(*pair.change) > 8 * _replay.EPS32 * length(pair.weights[0])
                moved.append(moves.index(False) if moves[0] != moves[1] and significant else None)
            if sides and len(set(sides)) == 1 and 2 * len(sides) > len(self.steps):
                found[index] = sides[0]
            elif moved and None not in moved and len(set(moved)) == 1:
                found[index] = moved[0]
        return found if len(found) < len(self.names) or len(self.names) == 1 else found

    def sporadic(self):
        """Whether the differences are what a kink leaves: rare, small, and in no pattern."""
        if not self.differ:
            return False
        rare = len({cell[0].number for cell in self.differ}) <= 0.34 * len(self.steps)
        small = all(
            apart(cell[2], cell[3]) <= 3e-3 * max(length(cell[2]), 1e-30) for cell in self.differ
        )
        return rare and small

    def causes(self):
        found = []
        if self.missing:
            found.append(self._missing_cause())
        if self.differ:
            # First what explains all but rounding, a pair too; then what explains nearly all.
            for self.left in (0.0, LEFT):
                for pattern in (
                    self._scale,
                    self._partial,
                    self._clipping_global,
                    self._clipping_each,
                    self._clipping_values,
                    self._regularizer,
                    self._clipping_micro,
                    self._scaled_and_regularized,
                ):
                    causes = pattern()
                    if causes:
                        return found + causes
            found += (
                self._dropped_by_a_loss_scale()
                or self._data_order()
                or self._half_precision()
                or ([] if self.sporadic() else self._other_data())
            )
        return found

    def explains(self, predict, cells=None):
        """Whether what a pattern predicts is the new gradient, nearly everywhere."""
        cells = self.cells if cells is None else cells
        good, wrong, before, after = 0, 0, 0.0, 0.0
        for cell in cells:
            step, index, old, new, weights, rounding = cell
            whole, left = apart(old, new), apart(new, predict(step, index, old, weights))
            fits = left <= max(2 * rounding, self.left * whole)
            good, wrong = good + fits, wrong + (not fits)
            if fits and whole > rounding:
                before, after = before + (whole / rounding) ** 2, after + (left / rounding) ** 2
        # Differences that rounding nearly explains are explained by what says nothing, too.
        return wrong <= 0.02 * (good + wrong) and after <= 0.25 * before

    def _missing_cause(self):
        names = [self.names[index] for index in sorted(self.missing)]
        side = ("old", "new")[sorted(self.missing.values())[0]]
        plural = len(names) > 1
        return Cause(
            "missing-gradient",
            "{}: no gradient or no update on the {} side".format(listed(names), side),
            "{} {} trained on one side only: {} no gradient, or {} not updated, on the {} side. "
            "Look for "
            "trainable=False, stop_gradient, or a variable list that differs.".format(
                listed(names),
                "are" if plural else "is",
                "they have" if plural else "it has",
                "are" if plural else "is",
                side,
            ),
        )

    def _ratio(self, cells):
        """The number that new is of old, and 0 where there is none."""
        above = sum(
            np.dot(old, new) / rounding**2 for _, _, old, new, _, rounding in cells if rounding
        )
        below = sum(
            np.dot(old, old) / rounding**2 for _, _, old, new, _, rounding in cells if rounding
        )
        return above / below if below else 0.0

    def _by_step(self, cells=None):
        groups = collections.OrderedDict()
        for cell in self.cells if cells is None else cells:
            groups.setdefault(cell[0].number, []).append(cell)
        return groups

    def _scale(self):
        ratio = self._ratio(self.cells)
        if not self.explains(lambda step, index, old, weights: ratio * old):
            return None
        norms = [_whole(group, 1) for group in self._by_step().values()]
        if len(norms) > 2 and max(norms) <= 1.001 * min(norms):
            return None  # one length in each update: that is clipping's
        if self._clip_option(min(norms), max(norms)):
            return None
        return [self._scale_cause(ratio)]

    def _clip_option(self, least, most):
        """Whether one side clips by its own option to the length that it has."""
        limits = [(each.get("options") or {}).get("clip_norm") for each in self.manifests]
        if limits[0] == limits[1]:
            return False
        return any(
            isinstance(limit, (int, float))
            and abs(most - limit) <= 1e-3 * limit
            and most <= 1.001 * least
            for limit in limits
        )

    def _scale_cause(self, ratio):
        return Cause(
            "gradient-scale",
            "new gradient = {} x old in {} updates, all variables".format(
                number(ratio, 6), len(self._by_step())
            ),
            "The new gradients are {} times the old ones, in every variable and update{}. Look at "
            "how the loss is "
            "reduced, and at loss_reduction and weight. Adam hides this in the weights.".format(
                number(ratio, 6), self._which(ratio)
            ),
        )

    def _which(self, ratio):
        """Which number of the two programs the ratio is."""
        candidates = []
        first = self.steps[0]
        for side, name in ((self.manifests[0], "old"), (self.manifests[1], "new")):
            options = side.get("options") or {}
            line = first.old if name == "old" else first.new
            candidates += [
                (
                    getattr(line, "micro_batches", None),
                    "micro-batches (steps) of the {} side".format(name),
                ),
                (options.get("steps"), "steps of the {} side".format(name)),
                (side.get("replicas"), "replicas of the {} side".format(name)),
                (
                    getattr(line, "weight", None),
                    "total weight, the batch, of the {} side".format(name),
                ),
                (self._mean_weight(line), "weight of a micro-batch of the {} side".format(name)),
            ]
        for key, text in (
            ("micro_batches", "of the micro-batches"),
            ("weight", "of the total weights"),
        ):
            one, other = getattr(first.old, key, None), getattr(first.new, key, None)
            if one and other:
                candidates.append((float(other) / one, "ratio {} of the two sides".format(text)))
        one, other = (each.get("replicas") for each in self.manifests)
        if one and other:
            candidates.append((float(other) / one, "ratio of the replicas of the two sides"))
        for value, text in candidates:
            if not isinstance(value, (int, float)) or value <= 0 or abs(value - 1) < 1e-6:
                continue
            if abs(ratio / value - 1) < 1e-3:
                return ": this is the {}, {}".format(text, number(value))
            if abs(ratio * value - 1) < 1e-3:
                return ": this is 1 / the {}, {}".format(text, number(value))
        return ""

    @staticmethod
    def _mean_weight(line):
        weight, count = getattr(line, "weight", None), getattr(line, "micro_batches", None)
        return weight / float(count) if weight and count else None

    def _partial(self):
        full = max([each.old.micro_batches or 0 for each in self.steps] or [0])
        partial = {
            each.number
            for each in self.steps
            if each.old.micro_batches and each.old.micro_batches < full
        }
        inside = [cell for cell in self.differ if cell[0].number in partial]
        if not inside or len(inside) < len(self.differ):
            return None
        ratios = {key: self._ratio(cells) for key, cells in self._by_step().items()}
        if not self.explains(lambda step, index, old, weights: ratios[step.number] * old):
            return None
        worst = next(each for each in self.steps if each.number == inside[0][0].number)
        return [
            Cause(
                "partial-cycle",
                "only updates of fewer than {} micro-batches: new = {} x old in update {} of "
                "{}".format(
                    full, number(ratios[worst.number], 6), worst.number, worst.old.micro_batches
                ),
                "Only cycles of fewer micro-batches differ: update {} has {} of {}, and its "
                "gradient is {} times the "
                "old one. One side divides by steps, the other by what came in.".format(
                    worst.number, worst.old.micro_batches, full, number(ratios[worst.number], 6)
                ),
            )
        ]

    def _threshold(self, old, new):
        """(side, limit) where lengths say that one side is clipped; lists of the same updates,
        else None."""
        for side, (clipped, free) in ((1, (new, old)), (0, (old, new))):
            cut = [each for each, other in zip(clipped, free) if each < other * (1 - 1e-5)]
            same = [each for each, other in zip(clipped, free) if abs(each - other) <= 1e-4 * other]
            if not cut or len(cut) + len(same) < len(clipped):
                continue
            limit = max(cut)
            if limit <= min(cut) * (1 + 1e-3) and all(each <= limit * (1 + 1e-3) for each in same):
                return side, limit, len(cut), len(clipped)
        return None

    def _clipping_global(self):
        groups = self._by_step()
        ratios = {key: self._ratio(cells) for key, cells in groups.items()}
        if not self.explains(lambda step, index, old, weights: ratios[step.number] * old):
            return None
        norms = [tuple(_whole(group, side) for side in (0, 1)) for group in groups.values()]
        found = self._threshold([each[0] for each in norms], [each[1] for each in norms])
        return found and [self._clip_cause(found, "by the global norm", "updates")]

    def _clipping_each(self):
        lengths = [cell[0].pairs[cell[1]].norms for cell in self.cells if length(cell[2])]
        ratios = {(cell[0].number, cell[1]): self._ratio([cell]) for cell in self.cells}
        if not self.explains(lambda step, index, old, weights: ratios[step.number, index] * old):
            return None
        found = self._threshold([each[0] for each in lengths], [each[1] for each in lengths])
        return found and [self._clip_cause(found, "each variable by its own norm", "gradients")]

    def _clip_cause(self, found, how, what):
        side, limit, count, among = found
        name = ("old", "new")[side]
        option = [(each.get("options") or {}).get("clip_norm") for each in self.manifests]
        options = "clip_norm is {} on the old side and {} on the new one.".format(*option)
        return Cause(
            "clipping",
            "the {} side is cut to {}, {}, in {} of {} {}".format(
                name, number(limit), how, count, among, what
            ),
            "Only the {} side clips, {}, to {}: the direction is the same and the length is cut "
            "in {} of {} {}. "
            "{}".format(name, how, number(limit), count, among, what, options),
        )

    def _clipping_values(self):
        """Each element clipped."""
        if not all(pair.exact for step in self.steps for pair in step.pairs):
            return None
        for side, name in ((1, "new"), (0, "old")):
            cut = [cell[2 + side] for cell in self.differ]
            limit = max(float(np.max(np.abs(each))) for each in cut)
            free = [cell[3 - side] for cell in self.differ]
            fits = all(
                apart(np.clip(one, -limit, limit), other) <= cell[5] + self.left * apart(one, other)
                for one, other, cell in zip(free, cut, self.differ)
            )
            if fits and limit > 0:
                found = (side, limit, len(self.differ), len(self.cells))
                return [self._clip_cause(found, "each element by its value", "gradients")]
        return None

    def _regularizer(self):
        factors = self._factors({})
        if factors is None or not self.explains(
            lambda step, index, old, weights: old + factors[index] * weights
        ):
            return None
        return [self._regularizer_cause(factors)]

    def _factors(self, ratios):
        """{variable: the multiple of the weights in its gradients' difference}."""
        factors = {}
        for index in range(len(self.names)):
            cells = [cell for cell in self.cells if cell[1] == index]
            above = sum(
                np.dot(new - ratios.get(step.number, 1.0) * old, weights)
                / max(rounding, 1e-30) ** 2
                for step, _, old, new, weights, rounding in cells
            )
            below = sum(np.dot(cell[4], cell[4]) / max(cell[5], 1e-30) ** 2 for cell in cells)
            differs = any(cell[1] == index for cell in self.differ)
            factors[index] = above / below if below and differs else 0.0
        elements = sum(cell[2].size for cell in self.differ)
        return factors if any(factors.values()) and elements > 2 * len(factors) else None

    def _regularizer_cause(self, factors):
        largest = max(factors.values(), key=abs)
        names = [
            self.names[key] for key in sorted(factors) if abs(factors[key]) > 1e-3 * abs(largest)
        ]
        values = [abs(value) for value in factors.values() if abs(value) > 1e-3 * abs(largest)]
        value = float(np.median(values))
        side = "new" if largest > 0 else "old"
        return Cause(
            "regularizer",
            "gradients differ by {} x the weights in {}".format(
                number(np.copysign(value, largest)), listed(names)
            ),
            "The {} side has a regularizer of the weights that the other lacks: its gradients "
            "have {} times the weights "
            "added, in {}. That is the gradient of l2({}) of Keras, {} x the sum of "
            "squares.".format(
                side, number(value), listed(names), number(value / 2), number(value / 2)
            ),
        )

    def _clipping_micro(self):
        """Each micro-batch clipped before it is added."""
        for step in self.steps:
            old, new = step.old.micro_sketches, step.new.micro_sketches
            if not old or not new or len(old) != len(new):
                continue
            pairs = []
            for one, other in zip(old, new):
                kept = [
                    index
                    for index, each in enumerate(one)
                    if each is not None and other[index] is not None
                ]
                if kept:
                    pairs.append(
                        tuple(
                            np.concatenate([each[index] for index in kept]) for each in (one, other)
                        )
                    )
            if not pairs:
                continue
            ratios = [np.dot(one, other) / max(np.dot(one, one), 1e-300) for one, other in pairs]
            fits = all(
                apart(ratio * one, other) <= 1e-4 * length(other)
                for ratio, (one, other) in zip(ratios, pairs)
            )
            cut = [each for each in ratios if abs(each - 1) > 1e-4]
            one_sided = all(each < 1 for each in cut) or all(each > 1 for each in cut)
            if fits and cut and one_sided and max(ratios) > min(ratios) * (1 + 1e-4):
                side = "new" if cut[0] < 1 else "old"
                return [
                    Cause(
                        "clipping",
                        "micro-batches of update {} in the ratios {}".format(
                            step.number, ", ".join(number(each) for each in ratios[:6])
                        ),
                        "The {} side clips each micro-batch before it is added: {} of {} "
                        "micro-batches of update {} are "
                        "cut. Clip the accumulated gradient instead, with clip_norm.".format(
                            side, len(cut), len(ratios), step.number
                        ),
                    )
                ]
        return None

    def _scaled_and_regularized(self):
        """A number for each update, and a multiple of the weights in some variables."""
        ratios = {}
        for key, cells in self._by_step().items():
            ratios[key] = self._ratio_beside_weights(cells)
            if not ratios[key]:
                return None
        factors = {}
        for index in range(len(self.names)):
            above = below = 0.0
            for step, at, old, new, weights, rounding in self.cells:
                if at == index:
                    above += np.dot(new / ratios[step.number] - old, weights) / rounding**2
                    below += np.dot(weights, weights) / rounding**2
            factors[index] = above / below if below else 0.0
        if not self.explains(
            lambda step, index, old, weights: ratios[step.number] * (old + factors[index] * weights)
        ):
            return None
        every = list(ratios.values())
        if max(every) - min(every) <= 1e-3 * abs(np.mean(every)):
            first = self._scale_cause(float(np.mean(every)))
        else:
            lengths = []
            for group in self._by_step().values():
                after = _whole(group, 1)
                lengths.append((after / ratios[group[0][0].number], after))
            found = self._threshold([each[0] for each in lengths], [each[1] for each in lengths])
            if found is None:
                return None
            first = self._clip_cause(found, "by the global norm", "updates")
        return [first, self._regularizer_cause(factors)]

    @staticmethod
    def _ratio_beside_weights(cells):
        """The ratio of one update's gradients by least squares, where a multiple of the weights is
        free; 0 if unknown."""
        if sum(cell[2].size for cell in cells) < 3 * (len(cells) + 1):
            return 0.0
        above = below = 0.0
        for _, _, old, new, weights, rounding in cells:
            square = np.dot(weights, weights)
            part = old - weights * (np.dot(weights, old) / square) if square else old
            above += np.dot(part, new) / rounding**2
            below += np.dot(part, part) / rounding**2
        return above / below if below else 0.0

    def _dropped_by_a_loss_scale(self):
        """Micro-batches that a side in half precision leaves out, with the others in order."""
        shares = self._shares_of_short_gradients()
        if abs(shares[0] - shares[1]) < 0.4:
            return None
        half = int(np.argmax(shares))
        sides = self._micro_batches()
        whole, few = sides[1 - half], sides[half]
        if len(few) < 8:
            return None
        distances = _distances([each for _, each in few], [each for _, each in whole])
        ahead = np.argmin(distances, axis=1) - np.arange(len(few))
        # Where two neighbours are as far ahead, that is no chance.
        sure = ahead[:-1][ahead[:-1] == ahead[1:]]
        forward = sure[sure >= 0]
        if len(forward) < 0.3 * len(few) or np.any(np.diff(forward) < 0) or not forward[-1]:
            return None
        name = ("old", "new")[half]
        return [
            Cause(
                "half-precision",
                "{:.0f} % of the {} side's gradients end in zeros, and {:.0f} % of the"
                " other's".format(100 * shares[half], name, 100 * shares[1 - half]),
                "The {} side computes in half precision: its gradients have fewer binary places"
                " than float32 has. Look at the precision policy.".format(name),
            ),
            Cause(
                "loss-scale-skip",
                "the {} side leaves out {} of the first {} micro-batches, and has the others in"
                " their order".format(name, forward[-1], len(few) + forward[-1]),
                "The {} side drops micro-batches, as a loss scale does while it is too large:"
                " each later one comes earlier. A smaller first scale drops fewer.".format(name),
            ),
        ]

    def _shares_of_short_gradients(self):
        """Of each side's elements, which part of their sums over a cycle ends in zeros, as sums of
        a few numbers in half precision do."""
        zeros, elements = [0, 0], 0
        for step, index, old, new, _, _ in self.differ:
            if not step.pairs[index].exact:
                continue
            elements += old.size
            for side, (values, line) in enumerate(((old, step.old), (new, step.new))):
                # The mean, or what is a sum already: what ends in zeros more often.
                zeros[side] += max(
                    _end_in_zeros(values * factor) for factor in (1.0, line.weight or 1.0)
                )
        return [each / float(elements) if elements else 0.0 for each in zeros]

    def _data_order(self):
        """The micro-batches of the first cycles, matched by their sketches across cycles."""
        old, new = self._micro_batches()
        if len(old) < 2 or len(old) != len(new):
            return None
        distances = _distances([each for _, each in new], [each for _, each in old])
        matched = np.argmin(distances, axis=1)
        nearest, next_ = np.sort(distances, axis=1)[:, :2].T
        close = nearest <= 0.25 * np.median(distances)
        moved = [
            each
            for each in range(len(new))
            if matched[each] != each and (close[each] or not np.any(close))
        ]
        # The same set: each is met once. By chance that is rare, the more so where the second
        # nearest is far.
        whole = (
            len(set(matched)) == len(new)
            and len(new) >= 4
            and np.mean(nearest <= 0.8 * next_) >= 0.5
        )
        # Only the first cycles are known: some micro-batches come from behind them.
        partly = np.mean(close) >= 0.5 and len(set(matched[close])) == np.sum(close)
        moved = [each for each in moved if whole or close[each]]
        if not (whole or partly):
            moved = self._recognized(old, new, distances)
        if not moved:
            return None
        example = moved[0]
        return [
            Cause(
                "data-order",
                "{} of {} micro-batches are the old side's in another place".format(
                    len(moved), len(new)
                ),
                "The data are the same and come in another order: micro-batch {} of update {} on "
                "the new side is "
                "micro-batch {} of update {} on the old one. Look at shuffle, its seed, and "
                "parallel reads.".format(
                    new[example][0][1] + 1,
                    new[example][0][0],
                    old[matched[example]][0][1] + 1,
                    old[matched[example]][0][0],
                ),
            )
        ]

    def _micro_batches(self):
        """((update, place), sketches) of each micro-batch, as many on both sides."""
        sides = ([], [])
        for update, one, other in self.first:
            if one.micro_sketches and other.micro_sketches:
                for side, line in zip(sides, (one, other)):
                    for place, sketches in enumerate(line.micro_sketches):
                        whole = [each if each is not None else np.zeros(64) for each in sketches]
                        side.append(((update, place), np.concatenate(whole)))
        if len(sides[0]) != len(sides[1]):
            return [], []
        return sides[0][:_MICRO_BATCHES], sides[1][:_MICRO_BATCHES]

    @staticmethod
    def _recognized(old, new, distances):
        """The micro-batches of the new side that are one of the old side's in another place.

        The weights are not the same there, so each has to be much closer to its match, and this to
        it, than micro-batches of one side are to each other.
        """
        among = [
            _distances([each for _, each in side], [each for _, each in side])
            for side in (old, new)
        ]
        for each in among:
            np.fill_diagonal(each, np.inf)
        apart_ = [np.min(each, axis=1) for each in among]
        typical = np.median(among[0][np.isfinite(among[0])])
        # Gradients of few dimensions have near neighbours by chance, and some of them match.
        near = np.median(apart_[0]) / max(typical, 1e-300)
        if near < 0.1:
            return []
        least = max(6, 0.3 * len(new)) if near < 0.4 else max(4, 0.1 * len(new))
        matched, back = np.argmin(distances, axis=1), np.argmin(distances, axis=0)
        found = [
            at
            for at, match in enumerate(matched)
            if back[match] == at
            and distances[at, match] <= 0.6 * min(apart_[0][match], apart_[1][at])
        ]
        moved = [at for at in found if matched[at] != at]
        return moved if len(moved) >= least else []

    def _half_precision(self):
        if any(length(cell[2]) == 0 for cell in self.differ):
            return None
        big = [
            cell for cell in self.cells if length(cell[2]) > 1e-2 * cell[0].pairs[cell[1]].course
        ]
        # A kink (ReLU) that is crossed makes a whole update differ by more.
        calm = [
            cells
            for cells in self._by_step(big or self.differ).values()
            if all(apart(cell[2], cell[3]) <= 2.0**-4 * length(cell[2]) for cell in cells)
        ]
        if 2 * len(calm) < len(self.steps):
            return None
        relative = np.array(
            [apart(cell[2], cell[3]) / length(cell[2]) for cells in calm for cell in cells]
        )
        middle = float(np.median(relative))
        options = [(each.get("options") or {}).get("dtype") for each in self.manifests]
        kinds = [
            [each.get("dtype") for each in side.get("variables", [])] for side in self.manifests
        ]
        named = [
            name
            for name in ("bfloat16", "float16")
            if (name in options or any(name in each for each in kinds))
            and (options[0] != options[1] or kinds[0] != kinds[1])
        ]
        few = self._few_digits()
        kind = few or (named[0] if named else ("bfloat16" if middle > 2.0**-10.5 else "float16"))
        # Sums of many parts lose their rounding.
        middles = np.percentile(relative, [25, 75])
        spread = middles[1] <= 8 * max(middles[0], 1e-30)
        if not (few or (2.0**-14 <= middle <= 2.0**-5 and spread)):
            return None
        if not self._random_errors([cell for cells in calm for cell in cells]):
            return None
        return [
            Cause(
                "half-precision",
                "relative difference {} (2^{:.1f}) in the median, in no direction".format(
                    number(middle), np.log2(middle)
                ),
                "One side computes in {}: its gradients differ at random by {} of their length, "
                "2^{:.1f}. Look at the "
                "precision policy and the dtype of the gradients.".format(
                    kind, number(middle), np.log2(middle)
                ),
            )
        ]

    def _few_digits(self):
        """Which half precision all elements of one side's gradients have, and the other's have
        not."""
        kinds = []
        for side in (2, 3):
            kind = "bfloat16 float16"
            for cell in self.differ:
                if not cell[0].pairs[cell[1]].exact:
                    return None
                values = cell[side].astype(np.float32)
                if np.any(values.view(np.uint32) & 0xFFFF):
                    kind = kind.replace("bfloat16 ", "")
                with np.errstate(over="ignore"):
                    if np.any(values.astype(np.float16).astype(np.float32) != values):
                        kind = (
                            kind.replace("float16", "") if not kind.startswith("b") else "bfloat16"
                        )
            kinds.append(kind.strip().split(" ")[0] if kind.strip() else "")
        return (kinds[0] or kinds[1]) if kinds[0] != kinds[1] else None

    @staticmethod
    def _random_errors(cells):
        """Whether the differences point nowhere: rounding's are not along the gradient."""
        along = [
            abs(np.dot(cell[3] - cell[2], cell[2]))
            / max(apart(cell[2], cell[3]) * length(cell[2]), 1e-300)
            for cell in cells
            if cell[2].size >= 8
        ]
        return not along or float(np.median(along)) < 0.9

    def _other_data(self):
        cosines = [
            np.dot(cell[2], cell[3]) / max(length(cell[2]) * length(cell[3]), 1e-300)
            for cell in self.differ
        ]
        first = self.differ[0]
        relative = apart(first[2], first[3]) / max(length(first[2]), 1e-300)
        names = sorted({cell[1] for cell in self.differ})
        return [
            Cause(
                "other-data-or-randomness",
                "cosine {} in the median, {} of {} variables, from update {} on".format(
                    number(np.median(cosines)), len(names), len(self.names), first[0].number
                ),
                "The gradients differ in direction from update {} on, by {} of their length, in "
                "{} of {} variables: the "
                "two sides see other data, or draw other random numbers (dropout, augmentation), "
                "or compute another "
                "loss.".format(first[0].number, number(relative), len(names), len(self.names)),
            )
        ]


def _end_in_zeros(values):
    """How many of the numbers that are not zero are whole multiples of 32 of their last binary
    place in float32, give or take two roundings."""
    bits = values[values != 0].astype(np.float32).view(np.uint32)
    return int(np.sum(((bits + np.uint32(2)) & np.uint32(31)) <= 4))


def _distances(ones, others):
    """The distance of each of the first from each of the others."""
    ones, others = np.array(ones), np.array(others)
    squares = np.sum(ones**2, axis=1)[:, None] + np.sum(others**2, axis=1)
    return np.sqrt(np.maximum(squares - 2 * np.dot(ones, others.T), 0.0))


def _whole(cells, side):
    """The length of the whole gradient in one update."""
    return float(np.sqrt(sum(cell[0].pairs[cell[1]].norms[side] ** 2 for cell in cells)))


# Updates


class Cell(object):
    """One variable in one update, ready for a replay: what went in, what came out and what was
    expected."""

    def __init__(self, step, index, pair, slots, rates):
        self.step, self.index, self.pair, self.slots, self.rates = step, index, pair, slots, rates
        self.expected = self.rounding = None


class Updates(object):
    """Which updates differ from what the old side's optimizer makes of the new side's gradient,
    and why.

    Args:
        steps: the updates in lockstep.
        names: of the variables.
        manifests: (old, new).
        skipped: variables to leave out, by index.
        gradients_differ: whether there are differences that the old side's updates do not have.
    """

    def __init__(self, steps, names, manifests, skipped=(), gradients_differ=False):
        self.steps, self.names, self.manifests = steps, names, manifests
        self.rules = tuple(_replay.rule_of(each.get("optimizer") or {}) for each in manifests)
        exact = any(pair.exact for step in steps for pair in step.pairs)
        self.exact = exact
        self.mode = [None, None]
        # The old side's rule, with the new side's slots as these are.
        self.base = self.rules[0]
        if self._other_convention():
            self.base = self.base.changed(form={"convention": self.rules[1].form["convention"]})
        self.cells = []
        for step in steps:
            for index, pair in enumerate(step.pairs):
                usable = (
                    pair.change[0] is not None
                    and pair.change[1] is not None
                    and pair.gradients() is not None
                )
                usable = usable and step.old.applied and step.new.applied and pair.exact == exact
                if (
                    usable
                    and index not in skipped
                    and all(np.all(np.isfinite(each)) for each in pair.change)
                ):
                    self.cells.append(Cell(step, index, pair, None, None))
        self.replayed = bool(self.cells) and exact and self._prepare()
        if not self.replayed and gradients_differ:
            self.cells = []
        self.told = self._told()
        for cell in self.cells:
            self._expect(cell)
        self.differ = [cell for cell in self.cells if self._ratio(cell, cell.expected) > 1]
        self.left = 0.0
        self.hidden, self.course, self.named = None, None, False

    def _prepare(self):
        """Whether the old rule makes the old updates, so that it may be asked about the new
        side."""
        old = self.rules[0]
        if old is None:
            return False
        for cell in self.cells:
            recorded = cell.pair.slots
            if recorded[0] is None or recorded[1] is None:
                return False
            own = old.own_slots(recorded[0])
            new_rule = self.rules[1] or old
            theirs = new_rule.own_slots(recorded[1]) or old.own_slots(recorded[1])
            rates = (cell.step.old.learning_rate, cell.step.new.learning_rate)
            counted = old.kind != "adam" or cell.step.old.iterations is not None
            if own is None or theirs is None or rates[0] is None or not counted:
                return False
            cell.rates = rates
            cell.slots = (own, theirs)
            if set(own) - set(theirs):
                return False
        self.mode[0] = self._fitting(0, old)
        if self.mode[0] is None:
            return False
        self.mode[1] = self._fitting(1, self.rules[1]) if self.rules[1] is not None else None
        return True

    def _other_convention(self):
        one, other = self.rules
        if None in (one, other) or one.kind != "momentum" or other.kind != "momentum":
            return False
        return one.form.get("convention") != other.form.get("convention")

    def _fitting(self, side, rule):
        """How a side treats untouched rows, where its rule makes its updates: "all", "touched" or
        None."""
        for mode in ("all", "touched"):
            good = 0
            for cell in self.cells:
                slots = cell.slots[side]
                if side == 1 and rule is self.rules[1]:
                    slots = rule.own_slots(cell.pair.slots[1])
                    if slots is None:
                        return None
                change, size = self._run(cell, rule, side, slots, mode)
                good += (
                    float(
                        np.mean(
                            np.abs(cell.pair.change[side] - change) <= DIGITS * _replay.EPS32 * size
                        )
                    )
                    > 0.98
                )
            if good >= 0.9 * len(self.cells):
                return mode
        return None

    def _run(self, cell, rule, side, slots, mode, rate=None, iterations=None):
        line = (cell.step.old, cell.step.new)[side]
        rate = cell.rates[side] if rate is None else rate
        rate = cell.rates[0] if rate is None else rate
        iterations = line.iterations if iterations is None else iterations
        if iterations is None:
            iterations = cell.step.old.iterations or 0
        touched = (
            ~cell.pair.untouched if mode == "touched" and cell.pair.untouched is not None else None
        )
        whole = length(cell.pair.gradient[side]) if not rule.clips else None
        gradient = cell.pair.gradient[side]
        if rule.clips:
            whole = self._whole(cell.step, side)
            gradient = self._clipped(cell, rule, gradient, side, whole)
        change, _, size = rule.update(
            cell.pair.weights[side], gradient, slots, rate, iterations, touched
        )
        return change, size

    @staticmethod
    def _whole(step, side):
        line = (step.old, step.new)[side]
        norms = [each.norm for each in getattr(line, "gradient", None) or [] if each is not None]
        return float(np.sqrt(np.sum(np.square(norms)))) if norms else None

    @staticmethod
    def _clipped(cell, rule, gradient, side, whole):
        if "clipnorm" in rule.clips:  # of the whole variable, of which these elements may be a part
            line = (cell.step.old, cell.step.new)[side]
            every = getattr(line, "gradient", None)
            norm = (
                every[cell.index].norm
                if every and every[cell.index] is not None
                else length(gradient)
            )
            return gradient * min(1.0, rule.clips["clipnorm"] / norm) if norm else gradient
        return rule.clipped(gradient, whole)

    def _expect(self, cell):
        pair = cell.pair
        if self.replayed:
            line = cell.step.old
            cell.expected, size = self._run(
                cell, self.base, 1, cell.slots[1], self.mode[0], cell.rates[0], line.iterations
            )
            cell.rounding = DIGITS * _replay.EPS32 * size + 1e-30
            return
        cell.expected = pair.change[0]
        if not pair.exact:
            lengths = max(length(each) for each in pair.change)
            old, new = pair.gradient
            unsure = apart(old, new) / max(length(old), 1e-300)
            size = SKETCHED_ROUNDING * lengths + 4 * _replay.EPS32 * length(pair.weights[0])
            # Adam makes a whole update of a gradient that is rounding's.
            cell.rounding = size + 30 * unsure * lengths + 1e-30
            return
        old, new = pair.gradient
        typical = np.sqrt(np.mean(np.square(pair.change[0]))) if pair.change[0].size else 0.0
        steep = np.maximum(np.abs(pair.change[0]), typical) / np.maximum(np.abs(old), 1e-300)
        bound = np.minimum(
            4 * steep * np.abs(new - old), 4 * np.maximum(np.abs(pair.change[0]), typical)
        )
        cell.rounding = (
            DIGITS * _replay.EPS32 * np.abs(pair.weights[0])
            + 1e-5 * np.abs(pair.change[0])
            + bound
            + 1e-30
        )

    @staticmethod
    def _ratio(cell, expected):
        """The difference over what rounding explains."""
        left = cell.pair.change[1] - expected
        if not cell.pair.exact:
            return length(left) / cell.rounding
        return float(np.max(np.abs(left) / cell.rounding)) if left.size else 0.0

    # Patterns

    def causes(self):
        found = self._causes() if self.differ else []
        self.named = bool(found)
        return found

    def _causes(self):
        for self.left in (0.0, LEFT):
            for pattern in (self._sparse, self._iterations, self._clips):
                causes = pattern() if self.replayed else None
                if causes:
                    return causes
            causes = self._fitted()
            if causes:
                return causes
        return []

    def _fitted(self):
        """What numbers that are fitted explain, the fewest of them."""
        fits = []
        for changes in self._combinations():
            if fits and len(changes) > len(fits[0][0]):
                break
            fitted = self._fit(changes)
            if fitted is not None:
                fits.append((changes, fitted))
                if not self._against(changes, fitted):
                    break
        if not fits:
            return []
        changes, fitted = min(fits, key=lambda each: self._against(each[0], each[1]))
        causes = [self._named(change, fitted) for change in changes]
        return [each for each in causes if each is not None]

    def _explained(self, predict):
        """Whether what a pattern predicts is the new update in all variables and updates."""
        good = 0
        for cell in self.cells:
            left = np.abs(cell.pair.change[1] - predict(cell))
            if cell.pair.exact:
                allowed = np.maximum(
                    2 * cell.rounding, self.left * np.abs(cell.pair.change[1] - cell.expected)
                )
                good += float(np.mean(left <= allowed)) >= 0.99
            else:
                before = apart(cell.pair.change[1], cell.expected)
                good += length(left) <= max(2 * cell.rounding, self.left * before)
        return good >= 0.98 * len(self.cells)

    def _sparse(self):
        rows = [
            cell
            for cell in self.differ
            if cell.pair.untouched is not None and np.any(cell.pair.untouched)
        ]
        if not rows or len(rows) < len(self.differ):
            return None
        for cell in rows:
            inside = cell.pair.untouched
            left = np.abs(cell.pair.change[1] - cell.expected)
            if np.any(left[~inside] > np.maximum(cell.rounding[~inside], 0)):
                return None
        sides = [
            sum(float(np.sum(np.abs(c.pair.change[s][c.pair.untouched]))) for c in rows)
            for s in (0, 1)
        ]
        if min(sides) > 1e-3 * max(sides):
            return None
        side = ("old", "new")[int(sides[1] > sides[0])]
        names = listed(sorted({self.names[cell.index] for cell in rows}))
        return [
            Cause(
                "sparse-rule",
                "rows without a gradient are updated on the {} side alone, in {}".format(
                    side, names
                ),
                "Rows of {} that no micro-batch touched are updated on the {} side alone: there "
                "the optimizer applies its "
                "slots to all rows, and on the other side to the touched ones.".format(names, side),
            )
        ]

    def _iterations(self):
        rule = self.rules[0]
        if rule.kind != "adam" or not rule.settings.get("correction", True):
            return None
        counts = {}
        for step in {id(cell.step): cell.step for cell in self.cells}.values():
            counts[step.number] = step.new.iterations
        recorded = all(value is not None for value in counts.values()) and any(
            cell.step.new.iterations != cell.step.old.iterations for cell in self.cells
        )
        if not recorded:
            counts = self._counts_by_ratio()
            if counts is None:
                return None

        def predict(cell):
            return self._run(
                cell, rule, 1, cell.slots[1], self.mode[0], cell.rates[0], counts[cell.step.number]
            )[0]

        if not self._explained(predict):
            return None
        return [self._iterations_cause(self.differ[0].step, counts)]

    def _counts_by_ratio(self):
        """The iterations that explain each update's ratio, a shift of the old side's; None where
        none does."""
        rule = self.rules[0]
        shifts = None
        for step in {id(cell.step): cell.step for cell in self.cells}.values():
            cells = [cell for cell in self.cells if cell.step is step]
            above = sum(np.dot(cell.pair.change[1], cell.expected) for cell in cells)
            ratio = above / max(sum(np.dot(cell.expected, cell.expected) for cell in cells), 1e-300)
            wanted = ratio * rule.correction(step.old.iterations)
            tried = np.arange(0, 20000)
            found = [
                int(each) - step.old.iterations
                for each in tried
                if abs(rule.correction(float(each)) - wanted) <= 1e-4 * wanted
            ]
            shifts = set(found) if shifts is None else shifts & set(found)
        shifts = sorted((each for each in shifts or () if each), key=abs)
        if not shifts:
            return None
        return {cell.step.number: cell.step.old.iterations + shifts[0] for cell in self.cells}

    def _iterations_cause(self, step, counts):
        old, new = step.old.iterations, counts[step.number]
        rule = self.rules[0]
        ratio = rule.correction(new) / rule.correction(old)
        return Cause(
            "bias-correction",
            "update {}: iterations {} on the old side, {} on the new; updates in the ratio "
            "{}".format(step.number, old, new, number(ratio)),
            "Adam corrects its bias with another count of updates: {} on the old side and {} on "
            "the new one at update {}, "
            "which makes the updates {} times as large. The iterations were lost or changed on "
            "restore.".format(old, new, step.number, number(ratio)),
        )

    def latent(self):
        """What lockstep hides, since following sets each buffer anew: a convention, where the
        learning rate changes."""
        course = self.course
        if course is None or not self.replayed or None in self.mode or not self._other_convention():
            return []
        rates, numbers = course["old_rate"], course["numbers"]
        changes = np.flatnonzero(np.abs(np.diff(rates)) > 1e-6 * np.abs(rates[:-1]))
        if not len(changes) or self.differ and not self.named:
            return []
        at = int(changes[0])
        self.hidden = int(numbers[at + 1])
        return [self._convention_cause(int(numbers[at + 1]), rates[at], rates[at + 1])]

    def _convention_cause(self, update, before, after):
        sides = [
            (
                "updates, learning rate included,"
                if each.form.get("convention") == "updates"
                else "gradients"
            )
            for each in self.rules
        ]
        rates = [number(each) if each is not None else "unknown" for each in (before, after)]
        return Cause(
            "momentum-convention",
            "the buffers agree up to the learning rate's factor; it changes at update {}, {} to "
            "{}".format(update, *rates),
            "The momentum buffer holds {} on the old side and {} on the new one: the two train "
            "alike while the learning "
            "rate is constant, and part when it changes, as at update {} ({} to {}).".format(
                sides[0], sides[1], update, *rates
            ),
        )

    def _clips(self):
        one, other = self.rules
        if other is None or one.clips == other.clips:
            return None
        beside = self._beside_clips()
        if beside is None:
            return None
        texts = [
            ", ".join(
                "{}={}".format(key, number(value)) for key, value in sorted(each.clips.items())
            )
            or "none"
            for each in (one, other)
        ]
        return [
            Cause(
                "clipping",
                "the optimizer's own clipping: {} on the old side, {} on the new".format(*texts),
                "The optimizers clip the gradients themselves, differently: {} on the old side, "
                "{} on the new one.".format(*texts),
            )
        ] + [self._named(*each) for each in beside]

    def _beside_clips(self):
        """[(change, its numbers)] that the manifests tell and that the other side's clipping needs
        beside it; None where they do not explain the updates."""
        one, other = self.rules
        told = [
            (change, {name: other_of.get(name)})
            for change, name, own, other_of in (
                ("placement", "placement", one.form, other.form),
                ("epsilon", "epsilon", one.settings, other.settings),
            )
            if own.get(name) != other_of.get(name) and one.kind == other.kind
        ]
        for chosen in [[]] + [[each] for each in told] + [told]:
            rule = self.base.changed(clips=other.clips)
            for change, values in chosen:
                rule = (
                    rule.changed(form=values) if change == "placement" else rule.changed(**values)
                )
            if self._explained(
                lambda cell, rule=rule: self._run(
                    cell, rule, 1, cell.slots[1], self.mode[0], cell.rates[0]
                )[0]
            ):
                return chosen
        return None

    def _told(self):
        """What the recorded learning rates say of each other: "rate", "schedule" or None."""
        if not self.replayed or any(None in cell.rates for cell in self.cells):
            return None
        ratios = np.array(
            [cell.rates[1] / cell.rates[0] if cell.rates[0] else 1.0 for cell in self.cells]
        )
        if np.all(np.abs(ratios - 1) <= 1e-6):
            return None
        return (
            "rate" if np.max(ratios) - np.min(ratios) <= 1e-6 * abs(np.mean(ratios)) else "schedule"
        )

    def _combinations(self):
        single = [("rate",), ("decay",)]
        has = (
            self.replayed
            and self.rules[0].settings.get("epsilon") is not None
            and self.rules[0].kind != "ftrl"
        )
        placed = has and self.rules[0].kind in ("rmsprop", "adagrad")
        if has:
            single.append(("epsilon",))
        if placed:
            single.append(("placement",))
        single.append(("schedule",))
        pairs = [("rate", "decay")]
        if has:
            pairs += [("epsilon", "decay"), ("epsilon", "rate")]
        if placed:
            pairs += [("placement", each) for each in ("epsilon", "rate", "decay", "schedule")]
        pairs.append(("schedule", "decay"))
        if has:
            pairs.append(("schedule", "epsilon"))
        triples = [("epsilon", "rate", "decay")] if has else []
        if placed:
            triples.append(("placement", "epsilon", "decay"))
            triples.append(("placement", "epsilon", "rate"))
        every, told = single + pairs + triples, self.told
        if told is None:
            return every
        other = "schedule" if told == "rate" else "rate"
        return [each for each in every if other not in each]

    def _against(self, changes, fitted):
        """How much a pattern says against what the manifests say, for choosing among those that
        fit."""
        against = 0
        one, other = self.rules
        known = [cell.rates for cell in self.cells if cell.rates and cell.rates[1] is not None]
        if "rate" in changes or "schedule" in changes:
            against += bool(known) and all(abs(old - new) <= 1e-6 * abs(old) for old, new in known)
        if other is not None and one is not None:
            if "epsilon" in changes:
                against += one.settings.get("epsilon") == other.settings.get("epsilon")
                value, named = fitted["epsilon"], other.settings.get("epsilon")
                against += bool(named) and not 0.5 < value / named < 2
            if "placement" in changes:
                against += one.form.get("placement") == other.form.get("placement")
            if "decay" in changes:
                against += one.decay == other.decay
        return against

    def _fit(self, changes):
        """The numbers with which these changes explain the new side's updates; None where they do
        not."""
        samples = self._samples()
        rule = self.base if self.replayed else None
        if "placement" in changes:
            flipped = "inside" if rule.form.get("placement") == "outside" else "outside"
            rule = rule.changed(form={"placement": flipped})
        if "epsilon" not in changes:
            if "placement" in changes and self.rules[1] is not None:
                rule = rule.changed(
                    epsilon=self.rules[1].settings.get("epsilon", rule.settings["epsilon"])
                )
                if self.rules[1].settings.get("epsilon") != self.rules[0].settings["epsilon"]:
                    return None  # a pair
            return self._solve(changes, rule, samples)
        best = None
        given = (
            [self.rules[1].settings["epsilon"]]
            if self.rules[1] and self.rules[1].settings.get("epsilon")
            else []
        )
        grid = np.concatenate([10.0 ** np.arange(-14, 2.01, 0.5), given])
        worth = sorted(
            (self._solve_linear(changes, rule.changed(epsilon=e), samples)[0], e) for e in grid
        )
        low, high = np.log10(worth[0][1]) - 0.5, np.log10(worth[0][1]) + 0.5
        golden = (np.sqrt(5) - 1) / 2
        points = [high - golden * (high - low), low + golden * (high - low)]
        values = [
            self._solve_linear(changes, rule.changed(epsilon=10.0**e), samples)[0] for e in points
        ]
        for _ in range(34):
            if values[0] < values[1]:
                high, points = points[1], [None, points[0]]
                points[0] = high - golden * (high - low)
                values = [
                    self._solve_linear(changes, rule.changed(epsilon=10.0 ** points[0]), samples)[
                        0
                    ],
                    values[0],
                ]
            else:
                low, points = points[0], [points[1], None]
                points[1] = low + golden * (high - low)
                values = [
                    values[1],
                    self._solve_linear(changes, rule.changed(epsilon=10.0 ** points[1]), samples)[
                        0
                    ],
                ]
        candidates = given + [worth[0][1], 10.0 ** ((low + high) / 2)]
        best = min(
            candidates,
            key=lambda e: self._solve_linear(changes, rule.changed(epsilon=e), samples)[0],
        )
        if given:  # the setting itself, where it explains as much
            costs = [
                self._solve_linear(changes, rule.changed(epsilon=e), samples)[0]
                for e in (given[0], best)
            ]
            if costs[0] <= max(1.05 * costs[1], 0.05):
                best = given[0]
        return self._solve(changes, rule.changed(epsilon=best), samples)

    def _samples(self):
        """A part of each cell's elements, so that all cells together stay small."""
        room = max(64, 200000 // max(len(self.cells), 1))
        found = []
        for cell in self.cells:
            size = cell.pair.change[1].size
            found.append(
                slice(None) if size <= room else np.linspace(0, size - 1, room).astype(int)
            )
        return found

    def _predicted(self, cell, rule, changes):
        if rule is None:
            return cell.expected
        rate = cell.rates[1] if self.told in changes else cell.rates[0]
        return self._run(
            cell, rule, 1, cell.slots[1], self.mode[0], rate, cell.step.old.iterations
        )[0]

    def _solve_linear(self, changes, rule, samples):
        """(what is left over rounding, ratios by update, multiple of the weights)."""
        rows = []
        for cell, sample in zip(self.cells, samples):
            rounding = (
                cell.rounding[sample] if cell.pair.exact else np.full(64, cell.rounding / 8.0)
            )
            predicted = (
                cell.expected[sample]
                if rule is None
                else self._predicted(_part(cell, sample), rule, changes)
            )
            rows.append(
                (
                    cell.step,
                    predicted,
                    cell.pair.change[1][sample],
                    cell.pair.weights[1][sample],
                    rounding,
                )
            )
        ratios, decay = {row[0].number: 1.0 for row in rows}, 0.0
        free = ("rate" in changes or "schedule" in changes) and self.told is None
        by_rate = self._decays_by_rate()

        def unit(step):
            return (step.old.learning_rate or 1.0) if by_rate else 1.0

        for _ in range(30 if len(changes) > 1 else 1):
            before = (dict(ratios), decay)
            if free:
                sums = collections.defaultdict(lambda: [0.0, 0.0])
                for step, predicted, actual, weights, rounding in rows:
                    key = step.number if "schedule" in changes else None
                    sums[key][0] += np.sum(
                        (actual + decay * unit(step) * weights) * predicted / rounding**2
                    )
                    sums[key][1] += np.sum(predicted**2 / rounding**2)
                for step in {id(row[0]): row[0] for row in rows}.values():
                    above, below = sums[step.number if "schedule" in changes else None]
                    ratios[step.number] = above / below if below else 1.0
            if "decay" in changes:
                above = below = 0.0
                for step, predicted, actual, weights, rounding in rows:
                    left = ratios[step.number] * predicted - actual
                    above += np.sum(left * unit(step) * weights / rounding**2)
                    below += np.sum((unit(step) * weights) ** 2 / rounding**2)
                decay = above / below if below else 0.0
            if abs(decay - before[1]) <= 1e-9 * abs(decay) and all(
                abs(ratios[key] - before[0][key]) <= 1e-10 for key in ratios
            ):
                break
        cost, count = 0.0, 0
        for step, predicted, actual, weights, rounding in rows:
            left = (
                ratios[step.number] * predicted - decay * unit(step) * weights - actual
            ) / rounding
            cost += float(np.sum(np.minimum(np.square(left), 1e8)))
            count += left.size
        return np.sqrt(cost / max(count, 1)), ratios, decay

    def _decays_by_rate(self):
        new = self.rules[1] or self.rules[0]
        return new.decay_by_rate if new is not None and (new.decay or self._rates_vary()) else False

    def _rates_vary(self):
        rates = [cell.step.old.learning_rate for cell in self.cells]
        return None not in rates and max(rates) > min(rates)

    def _solve(self, changes, rule, samples):
        cost, ratios, decay = self._solve_linear(changes, rule, samples)
        by_rate = self._decays_by_rate()

        def predict(cell):
            unit = (cell.step.old.learning_rate or 1.0) if by_rate else 1.0
            predicted = self._predicted(cell, rule, changes)
            return ratios[cell.step.number] * predicted - decay * unit * cell.pair.weights[1]

        if not self._explained(predict):
            return None
        if self.told in changes:
            ratios = {
                cell.step.number: cell.rates[1] / cell.rates[0]
                for cell in self.cells
                if cell.rates[0]
            }
        if "schedule" in changes:
            values = list(ratios.values())
            if len(values) < 2 or max(values) - min(values) <= 1e-4 * abs(np.mean(values)):
                return None
        return {
            "ratios": ratios,
            "decay": decay,
            "by_rate": by_rate,
            "epsilon": rule and rule.settings.get("epsilon"),
        }

    def _named(self, change, fitted):
        return getattr(self, "_named_" + change)(fitted)

    def _named_rate(self, fitted):
        ratio = float(np.mean(list(fitted["ratios"].values())))
        rates = (self.cells[0].step.old.learning_rate, self.cells[0].step.new.learning_rate)
        said = ""
        if None not in rates:
            said = " The learning rates recorded are {} and {}.".format(
                *[number(each) for each in rates]
            )
        return Cause(
            "learning-rate",
            "new update = {} x old in {} updates, gradients equal".format(
                number(ratio, 6), len(fitted["ratios"])
            ),
            "The optimizer makes {} times the old update of the same gradient, in every variable "
            "and update: another "
            "learning rate.{}".format(number(ratio, 6), said),
        )

    def _named_schedule(self, fitted):
        ratios = sorted(fitted["ratios"].items())
        shown = ", ".join("{}: {}".format(key, number(value)) for key, value in ratios[:6])
        return Cause(
            "schedule",
            "updates' ratio by update: {}".format(shown),
            "The learning rates go different ways: the updates' ratio is the same for all "
            "elements and changes with time "
            "(update {}).{}".format(shown, self._counted()),
        )

    def _counted(self):
        """Whether one side's schedule counts micro-batches."""
        return counts_micro_batches(self.course) if self.course is not None else ""

    def _named_decay(self, fitted):
        value = fitted["decay"]
        side = "new" if value > 0 else "old"
        of_rate = (
            "learning rate times {} times".format(number(abs(value)))
            if fitted["by_rate"]
            else number(abs(value)) + " times"
        )
        rate = self.cells[0].step.old.learning_rate
        relative = ""
        if not fitted["by_rate"] and rate:
            relative = ", {} of the learning rate".format(number(abs(value) / rate))
        return Cause(
            "weight-decay",
            "updates differ by {} x the weights{}".format(number(-value), relative),
            "The {} side decays the weights and the other does not, or less: its updates take {} "
            "the weights away{}, beside "
            "the gradient.".format(side, of_rate, relative),
        )

    def _named_epsilon(self, fitted):
        one, other = self.rules[0].settings["epsilon"], fitted["epsilon"]
        return Cause(
            "epsilon",
            "the replay fits with epsilon {} in place of {}".format(
                number(other, 3), number(one, 3)
            ),
            "The optimizers have another epsilon: {} on the old side and {} on the new one, as "
            "the replay of the rule "
            "says. The difference grows as the gradient shrinks.".format(
                number(one, 3), number(other, 3)
            ),
        )

    def _named_placement(self, fitted):
        old = self.rules[0].form.get("placement")
        new = "inside" if old == "outside" else "outside"
        return Cause(
            "epsilon-placement",
            "the replay fits with epsilon {} of the root in place of {}".format(new, old),
            "Epsilon stands {} of the square root on the old side and {} on the new one.".format(
                old, new
            ),
        )


def _part(cell, sample):
    """A cell with some of its elements."""
    if isinstance(sample, slice):
        return cell
    pair = cell.pair
    part = Pair(
        True,
        tuple(each[sample] for each in pair.gradient),
        tuple(each[sample] for each in pair.weights),
        tuple(each[sample] for each in pair.change),
        pair.slots,
        None if pair.untouched is None else pair.untouched[sample],
    )
    found = Cell(cell.step, cell.index, part, None, cell.rates)
    found.slots = tuple({key: value[sample] for key, value in each.items()} for each in cell.slots)
    found.expected, found.rounding = cell.expected[sample], cell.rounding[sample]
    return found


def counts_micro_batches(course):
    """A sentence where one side's learning rate at update n is the other's at n times its
    micro-batches.

    Args:
        course: a dict with arrays "old_rate", "new_rate" and "micro_batches", by update.
    """
    old, new, micro = (
        np.asarray(course[key], dtype=np.float64)
        for key in ("old_rate", "new_rate", "micro_batches")
    )
    for slow, fast, side in ((old, new, "new"), (new, old, "old")):
        places = np.concatenate([[0], np.cumsum(micro)[:-1]]).astype(int)
        reached = [(place, at) for at, place in enumerate(places) if place < len(slow)]
        if len(reached) < 3 or places[1] < 2:
            continue
        wanted = np.array([slow[place] for place, _ in reached])
        seen = np.array([fast[at] for _, at in reached])
        if np.all(np.isfinite(wanted)) and np.max(np.abs(wanted)) > np.min(np.abs(wanted)):
            if np.all(np.abs(wanted - seen) <= 1e-5 * np.abs(wanted)):
                return " The {} side's schedule counts micro-batches, {} for each update.".format(
                    side, int(places[1])
                )
    return ""


# Slots


def slot_causes(steps, own, names, manifests):
    """Causes in the slots before an update.

    Args:
        steps: updates in lockstep; their slots are compared as they are.
        own: what the new program had before it followed: {"update", "old": [slots of each
        variable], "new",
            "iterations": (old, new)}, or None.
        names: of the variables.
        manifests: (old, new).
    """
    rules = [_replay.rule_of(each.get("optimizer") or {}) for each in manifests]
    if None in rules or rules[0].kind != rules[1].kind:
        return []
    places = []
    if own is not None:
        places.append((own["update"], own["old"], own["new"], own["iterations"]))
    for step in steps:
        slots = [
            [pair.slots[side] if pair.exact else None for pair in step.pairs] for side in (0, 1)
        ]
        places.append((step.number, slots[0], slots[1], (step.old.iterations, step.new.iterations)))
    for number_, old, new, iterations in places:
        found = _slots_differ(number_, old, new, iterations, names, rules)
        if found:
            return found
    return []


def _slots_differ(update, old, new, iterations, names, rules):
    lost, first = {0: [], 1: []}, []
    for index, (one, other) in enumerate(zip(old, new)):
        if one is None or other is None:
            continue
        one, other = rules[0].own_slots(one), rules[1].own_slots(other)
        if one is None or other is None:
            continue
        for name in sorted(set(one) & set(other)):
            values = [np.asarray(each[name], np.float64) for each in (one, other)]
            fills = [
                float(v.flat[0]) if v.size and np.all(v == v.flat[0]) else None for v in values
            ]
            starts = [rule.first_slots().get(name, 0.0) for rule in rules]
            begun = [
                fill is not None and abs(fill - start) <= 1e-6 for fill, start in zip(fills, starts)
            ]
            if (
                None not in fills
                and fills[0] != fills[1]
                and (begun[0] or begun[1])
                and not any(iterations_of(iterations))
            ):
                first.append((index, name, fills))
            elif begun[1] and fills[0] is None and length(values[0]) > 0:
                lost[1].append((index, name))
            elif begun[0] and fills[1] is None and length(values[1]) > 0:
                lost[0].append((index, name))
    causes = []
    if first:
        index, name, fills = first[0]
        causes.append(
            Cause(
                "slot-initial-value",
                "slot {} of {} begins with {} on the old side, {} on the new".format(
                    rules[0].optimizer_s_name(name),
                    names[index],
                    number(fills[0]),
                    number(fills[1]),
                ),
                "The optimizer's slot begins with {} on the old side and {} on the new one, in {} "
                "variables. The effect "
                "fades as the average forgets its beginning.".format(
                    number(fills[0]), number(fills[1]), len({each[0] for each in first})
                ),
            )
        )
    for side in (1, 0):
        if lost[side] and len(lost[side]) >= 1 and not lost[1 - side]:
            index, name = lost[side][0]
            where = ("old", "new")[side]
            causes.append(
                Cause(
                    "lost-slots",
                    "update {}: slot {} of {} is as new on the {} side, and filled on the "
                    "other".format(update, rules[0].optimizer_s_name(name), names[index], where),
                    "The optimizer's slots are empty on the {} side at update {}, in {} "
                    "variables, while the other side "
                    "goes on with what it had: the optimizer's state was not restored.".format(
                        where, update, len({each[0] for each in lost[side]})
                    ),
                )
            )
    old_count, new_count = iterations
    adam = rules[0].kind == "adam" and rules[0].settings.get("correction", True)
    if adam and None not in iterations and old_count != new_count and not causes:
        ratio = rules[0].correction(new_count) / rules[0].correction(old_count)
        if abs(ratio - 1) > 1e-5:
            causes.append(
                Cause(
                    "bias-correction",
                    "update {}: iterations {} on the old side, {} on the new; updates in the "
                    "ratio {}".format(update, old_count, new_count, number(ratio)),
                    "Adam corrects its bias with another count of updates: {} on the old side and "
                    "{} on the new one at "
                    "update {}. The iterations were lost on restore.".format(
                        old_count, new_count, update
                    ),
                )
            )
    return causes


def iterations_of(pair):
    return [each or 0 for each in pair]


# Beside the gradients


def skipped_updates(lines):
    """The cause where one side updates with non-finite gradients and the other skips.

    Args:
        lines: (update, old line or None, new line or None), in order.
    """
    for update, old, new in lines:
        if old is None or new is None:
            continue
        bad = [
            any(each is not None and each.nonfinite for each in line.gradient or [])
            for line in (old, new)
        ]
        applied = [old.applied, new.applied]
        if applied[0] != applied[1] and any(bad):
            side = ("old", "new")[applied.index(False)]
            evidence = "update {} is skipped on the {} side; non-finite gradients"
            text = (
                "Update {} is missing on the {} side, where the gradients are not finite: one side"
                " skips such an update, as a loss scale does, and the other makes it or has none."
            )
        elif bad[0] != bad[1]:
            side = ("old", "new")[bad.index(True)]
            evidence = "update {}: gradients are not finite on the {} side alone"
            text = (
                "The gradients of update {} are not finite on the {} side alone: they overflow"
                " there, in half precision or with a loss scale that is too large."
            )
        else:
            continue
        return Cause("loss-scale-skip", evidence.format(update, side), text.format(update, side))
    return None


def initial_values(differing, pairs, names):
    """The cause where weights differ before the first update.

    Args:
        differing: indices of the variables that differ.
        pairs: {index: (old weights, new weights)} as arrays.
        names: of the variables.
    """
    alike = 0
    for index in differing:
        old, new = pairs[index]
        spread = [float(np.std(each)) for each in (old, new)]
        if min(spread) > 0 and old.size >= 8 and 0.6 < spread[0] / spread[1] < 1.6:
            alike += (
                abs(np.mean((old - old.mean()) * (new - new.mean()))) < 0.5 * spread[0] * spread[1]
            )
    how = " They are drawn alike, with other random numbers." if alike else ""
    return Cause(
        "initial-values",
        "{} of {} variables differ before the first update; {} drawn alike".format(
            len(differing), len(names), alike
        ),
        "The weights differ before the first update, in {}.{} Start both sides from the same "
        "weights: from a "
        "checkpoint, or from numbers of your own.".format(
            listed([names[each] for each in differing]), how
        ),
    )
