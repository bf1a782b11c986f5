"""fit() in a TF 1 graph: what TF 1 does by default, and TF 2 with eager execution off."""

from __future__ import absolute_import, division, print_function

import subprocess
import sys

import pytest
import tensorflow as tf

from support import processes

_PROGRAM = """
from __future__ import print_function
import numpy as np
import tensorflow as tf
import gradaccum_compat as ga

tf.compat.v1.disable_eager_execution()
x = np.random.RandomState(0).randn(32, 3).astype(np.float32)

def weights_after_fit(optimizer, batch_size, callbacks=()):
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(3,))])
    model.compile(optimizer=optimizer, loss="mse")
    model.set_weights([np.ones([3, 1]), np.zeros(1)])
    options = dict(epochs=2, shuffle=False, verbose=0, callbacks=list(callbacks))
    model.fit(x, x[:, :1], batch_size=batch_size, **options)
    return model.get_weights()

def scaled():
    public = getattr(getattr(tf.keras, "mixed_precision", None), "LossScaleOptimizer", None)
    if public is not None:
        return public({optimizers}.SGD(0.1))
    try:
        from tensorflow.python.keras.mixed_precision.experimental import loss_scale_optimizer
    except ImportError:
        from tensorflow_core.python.keras.mixed_precision.experimental import loss_scale_optimizer
    return loss_scale_optimizer.LossScaleOptimizer({optimizers}.SGD(0.1), "dynamic")

for make in (lambda: {optimizers}.SGD(0.1), lambda: {optimizers}.Adam(0.1), scaled):
    expected = weights_after_fit(make(), 16)
    actual = weights_after_fit(ga.wrap_optimizer(make(), steps=4), 4)
    flush = ga.keras.FlushPartialCycle()
    flushed = weights_after_fit(ga.wrap_optimizer(make(), steps=5), 8, [flush])  # a batch of 32
    whole = weights_after_fit(make(), 32)
    print(max(np.abs(a - b).max() for a, b in zip(expected + whole, actual + flushed)))
"""


@pytest.mark.skipif(hasattr(tf.keras, "Variable"), reason="Keras 3 has no graph mode")
def test_equals_the_big_batch():
    new_base = callable(
        getattr(tf.keras.optimizers.SGD(), "build", None)
    )  # which has none in a TF 1 graph
    program = _PROGRAM.format(optimizers="tf.keras.optimizers" + (".legacy" if new_base else ""))
    environment = processes.environment(TF_CPP_MIN_LOG_LEVEL="3")
    output = subprocess.check_output(
        [sys.executable, "-c", program], env=environment, universal_newlines=True
    )
    differences = [float(line) for line in output.split()[-3:]]
    assert len(differences) == 3 and max(differences) < 1e-6
