"""What the benchmarks compare does the same: the contenders that can run here end with the same
weights."""

from __future__ import absolute_import, division, print_function

import numpy as np
import pytest

from benchmarks import contenders, problems

STEPS = 4


def weights_after_two_cycles(name):
    problem = problems.dense(4, STEPS, width=8, layers=2)
    made, variables = [], problem.variables
    problem.variables = lambda: made.extend(variables()) or made
    cycle, reason = contenders.make(problem, name)
    if reason:
        pytest.skip(reason)
    cycle()
    cycle()
    return [each.numpy() for each in made]


# The last three are no part of the tests' environments; Horovod's variables live in a graph, out of
# reach.
@pytest.mark.parametrize(
    "name",
    sorted(
        set(contenders.WITH_FLOOR)
        - {"plain", "step", "gradient_accumulator", "transformers", "horovod"}
    ),
)
def test_ends_with_the_weights_of_step(name):
    for got, want in zip(weights_after_two_cycles(name), weights_after_two_cycles("step")):
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)
