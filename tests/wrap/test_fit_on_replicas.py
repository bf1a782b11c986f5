"""A wrapped optimizer on two replicas: it decides in graphs, and reduces once per cycle."""

from __future__ import absolute_import, division, print_function

import re

import numpy as np
import pytest
import tensorflow as tf

import gradaccum_compat as ga
from support import fitting, replicas

v1 = tf.compat.v1
#: Of the one layer that the models here have.
GRADIENT_BYTES = 4 * (fitting.FEATURES + 1) * fitting.TARGETS


def variable(generation, value):
    with replicas.strategy().scope():
        return tf.keras.Variable(value) if fitting.is_keras_3(generation) else tf.Variable(value)


@pytest.mark.parametrize(
    "decorate", [tf.function, lambda function: function], ids=["function", "eager"]
)
def test_it_moves_in_every_third_call(generation, decorate):
    weights = variable(generation, [[1.0, 2.0], [3.0, 4.0]])
    with replicas.strategy().scope():
        optimizer = ga.wrap_optimizer(generation.optimizers.SGD(1.0), steps=3)

    def on_replica(gradient):
        optimizer.apply_gradients([(gradient, weights)])

    step = decorate(lambda gradient: replicas.run(on_replica, (gradient,)))
    for number, expected in [(1, 0), (2, 0), (3, 4), (4, 4), (5, 4), (6, 14)]:
        # Two replicas hand in the number each: 2 * (1 + 2 + 3) / 3 is 4, 2 * (4 + 5 + 6) / 3 is 10.
        step(tf.fill([2, 2], float(number)))
        np.testing.assert_array_equal(
            weights.numpy(), np.array([[1.0, 2.0], [3.0, 4.0]], "f") - expected
        )


class Reductions(object):
    """Notes each reduction of a whole set of gradients, and whether it stands in a conditional."""

    def __init__(self, monkeypatch):
        self.conditional = []
        extended = replicas.strategy().extended
        for name, is_batch in (("_reduce_to", False), ("_batch_reduce_to", True)):
            monkeypatch.setattr(
                extended, name, self._watching(getattr(extended, name), is_batch), raising=False
            )

    def _watching(self, original, is_batch):
        def watching(reduce_op, value, *args, **kwargs):
            values = [each for each, _ in value] if is_batch else [value]
            if (
                sum(_bytes(tensor) for each in values for tensor in replicas.local(each)[:1])
                == GRADIENT_BYTES
            ):
                self.conditional.append(_in_a_conditional())
            return original(reduce_op, value, *args, **kwargs)

        return watching


def _bytes(value):
    """fit() reduces its metrics in lists."""
    return sum(
        each.dtype.size * int(np.prod(each.shape.as_list())) for each in tf.nest.flatten(value)
    )


def _in_a_conditional():
    """Whether what is built now is a branch: a function of its own in control flow v2, a context in
    v1."""
    graph = v1.get_default_graph()
    return not tf.executing_eagerly() and (
        re.search(r"cond.*_true_\d+$", getattr(graph, "name", "")) is not None
        or graph._get_control_flow_context() is not None
    )


def test_eager_calls_reduce_once_per_cycle(generation, monkeypatch):
    with replicas.strategy().scope():
        model = fitting.linear(generation)
        optimizer = ga.wrap_optimizer(generation.optimizers.Adam(0.1), steps=4)
    gradients = [tf.ones(each.shape) for each in model.trainable_variables]
    watched = Reductions(monkeypatch)

    def on_replica():
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))

    for _ in range(8):
        replicas.run(on_replica)
    assert len(watched.conditional) == 2


def test_fit_s_graph_reduces_in_the_branch_that_ends_a_cycle(generation, monkeypatch):
    make = fitting.accumulating(lambda: generation.optimizers.Adam(0.1))
    model, _ = fitting.compiled(generation, make, fitting.linear, replicated=True)
    watched = Reductions(monkeypatch)
    fitting.fit(model, fitting.BIG // fitting.STEPS, replicated=True, epochs=1)
    # A first trace may be made twice, to tell whether it makes variables.
    assert watched.conditional in ([True], [True, True])
