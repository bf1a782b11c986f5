"""Several workers, as real processes that talk gRPC on the loopback: the weights of one device and one big batch."""

from __future__ import absolute_import, division, print_function

import numpy as np
import pytest
import tensorflow as tf

import modes
import processes
import worker
from reference import Reference, Slices


def big_batches(story, count):
    """The big batch's gradients of each cycle: whole where one was dense so far, the rows touched anywhere elsewhere."""
    seen = {}
    for cycle in range(len(worker.STORIES[story])):
        reference, touched = Reference(worker.SHAPES), {}
        for number, pairs in [(number, pairs) for at, number, pairs in worker.numbered(story) if at == cycle]:
            shares = [share for share in (worker.share(index, number, pairs) for index in range(count))
                      if share[-1] is not None]
            for gradients, kinds, _ in shares:
                for index, (gradient, kind) in enumerate(zip(gradients, kinds)):
                    if kind == "d":
                        touched[index] = set(range(worker.SHAPES[index][0] if worker.SHAPES[index] else 0))
                    elif kind == "s":
                        touched.setdefault(index, set()).update(gradient[1])
                    if kind != "-":
                        seen.setdefault(index, set()).add(kind)
            reference.accumulate_on_replicas([(
                [Slices(*each) if isinstance(each, tuple) else each for each in gradients], weight)
                for gradients, _, weight in shares])
        yield [_as_handed_over(gradient, seen.get(index, ()), sorted(touched.get(index, ())))
               for index, gradient in enumerate(each.astype(np.float32) for each in reference.gradients())]


def _as_handed_over(gradient, seen, rows):
    if not seen:
        return None
    return gradient if "d" in seen else Slices(gradient[rows], rows)


#: With two workers all stories, with three those in which one is left over.
STORIES = {2: sorted(worker.STORIES), 3: ["heads in turn", "uneven shares"]}


@pytest.fixture(scope="module")
def ends(tmpdir_factory):
    """What each worker says of each story, for a number of them.

    One story after the other in the same processes, which start slowly, and once for all tests.
    """
    known = {}

    def of(count):
        if count not in known:
            known[count] = processes.run(count, tmpdir_factory.mktemp("workers"), "worker.py", STORIES[count])
        return known[count]
    return of


@pytest.mark.parametrize("count, story", [(count, story) for count in sorted(STORIES) for story in STORIES[count]])
def test_workers_end_with_the_weights_of_the_big_batch(ends, count, story):
    ends = ends(count)
    weights = [end[story] for end in ends]
    for other in weights[1:]:
        assert other == weights[0], "the workers have come apart"
    plain = modes.Eager([np.ones(shape, np.float32) for shape in worker.SHAPES],
                        lambda: tf.compat.v1.train.MomentumOptimizer(0.5, 0.9))
    for gradients in big_batches(story, len(ends)):
        plain.plain_apply(gradients)
    for got, want in zip(weights[0], plain.weights()):
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)
