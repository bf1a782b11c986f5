"""The README's example for Horovod prints what stands below it, on two workers."""

from __future__ import absolute_import, division, print_function

import pytest

import test_readme

EXAMPLES = [(name, code, output) for name, kind, code, output in test_readme.SNIPPETS if kind == "horovod"]


@pytest.mark.parametrize("code, output", [each[1:] for each in EXAMPLES], ids=[each[0] for each in EXAMPLES])
def test_example_prints_what_the_readme_shows(run_workers, tmpdir, code, output):
    path = tmpdir.join("example.py")  # a file: AutoGraph reads sources
    path.write(code)
    assert run_workers([str(path)], tmpdir) == [output.text, ""]


def test_there_is_an_example():
    assert EXAMPLES
