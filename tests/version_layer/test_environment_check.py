"""A row that got another TensorFlow than it names, or none, or a GPU row without a GPU, stops and says so."""

from __future__ import absolute_import, division, print_function

import os
import subprocess
import sys

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
CONFTEST = os.path.join(os.path.dirname(HERE), "conftest.py")
ROW = os.environ.get("GRADACCUM_TF", "none")


def test_pytest_stops_with_an_error():
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GRADACCUM_")}
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", os.path.join(HERE, "test_public_names.py")],
        env=dict(clean, GRADACCUM_TF="unnamed"),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)
    output, _ = process.communicate()
    assert process.returncode not in (0, 5)
    assert "wrong environment" in output and "unnamed" in output


@pytest.fixture
def said(request, monkeypatch):
    """A function that returns what the tests say before they stop, in an environment with these variables."""
    conftest = next(each for each in request.config.pluginmanager.get_plugins()
                    if os.path.splitext(getattr(each, "__file__", None) or "")[0] == CONFTEST[:-3])
    monkeypatch.setattr(conftest, "set_up", lambda tf: None)  # this process is, and takes it once

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


#: What an environment is called that forgot its TensorFlow, and what the right one begins with: 2.2 for 2.21.
@pytest.mark.parametrize("named", ["unnamed", os.environ.get("GRADACCUM_TF", "9.9x")[:-1]])
def test_another_tensorflow_than_the_named_one(said, named):
    assert named in said(GRADACCUM_TF=named)


@pytest.mark.parametrize("name", ["py37-tf114-gpv", "py37-tf2.4", "py312-tf218-tf-keras"])
def test_a_misspelt_factor(said, name):
    assert "no factor" in said(TOX_ENV_NAME=name)


@pytest.mark.skipif(not ROW[0].isdigit() or "GRADACCUM_GPU" in os.environ,
                    reason="for rows with a TensorFlow and without a GPU")
def test_a_gpu_row_without_a_gpu(said):
    assert "GPU" in said(GRADACCUM_TF=ROW, GRADACCUM_GPU="1")


@pytest.mark.skipif(not ROW[0].isdigit() or "GRADACCUM_HOROVOD" in os.environ,
                    reason="for rows with a TensorFlow and without Horovod")
def test_a_horovod_row_without_horovod(said):
    assert "Horovod" in said(GRADACCUM_TF=ROW, GRADACCUM_HOROVOD="1")


@pytest.mark.skipif(not ROW[0].isdigit(), reason="for rows with a TensorFlow")
def test_a_tensorflow_where_none_should_be(said):
    assert "none should be" in said(GRADACCUM_TF="none")
