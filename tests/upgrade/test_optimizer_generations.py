"""docs/optimizer-generations.md: each of its facts, on the real optimizers of the TensorFlow at
hand."""

from __future__ import absolute_import, division, print_function

import numpy as np
import pytest
import tensorflow as tf

from gradaccum_compat.upgrade import _slots
from support import optimizers

v1, keras = tf.compat.v1.train, tf.keras.optimizers
#: Whether Keras's optimizers are OptimizerV2, as up to TensorFlow 2.10.
V2 = not hasattr(keras.SGD, "build")
GRADIENTS = [
    np.array(each, np.float32) for each in ([1e-3, 0.1, 3.0], [0.5, -1e-3, 1.0], [2.0, 0.3, -1e-2])
]
START = np.array([0.5, -1.0, 2.0], np.float32)


def variable(optimizer, value):
    """A variable as the optimizer's users have it."""
    of_keras = optimizers.VARIABLES.get("keras", tf.Variable)
    return (tf.Variable if isinstance(optimizer, v1.Optimizer) else of_keras)(value)


def trained(optimizer, gradients=GRADIENTS, start=START):
    """The weights after an update with each gradient, and the slots by their common names."""
    weights = variable(optimizer, np.array(start, np.float32))
    for gradient in gradients:
        value = gradient if isinstance(gradient, tf.IndexedSlices) else tf.constant(gradient)
        optimizer.apply_gradients([(value, weights)])
    (slots,) = _slots.slots_of(optimizer, [weights])
    return weights.numpy(), {name: each.numpy() for name, each in slots.items()}


def apart(one, other):
    return np.max(np.abs(trained(one)[0] - trained(other)[0]))


# Does Keras train like tf.compat.v1.train?


@pytest.mark.parametrize(
    "one, other",
    [
        (lambda: v1.GradientDescentOptimizer(0.1), lambda: keras.SGD(0.1)),
        (lambda: v1.MomentumOptimizer(0.1, 0.9), lambda: keras.SGD(0.1, momentum=0.9)),
        (
            lambda: v1.MomentumOptimizer(0.1, 0.9, use_nesterov=True),
            lambda: keras.SGD(0.1, momentum=0.9, nesterov=True),
        ),
        (lambda: v1.AdamOptimizer(0.1), lambda: keras.Adam(0.1, epsilon=1e-8)),
        (lambda: v1.AdagradOptimizer(0.1), lambda: keras.Adagrad(0.1)),
        (lambda: v1.FtrlOptimizer(0.1), lambda: keras.Ftrl(0.1)),
        (
            lambda: v1.FtrlOptimizer(0.1, l2_shrinkage_regularization_strength=0.1),
            lambda: keras.Ftrl(0.1, l2_shrinkage_regularization_strength=0.1),
        ),
    ],
    ids=["sgd", "momentum", "nesterov", "adam", "adagrad", "ftrl", "ftrl-shrinkage"],
)
def test_these_train_the_same(one, other):
    assert apart(one(), other()) <= 1.5e-6  # the page's largest, a few roundings of weights near 2


def test_adam_with_each_its_own_epsilon_differs_a_little():
    assert 1e-5 < apart(v1.AdamOptimizer(0.1), keras.Adam(0.1)) < 1e-3


def test_rmsprop_of_the_defaults_differs_much():
    assert apart(v1.RMSPropOptimizer(0.1), keras.RMSprop(0.1)) > 0.5


# Epsilon


def test_defaults_of_epsilon():
    assert (v1.AdamOptimizer()._epsilon, v1.RMSPropOptimizer(0.1)._epsilon) == (1e-8, 1e-10)
    made = [keras.Adam(), keras.RMSprop(), keras.Adagrad()]
    assert [each.epsilon for each in made] == [1e-7] * 3


def places(optimizer, second):
    """Where epsilon, which is 0.01, stands in the first update of 0.1 from a slot of zero.

    Args:
        optimizer: whose learning rate is 1.
        second: the slot after the update, without epsilon.
    """
    (weight,), _ = trained(optimizer, [np.array([0.1], np.float32)], [0.0])
    inside, outside = 0.1 / np.sqrt(second + 0.01), 0.1 / (np.sqrt(second) + 0.01)
    found = [
        name
        for name, size in (("inside", inside), ("outside", outside))
        if abs(-weight - size) < 1e-4 * size
    ]
    (place,) = found
    return place


def test_epsilon_of_rmsprop_is_inside_or_outside_of_the_root():
    # tf.train's slot begins with 1, and rho is 0.9 on both sides.
    assert places(v1.RMSPropOptimizer(1.0, epsilon=0.01), 0.9 + 0.1 * 0.01) == "inside"
    plain = places(keras.RMSprop(1.0, epsilon=0.01), 0.1 * 0.01)
    assert plain == ("outside" if V2 else "inside")
    assert places(keras.RMSprop(1.0, momentum=1e-9, epsilon=0.01), 0.1 * 0.01) == "inside"


def test_epsilon_of_adagrad_is_inside_from_2_11_on():
    place = places(keras.Adagrad(1.0, epsilon=0.01), 0.1 + 0.01)
    assert place == ("outside" if V2 else "inside")


def test_epsilon_of_adam_is_outside_of_the_root():
    for optimizer in (v1.AdamOptimizer(1.0, epsilon=0.01), keras.Adam(1.0, epsilon=0.01)):
        (weight,), _ = trained(optimizer, [np.array([0.1], np.float32)], [0.0])
        # The bias is corrected in the rate, so that epsilon is divided by the root of 1 - beta2.
        want = 0.1 / (0.1 + 0.01 / np.sqrt(1 - 0.999))
        assert -weight == pytest.approx(want, rel=1e-4)


def test_optimizer_v2_takes_an_epsilon_of_zero_for_its_default():
    assert keras.Adam(epsilon=0.0).epsilon == (1e-7 if V2 else 0.0)


# Slots


def test_rmsprop_s_average_begins_with_1_and_in_keras_with_0():
    for optimizer, first in ((v1.RMSPropOptimizer(0.1), 1.0), (keras.RMSprop(0.1), 0.0)):
        _, slots = trained(optimizer, [np.zeros(3, np.float32)])
        np.testing.assert_allclose(slots["rms"], np.full(3, 0.9 * first), rtol=1e-6)


@pytest.mark.parametrize("name", ["Adagrad", "Ftrl"])
def test_sums_of_adagrad_and_ftrl_begin_with_a_tenth(name):
    for optimizer in (getattr(v1, name + "Optimizer")(0.1), getattr(keras, name)(0.1)):
        _, slots = trained(optimizer, [np.zeros(3, np.float32)])
        np.testing.assert_allclose(slots["accumulator"], np.full(3, 0.1), rtol=1e-6)


def test_momentum_adds_up_gradients_and_in_keras_updates():
    want = GRADIENTS[0] * 0.9 + GRADIENTS[1]
    old = trained(v1.MomentumOptimizer(0.1, 0.9), GRADIENTS[:2])[1]["momentum"]
    new = trained(keras.SGD(0.1, momentum=0.9), GRADIENTS[:2])[1]["momentum"]
    np.testing.assert_allclose(old, want, rtol=1e-6)
    np.testing.assert_allclose(new, -0.1 * want, rtol=1e-6)


def test_adam_keeps_powers_of_its_betas_and_in_keras_the_number_of_updates():
    old, new = v1.AdamOptimizer(0.1), keras.Adam(0.1)
    trained(old), trained(new)
    powers = [float(each.numpy()) for each in old._get_beta_accumulators()]
    assert powers == pytest.approx([0.9**4, 0.999**4], rel=1e-6)
    assert int(new.iterations.numpy()) == 3


# Rows without a gradient


def first_row_moves(optimizer):
    """Whether the last update changes the row that the first two had a gradient of."""
    rows = [
        tf.IndexedSlices(tf.ones([1, 2]), tf.constant([row]), tf.constant([2, 2]))
        for row in (0, 0, 1)
    ]
    before, _ = trained(optimizer(), rows[:2], np.zeros([2, 2]))
    after, _ = trained(optimizer(), rows, np.zeros([2, 2]))
    return bool(np.any(before[0] != after[0]))


def test_rows_without_a_gradient():
    for old in (v1.MomentumOptimizer, v1.RMSPropOptimizer):
        assert not first_row_moves(lambda: old(0.1, momentum=0.9))
    for new in (keras.SGD, keras.RMSprop):
        assert first_row_moves(lambda: new(0.1, momentum=0.9)) != V2
    for adam in (v1.AdamOptimizer, keras.Adam):
        assert first_row_moves(lambda: adam(0.1))


@pytest.mark.skipif(not hasattr(tf.keras, "Variable"), reason="Keras 3 has its own variables")
def test_keras_3_does_not_add_up_a_row_that_comes_twice():
    twice = tf.IndexedSlices(tf.ones([2, 1]), tf.constant([0, 0]), tf.constant([2, 1]))
    once = tf.IndexedSlices(2 * tf.ones([1, 1]), tf.constant([0]), tf.constant([2, 1]))
    weights = [
        trained(keras.Adam(0.1), [each] * 3, np.zeros([2, 1]))[0][0, 0] for each in (twice, once)
    ]
    assert abs(weights[0] - weights[1]) > 1e-3
