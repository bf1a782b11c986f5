"""How a cycle grows: with the number of variables, with the parameters of one, and with K."""

from __future__ import absolute_import, division, print_function

import functools

import tensorflow as tf

import gradaccum_compat as ga
from benchmarks import contenders, harness, problems
from benchmarks.contenders import by_hand, registry

COUNTS = (10, 100, 1000, 10000)
#: Of one variable, in millions.
MILLIONS = (1, 10, 100, 500)
STEPS = (1, 4, 16, 64, 256)


def run(settings):
    counts, millions, steps = (
        ((10, 20), (0.01, 0.02), (1, 4)) if settings.quick else (COUNTS, MILLIONS, STEPS)
    )
    return [
        _section("Eager, K = 2, by the number of variables", "variables", counts, _many, settings),
        _section(
            "tf.function, K = 2, by the parameters of one variable",
            "million parameters",
            millions,
            _large,
            settings,
        ),
        _section("tf.function, dense layers of 256, by K", "K", steps, _by_steps, settings),
    ]


def _section(title, x, values, cycles_of, settings):
    rows = []
    for value in values:
        cycles = cycles_of(value)
        rounds = min(settings.rounds, 5)
        timings = harness.measure(cycles, rounds, "{}: {:,}".format(x, value), warm=1)
        rows += [
            {
                "contender": name,
                "x": value,
                "min_seconds": harness.least(timings[name]),
                "median_seconds": harness.median([each.wall for each in timings[name]]),
            }
            for name, _ in cycles
        ]
    return {"title": title, "kind": "seconds_by_x", "x": x, "log": True, "rows": rows}


def _many(count):
    """The gradients are there already."""
    problem = problems.many_tensors(2, count=count, width=8)
    gradients = [tf.ones(each.shape) for each in problem.variables()]
    return _adding_up_and_updating(problem, gradients, lambda function: function)


def _large(millions):
    problem = problems.many_tensors(2, count=1, width=1)
    variable = tf.zeros([int(millions * 1e6)])
    problem.variables = lambda: [tf.Variable(variable)]
    return _adding_up_and_updating(problem, [variable], tf.function)


def _adding_up_and_updating(problem, gradients, decorate):
    return [
        ("accumulate_apply", _ours(problem, gradients, decorate)),
        ("recipe", _recipe(problem, gradients, decorate)),
    ]


def _ours(problem, gradients, decorate):
    accumulator = ga.Accumulator(problem.optimizer(), problem.variables())
    accumulate = decorate(lambda: accumulator.accumulate(gradients))
    apply_ = decorate(lambda: accumulator.apply())

    def cycle():
        for _ in range(problem.steps):
            accumulate()
        assert apply_().numpy()

    return cycle


def _recipe(problem, gradients, decorate):
    variables, optimizer = problem.variables(), problem.optimizer()
    registry.build(optimizer, variables)
    sums = by_hand.sums_of(variables)
    add = decorate(functools.partial(by_hand.assign_add, sums, gradients))

    def update():
        means = [each / problem.steps for each in sums]
        optimizer.apply_gradients(list(zip(means, variables)))
        return by_hand.assign(sums, [tf.zeros_like(each) for each in sums])

    update = decorate(update)

    def cycle():
        for _ in range(problem.steps):
            add()
        update()

    return cycle


def _by_steps(steps):
    problem = problems.dense(4, steps, width=256)
    return contenders.cycles(problem, ("plain", "step", "recipe"))[0]
