"""Accumulators on several replicas, driven in each of the ways that a training loop may be written.

One MirroredStrategy serves a process: on TF 2 the collectives of two of them meet each other. How
many replicas it has is said by GRADACCUM_REPLICAS, so that other numbers run in processes of their
own.
"""

from __future__ import absolute_import, division, print_function

import os

import numpy as np
import tensorflow as tf

import gradaccum_compat as ga
from support import modes

COUNT = int(os.environ.get("GRADACCUM_REPLICAS", "2"))
#: Whether they share their variables, under CentralStorageStrategy, in a process of its own as
#: well.
SHARED = bool(os.environ.get("GRADACCUM_SHARED"))
_made = {}


def strategy():
    """The process's strategy: GPUs where there are enough, logical CPUs elsewhere."""
    if not _made:
        gpus = (
            tf.config.experimental.list_logical_devices("GPU")
            if hasattr(tf.config.experimental, "list_logical_devices")
            else []
        )
        kind = "gpu" if len(gpus) >= COUNT else "cpu"
        look_often()
        devices = ["/%s:%d" % (kind, index) for index in range(COUNT)]
        _made["strategy"] = (
            tf.distribute.experimental.CentralStorageStrategy(devices, "/cpu:0")
            if SHARED
            else (tf.distribute.MirroredStrategy(devices))
        )
    return _made["strategy"]


def look_often():
    """Has TensorFlow look every few milliseconds whether its replica threads are done, where it
    would once a second.

    It waits so each time that a graph is built for replicas, which is most of what such a test
    takes.
    """
    original = tf.train.Coordinator.wait_for_stop
    tf.train.Coordinator.wait_for_stop = lambda self, timeout=None: original(
        self, timeout and min(timeout, 0.005)
    )


def run(function, args=()):
    each = strategy()
    return (each.run if hasattr(each, "run") else each.experimental_run_v2)(function, args=args)


def local(value):
    return strategy().experimental_local_results(value)


def replica():
    """The number of the replica that asks, as a Python int."""
    number = tf.distribute.get_replica_context().replica_id_in_sync_group
    return int(
        number
        if isinstance(number, int)
        else number.numpy() if hasattr(number, "numpy") else tf.get_static_value(number)
    )


class Replicated(object):
    """One accumulator on all replicas; `shares` are a list of (gradients, weight), one for each
    replica."""

    def __init__(self, values, optimizer=modes.sgd, variable=tf.Variable, **options):
        with strategy().scope():
            self.variables = [
                variable(value, name="v%d" % index) for index, value in enumerate(values)
            ]
            self.optimizer = optimizer()
            self.accumulator = ga.Accumulator(self.optimizer, self.variables, **options)

    def accumulate(self, shares):
        return int(self._with_shares(self.accumulator.accumulate, shares))

    def step(self, shares):
        return bool(self._with_shares(self.accumulator.step, shares))

    def apply(self):
        return bool(self._call(self.accumulator.apply))

    def reset(self):
        self._call(self.accumulator.reset)

    def weights(self):
        """The variables' values, after checking that all replicas have the same, to the bit."""
        values = []
        for variable in self.variables:
            copies = [
                each.numpy()
                for each in local(
                    getattr(variable, "value", variable)
                    if not callable(getattr(variable, "value", None))
                    else variable
                )
            ]
            for copy in copies[1:]:
                np.testing.assert_array_equal(
                    copy, copies[0], err_msg="the replicas have come apart"
                )
            values.append(copies[0])
        return values

    def _one(self, value):
        results = [each.numpy() for each in local(value)]
        assert len(set(results)) == 1, "the replicas disagree: {}".format(results)
        return results[0]


class InsideEager(Replicated):
    """strategy.run(step) in eager code.

    TensorFlow itself waits for its replica threads in turns of a second there, so that few cases go
    this way.
    """

    def _call(self, call):
        return self._one(run(call))

    def _with_shares(self, method, shares):
        return self._one(run(lambda: method(*_tensors(shares[replica()]))))


class OutOfScope(Replicated):
    """Per-replica gradients in eager code, outside of the scope, where the default strategy is the
    current one."""

    def _call(self, call):
        return self._one(call())

    def _with_shares(self, method, shares):
        gradients, weight = run(lambda: _tensors(shares[replica()]))
        return self._one(method(gradients, weight))


class InsideFunction(Replicated):
    """strategy.run(step) inside one tf.function, the decision included; a trace for each layout of
    the shares."""

    def __init__(self, *args, **kwargs):
        super(InsideFunction, self).__init__(*args, **kwargs)
        self._calls = {}

    def _spread(self, call, hand_out=None):
        """How the call is made, given a function that returns a replica's gradients and weight."""
        return run(call if hand_out is None else lambda: call(*hand_out()))

    def _call(self, call):
        return self._one(self._function(call.__name__, lambda: self._spread(call))())

    def _with_shares(self, method, shares):
        layout = tuple(modes.kinds(gradients) for gradients, _ in shares)

        def call(flat, weights):
            def hand_out():
                number = replica()
                return modes.unflatten(layout[number], flat[number]), weights[number]

            return self._spread(method, hand_out)

        flat = [modes.flatten(gradients) for gradients, _ in shares]
        weights = [tf.constant(weight, tf.float32) for _, weight in shares]
        return self._one(self._function((method.__name__, layout), call)(flat, weights))

    def _function(self, key, call):
        if key not in self._calls:
            self._calls[key] = tf.function(call)
        return self._calls[key]


class AcrossFunction(InsideFunction):
    """Per-replica gradients, handed in from outside of the replicas in the scope, inside one
    tf.function."""

    def _spread(self, call, hand_out=None):
        with strategy().scope():
            return call() if hand_out is None else call(*run(hand_out))


def _tensors(share):
    gradients, weight = share
    return [modes.tensor(each) for each in gradients], tf.constant(weight, tf.float32)


WAYS = [InsideFunction, AcrossFunction]
EAGER_WAYS = [InsideEager, OutOfScope]
