"""What a figure was measured on: the processor and the versions, and nothing that says whose
machine it is."""

from __future__ import absolute_import, division, print_function

import multiprocessing
import platform


def description():
    import numpy
    import tensorflow as tf

    import gradaccum_compat as ga

    return {
        "tensorflow": ga.backend().tensorflow_version,
        "keras": _keras(tf),
        "numpy": numpy.__version__,
        "python": platform.python_version(),
        "cpu": _model(),
        "cpus": multiprocessing.cpu_count(),
        "system": platform.system(),
        "packages": _packages("gradient_accumulator", "transformers"),
    }


def _keras(tf):
    version = getattr(tf.keras, "version", None)
    return version() if callable(version) else getattr(tf.keras, "__version__", "of TensorFlow")


def _packages(*names):
    """The versions of the other packages that are compared, where they are installed."""
    try:
        from importlib import metadata
    except ImportError:  # before Python 3.8
        return {}
    found = {}
    for name in names:
        try:
            found[name] = metadata.version(name.replace("_", "-"))
        except metadata.PackageNotFoundError:
            pass
    return found


def _model():
    try:
        with open("/proc/cpuinfo") as stream:
            return next(
                line.split(":", 1)[1].strip() for line in stream if line.startswith("model name")
            )
    except (IOError, StopIteration):
        return platform.processor() or platform.machine()
