"""Reads the graph of a user's loss: what it is divided by, batch statistics in it, half
precision in it."""

from __future__ import absolute_import, division, print_function

import numpy as np
import tensorflow as tf

#: Operations that a loss passes on the way from the sum over the examples to its value.
_ON_THE_WAY = frozenset(
    "RealDiv DivNoNan Mul Neg Add AddV2 Sum Cast Identity Squeeze Reshape Select SelectV2"
    " StopGradient".split()
)


class LossGraph(object):
    """The graph of a loss, traced when it is first asked for; where it cannot be traced, it tells
    nothing.

    Args:
        loss_fn: the user's function.
        like: puts tensors into the structure that loss_fn takes.
        tensors: those of a slice.
    """

    def __init__(self, loss_fn, like, tensors):
        self._loss_fn, self._like, self._tensors = loss_fn, like, tensors
        self._asked, self._traced = False, None

    def divisors(self):
        """The constants that the loss is divided by, each and all together."""
        if self._function() is None:
            return []
        graph = self._function().graph
        captured, found, product = _captured(graph), [], 1.0
        waiting, seen = [graph.outputs[0]], set()
        while waiting:
            operation = waiting.pop().op
            if id(operation) in seen or operation.type not in _ON_THE_WAY:
                continue
            seen.add(id(operation))
            for position, each in enumerate(operation.inputs):
                divides = operation.type in ("RealDiv", "DivNoNan", "Mul")
                value = _constant(each, captured) if divides else None
                if value is None:
                    waiting.append(each)
                elif value and (operation.type == "Mul" or position):
                    found.append(1.0 / value if operation.type == "Mul" else value)
                    product *= found[-1]
        return sorted(set(found + [product]))

    def has_batch_statistics(self):
        """Whether it normalises by the statistics of the batch, in TensorFlow's own op for that."""
        return any(
            each.type.startswith("FusedBatchNorm") and each.get_attr("is_training")
            for each in self._operations()
        )

    def computes_in_half(self):
        """Whether a part of it is computed in half precision, which rounds each slice's
        gradient."""
        return any(
            output.dtype.base_dtype in (tf.float16, tf.bfloat16)
            for operation in self._operations()
            for output in operation.outputs
        )

    def _operations(self):
        return [] if self._function() is None else self._function().graph.get_operations()

    def _function(self):
        """The concrete function: on TensorFlow 1.14 its graph is of no use without it."""
        if not self._asked:
            self._asked = True
            function = getattr(self._loss_fn, "python_function", self._loss_fn)

            def loss_of(*tensors):
                returned = function(self._like(tensors))
                return returned[0] if isinstance(returned, (tuple, list)) else returned

            try:
                traced = tf.function(loss_of, autograph=False)
                self._traced = traced.get_concrete_function(*self._tensors)
            except Exception:  # the user's code raises what it likes
                self._traced = None
        return self._traced


def _captured(graph):
    """The values of eager tensors that a graph takes from outside, by the ids of their
    placeholders."""
    captures = graph.captures  # a property; a dict of pairs up to TensorFlow 2.0
    pairs = captures.items() if hasattr(captures, "items") else captures
    return {id(inside): outside for outside, inside in pairs if hasattr(outside, "numpy")}


def _constant(tensor, captured):
    """The value of a scalar that the graph knows, or None."""
    while tensor.op.type in ("Cast", "Identity"):
        tensor = tensor.op.inputs[0]
    if tensor.op.type == "Const":
        value = tf.make_ndarray(tensor.op.get_attr("value"))
    else:
        outside = captured.get(id(tensor))
        if outside is None or not (outside.dtype.is_floating or outside.dtype.is_integer):
            return None
        value = outside.numpy()
    value = np.asarray(value)
    return float(value) if value.ndim == 0 and value.dtype.kind in "fiu" else None
