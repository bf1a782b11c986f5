"""Every optimizer that the TensorFlow at hand has built in, by family, as functions that make
one."""

from __future__ import absolute_import, division, print_function

import inspect

import tensorflow as tf

v1 = tf.compat.v1

try:
    import tf_keras
except ImportError:
    tf_keras = None

V1 = {
    "GradientDescent": lambda: v1.train.GradientDescentOptimizer(0.1),
    "Momentum": lambda: v1.train.MomentumOptimizer(0.1, 0.9),
    "Nesterov": lambda: v1.train.MomentumOptimizer(0.1, 0.9, use_nesterov=True),
    "Adam": lambda: v1.train.AdamOptimizer(0.1),
    "Adagrad": lambda: v1.train.AdagradOptimizer(0.1),
    "Adadelta": lambda: v1.train.AdadeltaOptimizer(0.1),
    "RMSProp": lambda: v1.train.RMSPropOptimizer(0.1),
    "CenteredRMSProp": lambda: v1.train.RMSPropOptimizer(0.1, momentum=0.9, centered=True),
    "Ftrl": lambda: v1.train.FtrlOptimizer(0.1, l1_regularization_strength=0.01),
    "ProximalAdagrad": lambda: v1.train.ProximalAdagradOptimizer(0.1),
    "ProximalGradientDescent": lambda: v1.train.ProximalGradientDescentOptimizer(0.1),
    "AdagradDA": lambda: v1.train.AdagradDAOptimizer(
        0.1, global_step=tf.Variable(1, dtype=tf.int64)
    ),
}

#: Not optimizers of their own: base classes and wrappers around another one.
_NOT_ITSELF = {
    "Optimizer",
    "OptimizerV2",
    "LossScaleOptimizer",
    "DynamicLossScaleOptimizer",
    "MultiOptimizer",
}
#: Options that give an optimizer more state than its defaults do.
_WITH_MOMENTUM = {
    "SGD": dict(momentum=0.9, nesterov=True),
    "RMSprop": dict(momentum=0.9, centered=True),
    "Adam": dict(amsgrad=True),
}


def _keras_family(module):
    """{name: maker} for each optimizer class in a Keras optimizers module."""
    family = {}
    for name in dir(module):  # not vars(): TF 1.14 wraps its modules
        each = getattr(module, name)
        if inspect.isclass(each) and hasattr(each, "apply_gradients") and name not in _NOT_ITSELF:
            family[name] = lambda each=each: each(0.1)
            if name in _WITH_MOMENTUM:
                family[name + " with momentum"] = lambda each=each, name=name: each(
                    0.1, **_WITH_MOMENTUM[name]
                )
    if hasattr(module, "MultiOptimizer"):
        family["MultiOptimizer"] = lambda: module.MultiOptimizer(
            module.OptimizerMap(module.Adam(0.1))
        )
    return family


#: The variables that an optimizer of this family is made for; Keras 3 has its own, and Muon takes
#: no other.
VARIABLES = {"keras": tf.keras.Variable} if hasattr(tf.keras, "Variable") else {}


#: What cannot be had in a TF 1 graph, with or without accumulation.
NOT_IN_A_GRAPH = {
    "Nadam": "on the base class of 2.11 to 2.15 it hands a Python bool to tf.cond",
    "Adafactor": "Keras 3's asks for names of its own variables",
    "Muon": "Keras 3's, it takes Keras variables alone, which a graph has none of",
    "MultiOptimizer": "Keras 3's, it takes Keras variables alone, which a graph has none of",
    "ScheduleFreeAdamW": "Keras 3's assigns to its state when it is built, and is refused",
}


def in_a_graph(family, name):
    return name not in NOT_IN_A_GRAPH or family in ("v1", "keras.legacy", "tf_keras.legacy")


def _families():
    families = {"v1": V1, "keras": _keras_family(tf.keras.optimizers)}
    legacy = getattr(tf.keras.optimizers, "legacy", None)
    if legacy is not None and _keras_family(legacy):
        families["keras.legacy"] = _keras_family(legacy)
    if tf_keras is not None:
        families["tf_keras"] = _keras_family(tf_keras.optimizers)
        families["tf_keras.legacy"] = _keras_family(tf_keras.optimizers.legacy)
    return families


FAMILIES = _families()
ALL = [(family, name) for family in sorted(FAMILIES) for name in sorted(FAMILIES[family])]


def maker(family, name):
    return FAMILIES[family][name]
