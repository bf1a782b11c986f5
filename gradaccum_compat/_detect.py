"""The version-detection layer: the only reader of TensorFlow's version.

It answers which backend serves the TensorFlow at hand, and why. Everything else asks for the
feature that it needs, never for a version.
"""

from __future__ import absolute_import, division, print_function

import collections
import importlib
import re

import six

from gradaccum_compat import errors

#: The oldest version that a backend serves, the backend's name and module, and why it serves them.
Backend = collections.namedtuple("Backend", ["since", "name", "module", "why"])

#: A backend is one row, and serves every version from its own oldest to the next row's.
BACKENDS = (
    Backend(
        (1, 14),
        "tf1",
        "gradaccum_compat.backends.tf1_eager",
        "TensorFlow 1 from 1.14 on has resource variables and strategies, but not tf.Variable's"
        " later meaning",
    ),
    Backend(
        (2, 0),
        "tf2",
        "gradaccum_compat.backends.tf2",
        "TensorFlow 2, whose variables and tf.function every 2.x release shares",
    ),
)
#: Nobody can know what TensorFlow 3 will need.
NEWEST_MAJOR = 2
WANTED = "tensorflow>=1.14,<3"
INSTALL = (
    'Install one that is served: `pip install "{}"`. The README says which Python runs which.'
).format(WANTED)
REPAIR = 'Repair what this names, or install it anew: `pip install --force-reinstall "{}"`.'.format(
    WANTED
)


class Detected(collections.namedtuple("Detected", ["name", "tensorflow_version", "why"])):
    """The detection's answer: the backend's name, TensorFlow's version, and why the one serves the
    other."""

    __slots__ = ()

    def __str__(self):
        return "{} backend for TensorFlow {}: {}".format(*self)


def parse(version):
    """Returns (major, minor) of a release, a release candidate, a nightly or a vendor's build."""
    match = re.match(r"(\d+)\.(\d+)", str(version))
    if match is None:
        raise errors.TensorFlowBrokenError(
            "TensorFlow must say which version it is.", "version {!r}".format(version), REPAIR
        )
    return int(match.group(1)), int(match.group(2))


def choose(version):
    """Returns the Backend that serves a TensorFlow of this version."""
    parsed = parse(version)
    serving = [backend for backend in BACKENDS if backend.since <= parsed]
    if not serving or parsed[0] > NEWEST_MAJOR:
        raise errors.TensorFlowUnsupportedError(
            "gradaccum_compat serves TensorFlow 1.14 to the newest 2.x.",
            "TensorFlow {}".format(version),
            INSTALL,
        )
    return serving[-1]


def import_tensorflow():
    """Imports TensorFlow and returns it, or raises the one typed error that says what is wrong."""
    try:
        tensorflow = importlib.import_module("tensorflow")
    except Exception as cause:  # what a broken build raises is not limited to ImportError
        six.raise_from(_import_error(cause), cause)
    if getattr(tensorflow, "__version__", None) is None:
        raise errors.TensorFlowBrokenError(
            "TensorFlow must be whole.",
            "a `tensorflow` without a version, at {}".format(_place(tensorflow)),
            REPAIR,
        )
    return tensorflow


def _place(module):
    """Where a module was found: what an uninstall leaves behind is a folder without a file."""
    return getattr(module, "__file__", None) or ", ".join(getattr(module, "__path__", []))


def _import_error(cause):
    """A TensorFlowError for what `import tensorflow` raised; a missing dependency of it is a broken
    one."""
    if isinstance(cause, ImportError) and re.match(r"No module named '?tensorflow'?$", str(cause)):
        return errors.TensorFlowMissingError("TensorFlow must be installed.", str(cause), INSTALL)
    return errors.TensorFlowBrokenError(
        "The installed TensorFlow must import.",
        "{}: {}".format(type(cause).__name__, cause),
        REPAIR,
    )


def backend():
    """Says which backend serves here: a tuple of its name, TensorFlow's version and the reason.

    Raises:
        TensorFlowError: TensorFlow is missing, too old or broken; the subclass says which.

    Example:
        >>> print(ga.backend())
        tf2 backend for TensorFlow 2.21.0: TensorFlow 2, whose ...
    """
    version = import_tensorflow().__version__
    chosen = choose(version)
    return Detected(chosen.name, version, chosen.why)


def load_backend():
    """Returns the backend object for the TensorFlow at hand."""
    return importlib.import_module(choose(import_tensorflow().__version__).module).BACKEND


def numpy_version():
    """The version of NumPy, for a record."""
    return importlib.import_module("numpy").__version__
