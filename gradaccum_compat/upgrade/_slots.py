"""The slots of each generation of optimizers, their names and contents: one table for recording,
following, replaying and carrying over.

A slot has one name here in all generations:

    momentum      SGD's and RMSprop's buffer
    m, v, vhat    Adam's and its kin's first and second moment, and AMSGrad's largest second moment
    accumulator   sums of squares: Adagrad, Ftrl; Adadelta's mean of squares
    rms, mg       RMSprop's mean of squares, and its mean gradient where it is centered
    delta         Adadelta's mean of squared updates
    linear        Ftrl's

Importing this imports neither TensorFlow nor NumPy.
"""

from __future__ import absolute_import, division, print_function

import collections
import math

import six

#: Generations of optimizers.
V1, KERAS_V2, KERAS_2_11, KERAS_3, OTHER = "v1", "keras_v2", "keras_2_11", "keras_3", "other"

_ADAM = {
    "m": "m",
    "v": "v",
    "vhat": "vhat",
    "momentums": "m",
    "velocities": "v",
    "velocity_hats": "vhat",
}
_SGD = {"momentum": "momentum", "momentums": "momentum"}
_ADAGRAD = {"accumulator": "accumulator", "accumulators": "accumulator"}
#: For each rule, the names that the generations have for its slots: those of get_slot_names(),
#: which v1 and OptimizerV2 have, and the attributes of the Keras base classes since 2.11, without
#: their underscore.
NAMES = {
    "sgd": _SGD,
    "adam": _ADAM,
    "adamax": {"m": "m", "v": "u", "u": "u"},
    "nadam": _ADAM,
    "lamb": _ADAM,
    "lion": {"m": "m", "momentums": "m"},
    "adagrad": _ADAGRAD,
    "proximaladagrad": _ADAGRAD,
    "rmsprop": {
        "rms": "rms",
        "mg": "mg",
        "momentum": "momentum",
        "velocities": "rms",
        "average_gradients": "mg",
        "momentums": "momentum",
    },
    "adadelta": {
        "accum": "accumulator",
        "accum_update": "delta",
        "accum_grad": "accumulator",
        "accum_var": "delta",
        "accumulated_grads": "accumulator",
        "accumulated_delta_vars": "delta",
    },
    "ftrl": {
        "accum": "accumulator",
        "accumulator": "accumulator",
        "accumulators": "accumulator",
        "linear": "linear",
        "linears": "linear",
    },
}
#: The rule of each class, by its name in small letters without "optimizer".
RULES = {
    "sgd": "sgd",
    "gradientdescent": "sgd",
    "momentum": "sgd",
    "momentumw": "sgd",
    "adam": "adam",
    "adamw": "adam",
    "lazyadam": "adam",
    "adamweightdecay": "adam",
    "adamax": "adamax",
    "nadam": "nadam",
    "lamb": "lamb",
    "lion": "lion",
    "adagrad": "adagrad",
    "proximaladagrad": "proximaladagrad",
    "rmsprop": "rmsprop",
    "adadelta": "adadelta",
    "ftrl": "ftrl",
}

#: The names under which a Saver of tf.compat.v1.train keeps the slots of variable VAR, in the order
#: of creation.
V1_CHECKPOINT = {
    "sgd": [("momentum", "VAR/Momentum")],
    "adam": [("m", "VAR/Adam"), ("v", "VAR/Adam_1")],
    "adagrad": [("accumulator", "VAR/Adagrad")],
    "rmsprop": [("rms", "VAR/RMSProp"), ("momentum", "VAR/RMSProp_1")],
    "adadelta": [("accumulator", "VAR/Adadelta"), ("delta", "VAR/Adadelta_1")],
    "ftrl": [("accumulator", "VAR/Ftrl"), ("linear", "VAR/Ftrl_1")],
}
#: The same where RMSprop is centered.
V1_CHECKPOINT_CENTERED = [
    ("rms", "VAR/RMSProp"),
    ("mg", "VAR/RMSProp_1"),
    ("momentum", "VAR/RMSProp_2"),
]


# Known from names alone


def rule_of_class(name):
    """The rule of a class, or None: "AdamOptimizer" and "AdamW" have Adam's slots."""
    name = name.lower()
    return RULES.get(name[: -len("optimizer")] if name.endswith("optimizer") else name)


def canonical(rule, name):
    """A slot's name, for what its generation calls it."""
    name = name.lstrip("_")
    return NAMES.get(rule, {}).get(name, name)


def converted(name, value, rule, source, target, learning_rate):
    """A slot's value as another generation keeps it.

    Args:
        name: the slot's canonical name.
        value: its value in the source's generation.
        rule: the optimizer's rule.
        source, target: generations.
        learning_rate: at this update; needed for SGD's momentum alone.

    Returns:
        The value, or None where it cannot be known.
    """
    if rule != "sgd" or name != "momentum" or (source == V1) == (target == V1):
        return value
    # v1 keeps a sum of gradients, m = momentum * m + g, and updates by -rate * m. Keras keeps the
    # update itself, m = momentum * m - rate * g: the two agree while the learning rate is constant.
    if not learning_rate:
        return None
    return value * -learning_rate if source == V1 else value / -learning_rate


def iterations_of_powers(beta1_power, beta2_power, beta1, beta2):
    """How many updates v1's Adam has made, which keeps beta ** (updates + 1) in place of their
    number.

    Returns:
        A whole number, or None where both powers have become too small to say.
    """
    # The second one lasts longer: float32 ends at 10 ** -38, which 0.9 reaches at update 829, 0.999
    # at 87,000.
    for power, beta in ((beta2_power, beta2), (beta1_power, beta1)):
        if 1e-37 < power <= 1 and 0 < beta < 1:
            return max(0, int(round(math.log(power) / math.log(beta))) - 1)
    return None


def powers_of_iterations(iterations, beta1, beta2):
    """The powers that v1's Adam keeps after so many updates."""
    return beta1 ** (iterations + 1), beta2 ** (iterations + 1)


# Asked of an optimizer


def plain(optimizer):
    """The optimizer itself: without what accumulates or scales the loss around it."""
    from gradaccum_compat.wrap import loss_scale, wrapped

    while True:
        if wrapped.is_wrapped(optimizer):
            optimizer = optimizer._accumulation.hand_over.plain
        elif isinstance(optimizer, wrapped.HandOver):
            optimizer = optimizer.plain
        elif loss_scale.serves(optimizer) and loss_scale.inner(optimizer) is not optimizer:
            optimizer = loss_scale.inner(optimizer)
        else:
            return optimizer


def generation_of(optimizer):
    """The generation of a plain optimizer."""
    if callable(getattr(optimizer, "build", None)) and hasattr(optimizer, "stateless_apply"):
        return KERAS_3
    if callable(getattr(optimizer, "build", None)) and hasattr(optimizer, "aggregate_gradients"):
        return KERAS_2_11
    if hasattr(optimizer, "_create_hypers"):
        return KERAS_V2
    if hasattr(optimizer, "_create_slots") and hasattr(optimizer, "get_slot_names"):
        return V1
    return OTHER


def rule_of(optimizer):
    """The rule of a plain optimizer, from the first of its classes that has one."""
    return next(
        (
            rule
            for rule in (rule_of_class(each.__name__) for each in type(optimizer).__mro__)
            if rule
        ),
        None,
    )


def slots_of(optimizer, variables):
    """The slots of a plain optimizer, once it has made them.

    Args:
        optimizer: the optimizer.
        variables: as they are handed to it.

    Returns:
        For each variable an ordered dictionary from canonical name to the slot's variable.
    """
    rule, generation = rule_of(optimizer), generation_of(optimizer)
    if generation in (V1, KERAS_V2):
        by_name = _by_get_slot(optimizer, variables)
    elif generation in (KERAS_2_11, KERAS_3):
        by_name = _by_attribute(optimizer, variables)
    else:
        by_name = [{} for _ in variables]
    return [
        collections.OrderedDict(
            sorted((canonical(rule, name), slot) for name, slot in slots.items())
        )
        for slots in by_name
    ]


def _by_get_slot(optimizer, variables):
    found = []
    for variable in variables:
        slots = {}
        for name in optimizer.get_slot_names():
            try:
                slot = optimizer.get_slot(variable, name)
            except KeyError:  # OptimizerV2's, of a variable that has no slots
                slot = None
            if slot is not None:
                slots[name] = slot
        found.append(slots)
    return found


def _by_attribute(optimizer, variables):
    """Of the Keras base classes since 2.11.

    Lists with a slot for each variable that the optimizer was built for.
    """
    positions = [_position(optimizer, variable) for variable in variables]
    found = [{} for _ in variables]
    for name, value in sorted(vars(optimizer).items()):
        # Keras 3 has dictionaries too, and its own list of all variables; a slot is none of the
        # trained ones.
        if not isinstance(value, (list, tuple)) or name.lstrip("_") in (
            "variables",
            "trainable_variables",
        ):
            continue
        for slots, position, variable in zip(found, positions, variables):
            slot = value[position] if position is not None and position < len(value) else None
            if hasattr(slot, "assign") and hasattr(slot, "shape") and slot is not variable:
                slots[name] = slot
    return found


def _position(optimizer, variable):
    try:
        if hasattr(optimizer, "_get_variable_index"):
            return optimizer._get_variable_index(variable)
        return optimizer._index_dict[optimizer._var_key(variable)]
    except (KeyError, AttributeError):
        return None


def iterations_of(optimizer):
    """How many updates a plain optimizer has made.

    A variable, a pair of variables with Adam's powers, or None.
    """
    if generation_of(optimizer) in (KERAS_V2, KERAS_2_11, KERAS_3):
        return optimizer.iterations
    if hasattr(optimizer, "_get_beta_accumulators"):
        try:
            powers = optimizer._get_beta_accumulators()
        except Exception:  # a subclass that keeps them elsewhere
            return None
        # By identity: == on a variable is an op.
        return None if any(each is None for each in powers) else tuple(powers)
    return None


def betas_of(optimizer):
    """v1 Adam's two betas, if they are plain numbers."""
    betas = getattr(optimizer, "_beta1", None), getattr(optimizer, "_beta2", None)
    return betas if all(isinstance(each, float) for each in betas) else None


def learning_rate_of(optimizer):
    """The learning rate of a plain optimizer's next update: a number, a tensor or a variable.

    None if it has none.
    """
    generation = generation_of(optimizer)
    if generation == KERAS_V2:
        import tensorflow as tf

        return optimizer._decayed_lr(tf.float32)
    rate = getattr(optimizer, "_learning_rate", None)
    rate = getattr(optimizer, "_lr", None) if rate is None else rate
    if not callable(rate) or hasattr(rate, "assign"):
        return rate
    # A schedule of the Keras base classes, which is called with the iterations; v1's is called with
    # nothing.
    return (
        rate(optimizer.iterations)
        if generation in (KERAS_2_11, KERAS_3) and hasattr(rate, "get_config")
        else rate()
    )


def settings_of(optimizer):
    """The hyperparameters of a plain optimizer, plain JSON alone; what is a tensor is left out."""
    settings = None
    if _may_be_asked(optimizer):
        try:
            settings = optimizer.get_config()
        except (
            Exception
        ):  # a user's optimizer has none, Keras 3's asks for values that a graph does not have
            pass
    settings = _plain_attributes(optimizer) if settings is None else settings
    return {
        str(name): _as_json(value)
        for name, value in settings.items()
        if _as_json(value) is not None
    }


def _may_be_asked(optimizer):
    """Not where OptimizerV2 would run a Session for the values of its hyperparameters."""
    import tensorflow as tf

    if not hasattr(optimizer, "get_config"):
        return False
    return tf.executing_eagerly() or not getattr(optimizer, "_hypers_created", False)


def _plain_attributes(optimizer):
    attributes = dict(
        vars(optimizer), **{name: value for name, value in getattr(optimizer, "_hyper", {}).items()}
    )
    return {
        name.lstrip("_"): value
        for name, value in attributes.items()
        if isinstance(value, (bool, int, float))
    }


def _as_json(value, depth=0):
    """The value if it is plain JSON, None if not."""
    if isinstance(value, six.integer_types + six.string_types):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else None
    if hasattr(value, "item") and getattr(value, "shape", None) == ():  # a NumPy number
        return _as_json(value.item(), depth)
    if isinstance(value, dict) and depth < 5:
        return {str(key): _as_json(each, depth + 1) for key, each in value.items()}
    if isinstance(value, (list, tuple)) and depth < 5:
        return [_as_json(each, depth + 1) for each in value]
    return None
