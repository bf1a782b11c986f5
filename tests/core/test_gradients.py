"""The pure functions of gradients, each against NumPy."""

from __future__ import absolute_import, division, print_function

import numpy as np
import pytest
import tensorflow as tf

from gradaccum_compat.core import _gradients as gradients_of

MATRIX = np.array([[3.0, 0.0], [0.0, 4.0], [0.0, 0.0]], np.float32)
VECTOR = np.array([12.0], np.float32)


def rows(values, indices, height=3):
    values = np.array(values, np.float32)
    shape = [height] + list(values.shape[1:])
    return tf.IndexedSlices(tf.constant(values), tf.constant(indices), tf.constant(shape))


def dense(gradient):
    """The array that a gradient stands for, None where there is none."""
    if gradient is None:
        return None
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient.numpy()
    array = np.zeros([3] + list(gradient.values.shape[1:]), gradient.values.numpy().dtype)
    np.add.at(array, gradient.indices.numpy(), gradient.values.numpy())
    return array


def same(got, want):
    assert len(got) == len(want)
    for one, other in zip(got, want):
        assert (one is None) == (other is None)
        if one is not None:
            np.testing.assert_allclose(dense(one), other, rtol=1e-6, atol=0)


def mixed():
    """A dense gradient, rows of the same shape, and None; and what they stand for."""
    return (
        [tf.constant(MATRIX), rows([[1.0, 2.0], [3.0, 4.0]], [2, 0]), None],
        [MATRIX, np.array([[3, 4], [0, 0], [1, 2]], np.float32), None],
    )


def test_kinds():
    assert gradients_of.kinds(mixed()[0]) == ["dense", "sparse", None]


def test_scale():
    given, arrays = mixed()
    same(gradients_of.scale(given, 2.5), [each if each is None else each * 2.5 for each in arrays])


def test_scaling_by_zero_gives_zero_for_nan():
    (scaled,) = gradients_of.scale([tf.constant([np.nan, np.inf, 1.0])], 0.0)
    assert scaled.numpy().tolist() == [0.0, 0.0, 0.0]


def test_divide():
    given, arrays = mixed()
    total = tf.constant(4.0, tf.float64)
    same(gradients_of.divide(given, total), [each if each is None else each / 4 for each in arrays])


def test_cast():
    cast = gradients_of.cast(mixed()[0], [tf.float64, tf.float16, tf.float32])
    assert [each.dtype for each in cast[:2]] == [tf.float64, tf.float16] and cast[2] is None


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_all_finite_looks_at_dense_gradients_and_rows(bad):
    good = mixed()[0]
    assert gradients_of.all_finite(good).numpy() and gradients_of.all_finite([None]).numpy()
    assert not gradients_of.all_finite(good + [tf.constant([1.0, bad])]).numpy()
    assert not gradients_of.all_finite(good + [rows([[1.0, bad]], [1])]).numpy()


def test_squared_norm_is_that_of_all_together():
    norm = gradients_of.squared_norm([tf.constant(MATRIX), None, tf.constant(VECTOR)])
    assert (norm.numpy(), norm.dtype) == (9 + 16 + 144, tf.float64)
    assert gradients_of.squared_norm([None]).numpy() == 0


def test_a_longer_norm_is_clipped_to_the_limit():
    given = [tf.constant(MATRIX), None, tf.constant(VECTOR)]  # 13 long
    want = [MATRIX / 2, None, VECTOR / 2]
    same(gradients_of.clip_by_global_norm(given, 6.5), want)


def test_a_shorter_norm_stays_bit_for_bit():
    (clipped,) = gradients_of.clip_by_global_norm([tf.constant(MATRIX)], 6.0)  # 5 long
    assert clipped.numpy().tobytes() == MATRIX.tobytes()


def test_a_norm_that_is_not_finite_clips_to_nan():
    (clipped,) = gradients_of.clip_by_global_norm([tf.constant([np.inf, 1.0])], 1.0)
    assert np.isnan(clipped.numpy()).all()


def test_adaptive_clipping_clips_each_column_by_its_weights():
    weights = np.array([[3.0, 0.0], [4.0, 0.0], [0.0, 40.0]], np.float32)  # 5 and 40 long
    want = MATRIX * [0.5 / 3.0, 1.0]  # columns 3 and 4 long, limits 0.5 and 4
    same(gradients_of.clip_adaptively([tf.constant(MATRIX)], [tf.constant(weights)], 0.1), [want])


def test_adaptive_clipping_takes_a_vector_as_a_whole_and_new_biases_as_1e_3_long():
    clipped = gradients_of.clip_adaptively(
        [tf.constant([3.0, 4.0]), None], [tf.zeros([2]), tf.zeros([2])], 0.1
    )
    same(clipped, [np.array([3, 4]) * (0.1 * 1e-3 / 5), None])


def test_unique_rows_come_once_each_in_ascending_order():
    given = rows([[1.0], [2.0], [4.0], [8.0]], [2, 0, 2, 1])
    (unique,) = gradients_of.unique_rows([given])
    assert unique.indices.numpy().tolist() == [0, 1, 2]
    assert unique.values.numpy().tolist() == [[2.0], [8.0], [5.0]]


def test_nothing_if():
    given, arrays = mixed()
    same(gradients_of.nothing_if(tf.constant(False), given), arrays)
    dropped = gradients_of.nothing_if(tf.constant(True), given)
    same(dropped, [each if each is None else np.zeros_like(each) for each in arrays])
    assert dropped[1].indices.numpy().tolist() == []


def test_a_branch_returns_gradients():
    given, arrays = mixed()

    @tf.function
    def chosen(which):
        got = gradients_of.cond_gradients(
            which, lambda: given, lambda: gradients_of.scale(given, 3.0)
        )
        return gradients_of.with_dense_shapes(got, [[3, 2], [3, 2], None])[:2]

    same(chosen(tf.constant(True)), arrays[:2])
    same(chosen(tf.constant(False)), [each * 3 for each in arrays[:2]])


@pytest.mark.parametrize(
    "parts, kind",
    [("", None), ("n", None), ("d", "dense"), ("dnd", "dense"), ("rr", "sparse"), ("drr", "dense")],
)
def test_a_sum_from_several_places(parts, kind):
    given = {"n": None, "d": tf.constant(MATRIX), "r": mixed()[0][1]}
    arrays = {"n": 0 * MATRIX, "d": MATRIX, "r": mixed()[1][1]}
    summed = gradients_of.GradientSum([given[each] for each in parts]).value()
    assert gradients_of.kinds([summed]) == [kind]
    if kind == "sparse":
        assert sorted(summed.indices.numpy().tolist()) == [0, 2]  # each row once
    same([summed], [None if kind is None else sum(arrays[each] for each in parts)])
