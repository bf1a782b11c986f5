"""Which backend serves which TensorFlow, and which TensorFlow is refused."""

from __future__ import absolute_import, division, print_function

import io
import os

import pytest

from gradaccum_compat import _detect

TF1 = ["1.14.0", "1.14.1-dev20190601", "1.15.0-rc3", "1.15.5", "1.15.5+nv23.03"]
TF2 = [
    "2.0.0-alpha0",
    "2.0.4",
    "2.4.1+nv",
    "2.10.1",
    "2.21.0",
    # A release candidate and a nightly, each as TensorFlow itself and as its wheel spell it.
    "2.22.0rc0",
    "2.22.0-rc0",
    "2.23.0.dev20261026",
    "2.23.0-dev20261026",
    "2.99.0",
]
REFUSED = [
    "0.12",
    "0.12.1",
    "1.2.1",
    "1.9.0",
    "1.13.2",
    "3.0.0",
    "3.0.0-dev20300101",
    "10.1.0",
    "20.14.0",
]


def says(version):
    return "__version__ = {!r}".format(version)


@pytest.mark.parametrize(
    "name, version", [("tf1", each) for each in TF1] + [("tf2", each) for each in TF2]
)
def test_is_served(sandbox, name, version):
    value = sandbox.detect(says(version))["value"]
    assert value[:2] == [name, version]
    assert value[2].startswith("TensorFlow " + version[0])


@pytest.mark.parametrize("version", REFUSED)
def test_is_refused_with_what_was_found_and_what_to_install(sandbox, version):
    outcome = sandbox.detect(says(version))
    assert outcome["error"] == "TensorFlowUnsupportedError" and outcome["typed"]
    assert outcome["received"] == "TensorFlow " + version
    assert 'pip install "tensorflow>=1.14,<3"' in outcome["remedy"]


def test_reads_as_one_sentence():
    detected = _detect.Detected("tf2", "2.21.0", "it is so")
    assert str(detected) == "tf2 backend for TensorFlow 2.21.0: it is so"


def test_rows_go_from_old_to_new():
    since = [row.since for row in _detect.BACKENDS]
    assert since == sorted(set(since))


@pytest.mark.parametrize("row", _detect.BACKENDS, ids=lambda row: row.name)
def test_row_has_a_module_with_its_backend(root, row):
    with io.open(os.path.join(root, *row.module.split(".")) + ".py", encoding="utf-8") as source:
        assert "\nBACKEND = " in source.read()


def test_load_backend_takes_it_from_the_row(sandbox):
    sandbox.package("tensorflow", says("2.99.0"))
    sandbox.package("far", "BACKEND = 'the far one'")
    assert sandbox.run("""
from gradaccum_compat import _detect
_detect.BACKENDS += (_detect.Backend((2, 50), "far", "far", "later"),)
print(json.dumps(_detect.load_backend()))
""") == "the far one"
