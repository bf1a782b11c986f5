"""Three and four replicas, and replicas that share their variables, as those of
CentralStorageStrategy do: what test_replicas.py shows on two of MirroredStrategy, each in a process
of its own.

Two MirroredStrategies of different sizes meet each other's collectives in one process.
"""

from __future__ import absolute_import, division, print_function

import os

import pytest

from support import processes

HERE = os.path.dirname(os.path.abspath(__file__))
FILE = os.path.join(HERE, "test_replicas.py")
LIMIT = 240  # seconds: replicas that wait for each other wait for ever
#: Weights, rows, missing gradients and the decision, with different shares on each replica; what
#: decides is reduced once.
TELLING = [
    "test_uneven_replicas_give_the_big_batch[insidefunction-mean]",
    "test_a_replica_whose_share_is_empty[acrossfunction]",
    "test_rows_that_differ_between_replicas[insidefunction]",
    "test_none_that_differs_between_replicas[insidefunction]",
    "test_step_decides_on_the_device[outofscope]",
    "test_gradients_across_replicas_are_the_reduced_ones",
]
#: What sharing could break besides.
ALSO = [
    "test_uneven_replicas_give_the_big_batch[acrossfunction-none]",
    "test_uneven_replicas_give_the_big_batch[insidefunction-global_mean]",
    "test_a_micro_batch_that_is_not_finite_on_one_replica_only[insidefunction]",
    "test_raise_raises_on_every_replica_and_starts_over[insidefunction]",
    "test_step_decides_on_the_device[insideeager]",
    "test_a_bad_share_on_one_replica_changes_no_state",
]


def check(folder, cases, **environment):
    said, code = processes.output_of(
        ["-m", "pytest", "-q", "-p", "no:cacheprovider"] + [FILE + "::" + case for case in cases],
        folder.join("log"),
        limit=LIMIT,
        cwd=processes.ROOT,
        env=dict(os.environ, **environment),
    )
    assert code == 0, "exit code %s, the limit is %d seconds\n%s" % (code, LIMIT, said[-5000:])
    assert "%d passed" % len(cases) in said and "skipped" not in said


@pytest.mark.parametrize("count", ["3", "4"])
def test_the_numbers_do_not_depend_on_how_many_replicas(tmpdir, count):
    check(tmpdir, TELLING, GRADACCUM_REPLICAS=count)


def test_replicas_that_share_their_variables_give_the_same(tmpdir):
    """Each would add to the others' sums: with "none" three times the update, and a third of the
    micro-batches a cycle."""
    check(tmpdir, TELLING + ALSO, GRADACCUM_REPLICAS="3", GRADACCUM_SHARED="yes")
