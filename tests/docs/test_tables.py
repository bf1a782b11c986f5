"""The README's commands are there, and the tables of docs/ say what the code has."""

from __future__ import absolute_import, division, print_function

import inspect
import json
import os
import re

import pytest
import tensorflow as tf

import gradaccum_compat as ga
from support.snippets import ROOT, blocks_of, read

README = read("README.md")
COMMANDS = {
    block.comment: block.text
    for block in blocks_of(README)
    if block.comment.startswith("command: ")
}


def table_under(page, heading):
    """The rows of the tables below a heading that begin with something in code style: that, and the
    other cells."""
    section = re.split(r"(?m)^#+ {}$".format(heading), read(page))[1].split("\n## ")[0]
    return re.findall(r"^\| `([^`]+)` \| (.*) \|\n(?!\|---)", section, re.MULTILINE)


# The commands


@pytest.mark.parametrize("name, word", [("demo", "/gradaccum-compat demo"), ("test", "/tox")])
def test_each_command_is_one_line(name, word):
    assert word in COMMANDS["command: " + name]
    assert len(COMMANDS["command: " + name].splitlines()) == 1


def test_subcommands_exist(capsys):
    from gradaccum_compat import cli

    cli.main([])
    offered = capsys.readouterr()[0]
    named = set(re.findall(r"gradaccum-compat (\w+)", README + read("docs/compatibility.md")))
    named -= {"record", "compare"}  # the upgrade kit's, which docs/upgrade.md is about
    assert named >= {"demo", "doctor"}
    assert [
        each for each in named if not re.search(r"^ +{} ".format(each), offered, re.MULTILINE)
    ] == []


def test_each_command_and_its_exit_codes_are_on_a_page(capsys):
    from gradaccum_compat import cli

    rows = table_under("docs/command-line.md", "The command line")
    assert [name for name, _ in rows] == [
        each.split(".")[1].strip("_").split("_")[0] for each in cli.COMMANDS
    ]
    for name, cells in rows:
        with pytest.raises(SystemExit):
            cli.main([name, "--help"])
        said = " ".join(capsys.readouterr()[0].split("Exit codes: ")[1].split())
        assert cells.split(" | ")[1] + "." == said


def test_extras_exist():
    named = set(re.findall(r'"\.\[(\w+)\]"', README))
    assert (
        named and [each for each in named if '"{}": ['.format(each) not in read("setup.py")] == []
    )


# The tables

#: The rows of the README's table, as benchmarks/compare_fit.py names them.
MEASURED = {
    "SGD": "SGD",
    "SGD with momentum": "SGD with momentum",
    "Adam": "Adam",
    "A learning rate that decays with every update": (
        "a learning rate that decays with every update"
    ),
    "A last cycle of two micro-batches": "a last cycle of 2 micro-batches, of 4",
    "A last micro-batch of half the size": "a last micro-batch of 2 examples, of 4",
    "Padded sentences with a mask": "padded sentences with a mask",
    "`None` as a cycle's last gradient": "None as a cycle's last gradient",
    "`MirroredStrategy`, two replicas, Adam": "two replicas under MirroredStrategy, Adam",
}
#: Its columns: TensorFlow and what trains there.
COLUMNS = [
    [("2.21.0", "gradaccum_compat"), ("2.10.1", "gradaccum_compat")],
    [("2.21.0", "Keras 3's gradient_accumulation_steps")],
    [("2.10.1", "gradient-accumulator, model")],
    [("2.10.1", "gradient-accumulator, optimizer")],
]


def shown(value):
    """A measured value as the README shows it."""
    if not isinstance(value, float):
        return {"no optimizer": "cannot be set up"}.get(value, value)
    return "yes" if value <= 1e-6 else "no, {:.1g}".format(value)


def test_the_readme_shows_what_was_measured():
    measured = json.loads(read("benchmarks/results/compare_fit.json"))
    table = [line.strip("| ").split(" | ") for line in README.splitlines() if line[:2] == "| "]
    rows = {cells[0]: cells[1:] for cells in table if cells[0] in MEASURED}
    assert sorted(rows) == sorted(MEASURED)
    for row, cells in rows.items():
        for cell, sources in zip(cells, COLUMNS):
            for tensorflow, way in sources:
                value = shown(measured[tensorflow][way].get(MEASURED[row], "not run"))
                assert cell.split(", with")[0] == value, (row, way)


def test_each_loss_reduction_is_explained():
    rows = table_under("docs/numbers.md", "How the loss was reduced")
    shown = [name.strip('"') for name, _ in rows]
    assert shown == ["mean", "sum", "global_mean", "none"]
    optimizer, variable = tf.compat.v1.train.GradientDescentOptimizer(1.0), tf.Variable(1.0)
    for each in shown:
        ga.Accumulator(optimizer, [variable], loss_reduction=each)


def test_errors_are_those_that_there_are():
    rows = table_under("docs/errors.md", "Errors and threads")
    shown = {name: cells.split(" | ")[0].strip("`") for name, cells in rows}
    there_are = {name: each for name, each in vars(ga.errors).items() if inspect.isclass(each)}
    base = there_are.pop("GradAccumError")
    assert set(shown) == set(there_are)
    for name, builtin in shown.items():
        assert builtin in [each.__name__ for each in there_are[name].__mro__]
        assert issubclass(there_are[name], base)


# The matrix


def rows_of_tox():
    """The rows of TensorFlows that a plain `tox` runs, and those that `tox -m full` adds."""
    text = read("tox.ini")
    default = re.search(r"^default = \\\n((?:    .*\n)+)", text, re.MULTILINE).group(1)
    others = re.findall(r"^\[testenv:(.*)\]\nlabels = full$", text, re.MULTILINE)
    words = [
        re.findall(r"(?:\{[^}]*\}|[^\s,\\{}])+", part) for part in (default, "\n".join(others))
    ]
    return [
        {row for word in part for row in expanded(word) if re.match(r"py\d+-tf", row)}
        for part in words
    ]


def expanded(word):
    match = re.search(r"\{([^}]*)\}", word)
    if match is None:
        return [word]
    return [
        row
        for each in match.group(1).split(",")
        for row in expanded(word[: match.start()] + each + word[match.end() :])
    ]


def test_rows_are_expanded():
    assert expanded("py{27,36}-tf{114,20}") == [
        "py27-tf114",
        "py27-tf20",
        "py36-tf114",
        "py36-tf20",
    ]


def test_the_table_of_versions_names_the_rows_of_tox():
    section = read("docs/compatibility.md").split("\n## Which TensorFlow runs where\n")[1]
    table = "\n".join(line for line in section.splitlines() if line.startswith("| "))
    bold = set(re.findall(r"\*\*(py[\w-]+)\*\*", table))
    plain = set(re.findall(r"py\d+-tf[\w-]+", table)) - bold
    assert [bold, plain] == rows_of_tox()


# CONTRIBUTING and the page on the tests

FOR_CONTRIBUTORS = read("CONTRIBUTING.md") + read("docs/testing.md") + read("docs/architecture.md")


def test_files_that_contributors_are_sent_to_exist():
    named = set(re.findall(r"`((?:gradaccum_compat|tests|\.ci)/[\w/.-]*)`", FOR_CONTRIBUTORS))
    assert len(named) > 15
    assert [
        each for each in sorted(named) if not os.path.exists(os.path.join(ROOT, *each.split("/")))
    ] == []


def test_tests_that_contributors_are_sent_to_exist():
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", FOR_CONTRIBUTORS)
    assert len(named) >= 10
    assert [each for each in named if "def {}(".format(each[1]) not in read(each[0])] == []
