"""Shared by the parsers of all commands: their style, whole numbers, and pairs of names."""

from __future__ import absolute_import, division, print_function

import argparse
import re
import textwrap


class Help(argparse.HelpFormatter):
    """Help that breaks no line inside of a path, an option, or an example in quotes."""

    def _split_lines(self, text, width):
        # A space inside of quotes becomes a letter of the word, until the lines are made.
        joined = re.sub(r'"[^"]*"', lambda match: match.group().replace(" ", "\0"), text)
        lines = textwrap.wrap(" ".join(joined.split()), width, break_on_hyphens=False)
        return [line.replace("\0", " ") for line in lines]


def add_command(commands, name, text, description, exit_codes, run):
    """Adds a command, and returns its parser.

    Args:
        commands: what argparse's add_subparsers returned.
        name: the command.
        text: what it does, a phrase for the list of commands.
        description: the same in whole sentences.
        exit_codes: what its exit codes mean, such as "0 if all is well, 1 if not".
        run: a function of the parsed arguments that returns the exit code.
    """
    parser = commands.add_parser(
        name,
        help=text,
        description=description,
        epilog="Exit codes: {}.".format(exit_codes),
        formatter_class=Help,
    )
    # For what only several arguments together show: arguments.fail("--this must ...").
    parser.set_defaults(run=run, fail=parser.error)
    return parser


def add_number(parser, name, default, text, least, most=None):
    """Adds an option that is a whole number, with its default in the help."""
    parser.add_argument(
        name,
        type=lambda given: whole_number(given, least, most),
        default=default,
        metavar="N",
        help="{} ({})".format(text, default),
    )


def add_map(parser, text):
    """Adds the option --map, which may be repeated: a list of pairs of variables' names."""
    parser.add_argument(
        "--map",
        metavar="OLD=NEW",
        action="append",
        default=[],
        type=pair_of_names,
        help=text + "; may be repeated",
    )


def pair_of_names(given):
    """The two names of OLD=NEW.

    Raises:
        argparse.ArgumentTypeError: it is no OLD=NEW.
    """
    old, _, new = given.partition("=")
    if not old or not new:
        raise argparse.ArgumentTypeError("must be OLD=NEW, not {!r}".format(str(given)))
    return old, new


def whole_number(given, least, most=None):
    """The number that an argument says.

    Raises:
        argparse.ArgumentTypeError: it is no whole number from `least` to `most`.
    """
    try:
        number = int(given)
    except ValueError:
        raise argparse.ArgumentTypeError("must be a whole number, not {!r}".format(str(given)))
    if number < least:
        raise argparse.ArgumentTypeError("must be at least {}, not {}".format(least, given))
    if most is not None and number > most:
        raise argparse.ArgumentTypeError("must be at most {}, not {}".format(most, given))
    return number
