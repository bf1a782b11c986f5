"""microbatch_gradients against the plain gradient of the whole batch: numbers, layouts, contexts, memory, errors."""

from __future__ import absolute_import, division, print_function

import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

import gradaccum_compat as ga
import modes
import replicas
from reference import Slices, dense

v1, errors = tf.compat.v1, ga.errors
needs_jit = pytest.mark.skipif(modes.JIT is None, reason="tf.function compiles with XLA from TF 2.1 on")
STEPS = [1, 2, 3, 4, 7]


def eager(compute, arrays):
    return [tensor.numpy() for tensor in compute([tf.constant(each) for each in arrays])]


def function(compute, arrays):
    """A tf.function that does not know how many examples it will get."""
    specs = [tf.TensorSpec([None] + list(each.shape[1:]), each.dtype) for each in arrays]
    traced = tf.function(lambda *tensors: compute(list(tensors)), input_signature=specs)
    return [tensor.numpy() for tensor in traced(*[tf.constant(each) for each in arrays])]


def static_function(compute, arrays):
    return [tensor.numpy() for tensor in tf.function(compute)([tf.constant(each) for each in arrays])]


def graph(compute, arrays):
    """A TF 1 graph with placeholders of an unknown number of examples."""
    with tf.Graph().as_default(), v1.Session() as session:
        placeholders = [v1.placeholder(each.dtype, [None] + list(each.shape[1:])) for each in arrays]
        fetches = compute(placeholders)
        session.run(v1.global_variables_initializer())
        return session.run(fetches, dict(zip(placeholders, arrays)))


def compiled(compute, arrays):
    return [tensor.numpy() for tensor in tf.function(compute, **modes.JIT)([tf.constant(each) for each in arrays])]


CONTEXTS = [eager, function, static_function, graph]


@pytest.fixture(params=CONTEXTS, ids=lambda context: context.__name__)
def context(request):
    return request.param


class Made(object):
    """Variables that are made once, inside the context that is under test: a graph needs its own."""

    def __init__(self, values):
        self._values, self._variables = values, {}

    def __call__(self):
        with tf.init_scope():
            place = None if tf.executing_eagerly() else v1.get_default_graph()
            if place not in self._variables:
                self._variables[place] = [v1.Variable(each, use_resource=True) for each in self._values]
        return self._variables[place]


def flat(big):
    """The loss, the weight and the gradients, rows as values and indices, as a list of tensors."""
    return [big.loss, big.weight] + modes._flatten_tensors(big.gradients)


def draw(*shape):
    return np.random.randn(*shape).astype(np.float32)


# Numbers


def network(made, x, y, mask=None):
    """The mean loss of a small network, over the examples or over what the mask leaves."""
    w, b, u = made()
    errors_ = tf.square(tf.reduce_sum(tf.tanh(tf.matmul(x, w) + b) * u, 1) - y)
    return tf.reduce_mean(errors_) if mask is None else tf.reduce_sum(errors_ * mask) / tf.reduce_sum(mask)


def plain(context, made, arrays):
    def compute(tensors):
        with tf.GradientTape() as tape:
            loss = network(made, *tensors)
        return [loss] + tape.gradient(loss, made())

    return context(compute, arrays)


@pytest.mark.parametrize("examples", [12, 10])
@pytest.mark.parametrize("steps", STEPS)
def test_equals_the_whole_batch(context, steps, examples):
    made, arrays = Made([draw(3, 4), draw(4), draw(4)]), [draw(examples, 3), draw(examples)]

    def compute(tensors):
        return flat(ga.microbatch_gradients(lambda batch: network(made, *batch), made, tensors, steps))

    got = context(compute, arrays)
    want = plain(context, made, arrays)
    assert got[1] == examples and got[1].dtype == np.float32
    for ours, theirs in zip(got[:1] + got[2:], want):
        if steps == 1:
            np.testing.assert_array_equal(ours, theirs)
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6)


@needs_jit
@pytest.mark.parametrize("examples", [12, 10])
@pytest.mark.parametrize("steps", STEPS)
def test_compiled_by_xla(steps, examples):
    test_equals_the_whole_batch(compiled, steps, examples)


def linear(made):
    return lambda batch: tf.reduce_mean(tf.reduce_sum(batch * made()[0], 1))


@pytest.mark.parametrize("steps", STEPS + [8, 11])
def test_exact_numbers_of_a_linear_loss(context, steps):
    """Of 8 examples the mean is exact in binary, and more steps than examples change nothing."""
    made, x = Made([np.array([1.0, 2.0], np.float32)]), np.arange(16, dtype=np.float32).reshape(8, 2)
    got = context(lambda batch: flat(ga.microbatch_gradients(linear(made), made, batch[0], steps)), [x])
    np.testing.assert_array_equal(got[2], [7.0, 8.0])
    assert (got[0], got[1]) == (23.0, 8.0)


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_an_empty_batch_is_zero_at_weight_zero(context, steps):
    made, x = Made([np.ones(2, np.float32)]), np.zeros((0, 2), np.float32)
    loss, weight, gradient = context(
        lambda batch: flat(ga.microbatch_gradients(linear(made), made, batch[0], steps)), [x])
    assert (loss, weight, list(gradient)) == (0.0, 0.0, [0.0, 0.0])


def test_no_slice_is_empty_where_there_are_more_steps_than_examples(context):
    """A batch normalisation turns NaN on an empty slice; the extras have a row for each real slice alone."""
    made, x = Made([np.ones(1, np.float32)]), np.array([[3.0], [5.0]], np.float32)

    def loss_fn(batch):
        loss = tf.reduce_mean(batch * made()[0])
        with tf.control_dependencies([tf.debugging.Assert(tf.shape(batch)[0] > 0, ["empty"])]):
            return tf.identity(loss), tf.constant(1.0), tf.reduce_sum(batch)

    def compute(batch):
        big = ga.microbatch_gradients(loss_fn, made, batch[0], 5)
        return flat(big) + [big.extras]

    loss, weight, gradient, extras = context(compute, [x])
    assert (loss, weight, list(gradient), list(extras)) == (4.0, 2.0, [4.0], [3.0, 5.0])


# Weights and extras


@pytest.mark.parametrize("steps", STEPS)
def test_weights_by_tokens(context, steps):
    made = Made([draw(3, 4), draw(4), draw(4)])
    arrays = [draw(10, 3), draw(10), np.array([1, 1, 0, 0, 0, 0, 0, 0, 5, 2], np.float32)]

    def compute(tensors):
        return flat(ga.microbatch_gradients(
            lambda batch: (network(made, *batch), tf.reduce_sum(batch[2])), made, tensors, steps))

    got, want = context(compute, arrays), plain(context, made, arrays)
    assert got[1] == 9.0
    for ours, theirs in zip(got[:1] + got[2:], want):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("steps, weight", [(2, "zero"), (1, "zero"), (2, "python"), (1, "python")])
def test_a_slice_of_weight_zero_adds_nothing_even_where_it_is_nan(context, steps, weight):
    made = Made([np.ones(1, np.float32)])
    x = np.array([[2.0], [np.nan]], np.float32) if steps == 2 else np.array([[np.nan]], np.float32)
    weights = iter([3, 0] if steps == 2 else [0])

    def loss_fn(batch):
        bad = tf.reduce_any(tf.math.is_nan(batch))
        return tf.reduce_mean(batch * made()[0]), tf.where(bad, 0, 3)

    def with_python_weight(batch):
        return tf.reduce_mean(batch * made()[0]), next(weights)

    chosen = with_python_weight if weight == "python" and context in (eager, graph) else loss_fn
    loss, total, gradient = context(
        lambda batch: flat(ga.microbatch_gradients(chosen, made, batch[0], steps)), [x])
    assert (loss, total, gradient[0]) == ((2.0, 3.0, 2.0) if steps == 2 else (0.0, 0.0, 0.0))


def test_extras_are_stacked_along_a_new_first_axis(context):
    made, x = Made([np.ones(2, np.float32)]), np.arange(20, dtype=np.float32).reshape(10, 2)

    def loss_fn(batch):
        extras = {"sum": tf.reduce_sum(batch, 0), "pair": (tf.shape(batch)[0], None)}
        return tf.reduce_mean(batch * made()[0]), tf.shape(batch)[0], extras

    def compute(batch):
        extras = ga.microbatch_gradients(loss_fn, made, batch[0], 4).extras
        assert extras["pair"][1] is None
        return [extras["sum"], extras["pair"][0]]

    sums, sizes = context(compute, [x])
    np.testing.assert_array_equal(sizes, [3, 3, 2, 2])
    np.testing.assert_array_equal(sums, [x[:3].sum(0), x[3:6].sum(0), x[6:8].sum(0), x[8:].sum(0)])


def test_no_extras_are_none():
    made = Made([np.ones(2, np.float32)])
    assert ga.microbatch_gradients(linear(made), made, tf.ones([4, 2]), 2).extras is None


# Layouts


def test_a_batch_of_any_structure_with_none_in_it(context):
    made, x, y = Made([np.ones(2, np.float32)]), np.ones((5, 2), np.float32), np.arange(5, dtype=np.int32)

    def loss_fn(batch):
        assert sorted(batch) == ["features", "weights"] and batch["weights"] is None
        x, y = batch["features"]
        return tf.reduce_mean(tf.reduce_sum(x * made()[0], 1) * tf.cast(y, tf.float32))

    def compute(batch):
        return flat(ga.microbatch_gradients(loss_fn, made, {"features": tuple(batch), "weights": None}, 3))

    np.testing.assert_allclose(context(compute, [x, y])[2], [2.0, 2.0], rtol=1e-6)


def test_a_variable_that_the_loss_does_not_use_has_no_gradient(context):
    made = Made([np.ones(2, np.float32), np.ones(3, np.float32)])

    def compute(batch):
        big = ga.microbatch_gradients(linear(made), made, batch[0], 2)
        assert len(big.gradients) == 2 and big.gradients[1] is None
        return flat(big)

    np.testing.assert_array_equal(context(compute, [np.ones((4, 2), np.float32)])[2], [1.0, 1.0])


@pytest.mark.parametrize("steps", STEPS)
def test_an_embedding_stays_sparse_with_unique_rows(context, steps):
    table, ids = draw(50, 3), np.array([4, 4, 49, 7, 4, 7, 0, 4, 1, 4], np.int32)
    made, scale = Made([table]), draw(10)

    def loss_fn(batch):
        return tf.reduce_mean(tf.reduce_sum(tf.gather(made()[0], batch[0]), 1) * batch[1])

    def compute(batch):
        big = ga.microbatch_gradients(loss_fn, made, batch, steps)
        assert isinstance(big.gradients[0], tf.IndexedSlices)
        return [big.gradients[0].values, big.gradients[0].indices]

    values, rows = context(compute, [ids, scale])
    assert sorted(rows) == [0, 1, 4, 7, 49]
    want = dense(Slices(np.repeat(scale[:, None] / 10, 3, 1), ids), (50, 3))
    np.testing.assert_allclose(dense(Slices(values, rows), (50, 3)), want, atol=1e-6)


def test_dense_in_one_slice_and_sparse_in_another(context):
    made, numbers = Made([np.ones((4, 2), np.float32)]), []

    def loss_fn(batch):
        numbers.append(1)
        if len(numbers) % 2:
            return tf.reduce_mean(batch) * tf.reduce_sum(made()[0])
        return tf.reduce_sum(tf.gather(made()[0], [3, 3]))

    x = np.ones((4, 1), np.float32)
    got = context(lambda batch: flat(ga.microbatch_gradients(loss_fn, made, batch[0], 2)), [x])
    np.testing.assert_array_equal(got[2], [[0.5, 0.5]] * 3 + [[1.5, 1.5]])


def test_half_precision_is_summed_in_float32(context):
    """4096 gradients of 1 and one weight of 2 * 4096: in float16 the weighted sum overflows, the plain one stalls."""
    made, x = Made([np.ones(1, np.float16)]), np.ones((64, 1), np.float16)

    def loss_fn(batch):
        return tf.reduce_mean(batch * made()[0]), tf.constant(4096)

    loss, weight, gradient = context(
        lambda batch: flat(ga.microbatch_gradients(loss_fn, made, batch[0], 32)), [x])
    assert gradient.dtype == np.float16 and loss.dtype == np.float32
    assert (loss, weight, gradient[0]) == (1.0, 32 * 4096.0, 1.0)


def test_double_precision_stays(context):
    made, x = Made([np.ones(1, np.float64)]), np.array([[1.0], [1e-12], [0.0]])
    loss, _, gradient = context(
        lambda batch: flat(ga.microbatch_gradients(lambda x: tf.reduce_mean(x * made()[0]), made, batch[0], 3)), [x])
    assert loss.dtype == gradient.dtype == np.float64
    np.testing.assert_allclose(gradient, [(1 + 1e-12) / 3], rtol=1e-15)


# What loss_fn may do


def test_each_slice_has_random_numbers_of_its_own(context):
    made = Made([np.ones(16, np.float32)])

    def loss_fn(batch):
        return tf.reduce_mean(v1.nn.dropout(batch * made()[0], rate=0.5))

    def each_slice(batch):
        loss = loss_fn(batch)
        return loss, 1.0, v1.nn.dropout(batch, rate=0.5)

    masks, = context(lambda batch: [ga.microbatch_gradients(each_slice, made, batch[0], 4).extras],
                     [np.ones((8, 16), np.float32)])
    assert len({mask.tobytes() for mask in masks}) == 4


def test_control_flow_of_the_user_is_converted():
    """AutoGraph reaches loss_fn where it is on, and leaves it alone where it is off."""
    variable = tf.Variable([2.0])

    def loss_fn(x):
        if tf.reduce_sum(x) > 0:
            loss = tf.reduce_mean(x * variable)
        else:
            loss = tf.reduce_mean(x * variable * variable)
        return loss

    def compute(x):
        return ga.microbatch_gradients(loss_fn, [variable], x, 2).gradients[0]

    x = tf.constant([[2.0], [-3.0]])
    for call in (compute, tf.function(compute)):
        np.testing.assert_array_equal(call(x).numpy(), [(2 - 12) / 2])
    with pytest.raises(Exception) as caught:
        tf.function(compute, autograph=False)(x)
    assert "bool" in str(caught.value)


def test_the_call_stands_in_a_loop_that_autograph_converts():
    variable = tf.Variable([2.0])

    @tf.function
    def train(x):
        total = tf.zeros([1])
        for number in tf.range(3):
            if number > 0:
                total += ga.microbatch_gradients(
                    lambda batch: tf.reduce_mean(batch * variable), [variable], x, 2).gradients[0]
        return total

    np.testing.assert_array_equal(train(tf.constant([[1.0], [3.0]])).numpy(), [4.0])


def test_state_that_loss_fn_writes_is_written_once_a_slice_in_order():
    variable, seen = tf.Variable([1.0]), tf.Variable(0.0, trainable=False)

    def loss_fn(x):
        loss = tf.reduce_mean(x * variable)
        with tf.control_dependencies([seen.assign(seen * 10 + tf.reduce_sum(x))]):
            return tf.identity(loss)

    for compute in (lambda x: ga.microbatch_gradients(loss_fn, [variable], x, 3).loss,
                    tf.function(lambda x: ga.microbatch_gradients(loss_fn, [variable], x, 3).loss)):
        seen.assign(0.0)
        compute(tf.constant([[1.0], [2.0], [3.0]]))
        assert seen.numpy() == 123.0


def test_variables_that_are_made_on_the_first_call():
    made = []

    def loss_fn(x):
        if not made:
            made.append(tf.Variable([1.0]))
        return tf.reduce_mean(x * made[0])

    train = tf.function(lambda x: ga.microbatch_gradients(loss_fn, lambda: made, x, 2).gradients[0])
    np.testing.assert_array_equal(train(tf.constant([[1.0], [3.0]])).numpy(), [2.0])


def test_keras_variables():
    layer = tf.keras.layers.Dense(1, kernel_initializer="ones")
    layer.build([None, 2])
    gradients = ga.microbatch_gradients(
        lambda x: tf.reduce_mean(layer(x)), layer.trainable_variables, tf.constant([[1.0, 2.0], [3.0, 4.0]]), 2)[1]
    np.testing.assert_array_equal(gradients[0].numpy(), [[2.0], [3.0]])


@pytest.mark.parametrize("resource", [True, False])
def test_loops_and_reference_variables_of_a_tf1_graph(resource):
    with tf.Graph().as_default(), v1.Session() as session:
        variable = v1.Variable([2.0], use_resource=resource)

        def loss_fn(x):
            _, power = tf.while_loop(lambda i, _: i < 2, lambda i, p: (i + 1, p * x[0, 0]), (0, tf.ones([])))
            return tf.reduce_sum(variable) * power

        big = ga.microbatch_gradients(loss_fn, [variable], tf.constant([[1.0], [3.0]]), 2)
        session.run(v1.global_variables_initializer())
        assert session.run([big.loss, big.gradients[0][0]]) == [10.0, 5.0]


def test_one_trace_serves_all_sizes_of_a_batch():
    variable, traces = tf.Variable([1.0]), []

    @tf.function(input_signature=[tf.TensorSpec([None, 1], tf.float32)])
    def train(x):
        traces.append(1)
        return ga.microbatch_gradients(lambda x: tf.reduce_mean(x * variable), [variable], x, 4).gradients[0]

    for examples in (8, 7, 3, 1):
        x = np.arange(examples, dtype=np.float32)[:, None]
        np.testing.assert_allclose(train(tf.constant(x)).numpy(), [x.mean()], rtol=1e-6)
    assert len(traces) == 1


# Replicas


def test_each_replica_gets_the_mean_over_its_own_batch():
    with replicas.strategy().scope():
        variable = tf.Variable([1.0])
        accumulator = ga.Accumulator(modes.sgd(), [variable])

    def on_replica(x):
        big = ga.microbatch_gradients(lambda x: tf.reduce_mean(x * variable), [variable], x, 2)
        accumulator.accumulate(big.gradients, big.weight)
        return big.weight

    train = lambda batch: replicas.run(on_replica, (batch,))
    values = [[[1.0], [2.0], [3.0]]] + [[[10.0]]] * (replicas.COUNT - 1)
    expected = (6.0 + 10.0 * (replicas.COUNT - 1)) / (2 + replicas.COUNT)
    for number, call in enumerate((train, tf.function(train)), 1):
        call(replicas.run(lambda: tf.constant(values[replicas.replica()])))
        accumulator.apply()
        np.testing.assert_allclose(variable.read_value().numpy(), [1.0 - expected * number], rtol=1e-6)


def test_outside_of_the_replicas_is_refused():
    with replicas.strategy().scope():
        variable = tf.Variable([1.0])
        for steps in (2, "auto"):
            with pytest.raises(errors.ContextError) as caught:
                ga.microbatch_gradients(lambda x: tf.reduce_mean(x * variable), [variable], tf.ones([2, 1]), steps)
            assert "strategy.run" in str(caught.value)


# Memory

_PROGRAM = """
import sys
import numpy as np
import tensorflow as tf
import gradaccum_compat as ga
tf.compat.v1.enable_eager_execution()
steps = int(sys.argv[1])
variables = [tf.Variable(np.eye(64, dtype=np.float32)) for _ in range(12)]

def loss_fn(x):
    for variable in variables:
        x = tf.tanh(tf.matmul(x, variable))
    return tf.reduce_mean(x)

if {jit!r}:
    loss_fn = tf.function(loss_fn, **{jit!r})

def peak():
    status = open("/proc/self/status").read().split()
    return int(status[status.index("VmHWM:") + 1]) // 1024

@tf.function
def train(x):
    return ga.microbatch_gradients(loss_fn, variables, x, steps).gradients

def examples(count):
    return tf.constant(np.ones((count, 64), np.float32))

train(examples(8 * steps))
big = examples(2 ** 16)
before = peak()
train(big)
print(peak() - before)
"""


def _peak(steps, jit):
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    # What is freed goes back at once: otherwise the peak is glibc's, with what each thread keeps for later.
    environment = dict(os.environ, PYTHONPATH=root, TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="",
                       MALLOC_MMAP_THRESHOLD_="65536")
    output = subprocess.check_output(
        [sys.executable, "-c", _PROGRAM.format(jit=jit), str(steps)], env=environment, universal_newlines=True)
    return int(output.split()[-1])


# A child's peak in getrusage begins at its parent's; the one in /proc is its own.
@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="Linux tells a process its peak of memory")
@pytest.mark.parametrize("jit", [{}, pytest.param(modes.JIT, marks=needs_jit)], ids=["function", "compiled_loss"])
def test_memory_of_one_slice(jit):
    """12 activations of 16 MiB each: about 200 MiB at once, and an eighth of it in 8 slices."""
    whole, sliced = _peak(1, jit), _peak(8, jit)
    assert whole > 150
    assert sliced < whole / 2.5


# Errors


def refused(kind, loss_fn=None, variables=None, batch=None, steps=2):
    variable = tf.Variable([1.0])
    loss_fn = loss_fn or (lambda x: lambda v: tf.reduce_mean(x * v))
    batch = tf.ones([4, 1]) if batch is None else batch
    with pytest.raises(kind) as caught:
        ga.microbatch_gradients(
            lambda x: loss_fn(x)(variable), [variable] if variables is None else variables, batch, steps)
    assert caught.value.rule and caught.value.received and caught.value.remedy
    return str(caught.value)


def _typed(context, kind):
    """AutoGraph puts an exception of its own, with the message, in the place of one that takes several arguments."""
    return kind if context in (eager, graph) else Exception


@pytest.mark.parametrize("steps", [0, -1, 2.0, "4", "Auto", None, True, [2]], ids=repr)
def test_steps(steps):
    assert "steps" in refused(errors.OptionError, steps=steps)


@pytest.mark.parametrize("batch, word", [
    ((), "at least one tensor"), ({"x": None}, "at least one tensor"), ((tf.ones, 1), "dense tensors"), (3.0, "dense"),
    (lambda: tf.constant(1.0), "first dimension"), (lambda: (tf.ones([4, 1]), tf.ones([3])), "3 and 4"),
    (lambda: tf.SparseTensor([[0]], [1.0], [2]), "dense tensors"),
], ids=repr)
def test_batch(batch, word):
    batch = batch() if callable(batch) else batch
    assert word in refused(errors.OptionError, batch=batch)


@pytest.mark.parametrize("returned", [
    lambda v: v * tf.ones([2, 1]), lambda v: None, lambda v: 3.0, lambda v: (), lambda v: (tf.reduce_sum(v),),
    lambda v: (tf.reduce_sum(v), 1.0, None, None), lambda v: "loss", lambda v: tf.constant(1), lambda v: {"loss": v},
])
def test_what_loss_fn_returns(returned):
    assert "loss_fn(micro_batch) returns" in refused(errors.OptionError, loss_fn=lambda x: returned)


def test_a_loss_that_needs_no_gradient(context):
    made = Made([np.ones(1, np.float32)])
    with pytest.raises(_typed(context, errors.VariablesError)) as caught:
        context(lambda batch: flat(ga.microbatch_gradients(tf.reduce_mean, made, batch[0], 2)),
                [np.ones((4, 1), np.float32)])
    assert "depends on at least one" in str(caught.value)


@pytest.mark.parametrize("weight", [-1.0, float("nan"), "1", [1.0]], ids=repr)
def test_a_bad_weight(weight):
    refused(errors.WeightError, loss_fn=lambda x: lambda v: (tf.reduce_mean(v), weight))


def test_a_bad_weight_on_the_device(context):
    made = Made([np.ones(1, np.float32)])
    with pytest.raises((errors.WeightError, tf.errors.InvalidArgumentError)) as caught:
        context(lambda batch: flat(ga.microbatch_gradients(
            lambda x: (tf.reduce_mean(x * made()[0]), -tf.reduce_sum(x)), made, batch[0], 2)),
                [np.ones((4, 1), np.float32)])
    assert "weight" in str(caught.value).lower()


def test_first_dimensions_that_only_the_device_knows(context):
    made = Made([np.ones(1, np.float32)])
    with pytest.raises(_typed(context, (errors.OptionError, tf.errors.InvalidArgumentError))) as caught:
        context(lambda batch: flat(ga.microbatch_gradients(
            lambda x: tf.reduce_mean(x[0] * made()[0]), made, batch, 2)),
                [np.ones((4, 1), np.float32), np.ones((5, 1), np.float32)])
    assert "first dimension" in str(caught.value)


def test_a_loss_whose_shape_only_the_device_knows():
    variable = tf.Variable([1.0, 2.0])
    train = tf.function(lambda x, y: ga.microbatch_gradients(lambda x: y * variable, [variable], x, 2).loss,
                        input_signature=[tf.TensorSpec([None], tf.float32), tf.TensorSpec(None, tf.float32)])
    with pytest.raises(tf.errors.InvalidArgumentError):
        train(tf.ones([4]), tf.ones([2]))


def test_extras_of_uneven_slices():
    with_examples = lambda x: lambda v: (tf.reduce_mean(v), 1, x)
    message = refused(errors.OptionError, batch=tf.ones([5, 1]), loss_fn=with_examples)
    assert "same shape" in message


@pytest.mark.parametrize("variables", [[], 3, [tf.zeros([1])]], ids=repr)
def test_variables(variables):
    refused(errors.VariablesError, variables=variables)


def test_it_is_three_values_and_the_weight_beside_them():
    variable = tf.Variable([2.0])
    big = ga.microbatch_gradients(lambda x: tf.reduce_mean(x * variable), [variable], tf.ones([5, 1]), 2)
    loss, gradients, extras = big
    assert (loss.numpy(), gradients[0].numpy().tolist(), extras, big.weight.numpy()) == (2.0, [1.0], None, 5.0)
