"""verify: whether a model's accumulated gradient is the big batch's, and if not, why.

It computes both on the user's own model, before anything is trained. It tells the causes apart
by a slice that is evaluated twice, a slice that is repeated within one batch, the variables that
the loss writes, and the constants that the loss is divided by.
"""

from __future__ import absolute_import, division, print_function

import collections
import functools
import numbers
import re

import numpy as np
import tensorflow as tf

from gradaccum_compat import errors
from gradaccum_compat.core import _arguments
from gradaccum_compat.microbatch import microbatch_gradients
from gradaccum_compat.microbatch.batch import Batch, Bounds, pack
from gradaccum_compat.upgrade._loss_graph import LossGraph
from gradaccum_compat.upgrade._state_put_back import all_put_back, put_back, was_written

SUM_NOT_MEAN = "sum-not-mean"
GLOBAL_BATCH_SCALED = "global-batch-scaled"
BATCH_NORMALIZATION = "batch-normalization"
RANDOMNESS = "randomness"
BATCH_COUPLED_LOSS = "batch-coupled-loss"

#: The largest rounding of a gradient, as a share of it. A variable's own rounding is measured
#: besides, on the big batch with its examples in reverse, and ten times that is allowed up to
#: `_MOST_ROUNDING`.
_ROUNDING = {"float64": 1e-9, "float32": 1e-5}
_HALF_ROUNDING, _MOST_ROUNDING, _MOST_HALF_ROUNDING = 1e-2, 1e-3, 5e-2
#: A gradient that is zero but for rounding, such as that of a bias before a softmax, has no length
#: of its own: this share of all variables' gradient is nothing.
_NOTHING = 1e-7
#: How often a loss with random numbers in it is evaluated, for the mean.
_REPEATS = 8
#: The slices' losses over the big batch's: 1 if the loss is a sum, and at least 2, the fewest
#: slices, if it is a mean.
_ADDS_UP = 1.3
#: Names of the averages that batch normalisation keeps.
_AVERAGES = re.compile(r"moving|running|batch_?norm", re.IGNORECASE)


class Difference(
    collections.namedtuple(
        "Difference", ["name", "difference", "rounding", "ratio", "accumulated_norm", "big_norm"]
    )
):
    """How one variable's accumulated gradient differs from the big batch's.

    Attributes:
        name: the variable's.
        difference: the length of the difference, as a share of the gradient.
        rounding: the largest share that rounding explains.
        ratio: the accumulated gradient over the big batch's, along the latter; None where that is
            zero.
        accumulated_norm: the length of the accumulated gradient.
        big_norm: the length of the big batch's gradient.
    """

    __slots__ = ()

    @property
    def equal(self):
        """Whether rounding explains the difference; never where a gradient is not finite."""
        return self.difference <= self.rounding


class Cause(collections.namedtuple("Cause", ["id", "evidence", "remedy"])):
    """Why the gradients differ: an id, the figures that give it away, and what to do."""

    __slots__ = ()


class Report(object):
    """The report of verify.

    Attributes:
        equal: whether each variable's accumulated gradient is the big batch's, to rounding.
        causes: ids of what makes the difference, an empty list if there is none or none is known.
        explained: a Cause for each of them.
        variables: a Difference for each variable, in their order.
        steps: the number of slices.
        loss: the mean loss over the slices.
        big_loss: the big batch's loss.
    """

    def __init__(self, variables, explained, steps, loss, big_loss):
        self.variables = variables
        self.explained = explained
        self.steps = steps
        self.loss = loss
        self.big_loss = big_loss

    @property
    def equal(self):
        return all(each.equal for each in self.variables)

    @property
    def causes(self):
        return [each.id for each in self.explained]

    def __repr__(self):
        return "<Report equal={} causes={}>".format(self.equal, self.causes)

    def __str__(self):
        worst = sorted(self.variables, key=_by_excess)[-1]
        if self.equal:
            return (
                "The accumulated gradient of {} slices is the big batch's, for each of {}"
                " variables.\nThe largest difference is {:.1e} of the gradient, in {}; rounding"
                " explains {:.1e}.".format(
                    self.steps, len(self.variables), worst.difference, worst.name, worst.rounding
                )
            )
        different = [each for each in self.variables if not each.equal]
        lines = [
            "The accumulated gradient of {} slices is not the big batch's: {} of {} variables"
            " differ.".format(self.steps, len(different), len(self.variables))
        ]
        lines += [
            "The big batch's loss is {:.6g}, the slices' mean loss is {:.6g}.".format(
                self.big_loss, self.loss
            )
        ]
        for cause in self.explained:
            lines += [
                "",
                "Cause: {}".format(cause.id),
                "  " + cause.evidence,
                "  What to do: " + cause.remedy,
            ]
        if not self.explained:
            lines += ["", _UNEXPLAINED if all(map(_is_finite, self.variables)) else _NOT_FINITE]
        lines += ["", "The largest differences, as shares of the gradient:"]
        for each in sorted(different, key=_by_excess, reverse=True)[:10]:
            ratio = (
                ""
                if each.ratio is None
                else ", accumulated / big batch = {:.4g}".format(each.ratio)
            )
            lines.append(
                "  {}: {:.2e}, rounding explains {:.1e}{}".format(
                    each.name, each.difference, each.rounding, ratio
                )
            )
        return "\n".join(lines)


_NOT_FINITE = (
    "Gradients hold NaN or infinity, so that nothing can be compared. Look for the cause in the"
    " loss, with tf.debugging.enable_check_numerics() for instance."
)
_UNEXPLAINED = "No known cause explains this."


def verify(loss_fn, variables, batch, steps):
    """Compares the accumulated gradient with the big batch's, on your model, before anything is
    trained.

    The batch is evaluated as a whole and in slices, and once or twice more to find causes: that
    takes the memory of the whole batch. Weights, moving averages and the state of random numbers
    are put back; only the state of an op with a seed of its own is not within reach.

    Example:
        >>> report = ga.upgrade.verify(loss_fn, model.trainable_variables, (x, y), 4)
        >>> print(report)

    Args:
        loss_fn: as for ga.microbatch_gradients: a function of a slice of the batch, in the batch's
            structure. Returns the mean loss over the slice, or (loss, weight), or (loss, weight,
            extras).
        variables: non-empty list or tuple of variables, or a callable that returns one and is asked
            when loss_fn has run.
        batch: nested structure of dense tensors or NumPy arrays with a common first dimension.
        steps: how many slices, at least 2 and at most as many as there are examples.

    Returns:
        A Report: `equal`, `causes`, `variables`, and what it says in words as str(report).

    Raises:
        GradAccumError: one of its subclasses, for an argument that cannot be used.
        EagerRequiredError: inside a tf.function or a TF 1 graph.
    """
    _check(loss_fn, steps)
    if not callable(variables):
        _arguments.variables(variables)
    batch = Batch(batch)
    if not steps <= batch.examples:
        raise errors.OptionError(
            "Each slice has at least one example.",
            "{} examples for {} slices".format(batch.examples, steps),
            "Pass a larger batch or fewer steps.",
        )
    with all_put_back() as began:
        return _Model(loss_fn, variables, batch, int(steps), began).report()


def _check(loss_fn, steps):
    if not tf.executing_eagerly():
        raise errors.EagerRequiredError(
            "verify compares values, which only eager code has.",
            "a call inside of a graph",
            "Call it outside of tf.function; on TensorFlow 1, in a program of its own that begins"
            " with tf.compat.v1.enable_eager_execution().",
        )
    if tf.distribute.has_strategy():
        raise errors.ContextError(
            "verify works on one replica.",
            "a call under {}".format(type(tf.distribute.get_strategy()).__name__),
            "Call it outside of the strategy's scope, with a model that is made outside too.",
        )
    if not callable(loss_fn):
        raise errors.OptionError(
            "loss_fn is a function of a slice of the batch.",
            _arguments.describe(loss_fn),
            "Pass `lambda batch: loss`, and the batch beside it.",
        )
    if isinstance(steps, bool) or not isinstance(steps, numbers.Integral) or steps < 2:
        raise errors.OptionError(
            "steps must be an integer of at least 2, the number of slices.",
            repr(steps),
            "Pass steps=4, say.",
        )


class _Evaluated(object):
    """The loss, and the gradients as one NumPy array for each variable; zeros for None."""

    def __init__(self, loss, gradients):
        self.loss = loss
        self.gradients = gradients

    @property
    def vector(self):
        return np.concatenate([each.ravel() for each in self.gradients])


class _Model(object):
    """The user's loss, evaluated in several ways."""

    def __init__(self, loss_fn, variables, batch, steps, began):
        self._loss_fn, self._given, self._batch, self._steps = loss_fn, variables, batch, steps
        self._began = began
        #: Puts tensors into the structure that loss_fn takes.
        self._like = functools.partial(pack, batch.structure)
        self._graph = LossGraph(loss_fn, self._like, self._slice(0))
        self.written = []

    # Evaluating

    def _evaluate(self, tensors, steps=1):
        """One evaluation, after which every variable is as before, but for those that random
        numbers come from."""
        before = [(variable, tf.identity(variable)) for variable, _ in self._began]
        result = microbatch_gradients(self._loss_fn, self._given, self._like(tensors), steps)
        before += self._began[len(before) :]
        self.written = [variable for variable, value in before if was_written(variable, value)]
        put_back([(variable, value) for variable, value in before if variable.dtype.is_floating])
        return _Evaluated(
            float(result.loss.numpy()), list(map(_dense, result.gradients, self._variables()))
        )

    def _variables(self):
        given = self._given() if callable(self._given) else self._given
        return [_arguments.raw_variable(each) for each in _arguments.variables(given)]

    def _slice(self, number):
        bounds = Bounds(self._batch.examples, self._steps, number)
        return [each[bounds.begin : bounds.end] for each in self._batch.tensors]

    def _evaluated_slices(self):
        return [self._evaluate(self._slice(number)) for number in range(self._steps)]

    def _repeated(self, times):
        """The first slice, so many times over."""
        return self._evaluate([tf.concat([each] * times, 0) for each in self._slice(0)])

    # Comparing

    def report(self):
        big = self._evaluate(self._batch.tensors)
        averages = self._averages_written()
        accumulated = self._evaluate(self._batch.tensors, self._steps)
        reverse = self._evaluate([each[::-1] for each in self._batch.tensors])
        slices = self._evaluated_slices()
        again = self._evaluate(self._slice(0))
        self._scales = self._lengths([big] + slices)
        self._allowed = self._rounding(big, reverse)
        differences = self._differences(accumulated, big)
        if not all(each.equal for each in differences) and self._graph.computes_in_half():
            self._allowed = self._rounding(big, reverse, half=True)
            differences = self._differences(accumulated, big)
        explained = []
        finite = all(np.isfinite(each.vector).all() for each in [big] + slices)
        if finite and not all(each.equal for each in differences):
            explained = self._causes(big, accumulated, slices, again, averages)
        return Report(differences, explained, self._steps, accumulated.loss, big.loss)

    def _lengths(self, evaluated):
        """For each variable, the longest of its gradients: a small difference of two large ones is
        rounding, too."""
        return [
            max(map(np.linalg.norm, each)) for each in zip(*[one.gradients for one in evaluated])
        ]

    def _rounding(self, big, reverse, half=False):
        shares = []
        everything = np.linalg.norm(self._scales)
        for index, variable in enumerate(self._variables()):
            least = _ROUNDING.get(variable.dtype.base_dtype.name, _HALF_ROUNDING)
            least, most = (_HALF_ROUNDING, _MOST_HALF_ROUNDING) if half else (least, _MOST_ROUNDING)
            measured = self._share(index, big.gradients[index] - reverse.gradients[index])
            share = max(least, min(10 * measured, most))
            if self._scales[index]:
                share = max(share, _NOTHING * everything / self._scales[index])
            shares.append(share)
        return shares

    def _share(self, index, difference):
        length = np.linalg.norm(difference)
        return float(length / self._scales[index]) if self._scales[index] else float(length)

    def _differences(self, accumulated, big):
        found = []
        for index, (variable, own, other) in enumerate(
            zip(self._variables(), accumulated.gradients, big.gradients)
        ):
            square = float(np.vdot(other, other))
            found.append(
                Difference(
                    _name(variable),
                    self._share(index, own - other),
                    self._allowed[index],
                    float(np.vdot(own, other)) / square if square else None,
                    float(np.linalg.norm(own)),
                    float(np.linalg.norm(other)),
                )
            )
        return found

    def _explains(self, expected, big):
        """Whether this is the big batch's gradient; sums of several rounded ones are rounded
        more."""
        return all(
            self._share(index, own - other) <= 10 * self._allowed[index]
            for index, (own, other) in enumerate(zip(expected, big.gradients))
        )

    # Causes

    def _causes(self, big, accumulated, slices, again, averages):
        one = slices[0]
        if not all(
            self._share(index, own - other) <= self._allowed[index]
            for index, (own, other) in enumerate(zip(one.gradients, again.gradients))
        ):
            return self._causes_with_random_numbers(one, again, averages)
        two, three = self._repeated(2), self._repeated(3)
        explained, expected = [], accumulated.gradients
        if _adds_up(one.vector, two.vector, three.vector):
            explained.append(
                self._scale(
                    "The loss of one slice is {:.6g}, and {:.6g} where each of its examples is"
                    " there twice".format(one.loss, two.loss)
                )
            )
            # A part that does not grow with the examples, such as a regularizer's, is in each
            # slice's gradient.
            constant = [2 * first - both for first, both in zip(one.gradients, two.gradients)]
            expected = [
                sum(parts) - (self._steps - 1) * rest
                for parts, rest in zip(zip(*[each.gradients for each in slices]), constant)
            ]
        if self._explains(expected, big):
            return explained
        if averages or self._graph.has_batch_statistics():
            explained.append(_batch_normalization(averages))
            if explained[0].id == BATCH_NORMALIZATION and not _close(one.loss, two.loss, 1e-3):
                explained.append(self._coupled(one, two, None))
            return explained
        return explained + [self._coupled(one, two, big)]

    def _causes_with_random_numbers(self, one, again, averages):
        share = np.linalg.norm(one.vector - again.vector) / max(np.linalg.norm(one.vector), 1e-30)
        explained = [_randomness(one.loss, again.loss, share)]
        # A sum's losses over the slices add up to the big batch's, and a mean's to that times the
        # slices.
        repeats = range(_REPEATS)
        whole = float(np.mean([self._evaluate(self._batch.tensors).loss for _ in repeats]))
        parts = float(
            np.mean([sum(each.loss for each in self._evaluated_slices()) for _ in repeats])
        )
        if whole and 0 < parts / whole < _ADDS_UP:
            explained.append(
                self._scale(
                    "The slices' losses add up to {:.6g}, and the big batch's loss is {:.6g}, in"
                    " the mean of {} evaluations".format(parts, whole, _REPEATS)
                )
            )
        if averages:
            explained.append(_batch_normalization(averages))
        return explained

    def _averages_written(self):
        names = {
            _name(each) for each in self.written if each.dtype.is_floating and each.shape.ndims
        }
        return sorted(name for name in names if _AVERAGES.search(name))

    def _scale(self, grows):
        """The loss grows with the examples: it is a sum, or divided by a constant."""
        fits = [each for each in self._graph.divisors() if each >= self._batch.examples]
        if fits:
            return Cause(
                GLOBAL_BATCH_SCALED,
                "{}: it is divided by the constant {:.6g}, not by the slice's examples. The slices'"
                " gradients add up to the big batch's, and their mean is 1/{} of it.".format(
                    grows, fits[0], self._steps
                ),
                'pass loss_reduction="none" to Accumulator, which adds up; or divide the loss by'
                " the slice's examples.",
            )
        return Cause(
            SUM_NOT_MEAN,
            "{}: it is a sum over the examples. The slices' gradients add up to the big batch's,"
            " and their mean is 1/{} of it.".format(grows, self._steps),
            'pass loss_reduction="sum" to Accumulator with the examples as weight, for the gradient'
            ' of the mean loss; or loss_reduction="none" for the gradient of the sum; or use'
            " tf.reduce_mean in the loss.",
        )

    def _coupled(self, one, two, big):
        evidence = ""
        if big is not None:
            # The same examples, dealt out to the slices in turn.
            order = np.concatenate(
                [
                    np.arange(number, self._batch.examples, self._steps)
                    for number in range(self._steps)
                ]
            )
            dealt = self._evaluate(
                [tf.gather(each, order) for each in self._batch.tensors], self._steps
            )
            share = np.linalg.norm(dealt.vector - big.vector) / max(
                np.linalg.norm(big.vector), 1e-30
            )
            evidence = (
                " With the examples dealt out to the slices in turn, the accumulated gradient is"
                " {:.2g} of the big batch's away from it.".format(share)
            )
        if not _close(one.loss, two.loss, 1e-3):
            evidence += (
                " The loss of one slice is {:.6g}, and {:.6g} where each of its examples is there"
                " twice.".format(one.loss, two.loss)
            )
        return Cause(
            BATCH_COUPLED_LOSS,
            "An example's loss depends on the other examples of its slice, and no state is written"
            " that would be the reason." + evidence,
            "a contrastive loss over the batch has fewer negatives in a slice than in the big"
            " batch: accumulate embeddings, or accept another loss. For a mean over tokens or over"
            " weighted examples return (loss, tokens) from loss_fn, and pass that weight to"
            " Accumulator.",
        )


def _randomness(loss, again, share):
    return Cause(
        RANDOMNESS,
        "The same slice was evaluated twice: the loss was {:.6g} and {:.6g}, and the gradients were"
        " {:.2g} of their length apart. Something is drawn at random, or a counter goes on.".format(
            loss, again, share
        ),
        "nothing, if dropout or noise is meant: the gradients are the same in expectation. To"
        " compare the rest, call the model with training=False or set the rate to zero, and verify"
        " again: with random numbers a loss that is coupled over the batch is not looked for.",
    )


def _batch_normalization(averages):
    written = (
        "The loss writes moving averages: {}{}. ".format(
            ", ".join(averages[:3]),
            " and {} more".format(len(averages) - 3) if averages[3:] else "",
        )
        if averages
        else ""
    )
    return Cause(
        BATCH_NORMALIZATION,
        written
        + "Each slice is normalised by its own mean and variance, the big batch by its own.",
        "use a normalisation over each example (LayerNormalization, GroupNormalization), or freeze"
        " the layers; ga.keras.CycleBatchNormalization keeps the moving averages of the big batch."
        " No accumulation gives the big batch's gradient through batch statistics.",
    )


def _adds_up(one, two, three):
    """Whether a slice's gradient grows by the same with each repetition: the loss is no mean."""
    more, more_again = two - one, three - two
    length = np.linalg.norm(two)
    return bool(
        np.linalg.norm(more) > 1e-2 * length
        and np.linalg.norm(more_again - more) <= 1e-3 * (length + np.linalg.norm(more))
    )


def _close(one, other, share):
    return abs(one - other) <= share * max(abs(one), abs(other))


def _is_finite(difference):
    return bool(np.isfinite(difference.accumulated_norm) and np.isfinite(difference.big_norm))


def _by_excess(difference):
    excess = difference.difference / difference.rounding
    return excess if np.isfinite(excess) else float("inf")


def _name(variable):
    return (getattr(variable, "path", None) or variable.name).split(":")[0]


def _dense(gradient, variable):
    """A gradient as float64, zeros for None, with the rows of an IndexedSlices added up."""
    total = np.zeros(variable.shape.as_list(), np.float64)
    if gradient is None:
        return total
    if not isinstance(gradient, tf.IndexedSlices):
        return tf.cast(gradient, tf.float64).numpy()
    np.add.at(total, gradient.indices.numpy(), tf.cast(gradient.values, tf.float64).numpy())
    return total
