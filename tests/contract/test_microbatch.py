"""microbatch_gradients against the plain gradient of the whole batch: numbers, weights, extras,
layouts."""

from __future__ import absolute_import, division, print_function

import numpy as np
import pytest
import tensorflow as tf

import gradaccum_compat as ga
from support import modes
from support.microbatch_contexts import STEPS, Made, compiled, draw, eager, flat, graph
from support.reference import Slices, dense

needs_jit = pytest.mark.skipif(modes.JIT is None, reason=modes.NO_JIT)

# Numbers


def network(made, x, y, mask=None):
    """The mean loss of a small network, over the examples or over what the mask leaves."""
    w, b, u = made()
    errors_ = tf.square(tf.reduce_sum(tf.tanh(tf.matmul(x, w) + b) * u, 1) - y)
    return (
        tf.reduce_mean(errors_)
        if mask is None
        else tf.reduce_sum(errors_ * mask) / tf.reduce_sum(mask)
    )


def plain(context, made, arrays):
    def compute(tensors):
        with tf.GradientTape() as tape:
            loss = network(made, *tensors)
        return [loss] + tape.gradient(loss, made())

    return context(compute, arrays)


#: Slices of one length, and of two.
EVEN_AND_UNEVEN = pytest.mark.parametrize(
    "steps, examples", [(1, 12), (2, 10), (3, 12), (3, 10), (4, 10), (7, 12)]
)


@EVEN_AND_UNEVEN
def test_equals_the_whole_batch(context, steps, examples):
    made, arrays = Made([draw(3, 4), draw(4), draw(4)]), [draw(examples, 3), draw(examples)]

    def compute(tensors):
        return flat(
            ga.microbatch_gradients(lambda batch: network(made, *batch), made, tensors, steps)
        )

    got = context(compute, arrays)
    want = plain(context, made, arrays)
    assert got[1] == examples and got[1].dtype == np.float32
    for ours, theirs in zip(got[:1] + got[2:], want):
        if steps == 1:
            np.testing.assert_array_equal(ours, theirs)
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6)


@needs_jit
@EVEN_AND_UNEVEN
def test_compiled_by_xla(steps, examples):
    test_equals_the_whole_batch(compiled, steps, examples)


def linear(made):
    return lambda batch: tf.reduce_mean(tf.reduce_sum(batch * made()[0], 1))


@pytest.mark.parametrize("steps", [1, 3, 4, 8, 11])
def test_exact_numbers_of_a_linear_loss(context, steps):
    """Of 8 examples the mean is exact in binary, and more steps than examples change nothing."""
    made, x = Made([np.array([1.0, 2.0], np.float32)]), np.arange(16, dtype=np.float32).reshape(
        8, 2
    )
    got = context(
        lambda batch: flat(ga.microbatch_gradients(linear(made), made, batch[0], steps)), [x]
    )
    np.testing.assert_array_equal(got[2], [7.0, 8.0])
    assert (got[0], got[1]) == (23.0, 8.0)


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_an_empty_batch_is_zero_at_weight_zero(context, steps):
    made, x = Made([np.ones(2, np.float32)]), np.zeros((0, 2), np.float32)
    loss, weight, gradient = context(
        lambda batch: flat(ga.microbatch_gradients(linear(made), made, batch[0], steps)), [x]
    )
    assert (loss, weight, list(gradient)) == (0.0, 0.0, [0.0, 0.0])


def test_no_slice_is_empty_where_there_are_more_steps_than_examples(context):
    """A batch normalisation turns NaN on an empty slice; the extras have a row for each real slice
    alone."""
    made, x = Made([np.ones(1, np.float32)]), np.array([[3.0], [5.0]], np.float32)

    def loss_fn(batch):
        loss = tf.reduce_mean(batch * made()[0])
        with tf.control_dependencies([tf.debugging.Assert(tf.shape(batch)[0] > 0, ["empty"])]):
            return tf.identity(loss), tf.constant(1.0), tf.reduce_sum(batch)

    def compute(batch):
        big = ga.microbatch_gradients(loss_fn, made, batch[0], 5)
        return flat(big) + [big.extras]

    loss, weight, gradient, extras = context(compute, [x])
    assert (loss, weight, list(gradient), list(extras)) == (4.0, 2.0, [4.0], [3.0, 5.0])


# Weights and extras


@pytest.mark.parametrize("steps", STEPS)
def test_weights_by_tokens(context, steps):
    made = Made([draw(3, 4), draw(4), draw(4)])
    arrays = [draw(10, 3), draw(10), np.array([1, 1, 0, 0, 0, 0, 0, 0, 5, 2], np.float32)]

    def compute(tensors):
        return flat(
            ga.microbatch_gradients(
                lambda batch: (network(made, *batch), tf.reduce_sum(batch[2])), made, tensors, steps
            )
        )

    got, want = context(compute, arrays), plain(context, made, arrays)
    assert got[1] == 9.0
    for ours, theirs in zip(got[:1] + got[2:], want):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("steps, weight", [(2, "zero"), (1, "zero"), (2, "python"), (1, "python")])
def test_a_slice_of_weight_zero_adds_nothing_even_where_it_is_nan(context, steps, weight):
    made = Made([np.ones(1, np.float32)])
    x = np.array([[2.0], [np.nan]], np.float32) if steps == 2 else np.array([[np.nan]], np.float32)
    weights = iter([3, 0] if steps == 2 else [0])

    def loss_fn(batch):
        bad = tf.reduce_any(tf.math.is_nan(batch))
        return tf.reduce_mean(batch * made()[0]), tf.where(bad, 0, 3)

    def with_python_weight(batch):
        return tf.reduce_mean(batch * made()[0]), next(weights)

    chosen = with_python_weight if weight == "python" and context in (eager, graph) else loss_fn
    loss, total, gradient = context(
        lambda batch: flat(ga.microbatch_gradients(chosen, made, batch[0], steps)), [x]
    )
    assert (loss, total, gradient[0]) == ((2.0, 3.0, 2.0) if steps == 2 else (0.0, 0.0, 0.0))


def test_extras_are_stacked_along_a_new_first_axis(context):
    made, x = Made([np.ones(2, np.float32)]), np.arange(20, dtype=np.float32).reshape(10, 2)

    def loss_fn(batch):
        extras = {"sum": tf.reduce_sum(batch, 0), "pair": (tf.shape(batch)[0], None)}
        return tf.reduce_mean(batch * made()[0]), tf.shape(batch)[0], extras

    def compute(batch):
        extras = ga.microbatch_gradients(loss_fn, made, batch[0], 4).extras
        assert extras["pair"][1] is None
        return [extras["sum"], extras["pair"][0]]

    sums, sizes = context(compute, [x])
    np.testing.assert_array_equal(sizes, [3, 3, 2, 2])
    np.testing.assert_array_equal(sums, [x[:3].sum(0), x[3:6].sum(0), x[6:8].sum(0), x[8:].sum(0)])


def test_no_extras_are_none():
    made = Made([np.ones(2, np.float32)])
    assert ga.microbatch_gradients(linear(made), made, tf.ones([4, 2]), 2).extras is None


# Layouts


def test_a_batch_of_any_structure_with_none_in_it(context):
    made, x, y = (
        Made([np.ones(2, np.float32)]),
        np.ones((5, 2), np.float32),
        np.arange(5, dtype=np.int32),
    )

    def loss_fn(batch):
        assert sorted(batch) == ["features", "weights"] and batch["weights"] is None
        x, y = batch["features"]
        return tf.reduce_mean(tf.reduce_sum(x * made()[0], 1) * tf.cast(y, tf.float32))

    def compute(batch):
        return flat(
            ga.microbatch_gradients(loss_fn, made, {"features": tuple(batch), "weights": None}, 3)
        )

    np.testing.assert_allclose(context(compute, [x, y])[2], [2.0, 2.0], rtol=1e-6)


def test_a_variable_that_the_loss_does_not_use_has_no_gradient(context):
    made = Made([np.ones(2, np.float32), np.ones(3, np.float32)])

    def compute(batch):
        big = ga.microbatch_gradients(linear(made), made, batch[0], 2)
        assert len(big.gradients) == 2 and big.gradients[1] is None
        return flat(big)

    np.testing.assert_array_equal(context(compute, [np.ones((4, 2), np.float32)])[2], [1.0, 1.0])


@pytest.mark.parametrize("steps", STEPS)
def test_an_embedding_stays_sparse_with_unique_rows(context, steps):
    table, ids = draw(50, 3), np.array([4, 4, 49, 7, 4, 7, 0, 4, 1, 4], np.int32)
    made, scale = Made([table]), draw(10)

    def loss_fn(batch):
        return tf.reduce_mean(tf.reduce_sum(tf.gather(made()[0], batch[0]), 1) * batch[1])

    def compute(batch):
        big = ga.microbatch_gradients(loss_fn, made, batch, steps)
        assert isinstance(big.gradients[0], tf.IndexedSlices)
        return [big.gradients[0].values, big.gradients[0].indices]

    values, rows = context(compute, [ids, scale])
    assert sorted(rows) == [0, 1, 4, 7, 49]
    want = dense(Slices(np.repeat(scale[:, None] / 10, 3, 1), ids), (50, 3))
    np.testing.assert_allclose(dense(Slices(values, rows), (50, 3)), want, atol=1e-6)


def test_dense_in_one_slice_and_sparse_in_another(context):
    made, numbers = Made([np.ones((4, 2), np.float32)]), []

    def loss_fn(batch):
        numbers.append(1)
        if len(numbers) % 2:
            return tf.reduce_mean(batch) * tf.reduce_sum(made()[0])
        return tf.reduce_sum(tf.gather(made()[0], [3, 3]))

    x = np.ones((4, 1), np.float32)
    got = context(lambda batch: flat(ga.microbatch_gradients(loss_fn, made, batch[0], 2)), [x])
    np.testing.assert_array_equal(got[2], [[0.5, 0.5]] * 3 + [[1.5, 1.5]])


def test_half_precision_is_summed_in_float32(context):
    """Six gradients of 1 at a weight of 2 ** 14: in float16 their weighted sum is infinite."""
    made, x = Made([np.ones(1, np.float16)]), np.ones((12, 1), np.float16)

    def loss_fn(batch):
        return tf.reduce_mean(batch * made()[0]), tf.constant(2**14)

    loss, weight, gradient = context(
        lambda batch: flat(ga.microbatch_gradients(loss_fn, made, batch[0], 6)), [x]
    )
    assert gradient.dtype == np.float16 and loss.dtype == np.float32
    assert (loss, weight, gradient[0]) == (1.0, 6 * 2.0**14, 1.0)


def test_double_precision_stays(context):
    made, x = Made([np.ones(1, np.float64)]), np.array([[1.0], [1e-12], [0.0]])
    loss, _, gradient = context(
        lambda batch: flat(
            ga.microbatch_gradients(lambda x: tf.reduce_mean(x * made()[0]), made, batch[0], 3)
        ),
        [x],
    )
    assert loss.dtype == gradient.dtype == np.float64
    np.testing.assert_allclose(gradient, [(1 + 1e-12) / 3], rtol=1e-15)
