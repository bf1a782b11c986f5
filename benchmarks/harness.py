"""Interleaved timing: every contender once in a round, so that a disturbance of the machine meets
all of them."""

from __future__ import absolute_import, division, print_function

import collections
import sys
import time

try:
    import resource
except ImportError:  # Windows
    resource = None

#: Seconds of one cycle: on the clock, and of all processors together. The second hardly feels a
#:     busy machine.
Timing = collections.namedtuple("Timing", "wall processor")

#: What one timing takes at least: a contender that is faster runs several cycles in it, or it would
#: be timed with the caches that the one before has left behind.
SHORTEST = 0.1


class Progress(object):
    """A bar on a terminal, and nothing elsewhere."""

    def __init__(self, label, total, stream=None):
        self._label, self._total, self._count = label, total, 0
        self._stream = stream or sys.stderr
        self._shown = hasattr(self._stream, "isatty") and self._stream.isatty()

    def advance(self):
        self._count += 1
        if self._shown:
            filled = 30 * self._count // self._total
            self._stream.write(
                "\r{:<28.28} [{}{}] {}/{}".format(
                    self._label, "#" * filled, "." * (30 - filled), self._count, self._total
                )
            )
            self._stream.write("\n" if self._count == self._total else "")
            self._stream.flush()


def measure(cycles, rounds, label, warm=2):
    """Seconds of one cycle of each contender.

    Args:
        cycles: a list of (name, function that runs one cycle and returns when it is over).
        rounds: how often each is timed.
        label: what the progress bar says.
        warm: cycles that each runs before: they trace, and touch the memory.

    Returns:
        A dictionary from name to a list of Timings, one for each round.
    """
    for _ in range(warm):
        for _, cycle in cycles:
            cycle()
    repeats = dict(
        (name, max(1, int(SHORTEST / max(1e-6, _time(cycle, 1).wall)))) for name, cycle in cycles
    )
    timings = dict((name, []) for name, _ in cycles)
    progress = Progress(label, rounds)
    for number in range(rounds):
        # Each begins a round in its turn: whoever comes after a heavy one finds the caches cold.
        turn = number % len(cycles)
        for name, cycle in cycles[turn:] + cycles[:turn]:
            timings[name].append(_time(cycle, repeats[name]))
        progress.advance()
    return timings


def _time(cycle, repeats):
    begin, used = time.time(), _processor_seconds()
    for _ in range(repeats):
        cycle()
    return Timing((time.time() - begin) / repeats, (_processor_seconds() - used) / repeats)


def _processor_seconds():
    if resource is None:
        return 0.0
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def median(values):
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def rows(timings, order, baseline_of):
    """A table's rows: minimum and median on the clock, and the minimum of all processors' seconds,
    as seconds and as ratios to the contender's baseline.

    The median is that of the ratios within each round, where both met the same machine.
    """
    table = []
    for name in order:
        own, base = timings[name], timings[baseline_of(name)]
        used, base_used = least_processor(own), least_processor(base)
        table.append(
            {
                "contender": name,
                "min_seconds": least(own),
                "median_seconds": median([each.wall for each in own]),
                "min_ratio": least(own) / least(base),
                "processor_seconds": used,
                "median_ratio": median([each.wall / other.wall for each, other in zip(own, base)]),
                "processor_ratio": used / base_used if base_used else None,
                "baseline": baseline_of(name),
            }
        )
    return table


def least(timings):
    return min(each.wall for each in timings)


def least_processor(timings):
    return min(each.processor for each in timings)


def pooled(runs):
    """The sections of several processes in one: of each number in a row the median of what they
    measured."""
    if len(runs) == 1:
        return runs[0]
    return [
        dict(
            sections[0],
            rows=[_pooled_row(same) for same in zip(*[each["rows"] for each in sections])],
        )
        for sections in zip(*runs)
    ]


def _pooled_row(rows_):
    return dict(
        (key, median([row[key] for row in rows_]) if isinstance(value, float) else value)
        for key, value in rows_[0].items()
    )
