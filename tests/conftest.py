"""Sets TensorFlow up for the tests, and stops at once when it is not the one that the environment names.

tox says in GRADACCUM_TF which TensorFlow an environment means to test: `1.14`, `2.21`, ..., or `none`.
A misspelt factor would otherwise test whatever happens to be installed, and report success.
"""

from __future__ import absolute_import, division, print_function

import gc
import os
import re
import sys

import pytest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

LOGICAL_CPUS = 4

#: What tox's environments are named from. Its own answer to a misspelt `-gpu` is a row without that factor.
FACTOR = re.compile(r"py\d+|tf\d+(rc)?|notf|gpu|tfkeras|horovod|crossversion|None")

#: These need two environments at once, which tox's row `crossversion` names, and Horovod, which its own rows have.
collect_ignore = [folder for folder, variable in [("cross_version", "GRADACCUM_OLD"), ("with_horovod", "GRADACCUM_HOROVOD")]
                  if variable not in os.environ]


def pytest_configure(config):
    for factor in os.environ.get("TOX_ENV_NAME", "None").split("-"):
        _stop_unless(re.match("({})$".format(FACTOR.pattern), factor), "tox.ini has no factor {!r}".format(factor))
    named = os.environ.get("GRADACCUM_TF")
    if named == "none":
        return _stop_unless(_tensorflow() is None, "a TensorFlow is installed where none should be")
    tf = _tensorflow()
    if named is None and tf is None:
        return None
    _stop_unless(tf is not None, "TensorFlow {} should be installed and does not import".format(named))
    if named is not None:
        found = _version(tf)
        _stop_unless(found.split(".")[:2] == named.split(".")[:2],
                     "TensorFlow {} is installed where {} should be".format(found, named))
    set_up(tf)
    if os.environ.get("GRADACCUM_TF_KERAS"):
        _stop_unless(_imports("tf_keras"), "tf_keras should be installed and does not import")
    if os.environ.get("GRADACCUM_HOROVOD"):
        _stop_unless(_imports("horovod.tensorflow"), "Horovod should be installed and does not import")
    if os.environ.get("GRADACCUM_GPU"):
        _stop_unless(bool(tf.config.experimental.list_physical_devices("GPU")),
                     "a GPU environment found no GPU, and must not pass on the CPU")


def pytest_report_header(config):
    tf = sys.modules.get("tensorflow")
    return "tensorflow: {}".format(_version(tf) if tf else "none")


def _tensorflow():
    try:
        import tensorflow
    except ImportError:
        return None
    return tensorflow


def _imports(name):
    try:
        __import__(name)
    except ImportError:
        return False
    return True


def _version(tf):
    return tf.__version__


def _stop_unless(condition, message):
    if not condition:
        pytest.exit("wrong environment: " + message, returncode=4)


def set_up(tf):
    """Eager execution on every TensorFlow, several logical CPUs, and no chatter."""
    # Going over the many objects of a graph again and again took a tenth of the time on TF 1.14.
    gc.set_threshold(50000, 20, 50)
    tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.ERROR)
    if not tf.executing_eagerly():
        config = tf.compat.v1.ConfigProto(device_count={"CPU": LOGICAL_CPUS})
        tf.compat.v1.enable_eager_execution(config=config)
        return
    experimental = tf.config.experimental
    cpu = experimental.list_physical_devices("CPU")[0]
    experimental.set_virtual_device_configuration(
        cpu, [experimental.VirtualDeviceConfiguration() for _ in range(LOGICAL_CPUS)])


@pytest.fixture(autouse=True)
def _same_random_numbers():
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(0)


@pytest.fixture(autouse=True)
def _sums_of_both_sizes(request, monkeypatch):
    """Small sums and large ones are kept in different ways, and the tests' variables are all tiny.

    So those of up to two elements are small, and in the cases that run in tf.functions none is.
    """
    if "tensorflow" in sys.modules:
        from gradaccum_compat import _layout
        mode = getattr(request.node, "callspec", None) and request.node.callspec.params.get("mode")
        monkeypatch.setattr(_layout, "SMALL", 0 if getattr(mode, "__name__", None) == "Function" else 2)
