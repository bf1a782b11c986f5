"""The modes that every case of the contract runs in."""

from __future__ import absolute_import, division, print_function

import pytest

import modes


@pytest.fixture(params=[modes.Eager, modes.Function, modes.Graph], ids=lambda mode: mode.__name__.lower())
def mode(request):
    return request.param
