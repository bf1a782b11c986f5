"""The same work without accumulation."""

from __future__ import absolute_import, division, print_function

import tensorflow as tf

from benchmarks.contenders.registry import build, contender


@contender("plain")
def plain(problem):
    variables = problem.variables()
    optimizer = build(problem.optimizer(), variables)

    @tf.function
    def differentiate(*micro_batch):
        # One number of each gradient is handed out, or TensorFlow would not compute them.
        return [_first_number(each) for each in problem.gradients(variables, micro_batch)]

    @tf.function
    def train(*micro_batch):
        optimizer.apply_gradients(list(zip(problem.gradients(variables, micro_batch), variables)))
        return tf.constant(True)

    def cycle():
        for micro_batch in problem.micro_batches[:-1]:
            differentiate(*micro_batch)
        assert train(*problem.micro_batches[-1]).numpy()

    return cycle


def _first_number(gradient):
    return tf.reshape(
        gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient, [-1]
    )[:1]
