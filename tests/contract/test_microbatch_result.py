"""MicrobatchGradients: three values and a weight, through functions and replicas; never zipped."""

from __future__ import absolute_import, division, print_function

import copy
import pickle

import pytest
import tensorflow as tf

import gradaccum_compat as ga
from gradaccum_compat.microbatch.result import MicrobatchGradients
from support import replicas

FOUR = MicrobatchGradients(1.0, [2.0], None, 4.0)


def big_batch():
    variable = tf.constant([2.0])
    return MicrobatchGradients(tf.constant(1.0), [variable, None], None, tf.constant(5.0))


def test_unpacks_into_three_values():
    loss, gradients, extras = FOUR
    assert (loss, gradients, extras, FOUR.weight) == (1.0, [2.0], None, 4.0)
    assert (FOUR[1], FOUR[-1], list(FOUR)) == ([2.0], 4.0, [1.0, [2.0], None])


def test_the_weight_survives_a_function():
    big = tf.function(big_batch)()
    assert big.weight.numpy() == 5.0 and big.gradients[1] is None
    loss, gradients, extras = big
    assert (loss.numpy(), gradients[0].numpy().tolist(), extras) == (1.0, [2.0], None)


def test_the_weight_survives_the_replicas():
    for run in (replicas.run, tf.function(replicas.run)):
        weight = run(big_batch).weight
        assert [each.numpy() for each in replicas.local(weight)] == [5.0] * replicas.COUNT


def test_the_weight_survives_a_conditional():
    @tf.function
    def choose(x):
        return tf.cond(
            x > 0,
            lambda: MicrobatchGradients(x, [x], x, x),
            lambda: MicrobatchGradients(x, [x], x, x - 1.0),
        )

    assert choose(tf.constant(-1.0)).weight.numpy() == -2.0


def test_the_weight_survives_copies_and_pickles():
    for again in (copy.copy(FOUR), copy.deepcopy(FOUR), pickle.loads(pickle.dumps(FOUR, 2))):
        assert again == FOUR and again.weight == 4.0
    assert FOUR._replace(loss=3.0) == MicrobatchGradients(3.0, [2.0], None, 4.0)
    assert FOUR._asdict()["weight"] == 4.0


def refused(call):
    with pytest.raises(Exception) as caught:
        call()
    assert "zip(result.gradients, variables)" in str(caught.value)
    return caught.type


def test_zip_of_the_result_is_refused():
    variable = tf.Variable(1.0)
    optimizer = tf.compat.v1.train.GradientDescentOptimizer(1.0)

    def update():
        return optimizer.apply_gradients(zip(big_batch(), [variable]))

    assert refused(update) == ga.errors.GradientsError
    refused(tf.function(update))
    assert variable.numpy() == 1.0


def test_unpacking_beside_a_zip_is_not_refused():
    def pairs(variables):
        loss, gradients, _ = FOUR
        return list(zip(gradients, variables))

    assert pairs(["w"]) == [(2.0, "w")]
