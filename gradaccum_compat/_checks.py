"""What a call may be handed, and what it is told otherwise.

Checks run before any state is touched. What only the device knows (the value of a tensor in a
graph) is checked there, by `on_device`; everything else is checked here, when the call is made.
"""

from __future__ import absolute_import, division, print_function

import math
import numbers

import numpy as np
import tensorflow as tf

from gradaccum_compat import errors

_GRADIENT_REMEDY = "Hand in what tape.gradient(loss, variables) or tf.gradients returns, in the variables' order."


def on_device(condition, error):
    """Raises error unless condition holds: now in eager code, when the returned op runs in a graph."""
    if tf.executing_eagerly():
        if not bool(condition.numpy()):
            raise error
        return None
    # Not tf.debugging.Assert, whose message is a tensor: XLA up to TF 2.4 compiles no strings.
    flag = tf.compat.v2.where(condition, 0.0, float("nan"))
    return tf.debugging.check_numerics(flag, str(error))


# Optimizer and variables


def optimizer(value):
    if not callable(getattr(value, "apply_gradients", None)) or isinstance(value, type):
        raise errors.OptimizerError(
            "An optimizer is an object with apply_gradients(pairs).", repr(value),
            "Pass one of tf.compat.v1.train, tf.keras.optimizers or tf_keras, for example tf.keras.optimizers.Adam().")
    # Its class is made anew for each Keras optimizer, and has that one's name.
    if any(str(each.__module__).split(".")[0] == "horovod" for each in type(value).__mro__):
        raise errors.OptimizerError(
            "One engine reduces: the accumulator, once per cycle.", "{} from Horovod, which reduces too".format(
                type(value).__name__),
            "Pass the optimizer that hvd.DistributedOptimizer was given, and reducer=ga.horovod.sum_over_workers.")
    return value


def raw_variable(variable):
    """TensorFlow's variable in a Keras 3 variable, which has it as its `value`; any other as it is."""
    value = getattr(variable, "value", None)
    return variable if value is None or callable(value) else value


def variables(value):
    """Returns the variables as a tuple, if gradients can be accumulated for them."""
    remedy = "Pass a non-empty list or tuple of trainable variables, such as model.trainable_variables, or a callable that returns one."
    if not isinstance(value, (list, tuple)) or not value:
        raise errors.VariablesError(
            "variables must be a non-empty list or tuple of variables.", describe(value),
            remedy + " A model that is built on first call has none before: pass `lambda: model.trainable_variables`.")
    raw = [raw_variable(each) for each in value]
    for position, each in enumerate(raw):
        reason = _why_no_variable(each)
        if reason:
            raise errors.VariablesError(
                "Each variable must be a trainable floating-point variable.",
                "{} at position {}: {}".format(describe(value[position]), position, reason), remedy)
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
                "{} at positions {} and {}".format(describe(each), first, position), "Remove one of the two.")


# Gradients

#: Tensors to tf.is_tensor, but of no use to an optimizer.
_NO_GRADIENTS = tuple(each for each in (tf.SparseTensor, getattr(tf, "RaggedTensor", None)) if each)


def gradients(value, variables):
    """Returns the gradients as a list of tensors, IndexedSlices and Nones that fit the variables."""
    if not isinstance(value, (list, tuple)):
        raise errors.GradientTypeError(
            "Gradients come as a list or tuple, one for each variable.", describe(value), _GRADIENT_REMEDY)
    if len(value) != len(variables):
        raise errors.GradientsError(
            "There is one gradient for each variable, None where a variable has none.",
            "{} gradients for {} variables".format(len(value), len(variables)), _GRADIENT_REMEDY)
    return [each if _is_plain(each, variable) else _gradient(each, raw_variable(variable), position)
            for position, (each, variable) in enumerate(zip(value, variables))]


_FLOATING = frozenset([tf.float16, tf.bfloat16, tf.float32, tf.float64])
#: For each type that came in, whether its objects are dense tensors.
_DENSE_TYPES = {}


def _is_plain(value, variable):
    """Whether there is nothing to say: a dense floating tensor of the variable's shape.

    In eager code this is asked for every gradient: a microsecond where the checks that name the fault take ten.
    """
    kind = type(value)
    if kind not in _DENSE_TYPES:
        _DENSE_TYPES[kind] = tf.is_tensor(value) and not isinstance(value, _NO_GRADIENTS + (tf.IndexedSlices,))
    return _DENSE_TYPES[kind] and value.dtype in _FLOATING and value.shape == variable.shape


def _gradient(value, variable, position):
    if value is None:
        return None
    if isinstance(value, np.ndarray) and value.dtype.kind in "fiuc":
        value = tf.convert_to_tensor(value)
    if isinstance(value, tf.IndexedSlices):
        # Its parts need not be tensors yet.
        value = tf.IndexedSlices(tf.convert_to_tensor(value.values), tf.convert_to_tensor(value.indices))
        _check_slices(value, variable, position)
    elif not tf.is_tensor(value) or isinstance(value, _NO_GRADIENTS):
        hint = " A (gradient, variable) pair is for apply_gradients." if isinstance(value, tuple) else ""
        raise errors.GradientTypeError(
            "A gradient is a tensor, a tf.IndexedSlices or None.",
            "{} at position {}".format(describe(value), position), _GRADIENT_REMEDY + hint)
    else:
        _check_shape(value.shape, variable.shape, value, variable, position)
    if not tf.as_dtype(value.dtype).base_dtype.is_floating:
        raise errors.GradientTypeError(
            "A gradient is of a floating-point type.", "{} at position {}".format(describe(value), position),
            "Cast what the loss is computed from to a float; an integer or complex loss has no such gradient.")
    return value


def _check_slices(value, variable, position):
    if variable.shape.ndims == 0:
        raise errors.GradientsError(
            "A scalar variable has no rows.", "{} for {} at position {}".format(
                describe(value), describe(variable), position), "Hand in a tensor for it.")
    _check_shape(value.values.shape[1:], variable.shape[1:], value, variable, position)
    _check_shape(value.values.shape[:1], value.indices.shape, value, variable, position)
    if value.indices.dtype not in (tf.int32, tf.int64):
        raise errors.GradientTypeError(
            "The rows of an IndexedSlices are int32 or int64.", "indices of dtype {} at position {}".format(
                value.indices.dtype.name, position), "Cast the indices.")


def _check_shape(shape, expected, value, variable, position):
    if not shape.is_compatible_with(expected):
        raise errors.GradientsError(
            "A gradient has its variable's shape.", "{} for {} at position {}".format(
                describe(value), describe(variable), position), _GRADIENT_REMEDY)


# Weight

_WEIGHT_RULE = "A weight is a finite number of at least zero: the examples or tokens of the micro-batch."
_WEIGHT_REMEDY = "Pass a Python number or a scalar tensor, such as tf.shape(x)[0]."


def weight(value):
    """Returns the weight as a float or as a float64 tensor, whose value `weight_is_sound` checks."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if isinstance(value, numbers.Real) and not isinstance(value, (bool, np.bool_)):
        if not 0 <= value < float("inf") or math.isnan(value):
            raise weight_error(repr(value))
        return float(value)
    if not (tf.is_tensor(value) or hasattr(value, "assign_add")) or isinstance(value, tf.IndexedSlices):
        raise weight_error(describe(value))
    value = tf.convert_to_tensor(value)
    numeric = value.dtype.is_floating or value.dtype.is_integer
    if not numeric or not value.shape.is_compatible_with([]):
        raise weight_error(describe(value))
    return tf.cast(value, tf.float64)


def weight_is_sound(value):
    """A scalar bool tensor: whether the value of a weight tensor keeps the rule."""
    scalar = tf.equal(tf.rank(value), 0)
    return tf.logical_and(scalar, tf.reduce_all(tf.logical_and(value >= 0, value < float("inf"))))


def weight_now(value):
    """Raises for a weight tensor whose value is known already."""
    if tf.is_tensor(value) and tf.executing_eagerly():
        on_device(weight_is_sound(value), weight_error())


def weight_error(received="a tensor with another value"):
    return errors.WeightError(_WEIGHT_RULE, received, _WEIGHT_REMEDY)


def rows_are_inside(slices, variable):
    """A scalar bool tensor: whether all rows of an IndexedSlices are rows of its variable."""
    height = tf.constant(variable.shape[0], slices.indices.dtype)
    return tf.reduce_all(tf.logical_and(slices.indices >= 0, slices.indices < height))


def rows_error(variable):
    return errors.GradientsError(
        "The rows of an IndexedSlices are rows of its variable.",
        "an index outside of {}".format(describe(variable)), "Check the ids that the embedding is looked up with.")


def incomplete_error():
    return errors.IncompleteCycleError(
        "Each micro-batch of a cycle is added as a whole.", "one that failed while it was being added",
        "The weights were not moved. Mend what failed, call reset(), and hand in the cycle again.")


def nonfinite_error():
    return errors.NonFiniteGradientsError(
        'With nonfinite="raise" the gradients of a cycle are finite.', "NaN or infinity in the accumulated gradients",
        "The weights were not moved and the cycle is dropped. Look for the cause in the loss, or use nonfinite=\"skip\".")


def describe(value):
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if dtype is None:
        return "{} {!r:.80}".format(type(value).__name__, value)
    name = getattr(value, "name", None) if hasattr(value, "assign_add") else None
    return "{}{} of shape {} and dtype {}".format(
        type(value).__name__, " {!r}".format(name) if name else "", shape, getattr(dtype, "name", dtype))
