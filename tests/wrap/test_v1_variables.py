"""Reference variables under wrapped optimizers; the order of what runs in a graph."""

from __future__ import absolute_import, division, print_function

import functools
import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

import gradaccum_compat as ga
from support import processes, v1_programs
from support.v1_programs import MICRO, STEPS, Program, assert_big_batch, model, plain

v1 = tf.compat.v1

HERE = os.path.dirname(os.path.abspath(__file__))
reference_model = functools.partial(model, use_resource=False)


def conditionals_take_references():
    with tf.Graph().as_default():
        return (
            tf.cond(
                v1.placeholder(tf.bool, []), lambda: tf.constant(1), lambda: tf.constant(2)
            ).op.type
            == "Merge"
        )


def check_references():
    """Run with reference variables in a process where conditionals take them."""
    assert conditionals_take_references()
    for optimizer in sorted(v1_programs.OPTIMIZERS):
        program = Program(optimizer, build=reference_model)
        assert all(each.dtype._is_ref_dtype for each in program.weights)
        assert_big_batch(program.run(MICRO), plain(optimizer, build=reference_model))


def test_reference_variables_where_conditionals_take_them():
    """In a process of its own: on TF 2 it is for the whole program that control flow v2 is switched
    off."""
    code = (
        "import test_v1_variables, tensorflow as tf\n"
        "getattr(tf.compat.v1, 'disable_control_flow_v2', lambda: None)()\n"
        "test_v1_variables.check_references()"
    )
    subprocess.check_call(
        [sys.executable, "-W", "ignore", "-c", code], env=processes.environment(HERE)
    )


def test_reference_variables_are_refused_elsewhere():
    if conditionals_take_references():
        return check_references()
    with pytest.raises(
        ga.errors.VariablesError, match="use_resource=True.*disable_control_flow_v2"
    ):
        Program(build=reference_model)
    with tf.Graph().as_default():
        variable = v1.get_variable("w", [2], use_resource=False)
        with pytest.raises(ga.errors.VariablesError, match="reference variable"):
            ga.Accumulator(v1.train.GradientDescentOptimizer(0.1), [variable])
    return None


def test_a_global_step_that_is_a_reference_variable():
    graph = tf.Graph()
    with graph.as_default():
        step = v1.get_variable(
            "step", [], tf.int64, v1.zeros_initializer(), trainable=False, use_resource=False
        )
        weight = v1.get_variable("weight", [], initializer=v1.ones_initializer(), use_resource=True)
        for counts, want in (("updates", [0, 1, 1, 2]), ("micro_batches", [1, 2, 3, 4])):
            optimizer = ga.wrap_optimizer(
                v1.train.GradientDescentOptimizer(0.1), steps=2, global_step=counts
            )
            train_op = optimizer.minimize(tf.square(weight), global_step=step)
            with v1.Session() as session:
                session.run(v1.global_variables_initializer())
                got = []
                for _ in range(4):
                    session.run(train_op)
                    got.append(int(session.run(step)))
                assert got == want


# The order of what runs

RUNS, THREADS = 1000, 8


def wide(x, ids):
    """With a variable that takes longer to write than all that might not wait for it takes to
    run."""
    large = v1.get_variable(
        "large", [500000], initializer=v1.zeros_initializer(), use_resource=True
    )
    return model(x, ids) + 1e-4 * tf.reduce_sum(large) * x[:, :1]


def trained(runs, threads):
    """(losses, weights after each cycle's end) of a program whose session runs that many operations
    at once."""
    program = Program("momentum", build=wide)
    with program.graph.as_default():
        program.session = v1.Session(
            config=v1.ConfigProto(
                inter_op_parallelism_threads=threads, intra_op_parallelism_threads=1
            )
        )
        program.session.run(program._initializer)
        sums = [tf.reduce_sum(each) for each in program.weights]
        losses, weights = [], []
        assert_big_batch(program.run(MICRO), plain(build=wide))
        for number in range(runs):
            feed = dict(zip(program.inputs, MICRO[number % len(MICRO)]))
            losses.append(program.session.run([program.loss, program.train_op], feed)[0])
            if number % STEPS == STEPS - 1:
                weights.append(program.session.run(sums))
        return losses, weights


def test_a_thousand_runs_on_many_threads_give_the_bits_of_one_thread():
    want, got = trained(RUNS, 1), trained(RUNS, THREADS)
    for number, (values, expected) in enumerate(zip(got[1], want[1]), 1):
        assert values == expected, "after cycle {}".format(number)
    assert got[0] == want[0]
    assert np.isfinite(got[0]).all()
