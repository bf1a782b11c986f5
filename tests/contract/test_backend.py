"""What the backends make, and what an accumulator is to TensorFlow."""

from __future__ import absolute_import, division, print_function

import pytest
import tensorflow as tf

import gradaccum_compat as ga
from gradaccum_compat.backends import BACKEND
from support import modes


def make():
    return ga.Accumulator(modes.sgd(), [tf.Variable([1.0, 2.0])], name="sums")


def test_the_backend_is_the_one_that_was_detected():
    assert BACKEND.name == ga.backend().name


def test_state_is_of_resource_variables_that_nothing_trains():
    for variable in make().variables:
        assert variable.trainable is False and hasattr(variable, "handle")


@pytest.mark.skipif(not hasattr(tf, "contrib"), reason="tf.contrib ended with TF 1")
def test_state_is_of_the_variables_that_contrib_eager_makes():
    assert {type(variable) for variable in make().variables} == {tf.contrib.eager.Variable}


def test_an_accumulator_is_a_module_with_its_name():
    accumulator = make()
    assert isinstance(accumulator, tf.Module) and accumulator.name == "sums"
    assert {variable.name.split("/")[0] for variable in accumulator.variables} == {"sums"}
