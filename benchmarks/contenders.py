"""What is compared: ours, and what a user would pick instead. Each makes a function that runs one cycle.

Each is written the way its documentation, or the usual advice, has it. A cycle is K micro-batches and one
update, and has ended when it returns.
"""

from __future__ import absolute_import, division, print_function

import collections
import inspect

import tensorflow as tf

import gradaccum_compat as ga

v1 = tf.compat.v1
Contender = collections.namedtuple("Contender", "name make why_not legacy")
_ALL = collections.OrderedDict()


def contender(name, why_not=lambda: None, legacy=False):
    """Registers a maker: a function of a Problem that returns a function that runs one cycle.

    Args:
        why_not: says why it cannot run here, or returns None.
        legacy: whether it takes none but the optimizers of `tf.keras.optimizers.legacy`, where there are those.
    """
    def register(make):
        _ALL[name] = Contender(name, make, why_not, legacy)
        return make
    return register


def cycles(problem, names):
    """The cycles of those that can run here, and the reasons of the others.

    Returns:
        A list of (name, cycle), a dictionary from name to reason, and a function from name to its baseline.
    """
    usable, reasons, baselines = [], collections.OrderedDict(), {}
    for name in names:
        reason = _ALL[name].why_not()
        if reason:
            reasons[name] = reason
            continue
        problem.legacy = _ALL[name].legacy and _has_legacy()
        baselines[name] = "plain_legacy" if problem.legacy else "plain"
        if baselines[name] not in dict(usable):
            usable.append((baselines[name], _ALL["plain"].make(problem)))
            baselines[baselines[name]] = baselines[name]
        if name != "plain":
            usable.append((name, _ALL[name].make(problem)))
    return usable, reasons, baselines.get


def make(problem, name):
    """One contender's cycle, or None with the reason."""
    reason = _ALL[name].why_not()
    problem.legacy = _ALL[name].legacy and _has_legacy()
    return (None, reason) if reason else (_ALL[name].make(problem), None)


def _has_legacy():
    return hasattr(tf.keras.optimizers, "legacy") and hasattr(tf.keras.optimizers, "Adam") and (
        hasattr(getattr(tf.keras.optimizers.legacy, "Adam", None), "_create_slots"))


def _build(optimizer, variables):
    if hasattr(optimizer, "build"):
        optimizer.build(variables)
    return optimizer


def _loop(problem, step):
    """The training loop around a compiled step: K calls, the last one's result awaited."""
    def cycle():
        for micro_batch in problem.micro_batches:
            moved = step(*micro_batch)
        assert moved.numpy()
    return cycle


@contender("plain")
def plain(problem):
    variables = problem.variables()
    optimizer = _build(problem.optimizer(), variables)

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
    return tf.reshape(gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient, [-1])[:1]


@contender("step")
def step(problem):
    variables = problem.variables()
    accumulator = ga.Accumulator(problem.optimizer(), variables, steps=problem.steps)
    return _loop(problem, tf.function(
        lambda *micro_batch: accumulator.step(problem.gradients(variables, micro_batch))))


@contender("accumulate_apply")
def accumulate_apply(problem):
    variables = problem.variables()
    accumulator = ga.Accumulator(problem.optimizer(), variables)
    accumulate = tf.function(lambda *micro_batch: accumulator.accumulate(problem.gradients(variables, micro_batch)))
    apply_ = tf.function(lambda: accumulator.apply())

    def cycle():
        for micro_batch in problem.micro_batches:
            accumulate(*micro_batch)
        assert apply_().numpy()
    return cycle


@contender("microbatch_gradients")
def microbatch_gradients(problem):
    variables = problem.variables()
    optimizer = _build(problem.optimizer(), variables)

    @tf.function
    def train(*batch):
        big = ga.microbatch_gradients(
            lambda micro_batch: problem.loss(variables, micro_batch), variables, batch, problem.steps)
        optimizer.apply_gradients(list(zip(big.gradients, variables)))
        return tf.constant(True)

    def cycle():
        assert train(*problem.batch).numpy()
    return cycle


@contender("floor")
def floor(problem):
    """The least that TensorFlow takes: a trace for the first micro-batch, one for the others, one for the update.

    Nobody would train so: it takes dense gradients alone, all of the same weight, in full cycles.
    """
    variables = problem.variables()
    optimizer = _build(problem.optimizer(), variables)
    sums = [tf.Variable(tf.zeros_like(each), trainable=False) for each in variables]

    @tf.function
    def first(*micro_batch):
        for total, gradient in zip(sums, problem.gradients(variables, micro_batch)):
            total.assign(gradient)

    @tf.function
    def later(*micro_batch):
        for total, gradient in zip(sums, problem.gradients(variables, micro_batch)):
            total.assign_add(gradient)

    @tf.function
    def update():
        optimizer.apply_gradients([(total / problem.steps, variable) for total, variable in zip(sums, variables)])
        return tf.constant(True)

    def cycle():
        for number, micro_batch in enumerate(problem.micro_batches):
            (later if number else first)(*micro_batch)
        assert update().numpy()
    return cycle


@contender("python_list")
def python_list(problem):
    variables = problem.variables()
    optimizer = _build(problem.optimizer(), variables)
    differentiate = tf.function(lambda *micro_batch: problem.gradients(variables, micro_batch))

    @tf.function
    def update(gradients):
        optimizer.apply_gradients(list(zip(gradients, variables)))
        return tf.constant(True)

    def cycle():
        total = None
        for micro_batch in problem.micro_batches:
            gradients = [tf.convert_to_tensor(each) for each in differentiate(*micro_batch)]
            total = gradients if total is None else [own + new for own, new in zip(total, gradients)]
        assert update([each / problem.steps for each in total]).numpy()
    return cycle


@contender("recipe")
def recipe(problem):
    variables = problem.variables()
    optimizer = _build(problem.optimizer(), variables)
    sums = [tf.Variable(tf.zeros_like(each), trainable=False) for each in variables]

    @tf.function
    def accumulate(*micro_batch):
        for total, gradient in zip(sums, problem.gradients(variables, micro_batch)):
            total.assign_add(tf.convert_to_tensor(gradient) / problem.steps)

    @tf.function
    def update():
        optimizer.apply_gradients([(total.read_value(), variable) for total, variable in zip(sums, variables)])
        for total in sums:
            total.assign(tf.zeros_like(total))
        return tf.constant(True)

    def cycle():
        for micro_batch in problem.micro_batches:
            accumulate(*micro_batch)
        assert update().numpy()
    return cycle


def _no_keras_option():
    signature = getattr(inspect, "signature", None)
    if signature and "gradient_accumulation_steps" in signature(tf.keras.optimizers.SGD.__init__).parameters:
        return None
    return "this Keras has no gradient_accumulation_steps"


@contender("keras", _no_keras_option)
def keras(problem):
    variables = problem.variables()
    optimizer = _build(problem.optimizer(gradient_accumulation_steps=problem.steps), variables)

    @tf.function
    def train(*micro_batch):
        optimizer.apply_gradients(list(zip(problem.gradients(variables, micro_batch), variables)))
        return tf.constant(True)
    return _loop(problem, train)


def _no_gradient_accumulator():
    try:
        from gradient_accumulator import GradientAccumulateOptimizer
        return None if GradientAccumulateOptimizer else "it has no GradientAccumulateOptimizer"
    except Exception as error:  # not installed, or it fails on this TensorFlow, each in its own way
        return "gradient-accumulator does not import: {:.80}".format(type(error).__name__)


@contender("gradient_accumulator", _no_gradient_accumulator, legacy=True)
def gradient_accumulator(problem):
    from gradient_accumulator import GradientAccumulateOptimizer
    variables = problem.variables()
    optimizer = GradientAccumulateOptimizer(optimizer=problem.optimizer(), accum_steps=problem.steps)

    @tf.function
    def train(*micro_batch):
        optimizer.apply_gradients(list(zip(problem.gradients(variables, micro_batch), variables)))
        return tf.constant(True)
    return _loop(problem, train)


def _no_transformers():
    try:
        from transformers.optimization_tf import GradientAccumulator
        return None if GradientAccumulator else "it has no GradientAccumulator"
    except Exception as error:  # not installed, or it fails on this TensorFlow or Keras, each in its own way
        return "transformers.optimization_tf does not import: {:.80}".format(type(error).__name__)


@contender("transformers", _no_transformers)
def transformers(problem):
    from transformers.optimization_tf import GradientAccumulator
    variables = problem.variables()
    optimizer = _build(problem.optimizer(), variables)
    accumulator = GradientAccumulator()
    accumulator([tf.zeros_like(each) for each in variables])  # it makes its variables in the first call
    accumulator.reset()

    @tf.function
    def accumulate(*micro_batch):
        accumulator([tf.convert_to_tensor(each) for each in problem.gradients(variables, micro_batch)])

    @tf.function
    def update():
        optimizer.apply_gradients(
            [(each / problem.steps, variable) for each, variable in zip(accumulator.gradients, variables)])
        return tf.constant(True)

    def cycle():
        for micro_batch in problem.micro_batches:
            accumulate(*micro_batch)
        assert update().numpy()
        accumulator.reset()
    return cycle


def _no_horovod():
    try:
        import horovod.tensorflow as hvd
        hvd.init()
        return None
    except Exception as error:  # not installed, or it fails on this TensorFlow, each in its own way
        return "horovod does not import: {:.80}".format(type(error).__name__)


@contender("horovod", _no_horovod)
def horovod(problem):
    """Its local aggregation, on one worker: in a TF 1 graph, which is where it serves the optimizers of TF 1."""
    import horovod.tensorflow as hvd
    with tf.Graph().as_default():
        v1.enable_resource_variables()
        variables = problem.variables()
        placeholders = [v1.placeholder(each.dtype, each.shape) for each in problem.micro_batches[0]]
        optimizer = hvd.DistributedOptimizer(problem.v1_optimizer(), backward_passes_per_step=problem.steps)
        train = optimizer.apply_gradients(
            optimizer.compute_gradients(problem.loss(variables, placeholders), variables))
        session = v1.Session()
        session.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
    feeds = [dict(zip(placeholders, [each.numpy() for each in micro_batch])) for micro_batch in problem.micro_batches]

    def cycle():
        for feed in feeds:
            session.run(train, feed)
    return cycle


#: In the order of the tables; without the floor, which takes dense gradients alone.
EVERYONE = tuple(name for name in _ALL if name != "floor")
WITH_FLOOR = tuple(_ALL)
