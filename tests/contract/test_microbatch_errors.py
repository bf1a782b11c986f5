"""What microbatch_gradients refuses, with a typed error that says why."""

from __future__ import absolute_import, division, print_function

import numpy as np
import pytest
import tensorflow as tf

import gradaccum_compat as ga
from gradaccum_compat.microbatch import arguments
from support.microbatch_contexts import Made, eager, flat, graph

errors = ga.errors

# Errors


def refused(kind, loss_fn=None, variables=None, batch=None, steps=2):
    variable = tf.Variable([1.0])
    loss_fn = loss_fn or (lambda x: lambda v: tf.reduce_mean(x * v))
    batch = tf.ones([4, 1]) if batch is None else batch
    with pytest.raises(kind) as caught:
        ga.microbatch_gradients(
            lambda x: loss_fn(x)(variable),
            [variable] if variables is None else variables,
            batch,
            steps,
        )
    assert caught.value.rule and caught.value.received and caught.value.remedy
    return str(caught.value)


def _typed(context, kind):
    """AutoGraph puts an exception of its own, with the message, in the place of one that takes
    several arguments."""
    return kind if context in (eager, graph) else Exception


@pytest.mark.parametrize("steps", [0, -1, 2.0, "4", "Auto", None, True, [2]], ids=repr)
def test_steps(steps):
    assert "steps" in refused(errors.OptionError, steps=steps)


@pytest.mark.parametrize(
    "batch, word",
    [
        ((), "at least one tensor"),
        ({"x": None}, "at least one tensor"),
        ((tf.ones, 1), "dense tensors"),
        (3.0, "dense"),
        (lambda: tf.constant(1.0), "first dimension"),
        (lambda: (tf.ones([4, 1]), tf.ones([3])), "3 and 4"),
        (lambda: tf.SparseTensor([[0]], [1.0], [2]), "dense tensors"),
    ],
    ids=repr,
)
def test_batch(batch, word):
    batch = batch() if callable(batch) else batch
    assert word in refused(errors.OptionError, batch=batch)


@pytest.mark.parametrize(
    "returned",
    [
        lambda v: v * tf.ones([2, 1]),
        lambda v: None,
        lambda v: 3.0,
        lambda v: (),
        lambda v: (tf.reduce_sum(v),),
        lambda v: (tf.reduce_sum(v), 1.0, None, None),
        lambda v: "loss",
        lambda v: tf.constant(1),
        lambda v: {"loss": v},
    ],
)
def test_what_loss_fn_returns(returned):
    assert "loss_fn(micro_batch) returns" in refused(errors.OptionError, loss_fn=lambda x: returned)


def test_a_loss_that_needs_no_gradient(context):
    made = Made([np.ones(1, np.float32)])
    with pytest.raises(_typed(context, errors.VariablesError)) as caught:
        context(
            lambda batch: flat(ga.microbatch_gradients(tf.reduce_mean, made, batch[0], 2)),
            [np.ones((4, 1), np.float32)],
        )
    assert "depends on at least one" in str(caught.value)


@pytest.mark.parametrize("weight", [-1.0, float("nan"), "1", [1.0]], ids=repr)
def test_a_bad_weight(weight):
    refused(errors.WeightError, loss_fn=lambda x: lambda v: (tf.reduce_mean(v), weight))


def test_a_bad_weight_on_the_device(context):
    made = Made([np.ones(1, np.float32)])
    with pytest.raises((errors.WeightError, tf.errors.InvalidArgumentError)) as caught:
        context(
            lambda batch: flat(
                ga.microbatch_gradients(
                    lambda x: (tf.reduce_mean(x * made()[0]), -tf.reduce_sum(x)), made, batch[0], 2
                )
            ),
            [np.ones((4, 1), np.float32)],
        )
    assert "weight" in str(caught.value).lower()


def test_first_dimensions_that_only_the_device_knows(context):
    made = Made([np.ones(1, np.float32)])
    with pytest.raises(
        _typed(context, (errors.OptionError, tf.errors.InvalidArgumentError))
    ) as caught:
        context(
            lambda batch: flat(
                ga.microbatch_gradients(lambda x: tf.reduce_mean(x[0] * made()[0]), made, batch, 2)
            ),
            [np.ones((4, 1), np.float32), np.ones((5, 1), np.float32)],
        )
    assert "first dimension" in str(caught.value)


def test_a_loss_whose_shape_only_the_device_knows():
    variable = tf.Variable([1.0, 2.0])
    train = tf.function(
        lambda x, y: ga.microbatch_gradients(lambda x: y * variable, [variable], x, 2).loss,
        input_signature=[tf.TensorSpec([None], tf.float32), tf.TensorSpec(None, tf.float32)],
    )
    with pytest.raises(tf.errors.InvalidArgumentError):
        train(tf.ones([4]), tf.ones([2]))


def test_extras_of_uneven_slices():
    def with_examples(x):
        return lambda v: (tf.reduce_mean(v), 1, x)

    message = refused(errors.OptionError, batch=tf.ones([5, 1]), loss_fn=with_examples)
    assert "same shape" in message


@pytest.mark.parametrize("variables", [[], 3, [tf.zeros([1])]], ids=repr)
def test_variables(variables):
    refused(errors.VariablesError, variables=variables)


def test_the_tensors_of_a_batch_handed_in_one_by_one():
    variable, x = tf.Variable([1.0]), tf.ones([4, 1])

    def loss_fn(batch):
        return tf.reduce_mean(batch[0] * variable * batch[1])

    for call in (
        lambda: ga.microbatch_gradients(loss_fn, [variable], x, x, steps=2),
        lambda: ga.microbatch_gradients(loss_fn, [variable], x, x, 2),
    ):
        with pytest.raises(errors.OptionError) as caught:
            call()
        assert "(x, y), steps=4" in str(caught.value)


@pytest.mark.parametrize("options", [{}, {"step": 2}], ids=repr)
def test_steps_left_out_or_misspelt(options):
    with pytest.raises(TypeError) as caught:
        ga.microbatch_gradients(tf.reduce_mean, [tf.Variable([1.0])], tf.ones([4]), **options)
    assert "step" in str(caught.value)


class WithMethods(object):
    def two(self, x, y):
        return tf.reduce_mean(x * y)

    def one(self, x, y=None):
        return tf.reduce_mean(x)


@pytest.mark.parametrize("steps", [2, "auto"])
@pytest.mark.parametrize(
    "loss_fn",
    [lambda x, y: x, lambda: 1, WithMethods().two, tf.function(lambda x, y: x), 3.0],
    ids=["two", "none", "method", "function", "number"],
)
def test_a_loss_fn_that_does_not_take_one_argument(loss_fn, steps):
    batch = (tf.ones([4, 1]), tf.ones([4, 1]))
    with pytest.raises(errors.OptionError) as caught:
        ga.microbatch_gradients(loss_fn, [tf.Variable([1.0])], batch, steps)
    assert "one argument" in str(caught.value) and "x, y = micro_batch" in str(caught.value)


@pytest.mark.parametrize("loss_fn", [WithMethods().one, lambda *batch: batch[0], tf.reduce_mean])
def test_a_loss_fn_with_optional_arguments_is_taken(loss_fn):
    arguments.check(loss_fn, [tf.Variable([1.0])], 2)


@pytest.mark.parametrize("steps", [2, "auto"])
def test_a_model_in_place_of_its_variables(steps):
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    message = refused(errors.VariablesError, variables=model, steps=steps)
    assert "Sequential" in message and "trainable_variables" in message
