"""Slices: the loss and the gradients of a batch, added up over the slices that it is cut into."""

from __future__ import absolute_import, division, print_function

import contextlib
import copy

import six
import tensorflow as tf

from gradaccum_compat import errors
from gradaccum_compat.backends import BACKEND
from gradaccum_compat.backends.base import compiled_by_xla, no_autograph
from gradaccum_compat.core import _arguments, _gradients
from gradaccum_compat.core._gradients import GradientSum
from gradaccum_compat.core._graph import control_dependencies
from gradaccum_compat.microbatch.batch import Bounds, EvenBounds
from gradaccum_compat.microbatch.order import SliceOrder
from gradaccum_compat.microbatch.result import MicrobatchGradients

_LOSS_RULE = (
    "loss_fn(micro_batch) returns the mean loss over it, a scalar of a float type, or (loss,"
    " weight), or (loss, weight, extras)."
)


class Slices(object):
    """The sums over the slices so far. AutoGraph converts none of this.

    Attributes:
        steps: how many slices the batch is cut into.
        even: whether all of them are known to have as many examples.
        sums: a GradientSum for the loss and one for each variable, None before the first slice.
        factors: what the gradients of each slice were multiplied with; a loop adds its factors up
            to one.
        weights: the weight of each slice; a loop adds them up too.
        extras: what loss_fn returned as extras, for each slice that is unrolled.
        more_extras: the extras of the slices in a loop, stacked: one tensor for each of the
            structure.
    """

    def __init__(self, variables, batch, steps):
        self.steps = steps
        self._variables = variables
        self._batch = batch
        self._bounds = [Bounds(batch.examples, steps, number) for number in range(steps)]
        self.even = (
            not tf.is_tensor(batch.examples) and batch.examples > 0 and batch.examples % steps == 0
        )
        self._returned = None
        self.sums = None
        self._order = SliceOrder()
        self.factors, self.weights, self.extras, self.more_extras = [], [], [], []

    def part(self, numbers, sums, factor, weight):
        """Returns slices of the same batch that go on from these sums.

        Args:
            numbers: the numbers of the slices, scalar tensors.
            sums: a tensor for each of `sums`, or None.
            factor: the sum of `factors`.
            weight: the sum of `weights`.
        """
        part = copy.copy(self)
        part._bounds = [
            EvenBounds(self._batch.examples // self.steps, number) for number in numbers
        ]
        part._order = SliceOrder()
        part.sums = [GradientSum([] if each is None else [each]) for each in sums]
        part.factors, part.weights, part.extras = [factor], [weight], []
        return part

    @no_autograph
    def recorded(self, number):
        return self._recorded(number)

    @contextlib.contextmanager
    def _recorded(self, number):
        """Yields a slice. On leaving, adds the gradients of the loss that take() was given."""
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
        """Takes the value that loss_fn returned for the slice."""
        parts = list(returned) if isinstance(returned, (tuple, list)) else [returned]
        if not 1 <= len(parts) <= 3 or parts[0] is not returned and len(parts) == 1:
            raise _loss_error("{} of length {}".format(type(returned).__name__, len(parts)))
        loss, weight, extras = [_loss(parts[0])] + parts[1:] + [None] * (3 - len(parts))
        # Even slices are weighed here, in the loss: the tape then gives gradients that need no
        # further pass. In half precision they are as small as the big batch's, and no smaller.
        self._alike = self.even and weight is None
        self._returned = loss / self.steps if self._alike else loss, weight, extras

    def _targets(self):
        if callable(self._variables):
            self._variables = _arguments.variables(self._variables())
        return [_arguments.raw_variable(each) for each in self._variables]

    def _add(self, size, tape, targets, loss, weight, extras):
        factor, weight, checks = self._weigh(size, weight)
        shapes = [[]] + [each.shape.as_list() for each in targets]
        dtypes = [_sum_dtype(each.dtype) for each in [loss] + targets]
        with control_dependencies(checks):
            gradients = [loss] + tape.gradient(loss, targets)
            scaling = None if isinstance(factor, float) and factor == 1.0 else factor
            weighted = _gradients.scale(
                _gradients.as_addends(gradients, shapes, dtypes),
                _arguments.nan_if_unsound(scaling),
            )
        if compiled_by_xla():
            weighted = [_dense(*each) for each in zip(weighted, shapes)]
        self.sums = self.sums or [GradientSum() for _ in weighted]
        for total, gradient in zip(self.sums, weighted):
            total.add(gradient)
        self.factors.append(factor)
        self.weights.append(weight)
        self.extras.append(extras)

    def _weigh(self, size, given):
        """Returns the slice's factor, its weight, and ops that check the weight."""
        if self.weights and (given is None) != self._unweighted:
            raise _loss_error("a weight for some slices and none for others")
        self._unweighted = given is None
        if given is None:
            weight, checks = tf.cast(size, tf.float64) if tf.is_tensor(size) else float(size), []
        else:
            weight = _arguments.weight(given)
            checks = _arguments.device_checks([], weight, [])
            if tf.is_tensor(size) or not size:
                weight = tf.compat.v2.where(
                    size > 0, tf.cast(weight, tf.float64), tf.zeros([], tf.float64)
                )
        if self._alike:
            return 1.0, weight, checks
        return _one_or_zero(weight) if self.steps == 1 else weight, weight, checks

    def _tensors(self):
        """Returns the tensors that a slice ends with: its sums and its extras."""
        extras = tf.nest.flatten(self.extras[-1], expand_composites=True)
        return [each for total in self.sums for each in total.tensors()] + [
            each for each in extras if tf.is_tensor(each)
        ]

    # The result

    @no_autograph
    def result(self):
        if not any(total.tensors() for total in self.sums[1:]):
            raise errors.VariablesError(
                "The loss depends on at least one of the variables.",
                "a loss that depends on none of them",
                "Compute it from the variables inside loss_fn: what was computed before is a"
                " constant there.",
            )
        means = _mean(
            [total.value() for total in self.sums], 1.0 if self._alike else sum(self.factors)
        )
        variables = [_arguments.raw_variable(each) for each in self._variables]
        gradients = _gradients.cast(
            means[1:], [tf.as_dtype(each.dtype).base_dtype for each in variables]
        )
        gradients = _gradients.with_dense_shapes(
            gradients, [each.shape.as_list() for each in variables]
        )
        weight = tf.cast(sum(self.weights), tf.float32)
        return MicrobatchGradients(means[0], gradients, self._stacked(), weight)

    def _stacked(self):
        if all(each is None for each in self.extras):
            return None
        least = tf.minimum if tf.is_tensor(self._batch.examples) else min
        rows, more = least(self.steps, self._batch.examples), iter(self.more_extras)

        def whole(parts):
            return tf.concat([stack(parts), next(more)], 0) if self.more_extras else stack(parts)

        return tf.nest.map_structure(
            lambda *parts: None if parts[0] is None else whole(parts)[:rows], *self.extras
        )


class _GraphTape(object):
    """tf.gradients with the methods of a GradientTape.

    A real tape fails on the loops and the reference variables of TF 1's graphs.
    """

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None

    def gradient(self, loss, variables):
        return tf.gradients(loss, variables)


def _mean(sums, total):
    """Returns sums / total, and zeros where the total is zero, as TensorFlow's weighted losses
    do."""
    if isinstance(total, float) and total == 1.0:
        return sums
    return _gradients.with_values(
        lambda value: tf.math.divide_no_nan(value, tf.cast(total, value.dtype)), sums
    )


def _dense(gradient, shape):
    """Returns the gradient as a dense tensor: unique rows have a shape that depends on values."""
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    return tf.math.unsorted_segment_sum(gradient.values, gradient.indices, shape[0])


def _one_or_zero(weight):
    """Returns the factor of a slice that is alone: 1 keeps its gradients bit for bit."""
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
        _LOSS_RULE,
        received,
        "Reduce the loss, with tf.reduce_mean for instance, and return a tuple of two or three.",
    )


def stack(parts):
    """Returns the extras of some slices, stacked along a new first axis."""
    try:
        return tf.stack(parts)
    except (ValueError, tf.errors.InvalidArgumentError) as cause:
        six.raise_from(
            errors.OptionError(
                "Extras are tensors of the same shape in every slice.",
                str(cause)[:200],
                "Return per-slice values, or choose steps that divide the batch.",
            ),
            cause,
        )
