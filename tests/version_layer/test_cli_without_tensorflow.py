"""The command line where TensorFlow is missing, too old or broken. Nothing here may need TensorFlow or NumPy."""

from __future__ import absolute_import, division, print_function

import json
import os
import subprocess
import sys

import pytest

from gradaccum_compat import _demo, _doctor, _process

BROKEN = {
    "missing": ("raise ImportError('No module named tensorflow')", "TensorFlowMissingError"),
    "old": ("__version__ = '1.13.2'", "TensorFlowUnsupportedError"),
    "future": ("__version__ = '3.0.0'", "TensorFlowUnsupportedError"),
    "raising": ("raise RuntimeError('no libfoo')", "TensorFlowBrokenError"),
    "empty": ("", "TensorFlowBrokenError"),
    "exiting": ("import os; os._exit(7)", "TensorFlowBrokenError"),
}


def run(arguments, first_on_path=None):
    """Runs the command line; returns its exit code, its output and its errors."""
    environment = dict(os.environ)
    if first_on_path is not None:
        paths = [str(first_on_path), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    process = subprocess.Popen([sys.executable, "-m", "gradaccum_compat.cli"] + list(arguments), env=environment,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
    output, problems = process.communicate()
    return process.returncode, output, problems


@pytest.fixture(params=sorted(BROKEN))
def broken(request, tmpdir):
    """A folder with a tensorflow that cannot be served, and the error that says so."""
    source, error = BROKEN[request.param]
    tmpdir.join("tensorflow.py").write(source)
    return tmpdir, error


def test_no_command_prints_help():
    code, output, problems = run([])
    assert (code, problems) == (0, "")
    assert "demo" in output and "doctor" in output


@pytest.mark.parametrize("command, option", [("demo", "--micro-batches"), ("doctor", "--json")])
def test_each_command_has_help(command, option, tmpdir):
    tmpdir.join("tensorflow.py").write("raise SystemExit('imported')")
    code, output, problems = run([command, "--help"], tmpdir)
    assert (code, problems) == (0, "")
    assert option in output


@pytest.mark.parametrize("arguments", [["train"], ["demo", "--updates", "0"], ["demo", "--updates", "many"],
                                       ["demo", "--batch", "4", "--micro-batches", "5"]])
def test_wrong_arguments_exit_with_2_and_say_why(arguments):
    code, output, problems = run(arguments)
    assert (code, output) == (2, "")
    assert "error: " in problems


def test_doctor_reports_the_typed_error_as_json(broken):
    code, output, problems = run(["doctor", "--json"], broken[0])
    report = json.loads(output)
    assert (code, problems) == (1, "")
    assert report["error"]["type"] == broken[1]
    assert report["error"]["rule"] in report["error"]["message"]
    assert report["python"]["version"].split(".")[0] == str(sys.version_info[0])


def test_doctor_says_what_is_wrong_in_words(tmpdir):
    tmpdir.join("tensorflow.py").write("raise RuntimeError('no libfoo')")
    code, output, problems = run(["doctor"], tmpdir)
    assert (code, problems) == (1, "")
    assert "NOT USABLE" in output and "RuntimeError: no libfoo" in output and "pip install" in output


@pytest.mark.skipif(os.name == "nt", reason="no signals")
def test_doctor_survives_a_tensorflow_that_needs_another_cpu(tmpdir):
    tmpdir.join("tensorflow.py").write("import os, signal; os.kill(os.getpid(), signal.SIGILL)")
    code, output, _ = run(["doctor"], tmpdir)
    assert code == 1
    assert "CPU instructions" in output


def test_demo_says_what_is_wrong_and_exits_with_1(tmpdir):
    tmpdir.join("tensorflow.py").write("__version__ = '1.13.2'")
    code, output, problems = run(["demo"], tmpdir)
    assert (code, output) == (1, "")
    assert "Received: TensorFlow 1.13.2." in problems


def test_a_process_that_dies_is_told_with_its_last_lines():
    with pytest.raises(_process.ProcessDied) as caught:
        _process.call("gradaccum_compat._doctor:no_such_function", {})
    assert caught.value.status == 1
    assert "no_such_function" in caught.value.output


@pytest.mark.parametrize("difference, code", [(0.0, 0), (1e-6, 0), (1.1e-6, 1), (float("inf"), 1), (float("nan"), 1)])
def test_only_rounding_counts_as_the_same_weights(difference, code):
    verdict, exit_code = _demo.judge(difference)
    assert exit_code == code
    assert verdict.startswith("NOT the same" if code else "The same")


class Stream(object):
    """Remembers what is written to it."""

    def __init__(self, terminal):
        self.isatty = lambda: terminal
        self.flush = lambda: None
        self.written = ""

    def write(self, text):
        self.written += text


def test_the_bar_is_silent_where_there_is_no_terminal():
    stream = Stream(terminal=False)
    bar = _demo.Bar("big batch", stream)
    bar.show(1, 2)
    bar.clear()
    assert stream.written == ""


def test_the_bar_fills_and_leaves_nothing_behind():
    stream = Stream(terminal=True)
    bar = _demo.Bar("big batch", stream)
    bar.show(1, 2)
    shown = "big batch   [############------------] 1/2 updates"
    assert stream.written == "\r" + shown
    bar.clear()
    assert stream.written == "\r" + shown + "\r" + " " * len(shown) + "\r"


@pytest.mark.parametrize("members, expected", [
    ({"_create_slots": 1}, _doctor.KERAS_SLOTS), ({"build": 1}, _doctor.KERAS_BUILDING),
    ({"build": 1, "stateless_apply": 1}, _doctor.KERAS_3)])
def test_a_keras_generation_is_told_by_what_its_optimizer_can_do(members, expected):
    assert _doctor.generation(type("Optimizer", (object,), members)) == expected
