"""Our pages' examples for Horovod print what stands below them, on two workers."""

from __future__ import absolute_import, division, print_function

import pytest

from support import snippets

PAGES = ["docs/replicas.md", "legacy_examples/README.md"]
EXAMPLES = [
    each
    for page in PAGES
    for each in snippets.snippets_of(snippets.blocks_of(snippets.read(page)))
    if each.purpose == "horovod"
]


@pytest.mark.parametrize("example", EXAMPLES, ids=[each.name for each in EXAMPLES])
def test_example_prints_what_the_page_shows(run_workers, tmpdir, example):
    path = tmpdir.join("example.py")  # a file: AutoGraph reads sources
    path.write(example.code)
    assert run_workers([str(path)], tmpdir) == [example.following.text, ""]


def test_each_page_has_an_example():
    assert len(EXAMPLES) == len(PAGES)
