"""The arguments of microbatch_gradients: each fault is said before loss_fn runs."""

from __future__ import absolute_import, division, print_function

import inspect
import numbers

import six
import tensorflow as tf

from gradaccum_compat import errors
from gradaccum_compat.core import _arguments


def steps_of(positional, named):
    """The value of `steps`, handed in after the batch or by name.

    Args:
        positional: what followed the batch.
        named: the keyword arguments.
    """
    unknown = sorted(set(named) - {"steps"})
    if unknown:
        raise TypeError(
            "microbatch_gradients() got an unexpected keyword argument {!r}".format(unknown[0])
        )
    found = list(positional) + list(named.values())
    if not found:
        raise TypeError("microbatch_gradients() missing 1 required argument: 'steps'")
    if len(found) > 1:
        raise errors.OptionError(
            "microbatch_gradients takes one batch and one number of steps.",
            "{} arguments after the batch".format(len(found)),
            "Pass the tensors of the batch as one structure: microbatch_gradients(loss_fn,"
            " variables, (x, y), steps=4).",
        )
    return found[0]


def is_auto(steps):
    return isinstance(steps, six.string_types) and steps == "auto"


def check(loss_fn, variables, steps):
    """Raises for what cannot be used, and for a call outside of the replicas."""
    if tf.distribute.has_strategy() and tf.distribute.in_cross_replica_context():
        raise errors.ContextError(
            "microbatch_gradients works on one replica's batch.",
            "a call outside of the replicas",
            "Call it in the function that strategy.run calls.",
        )
    whole_number = isinstance(steps, numbers.Integral) and not isinstance(steps, bool)
    if not is_auto(steps) and not (whole_number and steps >= 1):
        raise errors.OptionError(
            'steps must be a positive integer, the number of slices, or "auto".',
            repr(steps),
            "Pass steps=4, say.",
        )
    _check_loss_fn(loss_fn)
    _check_variables(variables)


def _check_loss_fn(loss_fn):
    if not callable(loss_fn):
        raise _loss_fn_error("{} {!r:.80}".format(type(loss_fn).__name__, loss_fn))
    function = getattr(loss_fn, "python_function", loss_fn)  # of a tf.function
    if not inspect.isfunction(function) and not inspect.ismethod(function):
        return
    try:
        inspect.getcallargs(function, None)
    except TypeError:
        code = six.get_function_code(getattr(function, "__func__", function))
        names = code.co_varnames[: code.co_argcount]
        raise _loss_fn_error("a function of ({})".format(", ".join(names)))


def _loss_fn_error(received):
    return errors.OptionError(
        "loss_fn is a function of one argument: a slice of the batch, in the batch's structure.",
        received,
        "Take a tuple apart inside: def loss_fn(micro_batch): x, y = micro_batch.",
    )


def _check_variables(variables):
    if hasattr(type(variables), "trainable_variables"):  # an unbuilt model may raise
        raise errors.VariablesError(
            "variables must be a non-empty list or tuple of variables.",
            "a {}, which has variables".format(type(variables).__name__),
            "Pass its trainable_variables, or `lambda: model.trainable_variables` for a model that"
            " is built on its first call.",
        )
    if not callable(variables):
        _arguments.variables(variables)
