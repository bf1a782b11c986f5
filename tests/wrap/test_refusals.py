"""What wrap_optimizer refuses, and what it says then."""

from __future__ import absolute_import, division, print_function

import pytest
import tensorflow as tf

import gradaccum_compat as ga
from support import fitting

v1 = tf.compat.v1


def refused(error, *args, **options):
    with pytest.raises(error) as caught:
        ga.wrap_optimizer(*args, **dict(dict(steps=4), **options))
    assert all([caught.value.rule, caught.value.received, caught.value.remedy])
    return caught.value


def test_one_that_is_wrapped_already(generation):
    optimizer = ga.wrap_optimizer(generation.optimizers.SGD(0.1), steps=4)
    assert "once" in str(refused(ga.errors.OptimizerError, optimizer))


def test_no_optimizer(generation):
    for other in ("adam", None, generation.optimizers.SGD, [generation.optimizers.SGD(0.1)]):
        refused(ga.errors.OptimizerError, other)


def test_an_optimizer_that_is_none_of_tensorflow_s():
    class Optimizer(object):
        def apply_gradients(self, pairs):
            pass

    assert "Accumulator" in str(refused(ga.errors.OptimizerError, Optimizer()))


@pytest.mark.parametrize(
    "option, value",
    [
        ("steps", 0),
        ("steps", -1),
        ("steps", 2.5),
        ("steps", True),
        ("steps", None),
        ("loss_reduction", "median"),
        ("clip_norm", 0),
        ("nonfinite", "ignore"),
        ("dtype", "float16"),
        ("reducer", 3),
    ],
)
def test_options_without_a_meaning(generation, option, value):
    assert option in str(
        refused(ga.errors.OptionError, generation.optimizers.SGD(0.1), **{option: value})
    )


def test_an_option_that_does_not_exist(generation):
    with pytest.raises(TypeError) as caught:
        ga.wrap_optimizer(generation.optimizers.SGD(0.1), steps=4, stepz=3)
    assert "stepz" in str(caught.value)


def test_a_weight_that_is_none(generation):
    optimizer = ga.wrap_optimizer(generation.optimizers.SGD(0.1), steps=2, weight=-1.0)
    variable = tf.keras.Variable([0.0]) if fitting.is_keras_3(generation) else tf.Variable([0.0])
    with pytest.raises(ga.errors.WeightError):
        optimizer.apply_gradients([(tf.constant([1.0]), variable)])


@pytest.mark.parametrize(
    "generation", fitting.having(fitting.is_keras_3, "gradient_accumulation_steps is Keras 3's")
)
def test_keras_3_accumulating_as_well(generation):
    plain = generation.optimizers.SGD(0.1, gradient_accumulation_steps=4)
    assert "gradient_accumulation_steps" in str(refused(ga.errors.OptimizerError, plain))


def test_a_refused_optimizer_is_as_it_was(generation):
    optimizer = generation.optimizers.SGD(0.1)
    refused(ga.errors.OptionError, optimizer, steps=0)
    assert isinstance(ga.wrap_optimizer(optimizer, steps=2), generation.optimizers.SGD)


def test_steps_have_to_be_said(generation):
    with pytest.raises(TypeError):
        ga.wrap_optimizer(generation.optimizers.SGD(0.1))


def test_the_class_of_a_wrapped_optimizer_is_not_called(generation):
    """As in type(optimizer)(learning_rate)."""
    kind = type(ga.wrap_optimizer(generation.optimizers.SGD(0.1), steps=2))
    with pytest.raises(ga.errors.OptimizerError, match="wrap_optimizer"):
        kind(0.1)
    with pytest.raises(ga.errors.OptimizerError, match="Derive"):
        type("Mine", (kind,), {})(0.1)
