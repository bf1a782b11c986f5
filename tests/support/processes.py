"""Starts the workers of a test as real processes that talk gRPC on the loopback, and ends all of
them."""

from __future__ import absolute_import, division, print_function

import contextlib
import json
import os
import socket
import subprocess
import sys
import time

#: The folder of the tests, and the tree's root.
TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROOT = os.path.dirname(TESTS)
LIMIT = (
    400  # seconds: what hangs, hangs for ever; on a busy machine workers wait for each other long
)


def environment(*folders, **variables):
    """This process's environment for another one, which finds the package and the tests' support.

    Args:
        *folders: further folders to import from.
        **variables: what else the environment says.
    """
    inherited = [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]
    paths = os.pathsep.join([ROOT, TESTS] + list(folders) + inherited)
    # TF 2 sets this where it is imported, and TF 1 would behave like TF 2 by it.
    ours = {name: value for name, value in os.environ.items() if name != "TF2_BEHAVIOR"}
    return dict(ours, PYTHONPATH=paths, **variables)


def command(program, *arguments):
    """The command that runs a program of tests/support/, by its name, under this Python."""
    return [sys.executable, "-m", "support." + program] + [str(each) for each in arguments]


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def start(index, addresses, program, arguments, log):
    """Starts a program of this folder as one worker, with TF_CONFIG in its environment, as on
    several machines."""
    config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
    return subprocess.Popen(
        command(program, *arguments),
        env=environment(TF_CONFIG=json.dumps(config), GRPC_ENABLE_FORK_SUPPORT="0"),
        stdout=log,
        stderr=subprocess.STDOUT,
    )


class Workers(object):
    """The processes of one cluster, the files that they write their results to, and their logs."""

    def __init__(self, count, folder, program, arguments):
        addresses = ["127.0.0.1:%d" % port for port in free_ports(count)]
        self.outs = [str(folder.join("worker%d.json" % index)) for index in range(count)]
        self._logs = [open(out + ".log", "wb") for out in self.outs]
        self.processes = [
            start(index, addresses, program, [out] + list(arguments), log)
            for index, (out, log) in enumerate(zip(self.outs, self._logs))
        ]

    def codes(self):
        """Each worker's exit code, None for one that still runs."""
        return [each.poll() for each in self.processes]

    def wait_until(self, condition):
        """Waits until the condition holds; fails where a worker fails first, or the time is
        over."""
        deadline = time.time() + LIMIT
        while not condition():
            assert time.time() < deadline, "no end within %d seconds\n%s" % (LIMIT, self.said())
            # The others would wait for one that failed.
            assert not any(self.codes()), "exit codes %s\n%s" % (self.codes(), self.said())
            time.sleep(0.1)

    def results(self):
        """What each worker has written at its end."""
        self.wait_until(lambda: None not in self.codes())
        assert not any(self.codes()), self.said()
        return [json.load(open(out)) for out in self.outs]

    def said(self):
        return "\n".join(open(out + ".log").read()[-3000:] for out in self.outs)

    def end(self):
        for each in self.processes:
            if each.poll() is None:
                each.kill()
            each.wait()
        for log in self._logs:
            log.close()


@contextlib.contextmanager
def workers(count, folder, program, arguments=()):
    """So many workers, each called as `program OUT ARGUMENTS...`; whatever happens, none of them is
    left."""
    started = Workers(count, folder, program, arguments)
    try:
        yield started
    finally:
        started.end()


def run(count, folder, program, arguments=()):
    """Runs the workers to their end, or kills them all, and returns what each has written."""
    with workers(count, folder, program, arguments) as started:
        return started.results()
