"""README and CONTRIBUTING say what is true: each example runs and prints what stands below it, each name exists."""

from __future__ import absolute_import, division, print_function

import inspect
import os
import re

import pytest

import gradaccum_compat as ga
import snippets
from snippets import ROOT, Block, blocks_of, read

README = read("README.md")
BLOCKS = blocks_of(README)
COMMANDS = {block.comment: block.text for block in BLOCKS if block.comment.startswith("command: ")}
SNIPPETS = snippets.snippets_of(BLOCKS)
HERE = snippets.for_here(SNIPPETS)


def table_under(heading):
    """The rows of the tables below a heading that begin with something in code style: that, and the other cells."""
    section = README.split("\n## " + heading + "\n")[1].split("\n## ")[0]
    return re.findall(r"^\| `([^`]+)` \| (.*) \|\n(?!\|---)", section, re.MULTILINE)


# The examples


@pytest.mark.parametrize("snippet", HERE, ids=[each.name for each in HERE])
def test_example_prints_what_the_readme_shows(tmpdir, capfd, snippet):
    snippets.run(snippet.code, tmpdir)
    assert capfd.readouterr()[0] == snippet.following.text


@pytest.mark.parametrize("snippet", SNIPPETS, ids=[each.name for each in SNIPPETS])
def test_example_is_followed_by_its_output(snippet):
    output = snippet.following
    assert (output.language, output.comment) == ("text", "") and output.text.strip()


def test_no_python_is_left_unrun():
    python = [block for block in BLOCKS if block.language not in ("sh", "text")]
    assert [block.comment for block in python
            if block.language != "python" or not snippets.SNIPPET.match(block.comment)] == []
    assert len(python) == len(SNIPPETS) == len(set(each.name for each in SNIPPETS)) >= 5


def test_an_unmarked_block_would_be_seen():
    assert blocks_of("<!-- a -->\n\n```python\nx\n```\n\n<!-- b -->\n```sh\ny\n```\n") == [
        Block("", "python", "x\n"), Block("b", "sh", "y\n")]


# The commands


@pytest.mark.parametrize("name, word", [("demo", "/gradaccum-compat demo"), ("test", "/tox")])
def test_each_command_is_one_line(name, word):
    assert word in COMMANDS["command: " + name]
    assert len(COMMANDS["command: " + name].splitlines()) == 1


def test_subcommands_exist(capsys):
    from gradaccum_compat import cli
    cli.main([])
    offered = capsys.readouterr()[0]
    named = set(re.findall(r"gradaccum-compat (\w+)", README))
    assert named >= {"demo", "doctor"}
    assert [each for each in named if not re.search(r"^ +{} ".format(each), offered, re.MULTILINE)] == []


def test_extras_exist():
    named = set(re.findall(r'"\.\[(\w+)\]"', README))
    assert named and [each for each in named if '"{}": ['.format(each) not in read("setup.py")] == []


# The names


def test_public_names_exist():
    assert set(re.findall(r"\bga\.(\w+)", README)) <= set(ga.__all__)


def test_calls_are_the_accumulator_s():
    named = set(re.findall(r"`accumulator\.(\w+)", README))
    assert named == {name for name in vars(ga.Accumulator) if not name.startswith("_")}


def test_options_and_their_defaults_are_the_constructor_s():
    signature = (inspect.getfullargspec if hasattr(inspect, "getfullargspec") else inspect.getargspec)(
        ga.Accumulator.__init__)
    defaults = dict(zip(signature.args[::-1], signature.defaults[::-1]))
    shown = {name: cells.split(" | ")[0] for name, cells in table_under("What you can call")
             if name in signature.args}
    assert set(shown) >= {"steps", "loss_reduction", "dtype", "clip_norm", "nonfinite", "name"}
    assert shown == {name: "`{}`".format(repr(defaults[name]).replace("'", '"')) for name in shown}


def test_each_loss_reduction_is_explained():
    from gradaccum_compat import _options
    shown = [name.strip('"') for name, _ in table_under("Which loss gives which")]
    assert shown == list(_options.LOSS_REDUCTIONS)


def test_errors_are_those_that_there_are():
    shown = {name: cells.split(" | ")[0].strip("`") for name, cells in table_under("Errors")}
    there_are = {name: each for name, each in vars(ga.errors).items() if inspect.isclass(each)}
    base = there_are.pop("GradAccumError")
    assert set(shown) == set(there_are)
    for name, builtin in shown.items():
        assert builtin in [each.__name__ for each in there_are[name].__mro__] and issubclass(there_are[name], base)


# The matrix


def rows_of_tox(name):
    """The environments of one list under [rows] in tox.ini, with the braces expanded."""
    text = re.search(r"^%s = \\\n((?:    .*\n)+)" % name, read("tox.ini"), re.MULTILINE).group(1)
    rows = []
    for word in re.findall(r"(?:\{[^}]*\}|[^\s,\\{}])+", text):
        rows.extend(expanded(word))
    return set(rows)


def expanded(word):
    match = re.search(r"\{([^}]*)\}", word)
    if match is None:
        return [word]
    return [row for each in match.group(1).split(",")
            for row in expanded(word[:match.start()] + each + word[match.end():])]


def test_rows_are_expanded():
    assert expanded("py{27,36}-tf{114,20}") == ["py27-tf114", "py27-tf20", "py36-tf114", "py36-tf20"]


def test_the_table_of_versions_names_the_rows_of_tox():
    section = README.split("\n## Which TensorFlow runs where\n")[1]
    table = "\n".join(line for line in section.splitlines() if line.startswith("| "))
    bold = set(re.findall(r"\*\*(py[\w-]+)\*\*", table))
    plain = set(re.findall(r"py\d+-tf[\w-]+", table)) - bold
    of_tensorflow = lambda name: {row for row in rows_of_tox(name) if row.startswith("py") and "-notf" not in row}
    assert (bold, plain) == (of_tensorflow("default"), of_tensorflow("others"))


# CONTRIBUTING


def test_files_that_contributing_names_exist():
    named = set(re.findall(r"`((?:gradaccum_compat|tests|\.ci)/[\w/.-]*)`", read("CONTRIBUTING.md")))
    assert len(named) > 20
    assert [each for each in sorted(named) if not os.path.exists(os.path.join(ROOT, *each.split("/")))] == []


def test_tests_that_contributing_names_exist():
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", read("CONTRIBUTING.md"))
    assert len(named) >= 10
    assert [each for each in named if "def {}(".format(each[1]) not in read(each[0])] == []
