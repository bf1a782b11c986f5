"""Each generation of Keras optimizers that the environment has."""

from __future__ import absolute_import, division, print_function

import pytest

from support import fitting


@pytest.fixture(params=fitting.GENERATIONS, ids=lambda each: each.family)
def generation(request):
    return request.param
