"""Wrapped tf.compat.v1.train optimizers under MonitoredTrainingSession, its hooks and Supervisor;
Savers."""

from __future__ import absolute_import, division, print_function

import logging
import os

import numpy as np
import pytest
import tensorflow as tf

import gradaccum_compat as ga
from support import v1_programs
from support.v1_programs import (
    BIG,
    MICRO,
    STEPS,
    Program,
    assert_big_batch,
    assert_same_weights,
    plain,
)

v1 = tf.compat.v1


def monitored(program, batches, scaffold=None, folder=None, hooks=(), **options):
    """Trains in a MonitoredTrainingSession, and returns the weights after each micro-batch."""
    got = []
    with program.graph.as_default():
        with v1.train.MonitoredTrainingSession(
            checkpoint_dir=folder, scaffold=scaffold and scaffold(), hooks=list(hooks), **options
        ) as session:
            for batch in batches:
                if session.should_stop():
                    break
                session.run(program.train_op, dict(zip(program.inputs, batch)))
                raw = session._tf_sess()
                got.append([raw.run(each) for each in program.weights])
    return got


def saved(folder):
    """The global steps of the checkpoints in a folder."""
    state = tf.train.get_checkpoint_state(str(folder))
    return [int(path.split("-")[-1]) for path in state.all_model_checkpoint_paths] if state else []


def of_checkpoint(path, name):
    return v1.train.NewCheckpointReader(path).get_tensor(name)


def with_summary(program):
    with program.graph.as_default():
        v1.summary.scalar("loss", program.loss)
    return program


def test_monitored_session_with_checkpoints_and_summaries(tmpdir):
    program = with_summary(Program("adam"))
    got = monitored(
        program, MICRO, folder=str(tmpdir), save_checkpoint_steps=1, save_summaries_steps=1
    )
    assert_big_batch(got, plain("adam"))
    assert saved(tmpdir) == [0, 1, 2, 3]
    assert [each for each in os.listdir(str(tmpdir)) if each.startswith("events.out")]


def test_hooks_that_save_by_steps_of_updates_never_save_in_mid_cycle(tmpdir):
    monitored(Program(), MICRO[: 2 * STEPS], folder=str(tmpdir), save_checkpoint_steps=1)
    paths = tf.train.get_checkpoint_state(str(tmpdir)).all_model_checkpoint_paths
    assert [int(of_checkpoint(path, "accumulator/micro_count")) for path in paths] == [0, 0, 0]


@pytest.mark.parametrize("interrupted_at", [2, 5])
def test_hooks_that_save_by_steps_of_micro_batches_save_in_mid_cycle_and_go_on(
    tmpdir, interrupted_at
):
    options = {"global_step": "micro_batches"}
    first = monitored(
        Program(options=options),
        MICRO[:interrupted_at],
        folder=str(tmpdir),
        save_checkpoint_steps=1,
    )
    path = tf.train.latest_checkpoint(str(tmpdir))
    assert int(of_checkpoint(path, "accumulator/micro_count")) == interrupted_at % STEPS
    second = monitored(
        Program(options=options),
        MICRO[interrupted_at:],
        folder=str(tmpdir),
        save_checkpoint_steps=1,
    )
    assert_big_batch(first + second, plain())


def test_stop_at_step_hook_counts_what_the_global_step_counts():
    for counts, want in (("updates", 2 * STEPS), ("micro_batches", 2)):
        program = Program(options={"global_step": counts})
        assert len(monitored(program, MICRO, hooks=[v1.train.StopAtStepHook(last_step=2)])) == want


class _Said(logging.Handler):
    """What TensorFlow's log has said, by whichever of its modules."""

    def __init__(self):
        super(_Said, self).__init__()
        self.texts = []

    def emit(self, record):
        self.texts.append(record.getMessage())


@pytest.fixture
def said():
    log, handler = logging.getLogger("tensorflow"), _Said()
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.WARNING)
    yield handler.texts
    log.setLevel(level)
    log.removeHandler(handler)


def _about_the_global_step(texts):
    return [each for each in texts if "micro-batches" in each and "has not been increased" in each]


def test_the_log_says_why_the_global_step_stands_still(said):
    Program()
    assert (
        len(_about_the_global_step(said)) == 1
        and "one in 4 micro-batches" in _about_the_global_step(said)[0]
    )
    del said[:]
    Program(options={"global_step": "micro_batches"})
    Program(options={"steps": 1})
    assert _about_the_global_step(said) == []


def test_supervisor(tmpdir):
    program = Program("adam")
    got = []
    with program.graph.as_default():
        supervisor = v1.train.Supervisor(
            logdir=str(tmpdir),
            global_step=program.global_step,
            save_model_secs=0,
            save_summaries_secs=0,
        )  # no threads, where eager execution would be on
        with supervisor.managed_session() as session:
            for batch in MICRO:
                session.run(program.train_op, dict(zip(program.inputs, batch)))
                got.append([session.run(each) for each in program.weights])
    assert_big_batch(got, plain("adam"))


# Old checkpoints


def old_checkpoint(folder, optimizer="momentum"):
    """What a program without accumulation has saved after its first update; returns the path."""
    program = Program(optimizer, options=None)
    program.run(BIG[:1])
    with program.graph.as_default():
        return v1.train.Saver().save(
            program.session, os.path.join(str(folder), "model.ckpt"), global_step=1
        )


@pytest.mark.parametrize("optimizer", ["momentum", "adam"])
@pytest.mark.parametrize("sharded", [False, True])
def test_monitored_session_goes_on_from_an_old_checkpoint(tmpdir, optimizer, sharded):
    old_checkpoint(tmpdir, optimizer)

    def scaffold():
        return v1.train.Scaffold(saver=ga.Saver(sharded=sharded))

    got = monitored(
        Program(optimizer), MICRO[STEPS:], scaffold, str(tmpdir), save_checkpoint_steps=1
    )
    assert_big_batch(got, plain(optimizer)[1:])
    assert saved(tmpdir)[-1] == 3


def test_a_plain_saver_asks_for_the_accumulators(tmpdir):
    """Why there is ga.Saver; should this ever change, it can go."""
    old_checkpoint(tmpdir)
    with pytest.raises(tf.errors.NotFoundError):
        monitored(Program(), MICRO[STEPS:], folder=str(tmpdir))


def test_saver_goes_on_in_mid_cycle(tmpdir):
    def scaffold():
        return v1.train.Scaffold(saver=ga.Saver())

    options = {"global_step": "micro_batches"}
    got = []
    for part in (MICRO[:6], MICRO[6:]):
        got += monitored(
            Program(options=options), part, scaffold, str(tmpdir), save_checkpoint_steps=1
        )
    assert_big_batch(got, plain())


def session_after(program, path, saver):
    with program.graph.as_default():
        session = v1.Session(graph=program.graph)
        saver().restore(session, path)
    program.session = session
    return program


def test_saver_with_a_list_and_with_names(tmpdir):
    path = old_checkpoint(tmpdir)

    def by_name():
        return ga.Saver({each.op.name: each for each in v1.global_variables()})

    for saver in (by_name, lambda: ga.Saver(v1.global_variables())):
        assert_big_batch(session_after(Program(), path, saver).run(MICRO[STEPS:]), plain()[1:])


def test_saver_with_partitioned_variables(tmpdir):
    def build(x, ids):
        return v1_programs.model(x, ids, partitioner=v1.fixed_size_partitioner(3))

    alone = Program(build=build, options=None)
    alone.run(BIG[:1])
    with alone.graph.as_default():
        path = v1.train.Saver().save(alone.session, os.path.join(str(tmpdir), "model.ckpt"))
    accumulated = session_after(Program(build=build), path, ga.Saver)
    assert_big_batch(accumulated.run(MICRO[STEPS:]), alone.run(BIG[1:]))


def training(number):
    """Trains one of the variables alone."""
    return lambda optimizer, loss, global_step: optimizer.minimize(
        loss, global_step=global_step, var_list=[v1.trainable_variables()[number]]
    )


@pytest.mark.parametrize("train", [v1_programs.minimize, training(0)], ids=["more", "other"])
def test_an_accumulator_of_other_variables_begins_anew(tmpdir, train):
    path = os.path.join(str(tmpdir), "model.ckpt")
    of_the_table = Program("sgd", train=training(1))
    of_the_table.run(MICRO[:2])
    with of_the_table.graph.as_default():
        v1.train.Saver().save(of_the_table.session, path)
    accumulated = session_after(Program("sgd", train=train), path, ga.Saver)
    assert_big_batch(accumulated.run(MICRO), plain("sgd", train=train))


def test_what_is_no_checkpoint_is_said_as_ever(tmpdir):
    program = Program()
    with program.graph.as_default(), pytest.raises(ValueError, match="not a valid checkpoint"):
        ga.Saver().restore(program.session, str(tmpdir.join("nothing")))


def test_meta_graph_of_a_checkpoint_can_be_imported(tmpdir):
    program = Program()
    got = program.run(MICRO[:6])
    with program.graph.as_default():
        path = ga.Saver().save(program.session, os.path.join(str(tmpdir), "model"))
    graph = tf.Graph()
    with graph.as_default(), v1.Session(graph=graph) as session:
        saver = v1.train.import_meta_graph(path + ".meta")
        saver.restore(session, path)
        (train_op,) = v1.get_collection(v1.GraphKeys.TRAIN_OP)
        for batch in MICRO[6:]:
            session.run(
                train_op, {tensor.name: value for tensor, value in zip(program.inputs, batch)}
            )
            got.append(session.run(v1.trainable_variables()))
    assert_big_batch(got, plain())


# Warm start


def test_init_from_checkpoint(tmpdir):
    path = old_checkpoint(tmpdir)

    def build(x, ids):
        with v1.variable_scope("fine"):
            prediction = v1_programs.model(x, ids)
        v1.train.init_from_checkpoint(path, {"/": "fine/"})
        return prediction

    program = Program("sgd", build=build)
    want = plain("sgd")
    assert_same_weights(program.values(), plain()[0])
    program.run(MICRO[:STEPS])
    assert len(want[0]) == len(program.values())


def test_scaffold_init_fn(tmpdir):
    path = old_checkpoint(tmpdir, "sgd")

    def scaffold():
        weights = v1.train.Saver(v1.trainable_variables())
        return v1.train.Scaffold(init_fn=lambda scaffold, session: weights.restore(session, path))

    assert_big_batch(monitored(Program("sgd"), MICRO[STEPS:], scaffold), plain("sgd")[1:])


def test_restoring_by_hand_without_the_accumulators(tmpdir):
    path = old_checkpoint(tmpdir)
    program = Program()
    state = {each.name for each in program.optimizer.accumulator.variables}
    with program.graph.as_default():
        v1.train.Saver([each for each in v1.global_variables() if each.name not in state]).restore(
            program.session, path
        )
    assert_big_batch(program.run(MICRO[STEPS:]), plain()[1:])
    assert np.isfinite(program.values()[0]).all()
