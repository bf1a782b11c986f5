"""Several workers, as real processes that talk gRPC on the loopback: the weights of one device and
one big batch."""

from __future__ import absolute_import, division, print_function

import numpy as np
import pytest
import tensorflow as tf

from support import modes, processes, worker
from support.reference import Reference, Slices


def big_batches(story, count):
    """The big batch's gradients of each cycle: whole where one was dense so far, the rows touched
    anywhere elsewhere."""
    seen = {}
    for cycle in range(len(worker.STORIES[story])):
        reference, touched = Reference(worker.SHAPES), {}
        for number, pairs in [
            (number, pairs) for at, number, pairs in worker.numbered(story) if at == cycle
        ]:
            shares = [
                share
                for share in (worker.share(index, number, pairs) for index in range(count))
                if share[-1] is not None
            ]
            for gradients, kinds, _ in shares:
                for index, (gradient, kind) in enumerate(zip(gradients, kinds)):
                    if kind == "d":
                        touched[index] = set(
                            range(worker.SHAPES[index][0] if worker.SHAPES[index] else 0)
                        )
                    elif kind == "s":
                        touched.setdefault(index, set()).update(gradient[1])
                    if kind != "-":
                        seen.setdefault(index, set()).add(kind)
            reference.accumulate_on_replicas(
                [
                    (
                        [Slices(*each) if isinstance(each, tuple) else each for each in gradients],
                        weight,
                    )
                    for gradients, _, weight in shares
                ]
            )
        yield [
            _as_handed_over(
                gradient, seen.get(index, ()), sorted(touched[index]) if index in touched else None
            )
            for index, gradient in enumerate(
                each.astype(np.float32) for each in reference.gradients()
            )
        ]


def _as_handed_over(gradient, seen, rows):
    """None where no worker had a gradient in the cycle."""
    if rows is None:
        return None
    return gradient if "d" in seen else Slices(gradient[rows], rows)


#: What workers send of a table. Before TF 2.4 they cannot gather rows.
SENT = ["rows", "whole"] if hasattr(tf.distribute.Strategy, "gather") else ["whole"]
#: How many workers there are, and what they send.
CASES = [(2, sent) for sent in SENT] + [(3, SENT[0])]


@pytest.fixture(scope="module")
def ends(tmpdir_factory):
    """What each worker says of each story, for a number of them and what they send.

    One story after the other in the same processes, which start slowly, and once for all tests.
    """
    known = {}

    def of(count, sent):
        if (count, sent) not in known:
            folder = tmpdir_factory.mktemp("workers")
            known[count, sent] = processes.run(
                count, folder, "worker", [sent] + sorted(worker.STORIES)
            )
        return known[count, sent]

    return of


@pytest.mark.parametrize("story", sorted(worker.STORIES))
@pytest.mark.parametrize("count, sent", CASES)
def test_workers_end_with_the_weights_of_the_big_batch(ends, count, sent, story):
    ends = ends(count, sent)
    weights = [end[story] for end in ends]
    for other in weights[1:]:
        assert other == weights[0], "the workers have come apart"
    plain = modes.Eager(
        [np.ones(shape, np.float32) for shape in worker.SHAPES],
        lambda: tf.compat.v1.train.MomentumOptimizer(0.5, 0.9),
    )
    for gradients in big_batches(story, len(ends)):
        plain.plain_apply(gradients)
    for got, want in zip(weights[0], plain.weights()):
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("count, sent", CASES[:1])
def test_a_schedule_and_statistics_are_the_same_on_all_workers(ends, count, sent):
    ends = [end["growing cycles"] for end in ends(count, sent)]
    assert ends[0] == ends[1]
    counts, weights, micro_batches, weight = ends[0]
    assert counts == [1, 2, 2, 2, 3, 3, 3, 4]
    plain = modes.Eager(
        [np.zeros(2, np.float32)], lambda: tf.compat.v1.train.MomentumOptimizer(0.5, 0.9)
    )
    for cycle in ([0], [1], [2, 3, 4], [5, 6, 7]):
        given = [worker.micro_batch(each, number) for number in cycle for each in range(count)]
        total = sum(each for _, each in given)
        plain.plain_apply([sum(gradient * each for gradient, each in given) / total])
    np.testing.assert_allclose(weights, plain.weights()[0], rtol=1e-6, atol=1e-6)
    assert (micro_batches, weight) == (3 * count, total)
