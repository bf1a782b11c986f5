"""The command line: gradaccum-compat demo | doctor.

Arguments and exit codes only; what a command does is in a module of its own. No TensorFlow here:
help must work where there is none.
"""

from __future__ import absolute_import, division, print_function

import argparse
import sys

DESCRIPTION = "Gradient accumulation with one API and the same numbers on TensorFlow 1.14 to the newest 2.x."
DEMO = ("Trains a small network twice on the TensorFlow found here, on the CPU: with big batches and a plain "
        "optimizer, and accumulated from uneven micro-batches. Compares the weights, the memory and the time.")
DOCTOR = "Says which TensorFlow, Keras and devices are found here, which backend serves them, and what else is usable."


def main(argv=None):
    """Runs one command.

    Args:
        argv: the arguments; those of the process where left out.

    Returns:
        The exit code: 0 if all is well, 1 if not.
    """
    argv = sys.argv[1:] if argv is None else list(argv)
    parser = _parser()
    if not argv:  # Python 2's argparse calls a missing command an error.
        parser.print_help()
        return 0
    arguments = parser.parse_args(argv)
    try:
        return arguments.run(arguments)
    except KeyboardInterrupt:
        return 130


def _parser():
    parser = argparse.ArgumentParser(prog="gradaccum-compat", description=DESCRIPTION)
    commands = parser.add_subparsers(title="commands", metavar="command")
    _add_demo(commands)
    _add_doctor(commands)
    return parser


def _add_demo(commands):
    parser = commands.add_parser(
        "demo", help="train the same network with big batches and accumulated, and compare", description=DEMO,
        epilog="Exit code: 0 if both end with the same weights, 1 if not.")
    _add_number(parser, "--updates", 20, "updates of the optimizer in each run")
    _add_number(parser, "--batch", 16384, "examples for one update")
    _add_number(parser, "--micro-batches", 8, "uneven micro-batches to cut each batch into")
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="seed of the data, the weights and the cuts (0)")
    parser.set_defaults(run=lambda arguments: _demo(parser, arguments))


def _add_number(parser, name, default, text):
    parser.add_argument(name, type=_positive, default=default, metavar="N", help="{} ({})".format(text, default))


def _positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1, not {}".format(text))
    return value


def _demo(parser, arguments):
    if arguments.micro_batches > arguments.batch:
        parser.error("--micro-batches must be at most --batch: a micro-batch holds at least one example")
    from gradaccum_compat import _demo as demo
    return demo.main(arguments.updates, arguments.batch, arguments.micro_batches, arguments.seed)


def _add_doctor(commands):
    parser = commands.add_parser(
        "doctor", help="say what is found here and what is usable", description=DOCTOR,
        epilog="Exit code: 0 if there is a TensorFlow that can be served, 1 if not.")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_doctor)


def _doctor(arguments):
    from gradaccum_compat import _doctor as doctor
    return doctor.main(arguments.json)


if __name__ == "__main__":
    sys.exit(main())
