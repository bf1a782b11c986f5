"""A micro-batch that fails on the device: counted nowhere if it fails early, never half of it in an
update."""

from __future__ import absolute_import, division, print_function

import time

import numpy as np
import pytest
import tensorflow as tf

import gradaccum_compat as ga

v1 = tf.compat.v1
VALUES = [np.zeros(2, np.float32), np.zeros((3, 2), np.float32)]
FINE, EARLY, LATE = 0.0, 1.0, 2.0


def _fails_at(kind, wait):
    def value(fails):
        time.sleep(wait)
        if fails == kind:
            raise ValueError("the device is out of luck")
        return np.float32(1)

    return lambda fails: tf.reshape(tf.numpy_function(value, [fails], tf.float32), [])


def _gradients(fails, scale):
    """As backpropagation makes them: the last variable's first, after the forward pass; the first
    one's a while later."""
    forward = _fails_at(EARLY, 0)(fails) * scale
    backward = forward * _fails_at(LATE, 0.3)(fails + 0 * forward)
    return [backward * tf.ones([2]), forward * tf.ones([3, 2])]


class Functions(object):
    """The calls in tf.functions."""

    def __init__(self, **options):
        self.variables = [tf.Variable(value) for value in VALUES]
        self.accumulator = ga.Accumulator(
            v1.train.GradientDescentOptimizer(1.0), self.variables, **options
        )
        self._add = tf.function(lambda *given: self.accumulator.accumulate(_gradients(*given)))

    def accumulate(self, fails, scale):
        return int(self._add(tf.constant(fails), tf.constant(scale)))

    def call(self, name):
        return tf.function(lambda: getattr(self.accumulator, name)())()

    def weights(self):
        return [each.numpy() for each in self.variables]


class Session(object):
    """The same in a graph."""

    def __init__(self, **options):
        with tf.Graph().as_default() as graph:
            self.variables = [v1.Variable(value, use_resource=True) for value in VALUES]
            self.accumulator = ga.Accumulator(
                v1.train.GradientDescentOptimizer(1.0), self.variables, **options
            )
            self._given = [v1.placeholder(tf.float32, []) for _ in range(2)]
            self._add = self.accumulator.accumulate(_gradients(*self._given))
            self._calls = {
                name: getattr(self.accumulator, name)() for name in ("apply", "reset", "gradients")
            }
            self._session = v1.Session(graph=graph)
            self._session.run(v1.global_variables_initializer())

    def accumulate(self, *given):
        return int(self._session.run(self._add, dict(zip(self._given, given))))

    def call(self, name):
        return self._session.run(self._calls[name])

    def weights(self):
        return self._session.run(self.variables)


@pytest.fixture(params=[Functions, Session])
def run(request):
    return request.param()


def fail(run, kind, scale):
    with pytest.raises(tf.errors.OpError):
        run.accumulate(kind, scale)


def check(run, expected):
    for got in run.weights():
        np.testing.assert_array_equal(got, np.full_like(got, expected))


def test_one_that_fails_before_its_gradients_changes_nothing(run):
    fail(run, EARLY, 100.0)
    assert run.accumulate(FINE, 1.0) == 1
    fail(run, EARLY, 100.0)
    assert run.accumulate(FINE, 3.0) == 2
    assert run.call("apply")
    check(run, -2.0)


def test_one_that_fails_halfway_is_in_no_update(run):
    run.accumulate(FINE, 1.0)
    fail(run, LATE, 100.0)
    assert run.accumulate(FINE, 3.0) == 2
    for name in ("gradients", "apply"):
        with pytest.raises(
            (tf.errors.InvalidArgumentError, ga.errors.IncompleteCycleError)
        ) as caught:
            run.call(name)
        assert "failed while it was being added" in str(caught.value)
    check(run, 0.0)


def test_the_cycle_after_the_refused_one_is_whole(run):
    test_one_that_fails_halfway_is_in_no_update(run)
    run.accumulate(FINE, 5.0)
    assert run.call("apply")
    check(run, -5.0)


def test_reset_forgets_it(run):
    run.accumulate(FINE, 1.0)
    fail(run, LATE, 100.0)
    run.call("reset")
    assert run.accumulate(FINE, 7.0) == 1
    assert run.call("apply")
    check(run, -7.0)


def test_the_first_of_a_cycle_is_no_exception(run):
    fail(run, LATE, 100.0)
    assert run.accumulate(FINE, 2.0) == 1
    with pytest.raises((tf.errors.InvalidArgumentError, ga.errors.IncompleteCycleError)):
        run.call("apply")
    run.accumulate(FINE, 5.0)
    assert run.call("apply")
    check(run, -5.0)


def test_eager_code_says_it_with_an_error_of_its_own():
    run = Functions()
    run.accumulate(FINE, 1.0)
    fail(run, LATE, 100.0)
    for call in (run.accumulator.gradients, run.accumulator.apply):
        with pytest.raises(ga.errors.IncompleteCycleError):
            call()
    assert not bool(run.accumulator.apply())


class FailsAfterwards(v1.train.GradientDescentOptimizer):
    """Updates the variable, and fails then on the device."""

    fails = True

    def _resource_apply_dense(self, grad, handle):
        updated = super(FailsAfterwards, self)._resource_apply_dense(grad, handle)

        def fail():
            if self.fails:
                raise ValueError("the device is out of luck")
            return np.float32(1)

        with tf.control_dependencies([updated]):
            return tf.numpy_function(fail, [], tf.float32).op


def test_an_update_that_fails_halfway_is_not_made_twice():
    variable, optimizer = tf.Variable([0.0]), FailsAfterwards(1.0)
    accumulator = ga.Accumulator(optimizer, [variable], steps=2)
    step = tf.function(lambda: accumulator.step([tf.ones([1])]))
    step()
    with pytest.raises(tf.errors.OpError):
        step()
    optimizer.fails = False
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        step()
    assert "an update that failed" in str(caught.value)
    np.testing.assert_array_equal(variable.numpy(), [-1.0])
    accumulator.reset()
    assert [bool(step()) for _ in range(2)] == [False, True]
    np.testing.assert_array_equal(variable.numpy(), [-2.0])
