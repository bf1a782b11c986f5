"""What the last update knew: norms, weights, and the gradient noise scale.

With micro-batches of sizes b and gradients g, their sum B and the big batch's gradient G:

    trace   = (sum(b * |g|^2) - B * |G|^2) / (K - 1)    of the covariance of an example's gradient
    square  = |G|^2 - trace / B                         of the true gradient

The noise scale is the ratio of the two moving averages (McCandlish et al. 2018). The replicas'
micro-batches count as micro-batches.
"""

from __future__ import absolute_import, division, print_function

import collections

import tensorflow as tf

from gradaccum_compat.backends import BACKEND
from gradaccum_compat.backends.base import compiled_by_xla
from gradaccum_compat.core import _gradients, _state
from gradaccum_compat.core._graph import done

#: What a moving average keeps of itself in each update.
DECAY = 0.95

NAMES = ("gradient_norm", "clip_factor", "weight", "micro_batches", "noise_scale")


class LastUpdate(collections.namedtuple("LastUpdate", NAMES)):
    """Scalar float64 tensors, by name: `last.noise_scale` and `last["noise_scale"]`.

    Attributes:
        gradient_norm: global norm of the big batch's gradient, before clipping.
        clip_factor: what clipping left of the norm; 1 where nothing was clipped.
        weight: total weight of the cycle.
        micro_batches: micro-batches of the cycle, on all replicas, without dropped ones.
        noise_scale: the size of a batch at which noise and gradient are alike, in the unit of the
            weights; NaN until a cycle has had two micro-batches.
    """

    __slots__ = ()

    def __getitem__(self, key):
        return tuple.__getitem__(self, NAMES.index(key) if key in NAMES else key)


class Statistics(tf.Module):
    """The state of the statistics, beside an accumulator's.

    Attributes:
        squares: sum(b * |g|^2) and the number of micro-batches, of this replica in this cycle.
        last: what the last update knew, in the order of NAMES; then the two moving averages and
            what they are divided by.
    """

    def __init__(self, name):
        super(Statistics, self).__init__(name=name)
        self.squares = BACKEND.state_variable(
            [2], tf.float64, name + "/squares", tf.VariableAggregation.SUM
        )
        self.last = BACKEND.state_variable(
            [len(NAMES) + 3],
            tf.float64,
            name + "/last_update",
            tf.VariableAggregation.ONLY_FIRST_REPLICA,
        )

    def add(self, gradients, weight, by_sum, shared):
        """Adds a micro-batch of one replica; returns the ops that do.

        Args:
            gradients: before they are weighted.
            weight: the micro-batch's.
            by_sum: whether they are gradients of a sum over the micro-batch, not of a mean.
            shared: over how many replicas the mean's examples are spread.
        """
        size = _gradients.as_dtype(weight, tf.float64) / shared
        square = _gradients.squared_norm(_each_row_once(gradients)) * shared * shared
        counts = size > 0
        one = tf.ones([], tf.float64)
        weighted = square / tf.compat.v2.where(counts, size, one) if by_sum else square * size
        # A mean over no examples is NaN, and weighs nothing.
        weighted = tf.compat.v2.where(counts, weighted, tf.zeros_like(weighted))
        return [_state.add(self.squares, tf.stack([weighted, tf.cast(counts, tf.float64)]))]

    def end(self):
        return [_state.write(self.squares, tf.zeros([2], tf.float64))]

    def update(self, squares, weight, before, after):
        """Notes an update.

        Args:
            squares: of all replicas, added up.
            weight: their total weight.
            before: the global norm of the gradient before clipping.
            after: the same after clipping.
        """
        last, names = _state.read(self.last), len(NAMES)
        count = squares[1]
        several = count > 1
        rest = tf.maximum(count - 1, 1)
        trace = (squares[0] - weight * tf.square(before)) / rest
        square = tf.square(before) - trace / weight
        keep = tf.compat.v2.where(several, tf.constant(DECAY, tf.float64), tf.ones([], tf.float64))
        averages = last[names:] * keep + (1 - keep) * tf.stack([trace, square, tf.ones_like(trace)])
        factor = tf.compat.v2.where(before > 0, after / before, tf.ones_like(before))
        # Zero by zero, NaN, until there was a cycle of two.
        noise = tf.stack([before, factor, weight, count, averages[0] / averages[1]])
        return done([_state.write(self.last, tf.concat([noise, averages], 0))])

    def values(self):
        """The LastUpdate."""
        last = tf.identity(self.last)
        return LastUpdate(*[last[index] for index in range(len(NAMES))])


def global_norm(gradients):
    return tf.sqrt(_gradients.squared_norm(gradients))


def _each_row_once(gradients):
    """A row that comes twice counts as the sum of both."""
    if not compiled_by_xla():
        return _gradients.unique_rows(gradients)
    return [tf.convert_to_tensor(each) if _gradients.is_rows(each) else each for each in gradients]
