"""What the numbers must be, in NumPy alone: written from the meaning, sharing nothing with the
package."""

from __future__ import absolute_import, division, print_function

import collections

import numpy as np

#: A sparse gradient: values[k] belongs to row rows[k]; a row may come more than once.
Slices = collections.namedtuple("Slices", ["values", "rows"])


def dense(gradient, shape):
    """A gradient as an array of the variable's shape, in float64; None is zeros."""
    whole = np.zeros(shape, np.float64)
    if isinstance(gradient, Slices):
        np.add.at(whole, np.asarray(gradient.rows, int), np.asarray(gradient.values, np.float64))
    elif gradient is not None:
        whole += np.asarray(gradient, np.float64)
    return whole


class Reference(object):
    """The micro-batches of one cycle, on one or more replicas.

    Args:
        shapes: the variables' shapes.
        loss_reduction: as Accumulator takes it.
        clip_norm: as Accumulator takes it.
    """

    def __init__(self, shapes, loss_reduction="mean", clip_norm=None):
        self._shapes = shapes
        self._loss_reduction = loss_reduction
        self._clip_norm = clip_norm
        self.reset()

    def reset(self):
        self._micro_batches = []

    def accumulate(self, gradients, weight=1.0):
        self.accumulate_on_replicas([(gradients, weight)])

    def accumulate_on_replicas(self, shares):
        """One micro-batch as a list of (gradients, weight), a share for each replica."""
        self._micro_batches.append(
            [
                (
                    [dense(gradient, shape) for gradient, shape in zip(gradients, self._shapes)],
                    float(weight),
                )
                for gradients, weight in shares
            ]
        )

    def gradients(self):
        """The big batch's gradients."""
        sums = [np.zeros(shape, np.float64) for shape in self._shapes]
        weights = 0.0
        for shares in self._micro_batches:
            for gradients, weight in shares:
                for sum_, gradient in zip(sums, gradients):
                    if self._factor(weight):
                        sum_ += self._factor(weight) * gradient
            weights += self._weight_of([weight for _, weight in shares])
        divisor = 1.0 if self._loss_reduction == "none" else weights
        return self._clipped([sum_ / divisor for sum_ in sums])

    def _factor(self, weight):
        return weight if self._loss_reduction in ("mean", "global_mean") else 1.0

    def _weight_of(self, weights):
        return weights[0] if self._loss_reduction == "global_mean" else sum(weights)

    def _clipped(self, gradients):
        if self._clip_norm is None:
            return gradients
        norm = np.sqrt(sum(np.sum(np.square(gradient)) for gradient in gradients))
        return [
            gradient * min(1.0, self._clip_norm / norm) if norm else gradient
            for gradient in gradients
        ]
