"""The three ways in which users run TensorFlow, behind one face, so that a case is written once.

Each mode takes the same calls with NumPy arrays and returns NumPy values: `Eager` calls at once,
`Function` wraps every call in a tf.function (AutoGraph on, a trace for each layout of gradients),
`Graph` builds a TF 1 graph and runs it in a Session. `Compiled` is `Function` under XLA.
"""

from __future__ import absolute_import, division, print_function

import functools
import re

import numpy as np
import tensorflow as tf

import gradaccum_compat as ga
from support.reference import Slices

v1 = tf.compat.v1


def _function_takes(name):
    """Asked by trying: TF 2.10 hides the arguments of tf.function from inspect."""
    try:
        tf.function(**{name: True})
    except TypeError:
        return False
    return True


JIT = next(
    ({name: True} for name in ("jit_compile", "experimental_compile") if _function_takes(name)),
    None,
)
NO_JIT = "tf.function of 1.14 and 2.0 does not compile with XLA"
#: Up to TF 2.2 XLA's code for a CPU is compiled for a fast arithmetic that has no NaN.
XLA_KNOWS_NAN = not re.match(r"1\.|2\.[0-2]\.", tf.__version__)


def sgd():
    return v1.train.GradientDescentOptimizer(1.0)


class Run(object):
    """One accumulator with its variables and its optimizer.

    Args:
        values: initial values, arrays.
        optimizer: a function that makes the optimizer.
        variable: a class of variables to use instead of resource variables.
        **options: the Accumulator's.
    """

    #: In the cases that run in this mode, sums of up to so many elements are small: see conftest.
    small = 2

    def __init__(self, values, optimizer=sgd, variable=None, **options):
        self._calls = {}
        self._make(
            values,
            optimizer,
            variable or functools.partial(v1.Variable, use_resource=True),
            options,
        )

    def _make(self, values, optimizer, variable, options):
        self.variables = [variable(value, name="v%d" % index) for index, value in enumerate(values)]
        self.optimizer = optimizer()
        self.accumulator = ga.Accumulator(self.optimizer, self.variables, **options)

    # The accumulator's calls

    def accumulate(self, gradients, weight=1.0):
        return int(self._run_with("accumulate", gradients, weight))

    def step(self, gradients, weight=1.0):
        return bool(self._run_with("step", gradients, weight))

    def apply(self):
        return bool(self._run("apply", self.accumulator.apply))

    def reset(self):
        self._run("reset", self.accumulator.reset)

    def gradients(self):
        """The accumulator's gradients(): arrays, Slices and Nones."""
        raise NotImplementedError

    def counter(self, name):
        return self._run(name, lambda: getattr(self.accumulator, name))

    def weights(self):
        """The variables' values."""
        raise NotImplementedError

    def plain_apply(self, gradients):
        """What the optimizer does on its own with these gradients."""
        return self._run_with("plain", gradients, None)

    # What the modes differ in

    def _run(self, name, call):
        raise NotImplementedError

    def _run_with(self, method, gradients, weight):
        raise NotImplementedError

    def _bound(self, method):
        if method == "plain":
            return lambda gradients, weight: self.optimizer.apply_gradients(
                [
                    (_with_dense_shape(gradient, variable), variable)
                    for gradient, variable in zip(gradients, self.variables)
                    if gradient is not None
                ]
            )
        return getattr(self.accumulator, method)


class Eager(Run):

    def weights(self):
        return [variable.numpy() for variable in self.variables]

    def _run(self, name, call):
        return call().numpy()

    def _run_with(self, method, gradients, weight):
        result = self._bound(method)([tensor(gradient) for gradient in gradients], weight)
        return result.numpy() if method != "plain" else None

    def gradients(self):
        return [_array(gradient) for gradient in self.accumulator.gradients()]


class Function(Run):
    """Each kind of call is one tf.function; each layout of gradients is one trace of it."""

    small = 0

    def weights(self):
        return [variable.numpy() for variable in self.variables]

    def _decorate(self, function, *signature):
        return (
            tf.function(function, input_signature=signature) if signature else tf.function(function)
        )

    def _run(self, name, call):
        if name not in self._calls:
            self._calls[name] = self._decorate(call)
        return self._calls[name]().numpy()

    def _run_with(self, method, gradients, weight):
        weight = tf.convert_to_tensor(0.0 if weight is None else weight)
        key = (method, kinds(gradients), shapes(gradients), weight.dtype, weight.shape.ndims)
        if key not in self._calls:
            bound, layout = self._bound(method), kinds(gradients)

            def call(flat, weight):
                result = bound(unflatten(layout, flat), weight)
                return tf.constant(True) if method == "plain" else result

            self._calls[key] = self._decorate(
                call, specs(gradients), tf.TensorSpec(weight.shape, weight.dtype)
            )
        return self._calls[key](flatten(gradients), weight).numpy()

    def gradients(self):
        layout = []

        def call():
            layout.append(self.accumulator.gradients())
            return [tf.convert_to_tensor(each) for each in _flatten_tensors(layout[-1])]

        flat = self._decorate(call)()
        return _like(layout[-1], [each.numpy() for each in flat])


class Compiled(Function):

    small = 2

    def _decorate(self, function, *signature):
        return tf.function(function, **JIT)


class Graph(Run):
    """A graph of its own with placeholders, and a Session."""

    def _make(self, values, optimizer, variable, options):
        self.graph = tf.Graph()
        with self.graph.as_default():
            super(Graph, self)._make(values, optimizer, variable, options)
        self.session = v1.Session(graph=self.graph)
        self._initialized = False

    def _fetch(self, make, feed=None, key=None):
        with self.graph.as_default():
            if key not in self._calls:
                self._calls[key] = make()
            if not self._initialized:
                self.session.run(v1.global_variables_initializer())
                self._initialized = True
        fetches, placeholders = self._calls[key]
        return self.session.run(fetches, dict(zip(placeholders, feed or [])))

    def weights(self):
        return self._fetch(
            lambda: ([variable.read_value() for variable in self.variables], []), key="weights"
        )

    def _run(self, name, call):
        return self._fetch(lambda: (call(), []), key=name)

    def _run_with(self, method, gradients, weight):
        layout = kinds(gradients)
        arrays = [np.asarray(each) for each in _flatten_arrays(gradients)]
        number = None if weight is None else np.asarray(weight)

        def make():
            placeholders = [
                v1.placeholder(each.dtype, shape) for each, shape in zip(arrays, shapes(gradients))
            ]
            weight_ = None if number is None else v1.placeholder(number.dtype, number.shape)
            result = self._bound(method)(unflatten(layout, placeholders), weight_)
            return result, placeholders + ([] if weight_ is None else [weight_])

        dtype = None if number is None else (number.dtype, number.shape)
        key = (method, layout, shapes(gradients), dtype)
        return self._fetch(make, arrays + ([] if number is None else [number]), key)

    def gradients(self):
        layout = []

        def make():
            layout.append(self.accumulator.gradients())
            return _flatten_tensors(layout[-1]), []

        flat = self._fetch(make, key=("gradients", len(self._calls)))
        return _like(layout[-1], flat)


# Gradients in and out


def kinds(gradients):
    return tuple(
        None if each is None else "slices" if isinstance(each, Slices) else "dense"
        for each in gradients
    )


def _flatten_arrays(gradients):
    flat = []
    for each in gradients:
        if isinstance(each, Slices):
            flat.extend([np.asarray(each.values), np.asarray(each.rows, np.int64)])
        elif each is not None:
            flat.append(each)
    return flat


def flatten(gradients):
    return [tf.convert_to_tensor(each) for each in _flatten_arrays(gradients)]


def shapes(gradients):
    """The shapes of what flatten() makes: any number of rows, so that another one is no new
    trace."""
    found = []
    for each in gradients:
        if isinstance(each, Slices):
            found.extend([(None,) + np.shape(each.values)[1:], (None,)])
        elif each is not None:
            found.append(np.shape(each))
    return tuple(found)


def specs(gradients):
    """flatten()'s tensors, as the signature of a tf.function names them."""
    return [
        tf.TensorSpec(shape, each.dtype)
        for shape, each in zip(shapes(gradients), flatten(gradients))
    ]


def unflatten(layout, flat):
    tensors = iter(flat)
    return [
        (
            None
            if kind is None
            else (
                tf.IndexedSlices(next(tensors), next(tensors))
                if kind == "slices"
                else next(tensors)
            )
        )
        for kind in layout
    ]


def _with_dense_shape(gradient, variable):
    """What TensorFlow's own gradients have, and Keras 3 asks for."""
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    return tf.IndexedSlices(
        gradient.values, gradient.indices, tf.constant(variable.shape.as_list(), tf.int64)
    )


def tensor(gradient):
    return unflatten(kinds([gradient]), flatten([gradient]))[0]


def _flatten_tensors(gradients):
    flat = []
    for each in gradients:
        if isinstance(each, tf.IndexedSlices):
            flat.extend([each.values, each.indices])
        elif each is not None:
            flat.append(each)
    return flat


def _like(layout, flat):
    arrays = iter(flat)
    return [
        (
            None
            if each is None
            else (
                Slices(next(arrays), next(arrays))
                if isinstance(each, tf.IndexedSlices)
                else next(arrays)
            )
        )
        for each in layout
    ]


def _array(gradient):
    return _like([gradient], [each.numpy() for each in _flatten_tensors([gradient])])[0]
