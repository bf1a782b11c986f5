"""A row that got another TensorFlow than it names, or none, or a GPU row without a GPU, stops and says so."""

from __future__ import absolute_import, division, print_function

import os
import subprocess
import sys

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))


def outcome(**variables):
    """(exit code, output) of pytest in an environment with these variables."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GRADACCUM_")}
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", os.path.join(HERE, "test_public_names.py")],
        env=dict(clean, **variables), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)
    output, _ = process.communicate()
    return process.returncode, output


#: What an environment is called that forgot its TensorFlow, and what the right one begins with: 2.2 for 2.21.
OTHERS = ["unnamed", os.environ.get("GRADACCUM_TF", "9.9x")[:-1]]


@pytest.mark.parametrize("named", OTHERS)
def test_another_tensorflow_than_the_named_one(named):
    code, output = outcome(GRADACCUM_TF=named)
    assert code not in (0, 5)
    assert "wrong environment" in output and named in output


@pytest.mark.parametrize("name", ["py37-tf114-gpv", "py37-tf2.4", "py312-tf218-tf-keras"])
def test_a_misspelt_factor(name):
    code, output = outcome(TOX_ENV_NAME=name)
    assert code not in (0, 5)
    assert "wrong environment" in output and "no factor" in output


@pytest.mark.skipif(not os.environ.get("GRADACCUM_TF", "none")[0].isdigit() or "GRADACCUM_GPU" in os.environ,
                    reason="for rows with a TensorFlow and without a GPU")
def test_a_gpu_row_without_a_gpu():
    code, output = outcome(GRADACCUM_TF=os.environ["GRADACCUM_TF"], GRADACCUM_GPU="1", CUDA_VISIBLE_DEVICES="")
    assert code not in (0, 5)
    assert "GPU" in output and "wrong environment" in output


@pytest.mark.skipif(not os.environ.get("GRADACCUM_TF", "none")[0].isdigit() or "GRADACCUM_HOROVOD" in os.environ,
                    reason="for rows with a TensorFlow and without Horovod")
def test_a_horovod_row_without_horovod():
    code, output = outcome(GRADACCUM_TF=os.environ["GRADACCUM_TF"], GRADACCUM_HOROVOD="1")
    assert code not in (0, 5)
    assert "Horovod" in output and "wrong environment" in output


@pytest.mark.skipif(not os.environ.get("GRADACCUM_TF", "none")[0].isdigit(), reason="for rows with a TensorFlow")
def test_a_tensorflow_where_none_should_be():
    code, output = outcome(GRADACCUM_TF="none")
    assert code not in (0, 5)
    assert "none should be" in output
