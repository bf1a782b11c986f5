"""fit() with micro-batches that are means over different numbers, and no ExactCycles: said once."""

from __future__ import absolute_import, division, print_function

import sys
import warnings
import weakref

import numpy as np
import pytest
import tensorflow as tf

import gradaccum_compat as ga
from support import fitting

followed = pytest.mark.skipif(
    not hasattr(tf.keras.Model, "train_step"), reason="fit() has a train_step from 2.2 on"
)
REMEDY = "ExactCycles" if hasattr(tf.keras.Model, "train_step") else "BatchSizes"


def said(generation, x, y, build=fitting.linear, replicated=False, callbacks=(), **options):
    """What two fits say of weights."""
    optimizer = fitting.accumulating(lambda: generation.optimizers.SGD(0.1))
    model, _ = fitting.compiled(generation, optimizer, build, replicated)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            model.fit(x, y, verbose=0, callbacks=list(callbacks), **options)
    return [str(each.message) for each in caught if "weighs alike" in str(each.message)]


def masked(generation):
    layers = generation.keras.layers
    ids = layers.Input((3,))
    vectors = layers.Embedding(5, 2, mask_zero=True)(ids)
    return generation.keras.Model(ids, layers.Dense(1)(vectors))


def test_a_short_last_batch_is_said_once(generation):
    x, y = fitting.data(26)
    messages = said(generation, x, y, batch_size=4)
    assert len(messages) == 1 and REMEDY in messages[0]
    assert "26 examples in batches of 4 with one of 2" in messages[0]


def test_even_batches_are_not(generation):
    x, y = fitting.data(24)
    assert said(generation, x, y, batch_size=4) == []


@followed
def test_a_dataset_with_a_short_last_batch(generation):
    if not hasattr(tf.data.Dataset, "cardinality"):
        pytest.skip("a dataset knows its cardinality from TensorFlow 2.3 on")
    uneven = tf.data.Dataset.from_tensor_slices(fitting.data(26))
    assert len(said(generation, uneven.batch(4).prefetch(1), None)) == 1
    assert said(generation, uneven.batch(4, drop_remainder=True), None) == []
    assert said(generation, uneven.take(24).batch(4), None) == []


@followed
def test_masked_predictions_where_this_keras_divides_by_the_unmasked(generation):
    ids, tags = np.array([[1, 0, 0], [1, 2, 3]] * 4), np.ones([8, 3, 1], "f")
    masks = hasattr(generation.keras.Model, "get_compile_config")  # from TensorFlow 2.11 or so on
    assert len(said(generation, ids, tags, masked, batch_size=2)) == masks


@followed
def test_exact_cycles_leave_nothing_to_say(generation):
    x, y = fitting.data(26)
    exact = [ga.keras.ExactCycles()]
    assert said(generation, x, y, batch_size=4, callbacks=exact) == []


def test_replicas(generation, monkeypatch):
    def others():
        raise AssertionError("Python 2 calls __del__ a second time if its frame is held on to")

    # With that, a graph of TensorFlow's was deleted twice: fit() hung or ended with a signal.
    monkeypatch.setattr(sys, "_current_frames", others)
    x, y = fitting.data(26)
    assert len(said(generation, x, y, replicated=True, batch_size=4)) == 1
    uneven = tf.data.Dataset.from_tensor_slices((x, y)).batch(4)
    if hasattr(tf.keras.Model, "train_step") and hasattr(uneven, "cardinality"):
        assert len(said(generation, uneven, None, replicated=True)) == 1


def test_what_the_caller_of_fit_holds_is_free_when_it_returns(generation):
    class Held(object):
        pass

    def training():
        held = Held()
        x, y = fitting.data(26)
        assert len(said(generation, x, y, batch_size=4)) == 1
        return weakref.ref(held)

    assert training()() is None
