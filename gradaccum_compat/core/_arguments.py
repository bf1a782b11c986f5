"""What the constructor and the calls may be given, and what an error says otherwise.

Each default of an option stands here once. Checks run before any state is touched. The device
checks what only the device knows, the value of a tensor in a graph for instance, by `on_device`.
"""

from __future__ import absolute_import, division, print_function

import functools
import numbers
import re

import numpy as np
import six
import tensorflow as tf

from gradaccum_compat import errors
from gradaccum_compat.backends import BACKEND
from gradaccum_compat.backends.base import compiled_by_xla
from gradaccum_compat.core._gradients import ROWS
from gradaccum_compat.core._graph import control_dependencies

LOSS_REDUCTIONS = ("mean", "sum", "global_mean", "none")
NONFINITE = ("propagate", "skip", "raise")
SUM_DTYPES = ("float32", "float64")
#: The options of an accumulator, which are not set on it.
OPTIONS = frozenset(
    [
        "steps",
        "loss_reduction",
        "dtype",
        "clip_norm",
        "nonfinite",
        "reducer",
        "adaptive_clip",
        "statistics",
    ]
)
#: The class of each wrapped optimizer; saved models hold the name.
WRAPPED = "AccumulatedOptimizer"
#: Where an optimizer around another one has it: Keras's loss scale, and those of tf.compat.v1.
_INSIDE = ("inner_optimizer", "_optimizer", "_opt")
#: The largest weight: the sums are float32.
_MOST = float(np.finfo(np.float32).max)

# Options


class Options(object):
    """The constructor's options, checked. The defaults stand in the constructor alone."""

    def __init__(
        self,
        steps,
        loss_reduction,
        dtype,
        clip_norm,
        nonfinite,
        reducer,
        adaptive_clip,
        statistics,
    ):
        self.steps = schedule(steps)
        self.loss_reduction = option("loss_reduction", loss_reduction, LOSS_REDUCTIONS)
        self.dtype = sum_dtype(dtype)
        self.clip_norm = limit(
            "clip_norm", clip_norm, "the largest global norm of an update's gradients"
        )
        self.adaptive_clip = limit(
            "adaptive_clip",
            adaptive_clip,
            "how long a unit's gradient may be, as a share of its weights",
        )
        self.nonfinite = option("nonfinite", nonfinite, NONFINITE)
        self.reducer = a_reducer(reducer)
        self.statistics = flag("statistics", statistics)
        #: Whether the sums are divided by the total weight.
        self.counts_weight = loss_reduction != "none"


def state_name(value):
    """Returns the prefix of the state's variable names, which TensorFlow takes as a scope."""
    if not isinstance(value, six.string_types) or not re.match(r"[A-Za-z_][A-Za-z0-9_]*$", value):
        raise errors.OptionError(
            "name must be letters, digits and underscores, and not begin with a digit.",
            repr(value),
            'Pass name="generator", say.',
        )
    return value


def is_no_option(name, value):
    """Refuses to set an option of an accumulator that is made: nothing would come of it."""
    if name in OPTIONS:
        raise errors.OptionError(
            "{} is set when an accumulator is made.".format(name),
            "accumulator.{} = {!r:.80}".format(name, value),
            (
                "Pass a schedule such as steps={0: 2, 1000: 8}, or make another accumulator."
                if name == "steps"
                else "Make another accumulator."
            ),
        )


# Each by itself


def option(name, value, allowed):
    if not isinstance(value, six.string_types) or value not in allowed:
        raise errors.OptionError(
            "{} must be one of {}.".format(name, ", ".join(repr(each) for each in allowed)),
            repr(value),
            "Choose one of these.",
        )
    return value


def sum_dtype(value):
    """Returns the tf.DType of the sums: float32 or float64, since half precision loses small
    addends."""
    try:
        dtype = tf.as_dtype(value)
    except TypeError:
        dtype = None
    if dtype is None or dtype.name not in SUM_DTYPES:
        raise errors.OptionError(
            "dtype must be float32 or float64: sums in half precision lose what is added.",
            repr(value),
            'Leave it out, or pass dtype="float64"; the variables may be of any float type.',
        )
    return dtype


_STEPS_RULE = "steps must be a positive integer: the number of micro-batches of a cycle."
_STEPS_REMEDY = "Pass steps=4, say, or leave it out and call apply() where a cycle ends."
_SCHEDULE_RULE = (
    "A schedule of steps maps counts of updates to positive integers, and has an entry for 0."
)
_SCHEDULE_REMEDY = "Pass steps={0: 2, 1000: 8}, say: cycles of eight from update 1,000 on."
_FUNCTION_RULE = "A function of steps takes the count of updates and returns a positive integer."


def is_positive_integer(value):
    return _is_whole(value) and value > 0


def _is_whole(value):
    """Whether a value is an integer that a counter can reach."""
    whole = isinstance(value, numbers.Integral) and not isinstance(value, (bool, np.bool_))
    return whole and value < 2**63


def steps(value):
    """Returns the steps of every cycle as an int, or None."""
    if value is None:
        return None
    if not is_positive_integer(value):
        raise errors.OptionError(_STEPS_RULE, repr(value), _STEPS_REMEDY)
    return int(value)


def schedule(value):
    """Returns steps as an int, as a dictionary by updates, as a function, or None."""
    if isinstance(value, dict):
        if not all(_is_whole(each) for each in value) or 0 not in value or min(value) < 0:
            raise errors.OptionError(_SCHEDULE_RULE, repr(value), _SCHEDULE_REMEDY)
        if not all(is_positive_integer(each) for each in value.values()):
            raise errors.OptionError(_SCHEDULE_RULE, repr(value), _SCHEDULE_REMEDY)
        return dict((int(update), int(each)) for update, each in value.items())
    if callable(value) and not isinstance(value, type):
        return value
    return steps(value)


def steps_of_cycle(given, update_count):
    """The steps of the cycle after so many updates: an int, or a scalar int64 tensor."""
    if isinstance(given, dict):
        begins = sorted(given)
        reached = tf.cast(np.array(begins, np.int64) <= update_count, tf.int64)
        return tf.gather(
            tf.constant([given[each] for each in begins], tf.int64), tf.reduce_sum(reached) - 1
        )
    if not callable(given):
        return given
    value = given(update_count)
    if is_positive_integer(value):
        return tf.constant(int(value), tf.int64)
    if not tf.is_tensor(value) or not value.dtype.is_integer or value.shape.ndims not in (0, None):
        raise _function_error(describe(value))
    value = tf.cast(value, tf.int64)
    with control_dependencies([on_device(value > 0, _function_error, value)]):
        return tf.identity(value)


def nan_if_no_steps(weight, steps):
    """XLA drops the check of a function's steps: there the weight, and so the update, is NaN."""
    return nan_unless(steps > 0, weight) if tf.is_tensor(steps) else weight


def _function_error(received="another value"):
    return errors.OptionError(_FUNCTION_RULE, received, _SCHEDULE_REMEDY)


def limit(name, value, meaning):
    if value is None:
        return None
    if (
        isinstance(value, bool)
        or not isinstance(value, numbers.Real)
        or not 0 < value < float("inf")
    ):
        raise errors.OptionError(
            "{} must be a positive, finite number: {}.".format(name, meaning),
            repr(value),
            "Pass {}=1.0, say, or leave it out for no clipping.".format(name),
        )
    return float(value)


def flag(name, value):
    if not isinstance(value, (bool, np.bool_)):
        raise errors.OptionError(
            "{} must be True or False.".format(name), repr(value), "Choose one of these."
        )
    return bool(value)


def a_reducer(value):
    if value is not None and not callable(value):
        raise errors.OptionError(
            "reducer must be a function that takes a list of tensors and returns their sums over"
            " all workers.",
            repr(value),
            "Pass a function, or leave it out.",
        )
    return value


def no_steps_error():
    return errors.OptionError(
        "step() needs to know how many micro-batches make a cycle.",
        "an accumulator made without steps",
        "Make it with Accumulator(..., steps=4), or call accumulate() and apply().",
    )


# Together


def skip_is_exact(options, replicas):
    """Dropping one replica's share of a global mean would need every replica to drop its own, in
    every micro-batch."""
    if options.nonfinite == "skip" and options.loss_reduction == "global_mean" and replicas > 1:
        raise errors.OptionError(
            'nonfinite="skip" drops a micro-batch on every replica alike or not at all.',
            'loss_reduction="global_mean" on {} replicas, where a share has no weight'
            " of its own".format(replicas),
            'Hand in each replica\'s mean with loss_reduction="mean" and its examples as weight, or'
            ' use nonfinite="raise".',
        )


def one_engine(options, replicas):
    """A reducer sums over processes that each have one replica; what the strategy sums, it must not
    sum again."""
    if options.reducer is not None and replicas > 1:
        raise errors.OptionError(
            "One engine reduces: the strategy or the reducer.",
            "a reducer under a strategy of {} replicas".format(replicas),
            "Leave the reducer out under tf.distribute, or run each worker without a strategy.",
        )
    if (
        options.reducer is not None
        and options.nonfinite == "skip"
        and options.loss_reduction == "global_mean"
    ):
        raise errors.OptionError(
            'nonfinite="skip" drops a micro-batch on every worker alike or not at all.',
            'loss_reduction="global_mean" with a reducer',
            'Use loss_reduction="mean", or nonfinite="raise".',
        )


# Calls

_GRADIENT_REMEDY = (
    "Hand in what tape.gradient(loss, variables) or tf.gradients returns, in the variables' order."
)


def on_device(condition, make_error, value=None):
    """Raises the error unless the condition holds: now in eager code, by an op in a graph.

    Args:
        condition: a scalar bool tensor.
        make_error: function that returns what is raised; in a graph its words are those of an
            InvalidArgumentError.
        value: the tensor that is checked, which the error shows.

    Returns:
        What other ops wait for; None in eager code. XLA drops checks.
    """
    if tf.executing_eagerly():
        if bool(condition.numpy()):
            return None
        error = make_error()
        if value is None:
            raise error
        raise type(error)(error.rule, "{}".format(value.numpy()), error.remedy)
    return BACKEND.assert_on_device(condition, str(make_error()), value)


# Optimizer and variables


def optimizer(value):
    if not callable(getattr(value, "apply_gradients", None)) or isinstance(value, type):
        raise errors.OptimizerError(
            "An optimizer is an object with apply_gradients(pairs).",
            repr(value),
            "Pass one of tf.compat.v1.train, tf.keras.optimizers or tf_keras, for example"
            " tf.keras.optimizers.Adam().",
        )
    # Its class is made anew for each Keras optimizer, and has that one's name.
    if any(str(each.__module__).split(".")[0] == "horovod" for each in type(value).__mro__):
        raise errors.OptimizerError(
            "One engine reduces: the accumulator, once per cycle.",
            "{} from Horovod, which reduces too".format(type(value).__name__),
            "Pass the optimizer that hvd.DistributedOptimizer was given, and"
            " reducer=ga.horovod.sum_over_workers.",
        )
    refuse_accumulating(value)
    return value


def refuse_accumulating(value):
    """Two that accumulate would make an update after steps times steps micro-batches."""
    for each in _with_those_inside(value):
        if any(base.__name__ == WRAPPED for base in type(each).__mro__):
            received = "an optimizer from wrap_optimizer"
            remedy = (
                "Pass ga.unwrap_optimizer(optimizer), or call apply_gradients without Accumulator."
            )
        elif getattr(each, "gradient_accumulation_steps", None):
            received = "{} with gradient_accumulation_steps={}".format(
                type(each).__name__, each.gradient_accumulation_steps
            )
            remedy = "Leave gradient_accumulation_steps out."
        else:
            continue
        if each is not value:
            received = "{} around {}".format(type(value).__name__, received)
        raise errors.OptimizerError("One of the two accumulates.", received, remedy)


def _with_those_inside(optimizer):
    found = [optimizer]
    for each in found:
        inside = [getattr(each, name, None) for name in _INSIDE]
        inside.extend(getattr(each, "optimizers", ()))  # of Keras 3's MultiOptimizer
        found.extend(
            other
            for other in inside
            if hasattr(other, "apply_gradients") and all(other is not known for known in found)
        )
    return found


def raw_variable(variable):
    """TensorFlow's variable in a Keras 3 variable, which has it as its `value`; any other as it
    is."""
    value = getattr(variable, "value", None)
    return variable if value is None or callable(value) else value


def variables(value):
    """Returns the variables as a tuple, if gradients can be accumulated for them."""
    remedy = (
        "Pass a non-empty list or tuple of trainable variables, such as model.trainable_variables,"
        " or a callable that returns one."
    )
    if not isinstance(value, (list, tuple)) or not value:
        if hasattr(type(value), "trainable_variables"):
            remedy = "Pass model.trainable_variables."
        raise errors.VariablesError(
            "variables must be a non-empty list or tuple of variables.",
            describe(value),
            remedy + " A model that is built on first call has none before: pass `lambda:"
            " model.trainable_variables`.",
        )
    raw = [raw_variable(each) for each in value]
    for position, each in enumerate(raw):
        reason = _why_no_variable(each)
        if reason:
            raise errors.VariablesError(
                "Each variable must be a trainable floating-point variable.",
                "{} at position {}: {}".format(describe(value[position]), position, reason),
                remedy,
            )
    _refuse_twins(raw)
    return tuple(value)


def _why_no_variable(value):
    if not hasattr(value, "assign_add") or not hasattr(value, "dtype"):
        return "not a variable"
    if not tf.as_dtype(value.dtype).base_dtype.is_floating:
        return "of dtype {}".format(tf.as_dtype(value.dtype).name)
    if not _is_trainable(value):
        return "not trainable"
    if not value.shape.is_fully_defined():
        return "of unknown shape {}".format(value.shape)
    return None


def _is_trainable(variable):
    try:
        return getattr(variable, "trainable", True)
    except NotImplementedError:  # CentralStorageStrategy's variables on TF 1.14
        return True


def _refuse_twins(raw):
    seen = {}
    for position, each in enumerate(raw):
        # By identity: Variable.ref() came with TF 2.1, and == compares values on TF 2.
        first = seen.setdefault(id(each), position)
        if first != position:
            raise errors.VariablesError(
                "A variable may be given once: twice, its gradient would be applied twice.",
                "{} at positions {} and {}".format(describe(each), first, position),
                "Remove one of the two.",
            )


# Gradients

#: Tensors to tf.is_tensor, but of no use to an optimizer.
_NO_GRADIENTS = tf.SparseTensor, tf.RaggedTensor


def gradients(value, variables):
    """Returns the gradients as a list of tensors, IndexedSlices and Nones that fit the
    variables."""
    if not isinstance(value, (list, tuple)):
        raise errors.GradientTypeError(
            "Gradients come as a list or tuple, one for each variable.",
            describe(value),
            _GRADIENT_REMEDY,
        )
    if len(value) != len(variables):
        raise errors.GradientsError(
            "There is one gradient for each variable, None where a variable has none.",
            "{} gradients for {} variables".format(len(value), len(variables)),
            _GRADIENT_REMEDY,
        )
    return [
        each if _is_plain(each, variable) else _gradient(each, raw_variable(variable), position)
        for position, (each, variable) in enumerate(zip(value, variables))
    ]


_FLOATING = frozenset([tf.float16, tf.bfloat16, tf.float32, tf.float64])
#: For each type that came in, whether its objects are dense tensors.
_DENSE_TYPES = {}


def _is_plain(value, variable):
    """Whether there is nothing to say: a dense floating tensor of the variable's shape.

    In eager code this is asked for every gradient: a microsecond where the checks that name the
        fault take ten.
    """
    kind = type(value)
    if kind not in _DENSE_TYPES:
        _DENSE_TYPES[kind] = tf.is_tensor(value) and not isinstance(
            value, _NO_GRADIENTS + (tf.IndexedSlices,)
        )
    return _DENSE_TYPES[kind] and value.dtype in _FLOATING and value.shape == variable.shape


def _gradient(value, variable, position):
    if value is None:
        return None
    if isinstance(value, np.ndarray) and value.dtype.kind in "fiuc":
        value = tf.convert_to_tensor(value)
    if isinstance(value, tf.IndexedSlices):
        # Its parts need not be tensors yet.
        value = tf.IndexedSlices(
            tf.convert_to_tensor(value.values), tf.convert_to_tensor(value.indices)
        )
        _check_slices(value, variable, position)
    elif not tf.is_tensor(value) or isinstance(value, _NO_GRADIENTS):
        hint = (
            " A (gradient, variable) pair is for apply_gradients."
            if isinstance(value, tuple)
            else ""
        )
        raise errors.GradientTypeError(
            "A gradient is a tensor, a tf.IndexedSlices or None.",
            "{} at position {}".format(describe(value), position),
            _GRADIENT_REMEDY + hint,
        )
    else:
        _check_shape(value.shape, variable.shape, value, variable, position)
    if not tf.as_dtype(value.dtype).base_dtype.is_floating:
        raise errors.GradientTypeError(
            "A gradient is of a floating-point type.",
            "{} at position {}".format(describe(value), position),
            "Cast what the loss is computed from to a float; an integer or complex loss has no such"
            " gradient.",
        )
    return value


def _check_slices(value, variable, position):
    if variable.shape.ndims == 0:
        raise errors.GradientsError(
            "A scalar variable has no rows.",
            "{} for {} at position {}".format(describe(value), describe(variable), position),
            "Hand in a tensor for it.",
        )
    _check_shape(value.values.shape[1:], variable.shape[1:], value, variable, position)
    _check_shape(value.values.shape[:1], value.indices.shape, value, variable, position)
    if value.indices.dtype not in (tf.int32, tf.int64):
        raise errors.GradientTypeError(
            "The rows of an IndexedSlices are int32 or int64.",
            "indices of dtype {} at position {}".format(value.indices.dtype.name, position),
            "Cast the indices.",
        )


def _check_shape(shape, expected, value, variable, position):
    if not shape.is_compatible_with(expected):
        raise errors.GradientsError(
            "A gradient has its variable's shape.",
            "{} for {} at position {}".format(describe(value), describe(variable), position),
            _GRADIENT_REMEDY,
        )


# Weight

_WEIGHT_RULE = (
    "A weight is a finite number of at least zero: the examples or tokens of the micro-batch."
)
_WEIGHT_REMEDY = "Pass a Python number or a scalar tensor, such as tf.shape(x)[0]."


def weight(value):
    """Returns the weight as a float or as a float64 tensor, whose value `weight_is_sound`
    checks."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if isinstance(value, numbers.Real) and not isinstance(value, (bool, np.bool_)):
        # Compared as a Python float: in half precision _MOST would be infinity.
        try:
            number = float(value)
        except OverflowError:
            number = float("inf")
        if not 0 <= number <= _MOST:
            raise weight_error("{!r:.80}".format(value))
        return number
    if not (tf.is_tensor(value) or hasattr(value, "assign_add")) or isinstance(
        value, tf.IndexedSlices
    ):
        raise weight_error(describe(value))
    value = tf.convert_to_tensor(value)
    numeric = value.dtype.is_floating or value.dtype.is_integer
    if not numeric or not value.shape.is_compatible_with([]):
        raise weight_error(describe(value))
    return tf.cast(value, tf.float64)


def weight_is_sound(value):
    """A scalar bool tensor: whether the value of a weight tensor keeps the rule."""
    scalar = tf.equal(tf.rank(value), 0)
    return tf.logical_and(scalar, tf.reduce_all(tf.logical_and(value >= 0, value <= _MOST)))


def nan_if_unsound(value):
    """XLA drops checks: there an unsound weight makes the update NaN, and not silently wrong."""
    if type(value) is float or not tf.is_tensor(value) or not compiled_by_xla():
        return value
    return nan_unless(weight_is_sound(value), value)


def nan_unless(condition, value):
    return tf.compat.v2.where(condition, value, float("nan") * tf.ones_like(value))


def device_checks(gradients, weight, variables):
    """Ops that check what the device alone knows: a weight tensor's value, and the rows."""
    checks = []
    # tf.is_tensor takes 10 microseconds for what is none (TensorFlow 2.21).
    if type(weight) is not float and tf.is_tensor(weight):
        checks.append(on_device(weight_is_sound(weight), weight_error, weight))
    for gradient, variable in zip(gradients, variables):
        if type(gradient) is ROWS:
            inside = rows_are_inside(gradient, variable)
            checks.append(on_device(inside, functools.partial(rows_error, variable)))
    return checks


def weight_now(value):
    """Raises for a weight tensor whose value is known already."""
    if tf.is_tensor(value) and tf.executing_eagerly():
        on_device(weight_is_sound(value), weight_error, value)


def weight_error(received="a tensor with another value"):
    return errors.WeightError(_WEIGHT_RULE, received, _WEIGHT_REMEDY)


def rows_are_inside(slices, variable):
    """A scalar bool tensor: whether all rows of an IndexedSlices are rows of its variable."""
    height = tf.constant(variable.shape[0], slices.indices.dtype)
    return tf.reduce_all(tf.logical_and(slices.indices >= 0, slices.indices < height))


def rows_error(variable):
    return errors.GradientsError(
        "The rows of an IndexedSlices are rows of its variable.",
        "an index outside of {}".format(describe(variable)),
        "Check the ids that the embedding is looked up with.",
    )


def incomplete_error():
    return errors.IncompleteCycleError(
        "Each micro-batch is added as a whole, and each update is made as a whole, by one thread at"
        " a time.",
        "one that failed while it was being added, or an update that failed",
        "The sums hold a part of the micro-batch, or the update may be made in part: check the"
        " weights. Mend the cause, call reset(), and hand in the cycle again.",
    )


def former_layout_error():
    return errors.IncompleteCycleError(
        "A cycle is finished with the sums that it began with.",
        "a checkpoint in mid-cycle of a release before 1.0.0, whose sums had another layout",
        "Finish the cycle with that release and save again; or call reset(), which drops the"
        " restored micro-batches, and go on with the restored weights.",
    )


def interrupted_error(call):
    return errors.IncompleteCycleError(
        "Each call of an accumulator runs to its end.",
        "{}() that was interrupted".format(call),
        "An interrupted update may be made in part: check the weights, or restore a checkpoint."
        " Then call reset(), and hand in the cycle again.",
    )


def nonfinite_error():
    return errors.NonFiniteGradientsError(
        'With nonfinite="raise" the gradients of a cycle are finite.',
        "NaN or infinity in the accumulated gradients",
        "No weight was updated and the cycle is dropped. Look for the cause in the loss, or use"
        ' nonfinite="skip".',
    )


def nothing_has_a_gradient(variables):
    names = [getattr(each, "name", None) or "?" for each in variables]
    return errors.GradientsError(
        "No gradients provided for any variable: one of them has to have a gradient.",
        "None for each of {}".format(", ".join(str(each) for each in names[:5]))
        + (" and {} more".format(len(names) - 5) if len(names) > 5 else ""),
        "Compute the loss from these variables, inside of the tape.",
    )


def stale_error():
    return errors.GradientsError(
        "gradients() returns None for a variable that had no gradient when it was traced.",
        "a first gradient of such a variable",
        "Trace the function that calls gradients() again, by calling a new tf.function.",
    )


def describe(value):
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape is None or dtype is None:  # Keras 3's models have a dtype
        return "{} {!r:.80}".format(type(value).__name__, value)
    name = getattr(value, "name", None) if hasattr(value, "assign_add") else None
    return "{}{} of shape {} and dtype {}".format(
        type(value).__name__,
        " {!r}".format(name) if name else "",
        shape,
        getattr(dtype, "name", dtype),
    )
