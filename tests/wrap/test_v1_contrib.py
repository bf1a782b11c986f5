"""Each optimizer of tf.contrib.opt, wrapped, against the plain one on the big batch."""

from __future__ import absolute_import, division, print_function

import numpy as np
import pytest
import tensorflow as tf

import gradaccum_compat as ga

v1 = tf.compat.v1

if not hasattr(tf, "contrib"):
    pytest.skip("tf.contrib ended with TensorFlow 1", allow_module_level=True)

contrib = tf.contrib.opt
STEPS, UPDATES, SIZE = 4, 3, 2
#: Small integers, so that sums and means are exact: GGT's singular values make 1e-4 of a gradient's
#: last bit in three updates, with or without accumulation.
X = np.random.RandomState(0).randint(-4, 5, [UPDATES * STEPS * SIZE, 3]).astype(np.float32)


def sgd():
    return v1.train.GradientDescentOptimizer(0.125)


def step():
    return v1.train.get_global_step()


OPTIMIZERS = {
    "AdaMaxOptimizer": lambda: contrib.AdaMaxOptimizer(0.125),
    "AdamGSOptimizer": lambda: contrib.AdamGSOptimizer(step(), 0.125),
    "AdamWOptimizer": lambda: contrib.AdamWOptimizer(0.01, 0.125),
    "AddSignOptimizer": lambda: contrib.AddSignOptimizer(0.125),
    "DropStaleGradientOptimizer": lambda: contrib.DropStaleGradientOptimizer(sgd(), 2),
    "GGTOptimizer": lambda: contrib.GGTOptimizer(0.125),
    "LARSOptimizer": lambda: contrib.LARSOptimizer(0.125),
    "LazyAdamGSOptimizer": lambda: contrib.LazyAdamGSOptimizer(step(), 0.125),
    "LazyAdamOptimizer": lambda: contrib.LazyAdamOptimizer(0.125),
    "MomentumWOptimizer": lambda: contrib.MomentumWOptimizer(0.01, 0.125, 0.5),
    "MovingAverageOptimizer": lambda: contrib.MovingAverageOptimizer(sgd()),
    "NadamOptimizer": lambda: contrib.NadamOptimizer(0.125),
    "PowerSignOptimizer": lambda: contrib.PowerSignOptimizer(0.125),
    "RegAdagradOptimizer": lambda: contrib.RegAdagradOptimizer(0.125),
    "ShampooOptimizer": lambda: contrib.ShampooOptimizer(learning_rate=0.125),
    "VariableClippingOptimizer": lambda: contrib.VariableClippingOptimizer(sgd(), {}, 1.0),
}

#: For each optimizer of several workers the function that makes its variables, and the optimizer.
AVERAGING = {
    "AGNOptimizer": (
        contrib.AGNCustomGetter,
        lambda getter: contrib.AGNOptimizer(sgd(), 1, getter, communication_period=2),
    ),
    "ElasticAverageOptimizer": (
        contrib.ElasticAverageCustomGetter,
        lambda getter: contrib.ElasticAverageOptimizer(
            sgd(), 1, getter, communication_period=2, moving_rate=0.25, rho=0.25
        ),
    ),
    "ModelAverageOptimizer": (
        contrib.ModelAverageCustomGetter,
        lambda getter: contrib.ModelAverageOptimizer(sgd(), 1, True, getter, interval_steps=2),
    ),
}


def trained(make, size, steps=None, getter=None, begin=None):
    """The weights, the slots and what workers share, after each big batch; and the global step.

    Args:
        make: function that returns the optimizer.
        size: examples of a batch.
        steps: for wrap_optimizer; None for the plain optimizer.
        getter: the custom_getter of the variables.
        begin: function of the optimizer that returns what is run before training.
    """
    with tf.Graph().as_default():
        x, counted = v1.placeholder(tf.float32, [None, 3]), v1.train.get_or_create_global_step()
        # ModelAverageOptimizer takes reference variables alone.
        with v1.variable_scope("", custom_getter=getter, use_resource=getter is None):
            w = v1.get_variable("w", [3], initializer=v1.initializers.constant(0.5))
        plain = make()
        optimizer = plain if steps is None else ga.wrap_optimizer(plain, steps=steps)
        # Of weights that are constant in a cycle, each gradient is a mean of X.
        loss = tf.reduce_mean(tf.reduce_sum(x * w, 1))
        train_op = optimizer.minimize(loss, global_step=counted)
        beside = [each for each in v1.global_variables() if each.shape == w.shape and each is not w]
        beside = [each for each in beside if not each.op.name.startswith("accumulator")]
        ended = []
        with v1.Session() as session:
            session.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
            session.run(begin(plain) if begin else [])
            for first in range(0, len(X), size):
                session.run(train_op, {x: X[first : first + size]})
                if (first + size) % (STEPS * SIZE) == 0:
                    ended.append(session.run([w] + beside))
            return np.array(ended), int(session.run(counted))


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_it_ends_with_the_weights_of_the_big_batch(name):
    want, updates = trained(OPTIMIZERS[name], STEPS * SIZE)
    got, counted = trained(OPTIMIZERS[name], SIZE, STEPS)
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-6)
    assert counted == updates == UPDATES


@pytest.mark.parametrize("name", sorted(AVERAGING))
def test_averaging_between_workers_counts_updates(name):
    """Between workers it averages once in so many updates, and the global step counts each."""

    def train(size, steps=None):
        getter, make = AVERAGING[name][0]("/cpu:0"), AVERAGING[name][1]
        return trained(lambda: make(getter), size, steps, getter, begin)

    def begin(optimizer):
        arguments = () if name == "ModelAverageOptimizer" else (0,)
        return optimizer.get_init_op(*arguments)

    (want, averaged), (got, updates) = train(STEPS * SIZE), train(SIZE, STEPS)
    assert want.shape[1] == 2  # those of the worker and the shared ones
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-6)
    assert (averaged, updates) == (UPDATES // 2, UPDATES)


def test_each_optimizer_of_contrib_was_tried():
    others = {
        "MultitaskOptimizerWrapper",  # no optimizer: it changes apply_gradients of one
        "DecoupledWeightDecayExtension",  # a part of the classes with W
        "ExternalOptimizerInterface",  # SciPy's, outside of the graph
        "ScipyOptimizerInterface",
    }
    names = {each for each in dir(contrib) if each.endswith("Optimizer")}
    assert names - others == set(OPTIMIZERS) | set(AVERAGING)


def optimized(size, wrap):
    """The weights and the global step that contrib.layers.optimize_loss leaves."""
    with tf.Graph().as_default():
        v1.train.create_global_step()
        weight = v1.get_variable("weight", initializer=np.ones(3, np.float32), use_resource=True)
        rows = v1.placeholder(tf.float32, [None, 3])
        loss = tf.reduce_mean(tf.reduce_sum(rows * weight, 1))
        train_op = tf.contrib.layers.optimize_loss(
            loss,
            step(),
            learning_rate=0.125,
            optimizer=lambda rate: wrap(v1.train.MomentumOptimizer(rate, 0.5)),
            learning_rate_decay_fn=lambda rate, number: v1.train.exponential_decay(
                rate, number, 1, 0.5
            ),
        )
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            for begin in range(0, len(X), size):
                session.run(train_op, {rows: X[begin : begin + size]})
            return session.run([weight, step()])


def test_optimize_loss_decays_by_updates():
    weight, number = optimized(SIZE, lambda plain: ga.wrap_optimizer(plain, steps=STEPS))
    expected, updates = optimized(SIZE * STEPS, lambda plain: plain)
    np.testing.assert_allclose(weight, expected, rtol=1e-6)
    assert (number, updates) == (UPDATES, UPDATES)
