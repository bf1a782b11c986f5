"""Calls a function of this package in a process of its own, and hands back what it answers.

A TensorFlow that dies takes that process alone with it, what TensorFlow prints is shown only where
something failed, and a peak of memory belongs to one run. The calling process stays small: it may
not import TensorFlow, because on Linux a child's peak begins at the memory of its parent.
"""

from __future__ import absolute_import, division, print_function

import importlib
import json
import os
import subprocess
import sys
import tempfile

import six

from gradaccum_compat import errors

# The child imports from where its parent does; -m would put the working directory before all else.
_START = (
    "import os, sys; sys.path[:] = sys.argv[1].split(os.pathsep); "
    "from gradaccum_compat.cli import process; process.serve(*sys.argv[2:])"
)
_QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONWARNINGS": "ignore"}
_LAST_LINES = 12


class ProcessDied(Exception):
    """The process ended without an answer.

    Args:
        status: its exit code; negative where a signal ended it.
        output: the last lines that it wrote.
    """

    def __init__(self, status, output):
        super(ProcessDied, self).__init__(status, output)
        self.status = status
        self.output = output

    def __str__(self):
        how = (
            "signal {}".format(-self.status)
            if self.status < 0
            else "exit code {}".format(self.status)
        )
        return "a process that ended with {} and said: {}".format(how, self.output or "nothing")


def call(function, arguments, on_progress=None, environment=None):
    """Calls function(report, **arguments) in a process of its own.

    Args:
        function: a function of a module of this package, as "module:function".
        arguments: its arguments, a dict that JSON can carry.
        on_progress: is called with what the function hands to report.
        environment: environment variables to set for it.

    Returns:
        What the function returns, as JSON carries it.

    Raises:
        TensorFlowError: the function raised one.
        ProcessDied: it ended in any other way than by returning.
    """
    with tempfile.TemporaryFile() as noise:
        child = _start(function, arguments, dict(_QUIET, **(environment or {})), noise)
        try:
            answer = _listen(child.stdout, on_progress)
            child.wait()
        finally:
            _stop(child)
        if not answer:
            raise ProcessDied(child.returncode, _last_lines(noise))
    return answer[0]


def _start(function, arguments, environment, noise):
    paths = [each for each in sys.path if isinstance(each, six.string_types)]
    command = [
        sys.executable,
        "-c",
        _START,
        os.pathsep.join(paths),
        function,
        json.dumps(arguments),
    ]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=noise,
        universal_newlines=True,
        env=dict(os.environ, **environment),
    )


def _listen(stream, on_progress):
    """Returns a list of the answer; an empty one where the stream ends without it."""
    answer = []
    for line in iter(stream.readline, ""):
        kind, value = json.loads(line)
        if kind == "error":
            raise getattr(errors, value["type"])(value["rule"], value["received"], value["remedy"])
        if kind == "answer":
            answer = [value]
        elif on_progress is not None:
            on_progress(value)
    return answer


def _stop(child):
    child.stdout.close()
    if child.poll() is None:
        child.terminate()
        child.wait()


def _last_lines(noise):
    noise.seek(0)
    lines = noise.read().decode("ascii", "replace").strip().splitlines()
    return "\n".join(lines[-_LAST_LINES:]).encode("ascii", "replace").decode("ascii")


def serve(function, arguments):
    """The child's part: calls the function and sends what it reports, returns or raises."""
    send = _sender()
    module, name = function.split(":")
    target = getattr(importlib.import_module(module), name)
    try:
        send("answer", target(lambda value: send("progress", value), **json.loads(arguments)))
    except errors.TensorFlowError as error:
        send("error", as_dict(error))


def _sender():
    """Keeps standard output for messages; what libraries print there joins the noise."""
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def send(kind, value):
        channel.write(json.dumps([kind, value]) + "\n")
        channel.flush()

    return send


def as_dict(error):
    """The attributes of a GradAccumError, as JSON can carry them."""
    return {
        "type": type(error).__name__,
        "rule": error.rule,
        "received": error.received,
        "remedy": error.remedy,
    }
