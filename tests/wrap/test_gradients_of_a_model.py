"""Which variables get gradients: none, some, none at all, and those that Keras overwrites."""

from __future__ import absolute_import, division, print_function

import numpy as np
import pytest
import tensorflow as tf
from test_plain_optimizer import momentum, numbers, variable_of

import gradaccum_compat as ga
from support import fitting

v1 = tf.compat.v1


def test_nothing_has_a_gradient(generation):
    variable = variable_of(generation)
    optimizer = ga.wrap_optimizer(momentum(generation), steps=2)
    with pytest.raises(ValueError, match="No gradients provided for any variable"):
        optimizer.apply_gradients([(None, variable)])


def test_nothing_has_a_gradient_in_a_graph():
    with tf.Graph().as_default():
        weight = v1.get_variable("weight", [], use_resource=True)
        optimizer = ga.wrap_optimizer(v1.train.AdamOptimizer(), steps=2)
        with pytest.raises(ValueError, match="No gradients provided for any variable"):
            optimizer.apply_gradients([(None, weight)])


@pytest.mark.parametrize(
    "generation", fitting.having(fitting.is_keras_3, "others log it, where pytest sees nothing")
)
def test_a_variable_without_a_gradient_is_named(generation):
    pairs = [(tf.ones([2]), variable_of(generation)), (None, variable_of(generation))]
    with pytest.warns(UserWarning, match="Gradients do not exist for variables"):
        ga.wrap_optimizer(momentum(generation), steps=2).apply_gradients(pairs)


def frozen(generation):
    model = fitting.linear(generation)
    model.trainable = False
    return model


def test_a_model_without_trainable_weights(generation, tmpdir):
    ends = []
    for make in (
        lambda: momentum(generation),
        fitting.accumulating(lambda: momentum(generation)),
    ):
        model, optimizer = fitting.compiled(generation, make, frozen)
        if hasattr(optimizer, "build"):
            optimizer.build([])
        try:
            fitting.fit(model, 4, epochs=1)
            ends.append(fitting.updates(optimizer))
        except ValueError as error:  # fit() of 1.14 to 2.3 takes no such model
            ends.append(str(error)[:20])
    assert ends[0] == ends[1]


@pytest.mark.parametrize(
    "generation", fitting.having(fitting.is_keras_3, "overwrite_with_gradient is Keras 3's")
)
def test_a_variable_that_is_overwritten_holds_its_last_gradient(generation):
    scale, weight = variable_of(generation), variable_of(generation)
    scale.overwrite_with_gradient = True
    optimizer = ga.wrap_optimizer(momentum(generation), steps=2)
    for value in (1.0, 3.0):
        optimizer.apply_gradients([(tf.fill([2], value), each) for each in (scale, weight)])
        assert numbers(scale) == [value, value]
    assert numbers(weight) == [0.0, 0.0]  # the mean
    alone = ga.wrap_optimizer(momentum(generation), steps=2)
    alone.apply_gradients([(tf.fill([2], 5.0), scale)])
    assert numbers(scale) == [5.0, 5.0]


def aggregating(generation, factor):
    def multiply(pairs):
        return [(factor * gradient, variable) for gradient, variable in pairs]

    return generation.optimizers.SGD(0.5, gradient_aggregator=multiply)


def has_aggregator(generation):
    return hasattr(generation.optimizers.SGD(0.5), "gradient_aggregator")


@pytest.mark.parametrize(
    "generation", fitting.having(has_aggregator, "gradient_aggregator is OptimizerV2's from 2.4 on")
)
def test_an_aggregator_runs_on_what_is_accumulated(generation):
    variable = variable_of(generation)
    optimizer = ga.wrap_optimizer(aggregating(generation, 2.0), steps=2)
    for value in (0.0, 2.0):
        optimizer.apply_gradients([(tf.fill([2], value), variable)])
    assert numbers(variable) == [0.0, 0.0]


@pytest.mark.parametrize(
    "generation", fitting.having(has_aggregator, "gradient_aggregator is OptimizerV2's from 2.4 on")
)
def test_an_aggregator_goes_with_no_loss_scale(generation):
    """The loss scale looks for an overflow behind it, which it could not do with its sums."""
    scaled = generation.keras.mixed_precision.LossScaleOptimizer
    variable = variable_of(generation)
    scaled(aggregating(generation, np.nan)).apply_gradients([(tf.ones([2]), variable)])
    if np.isnan(numbers(variable)).any():
        pytest.skip("the loss scale of 2.4 does not look behind it")
    optimizer = scaled(ga.wrap_optimizer(aggregating(generation, np.nan), steps=1))
    with pytest.raises(ga.errors.OptimizerError, match="gradient_aggregator"):
        optimizer.apply_gradients([(tf.ones([2]), variable)])
    assert numbers(variable) == [1.0, 1.0]


def test_a_build_that_fails_leaves_nothing_half_built(generation):
    method = "_create_slots" if fitting.is_optimizer_v2(generation) else "build"

    def fail(self, variables):
        if self.fails:
            raise RuntimeError("no memory")
        return getattr(super(Failing, self), method)(variables)

    Failing = type("Failing", (type(momentum(generation)),), {method: fail, "fails": True})
    plain, variable = Failing(0.5), variable_of(generation)
    optimizer = ga.wrap_optimizer(plain, steps=1)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="no memory"):
            optimizer.apply_gradients([(tf.ones([2]), variable)])
    plain.fails = False
    optimizer.apply_gradients([(tf.ones([2]), variable)])
    np.testing.assert_allclose(numbers(variable), [0.5, 0.5])


# Optimizers without a sparse update


class WithoutRows(v1.train.GradientDescentOptimizer):
    """As some that others write: it has a dense update alone."""

    def _resource_apply_sparse_duplicate_indices(self, *args):
        raise NotImplementedError

    _apply_sparse_duplicate_indices = _resource_apply_sparse_duplicate_indices


class Dense(WithoutRows):
    """The way that the docs show: its gradients are made dense where it updates."""

    def apply_gradients(self, grads_and_vars, *args, **kwargs):
        pairs = [
            (tf.convert_to_tensor(gradient), variable) for gradient, variable in grads_and_vars
        ]
        return super(Dense, self).apply_gradients(pairs, *args, **kwargs)


def test_an_optimizer_without_a_sparse_update_gets_dense_sums():
    table = tf.Variable(np.ones([3, 1], np.float32))
    optimizer = ga.wrap_optimizer(Dense(0.5), steps=2)
    for row in (0, 2):
        rows = tf.IndexedSlices(tf.ones([1, 1]), tf.constant([row]), tf.constant([3, 1]))
        optimizer.apply_gradients([(rows, table)])
    assert table.numpy().ravel().tolist() == [0.75, 1.0, 0.75]


@pytest.mark.skipif(
    not hasattr(tf.keras.optimizers, "ScheduleFreeAdamW"), reason="an optimizer of Keras 3"
)
def test_schedule_free_adamw_on_a_model_that_its_first_call_builds():
    """Its state begins as a copy of the weights, which are there by then."""

    def trained(size, wrap):
        tf.keras.utils.set_random_seed(1)
        optimizer = tf.keras.optimizers.ScheduleFreeAdamW(0.1)
        model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
        model.compile(ga.wrap_optimizer(optimizer, steps=2) if wrap else optimizer, "mse")
        x = np.arange(24, dtype=np.float32).reshape(8, 3) / 24
        model.fit(x, x[:, :1], batch_size=size, epochs=3, shuffle=False, verbose=0)
        return model.get_weights()

    for got, want in zip(trained(2, wrap=True), trained(4, wrap=False)):
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-6)
