"""What one installs: Keras's own option, and packages."""

from __future__ import absolute_import, division, print_function

import importlib
import inspect

import tensorflow as tf

from benchmarks.contenders.registry import build, contender, loop

v1 = tf.compat.v1


def _missing(module, name):
    """A function that says why this part of a package cannot be used here, or returns None."""

    def why_not():
        try:
            getattr(importlib.import_module(module), name)
        except (
            Exception
        ) as error:  # not installed, or it fails on this TensorFlow or Keras, each in its own way
            return "{} does not import: {}".format(module, type(error).__name__)

    return why_not


def _no_keras_option():
    signature = getattr(inspect, "signature", None)
    if (
        signature
        and "gradient_accumulation_steps" in signature(tf.keras.optimizers.SGD.__init__).parameters
    ):
        return None
    return "this Keras has no gradient_accumulation_steps"


@contender("keras", _no_keras_option)
def keras(problem):
    variables = problem.variables()
    optimizer = build(problem.optimizer(gradient_accumulation_steps=problem.steps), variables)

    @tf.function
    def train(*micro_batch):
        optimizer.apply_gradients(list(zip(problem.gradients(variables, micro_batch), variables)))
        return tf.constant(True)

    return loop(problem, train)


@contender(
    "gradient_accumulator",
    _missing("gradient_accumulator", "GradientAccumulateOptimizer"),
    legacy=True,
)
def gradient_accumulator(problem):
    from gradient_accumulator import GradientAccumulateOptimizer

    variables = problem.variables()
    optimizer = GradientAccumulateOptimizer(
        optimizer=problem.optimizer(), accum_steps=problem.steps
    )

    @tf.function
    def train(*micro_batch):
        optimizer.apply_gradients(list(zip(problem.gradients(variables, micro_batch), variables)))
        return tf.constant(True)

    return loop(problem, train)


@contender("transformers", _missing("transformers.optimization_tf", "GradientAccumulator"))
def transformers(problem):
    from transformers.optimization_tf import GradientAccumulator

    variables = problem.variables()
    optimizer = build(problem.optimizer(), variables)
    accumulator = GradientAccumulator()
    accumulator(
        [tf.zeros_like(each) for each in variables]
    )  # it makes its variables in the first call
    accumulator.reset()

    @tf.function
    def accumulate(*micro_batch):
        accumulator(
            [tf.convert_to_tensor(each) for each in problem.gradients(variables, micro_batch)]
        )

    @tf.function
    def update():
        optimizer.apply_gradients(
            [
                (each / problem.steps, variable)
                for each, variable in zip(accumulator.gradients, variables)
            ]
        )
        return tf.constant(True)

    def cycle():
        for micro_batch in problem.micro_batches:
            accumulate(*micro_batch)
        assert update().numpy()
        accumulator.reset()

    return cycle


@contender("horovod", _missing("horovod.tensorflow", "DistributedOptimizer"))
def horovod(problem):
    """Its local aggregation, on one worker: in a TF 1 graph, which is where it serves the
    optimizers of TF 1."""
    import horovod.tensorflow as hvd

    hvd.init()
    with tf.Graph().as_default():
        v1.enable_resource_variables()
        variables = problem.variables()
        placeholders = [v1.placeholder(each.dtype, each.shape) for each in problem.micro_batches[0]]
        optimizer = hvd.DistributedOptimizer(
            problem.v1_optimizer(), backward_passes_per_step=problem.steps
        )
        train = optimizer.apply_gradients(
            optimizer.compute_gradients(problem.loss(variables, placeholders), variables)
        )
        session = v1.Session()
        session.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
    feeds = [
        dict(zip(placeholders, [each.numpy() for each in micro_batch]))
        for micro_batch in problem.micro_batches
    ]

    def cycle():
        for feed in feeds:
            session.run(train, feed)

    return cycle
