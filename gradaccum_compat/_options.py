"""The options that an accumulator takes: what each may be, and which go together."""

from __future__ import absolute_import, division, print_function

import numbers

import six
import tensorflow as tf

from gradaccum_compat import errors

LOSS_REDUCTIONS = ("mean", "sum", "global_mean", "none")
NONFINITE = ("propagate", "skip", "raise")
SUM_DTYPES = ("float32", "float64")


class Options(object):
    """The constructor's options, checked."""

    def __init__(self, **given):
        self.steps = steps(given.get("steps"))
        self.loss_reduction = option("loss_reduction", given.get("loss_reduction", "mean"), LOSS_REDUCTIONS)
        self.dtype = sum_dtype(given.get("dtype", "float32"))
        self.clip_norm = limit("clip_norm", given.get("clip_norm"), "the largest global norm of an update's gradients")
        self.adaptive_clip = limit(
            "adaptive_clip", given.get("adaptive_clip"), "how long a unit's gradient may be, as a share of its weights")
        self.nonfinite = option("nonfinite", given.get("nonfinite", "propagate"), NONFINITE)
        self.reducer = reducer(given.get("reducer"))


# Each by itself


def option(name, value, allowed):
    if not isinstance(value, six.string_types) or value not in allowed:
        raise errors.OptionError(
            "{} must be one of {}.".format(name, ", ".join(repr(each) for each in allowed)),
            repr(value), "Choose one of these.")
    return value


def sum_dtype(value):
    """Returns the tf.DType of the sums: float32 or float64, since half precision loses small addends."""
    try:
        dtype = tf.as_dtype(value)
    except TypeError:
        dtype = None
    if dtype is None or dtype.name not in SUM_DTYPES:
        raise errors.OptionError(
            "dtype must be float32 or float64: sums in half precision lose what is added.", repr(value),
            'Leave it out, or pass dtype="float64"; the variables may be of any float type.')
    return dtype


def steps(value):
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
        raise errors.OptionError(
            "steps must be a positive integer: the number of micro-batches of a cycle.", repr(value),
            "Pass steps=4, say, or leave it out and call apply() where a cycle ends.")
    return int(value)


def limit(name, value, meaning):
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not 0 < value < float("inf"):
        raise errors.OptionError(
            "{} must be a positive, finite number: {}.".format(name, meaning), repr(value),
            "Pass {}=1.0, say, or leave it out for no clipping.".format(name))
    return float(value)


def reducer(value):
    if value is not None and not callable(value):
        raise errors.OptionError(
            "reducer must be a function that takes a list of tensors and returns their sums over all workers.",
            repr(value), "Pass a function, or leave it out.")
    return value


def has_steps(value):
    if value is None:
        raise errors.OptionError(
            "step() needs to know how many micro-batches make a cycle.", "an accumulator made without steps",
            "Make it with Accumulator(..., steps=4), or call accumulate() and apply().")


# Together


def skip_is_exact(options, replicas):
    """Dropping one replica's share of a global mean would need every replica to drop its own, in every micro-batch."""
    if options.nonfinite == "skip" and options.loss_reduction == "global_mean" and replicas > 1:
        raise errors.OptionError(
            'nonfinite="skip" drops a micro-batch on every replica alike or not at all.',
            'loss_reduction="global_mean" on {} replicas, where a share has no weight of its own'.format(replicas),
            'Hand in each replica\'s mean with loss_reduction="mean" and its examples as weight, or use nonfinite="raise".')


def one_engine(options, replicas):
    """A reducer sums over processes that each have one replica; what the strategy sums, it must not sum again."""
    if options.reducer is not None and replicas > 1:
        raise errors.OptionError(
            "One engine reduces: the strategy or the reducer.", "a reducer under a strategy of {} replicas".format(replicas),
            "Leave the reducer out under tf.distribute, or run each worker without a strategy.")
    if options.reducer is not None and options.nonfinite == "skip" and options.loss_reduction == "global_mean":
        raise errors.OptionError(
            'nonfinite="skip" drops a micro-batch on every worker alike or not at all.',
            'loss_reduction="global_mean" with a reducer', 'Use loss_reduction="mean", or nonfinite="raise".')
