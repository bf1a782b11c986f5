"""Several workers, as real processes that talk gRPC on the loopback: the weights of one device and one big batch."""

from __future__ import absolute_import, division, print_function

import numpy as np
import pytest
import tensorflow as tf

import modes
import processes
import worker
from reference import Reference, Slices


@pytest.mark.parametrize("count", [2, 3])
def test_workers_end_with_the_weights_of_the_big_batch(tmpdir, count):
    weights = processes.run(count, tmpdir, "worker.py")
    for other in weights[1:]:
        assert other == weights[0], "the workers have come apart"
    plain = modes.Eager([np.ones(shape, np.float32) for shape in worker.SHAPES],
                        lambda: tf.compat.v1.train.MomentumOptimizer(0.5, 0.9))
    for cycle in range(len(worker.CYCLES)):
        reference, touched = Reference(worker.SHAPES), set()
        for number, each in [(number, each) for at, number, each in worker.numbered() if at == cycle]:
            shares = [share for share in (worker.share(index, number, each) for index in range(count))
                      if share[-1] is not None]
            touched.update(row for _, _, rows, _ in shares for row in rows)
            reference.accumulate_on_replicas([([vector, Slices(values, rows)], weight)
                                              for vector, values, rows, weight in shares])
        big, rows = [each.astype(np.float32) for each in reference.gradients()], sorted(touched)
        plain.plain_apply([big[0], Slices(big[1][rows], rows)])
    for got, want in zip(weights[0], plain.weights()):
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)
