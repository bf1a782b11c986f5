"""A cycle that is interrupted, saved, restored and finished makes the update that an uninterrupted
one makes."""

from __future__ import absolute_import, division, print_function

import os

import numpy as np
import pytest
import tensorflow as tf

import gradaccum_compat as ga
from support import cycles, small_sums

v1 = tf.compat.v1


@pytest.mark.parametrize("interrupted_at", [1, 2, 4, 6, 7])
def test_in_mid_cycle(tmpdir, interrupted_at):
    path = cycles.Program().run(0, interrupted_at).checkpoint.write(str(tmpdir.join("checkpoint")))
    restored = cycles.Program()
    restored.checkpoint.restore(path)
    restored.run(interrupted_at, cycles.END)
    for got, want in zip(restored.weights(), cycles.Program().run(0, cycles.END).weights()):
        np.testing.assert_array_equal(got, want)


def test_restored_before_the_variables_are_asked_for(tmpdir):
    path = cycles.Program().run(0, 6).checkpoint.write(str(tmpdir.join("checkpoint")))
    restored = cycles.Program(late=True)
    restored.checkpoint.restore(path)
    restored.run(6, cycles.END)
    for got, want in zip(restored.weights(), cycles.Program().run(0, cycles.END).weights()):
        np.testing.assert_array_equal(got, want)


def test_restored_under_a_trace_that_is_older(tmpdir):
    path = cycles.Program().run(0, 7).checkpoint.write(str(tmpdir.join("checkpoint")))
    restored = cycles.Program()
    apply = tf.function(restored.accumulator.apply)
    assert not apply().numpy()
    restored.checkpoint.restore(path)
    assert apply().numpy()
    whole = cycles.Program().run(0, 7)
    whole.accumulator.apply()
    for got, want in zip(restored.weights(), whole.weights()):
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)


def test_counters_are_restored(tmpdir):
    path = cycles.Program().run(0, 6).checkpoint.write(str(tmpdir.join("checkpoint")))
    restored = cycles.Program()
    restored.checkpoint.restore(path)
    accumulator = restored.accumulator
    assert [int(accumulator.micro_count), int(accumulator.update_count)] == [2, 1]
    assert float(accumulator.total_weight) == sum(
        cycles.micro_batch(number)[1] for number in (4, 5)
    )


@pytest.mark.parametrize(
    "elements, sums",
    [
        (0, ["sums/0", "sums/1"]),
        (3, ["packed/0", "packed_shapes", "sums/1"]),
        (100, ["packed/0", "packed_shapes"]),
    ],
)
def test_keys_are_stable(tmpdir, monkeypatch, elements, sums):
    """A checkpoint of another TensorFlow, or of an older release of this package, is found by
    these."""
    small_sums.patch(monkeypatch, elements)
    path = cycles.Program().run(0, 1).checkpoint.write(str(tmpdir.join("checkpoint")))
    suffix = "/.ATTRIBUTES/VARIABLE_VALUE"
    keys = [
        name[: -len(suffix)]
        for name, _ in tf.train.list_variables(path)
        if name.startswith("accumulator")
    ]
    assert sorted(keys) == [
        "accumulator/_cycle/" + key
        for key in sorted(
            sums
            + ["dense", "micro_count", "rows/blocks", "rows/flags", "seen", "skipped_count"]
            + ["total_weight", "update_count", "weight_exact"]
        )
    ]


def test_the_weights_and_the_optimizer_are_not_saved_a_second_time():
    program = cycles.Program().run(0, 1)
    model = {id(variable) for variable in program.variables}
    assert not model & {id(variable) for variable in program.accumulator.variables}


# In a graph


def train_op(graph):
    with graph.as_default():
        variable = v1.Variable([1.0, 2.0], use_resource=True, name="weights")
        gradient = v1.placeholder(tf.float32, [2])
        accumulator = ga.Accumulator(v1.train.MomentumOptimizer(0.1, 0.9), [variable], steps=3)
        return accumulator.step([gradient]), gradient, variable, v1.train.Saver()


def test_a_saver_in_mid_cycle(tmpdir):
    gradients = np.random.RandomState(0).randn(9, 2)
    ends = []
    for interrupted_at in (None, 4):
        graph = tf.Graph()
        step, gradient, variable, saver = train_op(graph)
        session = v1.Session(graph=graph)
        with graph.as_default():
            session.run(v1.global_variables_initializer())
        for number, value in enumerate(gradients):
            if number == interrupted_at:
                with graph.as_default():
                    path = saver.save(session, os.path.join(str(tmpdir), "model"))
                graph = tf.Graph()
                step, gradient, variable, saver = train_op(graph)
                session = v1.Session(graph=graph)
                with graph.as_default():
                    saver.restore(session, path)
            session.run(step, {gradient: value})
        ends.append(session.run(variable))
    np.testing.assert_array_equal(*ends)


@pytest.mark.parametrize(
    "elements, sums", [(0, ["sum_0"]), (2, ["packed_float32", "packed_shapes"])]
)
def test_names_in_a_graph_are_stable(monkeypatch, elements, sums):
    """A Saver finds them by name, wherever in the program the accumulator is made."""
    small_sums.patch(monkeypatch, elements)
    graph = tf.Graph()
    with graph.as_default(), v1.name_scope("training"):
        train_op(graph)
        names = [variable.op.name for variable in v1.global_variables()]
    assert [name for name in names if name.startswith("accumulator/")] == [
        "accumulator/" + name
        for name in sums
        + [
            "micro_count",
            "total_weight",
            "update_count",
            "skipped_count",
            "seen",
            "dense",
            "row_flags",
            "block_flags",
            "weight_exact",
        ]
    ]
