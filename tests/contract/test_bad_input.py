"""What may not be handed in: a typed error that names the rule, what came in and the remedy, and no
state changed."""

from __future__ import absolute_import, division, print_function

import numpy as np
import pytest
import tensorflow as tf

import gradaccum_compat as ga
from support import modes

v1, errors = tf.compat.v1, ga.errors
GOOD = [np.array([1.0, 2.0], np.float32), np.ones((4, 3), np.float32)]


def variables():
    return [tf.Variable([0.0, 0.0]), tf.Variable(tf.zeros([4, 3]))]


def make(**options):
    return ga.Accumulator(modes.sgd(), variables(), **options)


def explains(caught, *words):
    error = caught.value
    assert error.rule and error.received and error.remedy
    for word in words:
        assert word in str(error)


# The constructor


@pytest.mark.parametrize(
    "options",
    [
        dict(steps=0),
        dict(steps=-1),
        dict(steps=2.0),
        dict(steps="4"),
        dict(steps=True),
        dict(loss_reduction="average"),
        dict(loss_reduction=None),
        dict(nonfinite="ignore"),
        dict(nonfinite=True),
        dict(clip_norm=0),
        dict(clip_norm=-1.0),
        dict(clip_norm=float("nan")),
        dict(clip_norm="1"),
        dict(clip_norm=True),
        dict(clip_norm=float("inf")),
        dict(dtype="float16"),
        dict(dtype="bfloat16"),
        dict(dtype="int32"),
        dict(dtype="no type"),
        dict(dtype=None),
        dict(reducer=3),
    ],
    ids=repr,
)
def test_options(options):
    with pytest.raises(errors.OptionError) as caught:
        make(**options)
    explains(caught, list(options)[0])


@pytest.mark.parametrize("optimizer", [None, "adam", object(), v1.train.AdamOptimizer])
def test_an_optimizer_has_apply_gradients(optimizer):
    with pytest.raises(errors.OptimizerError) as caught:
        ga.Accumulator(optimizer, variables())
    explains(caught, "apply_gradients")


def test_an_optimizer_that_horovod_made_is_refused():
    """Its class has the wrapped optimizer's name; the real one is tried in tests/with_horovod."""
    made = type("SGD", (v1.train.GradientDescentOptimizer,), {"__module__": "horovod._keras"})
    with pytest.raises(errors.OptimizerError) as caught:
        ga.Accumulator(made(1.0), variables())
    explains(caught, "Horovod", "sum_over_workers")


def _twice():
    variable = tf.Variable([0.0])
    return [variable, tf.Variable([1.0]), variable]


@pytest.mark.parametrize(
    "make_variables, word",
    [
        (lambda: [], "non-empty"),
        (lambda: tf.Variable([0.0]), "list or tuple"),
        (lambda: {"a": tf.Variable([0.0])}, "list or tuple"),
        (lambda: None, "list or tuple"),
        (_twice, "positions 0 and 2"),
        (lambda: [tf.Variable([0.0], trainable=False)], "not trainable"),
        (lambda: [tf.constant([0.0])], "not a variable"),
        (lambda: [np.zeros(3)], "not a variable"),
        (lambda: [tf.Variable([0.0]), "v"], "position 1"),
        (lambda: [tf.Variable([1, 2])], "int32"),
        (lambda: [tf.Variable(tf.complex(0.0, 1.0))], "complex64"),
    ],
)
def test_variables(make_variables, word):
    value = make_variables()
    with pytest.raises(errors.VariablesError) as caught:
        ga.Accumulator(modes.sgd(), value)
    explains(caught, word)
    if not callable(value):
        late = ga.Accumulator(modes.sgd(), lambda: value)
        with pytest.raises(errors.VariablesError):
            late.apply()


def test_a_model_that_is_not_built_yet_is_told_about_callables():
    with pytest.raises(errors.VariablesError) as caught:
        ga.Accumulator(modes.sgd(), [])
    explains(caught, "lambda: model.trainable_variables")


def test_step_needs_steps():
    with pytest.raises(errors.OptionError) as caught:
        make().step([tf.zeros([2]), None])
    explains(caught, "steps=4")


# Gradients


def two():
    return tf.zeros([2])


def table():
    return tf.zeros([4, 3])


@pytest.mark.parametrize(
    "bad, kind",
    [
        (lambda: [two()], errors.GradientsError),
        (lambda: [two(), table(), two()], errors.GradientsError),
        (lambda: [], errors.GradientsError),
        (lambda: two(), errors.GradientTypeError),
        (lambda: None, errors.GradientTypeError),
        (lambda: iter([two(), table()]), errors.GradientTypeError),
        (lambda: [tf.zeros([3]), table()], errors.GradientsError),
        (lambda: [tf.zeros([]), table()], errors.GradientsError),
        (lambda: [two(), tf.zeros([3, 4])], errors.GradientsError),
        (lambda: [tf.zeros([2], tf.int32), table()], errors.GradientTypeError),
        (lambda: [tf.zeros([2], tf.complex64), table()], errors.GradientTypeError),
        (lambda: [tf.constant(["a", "b"]), table()], errors.GradientTypeError),
        (lambda: [np.zeros(2, int), table()], errors.GradientTypeError),
        (lambda: ["gradient", table()], errors.GradientTypeError),
        (lambda: [1.0, table()], errors.GradientTypeError),
        (lambda: [object(), table()], errors.GradientTypeError),
        (lambda: [(two(), None), table()], errors.GradientTypeError),
        (lambda: [tf.SparseTensor([[0]], [1.0], [2]), table()], errors.GradientTypeError),
        (lambda: [two(), tf.IndexedSlices(tf.zeros([1, 2]), [0])], errors.GradientsError),
        (lambda: [two(), tf.IndexedSlices(tf.zeros([2, 3]), [0])], errors.GradientsError),
        (
            lambda: [two(), tf.IndexedSlices(tf.zeros([1, 3], tf.int32), [0])],
            errors.GradientTypeError,
        ),
        (lambda: [two(), tf.IndexedSlices(tf.zeros([1, 3]), [0.0])], errors.GradientTypeError),
        (lambda: [two(), tf.IndexedSlices(tf.zeros([1, 3]), [4])], errors.GradientsError),
        (lambda: [two(), tf.IndexedSlices(tf.zeros([1, 3]), [-1])], errors.GradientsError),
    ],
)
@pytest.mark.parametrize("call", ["accumulate", "step"])
def test_gradients(bad, kind, call):
    accumulator = make(steps=2)
    accumulator.accumulate([tf.constant(each) for each in GOOD])
    with pytest.raises(kind) as caught:
        getattr(accumulator, call)(bad())
    explains(caught)
    assert int(accumulator.micro_count) == 1
    for got, want in zip(accumulator.gradients(), GOOD):
        np.testing.assert_array_equal(got.numpy(), want)


def test_slices_for_a_scalar_variable():
    accumulator = ga.Accumulator(modes.sgd(), [tf.Variable(0.0)])
    with pytest.raises(errors.GradientsError) as caught:
        accumulator.accumulate([tf.IndexedSlices(tf.zeros([1]), [0])])
    explains(caught, "scalar")


def test_a_shape_that_only_the_device_knows():
    accumulator = make()
    accumulate = tf.function(
        accumulator.accumulate,
        input_signature=[[tf.TensorSpec(None, tf.float32), tf.TensorSpec(None, tf.float32)]],
    )
    with pytest.raises(tf.errors.InvalidArgumentError):
        accumulate([tf.zeros([5]), table()])
    assert int(accumulator.micro_count) == 0
    accumulate([tf.constant(each) for each in GOOD])
    assert int(accumulator.micro_count) == 1


# Weights

BAD_WEIGHTS = [-1, -0.5, float("nan"), float("inf"), -float("inf")]


@pytest.mark.parametrize(
    "weight", BAD_WEIGHTS + [None, "1", [1.0], True, 1j, (1,), np.ones(1), np.array(-1.0)], ids=repr
)
def test_a_weight_that_is_none(weight):
    accumulator = make()
    with pytest.raises(errors.WeightError) as caught:
        accumulator.accumulate([two(), table()], weight)
    explains(caught, "tf.shape(x)[0]")
    assert int(accumulator.micro_count) == 0


@pytest.mark.parametrize(
    "weight",
    [
        lambda: tf.constant([1.0]),
        lambda: tf.constant("a"),
        lambda: tf.constant(True),
        lambda: tf.constant(1j),
        lambda: tf.zeros([1, 1]),
    ],
)
def test_a_weight_tensor_of_a_wrong_kind(weight):
    with pytest.raises(errors.WeightError):
        make().accumulate([two(), table()], weight())


@pytest.mark.parametrize("weight", BAD_WEIGHTS)
@pytest.mark.parametrize("call", ["accumulate", "step"])
def test_a_weight_tensor_is_checked_on_the_device(mode, weight, call):
    run = mode([np.zeros(2, np.float32)], steps=2)
    run.accumulate([GOOD[0]], 2.0)
    for dtype in (np.float32, np.float64):
        with pytest.raises((errors.WeightError, tf.errors.InvalidArgumentError)) as caught:
            getattr(run, call)([5 * GOOD[0]], dtype(weight))
        assert "weight" in str(caught.value).lower()
        assert mode is not modes.Eager or isinstance(caught.value, errors.WeightError)
    assert run.counter("micro_count") == 1 and run.counter("total_weight") == 2
    np.testing.assert_array_equal(run.gradients()[0], GOOD[0])


def test_a_weight_tensor_in_eager_code_is_a_typed_error():
    for weight in BAD_WEIGHTS:
        with pytest.raises(errors.WeightError) as caught:
            make().accumulate([two(), table()], tf.constant(float(weight)))
        explains(caught)


# Places


def test_another_graph():
    accumulator = make()
    with tf.Graph().as_default():
        for call in (
            accumulator.apply,
            accumulator.reset,
            accumulator.gradients,
            lambda: accumulator.micro_count,
            lambda: accumulator.accumulate([two(), table()]),
        ):
            with pytest.raises(errors.ContextError) as caught:
                call()
            explains(caught, "eager execution", "a tf.Graph")


def test_a_graph_s_accumulator_outside_of_it():
    with tf.Graph().as_default():
        accumulator = ga.Accumulator(modes.sgd(), [v1.Variable([0.0], use_resource=True)])
    with pytest.raises(errors.ContextError):
        accumulator.apply()
    with tf.Graph().as_default():
        with pytest.raises(errors.ContextError):
            accumulator.apply()


def test_another_strategy():
    accumulator = make()
    with tf.distribute.OneDeviceStrategy("/cpu:0").scope():
        with pytest.raises(errors.ContextError) as caught:
            accumulator.accumulate([two(), table()])
    explains(caught, "OneDeviceStrategy", "scope")


def test_errors_are_of_one_family():
    with pytest.raises(errors.GradAccumError):
        make(steps=0)
    assert issubclass(errors.OptionError, ValueError) and issubclass(
        errors.OptimizerError, TypeError
    )
    assert issubclass(errors.GradientTypeError, TypeError) and issubclass(
        errors.ContextError, RuntimeError
    )


def test_errors_come_through_autograph():
    """With their type from TF 2.0 on; AutoGraph of TF 1 knows the types that are built in and no
    other."""
    accumulator, kind = make(), errors.GradientsError if ga.backend().name == "tf2" else Exception

    @tf.function
    def train(gradient):
        accumulator.accumulate([gradient])

    with pytest.raises(kind) as caught:
        train(two())
    assert "1 gradients for 2 variables" in str(caught.value)
