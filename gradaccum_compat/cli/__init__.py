"""The command line: gradaccum-compat demo | doctor | record | compare | matrix.

Only the choice of a command and the exit codes. A command is a module with two functions:
`add_to(commands)` adds its parser, and `run(arguments)` runs it and returns the exit code. Such a
module imports neither TensorFlow nor NumPy at its top level: help must work where there is none.
"""

from __future__ import absolute_import, division, print_function

import argparse
import errno
import importlib
import os
import sys

from gradaccum_compat import __version__

#: The modules of the commands, in the order in which help lists them.
COMMANDS = (
    "cli.demo",
    "cli.doctor",
    "upgrade._record_command",
    "upgrade._compare_command",
    "upgrade._matrix_command",
)
DESCRIPTION = (
    "Gradient accumulation with one API and the same numbers on TensorFlow 1.14 to the newest 2.x."
)
#: The code of a process that the signal for it ends.
_BROKEN_PIPE = 141
EXIT_CODES = (
    "Exit codes: 0 if all is well, 1 if not, 2 for wrong arguments, 130 if interrupted. The help of"
    " a command says what they mean there."
)


def main(argv=None):
    """Runs one command.

    Args:
        argv: the arguments; those of the process where left out.

    Returns:
        The exit code: 0 if all is well, 1 if not, 130 if interrupted, 141 if whoever reads the
        output has closed it; others are a command's own.

    Raises:
        SystemExit: with 2 for wrong arguments, with 0 after --help and --version.
    """
    argv = sys.argv[1:] if argv is None else list(argv)
    parser = _parser()
    if not argv:  # Python 2's argparse calls a missing command an error.
        parser.print_help()
        return 0
    arguments = parser.parse_args(argv)
    try:
        code = arguments.run(arguments)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return 130
    except EnvironmentError as error:
        if error.errno != errno.EPIPE:
            raise
        # Who reads the output has seen enough, as `head` has. Python flushes once more at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _BROKEN_PIPE


def _parser():
    parser = argparse.ArgumentParser(
        prog="gradaccum-compat", description=DESCRIPTION, epilog=EXIT_CODES
    )
    parser.add_argument("--version", action=_Version, help="print the version and exit")
    commands = parser.add_subparsers(title="commands", metavar="command")
    for name in COMMANDS:
        importlib.import_module("gradaccum_compat." + name).add_to(commands)
    return parser


class _Version(argparse.Action):
    """Prints the version to standard output; argparse's own prints to errors on Python 2."""

    def __init__(self, option_strings, dest, help=None):
        super(_Version, self).__init__(option_strings, argparse.SUPPRESS, nargs=0, help=help)

    def __call__(self, parser, *_):
        print("gradaccum-compat {}".format(__version__))
        parser.exit()
