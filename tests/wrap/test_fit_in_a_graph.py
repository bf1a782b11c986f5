"""fit() in a TF 1 graph: what TF 1 does by default, and TF 2 with eager execution off."""

from __future__ import absolute_import, division, print_function

import os
import subprocess
import sys

import pytest
import tensorflow as tf

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
    model.fit(x, x[:, :1], batch_size=batch_size, epochs=2, shuffle=False, verbose=0, callbacks=list(callbacks))
    return model.get_weights()

for make in (lambda: {optimizers}.SGD(0.1), lambda: {optimizers}.Adam(0.1)):
    expected = weights_after_fit(make(), 16)
    actual = weights_after_fit(ga.wrap_optimizer(make(), steps=4), 4)
    flushed = weights_after_fit(ga.wrap_optimizer(make(), steps=5), 8, [ga.keras.FlushPartialCycle()])  # a batch of 32
    whole = weights_after_fit(make(), 32)
    print(max(np.abs(a - b).max() for a, b in zip(expected + whole, actual + flushed)))
"""


@pytest.mark.skipif(hasattr(tf.keras, "Variable"), reason="Keras 3 has no graph mode")
def test_equals_the_big_batch():
    new_base = callable(getattr(tf.keras.optimizers.SGD(), "build", None))  # which has none in a TF 1 graph
    program = _PROGRAM.format(optimizers="tf.keras.optimizers" + (".legacy" if new_base else ""))
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    environment = dict(os.environ, PYTHONPATH=root, TF_CPP_MIN_LOG_LEVEL="3")
    environment.pop("TF2_BEHAVIOR", None)  # TF 2 leaves it, and TF 1 would change its ways
    output = subprocess.check_output([sys.executable, "-c", program], env=environment, universal_newlines=True)
    differences = [float(line) for line in output.split()[-2:]]
    assert len(differences) == 2 and max(differences) < 1e-6
