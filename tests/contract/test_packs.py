"""Small sums lie in packs: one flat tensor for each dtype."""

from __future__ import absolute_import, division, print_function

import numpy as np
import pytest
import tensorflow as tf

import gradaccum_compat as ga
from gradaccum_compat.core import _state
from support import small_sums

v1 = tf.compat.v1
#: Vectors, scalars, matrices of one width and of others, a filter, one without elements.
SHAPES = [[3], [], [2, 3], [4], [5, 3], [], [2, 2, 2], [1, 7], [0, 2]]


def pack_of(indices=None):
    return _state.Pack(tf.float32, indices or list(range(len(SHAPES))), SHAPES)


def values(seed=0):
    random = np.random.RandomState(seed)
    return [np.asarray(random.randn(*shape), np.float32) for shape in SHAPES]


def numpy(tensors):
    """Of eager tensors, or of a graph's."""
    if tf.executing_eagerly():
        return [each.numpy() for each in tensors]
    return v1.Session().run(tensors)


# The pack itself


def test_what_is_joined_is_parted_again():
    tensors = dict(enumerate(map(tf.constant, values())))
    parts = pack_of().parted(pack_of().joined(tensors))
    got = numpy([parts[index] for index in range(len(SHAPES))])
    for each, other in zip(got, values()):
        np.testing.assert_array_equal(each, other)


def test_the_flat_tensor_has_groups_of_one_width_one_after_another():
    tensors = dict(enumerate(map(tf.constant, values())))
    flat = numpy([pack_of([0, 1, 2, 3, 4, 5]).joined(tensors)])[0]
    by_width = [values()[index].ravel() for index in (0, 3, 1, 5, 2, 4)]
    np.testing.assert_array_equal(flat, np.concatenate(by_width))


def test_what_is_absent_is_zero():
    flat = pack_of([0, 1, 4]).joined({0: None, 4: tf.ones([5, 3])})
    np.testing.assert_array_equal(numpy([flat])[0], [0.0] * 4 + [1.0] * 15)


def test_numbers_tell_what_lies_in_packs():
    dtypes = [tf.float32, tf.float64] * 4 + [tf.float32]
    packs = _state.packs_of([0, 1, 3, 4, 5, 7], dtypes, SHAPES)
    told = _state.from_numbers(_state.as_numbers(packs))
    assert [(each.dtype, each.indices, each.shapes) for each in told] == [
        (tf.float32, [0, 4], {0: [3], 4: [5, 3]}),
        (tf.float64, [1, 3, 5, 7], {1: [], 3: [4], 5: [], 7: [1, 7]}),
    ]


@pytest.mark.parametrize("numbers", [[0, 4], [0, 4, -3], [0, 4, 2, 5], [0, 4, 1, -5]], ids=str)
def test_numbers_that_tell_of_no_pack(numbers):
    with pytest.raises(ValueError):
        _state.from_numbers(np.array(numbers))


# An accumulator of variables in packs and of others


@pytest.fixture
def small_elements():
    return small_sums.SMALL


LARGE = small_sums.SMALL + 1
OPTIMIZERS = {
    "sgd": lambda: v1.train.GradientDescentOptimizer(0.5),
    "momentum": lambda: v1.train.MomentumOptimizer(0.5, 0.9),
}


def big_batch(gradients, weights, optimizer, start, steps):
    """The plain rule on the mean gradient of each cycle, in NumPy."""
    weight, velocity = [each.astype(np.float64) for each in start], [0.0 for _ in start]
    keep = 0.9 if optimizer == "momentum" else 0.0
    for begin in range(0, len(gradients), steps):
        total = sum(weights[begin : begin + steps])
        for index in range(len(start)):
            each = zip(gradients[begin:], weights[begin : begin + steps])
            mean = sum(given[index] * np.float64(by) for given, by in each) / total
            velocity[index] = keep * velocity[index] + mean
            weight[index] = weight[index] - 0.5 * velocity[index]
    return weight


@pytest.mark.parametrize("optimizer", sorted(OPTIMIZERS))
def test_mixed_shapes_dtypes_and_sizes_are_the_big_batch_s(mode, optimizer):
    shapes = SHAPES[:-1] + [[LARGE], [3]]
    dtypes = [np.float32] * (len(shapes) - 1) + [np.float64]
    random = np.random.RandomState(1)

    def drawn():
        return [np.asarray(random.randn(*shape), dtype) for shape, dtype in zip(shapes, dtypes)]

    start, gradients, weights = drawn(), [drawn() for _ in range(6)], [1.0, 3.0, 2.0, 5.0, 1.0, 7.0]
    run = mode(start, OPTIMIZERS[optimizer], steps=3)
    updated = [run.step(given, weight) for given, weight in zip(gradients, weights)]
    assert updated == [False, False, True] * 2
    for each, want in zip(run.weights(), big_batch(gradients, weights, optimizer, start, 3)):
        np.testing.assert_allclose(each, want, rtol=1e-6, atol=2e-6)


def test_sums_of_a_dtype_are_one_variable():
    with tf.Graph().as_default():
        variables = [
            v1.get_variable(
                "w%d" % number, shape, dtype, initializer=v1.zeros_initializer(), use_resource=True
            )
            for number, (shape, dtype) in enumerate(
                [([2], tf.float32), ([3], tf.float64), ([LARGE], tf.float32), ([], tf.float32)]
            )
        ]
        accumulator = ga.Accumulator(v1.train.GradientDescentOptimizer(1.0), variables)
        sums = [each.op.name for each in accumulator.variables if "packed_f" in each.name]
        sums += [each.op.name for each in accumulator.variables if "/sum_" in each.name]
    assert sums == [
        "accumulator/packed_float32",
        "accumulator/packed_float64",
        "accumulator/sum_2",
    ]
