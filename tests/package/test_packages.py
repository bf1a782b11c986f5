"""The wheel and the sdist: built without a warning, whole, and installed on each kind of Python.

tox's row `package` runs this. It needs `build`, `twine` and a `virtualenv` that still makes
environments for Python 2.7.
"""

from __future__ import absolute_import, division, print_function

import io
import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile

import pytest
import setuptools

from support import processes

#: The oldest Pythons, and the newest.
PYTHONS = ["2.7", "3.6", "3.13", "3.14"]
#: In the repository alone: how it is kept, not how it is used or tested.
NOT_SHIPPED = {".gitignore", "MANIFEST.in"}

#: Rows of TensorFlow, and their Pythons.
ROWS = [("py27-tf114", "2.7"), ("py313-tf221", "3.13")]

UPDATE = """
import sys
import tensorflow as tf
import gradaccum_compat as ga
assert ga.__file__.startswith(sys.argv[1]), ga.__file__
if not tf.executing_eagerly():
    tf.compat.v1.enable_eager_execution()
weight = tf.Variable(1.0)
accumulator = ga.Accumulator(tf.compat.v1.train.GradientDescentOptimizer(0.5), [weight], steps=2)
assert not accumulator.step([tf.constant(1.0)], 1)
assert accumulator.step([tf.constant(4.0)], 2)
assert weight.numpy() == -0.5, weight.numpy()
"""


def run(*command, **options):
    """Runs a command; returns its exit code, and what it printed."""
    options.setdefault("env", clean_environment())
    process = subprocess.Popen(
        [str(each) for each in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        universal_newlines=True,
        **options
    )
    said, _ = process.communicate()
    return process.returncode, said


def clean_environment():
    """This process's environment without what would let Python find the package elsewhere."""
    left_out = ("PYTHONPATH", "PYTHONHOME", "PYTHONDONTWRITEBYTECODE")
    return {name: value for name, value in os.environ.items() if name not in left_out}


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """What `python -m build` said, and the paths of what it made, by their endings."""
    folder = tmp_path_factory.mktemp("dist")
    code, said = run(sys.executable, "-m", "build", "-o", folder, processes.ROOT)
    assert code == 0, said
    made = {path.suffix: str(path) for path in folder.iterdir()}
    return said, made[".whl"], made[".gz"]


def version_of(built):
    return os.path.basename(built[1]).split("-")[1]


def test_the_changelog_begins_with_this_version(built):
    with io.open(os.path.join(processes.ROOT, "CHANGELOG.md"), encoding="ascii") as pages:
        assert re.search(r"(?m)^## (\S+)", pages.read()).group(1) == version_of(built)


def test_nothing_warns(built):
    assert [line for line in built[0].splitlines() if re.search(r"(?i)warn|deprecat", line)] == []


def test_one_wheel_serves_python_2_and_3(built):
    assert built[1].endswith("-py2.py3-none-any.whl")


def metadata(wheel):
    with zipfile.ZipFile(wheel) as files:
        name = next(each for each in files.namelist() if each.endswith("/METADATA"))
        return files.read(name).decode("utf-8").split("\n\n")[0].splitlines()


def test_the_licence_is_an_expression(built):
    lines = metadata(built[1])
    assert "License-Expression: Apache-2.0" in lines and "License-File: LICENSE" in lines
    assert not [line for line in lines if line.startswith(("License: ", "Classifier: License"))]


def test_each_python_of_the_matrix_is_named(built):
    with io.open(os.path.join(processes.ROOT, "tox.ini"), encoding="ascii") as source:
        numbers = re.search(r"py\{([\d,]+)\}-notf", source.read()).group(1).split(",")
    named = re.findall(r"Python :: (\d\.\d+)", "\n".join(metadata(built[1])))
    assert named == [each[0] + "." + each[1:] for each in numbers]


def test_its_pages_find_a_reader(built):
    code, said = run(sys.executable, "-m", "twine", "check", "--strict", *built[1:])
    assert code == 0, said


def description(monkeypatch, repository):
    """The text on the package's page, where the repository is at an address."""
    told = {}
    path = os.path.join(processes.ROOT, "setup.py")
    with io.open(path, encoding="ascii") as source:
        code = source.read().replace("REPOSITORY = None", "REPOSITORY = {!r}".format(repository))
    monkeypatch.setattr(setuptools, "setup", lambda **options: told.update(options))
    exec(compile(code, path, "exec"), {"__file__": path})
    return told["long_description"]


def targets(text):
    """What the links and pictures of a page lead to, without those to the page itself."""
    found = re.findall(r"\]\(([^)\s]+)\)", text)
    return [each for each in found if not each.startswith("#")]


def test_without_an_address_its_page_has_no_dead_link(built, monkeypatch):
    text = description(monkeypatch, None)
    assert [each for each in targets(text) if not each.startswith("https://")] == []
    assert "What the numbers mean | reductions" in text and "![" not in text
    with zipfile.ZipFile(built[1]) as files:
        name = next(each for each in files.namelist() if each.endswith("/METADATA"))
        assert text.strip() in files.read(name).decode("utf-8")


def test_with_an_address_its_page_leads_to_the_files(monkeypatch):
    text = description(monkeypatch, "https://host/owner/name")
    assert "](https://host/owner/name/blob/HEAD/docs/numbers.md)" in text
    assert "![Four micro-batches are added up, and one update follows](https://host/" in text
    assert "/raw/HEAD/docs/images/cycle.svg)" in text
    for each in targets(text):
        path = each.partition("/HEAD/")[2].partition("#")[0]
        assert os.path.exists(os.path.join(processes.ROOT, path)), each


def tracked(*folders):
    """The files that git knows, or a skip where this is no clone."""
    try:
        said = subprocess.check_output(("git", "ls-files") + folders, cwd=processes.ROOT)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no git, or no clone")
    return set(said.decode("ascii").split())


def test_the_sdist_has_every_file(built):
    with tarfile.open(built[2]) as files:
        packed = {name.partition("/")[2] for name in files.getnames()}
    assert sorted(tracked() - packed - NOT_SHIPPED) == []


def test_the_wheel_has_the_package_and_nothing_else(built):
    with zipfile.ZipFile(built[1]) as files:
        packed = {name for name in files.namelist() if ".dist-info/" not in name}
    assert packed == tracked("gradaccum_compat")


def environment(number, folder):
    """An empty environment of a Python: its Python. Skips where the machine has no such one."""
    name = "python" + number
    try:
        is_here = run(name, "-c", "")[0] == 0
    except OSError:
        is_here = False
    if not is_here:
        pytest.skip("no Python " + number)
    # Python 2.7 has no venv, and the pip of this virtualenv knows no Python newer than itself.
    make = [sys.executable, "-m", "virtualenv", "-q", "-p", name]
    code, said = run(*((make if number == "2.7" else [name, "-m", "venv"]) + [folder]))
    assert code == 0, said
    return folder.joinpath("bin", "python")


@pytest.fixture(scope="module", params=PYTHONS)
def empty(request, tmp_path_factory):
    """An empty environment of a Python: its Python."""
    return environment(request.param, tmp_path_factory.mktemp("py" + request.param))


@pytest.fixture(scope="module", params=["wheel", "sdist"])
def installed(request, empty, built):
    """The same with one of the packages installed."""
    package = built[1 if request.param == "wheel" else 2]
    # Elsewhere than in the tree, where an old pip takes what was built there for installed.
    command = [empty, "-m", "pip", "install", "-q", "--force-reinstall", package]
    code, said = run(*command, cwd=str(empty.parent))
    assert code == 0, said
    return empty


def test_doctor_runs_where_there_is_no_tensorflow(installed, tmp_path):
    code, said = run(installed, "-m", "gradaccum_compat", "doctor", "--json", cwd=str(tmp_path))
    assert (code, json.loads(said)["error"]["type"]) == (1, "TensorFlowMissingError")


def test_the_command_is_installed(installed, built):
    code, said = run(installed.with_name("gradaccum-compat"), "--version")
    assert (code, said.split()) == (0, ["gradaccum-compat", version_of(built)])


@pytest.mark.parametrize("row, number", ROWS, ids=[row for row, _ in ROWS])
@pytest.mark.parametrize("package", ["wheel", "sdist"])
def test_one_update(built, tmp_path, package, row, number):
    """Installed beside the TensorFlow of a row that tox has built."""
    folder = os.path.join(os.environ.get("GRADACCUM_ROWS", ""), row, "lib", "python" + number)
    if not os.path.isdir(folder):
        pytest.skip("the row {} is not built".format(row))
    python = environment(number, tmp_path.joinpath("env"))
    own = tmp_path.joinpath("env", "lib", "python" + number, "site-packages")
    # What the environment has itself comes first: this package, and not what the row installed.
    theirs = os.path.join(folder, "site-packages")
    own.joinpath("tensorflow.pth").write_text("import site; site.addsitedir({!r})".format(theirs))
    package = built[1 if package == "wheel" else 2]
    command = [python, "-m", "pip", "install", "-q", "--no-deps", "--ignore-installed"]
    code, said = run(*(command + [package]), cwd=str(tmp_path))
    assert code == 0, said
    code, said = run(python, "-W", "ignore", "-c", UPDATE, own, cwd=str(tmp_path))
    assert code == 0, said
