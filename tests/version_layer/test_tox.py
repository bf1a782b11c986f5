"""tox.ini and the configurations beside it agree."""

from __future__ import absolute_import, division, print_function

import io
import os
import re

import pytest

from support import processes


def pinned(name):
    """The versions that a configuration asks for, by package."""
    with io.open(os.path.join(processes.ROOT, name), encoding="ascii") as source:
        return dict(re.findall(r"\b(black|ruff)==([\w.]+)", source.read()))


def test_the_linters_before_a_commit_are_those_of_tox():
    assert set(pinned("tox.ini")) == {"black", "ruff"}
    assert pinned(".pre-commit-config.yaml") == pinned("tox.ini")


@pytest.mark.parametrize("name", ["tox.ini", ".pre-commit-config.yaml"])
def test_black_is_told_the_same(name):
    with io.open(os.path.join(processes.ROOT, name), encoding="ascii") as source:
        assert "-q -t py33 -l 100" in source.read()
