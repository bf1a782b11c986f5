"""The optimizer that is wrapped stays the user's: its attributes, its copies, its configuration
and its checkpoints are those of a plain one."""

from __future__ import absolute_import, division, print_function

import copy
import pickle
import re

import numpy as np
import pytest
import tensorflow as tf

import gradaccum_compat as ga
from support import fitting

v1 = tf.compat.v1


def variable_of(generation):
    make = tf.keras.Variable if fitting.is_keras_3(generation) else tf.Variable
    return make(np.ones(2, np.float32))


def hand_in(optimizer, variable, value):
    optimizer.apply_gradients([(tf.fill([2], float(value)), variable)])


def numbers(variable):
    return np.array(tf.convert_to_tensor(variable)).tolist()


def momentum(generation):
    return generation.optimizers.SGD(0.5, momentum=0.5)


def repickled(each):
    return pickle.loads(pickle.dumps(each))


COPIES = {"deepcopy": copy.deepcopy, "pickle": repickled}


def copied(optimizer, how):
    """A copy of a wrapped optimizer; skips the test where the plain one cannot be copied."""
    try:
        COPIES[how](ga.unwrap_optimizer(optimizer))
    except Exception:  # whatever Keras raises
        pytest.skip("the plain one cannot be copied so")
    return COPIES[how](optimizer)


# The plain one


def test_wrapping_leaves_the_plain_one_as_it_was(generation):
    plain = momentum(generation)
    kind, attributes = type(plain), plain.__dict__
    before = dict(attributes)
    optimizer = ga.wrap_optimizer(plain, steps=2)
    assert type(plain) is kind and plain.__dict__ is attributes and attributes == before
    assert ga.unwrap_optimizer(optimizer) is plain


def test_the_plain_one_updates_at_once_with_the_same_state(generation):
    plain, variable = momentum(generation), variable_of(generation)
    optimizer = ga.wrap_optimizer(plain, steps=2)
    hand_in(optimizer, variable, 1)
    hand_in(optimizer, variable, 1)
    assert numbers(variable) == [0.5, 0.5]
    hand_in(plain, variable, 1)  # with the momentum of the first update
    assert numbers(variable) == [-0.25, -0.25]
    assert fitting.updates(plain) == fitting.updates(optimizer) == 2


def test_the_plain_one_is_copied_while_it_is_wrapped(generation):
    plain = momentum(generation)
    optimizer = ga.wrap_optimizer(plain, steps=2)
    hand_in(optimizer, variable_of(generation), 1)
    assert type(copy.copy(plain)) is type(plain)


def test_the_plain_one_s_checkpoint_has_no_accumulator(generation, tmpdir):
    plain = momentum(generation)
    optimizer = ga.wrap_optimizer(plain, steps=2)
    hand_in(optimizer, variable_of(generation), 1)
    keys = []
    for each in (plain, optimizer):
        path = tf.train.Checkpoint(optimizer=each).save(str(tmpdir.join("checkpoint")))
        keys.append([name for name, _ in tf.train.list_variables(path) if "accumulator" in name])
    assert not keys[0] and keys[1]


def test_a_checkpoint_restored_before_the_optimizer_is_wrapped(generation, tmpdir):
    optimizer = ga.wrap_optimizer(momentum(generation), steps=2)
    hand_in(optimizer, variable_of(generation), 3)
    path = tf.train.Checkpoint(optimizer=optimizer).save(str(tmpdir.join("checkpoint")))
    plain, variable = momentum(generation), variable_of(generation)
    tf.train.Checkpoint(optimizer=plain).restore(path)
    hand_in(ga.wrap_optimizer(plain, steps=2), variable, 1)
    assert numbers(variable) == [0.0, 0.0]


def test_what_is_set_on_one_is_set_on_the_other(generation):
    plain = momentum(generation)
    optimizer = ga.wrap_optimizer(plain, steps=2)
    optimizer.learning_rate = 0.25
    plain.momentum, optimizer.note = 0.75, "here"
    assert [float(fitting.number(plain.learning_rate)), plain.note] == [0.25, "here"]
    assert float(fitting.number(optimizer.momentum)) == 0.75
    del optimizer.note
    assert not hasattr(plain, "note") and not hasattr(optimizer, "note")


@pytest.mark.parametrize(
    "generation", fitting.having(fitting.is_optimizer_v2, "others have no setter of this kind")
)
def test_iterations_that_are_set_to_a_number(generation):
    optimizer = ga.wrap_optimizer(momentum(generation), steps=2)
    optimizer.iterations = 7
    assert optimizer.iterations == 7


def test_the_end_of_the_program_says_nothing_of_another_graph(generation):
    from gradaccum_compat.wrap import pending

    with tf.Graph().as_default():
        optimizer = ga.wrap_optimizer(v1.train.AdamOptimizer(), steps=2)
        weight = v1.get_variable("weight", [], use_resource=True)
        optimizer.minimize(tf.square(weight))
        accumulation = optimizer._accumulation
    pending.warn(accumulation, "the program", "They are lost.")


# Copies of the wrapped one


@pytest.mark.parametrize("how", ["deepcopy", "pickle"])
def test_a_copy_accumulates_for_itself(generation, how):
    optimizer, variable = ga.wrap_optimizer(momentum(generation), steps=2), variable_of(generation)
    other = copied(optimizer, how)
    assert type(other) is type(optimizer) and other.accumulator is not optimizer.accumulator
    hand_in(optimizer, variable, 100)
    hand_in(other, variable, 1)
    hand_in(other, variable, 3)
    assert numbers(variable) == [0.0, 0.0] and fitting.updates(optimizer) == 0


def test_a_copy_goes_on_in_the_middle_of_the_cycle(generation):
    optimizer, variable = ga.wrap_optimizer(momentum(generation), steps=2), variable_of(generation)
    hand_in(optimizer, variable, 1)
    other, another = copied(optimizer, "deepcopy"), variable_of(generation)
    hand_in(other, another, 3)
    assert numbers(another) == [0.0, 0.0]


@pytest.mark.parametrize("how", ["deepcopy", "pickle"])
def test_a_copy_of_tensorflow_1_s_optimizers(how):
    optimizer = ga.wrap_optimizer(
        v1.train.GradientDescentOptimizer(0.5), steps=2, global_step="micro_batches"
    )
    other = copied(optimizer, how)
    variable, step = tf.Variable(np.ones(2, np.float32)), tf.Variable(0, dtype=tf.int64)
    for value in (1.0, 3.0):
        other.apply_gradients([(tf.fill([2], value), variable)], global_step=step)
    assert variable.numpy().tolist() == [0.0, 0.0] and int(step.numpy()) == 2


def test_a_function_that_says_the_weight_is_shared_with_a_copy(generation):
    class Weight(object):
        def __call__(self):
            return 2.0

    weight = Weight()
    other = copied(ga.wrap_optimizer(momentum(generation), steps=2, weight=weight), "deepcopy")
    assert other._accumulation.weight is weight


# Methods that are set on an instance


def doubling(original):
    def apply_gradients(pairs, *args, **kwargs):
        return original(
            [(2.0 * gradient, variable) for gradient, variable in pairs], *args, **kwargs
        )

    return apply_gradients


@pytest.mark.parametrize("first", ["set", "wrapped"])
def test_a_function_in_place_of_apply_gradients(generation, first):
    optimizer, variable = momentum(generation), variable_of(generation)
    if first == "wrapped":
        optimizer = ga.wrap_optimizer(optimizer, steps=2)
    optimizer.apply_gradients = doubling(optimizer.apply_gradients)
    if first == "set":
        optimizer = ga.wrap_optimizer(optimizer, steps=2)
    hand_in(optimizer, variable, 1)
    assert numbers(variable) == [1.0, 1.0]
    hand_in(optimizer, variable, 1)
    assert numbers(variable) == [0.0, 0.0]


# Names


def names_of_a_graph(generation, how):
    with tf.Graph().as_default():
        weight = v1.get_variable("weight", [2], use_resource=True)
        plain = generation.optimizers.Adam(0.5, name="A")
        how(plain).apply_gradients([(tf.ones([2]), weight)])
        # TF 1.14 numbers the optimizers.
        return {re.sub("A_[0-9]+/", "A/", each.name) for each in v1.global_variables()}


@pytest.mark.parametrize(
    "generation",
    fitting.having(lambda each: not fitting.is_keras_3(each), "Keras 3 takes its own variables"),
)
def test_variables_in_a_graph_have_the_plain_one_s_names(generation):
    """A Saver finds the plain one's checkpoint by these."""
    accumulated = names_of_a_graph(generation, lambda plain: ga.wrap_optimizer(plain, steps=2))
    plain = names_of_a_graph(generation, lambda plain: plain)
    assert {each for each in accumulated if not each.startswith("accumulator")} == plain


@pytest.mark.parametrize(
    "generation",
    fitting.having(lambda each: not fitting.is_keras_3(each), "Keras 3 takes no name"),
)
def test_variables_made_by_apply_gradients_with_a_name(generation):
    def names(wrap):
        optimizer = wrap(generation.optimizers.Adam(0.1))
        gradient, variable = tf.constant([1.0]), tf.Variable([0.0], name="w")
        optimizer.apply_gradients([(gradient, variable)], name="mine")
        found = optimizer.variables
        return [each.name for each in (found() if callable(found) else found)]

    plain = names(lambda optimizer: optimizer)
    assert names(lambda optimizer: ga.wrap_optimizer(optimizer, steps=1))[: len(plain)] == plain
