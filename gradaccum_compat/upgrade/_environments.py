"""The environments of the matrix: found, made with virtualenv where they are missing, and kept.

Neither TensorFlow nor NumPy is needed here: each environment has its own.
"""

from __future__ import absolute_import, division, print_function

import collections
import glob
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time

import six

from gradaccum_compat import errors
from gradaccum_compat.upgrade import _pins

#: Prints the version of an environment's TensorFlow.
_DETECT = "from gradaccum_compat import _detect; print(_detect.backend().tensorflow_version)"
#: Runs a command of this package under another Python, whatever its modules are called there.
_COMMAND = "import sys; from gradaccum_compat.cli import main; sys.exit(main())"
_MARK = "gradaccum-compat.json"
#: Set by TensorFlow 2 for its own children, and by Pythons for themselves: another one must not see
#:     them.
_NOT_INHERITED = ("TF2_BEHAVIOR", "PYTHONHOME", "__PYVENV_LAUNCHER__")
_NUMBER = "import sys; print('%d.%d' % sys.version_info[:2])"

#: Such as "3.8", and the path of its program.
Python = collections.namedtuple("Python", ["number", "path"])


def find_python(version):
    """The path of a Python of this version, such as "3.8": on PATH, or among pyenv's; None if there
    is none."""
    candidates = [sys.executable] if version == "{}.{}".format(*sys.version_info) else []
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        candidates.append(os.path.join(folder, "python" + version))
    roots = [os.environ.get("PYENV_ROOT"), os.path.join(os.path.expanduser("~"), ".pyenv")]
    for root in filter(None, roots):
        found = glob.glob(os.sep.join([root, "versions", version + ".*", "bin", "python"]))
        candidates += sorted(found, key=_patch, reverse=True)
    # pyenv's shims are there for Pythons that are not: so each is asked.
    return next((each for each in candidates if os.path.isfile(each) and _is(each, version)), None)


def _patch(path):
    found = re.findall(r"(\d+)\.(\d+)\.(\d+)", path)
    return tuple(int(each) for each in found[-1]) if found else ()


def _is(path, version):
    try:
        process = subprocess.Popen(
            [path, "-c", _NUMBER], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        said = process.communicate()[0].decode("ascii", "replace").strip()
    except EnvironmentError:
        return False
    return process.returncode == 0 and said == version


def make_folder(path, rule, option):
    """Makes a folder.

    Raises:
        OptionError: it cannot be made; says the rule, and the option that names another one.
    """
    try:
        os.makedirs(path)
    except EnvironmentError as error:
        raise errors.OptionError(rule, str(error), "Pass another one with {}.".format(option))


class Environments(object):
    """The environments below one folder, made where they are missing.

    Args:
        folder: where they are kept.
        packages: what pip installs besides TensorFlow.
        say: called with each line of progress.
    """

    def __init__(self, folder, packages, say):
        self._folder, self._packages, self._say = os.path.abspath(folder), sorted(packages), say
        self._package = None

    def of(self, row):
        """The Python of a row's environment, which is made if it is not there."""
        missing = None
        for version in row.pythons:
            path = os.path.join(
                self._folder, "py{}-tf{}".format(version.replace(".", ""), row.tensorflow)
            )
            python = Python(version, _python_of(path))
            needed = _pins.requirements(row.tensorflow, version) + ["six>=1.12"] + self._packages
            if _mark_of(path) == needed and os.path.exists(python.path):
                self._say("  environment: {}".format(path))
                return python
            base = find_python(version)
            if base is not None:
                self._make(path, base, needed, row, python)
                return python
            missing = missing or version
        raise errors.OptionError(
            "TensorFlow {} runs on Python {}.".format(row.tensorflow, " or ".join(row.pythons)),
            "no such Python on PATH or below ~/.pyenv/versions",
            "Install one, with `pyenv install {}` for instance.".format(missing),
        )

    def _make(self, path, base, needed, row, python):
        self._say("  making its environment with Python {}, once: {}".format(python.number, path))
        _check_virtualenv()
        shutil.rmtree(path, ignore_errors=True)
        make_folder(path, "Environments are kept in a folder of your own.", "--cache")
        log = path + ".log"
        for what, command in (
            ("virtualenv", self._virtualenv(base, path)),
            ("pip install", [python.path, "-m", "pip", "install"] + needed),
            ("import", [python.path, "-c", _DETECT]),
        ):
            environment = self._with_package() if what == "import" else _environment()
            code = _call(command, environment, log, self._say, what)
            if code:
                raise errors.OptionError(
                    "The environment of TensorFlow {} can be made.".format(row.tensorflow),
                    "exit code {} from {}:\n{}".format(code, " ".join(command), end_of(log)),
                    "All of it is in {}.".format(log),
                )
        installed = last_line(log)
        if not installed.startswith(row.tensorflow + "."):
            raise errors.OptionError(
                "The environment has TensorFlow {}.".format(row.tensorflow),
                installed,
                "See {}.".format(log),
            )
        # Last: an environment without it is made anew.
        with open(os.path.join(path, _MARK), "w") as stream:
            json.dump(needed, stream)

    def _virtualenv(self, base, path):
        """The command that makes an environment with the pip that virtualenv brings.

        The user's cache of virtualenv may hold a later one, which an old Python cannot run.
        """
        own = ["--app-data", os.path.join(self._folder, "virtualenv"), "--no-periodic-update"]
        return [sys.executable, "-m", "virtualenv"] + own + ["-p", base, path]

    def run(self, python, command, log, what, errors_to=None):
        """Runs a command of this package under an environment's Python; returns the exit code."""
        command = [python.path, "-c", _COMMAND] + command
        return _call(command, self._with_package(), log, self._say, what, errors_to)

    def _with_package(self):
        """The variables of a process that imports this package."""
        environment = _environment()
        paths = [self._package_folder(), environment.get("PYTHONPATH")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        return environment

    def _package_folder(self):
        """A folder with this package alone: what is installed beside it here is for another
        Python."""
        if self._package is None:
            source = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
            folder = os.path.join(self._folder, "package-" + _digest(source))
            if not os.path.isdir(folder):
                building = "{}.{}".format(folder, os.getpid())
                shutil.copytree(
                    source,
                    os.path.join(building, os.path.basename(source)),
                    ignore=shutil.ignore_patterns("__pycache__", "*.pyc"),
                )
                os.rename(building, folder)
            self._package = folder
        return self._package


def _python_of(path):
    return (
        os.path.join(path, "Scripts", "python.exe")
        if os.name == "nt"
        else os.path.join(path, "bin", "python")
    )


def _mark_of(path):
    try:
        with open(os.path.join(path, _MARK)) as stream:
            return json.load(stream)
    except (EnvironmentError, ValueError):
        return None


def _check_virtualenv():
    try:
        __import__("virtualenv")
    except ImportError:
        raise errors.OptionError(
            "matrix makes environments with virtualenv.",
            "no virtualenv in {}".format(sys.executable),
            "Install it: pip install gradaccum_compat[matrix]",
        )


def _digest(folder):
    digest = hashlib.sha1()
    for parent, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            if not name.endswith(".pyc"):
                digest.update(os.path.relpath(os.path.join(parent, name), folder).encode("utf-8"))
                with open(os.path.join(parent, name), "rb") as stream:
                    digest.update(stream.read())
    return digest.hexdigest()[:12]


def _environment():
    return {
        name: value
        for name, value in os.environ.items()
        if name not in _NOT_INHERITED and not name.startswith("GRADACCUM_")
    }


def _call(command, environment, log, say, what, errors_to=None):
    """Runs a command with its output in a file, and says how long it takes. Returns the exit
    code."""
    began = time.time()
    with open(log, "ab") as output, open(errors_to or os.devnull, "ab") as other:
        try:
            process = subprocess.Popen(
                [six.ensure_str(each) for each in command],
                env=environment,
                stdout=output,
                stderr=other if errors_to else subprocess.STDOUT,
            )
        except EnvironmentError as error:
            output.write(str(error).encode("utf-8"))
            return 127
        try:
            while process.poll() is None:
                time.sleep(0.05)
                say("  {}: {:.0f} s".format(what, time.time() - began), True)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
    say("  {}: {:.0f} s".format(what, time.time() - began))
    return process.returncode


def end_of(path, lines=15):
    """The last lines of a file."""
    with open(path, "rb") as stream:
        text = stream.read()[-20000:].decode("utf-8", "replace")
    return "\n".join("  " + each for each in text.rstrip().splitlines()[-lines:])


def last_line(path):
    """The last line of a file, without the name of the command."""
    return end_of(path, 1).strip().replace("gradaccum-compat record: ", "")
