"""gradaccum-compat compare: arguments, progress, output and exit codes. No TensorFlow here."""

from __future__ import absolute_import, division, print_function

import io
import json
import sys
import time

from gradaccum_compat.cli import parsing

DESCRIPTION = (
    "Compares two records of one training and says whether they train the same; where not, since"
    " which update, in which variable, by how much, and why."
)
CODES = {"same": 0, "different": 1, "inconclusive": 3, "not comparable": 2}
_WIDTH, _PATIENCE = 40, 1.0


def add_to(commands):
    """Adds the command."""
    parser = parsing.add_command(
        commands,
        "compare",
        "compare two records of a training, and name what differs",
        DESCRIPTION,
        "0 if they train the same, 1 if not, 2 if they cannot be compared, 3 if it cannot be told",
        run,
    )
    parser.add_argument("old", metavar="OLD", help="the folder of the old record")
    parser.add_argument("new", metavar="NEW", help="the folder of the new record")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--html", metavar="FILE", help="write a page too, self-contained")
    parsing.add_map(parser, "an old variable's name and the new one's, where they do not match")


def run(arguments):
    """Runs the command; returns its exit code."""
    from gradaccum_compat import errors
    from gradaccum_compat.upgrade import comparing

    bar = _Bar(sys.stderr)
    try:
        found = comparing.compare(arguments.old, arguments.new, dict(arguments.map), bar.show)
    except errors.GradAccumError as error:
        bar.end()
        return _refused(arguments, str(error))
    bar.end()
    if arguments.html:
        try:
            with io.open(arguments.html, "w", encoding="utf-8") as stream:
                stream.write(found.to_html())
        except EnvironmentError as error:
            return _refused(arguments, "The page cannot be written: {}".format(error))
    _print(found.json() if arguments.json else str(found))
    return CODES[found.verdict]


def _refused(arguments, reason):
    """Says why the records cannot be compared; returns the exit code."""
    if arguments.json:
        verdict = {"verdict": "not comparable", "first": None, "causes": [], "notes": [reason]}
        _print(json.dumps(verdict, indent=2, sort_keys=True))
    else:
        _print("not comparable\n\n" + reason)
    return CODES["not comparable"]


def _print(text):
    """Prints; a terminal without the characters of a name gets question marks."""
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    data = text.encode(encoding, "replace") if not isinstance(text, bytes) else text
    print(data.decode(encoding, "replace") if str is not bytes else data)


class _Bar(object):
    """Progress on a terminal, once it takes longer than a second."""

    def __init__(self, stream):
        self._stream, self._began, self._shown = stream, time.time(), -1
        self._on = hasattr(stream, "isatty") and stream.isatty()

    def show(self, part):
        """Shows which part is done, from 0 to 1."""
        filled = int(_WIDTH * min(max(part, 0.0), 1.0))
        if self._on and filled != self._shown and time.time() - self._began > _PATIENCE:
            self._shown = filled
            self._stream.write("\rcomparing [{}{}]".format("#" * filled, "." * (_WIDTH - filled)))
            self._stream.flush()

    def end(self):
        """Clears the line."""
        if self._shown >= 0:
            self._stream.write("\r" + " " * (_WIDTH + 12) + "\r")
            self._stream.flush()
