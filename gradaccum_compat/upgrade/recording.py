"""record: has every accumulator of a program write down what it does, and follow another record.

Where a program records is said here, by a block or by the environment; what an accumulator does
then is in _recorder.py. No TensorFlow here: the command that only starts a program needs none.
"""

from __future__ import absolute_import, division, print_function

import contextlib
import json
import numbers
import os
import sys
import uuid

from gradaccum_compat import errors
from gradaccum_compat.upgrade import _format
from gradaccum_compat.upgrade._followed import Followed
from gradaccum_compat.upgrade._log import Log, say

#: What `gradaccum-compat record` sets for the command that it runs.
RECORD, FOLLOW, SNAPSHOTS = "GRADACCUM_RECORD", "GRADACCUM_FOLLOW", "GRADACCUM_SNAPSHOTS"
#: The same for all processes of one run, so that another run finds the folder used.
RUN = "GRADACCUM_RECORD_RUN"


@contextlib.contextmanager
def record(path, follow=None, snapshots=None):
    """Has every accumulator that is made inside, wrapped optimizers included, write a record.

    Each accumulator gets a folder of its own below `path`. Nothing is recorded after the end of the
    block.

    Example:
        >>> with ga.upgrade.record("new", follow="old"):
        ...     train()

    Args:
        path: a folder without a record in it; it is made if it is not there.
        follow: a record, of this or another TensorFlow. Where it has a snapshot of an update, that
            update begins from its weights and slots.
        snapshots: the numbers of the updates whose whole state is recorded; 0, 1, 2, 3, 10, 30,
            100, 300, ... unless given, or those that the followed record was told to take.

    Raises:
        RecordError: the folder holds a record, the record to follow cannot be read, or what is
            built inside has variables of other shapes.
    """
    package = sys.modules["gradaccum_compat"]
    if package._recording is not None:
        raise errors.RecordError(
            "A program records into one folder at a time.",
            "a record inside of that into {!r}".format(package._recording.path),
            "End the first `with record(...):` block before the second one begins.",
        )
    session = Session(path, follow, snapshots, uuid.uuid4().hex)
    package._recording = session
    try:
        yield
        session.say_if_nothing_was_made()
    finally:
        package._recording = None
        session.close()


class Session(object):
    """Where a program records, and what it follows."""

    def __init__(self, path, follow, snapshots, run):
        self.path, self.run = os.path.abspath(path), run
        self.follow = None if follow is None else os.path.abspath(follow)
        self.snapshots = _checked_snapshots(snapshots)
        self._logs, self._made = [], 0
        self._is_mine = is_chief()
        if self._is_mine:
            check_folder(self.path, run)
        self._followed = [] if follow is None else _format.read(follow)
        self._told = False

    def number(self):
        """The next accumulator's."""
        self._made += 1
        return self._made - 1

    def followed(self, number, variables):
        """The record that an accumulator follows, or None."""
        if self.follow is None:
            return None
        if number >= len(self._followed):
            say(
                "{} has no record for accumulator number {}: it follows none.".format(
                    self.follow, number + 1
                )
            )
            return None
        return Followed(self._followed[number], variables)

    def claim(self, name):
        """Makes a folder for the record of an accumulator, and returns its path."""
        if not self._is_mine:
            # The chief of the workers records for all of them: this one is on its own after all.
            check_folder(self.path, self.run)
            self._is_mine = True
        return _format.claim(self.path, name)

    def log(self, *args):
        self._logs.append(Log(self, *args))
        return self._logs[-1]

    def stopped(self, error):
        """Says once, for all accumulators, that the rest is not recorded."""
        if not self._told:
            self._told = True
            say(
                "recording into {} has stopped, training goes on: {}: {}".format(
                    self.path, type(error).__name__, error
                )
            )

    def say_if_nothing_was_made(self):
        if not self._made:
            say(
                "nothing is recorded into {}: the `with record(...):` block made no Accumulator"
                " and wrapped no optimizer. Make them inside the block.".format(self.path)
            )

    def close(self):
        for each in self._logs:
            each.close()


_from_environment = {}


def session_here():
    """The Session of the block at hand; where there is none, that of the environment."""
    package = sys.modules["gradaccum_compat"]
    if package._recording is not None:
        return package._recording
    given = tuple(os.environ.get(name) for name in (RECORD, FOLLOW, SNAPSHOTS))
    if given not in _from_environment:
        path, follow, snapshots = given
        # For the processes that this one starts, too.
        run = os.environ.setdefault(RUN, uuid.uuid4().hex)
        _from_environment[given] = Session(path, follow or None, snapshots or None, run)
    return _from_environment[given]


def is_chief():
    """Whether this process is alone, or the worker that records for all of them.

    It is known before TensorFlow is, by what starts workers: TF_CONFIG, and horovodrun.
    """
    if os.environ.get("HOROVOD_RANK", "0") != "0":
        return False
    try:
        config = json.loads(os.environ.get("TF_CONFIG") or "{}")
        kind, number = config["task"]["type"], int(config["task"]["index"])
        return number == 0 and (kind == "chief" or "chief" not in config["cluster"])
    except (KeyError, TypeError, ValueError):
        return True


def check_folder(path, run=None):
    """Raises RecordError if the folder holds a record of another run."""
    if os.path.exists(path) and not os.path.isdir(path):
        raise errors.RecordError(
            "A record goes into a folder.",
            "{!r}, which is a file".format(path),
            "Name another one.",
        )
    try:
        names = sorted(os.listdir(path)) if os.path.isdir(path) else []
    except EnvironmentError as error:
        raise without_rights(path, error)
    for name in names:
        if name == _format.MANIFEST or os.path.isfile(os.path.join(path, name, _format.MANIFEST)):
            folder = os.path.join(path, name)
            if (
                os.path.isfile(folder)
                or run is None
                or _format.Record(folder).manifest.get("run") != run
            ):
                raise errors.RecordError(
                    "A record goes into a folder of its own.",
                    "{!r}, which holds one already".format(path),
                    "Name another folder, or remove this one. Workers that are started by hand "
                    "record into one each.",
                )


def without_rights(path, error):
    """The error for a folder that cannot be made, read or written."""
    return errors.RecordError(
        "A record goes into a folder that can be made, read and written.",
        "{!r}: {}".format(path, error.strerror),
        "Name another one, or ask for the rights.",
    )


def _checked_snapshots(snapshots):
    """A frozenset of numbers, or None for the default; text as the environment has it."""
    if snapshots is None:
        return None
    given = snapshots
    try:
        if hasattr(snapshots, "split"):
            snapshots = [int(each) for each in snapshots.split(",")]
        numbers_ = list(snapshots)
        sound = all(
            isinstance(each, numbers.Integral) and not isinstance(each, bool) and each >= 0
            for each in numbers_
        )
    except (TypeError, ValueError):
        sound = False
    if not sound:
        raise errors.OptionError(
            "snapshots are the numbers of updates, 0 for the first.",
            "{:.100}".format(repr(given)),
            "Pass snapshots=[0, 1, 100], say, or leave it out.",
        )
    return frozenset(int(each) for each in numbers_)
