"""ExactCycles under mixed precision: inside of a loss-scale optimizer, in half precision.

The data are a few bits long, and all else are powers of two, so that half precision loses nothing
in two updates.
"""

from __future__ import absolute_import, division, print_function

import numpy as np
import pytest
import tensorflow as tf

import gradaccum_compat as ga
from support import fitting

if not hasattr(tf.keras.Model, "train_step"):
    pytest.skip("ExactCycles is for TensorFlow 2.2 and later", allow_module_level=True)

STEPS, BIG = 3, 8
#: A cycle of 4, 2 and 2 examples, and a partial one of 4.
SIZES = (4, 2, 2, 4)
X = np.random.RandomState(0).randint(-1, 2, (sum(SIZES), 3)).astype("f")
Y = np.random.RandomState(1).randint(-1, 2, (sum(SIZES), 1)).astype("f") / 64
START = np.array([[1.0], [-1.0], [2.0]], "f") / 64


@pytest.fixture(params=["mixed_float16", "mixed_bfloat16"])
def policy(request, generation):
    mixed = generation.keras.mixed_precision
    setter = getattr(mixed, "set_global_policy", None) or mixed.experimental.set_policy
    setter(request.param)
    yield request.param
    setter("float32")


def uneven():
    ends = np.cumsum((0,) + SIZES)
    for begin, end in zip(ends, ends[1:]):
        yield X[begin:end], Y[begin:end]


def train(generation, optimizer, batches, callbacks, replicated=False):
    def build(generation):
        layer = generation.keras.layers.Dense(1, use_bias=False, input_shape=(3,))
        return generation.keras.Sequential([layer])

    model, _ = fitting.compiled(generation, optimizer, build, replicated)
    model.set_weights([START])
    model.fit(batches, verbose=0, callbacks=callbacks)
    return model.get_weights()[0]


@pytest.mark.parametrize("replicated", [False, True], ids=["one", "two"])
def test_uneven_micro_batches(generation, policy, replicated):
    def sgd():
        return generation.optimizers.SGD(0.5)

    whole = tf.data.Dataset.from_tensor_slices((X, Y)).batch(BIG)
    big = train(generation, sgd, whole, [])
    if policy == "mixed_bfloat16" and np.abs(big).max() > 1:
        # 72 on TF 2.21, on a processor with instructions for bfloat16.
        pytest.skip("oneDNN's bfloat16 is wrong in plain Keras; TF_ENABLE_ONEDNN_OPTS=0 is not")
    parts = tf.data.Dataset.from_generator(
        uneven, (tf.float32, tf.float32), (tf.TensorShape([None, 3]), tf.TensorShape([None, 1]))
    )
    make = fitting.accumulating(sgd, steps=STEPS)
    small = train(generation, make, parts, [ga.keras.ExactCycles()], replicated)
    np.testing.assert_allclose(small, big, rtol=0, atol=1e-6)
    assert 0.001 < np.abs(big - START).max() < 1
