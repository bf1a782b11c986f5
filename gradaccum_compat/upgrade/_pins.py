"""Which Pythons and packages each TensorFlow is run with: the combinations that the tests of this
project prove.

tox.ini has the same pins, and a test holds the two equal. No TensorFlow here.
"""

from __future__ import absolute_import, division, print_function

import collections

#: A TensorFlow of the matrix, the Pythons that it is proved on, best first, and its package.
Row = collections.namedtuple("Row", ["tensorflow", "pythons", "package"])

#: The last patch of each minor that imports. tensorflow-cpu is a third of tensorflow's size, and
#: begins with 2.1.
ROWS = (
    Row("1.14", ("3.7", "3.6", "2.7"), "tensorflow==1.14.0"),
    Row("1.15", ("3.7",), "tensorflow==1.15.5"),
    Row("2.0", ("3.7", "2.7"), "tensorflow==2.0.4"),
    Row("2.1", ("3.7", "2.7"), "tensorflow-cpu==2.1.4"),
    Row("2.2", ("3.8",), "tensorflow-cpu==2.2.3"),
    Row("2.3", ("3.8",), "tensorflow-cpu==2.3.4"),
    Row("2.4", ("3.8",), "tensorflow-cpu==2.4.4"),
    Row("2.5", ("3.9",), "tensorflow-cpu==2.5.3"),
    Row("2.6", ("3.9",), "tensorflow-cpu==2.6.5"),
    Row("2.7", ("3.9",), "tensorflow-cpu==2.7.4"),
    Row("2.8", ("3.10",), "tensorflow-cpu==2.8.4"),
    Row("2.9", ("3.10",), "tensorflow-cpu==2.9.3"),
    Row("2.10", ("3.10",), "tensorflow-cpu==2.10.1"),
    Row("2.11", ("3.10",), "tensorflow-cpu==2.11.1"),
    Row("2.12", ("3.11",), "tensorflow-cpu==2.12.1"),
    Row("2.13", ("3.11",), "tensorflow-cpu==2.13.1"),
    Row("2.14", ("3.11",), "tensorflow-cpu==2.14.1"),
    Row("2.15", ("3.11",), "tensorflow-cpu==2.15.1"),
    Row("2.16", ("3.12",), "tensorflow-cpu==2.16.2"),
    Row("2.17", ("3.12",), "tensorflow-cpu==2.17.1"),
    Row("2.18", ("3.12",), "tensorflow-cpu==2.18.1"),
    Row("2.19", ("3.12",), "tensorflow-cpu==2.19.1"),
    Row("2.20", ("3.13",), "tensorflow-cpu==2.20.0"),
    Row("2.21", ("3.13",), "tensorflow-cpu==2.21.0"),
    Row("2.22", ("3.13",), "tensorflow-cpu==2.22.0rc0"),
)
#: The packages that are others on one Python.
_PACKAGES = {
    ("2.0", "2.7"): "tensorflow==2.0.0",
    ("2.1", "2.7"): "tensorflow-cpu==2.1.0",
}
#: Pins that the wheels forgot: the first and the last TensorFlow that needs it, whether
#: Python 2.7 does, and whether another Python does.
_FORGOTTEN = (
    ("1.14", "1.14", True, True, "gast==0.2.2"),
    ("1.14", "1.14", False, True, "h5py<3"),
    ("1.14", "1.14", False, True, "numpy<1.19"),
    ("2.7", "2.11", False, True, "numpy<1.24"),
    ("1.14", "2.5", False, True, "protobuf<3.21"),
    ("1.14", "2.1", True, False, "grpcio<1.40"),
    ("1.14", "2.1", True, False, "h5py<3"),
    ("1.14", "2.1", True, False, "numpy<1.17"),
    ("1.14", "2.1", True, False, "protobuf<3.18"),
    ("2.0", "2.1", True, False, "requests-oauthlib<2"),
)


def row(tensorflow):
    """The Row of a TensorFlow such as "2.4", or None where none is proved."""
    return next((each for each in ROWS if each.tensorflow == tensorflow), None)


def requirements(tensorflow, python):
    """The requirements of a TensorFlow on a Python, both as "2.4": a sorted list."""
    needed = [_PACKAGES.get((tensorflow, python)) or row(tensorflow).package]
    for first, last, on_2, on_3, requirement in _FORGOTTEN:
        if _number(first) <= _number(tensorflow) <= _number(last) and (
            on_2 if python == "2.7" else on_3
        ):
            needed.append(requirement)
    return sorted(needed)


def _number(version):
    return tuple(int(each) for each in version.split("."))
