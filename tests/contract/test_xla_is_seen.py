"""Whether a graph under construction tells that XLA will compile it."""

from __future__ import absolute_import, division, print_function

import numpy as np
import pytest
import tensorflow as tf

from gradaccum_compat.backends.base import compiled_by_xla
from support import modes

needs_jit = pytest.mark.skipif(modes.JIT is None, reason=modes.NO_JIT)


def noted(seen):
    def call(x):
        seen.append(compiled_by_xla())
        return x + 1.0

    return call


def test_plain_code_is_not_compiled():
    seen = [compiled_by_xla()]
    tf.function(noted(seen))(tf.constant(1.0))
    with tf.Graph().as_default():
        seen.append(compiled_by_xla())
    assert seen == [False, False, False]


@needs_jit
def test_a_compiled_function_is_seen_and_so_is_all_inside_it():
    seen = []
    inner = tf.function(noted(seen))

    @tf.function(**modes.JIT)
    def compiled(x):
        y = tf.cond(x > 0, lambda: noted(seen)(x), lambda: x)
        y, _ = tf.while_loop(lambda y, _: y < 5, lambda y, z: [noted(seen)(y), z], [y, x])
        return inner(y)

    compiled(tf.constant(1.0))
    assert len(seen) >= 3 and all(seen)


@needs_jit
def test_what_is_around_a_compiled_function_is_not_compiled():
    seen = []
    compiled = tf.function(noted([]), **modes.JIT)

    @tf.function
    def outer(x):
        return noted(seen)(compiled(noted(seen)(x)))

    outer(tf.constant(1.0))
    assert seen + [compiled_by_xla()] == [False, False, False]


@pytest.mark.skipif(
    "jit_compile" not in (modes.JIT or {}), reason="fit compiles with XLA from TF 2.7 on"
)
@pytest.mark.parametrize("jit", [True, False])
def test_the_step_of_fit(jit):
    seen = []

    class Model(tf.keras.Model):
        def __init__(self):
            super(Model, self).__init__()
            self.dense = tf.keras.layers.Dense(1)

        def call(self, x):
            return self.dense(noted(seen)(x))

    model = Model()
    try:
        model.compile("sgd", "mse", jit_compile=jit)
    except TypeError:
        pytest.skip("fit compiles with XLA from TF 2.7 on")
    x = np.ones([4, 2], np.float32)
    model(x)
    del seen[:]
    model.fit(x, x[:, :1], verbose=0)
    assert seen[0] == jit
