"""Sets TensorFlow up for the tests, and stops at once when it is not the one that the row means."""

from __future__ import absolute_import, division, print_function

import gc
import os
import sys

import pytest

from support import devices, rows

#: What only some rows can run: two environments at once, as the row `crossversion` has them,
#: Horovod, and tools that build packages or the site or check types.
collect_ignore = [
    folder
    for folder, is_here in [
        ("cross_version", "GRADACCUM_OLD" in os.environ),
        ("package", "GRADACCUM_ROWS" in os.environ),
        ("browser", "docs" in rows.factors()),
        ("types", "types" in rows.factors()),
        ("with_horovod", "horovod" in rows.factors()),
    ]
    if not is_here
]


def pytest_configure(config):
    """Stops unless this environment is what the row's name says.

    A misspelt factor would otherwise test whatever is installed, and report success.
    """
    try:
        meant = rows.meant()
    except ValueError as error:
        return _stop_unless(False, str(error))
    tf = _tensorflow()
    if meant == "none":
        return _stop_unless(tf is None, "a TensorFlow is installed where none should be")
    if meant is None and tf is None:
        return None
    _stop_unless(
        tf is not None, "TensorFlow {} should be installed and does not import".format(meant)
    )
    if meant is not None:
        found = _version(tf)
        _stop_unless(
            found.split(".")[:2] == meant.split("."),
            "TensorFlow {} is installed where {} should be".format(found, meant),
        )
    devices.set_up(tf)
    for factor, module in [("tfkeras", "tf_keras"), ("horovod", "horovod.tensorflow")]:
        _stop_unless(
            factor not in rows.factors() or _imports(module),
            "{} should be installed and does not import".format(module),
        )
    _stop_unless(
        "gpu" not in rows.factors() or bool(tf.config.experimental.list_physical_devices("GPU")),
        "a GPU environment found no GPU, and must not pass on the CPU",
    )


@pytest.fixture(autouse=True, scope="module")
def _garbage():
    """Collects what a module leaves; while it runs there is no collection: see support/devices."""
    yield
    gc.collect()


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


@pytest.fixture(autouse=True)
def _same_random_numbers():
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(0)


@pytest.fixture
def small_elements(request):
    """The number of elements up to which a sum is a small one, which is kept in another way.

    The tests' variables are all tiny, so it is 2, or what the mode says that a case runs in.
    """
    callspec = getattr(request.node, "callspec", None)
    return getattr(callspec and callspec.params.get("mode"), "small", 2)


@pytest.fixture(autouse=True)
def _sums_of_both_sizes(small_elements, monkeypatch):
    if "tensorflow" in sys.modules:
        from support import small_sums

        small_sums.patch(monkeypatch, small_elements)
