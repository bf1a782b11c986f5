"""For terminals alone, and not for files: a progress bar as wide as the terminal, and colours."""

from __future__ import absolute_import, division, print_function

import os
import struct
import time

_CODES = {"red": "31", "green": "32", "yellow": "33"}
#: The widest bar, and the width of a terminal that does not tell its own.
BAR, WIDTH = 24, 80


def painted(text, colour, stream):
    """The text in a colour, where the stream is a terminal and NO_COLOR is not set."""
    plain = (
        not stream.isatty()
        or os.environ.get("NO_COLOR")
        or os.environ.get("TERM") == "dumb"
        or os.name == "nt"
    )
    return text if plain else "\033[{}m{}\033[0m".format(_CODES[colour], text)


def width(stream):
    """The columns of the terminal that a stream writes to."""
    try:
        return int(os.environ["COLUMNS"])
    except (KeyError, ValueError):
        pass
    try:
        return _columns(stream.fileno()) or WIDTH
    except (AttributeError, ImportError, IOError, OSError, ValueError):  # no terminal
        return WIDTH


def _columns(descriptor):
    if hasattr(os, "get_terminal_size"):  # not on Python 2
        return os.get_terminal_size(descriptor).columns
    import fcntl
    import termios

    return struct.unpack("4h", fcntl.ioctl(descriptor, termios.TIOCGWINSZ, b"\0" * 8))[1]


class Bar(object):
    """A progress bar on a terminal, with the time that remains; silent anywhere else.

    Args:
        label: what is being done.
        unit: what is counted.
        stream: where it is shown.
        clock: a function that returns seconds.
    """

    def __init__(self, label, unit, stream, clock=time.time):
        self._label, self._unit, self._clock = label, unit, clock
        self._stream = stream if stream.isatty() else None
        self._shown, self._first = 0, None

    def show(self, done, total):
        """Shows that so many are done."""
        if self._stream is None:
            return
        # Without the last column: some terminals begin a new line there.
        most = width(self._stream) - 1
        label = "{:<12}".format(self._label)
        counts = " {}/{} {}{}".format(done, total, self._unit, self._remaining(done, total))
        room = min(BAR, most - len(label) - len(counts) - 2)
        filled = room * done // total
        bar = "[{}{}]".format("#" * filled, "-" * (room - filled)) if room > 2 else ""
        line = (label + bar + counts)[:most]
        self._write("\r" + line + " " * (self._shown - len(line)))
        self._shown = len(line)

    def clear(self):
        """Removes the bar."""
        self._write("\r" + " " * self._shown + "\r")
        self._shown = 0

    def _remaining(self, done, total):
        """The time that remains, by the pace since the first call: what came before is slower."""
        now = self._clock()
        if self._first is None:
            self._first = (done, now)
        first, began = self._first
        if done == first or done >= total:
            return ""
        seconds = int(round((now - began) / (done - first) * (total - done)))
        if seconds < 60:
            return ", {} s left".format(seconds)
        return ", {} min {:02d} s left".format(seconds // 60, seconds % 60)

    def _write(self, text):
        if self._stream is not None:
            self._stream.write(text)
            self._stream.flush()
