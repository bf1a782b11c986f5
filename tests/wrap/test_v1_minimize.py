"""Wrapped tf.compat.v1.train optimizers in a graph: minimize, the two halves of it, and what the
plain one has."""

from __future__ import absolute_import, division, print_function

import contextlib
import gc

import numpy as np
import pytest
import tensorflow as tf

import gradaccum_compat as ga
from support import v1_programs
from support.v1_programs import BIG, MICRO, STEPS, Program, assert_big_batch, model, plain

v1 = tf.compat.v1


@pytest.mark.parametrize("optimizer", sorted(v1_programs.OPTIMIZERS))
def test_minimize_is_the_big_batch_s(optimizer):
    assert_big_batch(Program(optimizer).run(MICRO), plain(optimizer))


def clipped(optimizer, loss, global_step):
    """compute_gradients, something in between, apply_gradients."""
    pairs = [
        (
            (gradient * 2.0, variable)
            if not isinstance(gradient, tf.IndexedSlices)
            else (gradient, variable)
        )
        for gradient, variable in optimizer.compute_gradients(loss)
    ]
    return optimizer.apply_gradients(pairs, global_step=global_step, name="train")


def test_compute_gradients_and_apply_gradients():
    assert_big_batch(Program(train=clipped).run(MICRO), plain(train=clipped))


def test_train_op_has_the_name_that_was_asked_for():
    assert [Program(train=clipped).train_op.name, Program("adam").train_op.name] == [
        "train",
        "Adam",
    ]


@pytest.mark.parametrize(
    "counts, want", [("updates", [0, 0, 0, 1, 1, 1, 1, 2]), ("micro_batches", range(1, 9))]
)
def test_global_step_counts(counts, want):
    program = Program(options={"global_step": counts})
    got = []
    for batch in MICRO[:8]:
        program.train(batch)
        got.append(program.global_steps())
    assert got == list(want)


def test_a_global_step_that_counts_something_else_is_refused():
    with pytest.raises(ga.errors.OptionError, match="global_step must be one of"):
        ga.wrap_optimizer(v1.train.GradientDescentOptimizer(0.1), steps=4, global_step="cycles")


def test_keras_optimizers_have_no_global_step():
    with pytest.raises(ga.errors.OptionError, match="iterations"):
        ga.wrap_optimizer(tf.keras.optimizers.SGD(0.1), steps=4, global_step="micro_batches")


def test_learning_rate_schedule_counts_updates():
    def decaying():
        step = v1.train.get_or_create_global_step()
        return v1.train.GradientDescentOptimizer(v1.train.exponential_decay(0.1, step, 1, 0.5))

    assert_big_batch(Program(decaying).run(MICRO), plain(decaying))


# What the plain one has


def test_outlives_a_collection_of_garbage():
    """Python 3.13 once cleared the attributes that the two views share."""
    program = Program("adam")
    gc.collect()
    assert program.optimizer.accumulator is not None
    assert_big_batch(program.run(MICRO), plain("adam"))


def test_slots_and_variables_are_the_plain_one_s():
    accumulated, alone = Program("adam"), Program("adam", options=None)
    accumulated.run(MICRO[:STEPS])
    alone.run(BIG[:1])
    assert accumulated.optimizer.get_slot_names() == alone.optimizer.get_slot_names() == ["m", "v"]
    assert [each.name for each in accumulated.optimizer.variables()] == [
        each.name for each in alone.optimizer.variables()
    ]
    for name in ("m", "v"):
        slots = [
            program.session.run(
                [program.optimizer.get_slot(weight, name) for weight in program.weights]
            )
            for program in (accumulated, alone)
        ]
        v1_programs.assert_same_weights(*slots)


@contextlib.contextmanager
def nested_scopes():
    with v1.variable_scope("outer"), v1.name_scope("inner"):
        yield


def in_scopes(optimizer, loss, global_step):
    with nested_scopes():
        return optimizer.minimize(loss, global_step=global_step)


def variables_of(program, key):
    with program.graph.as_default():
        return [each.op.name for each in v1.get_collection(key)]


@pytest.mark.parametrize("train", [v1_programs.minimize, in_scopes])
def test_all_other_variables_have_the_names_of_the_plain_program(train):
    """An old checkpoint is found by these."""
    accumulated, alone = [
        variables_of(Program("adam", train=train, options=options), v1.GraphKeys.GLOBAL_VARIABLES)
        for options in ((), None)
    ]
    assert sorted(each for each in accumulated if not each.startswith("accumulator/")) == sorted(
        alone
    )


def test_a_variable_without_a_gradient_gets_neither_slots_nor_a_sum():
    def with_another(x, ids):
        v1.get_variable("unused", [3], use_resource=True)
        return model(x, ids)

    names = variables_of(Program("adam", build=with_another), v1.GraphKeys.GLOBAL_VARIABLES)
    assert [each for each in names if "unused" in each] == ["unused"]
    assert len([each for each in names if each.startswith("accumulator/sum")]) == 2


def test_the_rest_of_the_data_makes_an_update():
    program, alone = Program("adam"), Program("adam", options=None)
    with program.graph.as_default():
        flush = program.optimizer.accumulator.apply()
    program.run(MICRO[: STEPS + 1])
    program.session.run(flush)
    alone.run([BIG[0], MICRO[STEPS]])
    v1_programs.assert_same_weights(program.values(), alone.values())
    assert program.global_steps() == alone.global_steps() == 2


# Collections


def test_collections_are_kept_clean():
    program = Program("adam")
    state = {each.op.name for each in program.optimizer.accumulator.variables}
    assert len(state) == 11 and state <= set(variables_of(program, v1.GraphKeys.GLOBAL_VARIABLES))
    for key in (
        v1.GraphKeys.TRAINABLE_VARIABLES,
        v1.GraphKeys.LOCAL_VARIABLES,
        v1.GraphKeys.MODEL_VARIABLES,
    ):
        assert not state & set(variables_of(program, key)), key
    assert program.graph.get_collection(v1.GraphKeys.TRAIN_OP) == [program.train_op]


def test_what_the_collection_of_train_ops_holds_can_be_run():
    program = Program(
        train=lambda *args: v1_programs.minimize(*args)
        and v1.get_collection(v1.GraphKeys.TRAIN_OP)[0]
    )
    assert_big_batch(program.run(MICRO), plain())


# Variables of each kind


def test_partitioned_variables():
    def build(x, ids):
        return model(x, ids, partitioner=v1.fixed_size_partitioner(3))

    assert len(Program(build=build).weights) == 6
    assert_big_batch(Program(build=build).run(MICRO), plain(build=build))


def test_scopes_with_reuse():
    def twice(x, ids):
        with v1.variable_scope("model"):
            first = model(x, ids)
        with v1.variable_scope("model", reuse=True):
            return first + model(x * 2.0, ids)

    assert len(Program(build=twice).weights) == 2
    assert_big_batch(Program(build=twice).run(MICRO), plain(build=twice))


def test_a_conditional_in_the_model():
    def build(x, ids):
        prediction = model(x, ids)
        return tf.cond(tf.reduce_sum(x) > 0, lambda: prediction * 2.0, lambda: prediction)

    program = Program(build=build)
    got = program.run(MICRO[:STEPS])
    alone = Program(options=None, build=build)
    mean = gradients_by_hand(alone, MICRO[:STEPS])
    with alone.graph.as_default():
        kernel = alone.weights[0]
        np.testing.assert_allclose(
            got[-1][0], alone.session.run(kernel) - 0.1 * mean, rtol=1e-6, atol=1e-6
        )


def gradients_by_hand(program, batches):
    """The mean gradient of the kernel over batches of one size."""
    with program.graph.as_default():
        gradient = tf.gradients(program.loss, [program.weights[0]])[0]
    return np.mean(
        [program.session.run(gradient, dict(zip(program.inputs, batch))) for batch in batches], 0
    )


def test_a_loop_in_the_model():
    def build(x, ids):
        prediction = model(x, ids)
        return tf.while_loop(
            lambda i, _: i < 3,
            lambda i, total: (i + 1, total + 0.5 * prediction),
            [tf.constant(0), tf.zeros_like(prediction)],
        )[1]

    assert_big_batch(Program(build=build).run(MICRO), plain(build=build))


# Several train ops on one graph


def gan(options):
    """Two players: (train ops, weights, inputs, initializer) of a graph where each optimizer has
    its own."""
    graph = tf.Graph()
    with graph.as_default():
        x = v1.placeholder(tf.float32, [None])
        players = [
            v1.get_variable(name, [], initializer=v1.ones_initializer(), use_resource=True)
            for name in ("generator", "discriminator")
        ]
        losses = [
            tf.reduce_mean(tf.square(players[0] * x - players[1])),
            -tf.reduce_mean(players[0] * players[1] * x) + tf.square(players[1]),
        ]
        ops = []
        for loss, player in zip(losses, players):
            optimizer = v1.train.AdamOptimizer(0.1)
            if options is not None:
                optimizer = ga.wrap_optimizer(optimizer, **options)
            ops.append(optimizer.minimize(loss, var_list=[player]))
        return graph, ops, players, x, v1.global_variables_initializer()


def play(options, rounds):
    graph, ops, players, x, initializer = gan(options)
    with v1.Session(graph=graph) as session:
        session.run(initializer)
        for round_ in rounds:
            for op in ops:
                for batch in round_:
                    session.run(op, {x: batch})
        return session.run(players)


def test_two_train_ops_on_one_graph():
    data = np.random.RandomState(3).randn(3, 4, 5).astype(np.float32)
    v1_programs.assert_same_weights(play({"steps": 4}, data), play(None, data.reshape(3, 1, 20)))


def test_one_optimizer_for_two_train_ops_is_refused():
    with tf.Graph().as_default():
        optimizer = ga.wrap_optimizer(v1.train.AdamOptimizer(0.1), steps=4)
        one, other = [v1.get_variable(name, [], use_resource=True) for name in ("one", "other")]
        optimizer.minimize(tf.square(one), var_list=[one])
        with pytest.raises(ga.errors.VariablesError, match="an optimizer for each train op"):
            optimizer.minimize(tf.square(other), var_list=[other])


def test_one_optimizer_serves_several_graphs():
    """Canned Estimators are handed an optimizer, and make a graph for each call of train()."""
    optimizer = v1.train.MomentumOptimizer(0.1, 0.9)
    accumulated = ga.wrap_optimizer(optimizer, steps=STEPS)
    for _ in range(2):
        assert_big_batch(Program(lambda: accumulated, options=None).run(MICRO), plain())
