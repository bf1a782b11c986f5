"""Of a table, workers send the touched rows where all have rows alone, and whole sums elsewhere.

The other worker is a twin: it has what this one has. Real workers are in tests/distributed.
"""

from __future__ import absolute_import, division, print_function

import numpy as np
import pytest
import tensorflow as tf

import gradaccum_compat as ga
from gradaccum_compat.core import _tables
from support import modes
from support.reference import Reference, Slices

#: 1,000 rows of 2, and a vector that is no table.
SHAPES = [(1000, 2), (3,)]
TABLE, VECTOR = np.ones(SHAPES[0], np.float32), np.ones(SHAPES[1], np.float32)


@pytest.fixture(autouse=True)
def small_tables(monkeypatch):
    monkeypatch.setattr(_tables, "SMALLEST", 1000)


class Twin(object):
    """Counts what is handed to it, after the summary of each cycle."""

    def __init__(self):
        self.sent = {}

    def __call__(self, tensors, name="not tables"):
        shapes = [tuple(each.shape.as_list()) for each in tensors]
        if len(tensors) > 1 or name != "not tables":
            self.sent[name] = shapes
        return [2.0 * each for each in tensors]

    def gather(self, tensor, name):
        self.sent[name] = tuple(tensor.shape.as_list())
        return tf.concat([tensor, tensor], 0)


def rows(*numbers):
    values = np.random.RandomState(len(numbers)).randn(len(numbers), 2).astype(np.float32)
    return Slices(values, list(numbers))


def sent(*cycle, **options):
    """What a cycle of these gradients of the table sends of it, in eager code."""
    twin = Twin()
    run = modes.Eager([TABLE, VECTOR], reducer=twin, **options)
    for gradient in cycle:
        run.accumulate([gradient, VECTOR])
    assert run.apply()
    del twin.sent["not tables"]
    return twin.sent


def test_touched_rows_are_sent_each_once():
    # One more than the three rows, in case that no worker has any.
    expected = {"values_0": (4, 2), "rows_0": (4,)}
    assert sent(rows(5, 999, 5), rows(5, 0)) == expected


def test_a_table_without_a_gradient_is_not_sent():
    assert sent(None) == {"values_0": (1, 2), "rows_0": (1,)}


def test_a_dense_gradient_sends_the_whole_table():
    assert sent(rows(5), TABLE) == {"table_0": [(1000, 2)]}
    assert sent(TABLE, rows(5)) == {"table_0": [(1000, 2)]}


def test_rows_of_more_bytes_than_the_table_are_sent_as_a_whole():
    """16 bytes a row with its number, on two workers, against 8,000 of the table."""
    assert "values_0" in sent(rows(*range(249)))
    assert sent(rows(*range(250))) == {"table_0": [(1000, 2), (1000,)]}


def test_a_table_below_the_smallest_is_sent_with_the_other_sums(monkeypatch):
    monkeypatch.setattr(_tables, "SMALLEST", 2001)
    assert sent(rows(5)) == {}


CYCLES = {
    "rows": [[rows(5, 999, 5), rows(7)], [rows(999)]],
    "none in between": [[rows(5)], [None], [rows(6), None]],
    "dense in between": [[rows(5)], [rows(6), TABLE], [rows(5)]],
    "dense first": [[TABLE], [rows(5)], [None]],
    "many rows": [[rows(*range(300))], [rows(*range(700, 1000))], [rows(5)]],
}


@pytest.mark.parametrize("name", sorted(CYCLES))
def test_the_update_is_that_of_both_workers(mode, name):
    momentum = lambda: tf.compat.v1.train.MomentumOptimizer(0.5, 0.9)  # noqa: E731
    run = mode([TABLE, VECTOR], momentum, reducer=Twin())
    plain, first = modes.Eager([TABLE, VECTOR], momentum), CYCLES[name][0][0]
    for cycle in CYCLES[name]:
        reference = Reference(SHAPES)
        for number, gradient in enumerate(cycle):
            run.accumulate([gradient, VECTOR], 1.0 + number)
            reference.accumulate_on_replicas([([gradient, VECTOR], 1.0 + number)] * 2)
        assert run.apply()
        big = [each.astype(np.float32) for each in reference.gradients()]
        plain.plain_apply([as_handed_over(big[0], [first] + cycle, cycle), big[1]])
        for got, want in zip(run.weights(), plain.weights()):
            np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)


def as_handed_over(big, kinds, cycle):
    """None without a gradient; whole if one of `kinds` is dense; elsewhere the touched rows."""
    given = [each for each in cycle if each is not None]
    if not given:
        return None
    if any(each is TABLE for each in kinds):
        return big
    touched = sorted(set(row for each in given for row in each.rows))
    return Slices(big[touched], touched)


def test_a_reducer_that_cannot_gather_gets_whole_sums():
    handed = []

    def reducer(tensors):
        handed.append([tuple(each.shape.as_list()) for each in tensors])
        return [2.0 * each for each in tensors]

    run = modes.Eager([TABLE, VECTOR], reducer=reducer)
    run.accumulate([rows(5), VECTOR])
    run.apply()
    assert handed[-1][:2] == SHAPES


def test_reductions_of_a_cycle_have_names_of_their_own():
    twin = Twin()
    accumulator = ga.Accumulator(
        modes.sgd(), [tf.Variable(TABLE), tf.Variable(TABLE)], reducer=twin
    )
    apply = tf.function(accumulator.apply)
    apply()
    names = ["%s_%d" % (name, index) for index in (0, 1) for name in ("rows", "table", "values")]
    assert sorted(twin.sent) == sorted(names + ["not tables"])
