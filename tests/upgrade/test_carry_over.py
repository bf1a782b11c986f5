"""carry_over brings a TF 1 Saver's checkpoint into Keras's optimizers, which go on as the old ones
do."""

from __future__ import absolute_import, division, print_function

import numpy as np
import pytest
import tensorflow as tf

import gradaccum_compat as ga
from gradaccum_compat import errors
from support import carried_training as training
from support import replicas, small_sums

v1 = tf.compat.v1
SERVED = sorted(training.NEW)


@pytest.fixture
def path(tmpdir):
    return str(tmpdir.join("model.ckpt"))


def assert_same(got, want):
    for value, expected in zip(got, want):
        np.testing.assert_allclose(value, expected, rtol=1e-6, atol=1e-6)


def save(path, values):
    """A Saver's checkpoint of these values by name."""
    with tf.Graph().as_default(), v1.Session() as session:
        for name, value in values.items():
            v1.Variable(value, name=name, use_resource=True)
        session.run(v1.global_variables_initializer())
        v1.train.Saver().save(session, path)


def weights():
    return dict(zip(training.SHAPES, training.START))


def with_slots(*slots):
    """The weights, and for each a slot of ones under each of these last parts."""
    return dict(
        weights(),
        **{
            name + "/" + slot: np.ones(shape, np.float32)
            for name, shape in training.SHAPES.items()
            for slot in slots
        }
    )


# Training goes on


@pytest.mark.parametrize("name", SERVED)
def test_a_plain_optimizer_goes_on_as_the_old_one_does(path, name):
    whole = training.begin(training.OLD[name](), path, accumulates=False)
    program = training.Continued(training.NEW[name]())
    program.carry_over(path)
    assert_same(program.train(training.INTERRUPTED_AT), whole)


@pytest.mark.parametrize("name", SERVED)
def test_a_wrapped_optimizer_goes_on_in_mid_cycle(path, name):
    whole = training.begin(training.OLD[name](), path)
    program = training.wrapped(training.NEW[name]())
    program.carry_over(path)
    assert (
        int(program.optimizer.accumulator.micro_count) == training.INTERRUPTED_AT % training.STEPS
    )
    assert_same(program.train(training.INTERRUPTED_AT), whole)


@pytest.mark.parametrize("name", ["adam", "momentum"])
def test_an_accumulator_goes_on_in_mid_cycle(path, name):
    whole = training.begin(training.OLD[name](), path)
    program = training.with_accumulator(training.NEW[name]())
    program.carry_over(path)
    assert_same(program.train(training.INTERRUPTED_AT), whole)


@pytest.mark.parametrize("name", ["adam", "momentum"])
def test_two_replicas_go_on_in_mid_cycle_by_a_checkpoint_of_one(path, name):
    whole = training.begin(training.OLD[name](), path)
    optimizer = training.NEW[name]()
    program = training.with_accumulator(optimizer)
    program.carry_over(path)
    saved = program.checkpoint(optimizer).save(path + "-2")
    with replicas.strategy().scope():
        optimizer = training.NEW[name]()
    program = training.OnReplicas(optimizer)
    with pytest.raises(errors.ContextError, match="restore that on the replicas"):
        program.carry_over(path)
    with replicas.strategy().scope():
        program.checkpoint(optimizer).restore(saved)
    assert_same(program.train(training.INTERRUPTED_AT), whole)


def test_at_the_end_of_a_cycle_a_fresh_one_begins(path):
    whole = training.begin(training.OLD["adam"](), path, stop=2 * training.STEPS)
    program = training.with_accumulator(training.NEW["adam"]())
    program.train(0, 2)
    program.optimizer = ga.Accumulator(
        training.NEW["adam"](), program.variables, steps=training.STEPS
    )
    program.train(0, 2)
    program.carry_over(path)
    assert int(program.optimizer.micro_count) == 0 and int(program.optimizer.update_count) == 2
    assert_same(program.train(2 * training.STEPS), whole)


def test_variables_in_another_order_have_their_own_sums_by_names(path):
    whole = training.begin(training.OLD["momentum"](), path)
    program = training.wrapped(training.NEW["momentum"]())
    names = {"accumulator/sum_%d" % number: name for number, name in enumerate(training.SHAPES)}
    ga.upgrade.carry_over(path, program.optimizer, program.variables[::-1], names=names)
    assert_same(program.train(training.INTERRUPTED_AT), whole)


def test_an_accumulator_that_was_interrupted_goes_on(path):
    whole = training.begin(training.OLD["sgd"](), path)
    program = training.with_accumulator(training.NEW["sgd"]())
    program.optimizer._calls._interrupted = "accumulate"
    program.carry_over(path)
    assert_same(program.train(training.INTERRUPTED_AT), whole)


def test_what_large_sums_are_left_with_is_in_no_later_cycle(path, monkeypatch):
    small_sums.patch(monkeypatch, 0)
    whole = training.begin(training.OLD["sgd"](), path, stop=2 * training.STEPS)
    small_sums.patch(monkeypatch, small_sums.SMALL)
    program = training.wrapped(training.NEW["sgd"]())
    program.carry_over(path)
    assert_same(program.train(2 * training.STEPS), whole)


class Table(object):
    """A vector, and a table that has sparse gradients."""

    def __init__(self, optimizer, make):
        self.variables = [make([3], "vector"), make([70, 2], "table")]
        self.accumulator = ga.Accumulator(optimizer, self.variables)

    def accumulate(self, rows):
        slices = tf.IndexedSlices(tf.ones([len(rows), 2]), tf.constant(rows))
        return self.accumulator.accumulate([tf.ones([3]), slices])


def begin_with_rows(path, optimizer):
    """Saves in mid-cycle, and returns the weights after it."""
    with tf.Graph().as_default(), v1.Session() as session:

        def make(shape, name):
            return v1.get_variable(
                name, shape, initializer=v1.ones_initializer(), use_resource=True
            )

        program = Table(optimizer(), make)
        calls = [program.accumulate(rows) for rows in ([3, 69], [40])]
        applied = program.accumulator.apply()
        session.run(v1.global_variables_initializer())
        session.run(calls[0])
        v1.train.Saver().save(session, path)
        session.run(calls[1])
        session.run(applied)
        return session.run(program.variables)


def test_rows_that_were_touched_are_carried_over(path):
    whole = begin_with_rows(path, training.OLD["adagrad"])
    program = Table(
        training.NEW["adagrad"](), lambda shape, name: tf.Variable(tf.zeros(shape), name=name)
    )
    report = ga.upgrade.carry_over(path, program.accumulator, program.variables)
    program.accumulate([40])
    assert program.accumulator.gradients()[1].indices.numpy().tolist() == [3, 40, 69]
    program.accumulator.apply()
    assert_same([each.numpy() for each in program.variables], whole)
    assert not any("all rows" in each for each in report.notes)


@pytest.mark.parametrize("name", ["rmsprop"] if training.OUTSIDE else ["rmsprop", "momentum"])
def test_an_optimizer_that_updates_all_rows_is_noted(path, name):
    begin_with_rows(path, training.OLD[name])
    program = Table(
        training.NEW[name](), lambda shape, name: tf.Variable(tf.zeros(shape), name=name)
    )
    report = ga.upgrade.carry_over(path, program.accumulator, program.variables)
    assert any("all rows" in each and "table will train" in each for each in report.notes)


# What is kept differently


def test_momentum_is_kept_as_updates(path):
    save(path, dict(with_slots("Momentum"), global_step=np.int64(7)))
    program = training.Continued(training.NEW["momentum"]())
    report = program.carry_over(path)
    np.testing.assert_allclose(slots_of(program, "momentum")[0], -0.02 * np.ones([3, 2]), rtol=1e-6)
    assert "learning rate" in report.converted["dense/kernel/Momentum"]
    assert int(program.optimizer.iterations) == 7


def slots_of(program, name):
    from gradaccum_compat.upgrade import _slots

    return [each[name].numpy() for each in _slots.slots_of(program.optimizer, program.variables)]


@pytest.mark.skipif(training.OUTSIDE, reason="Keras has epsilon inside of the root from 2.11 on")
def test_adagrad_s_sums_make_up_for_epsilon(path):
    whole = training.begin(training.OLD["adagrad"](), path, accumulates=False)
    program = training.Continued(training.keras.Adagrad(0.1, epsilon=0.05))
    program.carry_over(path)
    assert_same(program.train(training.INTERRUPTED_AT), whole)


@pytest.mark.parametrize("updates", [0, 1, 40, 700, 5000, 30000])
def test_powers_of_beta_become_iterations(path, updates):
    powers = [np.float32(beta) for beta in (0.9, 0.999)]
    first, second = powers
    for _ in range(updates):
        first, second = first * powers[0], second * powers[1]
    save(
        path,
        dict(
            with_slots("Adam", "Adam_1"),
            beta1_power=first,
            beta2_power=second,
            global_step=np.int64(updates),
        ),
    )
    program = training.Continued(training.NEW["adam"]())
    report = program.carry_over(path)
    assert int(program.optimizer.iterations) == updates
    assert "beta1_power" in report.converted


def test_a_global_step_of_micro_batches_does_not_count_for_adam(path):
    save(
        path,
        dict(
            with_slots("Adam", "Adam_1"),
            global_step=np.int64(40),
            beta1_power=np.float32(0.9**11),
            beta2_power=np.float32(0.999**11),
        ),
    )
    program = training.Continued(training.NEW["adam"]())
    report = program.carry_over(path)
    assert int(program.optimizer.iterations) == 10
    assert (
        any("global_step is 40" in each for each in report.notes)
        and "global_step" in report.left_over
    )


def test_an_epsilon_that_is_not_the_old_default_is_noted(path):
    training.begin(training.OLD["adam"](), path, accumulates=False)
    report = training.Continued(training.keras.Adam(0.1)).carry_over(path)
    assert any("epsilon=1e-08" in each for each in report.notes)


# Names


def test_names_in_a_scope_match_if_there_is_one_such_alone(path):
    save(path, dict(with_slots("Momentum"), global_step=np.int64(7)))
    program = training.Continued(
        training.NEW["momentum"](), ["model/" + name for name in training.SHAPES]
    )
    assert program.carry_over(path).matched["dense/kernel"] == "model/dense/kernel"


def test_slots_of_a_train_op_in_a_scope_are_found(path):
    values = weights()
    values.update(
        {
            "train/" + name: each
            for name, each in with_slots("Momentum").items()
            if name not in values
        }
    )
    save(path, values)
    program = training.Continued(training.NEW["momentum"]())
    assert program.carry_over(path).matched["train/dense/bias/Momentum"] == "momentum of dense/bias"


def test_names_are_mapped_by_a_dictionary_and_by_a_function(path):
    old = {"old/" + name.replace("/", "_"): value for name, value in weights().items()}
    save(path, old)
    mapping = {"old/" + name.replace("/", "_"): name for name in training.SHAPES}
    for names in (mapping, mapping.get):
        program = training.Continued(training.NEW["sgd"]())
        program.carry_over(path, names=names)
        assert_same([each.numpy() for each in program.variables], training.START)


def test_slots_of_bert_are_mapped_by_their_last_part(path):
    save(path, dict(with_slots("adam_m", "adam_v"), global_step=np.int64(9)))
    program = training.Continued(training.NEW["adam"]())
    report = program.carry_over(path, names={"adam_m": "m", "adam_v": "v"})
    assert report.matched["dense/kernel/adam_m"] == "m of dense/kernel"
    np.testing.assert_array_equal(slots_of(program, "v")[0], np.ones([3, 2]))
    assert int(program.optimizer.iterations) == 9 and any("BERT" in each for each in report.notes)


def test_what_nothing_asks_for_is_left_over(path):
    save(path, dict(weights(), unused=np.ones(4, np.float32)))
    assert training.Continued(training.NEW["sgd"]()).carry_over(path).left_over == ["unused"]


def test_the_report_says_what_went_where(path):
    training.begin(training.OLD["momentum"](), path)
    said = str(training.wrapped(training.NEW["momentum"]()).carry_over(path))
    assert "dense/kernel -> dense/kernel" in said
    assert "dense/kernel/Momentum -> momentum of dense/kernel, converted: times -0.02" in said
    assert "accumulator/sum_0 -> sum of the gradients of dense/kernel" in said


def test_a_plain_optimizer_is_told_of_a_cycle_that_it_cannot_take(path):
    training.begin(training.OLD["sgd"](), path)
    report = training.Continued(training.NEW["sgd"]()).carry_over(path)
    assert any("2 micro-batches" in each for each in report.notes)


def test_a_checkpoint_without_an_accumulator_begins_a_cycle(path):
    training.begin(training.OLD["adam"](), path, accumulates=False)
    program = training.with_accumulator(training.NEW["adam"]())
    program.train(0, 2)
    report = program.carry_over(path)
    assert int(program.optimizer.micro_count) == 0
    assert any("begins anew" in each for each in report.notes)


def test_a_variable_that_had_no_gradient_has_fresh_slots(path):
    values = dict(
        with_slots("Adam", "Adam_1"), beta1_power=np.float32(0.9), beta2_power=np.float32(0.999)
    )
    values = {name: value for name, value in values.items() if not name.startswith("head/kernel/")}
    save(path, values)
    program = training.Continued(training.NEW["adam"]())
    assert program.carry_over(path).fresh == ["head/kernel"]


# What is refused, before anything is written


def refused(path, error, match, optimizer="sgd", names=None, program=None, **changed):
    program = program or training.Continued(training.NEW.get(optimizer, optimizer)())
    with pytest.raises(error, match=match):
        program.carry_over(path, names=names)
    for each in program.variables:
        assert not each.numpy().any()


def test_a_variable_without_a_name_in_the_checkpoint_is_refused(path):
    values = weights()
    values["renamed"] = values.pop("dense/kernel")
    save(path, values)
    refused(
        path, ga.errors.VariablesError, "dense/kernel of shape .3, 2.*of this shape it has renamed"
    )


def test_a_variable_of_another_shape_is_refused(path):
    save(path, dict(weights(), **{"dense/bias": np.ones(5, np.float32)}))
    refused(path, ga.errors.VariablesError, "dense/bias of shape .2., where the checkpoint")


def test_a_name_that_several_match_is_refused(path):
    values = {"a/" + name: value for name, value in weights().items()}
    values.update({"b/" + name: value for name, value in weights().items()})
    save(path, values)
    refused(path, ga.errors.VariablesError, "may be any of a/dense/kernel, b/dense/kernel")


def test_slots_of_another_optimizer_are_refused(path):
    training.begin(training.OLD["adam"](), path, accumulates=False)
    for name in ("sgd", "momentum", "adagrad", "rmsprop", "ftrl"):
        refused(path, ga.errors.OptimizerError, "slots of Adam", name)


def test_momentum_into_an_optimizer_without_is_refused(path):
    training.begin(training.OLD["momentum"](), path, accumulates=False)
    refused(path, ga.errors.OptimizerError, "SGD without momentum has no slots", "sgd")


def test_momentum_at_a_learning_rate_of_zero_is_refused(path):
    training.begin(training.OLD["momentum"](), path, accumulates=False)
    program = training.Continued(training.keras.SGD(0.0, momentum=0.9))
    refused(path, ga.errors.OptimizerError, "learning rate 0", program=program)
    assert int(program.optimizer.iterations) == 0


def test_momentum_follows_the_schedule_of_the_next_update(path):
    training.begin(training.OLD["momentum"](), path, accumulates=False)
    schedule = training.keras.schedules.PiecewiseConstantDecay(
        [training.INTERRUPTED_AT - 1.0], [0.5, 0.02]
    )
    old = training.Continued(training.NEW["momentum"]())
    new = training.Continued(training.keras.SGD(schedule, momentum=0.9))
    for program in (old, new):
        program.carry_over(path)
    assert_same(new.train(training.INTERRUPTED_AT), old.train(training.INTERRUPTED_AT))


def test_one_slot_that_is_missing_is_refused(path):
    values = with_slots("Adam", "Adam_1")
    del values["dense/bias/Adam_1"]
    save(path, values)
    refused(path, ga.errors.OptimizerError, "without the slot v of dense/bias", "adam")


def test_other_betas_are_refused(path):
    training.begin(training.OLD["adam"](), path, accumulates=False)
    refused(
        path,
        ga.errors.OptimizerError,
        "the old program's beta_1",
        lambda: training.keras.Adam(0.1, beta_1=0.8),
    )


def test_amsgrad_is_refused(path):
    training.begin(training.OLD["adam"](), path, accumulates=False)
    refused(
        path, ga.errors.OptimizerError, "amsgrad", lambda: training.keras.Adam(0.1, amsgrad=True)
    )


def test_rmsprop_that_was_not_centered_is_refused_for_one_that_is(path):
    training.begin(training.OLD["rmsprop_momentum"](), path, accumulates=False)
    refused(path, ga.errors.OptimizerError, "Pass centered=False", "rmsprop_centered")


@pytest.mark.skipif(
    not training.OUTSIDE, reason="Keras has epsilon inside of the root from 2.11 on"
)
@pytest.mark.parametrize(
    "name, optimizer",
    [
        ("rmsprop", lambda: training.keras.RMSprop(0.01, epsilon=1e-10)),
        ("adagrad", lambda: training.keras.Adagrad(0.1)),
    ],
)
def test_epsilon_outside_of_the_root_is_refused(path, name, optimizer):
    training.begin(training.OLD[name](), path, accumulates=False)
    refused(path, ga.errors.OptimizerError, "outside", optimizer)


def test_counts_that_differ_are_refused_until_one_is_named(path):
    training.begin(training.OLD["sgd"](), path)
    values = {name: v1.train.load_variable(path, name) for name, _ in v1.train.list_variables(path)}
    save(path + "-2", dict(values, global_step=np.int64(10)))
    refused(
        path + "-2",
        ga.errors.OptimizerError,
        "global_step=10",
        program=training.wrapped(training.NEW["sgd"]()),
    )
    program = training.wrapped(training.NEW["sgd"]())
    program.carry_over(path + "-2", names={"accumulator/update_count": "iterations"})
    assert int(program.optimizer.iterations) == 2


def test_sums_in_another_order_are_refused(path):
    training.begin(training.OLD["sgd"](), path)
    program = training.wrapped(training.NEW["sgd"]())
    program.variables.reverse()
    refused(path, ga.errors.VariablesError, "the old program's order", program=program)


def test_names_the_wrong_way_round_are_refused(path):
    save(path, {"old": training.START[0]})
    refused(path, ga.errors.OptionError, "the other way round", names={"dense/kernel": "old"})


def test_names_that_lead_nowhere_are_refused(path):
    save(path, weights())
    refused(path, ga.errors.OptionError, "leads to a variable", names={"dense/kernel": "elsewhere"})
    refused(path, ga.errors.OptionError, "has no 'nothing'", names={"nothing": "dense/kernel"})
    refused(path, ga.errors.OptionError, "names is a dictionary", names=["dense/kernel"])


def test_a_path_that_holds_no_checkpoint_is_refused(path):
    refused(path, ga.errors.OptionError, "checkpoint is what a Saver has written")
    refused(path + "\0", ga.errors.OptionError, "checkpoint is what a Saver has written")


def test_a_checkpoint_of_tf_train_checkpoint_is_refused(path):
    written = tf.train.Checkpoint(variable=tf.Variable(1.0)).save(path)
    refused(written, ga.errors.OptionError, "go by names")


def test_an_optimizer_that_is_not_served_is_refused(path):
    save(path, weights())
    refused(
        path, ga.errors.OptimizerError, "Keras's SGD, Adam", lambda: training.keras.Adadelta(0.1)
    )
    refused(path, ga.errors.OptimizerError, "Keras's SGD, Adam", training.OLD["sgd"])


def test_no_variables_are_refused(path):
    save(path, weights())
    with pytest.raises(ga.errors.VariablesError, match="non-empty list"):
        ga.upgrade.carry_over(path, training.NEW["sgd"](), [])


def test_a_call_in_a_graph_is_refused(path):
    with tf.Graph().as_default():
        with pytest.raises(ga.errors.EagerRequiredError, match="eager code"):
            ga.upgrade.carry_over(path, training.NEW["sgd"](), [])
