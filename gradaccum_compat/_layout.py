"""Layout: what is known of each variable when a graph is built: its shape, the type and size of its sum, its kind.

Not trackable: a checkpoint holds state alone.
"""

from __future__ import absolute_import, division, print_function

import numpy as np
import tensorflow as tf

from gradaccum_compat.backends import BACKEND

DENSE, SPARSE = "dense", "sparse"

#: Compared by `type(gradient) is SLICES`, for every gradient in eager code: its isinstance is an ABC's, which takes
#: a microsecond on Python 2.7 and TF 1.14, as does each look into the module `tf` there.
SLICES = tf.IndexedSlices

#: Elements up to which a sum is zero between two cycles, so that every micro-batch is added alike. 64 KiB of zeros
#: in a cycle cost less than the conditional that a larger sum passes in each micro-batch, to be assigned the first.
#: Adding up 400 variables of 32 x 32 in a tf.function, over the barest loop: 1.03 so and 1.21 with the conditional on
#: TensorFlow 1.14; from 256 x 256 on the conditional is the cheaper one.
SMALL = 2 ** 14

#: What `seen` holds for a kind, so that the mean over up to 999 replicas still tells which it was: a
#: checkpoint holds the mean, and gives it to every replica that restores it.
SEEN = {DENSE: 1000.0, SPARSE: 1.0, None: 0.0}
#: What a dense variable's mark is at least, so that the sum over up to a million workers still tells.
DENSE_MARK = 1e6


class Layout(object):
    """A variable's kind is that of its first gradient and stays: a sparse sum is handed over as its touched
    rows, a dense one whole. Either takes gradients of the other kind.
    """

    def __init__(self, variables, dtype):
        self.shapes = [each.shape.as_list() for each in variables]
        # The widest of the sums' dtype and the variable's own: half precision would lose small addends.
        self.dtypes = [tf.float64 if tf.float64 in (dtype, each.dtype.base_dtype) else dtype for each in variables]
        self.weight_dtype = tf.float64 if tf.float64 in self.dtypes else tf.float32
        self.small = [int(np.prod(shape)) <= SMALL for shape in self.shapes]
        self.heights = [shape[0] if shape else 0 for shape in self.shapes]
        self.kinds = [None] * len(self.shapes)

    def learn(self, gradients):
        for index, gradient in enumerate(gradients):
            if gradient is not None and self.kinds[index] is None:
                self.kinds[index] = DENSE if is_dense(gradient) else SPARSE

    def all_dense(self, gradients):
        """Whether each variable has a dense gradient, and has had one first."""
        return all(is_dense(gradient) and kind == DENSE for gradient, kind in zip(gradients, self.kinds))

    def learn_marks(self, marks, dense):
        """Learns kinds from numbers: above 0 where a variable had a gradient, and from `dense` on, a dense one."""
        self.kinds = [kind or (None if not mark else DENSE if mark >= dense else SPARSE)
                      for kind, mark in zip(self.kinds, marks)]

    def known(self, seen):
        """Positions of the variables with a gradient, those included that a restored checkpoint tells of."""
        if None in self.kinds and BACKEND.outermost_graph() is None:
            components = tf.distribute.get_strategy().experimental_local_results(seen)
            restored = BACKEND.at_top_level(lambda: np.max([each.numpy() for each in components], 0))
            self.learn_marks(restored, np.nextafter(SEEN[SPARSE], SEEN[DENSE]))
        return [index for index, kind in enumerate(self.kinds) if kind]


def is_dense(gradient):
    return gradient is not None and type(gradient) is not SLICES
