"""Starts the workers of a test as real processes that talk gRPC on the loopback, and ends all of
them."""

from __future__ import absolute_import, division, print_function

import contextlib
import io
import json
import os
import socket
import subprocess
import sys
import threading
import time

from support import forked

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


def start(arguments, log, errors=None, cwd=None, env=None, python=sys.executable, fork=True):
    """Starts a program.

    Args:
        arguments: what stands after `python`: `-m module`, `-c code` or a path, and the arguments.
        log: the path of the file that takes what is printed.
        errors: the path of the one that takes standard error, if it is another one.
        cwd: the folder to run in.
        env: environment() or one like it.
        python: the path of the Python.
        fork: whether this Python's TensorFlow and Keras may be imported already in its process.

    Returns:
        The process, with poll(), wait(), kill(), send_signal() and returncode.
    """
    env = environment() if env is None else env
    if fork and forked.CAN_FORK and python == sys.executable:
        return forked.Process(arguments, env, log, errors or log, cwd)
    with open(str(log), "ab") as out, open(str(errors or log), "ab") as err:
        command = [python, "-W", "ignore"] + [str(each) for each in arguments]
        return subprocess.Popen(command, cwd=cwd, env=env, stdout=out, stderr=err)


def output_of(arguments, log, limit=LIMIT, **how):
    """(what a program printed, its exit code). One that takes longer than the limit is killed."""
    process = start(arguments, log, **how)
    clock = threading.Timer(limit, process.kill)
    clock.start()
    try:
        process.wait()
    finally:
        clock.cancel()
    with io.open(str(log), encoding="utf-8", errors="replace") as printed:
        return printed.read(), process.returncode


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def start_worker(index, addresses, program, arguments, log):
    """Starts a program of this folder as one worker, with TF_CONFIG in its environment, as on
    several machines."""
    config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
    env = environment(TF_CONFIG=json.dumps(config), GRPC_ENABLE_FORK_SUPPORT="0")
    return start(command(program, *arguments)[1:], log, env=env)


class Workers(object):
    """The processes of one cluster, the files that they write their results to, and their logs."""

    def __init__(self, count, folder, program, arguments):
        addresses = ["127.0.0.1:%d" % port for port in free_ports(count)]
        self.outs = [str(folder.join("worker%d.json" % index)) for index in range(count)]
        self.processes = [
            start_worker(index, addresses, program, [out] + list(arguments), out + ".log")
            for index, out in enumerate(self.outs)
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
