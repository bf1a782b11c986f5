"""Where Keras computes losses where nothing can follow, ExactCycles says what serves there."""

from __future__ import absolute_import, division, print_function

import numpy as np
import pytest
import tensorflow as tf

import gradaccum_compat as ga
from support import fitting


@pytest.mark.skipif(hasattr(tf.keras.Model, "train_step"), reason="exact from TensorFlow 2.2 on")
def test_before_2_2_when_training_begins(generation):
    """On one replica: under a strategy, fit() of 1.14 leaves the scope open after an error, and
    all later tests would be in it."""
    make = fitting.accumulating(lambda: generation.optimizers.SGD(0.1))
    model, _ = fitting.compiled(generation, make, fitting.linear)
    start = model.get_weights()
    with pytest.raises(ga.errors.OptionError) as caught:
        fitting.fit(model, 4, callbacks=[ga.keras.ExactCycles()])
    assert "TensorFlow " + tf.__version__ in caught.value.received
    assert "BatchSizes" in caught.value.remedy and "FlushPartialCycle" in caught.value.remedy
    for got, want in zip(model.get_weights(), start):
        np.testing.assert_array_equal(got, want)


def test_in_a_graph(generation):
    if fitting.is_keras_3(generation):
        pytest.skip("Keras 3 does not train in a TF 1 graph")
    with tf.Graph().as_default():
        make = fitting.accumulating(lambda: generation.optimizers.SGD(0.1))
        model, _ = fitting.compiled(generation, make)
        with pytest.raises(ga.errors.OptionError, match="BatchSizes"):
            callback = ga.keras.ExactCycles()
            callback.set_model(model)
            callback.on_train_begin()
