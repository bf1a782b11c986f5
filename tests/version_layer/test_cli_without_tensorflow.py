"""The command line where TensorFlow is missing, too old or broken. Nothing here may need TensorFlow
or NumPy."""

from __future__ import absolute_import, division, print_function

import json
import os
import re
import subprocess
import sys

import pytest

import gradaccum_compat as ga
from gradaccum_compat import cli
from gradaccum_compat.cli import demo, doctor, process, terminal

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
    process = subprocess.Popen(
        [sys.executable, "-m", "gradaccum_compat"] + list(arguments),
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
    )
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


@pytest.mark.parametrize(
    "command, option",
    [
        ("demo", "--micro-batches"),
        ("doctor", "--json"),
        ("record", "--follow"),
        ("compare", "--html"),
        ("matrix", "--tf"),
    ],
)
def test_each_command_has_help(command, option, tmpdir):
    tmpdir.join("tensorflow.py").write("raise SystemExit('imported')")
    code, output, problems = run([command, "--help"], tmpdir)
    assert (code, problems) == (0, "")
    assert option in output


@pytest.mark.parametrize("columns", ["60", "80", "100"])
def test_help_breaks_no_line_in_what_is_typed(monkeypatch, capsys, columns):
    monkeypatch.setenv("COLUMNS", columns)
    with pytest.raises(SystemExit):
        cli.main(["matrix", "--help"])
    output = capsys.readouterr()[0]
    assert '--args="--epochs 3"' in output and "(~/.cache/gradaccum-compat)" in output
    assert max(len(line) for line in output.splitlines()) <= int(columns)


@pytest.mark.parametrize(
    "arguments",
    [
        ["train"],
        ["demo", "--updates", "0"],
        ["demo", "--updates", "many"],
        ["demo", "--batch", "4", "--micro-batches", "5"],
        ["demo", "--micro-batches", "1"],
        ["demo", "--seed", "-1"],
        ["demo", "--seed", str(2**32)],
    ],
)
def test_wrong_arguments_exit_with_2_and_say_why(capsys, arguments):
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    output, problems = capsys.readouterr()
    assert (caught.value.code, output) == (2, "")
    assert re.search(r"error: .*(must be|invalid choice)", problems)


def test_the_exit_code_is_that_of_the_process():
    code, output, problems = run(["demo", "--updates", "0"])
    assert (code, output) == (2, "")
    assert problems.endswith("argument --updates: must be at least 1, not 0\n")


def test_the_version():
    assert run(["--version"]) == (0, "gradaccum-compat {}\n".format(ga.__version__), "")


def test_help_says_what_the_exit_codes_mean(capsys):
    for command in ([], ["demo"], ["doctor"], ["compare"], ["matrix"], ["record"]):
        with pytest.raises(SystemExit):
            cli.main(command + ["--help"])
        said = "those of COMMAND" if command == ["record"] else "0 if"
        assert "Exit codes: " + said in capsys.readouterr()[0]


def test_interrupted_is_130(monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(doctor, "main", interrupted)
    assert cli.main(["doctor"]) == 130


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
    assert (
        "NOT USABLE" in output and "RuntimeError: no libfoo" in output and "pip install" in output
    )


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
    with pytest.raises(process.ProcessDied) as caught:
        process.call("gradaccum_compat.cli.doctor:no_such_function", {})
    assert caught.value.status == 1
    assert "no_such_function" in caught.value.output


@pytest.mark.parametrize(
    "difference, code", [(0.0, 0), (1e-6, 0), (1.1e-6, 1), (float("inf"), 1), (float("nan"), 1)]
)
def test_only_rounding_counts_as_the_same_weights(difference, code):
    verdict, exit_code = demo.judge(difference)
    assert exit_code == code
    assert verdict.startswith("NOT the same" if code else "The same")


class Stream(object):
    """Remembers what is written to it."""

    def __init__(self, terminal=True):
        self.isatty = lambda: terminal
        self.flush = lambda: None
        self.written = ""

    def write(self, text):
        self.written += text


@pytest.fixture
def columns(monkeypatch):
    """A function that says how wide the terminal is."""
    return lambda number: monkeypatch.setenv("COLUMNS", str(number))


def test_the_bar_is_silent_where_there_is_no_terminal():
    stream = Stream(terminal=False)
    bar = terminal.Bar("big batch", "updates", stream)
    bar.show(1, 2)
    bar.clear()
    assert stream.written == ""


def test_the_bar_fills_and_leaves_nothing_behind(columns):
    columns(80)
    stream = Stream()
    bar = terminal.Bar("big batch", "updates", stream)
    bar.show(1, 2)
    shown = "big batch   [############------------] 1/2 updates"
    assert stream.written == "\r" + shown
    bar.clear()
    assert stream.written == "\r" + shown + "\r" + " " * len(shown) + "\r"


@pytest.mark.parametrize(
    "seconds, left", [(1, "8 s left"), (60, "8 min 00 s left"), (8.5, "1 min 08 s left")]
)
def test_the_bar_says_how_much_time_remains(columns, seconds, left):
    columns(80)
    stream, times = Stream(), iter([0, seconds])
    bar = terminal.Bar("big batch", "updates", stream, clock=lambda: next(times))
    bar.show(1, 10)
    bar.show(2, 10)
    assert stream.written.split("\r")[-1].endswith(" 2/10 updates, " + left)


@pytest.mark.parametrize("wide", [1, 10, 20, 30, 40, 51, 80])
def test_the_bar_is_no_wider_than_the_terminal(columns, wide):
    columns(wide)
    stream = Stream()
    terminal.Bar("big batch", "updates", stream).show(10, 20)
    assert 0 <= len(stream.written.lstrip("\r")) < wide


def test_a_shorter_line_hides_the_one_before(columns):
    columns(80)
    stream, times = Stream(), iter([0, 100, 200])
    bar = terminal.Bar("big batch", "updates", stream, clock=lambda: next(times))
    for done in (1, 2, 3):
        bar.show(done, 3)
    lines = stream.written.split("\r")[1:]
    assert len(lines[2]) == len(lines[1]) > len(lines[2].rstrip())


@pytest.mark.parametrize(
    "is_terminal, variables, coloured",
    [
        (True, {}, os.name != "nt"),
        (False, {}, False),
        (True, {"NO_COLOR": "1"}, False),
        (True, {"TERM": "dumb"}, False),
    ],
)
def test_colours_are_for_terminals_that_want_them(monkeypatch, is_terminal, variables, coloured):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    shown = terminal.painted("usable", "green", Stream(is_terminal))
    assert shown == ("\033[32musable\033[0m" if coloured else "usable")


def test_the_doctor_colours_the_findings_alone(monkeypatch):
    monkeypatch.setattr(terminal, "painted", lambda text, colour, stream: "<" + text + ">")
    lines = "keras  usable: Keras 3\nother  not usable: none is usable\n\nNothing is usable."
    assert doctor._painted(lines) == (
        "keras  <usable>: Keras 3\nother  <not usable>: none is usable\n\nNothing is usable."
    )


@pytest.mark.parametrize(
    "members, expected",
    [
        ({"_create_slots": 1}, doctor.KERAS_SLOTS),
        ({"build": 1}, doctor.KERAS_BUILDING),
        ({"build": 1, "stateless_apply": 1}, doctor.KERAS_3),
    ],
)
def test_a_keras_generation_is_told_by_what_its_optimizer_can_do(members, expected):
    assert doctor.generation(type("Optimizer", (object,), members)) == expected
