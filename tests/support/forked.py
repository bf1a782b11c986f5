"""Processes in which TensorFlow is imported already: forked from one that has done nothing else.

Importing it takes three seconds of a processor, which is most of what a small program takes.
"""

from __future__ import absolute_import, division, print_function

import os
import random
import runpy
import signal
import sys
import warnings

try:
    from multiprocessing import get_context

    _FORKS = get_context("forkserver")
    # TensorFlow imports Keras where it is first asked for, and before 2.6 has its own.
    _FORKS.set_forkserver_preload(["tensorflow", "keras", "pytest"])
except (ImportError, ValueError):  # Python 2, and Windows
    _FORKS = None

CAN_FORK = _FORKS is not None


class Process(object):
    """Runs a program in a fork, as subprocess.Popen would run it in a new process.

    Nothing of the test's process comes along: neither its variables nor a state of TensorFlow. What
    the program leaves to atexit does not run, and its warnings are not printed.

    Args:
        command: what stands after `python`: `-m module`, `-c code` or a path, and the arguments.
        env: the whole environment.
        log: the path of the file that takes what is printed.
        errors: the path of the file that takes standard error.
        cwd: the folder to run in.
    """

    def __init__(self, command, env, log, errors, cwd=None):
        streams = (str(log), str(errors))
        arguments = ([str(each) for each in command], dict(env), streams, cwd or os.getcwd())
        self._process = _FORKS.Process(target=_become, args=arguments)
        self._process.start()
        self.pid = self._process.pid

    @property
    def returncode(self):
        return self._process.exitcode

    def poll(self):
        return self.returncode

    def wait(self):
        self._process.join()
        return self.returncode

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)


def _become(command, env, streams, folder):
    """Makes this process what a new one would be, and runs the program."""
    # TF 2 sets it where it is imported, and asks for it later.
    behavior = os.environ.get("TF2_BEHAVIOR")
    os.environ.clear()
    os.environ.update(env)
    if behavior is not None:
        os.environ["TF2_BEHAVIOR"] = behavior
    os.chdir(folder)
    for number, path in enumerate(streams, 1):
        _redirect(number, path)
    warnings.simplefilter("ignore")
    _seed()
    if command[0] == "-m":
        sys.path[:] = _paths(env, os.getcwd())
        sys.argv = command[1:]
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
    elif command[0] == "-c":
        sys.path[:] = _paths(env, "")
        sys.argv = ["-c"] + command[2:]
        exec(compile(command[1], "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.path[:] = _paths(env, os.path.dirname(os.path.abspath(command[0])))
        sys.argv = command
        runpy.run_path(command[0], run_name="__main__")


def _paths(env, first):
    """What this Python's sys.path would be."""
    ours = [first] + [each for each in env.get("PYTHONPATH", "").split(os.pathsep) if each]
    return ours + [each for each in sys.path if each and each not in ours]


def _redirect(stream, path):
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(file, stream)
    os.close(file)


def _seed():
    """Forks would draw the same numbers."""
    import numpy

    random.seed()
    numpy.random.seed()
