"""gradaccum-compat record DIR [--follow OLD] -- COMMAND: runs a program that records.

No TensorFlow here.
"""

from __future__ import absolute_import, division, print_function

import os
import subprocess
import sys
import tempfile
import uuid

from gradaccum_compat.cli import parsing

DESCRIPTION = (
    "Runs a program, whose accumulators and wrapped optimizers then record each update into DIR. "
    "Nothing changes in the program. With --follow, updates begin from the states that another "
    "record has, so that gradients and updates of both sides can be compared to rounding."
)


def add_to(commands):
    """Adds the command."""
    parser = parsing.add_command(
        commands,
        "record",
        "run a training program, and record each of its updates",
        DESCRIPTION,
        "those of COMMAND, 2 if it was not run",
        run,
    )
    parser.add_argument(
        "folder",
        metavar="DIR",
        help="a folder without a record in it; it is made if it is not there",
    )
    parser.add_argument(
        "--follow", metavar="OLD", help="the record, of another TensorFlow perhaps, to follow"
    )
    parser.add_argument(
        "--snapshots",
        metavar="N,N,...",
        help="the updates whose state is recorded (0,1,2,3,10,30,100,300,... or those of OLD)",
    )
    # Not REMAINDER, which would take --follow too.
    parser.add_argument(
        "command",
        nargs="+",
        metavar="COMMAND",
        help="after --: the program, as it is run without this",
    )


def run(arguments):
    """Runs the command. Returns the exit code."""
    from gradaccum_compat import errors
    from gradaccum_compat.upgrade import recording

    run_id = uuid.uuid4().hex
    try:
        # Refuses what cannot be, before a program begins that takes long to get there.
        recording.Session(arguments.folder, arguments.follow, arguments.snapshots, run_id)
        _make(arguments.folder)
    except errors.GradAccumError as error:
        print("gradaccum-compat record: {}".format(error), file=sys.stderr)
        return 2
    environment = dict(
        os.environ, **{recording.RECORD: os.path.abspath(arguments.folder), recording.RUN: run_id}
    )
    for name, value in (
        (recording.FOLLOW, arguments.follow and os.path.abspath(arguments.follow)),
        (recording.SNAPSHOTS, arguments.snapshots),
    ):
        environment.pop(name, None)
        if value:
            environment[name] = value
    try:
        process = subprocess.Popen(arguments.command, env=environment)
    except EnvironmentError as error:
        print(
            "gradaccum-compat record: {}: {}".format(arguments.command[0], error), file=sys.stderr
        )
        return 2
    status = _ended(process)
    print("gradaccum-compat record: {}".format(_outcome(arguments.folder)), file=sys.stderr)
    # As a shell says that a signal has ended it.
    return status if status >= 0 else 128 - status


def _make(folder):
    """Makes the folder, if it is not there, and a file in it for a moment."""
    from gradaccum_compat.upgrade import recording

    if not recording.is_chief():
        return
    try:
        if not os.path.isdir(folder):
            os.makedirs(folder)
        tempfile.TemporaryFile(dir=folder).close()
    except EnvironmentError as error:
        raise recording.without_rights(folder, error)


def _ended(process):
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            pass  # the program has got it too, and ends as it likes


def _outcome(folder):
    from gradaccum_compat import errors
    from gradaccum_compat.upgrade import _format, recording

    if not recording.is_chief():
        return "the first worker records for all of them."
    try:
        records = _format.read(folder)
    except errors.RecordError:
        return (
            "nothing is recorded. The program makes no Accumulator and wraps no optimizer, or "
            "ended before a first update. A program that does not accumulate yet uses steps=1."
        )
    size = sum(
        os.path.getsize(os.path.join(record.folder, name))
        for record in records
        for name in os.listdir(record.folder)
    )
    lines = [
        "{} updates of {} in {}".format(len(record), record.name, folder) for record in records
    ]
    return "{}; {}.".format("; ".join(lines), _readable(size))


def _readable(size):
    return "{:.1f} MB".format(size / 1e6) if size >= 1e6 else "{:.0f} kB".format(size / 1e3)
