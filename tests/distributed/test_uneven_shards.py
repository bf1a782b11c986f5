"""Data sharded by worker, of which one worker has more than another: the weights of the big batches
of both."""

from __future__ import absolute_import, division, print_function

import numpy as np
import pytest

from support import modes, processes, sharded_worker
from support.reference import Slices

#: Each worker's examples, by STEPS micro-batches of BATCH.
SHARDS = [[0, 1, 2, 3, 8, 9, 10], [4, 5, 6, 7]]
UPDATES_OF_AN_EPOCH = 2


@pytest.fixture(scope="module")
def results(tmpdir_factory):
    return processes.run(2, tmpdir_factory.mktemp("workers"), "sharded_worker")


def gradients(weights, numbers):
    """The gradients of the mean squared error over these examples, summed up in float64."""
    features, targets, rows = [each[numbers] for each in sharded_worker.examples()]
    vector, table = [np.asarray(each, np.float64) for each in weights]
    error = features.dot(vector) + table[rows] - targets
    touched = np.unique(rows)
    of_rows = [2.0 * error[rows == row].sum() / len(numbers) for row in touched]
    of_vector = 2.0 * features.T.dot(error) / len(numbers)
    return [of_vector.astype(np.float32), Slices(np.array(of_rows, np.float32), touched)]


def big_batches():
    size = sharded_worker.BATCH * sharded_worker.STEPS
    for _ in range(sharded_worker.EPOCHS):
        for cycle in range(UPDATES_OF_AN_EPOCH):
            yield [
                number for shard in SHARDS for number in shard[cycle * size : (cycle + 1) * size]
            ]


@pytest.mark.parametrize("optimizer, after_the_end", sharded_worker.CASES)
def test_the_big_batch_of_all_workers_examples(results, optimizer, after_the_end):
    mine, other = [each["%s_%s" % (optimizer, after_the_end)] for each in results]
    assert (mine["examples"], other["examples"]) == (7, 4)
    assert mine["weights"] == other["weights"], "the workers have come apart"
    plain = modes.Eager(sharded_worker.start(), sharded_worker.OPTIMIZERS[optimizer])
    for numbers in big_batches():
        plain.plain_apply(gradients(plain.weights(), numbers))
    for got, want in zip(mine["weights"], plain.weights()):
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("optimizer, after_the_end", sharded_worker.CASES)
def test_all_workers_find_the_end_of_the_data_at_the_same_update(results, optimizer, after_the_end):
    updates = [each["%s_%s" % (optimizer, after_the_end)]["updates"] for each in results]
    assert updates == [UPDATES_OF_AN_EPOCH * sharded_worker.EPOCHS] * 2
