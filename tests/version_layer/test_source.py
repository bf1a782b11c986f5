"""What every source file keeps to: one reader of versions, two Pythons."""

from __future__ import absolute_import, division, print_function

import ast
import io
import os

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
PACKAGE = "gradaccum_compat"
FOLDERS = [PACKAGE, "tests", "examples", "legacy_examples", "benchmarks"]
ONLY_READER = os.path.join(PACKAGE, "_detect.py")
FUTURE = {"absolute_import", "division", "print_function"}

#: Where TensorFlow, Keras and the tools around them keep a version, as attribute or as imported
#: name.
VERSIONS = {
    "__version__",
    "__git_version__",
    "version",
    "versions",
    "VERSION",
    "GIT_VERSION",
    "VERSION_NUMBER",
    "get_distribution",
    "LooseVersion",
    "StrictVersion",
}
#: What says a version as a string too, in getattr or vars; `version` itself is also an everyday
#: word.
SPELLED = VERSIONS - {"version", "versions"}
#: Our own version is no secret.
OURS = {"ga", PACKAGE}


def python_files(*folders):
    """Paths of all Python files below these folders, relative to the tree's root."""
    found = [
        os.path.relpath(os.path.join(place, name), ROOT)
        for folder in folders
        for place, _, names in os.walk(os.path.join(ROOT, folder))
        for name in names
        if name.endswith(".py")
    ]
    return sorted(found)


def read(path):
    with io.open(os.path.join(ROOT, path), "rb") as source:
        return source.read()


def strings(node):
    """The string that a node is, in a list, or an empty list; Python 3.8 renamed the node."""
    text = (
        getattr(node, "value", None)
        if type(node).__name__ == "Constant"
        else getattr(node, "s", None)
    )
    return [text] if isinstance(text, str) else []


def names_read(node):
    """What one node of a syntax tree reads that could be a version."""
    if isinstance(node, ast.Attribute):
        return [] if getattr(node.value, "id", None) in OURS else [node.attr]
    if isinstance(node, ast.ImportFrom):
        return (
            []
            if node.module in OURS
            else (node.module or "").split(".") + [alias.name for alias in node.names]
        )
    if isinstance(node, ast.Import):
        return [part for alias in node.names for part in alias.name.split(".")]
    if isinstance(node, ast.Call):
        return [text for argument in node.args[1:2] for text in strings(argument)]
    return [text for text in strings(node) if text in SPELLED]


def version_reads(source):
    """The lines of a source at which a version is read."""
    return sorted(
        {node.lineno for node in ast.walk(ast.parse(source)) if VERSIONS & set(names_read(node))}
    )


@pytest.mark.parametrize(
    "line",
    [
        "tf.__version__",
        "tensorflow.__version__",
        "tensorflow.version.VERSION",
        "tf.version",
        "tf.VERSION",
        "tf.compat.v1.VERSION",
        "tf.__git_version__",
        "keras.__version__",
        "sys.modules['tensorflow'].__version__",
        "importlib.import_module('tensorflow').__version__",
        "getattr(tf, '__version__')",
        "getattr(tf, 'version')",
        "vars(tf)['__version__']",
        "from tensorflow import __version__",
        "from tensorflow import version as v",
        "import tensorflow.version",
        "from tensorflow.python.framework import versions",
        "from tensorflow.python.framework.versions import VERSION",
        "VERSION_NUMBER = x.VERSION_NUMBER",
        "importlib.metadata.version('tensorflow')",
        "from importlib.metadata import version",
        "pkg_resources.get_distribution('tensorflow')",
        "from pkg_resources import get_distribution",
        "from distutils.version import LooseVersion",
        "from packaging import version",
        "x = ga.backend().version",
    ],
)
def test_scan_sees(line):
    assert version_reads(line + "\n") == [1]


@pytest.mark.parametrize(
    "line",
    [
        "hasattr(tf.distribute.Strategy, 'run')",
        "__version__ = '0.1.0'",
        "ga.__version__",
        "sys.version_info",
        "parser.add_argument('--version', action='version')",
        "'the version that was found'",
        "detected.tensorflow_version",
        "from . import errors",
        "from gradaccum_compat import __version__",
    ],
)
def test_scan_lets_pass(line):
    assert version_reads(line + "\n") == []


@pytest.mark.parametrize("path", sorted(set(python_files(PACKAGE)) - {ONLY_READER}))
def test_reads_no_version(path):
    assert version_reads(read(path)) == []


def test_the_one_reader_reads_it():
    assert version_reads(read(ONLY_READER))


@pytest.mark.parametrize("path", [path for path in python_files(*FOLDERS) if read(path).strip()])
def test_means_the_same_on_python_2(path):
    imports = [node for node in ast.parse(read(path)).body if isinstance(node, ast.ImportFrom)]
    assert FUTURE <= {
        alias.name for node in imports if node.module == "__future__" for alias in node.names
    }


@pytest.mark.parametrize("path", python_files(*FOLDERS) + ["setup.py"])
def test_is_ascii_or_says_its_encoding(path):
    lines = read(path).splitlines()
    declared = any(b"coding:" in line or b"coding=" in line for line in lines[:2])
    assert declared or max(bytearray(read(path)) or [0]) < 128
