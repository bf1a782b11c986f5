"""This package, in the ways that it can be called."""

from __future__ import absolute_import, division, print_function

import tensorflow as tf

import gradaccum_compat as ga
from benchmarks.contenders.registry import build, contender, loop


@contender("step")
def step(problem):
    return _step(problem)


def step_with_statistics(problem):
    """No contender: nothing else tells what an update was like."""
    return _step(problem, statistics=True)


def _step(problem, **options):
    variables = problem.variables()
    accumulator = ga.Accumulator(problem.optimizer(), variables, steps=problem.steps, **options)
    return loop(
        problem,
        tf.function(
            lambda *micro_batch: accumulator.step(problem.gradients(variables, micro_batch))
        ),
    )


@contender("accumulate_apply")
def accumulate_apply(problem):
    variables = problem.variables()
    accumulator = ga.Accumulator(problem.optimizer(), variables)
    accumulate = tf.function(
        lambda *micro_batch: accumulator.accumulate(problem.gradients(variables, micro_batch))
    )
    apply_ = tf.function(lambda: accumulator.apply())

    def cycle():
        for micro_batch in problem.micro_batches:
            accumulate(*micro_batch)
        assert apply_().numpy()

    return cycle


@contender("microbatch_gradients")
def microbatch_gradients(problem):
    variables = problem.variables()
    optimizer = build(problem.optimizer(), variables)

    @tf.function
    def train(*batch):
        big = ga.microbatch_gradients(
            lambda micro_batch: problem.loss(variables, micro_batch),
            variables,
            batch,
            problem.steps,
        )
        optimizer.apply_gradients(list(zip(big.gradients, variables)))
        return tf.constant(True)

    def cycle():
        assert train(*problem.batch).numpy()

    return cycle
