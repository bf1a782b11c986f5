"""Starts a program as several workers, on this machine or on several.

    launch_workers.py --local 2 several_workers.py                      two workers on this machine
    launch_workers.py --hosts one:2222,two:2222 several_workers.py   prints what to start where
    launch_workers.py --hosts one:2222,two:2222 --run several_workers.py     starts it there, by ssh

Workers find each other by TF_CONFIG: all of them have the same list of addresses, and each its own
place in it; the first is the chief. Each machine needs the program in the same folder, and must
reach the others' ports. Where one
worker fails, or the time is over, the others would wait for ever: then all are ended.
"""

from __future__ import absolute_import, division, print_function

import argparse
import json
import os
import socket
import subprocess
import sys
import time

from six.moves import shlex_quote

#: The exit code where the time is over, as `timeout` has it.
TIME_IS_OVER = 124
LOCAL_LIMIT = 600


def tf_config(addresses, index):
    """The TF_CONFIG of one worker."""
    return json.dumps(
        {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}},
        sort_keys=True,
    )


def free_addresses(count):
    """Addresses on this machine. All sockets are open before the first is closed, so that no two
    are the same."""
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    addresses = ["127.0.0.1:%d" % each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return addresses


def start_here(addresses, index, program):
    # gRPC's support of fork is of no use here, and may lock up where a program forks.
    environment = dict(
        os.environ, TF_CONFIG=tf_config(addresses, index), GRPC_ENABLE_FORK_SUPPORT="0"
    )
    return subprocess.Popen([sys.executable] + program, env=environment)


def remote_command(addresses, index, folder, python, program):
    """The command that starts one worker on its machine, as words for this machine's shell."""
    words = " ".join(shlex_quote(each) for each in [python] + program)
    there = "cd {} && TF_CONFIG={} {}".format(
        shlex_quote(folder), shlex_quote(tf_config(addresses, index)), words
    )
    # -tt: a worker there ends with its connection from here.
    return ["-tt", addresses[index].rsplit(":", 1)[0], there]


def wait(processes, limit):
    """Waits for all of them, for one that fails, or until the time is over; returns an exit
    code."""
    deadline = time.time() + limit if limit else None
    while any(each.poll() is None for each in processes):
        failed = [each.poll() for each in processes if each.poll()]
        if failed:
            return failed[0]
        if deadline and time.time() > deadline:
            print("launch_workers: no end within {} seconds".format(limit), file=sys.stderr)
            return TIME_IS_OVER
        time.sleep(0.1)
    return next((each.poll() for each in processes if each.poll()), 0)


def end(processes):
    """Ends those that still run: by a signal that they may answer first, then by one that they may
    not."""
    for each in processes:
        if each.poll() is None:
            each.terminate()
    deadline = time.time() + 5
    while any(each.poll() is None for each in processes) and time.time() < deadline:
        time.sleep(0.1)
    for each in processes:
        if each.poll() is None:
            each.kill()
        each.wait()


def run(starters, limit):
    """Starts the workers, and returns an exit code: 0 where all of them ended with it."""
    processes = []
    try:
        for starter in starters:
            processes.append(starter())
        code = wait(processes, limit)
    finally:
        end(processes)
    return code if code >= 0 else 128 - code  # as a shell tells a signal


def parse(arguments):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--local", type=int, metavar="N", help="start N workers on this machine")
    where.add_argument("--hosts", metavar="HOST:PORT,...", help="the machines, the chief's first")
    parser.add_argument(
        "--run", action="store_true", help="start the workers on their hosts, and wait for them"
    )
    parser.add_argument(
        "--ssh", default="ssh", help="what connects to a host, for --run (default: %(default)s)"
    )
    parser.add_argument(
        "--folder", default=os.getcwd(), help="the folder on each host (default: the current one)"
    )
    parser.add_argument(
        "--python", default="python", help="the Python on each host (default: %(default)s)"
    )
    parser.add_argument(
        "--limit",
        type=float,
        metavar="SECONDS",
        help="end all workers after so long (default: %d with --local, else never)" % LOCAL_LIMIT,
    )
    parser.add_argument("program", nargs=argparse.REMAINDER, help="the program and its arguments")
    options = parser.parse_args(arguments)
    if not options.program:
        parser.error("which program?")
    if options.local is not None and options.local < 1:
        parser.error("--local takes a number from 1 on")
    return options


def main(arguments=None):
    options = parse(arguments)
    if options.local:
        addresses = free_addresses(options.local)
        starters = [
            lambda index=index: start_here(addresses, index, options.program)
            for index in range(options.local)
        ]
        return run(starters, LOCAL_LIMIT if options.limit is None else options.limit)
    addresses = options.hosts.split(",")
    commands = [
        [options.ssh]
        + remote_command(addresses, index, options.folder, options.python, options.program)
        for index in range(len(addresses))
    ]
    if options.run:
        return run(
            [lambda command=command: subprocess.Popen(command) for command in commands],
            options.limit,
        )
    for command in commands:
        print(" ".join(shlex_quote(each) for each in command))
    return 0


if __name__ == "__main__":
    sys.exit(main())
