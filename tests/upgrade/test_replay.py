"""The rules replayed in NumPy against the real optimizers, update by update."""

from __future__ import absolute_import, division, print_function

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from gradaccum_compat.upgrade import _replay  # noqa: E402

v1 = tf.compat.v1.train
BETAS = {"beta_1": 0.8, "beta_2": 0.99}

#: Class and settings of each case. The settings are given to the optimizer and to the rule alike.
V1 = [
    ("GradientDescentOptimizer", {}),
    ("MomentumOptimizer", {"momentum": 0.9}),
    ("MomentumOptimizer", {"momentum": 0.9, "use_nesterov": True}),
    ("AdamOptimizer", {}),
    ("AdamOptimizer", {"beta1": 0.8, "beta2": 0.99, "epsilon": 1e-3}),
    ("AdagradOptimizer", {"initial_accumulator_value": 0.2}),
    ("RMSPropOptimizer", {}),
    ("RMSPropOptimizer", {"decay": 0.8, "epsilon": 1e-2}),
    ("RMSPropOptimizer", {"momentum": 0.9, "epsilon": 1e-2}),
    ("RMSPropOptimizer", {"momentum": 0.9, "centered": True, "epsilon": 1e-2}),
    ("AdadeltaOptimizer", {"rho": 0.9, "epsilon": 1e-3}),
    ("FtrlOptimizer", {"l1_regularization_strength": 0.01, "l2_regularization_strength": 0.02}),
    ("FtrlOptimizer", {"l2_shrinkage_regularization_strength": 0.05, "learning_rate_power": -0.6}),
]
KERAS = [
    ("SGD", {}),
    ("SGD", {"momentum": 0.9}),
    ("SGD", {"momentum": 0.9, "nesterov": True}),
    ("Adam", {}),
    ("Adam", dict(BETAS, epsilon=1e-3)),
    ("Adam", {"amsgrad": True}),
    ("Adagrad", {"initial_accumulator_value": 0.2, "epsilon": 1e-2}),
    ("RMSprop", {"epsilon": 1e-2}),
    ("RMSprop", {"epsilon": 1e-2, "centered": True}),
    ("RMSprop", {"epsilon": 1e-2, "momentum": 0.9}),
    ("RMSprop", {"epsilon": 1e-2, "momentum": 0.9, "centered": True}),
    ("Adadelta", {"rho": 0.9, "epsilon": 1e-3}),
    ("Ftrl", {"l1_regularization_strength": 0.01, "l2_regularization_strength": 0.02}),
    ("Ftrl", {"beta": 0.1, "l2_shrinkage_regularization_strength": 0.05}),
    ("AdamW", {"weight_decay": 0.1}),
    ("Lion", {}),
    ("Lion", {"weight_decay": 0.1}),
]


def generation_of(module):
    if hasattr(tf.keras, "Variable"):
        return "keras_3"
    return "keras_2_11" if hasattr(module.Optimizer, "update_step") else "keras_v2"


def cases():
    found = [(v1, "v1", name, settings) for name, settings in V1]
    modules = [tf.keras.optimizers]
    legacy = getattr(tf.keras.optimizers, "legacy", None)
    if (
        not hasattr(tf.keras, "Variable")
        and hasattr(legacy, "SGD")
        and legacy.SGD is not tf.keras.optimizers.SGD
    ):
        modules.append(legacy)
    for module in modules:
        generation = generation_of(module)
        found += [(module, generation) + case for case in KERAS if hasattr(module, case[0])]
    return found


def name_of(case):
    return "{}-{}-{}".format(case[1], case[2], "-".join(sorted(case[3])) or "defaults")


def made(case):
    """The optimizer, its rule and a variable of its kind."""
    module, generation, name, settings = case
    try:
        optimizer = getattr(module, name)(0.05, **settings)
    except TypeError:
        pytest.skip("this TensorFlow's {} has none of {}".format(name, sorted(settings)))
    values = np.random.randn(4, 3).astype(np.float32)
    made_by = getattr(tf.keras, "Variable", tf.Variable) if generation == "keras_3" else tf.Variable
    variable = made_by(values, name="w")
    rule = _replay.rule_of({"class": name, "generation": generation, "settings": settings})
    return optimizer, rule, variable


def state(optimizer, variable):
    """{slot: values}, read the way that each generation keeps them."""
    if hasattr(optimizer, "get_slot_names"):
        slots = {name: optimizer.get_slot(variable, name) for name in optimizer.get_slot_names()}
        return {name: slot.numpy() for name, slot in slots.items() if slot is not None}
    every = optimizer.variables() if callable(optimizer.variables) else optimizer.variables
    names = [(each.name.split(":")[0], each) for each in every]
    found = {name[2:]: each for name, each in names if name.startswith("w_")}
    found.update((name.split("/")[-2], each) for name, each in names if name.endswith("/w"))
    return {name: each.numpy() for name, each in found.items()}


def rounding(size):
    return 8 * _replay.EPS32 * size


@pytest.mark.parametrize("case", cases(), ids=name_of)
def test_each_update_is_replayed_within_rounding(case):
    optimizer, rule, variable = made(case)
    slots = {}
    for count in range(6):
        gradient = (np.random.randn(4, 3) * 10.0 ** np.random.randint(-3, 2, (4, 3))).astype(
            np.float32
        )
        before = variable.numpy()
        if count == 0:
            slots = {name: np.full((4, 3), value) for name, value in rule.first_slots().items()}
        change, after, size = rule.update(before, gradient, slots, np.float32(0.05), count)
        optimizer.apply_gradients([(tf.constant(gradient), variable)])
        assert np.all(np.abs(variable.numpy() - before - change) <= rounding(size))
        slots = rule.own_slots(state(optimizer, variable))
        # The same bound as below: the two conventions are a factor of 20 apart.
        kept = 0.05 * after.get("linear", np.nan)
        if np.allclose(slots.get("linear", 0), kept, rtol=2e-5, atol=1e-6):
            pytest.skip("with shrinkage TensorFlow 2.3 and 2.4 keep linear times the learning rate")
        for name, value in after.items():
            # 1 - 0.999 is off by 1.3e-5 in float32.
            np.testing.assert_allclose(slots[name], value, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("case", cases(), ids=name_of)
def test_another_epsilon_is_no_rounding(case):
    optimizer, rule, variable = made(case)
    if not rule.settings.get("epsilon"):
        pytest.skip("it has no epsilon")
    variable.assign(np.zeros((4, 3), np.float32))
    gradient, before = np.full((4, 3), 1e-3, np.float32), variable.numpy()
    slots = {name: np.full((4, 3), value) for name, value in rule.first_slots().items()}
    other = rule.changed(epsilon=rule.settings["epsilon"] * 100 + 1e-4)
    change, _, size = other.update(before, gradient, slots, np.float32(0.05), 0)
    optimizer.apply_gradients([(tf.constant(gradient), variable)])
    assert np.any(np.abs(variable.numpy() - before - change) > rounding(size))
