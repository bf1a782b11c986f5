"""Each page of docs/ and the README say what is true: examples print what stands below them, and
links lead somewhere."""

from __future__ import absolute_import, division, print_function

import os
import re

import pytest

import gradaccum_compat as ga
from support import snippets
from support.snippets import ROOT, Block, blocks_of, read

PAGES = ["README.md"] + sorted(
    "docs/" + name for name in os.listdir(os.path.join(ROOT, "docs")) if name.endswith(".md")
)
ALL = PAGES + [
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "examples/README.md",
    "legacy_examples/README.md",
]
EXAMPLES = [(page, each) for page in PAGES for each in snippets.snippets_of(blocks_of(read(page)))]
HERE = [(page, each) for page, each in EXAMPLES if snippets.for_here([each])]


def ids(examples):
    return ["{}:{}".format(page, each.name) for page, each in examples]


@pytest.mark.parametrize("page, example", HERE, ids=ids(HERE))
def test_example_prints_what_the_page_shows(tmpdir, capfd, page, example):
    snippets.run(example.code, tmpdir)
    assert capfd.readouterr()[0] == example.following.text


@pytest.mark.parametrize("page, example", EXAMPLES, ids=ids(EXAMPLES))
def test_example_is_followed_by_its_output(page, example):
    output = example.following
    assert (output.language, output.comment) == ("text", "") and output.text.strip()


@pytest.mark.parametrize("page", PAGES)
def test_no_python_is_left_unrun(page):
    others = [each for each in blocks_of(read(page)) if each.language not in ("sh", "text", "yaml")]
    marked = [each for each in others if snippets.SNIPPET.match(each.comment)]
    left = [each for each in others if each not in marked]
    assert all(each.language == "python" and each.comment.startswith("not run: ") for each in left)
    assert len(marked) == len(snippets.snippets_of(blocks_of(read(page))))


def test_an_unmarked_block_would_be_seen():
    assert blocks_of("<!-- a -->\n\n```python\nx\n```\n\n<!-- b -->\n```sh\ny\n```\n") == [
        Block("", "python", "x\n"),
        Block("b", "sh", "y\n"),
    ]


def test_what_an_example_needs_is_looked_up():
    assert snippets.is_there("tf.distribute.Strategy")
    assert not snippets.is_there("tf.no.such")


def anchors_of(text):
    """The anchors of a page's headings, as GitHub and the site make them."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"(?ms)^```.*?^```$", "", text), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in headings}


@pytest.mark.parametrize("page", ALL)
def test_links_lead_somewhere(page):
    dead = []
    for target in re.findall(r"\]\(([^)\s]+)\)", read(page)):
        path, _, anchor = target.partition("#")
        if re.match("[a-z]+:", target):
            continue
        path = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
        path = path.replace(os.sep, "/")
        if path == "docs/api.md":  # made when the site is built
            continue
        if not os.path.exists(os.path.join(ROOT, path)):
            dead.append(target)
        elif anchor and anchor not in anchors_of(read(path)):
            dead.append(target)
    assert dead == []


def test_public_names_exist():
    shown = "\n".join(read(page) for page in PAGES)
    assert set(re.findall(r"\bga\.(\w+)", shown)) <= set(ga.__all__)


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_a_page_for_newcomers_is_short(page):
    assert os.path.getsize(os.path.join(ROOT, page)) <= 8192
