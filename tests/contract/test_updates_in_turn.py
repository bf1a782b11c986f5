"""Large variables are updated two at a time: the numbers stay, and each update waits for the last
but one before."""

from __future__ import absolute_import, division, print_function

import numpy as np
import pytest
import tensorflow as tf
from test_optimizers import check_updates, draw

import gradaccum_compat as ga
from gradaccum_compat.optimizers import updates as updates_module
from support import modes, optimizers

FAMILIES = [
    family
    for family in optimizers.FAMILIES
    if family != "v1" and hasattr(optimizers.FAMILIES[family]["SGD"](), "update_step")
]
pytestmark = pytest.mark.skipif(not FAMILIES, reason="Keras calls update_step from TF 2.11 on")


@pytest.fixture
def all_large(monkeypatch):
    monkeypatch.setattr(updates_module, "LARGE", 1)


@pytest.mark.parametrize("family, name", [each for each in optimizers.ALL if each[0] in FAMILIES])
def test_updates_are_the_big_batch_s(all_large, family, name):
    make, variable = optimizers.maker(family, name), optimizers.VARIABLES.get(family)
    check_updates(
        modes.Function(draw(0), make, variable, steps=3), modes.Function(draw(0), make, variable)
    )


@pytest.mark.parametrize("option", ["clipnorm", "clipvalue", "global_clipnorm"])
def test_what_the_optimizer_does_to_gradients_is_kept(all_large, option):
    def make():
        return tf.keras.optimizers.SGD(0.1, momentum=0.9, **{option: 0.1})

    check_updates(modes.Function(draw(0), make, steps=3), modes.Eager(draw(0), make))


@pytest.mark.parametrize(
    "options",
    [
        {"clip_norm": 0.1},
        {"adaptive_clip": 0.01},
        {"nonfinite": "raise"},
        {"loss_reduction": "none"},
    ],
    ids=str,
)
def test_options_give_what_they_give_in_eager_code(all_large, options):
    def make():
        return tf.keras.optimizers.SGD(0.1, momentum=0.9)

    in_turn_, eager = [
        mode(draw(0), make, steps=2, **options) for mode in (modes.Function, modes.Eager)
    ]
    for seed in range(4):
        for run in (in_turn_, eager):
            run.step(draw(seed), 2.0)
    for got, want in zip(in_turn_.weights(), eager.weights()):
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)


def recorded_updates(size, **options):
    """Traces an update of four variables of so many elements; returns what update_step got, and the
    ops it made."""
    updates = []

    class Recording(tf.keras.optimizers.SGD):

        def update_step(self, gradient, variable, *args):
            graph = tf.compat.v1.get_default_graph()
            before = len(graph.get_operations())
            super(Recording, self).update_step(gradient, variable, *args)
            updates.append(
                (
                    gradient.op,
                    [op for op in graph.get_operations()[before:] if op.type.startswith("Assign")],
                )
            )

    variables = [tf.Variable(tf.ones([size])) for _ in range(4)]
    accumulator = ga.Accumulator(Recording(0.1), variables, steps=1, **options)
    tf.function(lambda: accumulator.step([tf.ones([size])] * 4)).get_concrete_function()
    assert "update_step" not in vars(accumulator._target.optimizer)
    return updates


def waits_for(op):
    """All ops that must have run before this one, in its graph."""
    found, waiting = set(), [op]
    while waiting:
        each = waiting.pop()
        for before in [tensor.op for tensor in each.inputs] + list(each.control_inputs):
            if before not in found:
                found.add(before)
                waiting.append(before)
    return found


def test_a_large_variable_s_gradient_is_made_after_the_last_but_one_update_before_it():
    updates = recorded_updates(updates_module.LARGE)
    assert len(updates) == 4
    for (_, assignments), (gradient, _) in zip(updates, updates[2:]):
        assert assignments and waits_for(gradient).issuperset(assignments)


def test_touched_rows_are_looked_for_once(all_large):
    variable = tf.Variable(tf.ones([100, 3]))
    accumulator = ga.Accumulator(tf.keras.optimizers.SGD(0.1), [variable], steps=1)
    rows = tf.IndexedSlices(tf.ones([2, 3]), tf.constant([1, 70]), tf.constant([100, 3]))

    def times(call):
        definition = tf.function(call).get_concrete_function().graph.as_graph_def()
        graphs = [definition.node] + [each.node_def for each in definition.library.function]
        return [node.op for nodes in graphs for node in nodes].count("Where")

    # One for the touched blocks, and one for the rows in them.
    accumulating = times(lambda: accumulator.accumulate([rows]))
    assert times(lambda: accumulator.step([rows])) - accumulating == 2


def test_two_are_updated_side_by_side():
    updates = recorded_updates(updates_module.LARGE)
    for (_, assignments), (_, later) in zip(updates, updates[1:]):
        assert not waits_for(later[0]).intersection(assignments)


def test_after_clipping_the_update_alone_waits():
    updates = recorded_updates(updates_module.LARGE, clip_norm=1.0)
    for (_, assignments), (gradient, later) in zip(updates, updates[2:]):
        assert not waits_for(gradient).intersection(assignments)
        assert waits_for(later[0]).issuperset(assignments)


def test_small_variables_are_updated_side_by_side():
    updates = recorded_updates(updates_module.LARGE - 1)
    for (_, assignments), (_, later) in zip(updates, updates[2:]):
        assert not waits_for(later[0]).intersection(assignments)
