"""A row that got another TensorFlow than it names, or none, or a GPU row without a GPU, stops and
says so."""

from __future__ import absolute_import, division, print_function

import os
import subprocess
import sys

import pytest

from support import processes, rows

HERE = os.path.dirname(os.path.abspath(__file__))
CONFTEST = os.path.join(os.path.dirname(HERE), "conftest.py")
ROW = rows.meant() or "none"


def test_pytest_stops_with_an_error():
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            os.path.join(HERE, "test_public_names.py"),
        ],
        env=processes.environment(GRADACCUM_TF="unnamed"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        universal_newlines=True,
    )
    output, _ = process.communicate()
    assert process.returncode not in (0, 5)
    assert "wrong environment" in output and "unnamed" in output


@pytest.fixture
def said(request, monkeypatch):
    """A function that returns what the tests say before they stop, in an environment with these
    variables."""
    conftest = next(
        each
        for each in request.config.pluginmanager.get_plugins()
        if os.path.splitext(getattr(each, "__file__", None) or "")[0] == CONFTEST[:-3]
    )
    # This process is set up already, and TensorFlow takes that once.
    monkeypatch.setattr(conftest.devices, "set_up", lambda tf: None)

    def configure(**variables):
        for name in list(os.environ):
            if name.startswith("GRADACCUM_") or name == "TOX_ENV_NAME":
                monkeypatch.delenv(name)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(pytest.exit.Exception) as caught:
            conftest.pytest_configure(None)
        assert "wrong environment" in str(caught.value)
        return str(caught.value)

    return configure


@pytest.mark.parametrize(
    "row, tensorflow",
    [
        ("py37-tf114", "1.14"),
        ("py37-tf20", "2.0"),
        ("py310-tf210-gpu", "2.10"),
        ("py313-tf222rc", "2.22"),
        ("py27-notf", "none"),
        ("", None),
    ],
)
def test_the_row_s_name_says_which_tensorflow(monkeypatch, row, tensorflow):
    monkeypatch.delenv("GRADACCUM_TF", raising=False)
    monkeypatch.setenv("TOX_ENV_NAME", row)
    assert rows.meant() == tensorflow


#: 2.2 is not 2.21.
@pytest.mark.parametrize("named", ["9.9", ROW[:-1]])
def test_another_tensorflow_than_the_named_one(said, named):
    assert named in said(GRADACCUM_TF=named)


def test_another_tensorflow_than_the_row_names(said):
    assert "9.9 should be" in said(TOX_ENV_NAME="py37-tf99")


@pytest.mark.parametrize("name", ["py37-tf114-gpv", "py37-tf2.4", "py312-tf218-tf-keras"])
def test_a_misspelt_factor(said, name):
    assert "no factor" in said(TOX_ENV_NAME=name)


def test_a_row_that_names_no_tensorflow(said):
    assert "py37 names no TensorFlow" in said(TOX_ENV_NAME="py37")


@pytest.mark.skipif(
    not ROW[0].isdigit() or "gpu" in rows.factors(),
    reason="for rows with a TensorFlow and without a GPU",
)
def test_a_gpu_row_without_a_gpu(said):
    assert "GPU" in said(TOX_ENV_NAME="gpu", GRADACCUM_TF=ROW)


@pytest.mark.skipif(
    not ROW[0].isdigit() or "horovod" in rows.factors(),
    reason="for rows with a TensorFlow and without Horovod",
)
def test_a_horovod_row_without_horovod(said):
    assert "horovod" in said(TOX_ENV_NAME="horovod", GRADACCUM_TF=ROW)


@pytest.mark.skipif(not ROW[0].isdigit(), reason="for rows with a TensorFlow")
def test_a_tensorflow_where_none_should_be(said):
    assert "none should be" in said(TOX_ENV_NAME="py37-notf")
