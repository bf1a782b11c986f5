"""What a micro-batch costs in eager code, counted and not timed: calls of Python's functions, and
ops."""

from __future__ import absolute_import, division, print_function

import collections
import sys

import numpy as np
import tensorflow as tf

import gradaccum_compat as ga
from support import small_sums

v1 = tf.compat.v1


def calls_of(function):
    """How many functions Python calls in a function, its own and C's: (all, ops of TensorFlow)."""
    counts = collections.Counter()

    def count(frame, event, argument):
        if event == "call":
            counts["calls"] += 1
        elif event == "c_call":
            counts["calls"] += 1
            counts["ops"] += "FastPathExecute" in getattr(argument, "__name__", "")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(before)
    return np.array([counts["calls"], counts["ops"]])


def calls_for_each_variable(make):
    """What a hundred variables more add to one call."""
    few, more = make(10), make(110)
    for each in (few, more):
        each(), each()
    return (calls_of(more) - calls_of(few)) / 100


def accumulate(count):
    variables = [tf.Variable(tf.zeros([2, 2])) for _ in range(count)]
    accumulator = ga.Accumulator(v1.train.GradientDescentOptimizer(0.1), variables)
    gradients = [tf.ones([2, 2]) for _ in range(count)]
    return lambda: accumulator.accumulate(gradients)


def bare_loop(count):
    sums = [tf.Variable(tf.zeros([2, 2])) for _ in range(count)]
    gradients = [tf.ones([2, 2]) for _ in range(count)]
    return lambda: [total.assign_add(gradient) for total, gradient in zip(sums, gradients)]


def test_eager_calls_for_each_variable_are_no_more_than_those_of_a_bare_loop():
    """Of sums that are variables of their own: small_elements is 2 in these tests."""
    (ours, ops), (bare, _) = calls_for_each_variable(accumulate), calls_for_each_variable(bare_loop)
    assert round(ops, 1) == 1.0
    assert ours <= bare, "{} calls for each variable, and {} of a bare loop of assign_add".format(
        ours, bare
    )


def test_small_variables_take_seven_ops_in_a_micro_batch_however_many_they_are(monkeypatch):
    """They are joined, flattened and added; three writes and a read are of the counters and the
    flags."""
    small_sums.patch(monkeypatch, small_sums.SMALL)
    for count in (10, 100):
        once = accumulate(count)
        once(), once()
        assert calls_of(once)[1] == 7


def test_a_micro_batch_of_ten_variables_takes_hardly_more_calls_than_a_bare_loop(monkeypatch):
    """0.9 times those of the loop on Python 2.7 with 1.14, and 0.4 times on 2.21."""
    small_sums.patch(monkeypatch, small_sums.SMALL)
    ours, bare = accumulate(10), bare_loop(10)
    for each in (ours, bare):
        each(), each()
    assert calls_of(ours)[0] <= calls_of(bare)[0]


def test_a_reset_takes_seven_ops_however_many_variables_there_are(monkeypatch):
    """Two reads of the flags, three counters, and the sums, which are filled with zeros. What is
    known of the variables already is not written again."""
    small_sums.patch(monkeypatch, small_sums.SMALL)
    for count in (10, 100):
        variables = [tf.Variable(tf.zeros([2, 2])) for _ in range(count)]
        accumulator = ga.Accumulator(v1.train.GradientDescentOptimizer(0.1), variables)
        for _ in range(2):
            accumulator.accumulate([tf.ones([2, 2]) for _ in range(count)])
            ops = calls_of(accumulator.reset)[1]
        assert ops == 7
