"""Importing gradaccum_compat costs nothing and drags nothing in."""

from __future__ import absolute_import, division, print_function

import pytest

HEAVY = ["keras", "numpy", "tensorflow", "tf_keras"]
MOST_SECONDS = 0.050

LOADED = "\nprint(json.dumps(sorted(set(sys.modules) & set({!r}))))".format(HEAVY)

IMPORT_SECONDS = """
import time
now = getattr(time, "perf_counter", time.time)  # Python 2.7 has no perf_counter
start = now()
import gradaccum_compat
print(json.dumps(now() - start))
"""


@pytest.fixture
def importable(sandbox):
    """A sandbox in which each heavy package could be imported, so that whoever tries is seen."""
    for name in HEAVY:
        sandbox.package(name, "__version__ = '2.0.0'")
    return sandbox


@pytest.mark.parametrize("name", HEAVY)
def test_a_heavy_import_would_be_seen(importable, name):
    assert importable.run("import " + name + LOADED) == [name]


@pytest.mark.parametrize(
    "statement",
    [
        "import gradaccum_compat",
        "from gradaccum_compat import errors",
        "from gradaccum_compat import backend",
        "import gradaccum_compat; dir(gradaccum_compat)",
    ],
)
def test_imports_nothing_heavy(importable, statement):
    assert importable.run(statement + LOADED) == []


def test_detection_imports_tensorflow_alone(importable):
    assert importable.run("import gradaccum_compat; gradaccum_compat.backend()" + LOADED) == [
        "tensorflow"
    ]


def test_importing_takes_under_50_milliseconds(sandbox):
    assert min(sandbox.run(IMPORT_SECONDS) for _ in range(5)) < MOST_SECONDS
