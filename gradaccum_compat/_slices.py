"""Slices: the loss and the gradients of a big batch, added up over the slices that it is cut into."""

from __future__ import absolute_import, division, print_function

import contextlib
import copy

import six
import tensorflow as tf

from gradaccum_compat import _algebra, _checks, _micro_batch, errors
from gradaccum_compat._gradient_sum import GradientSum
from gradaccum_compat._options import Options
from gradaccum_compat._order import after
from gradaccum_compat._slice_order import SliceOrder
from gradaccum_compat._slicing import BigBatch, Bounds, EvenBounds
from gradaccum_compat.backends import BACKEND
from gradaccum_compat.backends.base import no_autograph

_LOSS_RULE = (
    "loss_fn(micro_batch) returns the mean loss over it, a scalar of a float type, or (loss, weight), or "
    "(loss, weight, extras).")
_WEIGHTED_MEAN = Options(loss_reduction="mean", nonfinite="propagate")


class Slices(object):
    """The sums over the slices so far: what AutoGraph need not see of the loops over them.

    Attributes:
        steps: how many slices the batch is cut into.
        even: whether all of them are known to have as many examples.
        sums: a GradientSum for the loss and one for each variable, once there was a slice.
        shares: what the slices weigh in the mean, or parts of the sum of that.
        weights: the same of their weights.
        extras: what loss_fn has handed out besides, for each slice.
        more_extras: what slices in a loop have handed out after that, stacked: one tensor for each of the structure.
    """

    def __init__(self, variables, batch, steps):
        self.steps = steps
        self._variables = variables
        self._batch = batch
        self._bounds = [Bounds(batch.examples, steps, number) for number in range(steps)]
        self.even = not tf.is_tensor(batch.examples) and batch.examples > 0 and batch.examples % steps == 0
        self._returned = None
        self.sums = None
        self._order = SliceOrder()
        self.shares, self.weights, self.extras, self.more_extras = [], [], [], []

    def part(self, numbers, sums, share, weight):
        """Slices of the same batch to go on with, after others that came to these tensors.

        Args:
            numbers: the numbers of the slices, scalar tensors.
            sums: a tensor for each of `sums`, or None.
            share: the sum of `shares`.
            weight: the sum of `weights`.
        """
        part = copy.copy(self)
        part._bounds = [EvenBounds(self._batch.examples // self.steps, number) for number in numbers]
        part._order = SliceOrder()
        part.sums = [GradientSum([] if each is None else [each]) for each in sums]
        part.shares, part.weights, part.extras = [share], [weight], []
        return part

    @no_autograph
    def recorded(self, number):
        return self._recorded(number)

    @contextlib.contextmanager
    def _recorded(self, number):
        """Yields a slice; on leaving, adds the gradients of the loss that was taken meanwhile."""
        with self._order.forward():
            micro_batch = self._batch.cut(self._bounds[number])
            tape = tf.GradientTape() if BACKEND.outermost_graph() is None else _GraphTape()
            with tape:
                yield micro_batch
        targets = self._targets()
        with self._order.backward(sum(each.shape.num_elements() for each in targets)):
            self._add(self._bounds[number].size, tape, targets, *self._returned)
        self._order.end(self._tensors())

    @no_autograph
    def take(self, returned):
        """Takes what loss_fn returned for the slice."""
        parts = list(returned) if isinstance(returned, (tuple, list)) else [returned]
        if not 1 <= len(parts) <= 3 or parts[0] is not returned and len(parts) == 1:
            raise _loss_error("{} of length {}".format(type(returned).__name__, len(parts)))
        loss, weight, extras = [_loss(parts[0])] + parts[1:] + [None] * (3 - len(parts))
        # Slices alike are weighed here, where the tape sees it: their gradients come as those of the big batch, and
        # need no pass over them. In half precision too they are as small as the big batch's, and no smaller.
        self._alike = self.even and weight is None
        self._returned = loss / self.steps if self._alike else loss, weight, extras

    def _targets(self):
        if callable(self._variables):
            self._variables = _checks.variables(self._variables())
        return [_checks.raw_variable(each) for each in self._variables]

    def _add(self, size, tape, targets, loss, weight, extras):
        share, weight, checks = self._weigh(size, weight)
        shapes = [tf.TensorShape([])] + [tf.TensorShape(each.shape) for each in targets]
        dtypes = [_sum_dtype(each.dtype) for each in [loss] + targets]
        with after(checks):
            weighted = _algebra.scale(*_micro_batch.prepare(
                [loss] + tape.gradient(loss, targets), share, shapes, dtypes, _WEIGHTED_MEAN)[:2])
        self.sums = self.sums or [GradientSum() for _ in weighted]
        for total, gradient in zip(self.sums, weighted):
            total.add(gradient)
        self.shares.append(share)
        self.weights.append(weight)
        self.extras.append(extras)

    def _weigh(self, size, given):
        """The slice's share in the mean, its weight, and ops that check it; slices alike have been weighed."""
        if self.weights and (given is None) != self._unweighted:
            raise _loss_error("a weight for some slices and none for others")
        self._unweighted = given is None
        if given is None:
            weight, checks = tf.cast(size, tf.float64) if tf.is_tensor(size) else float(size), []
        else:
            weight = _checks.weight(given)
            checks = _micro_batch.device_checks([], weight, [])
            if tf.is_tensor(size) or not size:
                weight = tf.compat.v2.where(size > 0, tf.cast(weight, tf.float64), tf.zeros([], tf.float64))
        return 1.0 if self._alike else _relative(weight) if self.steps == 1 else weight, weight, checks

    def _tensors(self):
        """What a slice ends with: the sums, and what it has handed out."""
        extras = tf.nest.flatten(self.extras[-1], expand_composites=True)
        return [each for total in self.sums for each in total.tensors()] + [each for each in extras if tf.is_tensor(each)]

    # The result

    @no_autograph
    def result(self):
        if not any(total.tensors() for total in self.sums[1:]):
            raise errors.VariablesError(
                "The loss depends on at least one of the variables.", "a loss that depends on none of them",
                "Compute it from the variables inside loss_fn: what was computed before is a constant there.")
        means = _mean([total.value() for total in self.sums], 1.0 if self._alike else sum(self.shares))
        variables = [_checks.raw_variable(each) for each in self._variables]
        gradients = _algebra.cast(means[1:], [tf.as_dtype(each.dtype).base_dtype for each in variables])
        gradients = _algebra.with_dense_shapes(gradients, [each.shape.as_list() for each in variables])
        big = BigBatch(means[0], gradients, self._stacked())
        big.weight = tf.cast(sum(self.weights), tf.float32)
        return big

    def _stacked(self):
        if all(each is None for each in self.extras):
            return None
        least = tf.minimum if tf.is_tensor(self._batch.examples) else min
        rows, more = least(self.steps, self._batch.examples), iter(self.more_extras)
        whole = lambda parts: tf.concat([stack(parts), next(more)], 0) if self.more_extras else stack(parts)
        return tf.nest.map_structure(lambda *parts: None if parts[0] is None else whole(parts)[:rows], *self.extras)


class _GraphTape(object):
    """tf.gradients behind a GradientTape's face: a tape fails on the loops and reference variables of TF 1's graphs."""

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None

    def gradient(self, loss, variables):
        return tf.gradients(loss, variables)


def _mean(sums, total):
    """sums / total; zero where the total is, as TensorFlow's own weighted losses have it."""
    if isinstance(total, float) and total == 1.0:
        return sums
    return _algebra.each_value(lambda value: tf.math.divide_no_nan(value, tf.cast(total, value.dtype)), sums)


def _relative(weight):
    """The share of a slice that is alone, 1 or 0: so that the gradients are bit for bit those of the plain loss."""
    if not tf.is_tensor(weight):
        return 1.0 if weight else 0.0
    return tf.compat.v2.where(weight > 0, weight / weight, weight)


def _sum_dtype(dtype):
    return tf.float64 if tf.as_dtype(dtype).base_dtype == tf.float64 else tf.float32


def _loss(value):
    if not tf.is_tensor(value) or isinstance(value, tf.IndexedSlices):
        raise _loss_error("{} {!r:.80}".format(type(value).__name__, value))
    value = tf.convert_to_tensor(value)
    if not value.dtype.is_floating or not value.shape.is_compatible_with([]):
        raise _loss_error("a loss of shape {} and dtype {}".format(value.shape, value.dtype.name))
    return value


def _loss_error(received):
    return errors.OptionError(
        _LOSS_RULE, received, "Reduce the loss, with tf.reduce_mean for instance, and return a tuple of two or three.")


def stack(parts):
    """The extras of some slices, along a new first axis."""
    try:
        return tf.stack(parts)
    except (ValueError, tf.errors.InvalidArgumentError) as cause:
        six.raise_from(errors.OptionError(
            "Extras are tensors of the same shape in every slice.", str(cause)[:200],
            "Return per-slice values, or choose steps that divide the batch."), cause)
