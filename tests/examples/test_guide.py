"""legacy_examples/README.md says what is true: its examples run, its commands and names exist."""

from __future__ import absolute_import, division, print_function

import re

import pytest

from support import programs, snippets

GUIDE = snippets.read("legacy_examples/README.md")
BLOCKS = snippets.blocks_of(GUIDE)
SNIPPETS = snippets.snippets_of(BLOCKS)
HERE = snippets.for_here(SNIPPETS)
#: Of other packages, which are not installed here.
BEFORE = [block for block in BLOCKS if block.comment.startswith("before: ")]


@pytest.mark.parametrize("snippet", HERE, ids=[each.name for each in HERE])
def test_example_prints_what_the_guide_shows(tmpdir, capfd, snippet):
    snippets.run(snippet.code, tmpdir)
    assert capfd.readouterr()[0] == snippet.following.text


@pytest.mark.parametrize("snippet", SNIPPETS, ids=[each.name for each in SNIPPETS])
def test_example_is_followed_by_its_output(snippet):
    assert (snippet.following.language, snippet.following.comment) == ("text", "")


@pytest.mark.parametrize("block", BEFORE, ids=[block.comment.split()[1] for block in BEFORE])
def test_what_another_package_was_called_with_is_python(block):
    compile(block.text, block.comment, "exec")


def test_no_python_is_left_unrun():
    python = [block for block in BLOCKS if block.language == "python"]
    unmarked = [
        block
        for block in python
        if block not in BEFORE and not snippets.SNIPPET.match(block.comment)
    ]
    assert unmarked == []
    assert len(python) == len(SNIPPETS) + len(BEFORE)


def test_each_package_has_a_now():
    assert {block.comment.split()[1] + "-now" for block in BEFORE} <= {
        each.name for each in SNIPPETS
    }


def test_the_table_has_each_program():
    assert sorted(re.findall(r"^\| `(\w+)\.py` \|", GUIDE, re.MULTILINE)) == programs.PROGRAMS
