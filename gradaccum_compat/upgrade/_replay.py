"""The update rules of TensorFlow's optimizers, in NumPy's float64.

One rule serves all generations of an optimizer. The generations differ in a few facts only, and the
table `_FORMS` lists them: where epsilon stands, the value that a slot begins with, and whether a
momentum buffer holds the learning rate. Each fact is shown by a test on the real optimizers.

A replay takes what a record holds of one update: the weights and slots before it, the gradient, the
learning rate and the count of updates before it. No TensorFlow here.
"""

from __future__ import absolute_import, division, print_function

import numpy as np

EPS32 = 2.0**-24

GENERATIONS = ("v1", "keras_v2", "keras_2_11", "keras_3")

#: Facts by optimizer and generation. `placement` says where epsilon stands: inside or outside of
#: the root.
_FORMS = {
    # The buffer of tf.train holds gradients; that of Keras holds updates, learning rate included.
    ("momentum", "v1"): {"convention": "gradients"},
    ("momentum", "keras_v2"): {"convention": "updates"},
    ("momentum", "keras_2_11"): {"convention": "updates"},
    ("momentum", "keras_3"): {"convention": "updates"},
    ("rmsprop", "v1"): {"placement": "inside", "first": {"second": 1.0}},
    # OptimizerV2 has epsilon outside of the root, but inside where there is momentum: that is an
    # op of its own.
    ("rmsprop", "keras_v2"): {"placement": "outside"},
    ("rmsprop", "keras_2_11"): {"placement": "inside"},
    ("rmsprop", "keras_3"): {"placement": "inside"},
    # tf.train's Adagrad has no epsilon.
    ("adagrad", "v1"): {"placement": "outside", "epsilon": 0.0},
    ("adagrad", "keras_v2"): {"placement": "outside"},
    ("adagrad", "keras_2_11"): {"placement": "inside"},
    ("adagrad", "keras_3"): {"placement": "inside"},
}

#: Other names of settings, and of slots, in the words of the rules below.
_SETTINGS = {
    "beta1": "beta_1",
    "beta2": "beta_2",
    "decay": "rho",
    "initial_accumulator_value": "initial_accumulator",
    "learning_rate_power": "power",
    "l1_regularization_strength": "l1",
    "l2_regularization_strength": "l2",
    "l2_shrinkage_regularization_strength": "shrinkage",
    "use_nesterov": "nesterov",
}
_SLOTS = {
    "momentum": {"buffer": ("momentum", "momentums", "m", "velocity")},
    "adam": {
        "first": ("m", "momentum", "momentums", "adam_m"),
        "second": ("v", "velocity", "velocities", "adam_v"),
        "largest": ("vhat", "velocity_hat", "v_hat", "velocity_hats"),
    },
    "adagrad": {"second": ("accumulator", "accumulators")},
    "rmsprop": {
        "second": ("rms", "velocity", "velocities"),
        "buffer": ("momentum", "momentums"),
        "mean": ("mg", "average_gradient", "average_gradients"),
    },
    "adadelta": {
        "second": ("accumulator", "accum", "accum_grad", "accumulated_grad", "accumulated_grads"),
        "updates": (
            "delta",
            "accum_update",
            "accum_var",
            "accumulated_delta_var",
            "accumulated_delta_vars",
            "accumulated_delta",
        ),
    },
    "ftrl": {"second": ("accum", "accumulator", "accumulators"), "linear": ("linear", "linears")},
    "lion": {"first": ("m", "momentum", "momentums")},
    "sgd": {},
}
_DEFAULTS = {
    "sgd": {},
    "momentum": {"momentum": 0.9, "nesterov": False},
    "adam": {"beta_1": 0.9, "beta_2": 0.999, "epsilon": 1e-7, "amsgrad": False, "correction": True},
    "adagrad": {"initial_accumulator": 0.1, "epsilon": 1e-7},
    "rmsprop": {"rho": 0.9, "momentum": 0.0, "epsilon": 1e-7, "centered": False},
    "adadelta": {"rho": 0.95, "epsilon": 1e-7},
    "ftrl": {
        "power": -0.5,
        "initial_accumulator": 0.1,
        "l1": 0.0,
        "l2": 0.0,
        "shrinkage": 0.0,
        "beta": 0.0,
    },
    "lion": {"beta_1": 0.9, "beta_2": 0.99},
}
#: tf.train's defaults, where they differ from Keras's.
_V1_DEFAULTS = {
    "adam": {"epsilon": 1e-8},
    "rmsprop": {"epsilon": 1e-10},
    "adadelta": {"epsilon": 1e-8},
}

_CLASSES = {
    "sgd": "sgd",
    "gradientdescentoptimizer": "sgd",
    "gradientdescent": "sgd",
    "momentumoptimizer": "momentum",
    "momentumwoptimizer": "momentum",
    "momentum": "momentum",
    "adam": "adam",
    "adamoptimizer": "adam",
    "adamw": "adam",
    "adamwoptimizer": "adam",
    "adamweightdecayoptimizer": "bert",
    "adagrad": "adagrad",
    "adagradoptimizer": "adagrad",
    "rmsprop": "rmsprop",
    "rmspropoptimizer": "rmsprop",
    "adadelta": "adadelta",
    "adadeltaoptimizer": "adadelta",
    "ftrl": "ftrl",
    "ftrloptimizer": "ftrl",
    "lion": "lion",
}


def rule_of(optimizer):
    """The rule of an optimizer, as a manifest describes it.

    Args:
        optimizer: a dict with "class", "generation" and "settings".

    Returns:
        A `Rule`, or None where the optimizer is none of those that are known here.
    """
    name = str(optimizer.get("class") or "").lower()
    kind = _CLASSES.get(name)
    generation = optimizer.get("generation")
    if kind is None or generation not in GENERATIONS:
        return None
    given = {}
    for key, value in (optimizer.get("settings") or {}).items():
        key = str(key).lstrip("_")
        if isinstance(value, (bool, int, float)):
            given[_SETTINGS.get(key, key)] = value
    # Keras calls the decay of the learning rate `decay`; to tf.train's RMSprop it is rho.
    if generation != "v1" and "decay" in (optimizer.get("settings") or {}):
        given["rho"] = optimizer["settings"].get("rho", given.get("rho"))
        if given["rho"] is None:
            del given["rho"]
    if kind == "bert":
        kind, given = "adam", dict({"epsilon": 1e-6}, **given)
        given.update(correction=False, decay_rate=given.pop("weight_decay_rate", 0.0))
    if kind == "sgd" and given.get("momentum"):
        kind = "momentum"
    settings = dict(_DEFAULTS[kind])
    if generation == "v1":
        settings.update(_V1_DEFAULTS.get(kind, {}))
    settings.update((key, given[key]) for key in settings if key in given)
    form = dict(_FORMS.get((kind, generation), {}))
    if "epsilon" in form:
        settings["epsilon"] = form.pop("epsilon")
    if kind == "rmsprop" and generation == "keras_v2" and settings["momentum"]:
        form["placement"] = "inside"
    # The base classes of 2.11 and of Keras 3 decay the weights by the learning rate too; contrib's
    # AdamW does not.
    if "decay_rate" in given:
        decay, by_rate = given["decay_rate"], True
    else:
        decay, by_rate = given.get("weight_decay") or 0.0, generation in ("keras_2_11", "keras_3")
    clips = {
        key: given[key] for key in ("clipnorm", "clipvalue", "global_clipnorm") if given.get(key)
    }
    return Rule(kind, settings, form, decay, by_rate, clips)


class Rule(object):
    """One optimizer's rule with its settings.

    Args:
        kind: "sgd", "momentum", "adam", "adagrad", "rmsprop", "adadelta", "ftrl" or "lion".
        settings: its numbers.
        form: the facts of its generation.
        decay: the weight decay beside the gradient.
        decay_by_rate: whether the decay is multiplied by the learning rate.
        clips: what the optimizer clips itself: {"clipnorm", "clipvalue", "global_clipnorm"}.
    """

    def __init__(self, kind, settings, form=None, decay=0.0, decay_by_rate=True, clips=None):
        self.kind = kind
        self.settings = settings
        self.form = form or {}
        self.decay = decay
        self.decay_by_rate = decay_by_rate
        self.clips = clips or {}

    def changed(self, form=None, decay=None, clips=None, **settings):
        """This rule with some of its settings changed."""
        return Rule(
            self.kind,
            dict(self.settings, **settings),
            dict(self.form, **(form or {})),
            self.decay if decay is None else decay,
            self.decay_by_rate,
            self.clips if clips is None else clips,
        )

    def slot_names(self):
        """The slots that the rule needs, in its own words."""
        names = set(_SLOTS[self.kind])
        if self.kind == "adam" and not self.settings["amsgrad"]:
            names.discard("largest")
        if self.kind == "rmsprop":
            if not self.settings["momentum"]:
                names.discard("buffer")
            if not self.settings["centered"]:
                names.discard("mean")
        return sorted(names)

    def first_slots(self):
        """The number that each slot is filled with at first."""
        first = {name: 0.0 for name in self.slot_names()}
        if self.kind in ("adagrad", "ftrl"):
            first["second"] = self.settings["initial_accumulator"]
        first.update(self.form.get("first", {}))
        return first

    def optimizer_s_name(self, slot):
        """The names of a slot."""
        return _SLOTS[self.kind][slot][0]

    def own_slots(self, recorded):
        """Recorded slots under the rule's names.

        Args:
            recorded: {name in the optimizer: values}.

        Returns:
            {name in the rule: values}, or None where one is missing.
        """
        lowered = {str(name).lower(): value for name, value in recorded.items()}
        found = {}
        for name in self.slot_names():
            for alias in _SLOTS[self.kind][name]:
                if alias in lowered:
                    found[name] = lowered[alias]
                    break
            else:
                return None
        return found

    def clipped(self, gradient, global_norm=None):
        """The gradient of one variable as the optimizer itself clips it."""
        if "clipvalue" in self.clips:
            gradient = np.clip(gradient, -self.clips["clipvalue"], self.clips["clipvalue"])
        limit, norm = self.clips.get("clipnorm"), np.sqrt(np.sum(np.square(gradient)))
        if "global_clipnorm" in self.clips and global_norm is not None:
            limit, norm = self.clips["global_clipnorm"], global_norm
        if limit and norm > limit:
            gradient = gradient * (limit / norm)
        return gradient

    def update(self, weights, gradient, slots, rate, iterations, touched=None):
        """One update of one variable.

        Args:
            weights: before the update.
            gradient: as the optimizer used it.
            slots: {name in the rule: values before the update}.
            rate: the learning rate.
            iterations: updates before this one.
            touched: which elements are updated, where the gradient's rows decide; all where left
            out.

        Returns:
            The change of the weights, the slots after it, and the size of the terms in it, of
            which float32
            rounds each.
        """
        w, g = _float64(weights), _float64(gradient)
        state = {name: _float64(value) for name, value in slots.items()}
        with np.errstate(all="ignore"):
            decayed = self.decay * (rate if self.decay_by_rate else 1.0) * w
            change, after, size = getattr(self, "_" + self.kind)(
                w - decayed, g, state, rate, iterations
            )
        change, size = change - decayed, size + np.abs(w) + np.abs(decayed)
        if touched is not None:
            change = np.where(touched, change, 0.0)
            after = {name: np.where(touched, value, state[name]) for name, value in after.items()}
        return change, after, size

    def _sgd(self, w, g, state, rate, iterations):
        return -rate * g, {}, np.abs(rate * g)

    def _momentum(self, w, g, state, rate, iterations):
        momentum, before = self.settings["momentum"], state["buffer"]
        if self.form.get("convention") == "gradients":
            buffer = momentum * before + g
            step, decayed = rate * g, rate * momentum * buffer
            change = -(step + decayed) if self.settings["nesterov"] else -rate * buffer
            size = np.abs(rate * momentum * before) + np.abs(rate * g)
        else:
            buffer = momentum * before - rate * g
            change = momentum * buffer - rate * g if self.settings["nesterov"] else buffer
            size = np.abs(momentum * before) + np.abs(rate * g)
        return change, {"buffer": buffer}, 2 * size

    def correction(self, iterations):
        """What Adam multiplies the learning rate by, after so many updates."""
        if not self.settings.get("correction", True):
            return 1.0
        count = iterations + 1.0
        first, second = (1.0 - self.settings[key] ** count for key in ("beta_1", "beta_2"))
        return np.sqrt(second) / first if first > 0 else 1.0

    def _adam(self, w, g, state, rate, iterations):
        beta_1, beta_2 = self.settings["beta_1"], self.settings["beta_2"]
        first = beta_1 * state["first"] + (1 - beta_1) * g
        second = beta_2 * state["second"] + (1 - beta_2) * g * g
        after = {"first": first, "second": second}
        root = second
        if self.settings["amsgrad"]:
            root = after["largest"] = np.maximum(state["largest"], second)
        scale = rate * self.correction(iterations) / (np.sqrt(root) + self.settings["epsilon"])
        scale = np.where(root + self.settings["epsilon"] > 0, scale, 0.0)
        terms = np.abs(beta_1 * state["first"]) + np.abs((1 - beta_1) * g)
        # float32 holds 1 - beta ** t with few digits while t is small: 0.999 alone gives 3e-5.
        digits = 1.0 + 0.5 / max(1.0 - beta_2 ** (iterations + 1.0), 1e-12)
        return -scale * first, after, np.abs(scale) * terms * digits

    def _rooted(self, value):
        epsilon = self.settings["epsilon"]
        if self.form.get("placement") == "outside":
            return np.sqrt(value) + epsilon
        return np.sqrt(value + epsilon)

    def _adagrad(self, w, g, state, rate, iterations):
        second = state["second"] + g * g
        root = self._rooted(second)
        change = np.where(root > 0, -rate * g / root, 0.0)
        return change, {"second": second}, 4 * np.abs(change)

    def _rmsprop(self, w, g, state, rate, iterations):
        rho = self.settings["rho"]
        second = rho * state["second"] + (1 - rho) * g * g
        after = {"second": second}
        spread, lost = second, 1.0
        if self.settings["centered"]:
            mean = after["mean"] = rho * state["mean"] + (1 - rho) * g
            spread = np.maximum(second - mean * mean, 0.0)
            below = np.maximum(spread + self._rooted(np.zeros_like(g)) ** 2, 1e-300)
            lost = 1.0 + second / below
        step = rate * g / self._rooted(spread)
        size = np.abs(step) * 4 * lost
        if not self.settings["momentum"]:
            return -step, after, size
        buffer = after["buffer"] = self.settings["momentum"] * state["buffer"] + step
        return -buffer, after, size + np.abs(self.settings["momentum"] * state["buffer"])

    def _adadelta(self, w, g, state, rate, iterations):
        rho, epsilon = self.settings["rho"], self.settings["epsilon"]
        second = rho * state["second"] + (1 - rho) * g * g
        step = np.sqrt(state["updates"] + epsilon) / np.sqrt(second + epsilon) * g
        updates = rho * state["updates"] + (1 - rho) * step * step
        return -rate * step, {"second": second, "updates": updates}, 4 * np.abs(rate * step)

    def _ftrl(self, w, g, state, rate, iterations):
        settings = self.settings
        power = -settings["power"]
        second = state["second"] + g * g
        l2 = settings["l2"] + settings["beta"] / (2.0 * rate) if rate else settings["l2"]
        sigma = (second**power - state["second"] ** power) / rate
        linear = state["linear"] + g + 2 * settings["shrinkage"] * w - sigma * w
        quadratic = second**power / rate + 2 * l2
        kept = np.clip(linear, -settings["l1"], settings["l1"]) - linear
        size = (
            np.abs(state["linear"])
            + np.abs(g)
            + 2 * np.abs(second**power / rate * w)
            + settings["l1"]
        ) / quadratic
        return kept / quadratic - w, {"second": second, "linear": linear}, 4 * size

    def _lion(self, w, g, state, rate, iterations):
        beta_1, beta_2 = self.settings["beta_1"], self.settings["beta_2"]
        mixed = beta_1 * state["first"] + (1 - beta_1) * g
        first = beta_2 * state["first"] + (1 - beta_2) * g
        # Where the two terms cancel to rounding, the sign is rounding's.
        terms = np.abs(beta_1 * state["first"]) + np.abs((1 - beta_1) * g)
        unsure = np.abs(mixed) <= 8 * EPS32 * terms
        size = np.where(unsure & (terms > 0), np.abs(rate) / EPS32, np.abs(rate))
        return -rate * np.sign(mixed), {"first": first}, size


def _float64(values):
    return np.asarray(values, dtype=np.float64)
