"""The number of elements up to which the package keeps a sum as a small one."""

from __future__ import absolute_import, division, print_function

from gradaccum_compat.core import _state as home

#: What users get.
SMALL = home.SMALL


def patch(monkeypatch, elements):
    """Makes sums of up to so many elements small, for one test."""
    monkeypatch.setattr(home, "SMALL", elements)
