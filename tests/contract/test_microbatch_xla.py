"""microbatch_gradients inside a function that XLA compiles: rows too, with no shape of our own that
depends on values."""

from __future__ import absolute_import, division, print_function

import numpy as np
import pytest
import tensorflow as tf

import gradaccum_compat as ga
from support import modes
from support.microbatch_contexts import Made, compiled, draw

pytestmark = pytest.mark.skipif(modes.JIT is None, reason=modes.NO_JIT)

HEIGHT = 3000


def looked_up(ids, targets, table):
    return tf.reduce_mean(tf.square(tf.gather(table, ids) - targets))


def expected(table, ids, targets):
    want = np.zeros_like(table)
    np.add.at(want, ids, 2 * (table[ids] - targets) / targets.size)
    return want


@pytest.mark.parametrize("steps", [1, 2, 5, 12, 24])
def test_rows_are_those_of_the_whole_batch(steps):
    """Rows that come again within a slice and in others, unrolled and in a loop."""
    table, ids = draw(HEIGHT, 2), np.random.RandomState(0).randint(0, HEIGHT, 24).astype("int32")
    ids[5:9] = ids[20:24] = ids[0]
    made, targets = Made([table]), draw(24, 2)

    def compute(batch):
        big = ga.microbatch_gradients(
            lambda part: looked_up(part[0], part[1], made()[0]), made, batch, steps
        )
        return [big.loss, big.weight, big.gradients[0]]

    loss, weight, gradient = compiled(compute, [ids, targets])
    np.testing.assert_allclose(gradient, expected(table, ids, targets), rtol=1e-6, atol=1e-6)
    assert weight == 24
    np.testing.assert_allclose(loss, np.square(table[ids] - targets).mean(), rtol=1e-6)


def test_rows_in_one_slice_and_a_dense_gradient_in_another():
    made, numbers = Made([np.ones((HEIGHT, 2), np.float32)]), []

    def loss_fn(batch):
        numbers.append(1)
        if len(numbers) % 2:
            return tf.reduce_mean(batch) * tf.reduce_sum(made()[0])
        return tf.reduce_sum(tf.gather(made()[0], [3, 3]))

    def compute(batch):
        return ga.microbatch_gradients(loss_fn, made, batch, 2).gradients

    (gradient,) = compiled(compute, [np.ones((4, 1), np.float32)])
    want = np.full((HEIGHT, 2), 0.5)
    want[3] = 1.5
    np.testing.assert_array_equal(gradient, want)


@pytest.mark.skipif(
    tf.__version__.startswith("1."), reason="XLA of 1.15 compiles no EnsureShape, and says so"
)
def test_a_batch_of_unknown_size():
    made, ids = Made([draw(50, 2)]), np.array([1, 2, 1, 4, 4, 4, 0], np.int32)
    targets, table = draw(7, 2), made()[0].numpy()
    compute = tf.function(
        lambda ids, targets: ga.microbatch_gradients(
            lambda part: looked_up(part[0], part[1], made()[0]), made, (ids, targets), 3
        ).gradients[0],
        input_signature=[tf.TensorSpec([None], tf.int32), tf.TensorSpec([None, 2], tf.float32)],
        **modes.JIT
    )
    for size in (7, 6, 2):
        got = compute(tf.constant(ids[:size]), tf.constant(targets[:size]))
        want = expected(table, ids[:size], targets[:size])
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-6, atol=1e-6)


def test_no_op_has_a_shape_that_depends_on_values():
    made, ids = Made([draw(50, 2)]), tf.constant([1, 2, 1, 4])
    kept = tf.function(
        lambda: ga.microbatch_gradients(
            lambda ids: looked_up(ids, tf.zeros([2]), made()[0]), made, ids, 2
        ).gradients[0],
        **modes.JIT
    )
    kept()
    kinds = {op.type for op in kept.get_concrete_function().graph.get_operations()}
    assert not kinds & {"Where", "Unique", "UniqueV2", "BooleanMask"}
