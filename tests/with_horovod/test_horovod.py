"""Horovod's workers, as real processes that talk gloo on the loopback: the weights of one device
and one big batch."""

from __future__ import absolute_import, division, print_function

import json

import horovod.tensorflow as hvd
import numpy as np
import pytest
import tensorflow as tf

import gradaccum_compat as ga
from support import horovod_worker, modes
from support.reference import Reference, Slices

v1 = tf.compat.v1
#: What workers send of a table.
SENT = ["rows", "whole"]


@pytest.fixture(
    scope="module",
    params=[mode + "-" + sent for mode in sorted(horovod_worker.MODES) for sent in SENT],
)
def came(request, run_workers, tmpdir_factory):
    """What came of all cases on each worker, in one mode."""
    command = ["-m", "support.horovod_worker"] + request.param.split("-")
    outs = run_workers(command, tmpdir_factory.mktemp(request.param))
    return [json.loads(out) for out in outs]


class Expected(object):
    """What the plain optimizer makes of the big batches, in which each variable is of the kind that
    it would be there."""

    def __init__(self, case):
        self.case, self.kinds = case, {}
        self.plain = modes.Eager(case.values, horovod_worker.OPTIMIZERS[case.optimizer])

    def cycles(self):
        """(gradients or None, weights) of each cycle: None where nothing came in."""
        for cycle in self.case.cycles:
            shares = [share for micro_batch in cycle for share in micro_batch if share is not None]
            yield self._gradients(shares) if shares else None, self.plain.weights()

    def _gradients(self, shares):
        shapes = [value.shape for value in self.case.values]
        meaning = {
            key: value
            for key, value in self.case.options.items()
            if key in ("clip_norm", "loss_reduction")
        }
        reference = Reference(shapes, **meaning)
        reference.accumulate_on_replicas(shares)
        big = reference.gradients()
        if all(np.isfinite(each).all() for each in big):
            self.plain.plain_apply(
                [
                    self._as_seen(index, each, [gradients[index] for gradients, _ in shares])
                    for index, each in enumerate(big)
                ]
            )
        return big

    def _as_seen(self, index, big, gradients):
        slices = [each for each in gradients if isinstance(each, Slices)]
        if any(each is not None and not isinstance(each, Slices) for each in gradients):
            self.kinds[index] = "dense"
        elif slices:
            self.kinds.setdefault(index, "sparse")
        if all(each is None for each in gradients):
            return None
        big = big.astype(self.case.values[index].dtype)
        if self.kinds.get(index) == "sparse":
            rows = sorted(set(row for each in slices for row in each.rows))
            return Slices(big[rows], rows)
        return big


@pytest.mark.parametrize("name", sorted(horovod_worker.CASES))
def test_workers_make_the_updates_of_the_big_batch(came, name):
    for cycle, (gradients, weights) in enumerate(Expected(horovod_worker.CASES[name]).cycles()):
        for worker, each in enumerate(came):
            got, place = each[name][cycle], "after cycle %d on worker %d" % (cycle, worker)
            close(got["weights"], weights, place)
            if gradients is None:
                assert got["moved"] is False, place
            elif not all(np.isfinite(each).all() for each in gradients):
                assert got["moved"] == "raised", place
            else:
                assert got["moved"] is True, place
                close(got["gradients"], gradients, place)


def close(got, wanted, place):
    for one, other in zip(got, wanted):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6, err_msg=place)


@pytest.mark.parametrize("name", sorted(set(horovod_worker.CASES) - {"two kinds"}))
def test_workers_end_alike_to_the_bit(came, name):
    """But for a table with both kinds of gradients, which reaches the optimizer as all its rows on
    one of them."""
    assert [each["weights"] for each in came[0][name]] == [
        each["weights"] for each in came[1][name]
    ]


def test_two_accumulators_in_one_run_are_told_apart(came):
    if "two in one run" in came[0]:
        for each in came:
            np.testing.assert_allclose(
                each["two in one run"], [[-20.0] * 3, [-200.0] * 3], rtol=1e-6
            )


def test_what_a_worker_has_built_and_not_run_keeps_no_other_waiting(came):
    if "built and not run" in came[0]:
        for each in came:
            assert each["built and not run"] == [[True, -2.0, 0.0], [False, 0.0, 0.0]]


# One reduction per cycle


def collectives(graph):
    return [op.name for op in graph.get_operations() if op.type.startswith("Horovod")]


def gradients():
    return [tf.ones([3]), tf.IndexedSlices(tf.ones([2, 2]), tf.constant([1, 5])), tf.ones([])]


@pytest.mark.parametrize("micro_batches", [1, 2, 5])
def test_a_cycle_reduces_its_weight_and_its_gradients_once(micro_batches):
    with tf.Graph().as_default() as graph:
        variables = [v1.Variable(value, use_resource=True) for value in horovod_worker.ones()]
        accumulator = ga.Accumulator(modes.sgd(), variables, reducer=ga.horovod.sum_over_workers)
        for _ in range(micro_batches):
            accumulator.accumulate(gradients())
        assert collectives(graph) == []
        accumulator.apply()
        assert len(collectives(graph)) == 2


def test_names_do_not_depend_on_what_else_is_in_the_graph():
    names = []
    for extra in range(2):
        with tf.Graph().as_default() as graph:
            for _ in range(extra):
                with tf.name_scope("sum_over_workers"):
                    tf.zeros([], name="accumulator_1")
            with tf.name_scope("other" * extra):
                variables = [
                    v1.Variable(value, use_resource=True) for value in horovod_worker.ones()
                ]
                accumulator = ga.Accumulator(
                    modes.sgd(), variables, reducer=ga.horovod.sum_over_workers
                )
                accumulator.accumulate(gradients()[:2] + [None if extra else tf.ones([])])
                accumulator.apply()
        names.append(set(name.split("/")[-1] for name in collectives(graph)))
    assert names[0] == names[1] == {"accumulator_1"}


# One engine


@pytest.mark.parametrize(
    "make",
    [lambda: v1.train.AdamOptimizer(), lambda: tf.keras.optimizers.SGD(0.1)],
    ids=["v1", "keras"],
)
def test_an_optimizer_that_reduces_by_itself_is_refused(make):
    import horovod.tensorflow.keras

    wrap = (
        hvd.DistributedOptimizer
        if isinstance(make(), v1.train.Optimizer)
        else (horovod.tensorflow.keras.DistributedOptimizer)
    )
    with pytest.raises(ga.errors.OptimizerError) as caught:
        ga.Accumulator(wrap(make()), [tf.Variable([0.0])], reducer=ga.horovod.sum_over_workers)
    assert "sum_over_workers" in caught.value.remedy
