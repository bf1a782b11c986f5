"""microbatch_gradients takes the activations of one slice, not of the batch."""

from __future__ import absolute_import, division, print_function

import os
import subprocess
import sys

import pytest

from support import modes, processes

# XLA of 2.1 to 2.4, where the argument is called experimental_compile, keeps more: 113 MiB on 2.1,
# of 212 for the batch.
needs_jit = pytest.mark.skipif(
    "jit_compile" not in (modes.JIT or {}), reason="XLA keeps the bound from TF 2.5 on"
)

# Memory

_PROGRAM = """
import sys
import numpy as np
import tensorflow as tf
import gradaccum_compat as ga
tf.compat.v1.enable_eager_execution()
steps = int(sys.argv[1])
variables = [tf.Variable(np.eye(64, dtype=np.float32)) for _ in range(12)]

def loss_fn(x):
    for variable in variables:
        x = tf.tanh(tf.matmul(x, variable))
    return tf.reduce_mean(x)

if {jit!r}:
    loss_fn = tf.function(loss_fn, **{jit!r})

def peak():
    status = open("/proc/self/status").read().split()
    return int(status[status.index("VmHWM:") + 1]) // 1024

@tf.function
def train(x):
    return ga.microbatch_gradients(loss_fn, variables, x, steps).gradients

def examples(count):
    return tf.constant(np.ones((count, 64), np.float32))

train(examples(8 * steps))
big = examples(2 ** 16)
before = peak()
train(big)
print(peak() - before)
"""


def _peak(steps, jit):
    # What is freed goes back at once: otherwise the peak is glibc's, with what each thread keeps
    #     for later.
    environment = processes.environment(
        TF_CPP_MIN_LOG_LEVEL="3",
        CUDA_VISIBLE_DEVICES="",
        MALLOC_MMAP_THRESHOLD_="65536",
    )
    output = subprocess.check_output(
        [sys.executable, "-c", _PROGRAM.format(jit=jit), str(steps)],
        env=environment,
        universal_newlines=True,
    )
    return int(output.split()[-1])


# A child's peak in getrusage begins at its parent's; the one in /proc is its own.
@pytest.mark.skipif(
    not os.path.exists("/proc/self/status"), reason="Linux tells a process its peak of memory"
)
@pytest.mark.parametrize(
    "jit", [{}, pytest.param(modes.JIT, marks=needs_jit)], ids=["function", "compiled_loss"]
)
def test_memory_of_one_slice(jit):
    """12 activations of 16 MiB each: about 200 MiB at once, and an eighth of it in 8 slices."""
    whole, sliced = _peak(1, jit), _peak(8, jit)
    assert whole > 150
    assert sliced < whole / 2.5
