"""Where calls may stand: traces of all kinds, loops, XLA, Sessions under load, accumulators side by
side."""

from __future__ import absolute_import, division, print_function

import numpy as np
import pytest
import tensorflow as tf

import gradaccum_compat as ga
from support import modes
from support.reference import Reference

v1 = tf.compat.v1
needs_jit = pytest.mark.skipif(modes.JIT is None, reason=modes.NO_JIT)


def sgd(learning_rate=1.0):
    return v1.train.GradientDescentOptimizer(learning_rate)


# tf.function


def test_variables_are_asked_at_the_first_use_inside_a_function():
    made = []

    def variables():
        return made

    accumulator = ga.Accumulator(v1.train.AdamOptimizer(1.0), variables, steps=2)

    @tf.function
    def train(gradient):
        if not made:
            made.append(tf.Variable([0.0, 0.0]))
        return accumulator.step([gradient])

    moved = [bool(train(tf.constant([1.0, -1.0])).numpy()) for _ in range(4)]
    assert moved == [False, True, False, True]
    np.testing.assert_allclose(made[0].numpy(), [-2.0, 2.0], rtol=1e-5)  # Adam's epsilon


def test_first_use_in_a_later_trace():
    """A tf.function refuses variables made on a later call; the accumulator's are made outside of
    it."""
    variable = tf.Variable([0.0])
    accumulator = ga.Accumulator(v1.train.AdamOptimizer(1.0), lambda: [variable])

    @tf.function
    def train(gradient, use):
        if use:
            accumulator.accumulate([gradient])
            return accumulator.apply()
        return tf.constant(False)

    assert not train(tf.constant([1.0]), False).numpy()
    assert train(tf.constant([1.0]), True).numpy()
    np.testing.assert_allclose(variable.numpy(), [-1.0], rtol=1e-6)


def test_one_trace_serves_all_weights_and_a_shorter_last_batch():
    variable = tf.Variable([0.0])
    accumulator, traces = ga.Accumulator(sgd(), [variable], steps=3), []

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32)])
    def train(x):
        traces.append(1)
        return accumulator.step([tf.reduce_mean(x, keepdims=True)], tf.shape(x)[0])

    for batch in ([1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [10.0]):
        train(tf.constant(batch))
    np.testing.assert_allclose(variable.numpy(), [-31.0 / 7], rtol=1e-6)
    # TensorFlow itself may trace a first call twice, to tell whether it makes variables.
    assert len(traces) <= 2


def test_autograph_around_the_calls():
    variable = tf.Variable([0.0])
    accumulator = ga.Accumulator(sgd(), [variable], steps=2)

    @tf.function(autograph=True)
    def train(x):
        updates = 0
        for i in tf.range(6):
            if accumulator.step([x * tf.cast(i, tf.float32)]):
                updates += 1
        return updates

    assert train(tf.constant([1.0])).numpy() == 3
    np.testing.assert_allclose(variable.numpy(), [-0.5 - 2.5 - 4.5])


def test_a_whole_cycle_in_one_function():
    variable = tf.Variable([0.0])
    accumulator = ga.Accumulator(sgd(), [variable])

    @tf.function
    def cycle(x):
        for weight in (1.0, 3.0):
            count = accumulator.accumulate([x * weight], weight)
        read = accumulator.gradients()[0]
        return count, read, accumulator.apply(), accumulator.micro_count

    for number in (1, 2):
        count, read, moved, left = [each.numpy() for each in cycle(tf.constant([2.0]))]
        assert (count, moved, left) == (2, True, 0)
        np.testing.assert_array_equal(read, [5.0])
        np.testing.assert_array_equal(variable.numpy(), [-5.0 * number])


def test_a_micro_batch_that_fails_is_added_nowhere():
    """Not even for the variables whose gradients were there before another one failed."""
    fine, failing = tf.Variable([0.0]), tf.Variable([0.0])
    accumulator = ga.Accumulator(sgd(), [fine, failing])

    @tf.function
    def accumulate(x):
        late = tf.debugging.check_numerics(
            tf.linalg.matmul(tf.fill([300, 300], x), tf.fill([300, 300], x)), "bad"
        )
        return accumulator.accumulate([tf.ones([1]), late[0, :1]])

    accumulate(1.0)
    for _ in range(3):
        with pytest.raises(tf.errors.InvalidArgumentError):
            accumulate(float("nan"))
    assert int(accumulator.micro_count) == 1 and float(accumulator.total_weight) == 1
    assert [gradient.numpy()[0] for gradient in accumulator.gradients()] == [1.0, 300.0]


def test_inside_a_gradient_tape():
    variable = tf.Variable([3.0])
    accumulator = ga.Accumulator(sgd(), [variable])
    with tf.GradientTape() as tape:
        loss = variable * variable
        accumulator.accumulate([tf.constant([1.0])])
    accumulator.accumulate(tape.gradient(loss, [variable]))
    accumulator.apply()
    np.testing.assert_array_equal(variable.numpy(), [3.0 - 3.5])


# XLA


@needs_jit
@pytest.mark.parametrize(
    "options", [{}, {"clip_norm": 0.1}, {"nonfinite": "skip"}, {"loss_reduction": "sum"}]
)
def test_compiled_by_xla(options):
    shapes = [(3,), (2, 2)]

    def draw(seed):
        return [np.random.RandomState(seed).randn(*shape).astype(np.float32) for shape in shapes]

    run = modes.Compiled(draw(0), steps=2, **options)
    reference = Reference(shapes, options.get("loss_reduction", "mean"), options.get("clip_norm"))
    expected = draw(0)
    for cycle in range(3):
        reference.reset()
        for number in (1, 2):
            gradients = [
                draw(10 * cycle + number)[0],
                None if number == 1 and cycle else draw(number)[1],
            ]
            assert run.step(gradients, float(number)) == (number == 2)
            reference.accumulate(gradients, number)
        expected = [value - gradient for value, gradient in zip(expected, reference.gradients())]
        for got, want in zip(run.weights(), expected):
            np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)


@needs_jit
@pytest.mark.skipif(
    not modes.XLA_KNOWS_NAN, reason="XLA's arithmetic up to TF 2.2 has no NaN on a CPU"
)
def test_a_bad_weight_under_xla_is_not_silently_wrong():
    """XLA drops assertions: the update becomes NaN."""
    run = modes.Compiled([np.zeros(2, np.float32)])
    try:
        run.accumulate([np.ones(2, np.float32)], -1.0)
        run.accumulate([np.ones(2, np.float32)], 5.0)
        moved = run.apply()
    except tf.errors.InvalidArgumentError:
        return
    assert not moved or np.isnan(run.weights()[0]).all()


def test_a_gradient_from_outside_of_the_function():
    """An eager tensor, which TF 2.4 lets nothing wait for."""
    variable, gradient = tf.Variable([0.0, 0.0]), tf.constant([1.0, 2.0])
    accumulator = ga.Accumulator(sgd(), [variable], steps=2)
    step = tf.function(lambda weight: accumulator.step([gradient], weight))
    assert [bool(step(tf.constant(weight)).numpy()) for weight in (1.0, 3.0)] == [False, True]
    np.testing.assert_array_equal(variable.numpy(), [-1.0, -2.0])


# Graphs and Sessions


def test_a_thousand_runs_in_a_session_are_a_thousand_runs_in_eager_code():
    random = np.random.RandomState(0)
    eager = modes.Eager(
        [np.zeros(5, np.float32)], lambda: v1.train.MomentumOptimizer(0.01, 0.9), steps=4
    )
    graph = modes.Graph(
        [np.zeros(5, np.float32)], lambda: v1.train.MomentumOptimizer(0.01, 0.9), steps=4
    )
    for number in range(1000):
        gradient, weight = [random.randn(5).astype(np.float32)], float(random.randint(1, 9))
        assert eager.step(gradient, weight) == graph.step(gradient, weight)
        if number % 100 == 99:
            np.testing.assert_array_equal(graph.weights()[0], eager.weights()[0])


def test_in_a_graph_every_call_returns_a_tensor():
    with tf.Graph().as_default():
        accumulator = ga.Accumulator(sgd(), [v1.Variable([0.0], use_resource=True)], steps=1)
        calls = [
            accumulator.accumulate([tf.constant([1.0])]),
            accumulator.apply(),
            accumulator.reset(),
            accumulator.step([tf.constant([1.0])]),
            accumulator.gradients()[0],
            accumulator.micro_count,
        ]
        assert all(isinstance(each, tf.Tensor) for each in calls)


def test_state_stays_out_of_the_trainable_variables():
    with tf.Graph().as_default():
        variable = v1.Variable([0.0], use_resource=True)
        accumulator = ga.Accumulator(sgd(), [variable])
        accumulator.accumulate([tf.constant([1.0])])
        assert v1.trainable_variables() == [variable]
    assert accumulator.trainable_variables == ()


@pytest.fixture
def control_flow_v1():
    """What TF 1 has by default, and what TF 2 needs for reference variables inside tf.cond."""
    was_enabled = getattr(v1, "control_flow_v2_enabled", lambda: False)()
    getattr(v1, "disable_control_flow_v2", lambda: None)()  # TF 1.14 has no switch
    yield
    if was_enabled:
        v1.enable_control_flow_v2()


def test_reference_variables_in_a_graph(control_flow_v1):
    with tf.Graph().as_default():
        variable = v1.Variable([1.0, 2.0], use_resource=False)
        train = ga.Accumulator(v1.train.MomentumOptimizer(1.0, 0.5), [variable], steps=2).step(
            [tf.constant([1.0, 1.0])]
        )
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            assert [session.run(train) for _ in range(4)] == [False, True, False, True]
            np.testing.assert_array_equal(session.run(variable), [-1.5, -0.5])


# Side by side


def test_two_accumulators_with_an_optimizer_each():
    """As a GAN has: neither sees the other's gradients, cycles or counters."""
    ours, theirs = tf.Variable([0.0]), tf.Variable([0.0])
    generator = ga.Accumulator(
        v1.train.MomentumOptimizer(1.0, 0.5), [ours], steps=2, name="generator"
    )
    discriminator = ga.Accumulator(sgd(), [theirs], steps=3, name="discriminator")
    for number in range(1, 7):
        generator.step([tf.constant([1.0])])
        discriminator.step([tf.constant([float(number)])])
    np.testing.assert_allclose(ours.numpy(), [-(1 + 1.5 + 1.75)])
    np.testing.assert_allclose(theirs.numpy(), [-(2.0 + 5.0)])
    assert int(generator.update_count) == 3 and int(discriminator.update_count) == 2


def test_variables_shared_between_two_losses():
    shared, own = tf.Variable([0.0]), tf.Variable([0.0])
    first = ga.Accumulator(sgd(), [shared], name="first")
    second = ga.Accumulator(sgd(), [shared, own], name="second")
    first.accumulate([tf.constant([1.0])])
    second.accumulate([tf.constant([10.0]), tf.constant([5.0])])
    first.accumulate([tf.constant([3.0])])
    first.apply()
    second.apply()
    np.testing.assert_array_equal(shared.numpy(), [-12.0])
    np.testing.assert_array_equal(own.numpy(), [-5.0])


def test_rows_and_vectors_in_a_loop_inside_a_function():
    variable = tf.Variable(tf.zeros([64, 2]))
    accumulator = ga.Accumulator(sgd(), [variable], steps=2)

    @tf.function
    def train(rows):
        for i in tf.range(4):
            accumulator.step([tf.IndexedSlices(tf.ones([2, 2]), rows + i)])

    train(tf.constant([0, 40]))
    expected = np.zeros((64, 2))
    expected[[0, 1, 2, 3, 40, 41, 42, 43]] = -0.5
    np.testing.assert_array_equal(variable.numpy(), expected)
