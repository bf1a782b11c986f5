"""TensorFlow missing, unsupported or broken is one typed error, whichever public name is touched
first."""

from __future__ import absolute_import, division, print_function

import sys

import pytest

MISSING = "TensorFlowMissingError"
UNSUPPORTED = "TensorFlowUnsupportedError"
BROKEN = "TensorFlowBrokenError"

#: What a TensorFlow that does not work is made of, and what the message must quote of it.
BROKEN_SOURCES = [
    ("raise ImportError('libcublas.so.10.0: cannot open shared object file')", "libcublas.so.10.0"),
    ("raise ImportError(\"No module named 'google.protobuf'\")", "google.protobuf"),
    ("import tensorflow.python", "python"),
    ("from tensorflow import core", "core"),
    ("raise TypeError('Descriptors cannot not be created directly.')", "TypeError: Descriptors"),
    ("import sys; sys.no_such_thing", "AttributeError"),
    ("def broken(:", "SyntaxError"),
    ("raise OSError(8, 'Exec format error')", "Exec format error"),
    ("", "without a version"),
    ("__version__ = None", "without a version"),
    ("__version__ = ''", "version ''"),
    ("__version__ = 'unknown'", "version 'unknown'"),
    ("__version__ = '2'", "version '2'"),
    ("__version__ = (2, 4, 1)", "version (2, 4, 1)"),
]

TOUCHES = [
    "import gradaccum_compat as ga; value = ga.backend()",
    "import gradaccum_compat as ga; value = ga.Accumulator",
    "from gradaccum_compat import Accumulator as value",
    "import gradaccum_compat as ga; value = hasattr(ga, 'no_such_name') or ga.Accumulator",
]


def assert_told(outcome, error, received):
    """The error is of this type, carries its three parts, and quotes what was found and a pip
    command."""
    assert (outcome["error"], outcome["typed"]) == (error, True)
    assert outcome["rule"] and received in outcome["received"]
    assert "`pip install " in outcome["remedy"] and '"tensorflow>=1.14,<3"`' in outcome["remedy"]
    assert all(outcome[part] in outcome["message"] for part in ("rule", "received", "remedy"))


@pytest.mark.parametrize("statement", TOUCHES)
def test_missing(sandbox, statement):
    assert_told(sandbox.outcome(statement), MISSING, "tensorflow")


@pytest.mark.parametrize("statement", TOUCHES)
def test_unsupported(sandbox, statement):
    sandbox.package("tensorflow", "__version__ = '1.13.2'")
    assert_told(sandbox.outcome(statement), UNSUPPORTED, "TensorFlow 1.13.2")


@pytest.mark.parametrize("statement", TOUCHES)
def test_broken(sandbox, statement):
    sandbox.package(
        "tensorflow", "raise ImportError('libcublas.so.10.0: cannot open shared object file')"
    )
    assert_told(sandbox.outcome(statement), BROKEN, "ImportError: libcublas.so.10.0")


@pytest.mark.parametrize("source, received", BROKEN_SOURCES)
def test_broken_in_this_way(sandbox, source, received):
    assert_told(sandbox.detect(source), BROKEN, received)


def test_folder_that_an_uninstall_left_behind(sandbox):
    # Python 2 has no namespace packages: there such a folder is no package at all.
    error = MISSING if sys.version_info[0] == 2 else BROKEN
    received = "tensorflow" if error == MISSING else str(sandbox.folder.join("tensorflow"))
    assert_told(sandbox.detect(None), error, received)


def test_file_of_the_users_own_with_that_name(sandbox):
    sandbox.folder.join("tensorflow.py").write("print\n")
    assert_told(sandbox.outcome(TOUCHES[0]), BROKEN, str(sandbox.folder.join("tensorflow.py")))


def test_is_said_again_at_the_next_try(sandbox):
    first = (
        "import gradaccum_compat as ga\n    try: ga.Accumulator\n    except errors.TensorFlowError:"
        " pass\n    "
    )
    assert_told(sandbox.outcome(first + "value = ga.Accumulator"), MISSING, "tensorflow")


def test_installing_one_mends_it_without_a_new_process(sandbox):
    sandbox.package("later")
    sandbox.folder.join("later").mkdir("tensorflow").join("__init__.py").write(
        "__version__ = '2.21.0'"
    )
    first = "import gradaccum_compat as ga\n    try: ga.backend()\n    except ImportError: "
    assert sandbox.outcome(first + "sys.path.append('later')\n    value = ga.backend()")["value"][
        :2
    ] == ["tf2", "2.21.0"]


def test_keeps_the_cause_on_python_3(sandbox):
    sandbox.package("tensorflow", "raise TypeError('Descriptors')")
    code = "import gradaccum_compat as ga\ntry: ga.backend()\nexcept ImportError as error: "
    cause = sandbox.run(code + "print(json.dumps(repr(getattr(error, '__cause__', None))))")
    assert cause.startswith("TypeError") or sys.version_info[0] == 2


def test_an_interrupt_is_not_swallowed(sandbox):
    sandbox.package("tensorflow", "raise KeyboardInterrupt")
    code = "import gradaccum_compat as ga\ntry: ga.backend()\nexcept KeyboardInterrupt: "
    assert sandbox.run(code + "print(json.dumps('interrupted'))") == "interrupted"
