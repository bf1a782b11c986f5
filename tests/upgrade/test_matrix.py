"""gradaccum-compat matrix: pins, Pythons, rows that cannot run, and with GRADACCUM_MATRIX real
environments."""

from __future__ import absolute_import, division, print_function

import io
import json
import os
import re
import stat
import sys
import time

import pytest

from gradaccum_compat import cli, errors
from gradaccum_compat.upgrade import _environments, _pins, matrix

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
PROGRAM = os.path.join(os.path.dirname(HERE), "support", "matrix_program.py")
HAS_TENSORFLOW = os.environ.get("GRADACCUM_TF") != "none"

needs_shell = pytest.mark.skipif(
    os.name == "nt", reason="the Pythons of these tests are shell scripts"
)


# The pins are those of tox.ini


class Tox(object):
    """What tox.ini says of its rows; its factors and conditions, read in a few lines."""

    def __init__(self):
        with io.open(os.path.join(ROOT, "tox.ini"), encoding="utf-8") as stream:
            self._text = stream.read()
        default = re.search(r"^default = ((?:.*\\\n)*.*)", self._text, re.MULTILINE).group(1)
        full = re.findall(r"^\[testenv:(py.*)\]\nlabels = full$", self._text, re.MULTILINE)
        names = [
            each.strip()
            for part in [default] + full
            for each in re.split(r",(?![^{]*\})", part.replace("\\\n", ""))
        ]
        rows = [row for name in names for row in _expanded(name)]
        # With tf_keras or Horovod beside it, it is the same TensorFlow.
        rows = [re.sub("-(tfkeras|horovod)$", "", row) for row in rows]
        self.rows = [row for row in rows if re.match(r"py\d+-tf\d+(rc)?$", row)]

    def requirements(self, row):
        """The packages of a row without those that run its tests."""
        deps = re.search(r"^deps =\n((?:    .*\n)+)", self._text, re.MULTILINE).group(1)
        found = []
        for line in deps.splitlines():
            condition, colon, package = line.strip().partition(": ")
            if colon and not line.strip().startswith("#") and _holds(condition, row.split("-")):
                found.append(package)
        return sorted(each for each in found if not each.startswith(("pytest", "matplotlib")))


def _expanded(name):
    """A row's names, with each choice in braces."""
    match = re.search(r"\{([^}]*)\}", name)
    if match is None:
        return [name]
    return [
        row
        for choice in match.group(1).split(",")
        for row in _expanded(name[: match.start()] + choice.strip() + name[match.end() :])
    ]


def _holds(condition, factors):
    """Whether one of the alternatives has none of its negated factors and all of the others."""
    return any(
        all(
            (factor[1:] not in factors) if factor.startswith("!") else factor in factors
            for factor in alternative.split("-")
        )
        for alternative in _expanded(condition)
    )


def _factor(row):
    match = re.match(r"py(\d)(\d+)-tf(\d)(\d+)", row)
    return "{2}.{3}".format(*match.groups()), "{}.{}".format(*match.groups()[:2])


def test_each_row_of_tox_has_the_same_pins_here():
    tox = Tox()
    assert len(tox.rows) > 25
    for row in tox.rows:
        assert _pins.requirements(*_factor(row)) == tox.requirements(row), row


def test_no_combination_is_here_that_tox_does_not_prove():
    proved = set(map(_factor, Tox().rows))
    assert {(row.tensorflow, python) for row in _pins.ROWS for python in row.pythons} == proved


def test_virtualenv_is_the_one_that_tox_asks_for():
    with io.open(os.path.join(ROOT, "tox.ini"), encoding="utf-8") as stream:
        asked = re.search(r"^ +(virtualenv\S+)$", stream.read(), re.MULTILINE).group(1)
    with io.open(os.path.join(ROOT, "setup.py"), encoding="utf-8") as stream:
        assert '"matrix": ["{}"]'.format(asked) in stream.read()


# Pythons


def script(path, lines):
    """An executable shell script."""
    path.write("#!/bin/sh\n" + lines + "\n", ensure=True)
    os.chmod(str(path), os.stat(str(path)).st_mode | stat.S_IXUSR)
    return str(path)


@needs_shell
def test_a_python_is_found_on_the_path_and_one_that_is_another_is_not(tmpdir, monkeypatch):
    script(tmpdir.join("shims", "python9.8"), "exit 1")
    script(tmpdir.join("other", "python9.8"), "echo 9.7")
    right = script(tmpdir.join("bin", "python9.8"), "echo 9.8")
    folders = [str(tmpdir.join(each)) for each in ("shims", "other", "nowhere", "bin")]
    monkeypatch.setenv("PATH", os.pathsep.join(folders))
    assert _environments.find_python("9.8") == right and _environments.find_python("9.9") is None


@needs_shell
def test_the_newest_patch_is_found_among_those_of_pyenv(tmpdir, monkeypatch):
    for patch in ("9.8.2", "9.8.11", "9.80.1"):
        script(tmpdir.join("versions", patch, "bin", "python"), "echo 9.8")
    monkeypatch.setenv("PYENV_ROOT", str(tmpdir))
    assert _environments.find_python("9.8") == str(
        tmpdir.join("versions", "9.8.11", "bin", "python")
    )


# Rows


def environment(cache, python, tensorflow, lines):
    """An environment that is made already, whose Python is a shell script."""
    path = cache.join("py{}-tf{}".format(python.replace(".", ""), tensorflow))
    script(path.join("bin", "python"), lines)
    needed = _pins.requirements(tensorflow, python) + ["six>=1.12"]
    path.join("gradaccum-compat.json").write(json.dumps(needed))


#: The commands that a row calls: what each is told by is the first word after `-c PROGRAM`.
RECORDS = 'if [ "$3" = record ]; then echo "3 updates"; exit {code}; fi\necho \'{answer}\'\nexit 0'


def row_of(verdict, code=0):
    return RECORDS.format(
        code=code,
        answer=json.dumps(
            {
                "verdict": verdict,
                "first": None,
                "notes": [],
                "causes": [{"id": "clipping", "text": "Clipped."}],
            }
        ),
    )


def command_in(tmpdir):
    """The command, with its folders in this one."""
    folders = [str(tmpdir.join(name)) for name in ("cache", "records")]
    return ["matrix", PROGRAM, "--cache", folders[0], "--records", folders[1]]


@pytest.fixture
def called(tmpdir, monkeypatch, capfd):
    """Calls the command; returns its exit code and what it printed."""
    monkeypatch.setattr(_environments, "find_python", lambda version: None)

    def call(*arguments):
        code = cli.main(command_in(tmpdir) + list(arguments))
        return (code,) + tuple(capfd.readouterr())

    return call


@needs_shell
def test_all_the_same_is_exit_code_0(tmpdir, called):
    for python, tensorflow in (("3.7", "1.14"), ("3.8", "2.4")):
        environment(tmpdir.join("cache"), python, tensorflow, row_of("same"))
    code, out, _ = called("--tf", "1.14", "--tf", "2.4")
    assert code == 0
    assert "TensorFlow 1.14 on Python 3.7: recorded\n    3 updates" in out
    assert "TensorFlow 2.4 on Python 3.8: same" in out


@needs_shell
def test_one_that_differs_is_exit_code_1_with_its_cause(tmpdir, called):
    environment(tmpdir.join("cache"), "3.7", "1.14", row_of("same"))
    environment(tmpdir.join("cache"), "3.8", "2.4", row_of("different"))
    code, out, _ = called("--tf", "1.14", "--tf", "2.4", "--tf", "2.15")
    assert code == 1 and "2.4 on Python 3.8: different\n    clipping: Clipped." in out


@needs_shell
def test_a_missing_python_is_named_and_the_other_rows_run(tmpdir, called):
    environment(tmpdir.join("cache"), "3.8", "2.4", row_of("same"))
    environment(tmpdir.join("cache"), "3.13", "2.21", row_of("same"))
    code, out, _ = called("--tf", "2.4", "--tf", "1.14", "--tf", "2.21")
    assert code == 2 and "TensorFlow 2.21 on Python 3.13: same" in out
    assert "TensorFlow 1.14 runs on Python 3.7 or 3.6 or 2.7." in out and "pyenv install 3.7" in out


@needs_shell
def test_without_the_first_the_others_are_compared_with_the_next(tmpdir, called):
    environment(tmpdir.join("cache"), "3.8", "2.4", row_of("same"))
    environment(tmpdir.join("cache"), "3.13", "2.21", row_of("same"))
    code, out, _ = called("--tf", "1.14", "--tf", "2.4", "--tf", "2.21")
    assert (
        code == 2
        and "The others are compared with this one." in out
        and "2.21 on Python 3.13: same" in out
    )


@needs_shell
def test_a_program_that_fails_is_shown_with_its_last_lines(tmpdir, called):
    environment(tmpdir.join("cache"), "3.7", "1.14", row_of("same"))
    environment(tmpdir.join("cache"), "3.8", "2.4", row_of("same", code=3))
    code, out, _ = called("--tf", "1.14", "--tf", "2.4")
    assert code == 2 and "The program ended with exit code 3" in out and "3 updates" in out


@needs_shell
def test_each_run_has_a_folder_of_its_own(tmpdir, called):
    for python, tensorflow in (("3.7", "1.14"), ("3.8", "2.4")):
        environment(tmpdir.join("cache"), python, tensorflow, row_of("same"))
    for _ in range(2):
        called("--tf", "1.14", "--tf", "2.4")
    assert sorted(each.basename for each in tmpdir.join("records").listdir()) == ["run-1", "run-2"]


@needs_shell
@pytest.mark.skipif(not HAS_TENSORFLOW, reason="trains on the row's own TensorFlow")
def test_a_program_is_recorded_followed_and_compared(tmpdir, called, monkeypatch):
    monkeypatch.delenv("GRADACCUM_TF", raising=False)
    for python, tensorflow in (("3.7", "1.14"), ("3.8", "2.4")):
        environment(
            tmpdir.join("cache"), python, tensorflow, 'exec "{}" "$@"'.format(sys.executable)
        )
    code, out, _ = called("--tf", "1.14", "--tf", "2.4", "--map", "kernel:0=kernel:0")
    assert code == 0, out
    assert (
        "4 updates of accumulator" in out and tmpdir.join("records", "run-1", "tf-2.4.html").check()
    )


# What is refused


@pytest.mark.parametrize(
    "versions, match",
    [
        (["1.13", "2.4"], "the TensorFlows that this project is tested with"),
        (["2.4"], "two TensorFlows or more"),
        (["2.4", "2.4"], "each once"),
    ],
)
def test_versions_that_are_no_matrix_are_refused(called, versions, match):
    code, _, said = called(*[each for version in versions for each in ("--tf", version)])
    assert code == 2 and match in said


def test_a_program_that_is_no_file_is_refused(tmpdir):
    with pytest.raises(errors.OptionError, match="PROGRAM is a Python file"):
        matrix.Matrix(["1.14", "2.4"], str(tmpdir), [], str(tmpdir), str(tmpdir))


def test_without_virtualenv_the_extra_is_named(tmpdir, called, monkeypatch):
    monkeypatch.setitem(sys.modules, "virtualenv", None)
    monkeypatch.setattr(_environments, "find_python", lambda version: sys.executable)
    code, out, _ = called("--tf", "1.14", "--tf", "2.4")
    assert code == 2 and "pip install gradaccum_compat[matrix]" in out


def test_folders_that_cannot_be_made_are_refused_in_words(tmpdir, called, monkeypatch):
    monkeypatch.setitem(sys.modules, "virtualenv", sys)
    monkeypatch.setattr(_environments, "find_python", lambda version: sys.executable)
    tmpdir.join("cache").write("a file")
    code, out, _ = called("--tf", "1.14", "--tf", "2.4")
    assert code == 2 and "Pass another one with --cache." in out
    tmpdir.join("records").remove()
    tmpdir.join("records").write("a file")
    assert "Pass another one with --records." in called("--tf", "1.14", "--tf", "2.4")[2]


# Real environments


@pytest.mark.skipif(
    "GRADACCUM_MATRIX" not in os.environ, reason="makes three environments: GRADACCUM_MATRIX=1"
)
def test_from_an_empty_folder_1_14_2_4_and_2_21_train_the_same_and_the_second_time_is_quick(
    tmpdir, capfd
):
    command = command_in(tmpdir) + [
        "--tf",
        "1.14",
        "--tf",
        "2.4",
        "--tf",
        "2.21",
    ]
    assert cli.main(command) == 0
    assert capfd.readouterr()[0].count(": same") == 2
    began = time.time()
    assert cli.main(command + ["--args=--differ-on=2.2"]) == 1
    assert time.time() - began < 120
    assert "learning-rate" in capfd.readouterr()[0]
