"""Records of a small training that NumPy computes, with what a test plants.

The model is linear: the loss of a micro-batch is mean((x . w + b - y) ** 2) / 2, rounded to
float32.
"""

from __future__ import absolute_import, division, print_function

import collections

import numpy as np

from gradaccum_compat.upgrade import _format, _replay, _sketch

SHAPES = {"dense/kernel:0": (30, 8), "dense/bias:0": (8,), "out/kernel:0": (8, 4)}
SLOTS = {
    "buffer": "momentum",
    "first": "m",
    "second": "v",
    "largest": "vhat",
    "mean": "mg",
    "updates": "delta",
}
SECOND = {
    "adagrad": "accumulator",
    "ftrl": "accumulator",
    "adadelta": "accumulator",
    "rmsprop": "rms",
}
SNAPSHOTS = (0, 1, 2, 3, 10, 30)
NAMES = sorted(SHAPES)
SKETCHER = _sketch.Sketcher()

#: One update of a training: its number, what the optimizer has before and after, and what comes.
Update = collections.namedtuple(
    "Update",
    [
        "number",
        "weights",
        "slots",
        "iterations",
        "gradients",
        "rate",
        "after",
        "applied",
        "micro_sketches",
        "followed",
    ],
)


def slot_name(rule, name):
    return SECOND.get(rule.kind, "v") if name == "second" else SLOTS.get(name, name)


class Program(object):
    """A training, with what can be planted in it.

    Args:
        optimizer: ("class", "generation", settings).
        rate: a number, or a function of the update.
        steps: micro-batches of a cycle, or a function of the update.
        seed: of the data.
        change_gradient: function (update, name, gradient, weights) of the update's gradient.
        change_micro: function (micro-batch, name, gradient) of each micro-batch's.
        noise: of rounding in the gradients, relative.
        order: order of all micro-batches.
    """

    def __init__(
        self,
        optimizer=("GradientDescentOptimizer", "v1", {}),
        rate=0.05,
        steps=4,
        seed=0,
        initial=0,
        change_gradient=None,
        change_micro=None,
        change_update=None,
        noise=1e-7,
        order=None,
        first_slots=None,
        iterations=0,
        options=None,
        dead=(),
        names=None,
        touched=False,
        loss=True,
        applied=None,
        slots_at=None,
    ):
        self.__dict__.update(locals())

    def manifest(self, followed=None):
        class_, generation, settings = self.optimizer
        rule = _replay.rule_of({"class": class_, "generation": generation, "settings": settings})
        names = [slot_name(rule, each) for each in rule.slot_names()] if rule else []
        options = {
            "steps": self.steps if not callable(self.steps) else None,
            "clip_norm": None,
            "dtype": "float32",
        }
        return {
            "schema": 1,
            "number": 0,
            "run": "run",
            "gradaccum_compat": "0.1.0",
            "tensorflow": "1.14.0" if generation == "v1" else "2.21.0",
            "python": "3",
            "numpy": "1",
            "platform": "linux",
            "devices": ["CPU"],
            "strategy": None,
            "replicas": 1,
            "context": "eager",
            "options": dict(options, **(self.options or {})),
            "optimizer": {
                "class": class_,
                "module": "m",
                "generation": generation,
                "settings": settings,
            },
            "variables": [
                {"name": name, "shape": list(SHAPES[old]), "dtype": "float32"}
                for name, old in zip(self.names or sorted(SHAPES), sorted(SHAPES))
            ],
            "slots": [names for _ in SHAPES],
            "sketch": {"seed": 0, "size": 64},
            "snapshots": "default",
            "followed": followed,
        }

    def record(self, folder, updates=12, follow=None):
        """Trains and records into a folder; returns its path."""
        folder.join("accumulator").ensure(dir=True)
        writer = _format.Writer(str(folder.join("accumulator")))
        class_, generation, settings = self.optimizer
        rule = _replay.rule_of({"class": class_, "generation": generation, "settings": settings})
        writer.manifest(self.manifest(str(follow) if follow else None))
        followed = _format.read(str(follow))[0] if follow else None
        random = np.random.RandomState(self.initial)
        weights = {name: (random.randn(*SHAPES[name]) * 0.3).astype(np.float32) for name in NAMES}
        weights["dense/bias:0"][:] = 0
        fill = dict(rule.first_slots(), **(self.first_slots or {}))
        slots = {
            name: {each: np.full(SHAPES[name], value, np.float32) for each, value in fill.items()}
            for name in NAMES
        }
        iterations = self.iterations
        initial = {"weight_{}".format(index): weights[name] for index, name in enumerate(NAMES)}
        initial.update(self._slots_as_recorded(slots, rule))
        writer.initial(dict(initial, iterations=np.array(iterations)))
        micro_batch = 0
        noise = np.random.RandomState(sum(map(ord, self.optimizer[1])) + self.initial)
        for update in range(updates):
            led = followed is not None and update in followed.snapshots
            if led:
                state = followed.state(update)
                weights = {name: np.array(state.weight(index)) for index, name in enumerate(NAMES)}
                iterations = state.iterations
                for index, name in enumerate(NAMES):
                    given = rule.own_slots(state.slots(index)) or {}
                    theirs = _replay.rule_of(followed.manifest["optimizer"])
                    for each in given:
                        slots[name][each] = np.array(given[each])
                        if each == "buffer" and theirs.form != rule.form:
                            factor = (
                                -state.learning_rate
                                if rule.form["convention"] == "updates"
                                else -1 / state.learning_rate
                            )
                            slots[name][each] = (given[each] * factor).astype(np.float32)
            if self.slots_at and self.slots_at[0] == update:
                self.slots_at[1](slots)
            count = self.steps(update) if callable(self.steps) else self.steps
            total = {name: np.zeros(SHAPES[name]) for name in NAMES}
            micro_sketches = []
            for _ in range(count):
                gradients = self._gradients(
                    weights, self.order[micro_batch] if self.order is not None else micro_batch
                )
                if self.change_micro:
                    gradients = {
                        name: self.change_micro(micro_batch, name, each)
                        for name, each in gradients.items()
                    }
                micro_sketches.append(
                    [_sketch.encode(SKETCHER.sketch(gradients[name])) for name in NAMES]
                )
                for name in NAMES:
                    total[name] += gradients[name]
                micro_batch += 1
            gradients = {}
            for name in NAMES:
                gradient = (total[name] / count) * (1 + self.noise * noise.randn(*SHAPES[name]))
                if self.change_gradient:
                    gradient = self.change_gradient(
                        update, name, gradient, weights[name].astype(np.float64)
                    )
                gradients[name] = None if name in self.dead else gradient.astype(np.float32)
            rate = self.rate(update) if callable(self.rate) else self.rate
            applied = self.applied(update) if self.applied else True
            after, slots_after = {}, {}
            for name in NAMES:
                if gradients[name] is None or not applied:
                    after[name], slots_after[name] = weights[name], slots[name]
                    continue
                touched = None
                if self.touched:
                    rows = np.any(gradients[name].reshape(len(gradients[name]), -1) != 0, axis=1)
                    touched = np.broadcast_to(
                        rows.reshape((-1,) + (1,) * (gradients[name].ndim - 1)),
                        gradients[name].shape,
                    )
                change, new, _ = rule.update(
                    weights[name], gradients[name], slots[name], rate, iterations, touched
                )
                if self.change_update:
                    change = self.change_update(
                        update, name, change, weights[name].astype(np.float64)
                    )
                after[name] = (weights[name] + change).astype(np.float32)
                slots_after[name] = {each: value.astype(np.float32) for each, value in new.items()}
            made = Update(
                update,
                weights,
                slots,
                iterations,
                gradients,
                rate,
                after,
                applied,
                micro_sketches,
                led,
            )
            self._write(writer, rule, made)
            weights, slots, iterations = after, slots_after, iterations + 1
        writer.close()
        return str(folder)

    def _gradients(self, weights, micro_batch):
        random = np.random.RandomState(1000 * self.seed + micro_batch)
        x, y = random.randn(16, 30), random.randn(16, 4)
        x[:, 25:] = 0  # rows of the kernel without a gradient
        inner = x.dot(weights["dense/kernel:0"].astype(np.float64)) + weights["dense/bias:0"]
        error = (inner.dot(weights["out/kernel:0"].astype(np.float64)) - y) / len(x)
        back = error.dot(weights["out/kernel:0"].T)
        return {
            "dense/kernel:0": x.T.dot(back),
            "dense/bias:0": back.sum(0),
            "out/kernel:0": inner.T.dot(error),
        }

    @staticmethod
    def _slots_as_recorded(slots, rule):
        return {
            "slot_{}_{}".format(index, slot_name(rule, each)): value
            for index, name in enumerate(NAMES)
            for each, value in slots[name].items()
        }

    def _write(self, writer, rule, made):
        def summaries(arrays):
            return [
                None if arrays[name] is None else _format.as_json(SKETCHER.summary(arrays[name]))
                for name in NAMES
            ]

        line = {
            "update": made.number,
            "micro_batches": len(made.micro_sketches),
            "weight": 16.0 * len(made.micro_sketches),
            "learning_rate": made.rate,
            "iterations": made.iterations,
            "loss": 1.0 / (1 + made.number) if self.loss else None,
            "applied": made.applied,
            "followed": made.followed,
            "gradient": summaries(made.gradients),
            "update_": summaries({name: made.after[name] - made.weights[name] for name in NAMES}),
            "weights": summaries(made.weights),
        }
        if made.number < 4:
            line["micro_sketches"] = made.micro_sketches
        if made.number in SNAPSHOTS:
            arrays = self._slots_as_recorded(made.slots, rule)
            for index, name in enumerate(NAMES):
                arrays["weight_{}".format(index)] = made.weights[name]
                arrays["after_{}".format(index)] = made.after[name]
                if made.gradients[name] is not None:
                    arrays["gradient_{}".format(index)] = made.gradients[name]
            arrays.update(iterations=np.array(made.iterations), learning_rate=np.array(made.rate))
            writer.state(made.number, arrays)
        writer.update(line)
