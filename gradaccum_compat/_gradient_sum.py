"""GradientSum: the sum of one variable's gradients from several places, whatever kind each of them is."""

from __future__ import absolute_import, division, print_function

import tensorflow as tf


class GradientSum(object):
    """Dense, rows that are made unique in the end, both, or neither."""

    def __init__(self, gradients=()):
        self._dense, self._slices = None, []
        for each in gradients:
            self.add(each)

    def add(self, gradient):
        if isinstance(gradient, tf.IndexedSlices):
            self._slices.append(gradient)
        elif gradient is not None:
            self._dense = gradient if self._dense is None else self._dense + gradient

    def is_dense(self):
        """Whether it is a tensor, or nothing."""
        return not self._slices

    def tensors(self):
        return [each.values for each in self._slices] + ([] if self._dense is None else [self._dense])

    def value(self):
        if not self._slices:
            return self._dense
        values = tf.concat([each.values for each in self._slices], 0)
        indices = tf.concat([tf.cast(each.indices, self._slices[0].indices.dtype) for each in self._slices], 0)
        if self._dense is not None:
            return self._dense + tf.math.unsorted_segment_sum(values, indices, tf.shape(self._dense)[0])
        rows, places = tf.unique(indices)
        return tf.IndexedSlices(tf.math.unsorted_segment_sum(values, places, tf.size(rows)), rows)
