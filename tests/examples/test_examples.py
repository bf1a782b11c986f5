"""Each script in examples/ trains as its page says, and draws the picture that the page shows."""

from __future__ import absolute_import, division, print_function

import os
import re

import pytest
import tensorflow as tf

from support import processes, snippets

FOLDER = os.path.join(processes.ROOT, "examples")
PAGE = snippets.read("examples/README.md")
SCRIPTS = ["batch_ramp", "exact_cycles_in_fit", "loop_on_replicas"]

pytestmark = pytest.mark.skipif(
    not snippets.is_there("tf.distribute.Strategy.run"), reason="they need TensorFlow 2.2"
)


def run(name, arguments, log, **how):
    """Runs a script; returns what it printed, and its exit code."""
    path = os.path.join(FOLDER, name + ".py")
    return processes.output_of([path] + arguments, log, **how)


def words(picture):
    """The words of an SVG: titles, legends, axes."""
    return re.findall(r"<text[^>]*>([^<]+)</text>", picture.read())


@pytest.fixture(scope="module", params=SCRIPTS)
def outcome(request, tmpdir_factory):
    """A script's name, its exit code, what it printed, and its picture, None if there is none."""
    folder = tmpdir_factory.mktemp("pictures")
    path = folder.join(request.param + ".svg")
    arguments = ["--picture", str(path)] if has_matplotlib() else []
    printed, code = run(request.param, arguments, folder.join("log"))
    return request.param, code, printed, path if path.check() else None


def has_matplotlib():
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return False
    return True


def test_it_finds_the_numbers_that_its_page_says(outcome):
    _, code, printed, _ = outcome
    assert code == 0, printed


def test_it_draws_what_its_page_shows(outcome):
    name, _, _, picture = outcome
    if picture is None:
        pytest.skip("no matplotlib in this row")
    if not hasattr(tf.keras.optimizers.SGD(), "gradient_accumulation_steps"):
        pytest.skip("the pictures were made with Keras 3, whose own option is in one of them")
    with open(os.path.join(FOLDER, name + ".svg")) as committed:
        assert words(picture) == words(committed)


def test_without_matplotlib_it_says_what_to_install(tmpdir):
    tmpdir.join("matplotlib.py").write("raise ImportError")
    env = processes.environment(str(tmpdir))
    # Keras imports matplotlib, where it finds it.
    printed, code = run(
        "batch_ramp", ["--picture", "a.svg"], tmpdir.join("log"), env=env, fork=False
    )
    assert code == 2 and printed.endswith("--picture needs matplotlib: pip install matplotlib\n")


def test_the_page_has_each_script_and_its_picture():
    assert sorted(re.findall(r"\]\((\w+)\.py\)", PAGE)) == SCRIPTS
    assert sorted(re.findall(r"!\[[^\]]+\]\((\w+)\.svg\)", PAGE)) == SCRIPTS
    files = sorted(name[:-3] for name in os.listdir(FOLDER) if name.endswith(".py"))
    assert files == sorted(SCRIPTS + ["pictures"])
