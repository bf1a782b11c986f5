"""The contexts that microbatch_gradients is called in, behind one face: eager code, tf.function, a
Session, XLA."""

from __future__ import absolute_import, division, print_function

import numpy as np
import pytest
import tensorflow as tf

from support import modes

v1 = tf.compat.v1

STEPS = [1, 2, 3, 4, 7]


def eager(compute, arrays):
    return [tensor.numpy() for tensor in compute([tf.constant(each) for each in arrays])]


def function(compute, arrays):
    """A tf.function that does not know how many examples it will get."""
    specs = [tf.TensorSpec([None] + list(each.shape[1:]), each.dtype) for each in arrays]
    traced = tf.function(lambda *tensors: compute(list(tensors)), input_signature=specs)
    return [tensor.numpy() for tensor in traced(*[tf.constant(each) for each in arrays])]


def static_function(compute, arrays):
    return [
        tensor.numpy() for tensor in tf.function(compute)([tf.constant(each) for each in arrays])
    ]


def graph(compute, arrays):
    """A TF 1 graph with placeholders of an unknown number of examples."""
    with tf.Graph().as_default(), v1.Session() as session:
        placeholders = [
            v1.placeholder(each.dtype, [None] + list(each.shape[1:])) for each in arrays
        ]
        fetches = compute(placeholders)
        session.run(v1.global_variables_initializer())
        return session.run(fetches, dict(zip(placeholders, arrays)))


def compiled(compute, arrays):
    return [
        tensor.numpy()
        for tensor in tf.function(compute, **modes.JIT)([tf.constant(each) for each in arrays])
    ]


CONTEXTS = [eager, function, static_function, graph]


@pytest.fixture(params=CONTEXTS, ids=lambda context: context.__name__)
def context(request):
    return request.param


class Made(object):
    """Variables that are made once, inside the context that is under test: a graph needs its
    own."""

    def __init__(self, values):
        self._values, self._variables = values, {}

    def __call__(self):
        with tf.init_scope():
            place = None if tf.executing_eagerly() else v1.get_default_graph()
            if place not in self._variables:
                self._variables[place] = [
                    v1.Variable(each, use_resource=True) for each in self._values
                ]
        return self._variables[place]


def flat(big):
    """The loss, the weight and the gradients, rows as values and indices, as a list of tensors."""
    return [big.loss, big.weight] + modes._flatten_tensors(big.gradients)


def draw(*shape):
    return np.random.randn(*shape).astype(np.float32)
