"""microbatch_gradients with many slices, of which most run in a loop: the same numbers from a graph
that does not grow."""

from __future__ import absolute_import, division, print_function

import numpy as np
import pytest
import tensorflow as tf

import gradaccum_compat as ga
from gradaccum_compat.microbatch import loop
from support import modes, replicas
from support.microbatch_contexts import Made, compiled, draw, flat, function, static_function

TURN = loop.TURN
needs_jit = pytest.mark.skipif(modes.JIT is None, reason=modes.NO_JIT)


@pytest.fixture(autouse=True)
def _short_turns(monkeypatch):
    """A loop from five slices on, two of them in a turn."""
    monkeypatch.setattr(loop, "TURN", 2)


#: TF 1.14 lets go of a graph with its function.
kept = []


def graph_of(compute, arrays):
    tensors = [tf.constant(each) for each in arrays]
    kept.append(tf.function(lambda: compute(tensors)).get_concrete_function())
    return kept[-1].graph


def loops_of(graph):
    return [op for op in graph.get_operations() if op.type in ("While", "StatelessWhile")]


def network(made, x, y):
    w, b, unused = made()
    if tf.reduce_sum(x) > 1e6:  # for AutoGraph
        x = -x
    return tf.reduce_mean(tf.square(tf.tanh(tf.matmul(x, w) + b) - y))


def sliced(made, steps, returned=lambda x, y, loss: loss):
    return lambda tensors: flat(
        ga.microbatch_gradients(
            lambda batch: returned(batch[0], batch[1], network(made, *batch)), made, tensors, steps
        )
    )


def whole(made, arrays):
    with tf.GradientTape() as tape:
        loss = network(made, *map(tf.constant, arrays))
    return [loss] + tape.gradient(loss, made()[:2])


def fresh(examples):
    return Made([draw(3, 2), draw(2), draw(1)]), [draw(examples, 3), draw(examples, 2)]


def check(got, want):
    for ours, theirs in zip(got[:1] + got[2:], want):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("steps", [5, 6, 12])
def test_equals_the_whole_batch(steps):
    """With one slice ahead of the loop, and with two; the last variable has no gradient."""
    made, arrays = fresh(5 * 12)
    compute = sliced(made, steps)
    assert loops_of(graph_of(compute, arrays))
    got = static_function(compute, arrays)
    assert got[1] == 60 and len(got) == 4
    check(got, whole(made, arrays))


@needs_jit
def test_compiled_by_xla():
    made, arrays = fresh(24)
    check(compiled(sliced(made, 8), arrays), whole(made, arrays))


def test_weights_that_only_the_device_knows():
    """And a slice that weighs nothing, whose loss is no number."""
    made, arrays = fresh(24)
    counts = np.random.RandomState(0).randint(1, 9, 24)
    counts[9:12] = 0

    def weighed(x, y, loss):
        weight = tf.reduce_sum(y[:, :1])
        return loss / tf.cast(weight > 0, tf.float32), weight

    arrays[1] = np.concatenate([counts[:, np.newaxis], arrays[1][:, 1:]], 1).astype(np.float32)
    got = static_function(sliced(made, 8, weighed), arrays)
    parts = [
        (whole(made, [each[begin : begin + 3] for each in arrays]), counts[begin : begin + 3].sum())
        for begin in range(0, 24, 3)
    ]
    assert got[1] == counts.sum()
    for position, ours in enumerate(got[:1] + got[2:]):
        want = sum(part[position].numpy() * float(weight) for part, weight in parts) / counts.sum()
        np.testing.assert_allclose(ours, want, rtol=1e-6, atol=1e-6)


def test_extras_come_one_row_a_slice():
    made, arrays = fresh(24)

    def with_extras(x, y, loss):
        return (
            loss,
            None,
            {"x": tf.reduce_sum(x, 0), "none": None, "noise": tf.random.uniform([])},
        )

    def compute(tensors):
        extras = ga.microbatch_gradients(
            lambda batch: with_extras(batch[0], batch[1], network(made, *batch)), made, tensors, 8
        ).extras
        assert extras["none"] is None
        return [extras["x"], extras["noise"]]

    assert loops_of(graph_of(compute, arrays))
    sums, noise = static_function(compute, arrays)
    np.testing.assert_allclose(sums, arrays[0].reshape(8, 3, 3).sum(1), rtol=1e-6, atol=1e-6)
    assert len(set(noise.tolist())) == 8, "other random numbers in each slice"


def test_half_precision_adds_up_in_float32():
    made = Made([np.ones(1, np.float16)])
    x = np.full((4096, 1), 1.0, np.float16)

    def compute(tensors):
        return flat(
            ga.microbatch_gradients(
                lambda batch: (tf.reduce_sum(batch[0] * made()[0]), 1.0), made, tensors, 4096
            )
        )

    got = static_function(compute, [x])
    assert got[2].dtype == np.float16 and got[2].tolist() == [1.0] and got[0] == 1.0


def test_state_that_loss_fn_makes_on_its_first_call():
    made, arrays = [], [draw(24, 3), draw(24, 3)]

    def loss_fn(batch):
        if not made:
            made.append(tf.Variable([1.0, 2.0, 3.0]))
        return tf.reduce_mean(tf.square(batch[0] * made[0] - batch[1]))

    got = static_function(
        lambda tensors: flat(ga.microbatch_gradients(loss_fn, lambda: made, tensors, 8)), arrays
    )
    want = 2 * (arrays[0] * (arrays[0] * [1.0, 2.0, 3.0] - arrays[1])).mean(0) / 3
    np.testing.assert_allclose(got[2], want, rtol=1e-6, atol=1e-6)


def test_rows_and_unknown_sizes_are_unrolled():
    made, ids = Made([draw(50, 2)]), np.random.RandomState(0).randint(0, 50, [24]).astype("int32")

    def loss_fn(batch):
        return tf.reduce_mean(tf.square(tf.gather(made()[0], batch[0])))

    def compute(tensors):
        return flat(ga.microbatch_gradients(loss_fn, made, tensors, 8))

    assert not loops_of(graph_of(compute, [ids]))
    values, rows = static_function(compute, [ids])[2:4]
    table = made()[0].numpy()
    want = np.zeros_like(table)
    np.add.at(want, ids, 2 * table[ids] / 48)
    got = np.zeros_like(table)
    got[rows] = values
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)
    made, arrays = fresh(24)
    check(function(sliced(made, 8), arrays), whole(made, arrays))


def test_other_variables_in_later_slices_are_refused():
    made, calls = Made([np.ones(2, np.float32), np.ones(2, np.float32)]), []

    def loss_fn(batch):
        calls.append(batch)
        return tf.reduce_mean(batch[0] * made()[len(calls) > 2])

    with pytest.raises(
        Exception
    ) as caught:  # AutoGraph puts one of its own in the place of a VariablesError
        static_function(
            lambda tensors: flat(ga.microbatch_gradients(loss_fn, made, tensors, 8)), [draw(24, 2)]
        )
    assert "same variables" in str(caught.value)


def test_replicas_may_talk_to_each_other_in_each_slice():
    """As a synchronised batch normalisation does: no loop could."""
    strategy = replicas.strategy()
    with strategy.scope():
        variable = tf.Variable([1.0, 2.0])
    x = tf.constant(draw(24, 2))

    def loss_fn(batch):
        mean = tf.distribute.get_replica_context().all_reduce(
            tf.distribute.ReduceOp.MEAN, tf.reduce_mean(batch)
        )
        return tf.reduce_mean(batch * variable) + tf.stop_gradient(mean)

    @tf.function
    def run():
        call = getattr(strategy, "run", None) or strategy.experimental_run_v2
        return call(lambda: ga.microbatch_gradients(loss_fn, [variable], x, 8).gradients[0])

    for each in strategy.experimental_local_results(run()):
        np.testing.assert_allclose(each, x.numpy().mean(0) / 2, rtol=1e-6, atol=1e-6)


# What it costs


def nodes(made, arrays, steps):
    definition = graph_of(sliced(made, steps), arrays).as_graph_def()
    return len(definition.node), sum(len(each.node_def) for each in definition.library.function)


def test_the_graph_does_not_grow_with_the_slices(monkeypatch):
    monkeypatch.setattr(loop, "TURN", TURN)
    made, arrays = fresh(3 * 64)
    assert nodes(made, arrays, 2 * TURN + TURN) == nodes(made, arrays, 64)


def test_the_first_turn_waits_for_the_slices_ahead_of_it():
    """Or it would begin at once, and its gradients wait for the sums: all of them in memory
    twice."""
    made, arrays = fresh(24)
    (loop,) = loops_of(graph_of(sliced(made, 8), arrays))
    position = next(
        each.op for each in loop.inputs if each.op.control_inputs and each.op.type == "Const"
    )
    sums = set(each.op for each in loop.inputs if each.shape.as_list() in ([3, 2], [2]))
    assert len(sums) == 2 and sums <= set(position.control_inputs)


@pytest.mark.parametrize("steps, traced", [(8, 8), (9, 5), (12, 8), (64, 8)])
def test_loss_fn_is_traced_for_eight_slices_at_most(monkeypatch, steps, traced):
    """Each takes memory for its part of the graph, before the first one runs."""
    monkeypatch.setattr(loop, "TURN", TURN)
    (made, arrays), calls = fresh(steps), []

    def loss_fn(batch):
        calls.append(batch)
        return network(made, *batch)

    def compute(tensors):
        del calls[:]  # TensorFlow may trace twice
        return flat(ga.microbatch_gradients(loss_fn, made, tensors, steps))

    graph_of(compute, arrays)
    assert len(calls) == traced
