"""The version-detection layer: the only reader of TensorFlow's version.

It answers which backend serves the TensorFlow at hand, and why. Everything else asks for the
feature that it needs, never for a version.
"""

from __future__ import absolute_import, division, print_function

import collections
import importlib
import re

from gradaccum_compat import errors

OLDEST = (1, 14)
NEWEST_MAJOR = 2
INSTALL = ("Install one, for example `pip install tensorflow`, or `pip install tensorflow==1.14.0` on Python 2.7, 3.6 or 3.7. "
           "Every release from 1.14 on is served.")

Backend = collections.namedtuple("Backend", ["name", "module"])

#: A backend is one row: its name, its module, and the versions that it serves.
BACKENDS = (
    (Backend("tf1", "gradaccum_compat.backends.tf1_eager"), lambda version: version < (2, 0)),
    (Backend("tf2", "gradaccum_compat.backends.tf2"), lambda version: version >= (2, 0)),
)


class Detected(collections.namedtuple("Detected", ["name", "tensorflow_version", "why"])):
    """What was detected: the backend's name, TensorFlow's version, and why the one serves the other."""

    __slots__ = ()

    def __str__(self):
        return "{} backend for TensorFlow {}: {}".format(*self)


def parse(version):
    """Returns (major, minor) of a release, a release candidate, a nightly or a vendor's build."""
    match = re.match(r"(\d+)\.(\d+)", version if isinstance(version, str) else str(version or ""))
    if match is None:
        raise errors.TensorFlowBrokenError(
            "TensorFlow must say which version it is.", "version {!r}".format(version), "Reinstall it. " + INSTALL)
    return int(match.group(1)), int(match.group(2))


def choose(version):
    """Returns the Backend that serves a TensorFlow of this version, and the reason in words."""
    parsed = parse(version)
    if parsed < OLDEST or parsed[0] > NEWEST_MAJOR:
        raise errors.TensorFlowUnsupportedError(
            "gradaccum_compat serves TensorFlow 1.14 to the newest 2.x.", "TensorFlow {}".format(version), INSTALL)
    backend = next(backend for backend, serves in BACKENDS if serves(parsed))
    if backend.name == "tf1":
        return backend, "TensorFlow 1 from 1.14 on has resource variables and strategies, but not yet tf.Variable's 2.x meaning"
    return backend, "TensorFlow 2, whose variables and tf.function every 2.x release shares"


def import_tensorflow():
    """Imports TensorFlow and returns it, or raises the one typed error that says what is wrong."""
    try:
        tensorflow = importlib.import_module("tensorflow")
    except Exception as cause:  # what a broken build raises is not limited to ImportError
        raise _import_error(cause)
    if getattr(tensorflow, "__version__", None) is None:
        raise errors.TensorFlowBrokenError(
            "TensorFlow must be whole.", "a package `tensorflow` without a version, at {}".format(
                list(getattr(tensorflow, "__path__", []))), "Remove what is left of it and reinstall. " + INSTALL)
    return tensorflow


def _import_error(cause):
    """A TensorFlowError for what `import tensorflow` raised; a missing dependency of it is a broken one."""
    absent = isinstance(cause, ImportError) and re.match(r"No module named '?tensorflow'?$", str(cause))
    if absent:
        return errors.TensorFlowMissingError("TensorFlow must be installed.", "no module named tensorflow", INSTALL)
    return errors.TensorFlowBrokenError(
        "The installed TensorFlow must import.", "{}: {}".format(type(cause).__name__, cause), "Repair or reinstall it. " + INSTALL)


def backend():
    """What serves here: a tuple of the backend's name, TensorFlow's version and the reason.

    Raises:
        TensorFlowError: TensorFlow is missing, too old or broken; the subclass says which.

    Example:
        >>> print(ga.backend())                                     # doctest: +SKIP
        tf2 backend for TensorFlow 2.21.0: TensorFlow 2, whose ...
    """
    version = import_tensorflow().__version__
    chosen, why = choose(version)
    return Detected(chosen.name, version, why)


def load_backend():
    """Returns the backend object for the TensorFlow at hand."""
    chosen, _ = choose(import_tensorflow().__version__)
    return importlib.import_module(chosen.module).BACKEND
