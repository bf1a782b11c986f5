"""What one writes oneself, and the least that it could take."""

from __future__ import absolute_import, division, print_function

import tensorflow as tf

from benchmarks.contenders.registry import build, contender


def sums_of(variables):
    return [tf.Variable(tf.zeros_like(each), trainable=False) for each in variables]


def assign(sums, gradients):
    for total, gradient in zip(sums, gradients):
        total.assign(gradient)


def assign_add(sums, gradients):
    for total, gradient in zip(sums, gradients):
        total.assign_add(gradient)


def _to_train(problem):
    variables = problem.variables()
    return variables, build(problem.optimizer(), variables), sums_of(variables)


@contender("floor")
def floor(problem):
    """The least that TensorFlow takes: a trace for the first micro-batch, one for the others, one
    for the update.

    Nobody would train so: it takes dense gradients alone, all of the same weight, in full cycles.
    """
    variables, optimizer, sums = _to_train(problem)

    first = tf.function(
        lambda *micro_batch: assign(sums, problem.gradients(variables, micro_batch))
    )
    later = tf.function(
        lambda *micro_batch: assign_add(sums, problem.gradients(variables, micro_batch))
    )

    @tf.function
    def update():
        optimizer.apply_gradients(
            [(total / problem.steps, variable) for total, variable in zip(sums, variables)]
        )
        return tf.constant(True)

    def cycle():
        for number, micro_batch in enumerate(problem.micro_batches):
            (later if number else first)(*micro_batch)
        assert update().numpy()

    return cycle


@contender("python_list")
def python_list(problem):
    variables = problem.variables()
    optimizer = build(problem.optimizer(), variables)
    differentiate = tf.function(lambda *micro_batch: problem.gradients(variables, micro_batch))

    @tf.function
    def update(gradients):
        optimizer.apply_gradients(list(zip(gradients, variables)))
        return tf.constant(True)

    def cycle():
        total = None
        for micro_batch in problem.micro_batches:
            gradients = [tf.convert_to_tensor(each) for each in differentiate(*micro_batch)]
            total = (
                gradients if total is None else [own + new for own, new in zip(total, gradients)]
            )
        assert update([each / problem.steps for each in total]).numpy()

    return cycle


@contender("recipe")
def recipe(problem):
    variables, optimizer, sums = _to_train(problem)

    @tf.function
    def accumulate(*micro_batch):
        for total, gradient in zip(sums, problem.gradients(variables, micro_batch)):
            total.assign_add(tf.convert_to_tensor(gradient) / problem.steps)

    @tf.function
    def update():
        optimizer.apply_gradients(
            [(total.read_value(), variable) for total, variable in zip(sums, variables)]
        )
        for total in sums:
            total.assign(tf.zeros_like(total))
        return tf.constant(True)

    def cycle():
        for micro_batch in problem.micro_batches:
            accumulate(*micro_batch)
        assert update().numpy()

    return cycle
