"""Every built-in optimizer: each update is the one that it makes on its own with the big batch.

Three cycles with different gradients: zeros that are fed on the way would show in the second update
of anything with state, a wrong scale in SGD.
"""

from __future__ import absolute_import, division, print_function

import numpy as np
import pytest
import tensorflow as tf

import gradaccum_compat as ga
from support import modes, optimizers, strategies
from support.reference import Reference

SHAPES = [(3, 2), (2,)]


def draw(seed):
    random = np.random.RandomState(seed)
    return [random.randn(*shape).astype(np.float32) for shape in SHAPES]


def check_updates(run, plain, cycles=3):
    seed = 1
    for cycle in range(cycles):
        reference = Reference(SHAPES)
        for weight in (1.0, 7.0, 2.0):
            moved = run.step(draw(seed), weight)
            reference.accumulate(draw(seed), weight)
            seed += 1
        assert moved
        plain.plain_apply([gradient.astype(np.float32) for gradient in reference.gradients()])
        for got, want in zip(run.weights(), plain.weights()):
            np.testing.assert_allclose(
                got, want, rtol=1e-6, atol=1e-6, err_msg="after cycle %d" % cycle
            )


@pytest.mark.parametrize("family, name", optimizers.ALL)
@pytest.mark.parametrize("mode", [modes.Eager, modes.Function], ids=["eager", "function"])
def test_updates_are_the_big_batch_s(mode, family, name):
    make, variable = optimizers.maker(family, name), optimizers.VARIABLES.get(family)
    check_updates(mode(draw(0), make, variable, steps=3), mode(draw(0), make, variable))


@pytest.mark.parametrize(
    "family, name",
    [
        each
        for each in optimizers.ALL
        if each[1]
        in (
            "GradientDescent",
            "Momentum",
            "Adam",
            "SGD",
            "SGD with momentum",
            "RMSprop",
            "AdamW",
            "Ftrl",
            "Lion",
        )
    ],
)
def test_updates_on_several_replicas_are_the_big_batch_s(family, name):
    make, variable = optimizers.maker(family, name), optimizers.VARIABLES.get(family)
    check_updates(
        strategies.Mirrored(draw(0), make, variable, steps=3), modes.Eager(draw(0), make, variable)
    )


def test_keras_optimizers_of_plain_tensorflow_variables():
    for name in ("SGD", "Adam"):
        make = optimizers.maker("keras", name)
        check_updates(modes.Function(draw(0), make, steps=3), modes.Eager(draw(0), make))


@pytest.mark.parametrize(
    "family, name", [each for each in optimizers.ALL if optimizers.in_a_graph(*each)]
)
def test_updates_in_a_session_are_the_big_batch_s(family, name):
    make = optimizers.maker(family, name)
    check_updates(modes.Graph(draw(0), make, steps=3), modes.Eager(draw(0), make))


@pytest.mark.skipif(
    "ScheduleFreeAdamW" not in optimizers.FAMILIES["keras"], reason="an optimizer of Keras 3"
)
def test_state_that_a_graph_would_lose_is_refused():
    with pytest.raises(ga.errors.OptimizerError) as caught:
        modes.Graph(draw(0), optimizers.maker("keras", "ScheduleFreeAdamW"))
    assert "initializers" in str(caught.value)


@pytest.mark.parametrize("family, name", optimizers.ALL)
def test_state_is_there_before_the_first_update_and_no_weight_has_moved(family, name):
    run = modes.Eager(draw(0), optimizers.maker(family, name), optimizers.VARIABLES.get(family))
    before = _state_of(run.optimizer, run.variables)
    run.accumulate(draw(1))
    for got, want in zip(run.weights(), draw(0)):
        np.testing.assert_array_equal(got, want)
    run.apply()
    assert _state_of(run.optimizer, run.variables) == before


def _state_of(optimizer, variables):
    """How many variables the optimizer has."""
    state = optimizer.variables
    return len(state() if callable(state) else state)


@pytest.mark.parametrize("family", sorted(set(optimizers.FAMILIES) - {"v1"}))
def test_iterations_and_schedules_count_updates(family):
    module = {
        "keras": tf.keras.optimizers,
        "tf_keras": getattr(optimizers.tf_keras, "optimizers", None),
    }
    schedules = module[family.split(".")[0]].schedules
    sgd = optimizers.FAMILIES[family]["SGD"]().__class__

    def make():
        return sgd(schedules.PiecewiseConstantDecay([0.0, 1.0], [1.0, 10.0, 100.0]))

    run = modes.Function([np.zeros(1, np.float32)], make, steps=4)
    for _ in range(12):
        run.step([np.ones(1, np.float32)])
    assert int(run.optimizer.iterations.numpy()) == 3
    np.testing.assert_allclose(run.weights()[0], [-111.0], rtol=1e-6)
