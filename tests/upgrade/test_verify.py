"""verify compares the accumulated gradient with the big batch's on Keras models, and names what
makes them differ."""

from __future__ import absolute_import, division, print_function

import gc

import numpy as np
import pytest
import tensorflow as tf

import gradaccum_compat as ga

layers = tf.keras.layers
STEPS, EXAMPLES = 4, 16
_random = np.random.RandomState(3)
X = _random.randn(EXAMPLES, 8).astype(np.float32)
Y = _random.randint(0, 3, size=EXAMPLES).astype(np.int64)
BATCH = (X, Y)


@pytest.fixture(autouse=True, scope="module")
def _what_other_tests_left():
    """Hidden: verify goes over all objects of the process. Python 3.7 is the first that can."""
    gc.collect()
    getattr(gc, "freeze", int)()
    yield
    getattr(gc, "unfreeze", int)()


def model(*middle):
    built = tf.keras.Sequential(
        [layers.Dense(16, activation="tanh")] + list(middle) + [layers.Dense(3)]
    )
    built(X[:2], training=False)
    return built


def cross_entropies(built, batch):
    return tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=batch[1], logits=built(batch[0], training=True)
    )


def mean_loss(built):
    return lambda batch: tf.reduce_mean(cross_entropies(built, batch))


def sum_loss(built):
    return lambda batch: tf.reduce_sum(cross_entropies(built, batch))


def contrastive_loss(built):
    """Each example's embedding against those of all others in the batch, as SimCLR and CLIP have
    it."""

    def loss_of(batch):
        first, second = [
            tf.nn.l2_normalize(built(each, training=True), 1) for each in (batch, batch + 0.1)
        ]
        logits = 5.0 * tf.matmul(first, second, transpose_b=True)
        return tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(
                labels=tf.range(tf.shape(logits)[0]), logits=logits
            )
        )

    return loss_of


def verify(loss, built, batch=BATCH, steps=STEPS):
    return ga.upgrade.verify(loss(built), built.trainable_variables, batch, steps)


# What is named


def test_a_mean_loss_on_a_clean_model_is_equal():
    report = verify(mean_loss, model())
    assert report.equal and report.causes == []
    assert all(each.difference <= 1e-6 for each in report.variables)


def test_uneven_slices_of_a_clean_model_are_equal():
    assert verify(mean_loss, model(), steps=5).equal


def test_layer_normalization_is_equal():
    if not hasattr(layers, "LayerNormalization"):
        pytest.skip("Keras of TensorFlow 1.14 has no LayerNormalization")
    assert verify(mean_loss, model(layers.LayerNormalization())).equal


def test_a_summed_loss_is_named():
    report = verify(sum_loss, model())
    assert not report.equal and report.causes == ["sum-not-mean"]
    assert [each.ratio for each in report.variables] == pytest.approx([1 / STEPS] * 4, rel=1e-6)


def test_a_summed_loss_with_a_regularizer_is_named_alone():
    built = model()

    def loss(batch):
        return tf.reduce_sum(cross_entropies(built, batch)) + 0.5 * tf.nn.l2_loss(
            built.trainable_variables[0]
        )

    report = ga.upgrade.verify(loss, built.trainable_variables, BATCH, STEPS)
    assert report.causes == ["sum-not-mean"]


@pytest.mark.parametrize("constant", [EXAMPLES, 4096, tf.constant(float(EXAMPLES))], ids=str)
def test_a_loss_divided_by_the_global_batch_is_named(constant):
    built = model()

    def loss(batch):
        return tf.reduce_sum(cross_entropies(built, batch)) / tf.cast(constant, tf.float32)

    report = ga.upgrade.verify(loss, built.trainable_variables, BATCH, STEPS)
    assert report.causes == ["global-batch-scaled"]


def test_compute_average_loss_with_a_global_batch_size_is_named():
    built = model()

    def average(batch):
        return tf.nn.compute_average_loss(cross_entropies(built, batch), global_batch_size=EXAMPLES)

    if not hasattr(tf.nn, "compute_average_loss"):
        pytest.skip("TensorFlow 1.14 has no compute_average_loss")
    assert ga.upgrade.verify(average, built.trainable_variables, BATCH, STEPS).causes == [
        "global-batch-scaled"
    ]


def test_half_a_sum_of_squares_is_a_sum():
    built = model()

    def loss(x):
        return 0.5 * tf.reduce_sum(tf.square(built(x)))

    assert ga.upgrade.verify(loss, built.trainable_variables, X, STEPS).causes == ["sum-not-mean"]


def test_batch_normalization_is_named_with_its_averages():
    report = verify(mean_loss, model(layers.BatchNormalization()))
    assert not report.equal and report.causes == ["batch-normalization"]
    assert "moving_mean" in str(report)


def test_frozen_batch_normalization_is_equal():
    built = model(layers.BatchNormalization())

    def loss(batch):
        return tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(
                labels=batch[1], logits=built(batch[0], training=False)
            )
        )

    assert ga.upgrade.verify(loss, built.trainable_variables, BATCH, STEPS).equal


def test_batch_normalization_under_a_summed_loss_has_both_named():
    report = verify(sum_loss, model(layers.BatchNormalization()))
    assert sorted(report.causes) == ["batch-normalization", "sum-not-mean"]


def test_dropout_is_named():
    report = verify(mean_loss, model(layers.Dropout(0.5)))
    assert not report.equal and report.causes == ["randomness"]


def test_dropout_under_a_summed_loss_has_both_named():
    assert sorted(verify(sum_loss, model(layers.Dropout(0.1))).causes) == [
        "randomness",
        "sum-not-mean",
    ]


def test_dropout_and_batch_normalization_have_both_named():
    built = model(layers.BatchNormalization(), layers.Dropout(0.2))
    assert sorted(verify(mean_loss, built).causes) == ["batch-normalization", "randomness"]


def test_a_contrastive_loss_is_named():
    report = verify(contrastive_loss, model(), X)
    assert not report.equal and report.causes == ["batch-coupled-loss"]


def test_a_contrastive_loss_through_batch_normalization_has_both_named():
    report = verify(contrastive_loss, model(layers.BatchNormalization()), X)
    assert sorted(report.causes) == ["batch-coupled-loss", "batch-normalization"]


def test_a_mean_over_tokens_without_its_weight_is_coupled_and_with_it_is_equal():
    built = model()
    tokens = np.arange(1.0, EXAMPLES + 1, dtype=np.float32)

    def mean_over_tokens(batch):
        losses = cross_entropies(built, batch[:2])
        return tf.reduce_sum(losses * batch[2]) / tf.reduce_sum(batch[2])

    def weighed(batch):
        return (mean_over_tokens(batch), tf.reduce_sum(batch[2]))

    batch = BATCH + (tokens,)
    assert ga.upgrade.verify(mean_over_tokens, built.trainable_variables, batch, STEPS).causes == [
        "batch-coupled-loss"
    ]
    assert ga.upgrade.verify(weighed, built.trainable_variables, batch, STEPS).equal


def test_embeddings_and_variables_without_a_gradient_are_compared():
    table, unused = tf.Variable(tf.ones([5, 3])), tf.Variable(1.0)

    def loss(ids):
        return tf.reduce_mean(tf.square(tf.nn.embedding_lookup(table, ids)))

    report = ga.upgrade.verify(loss, [table, unused], Y, STEPS)
    assert report.equal and report.variables[1].big_norm == 0


def test_a_gradient_that_is_zero_but_for_rounding_is_equal():
    shift, built = tf.Variable(0.3), model()

    def loss(batch):
        return tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(
                labels=batch[1], logits=built(batch[0]) + shift
            )
        )

    assert ga.upgrade.verify(loss, built.trainable_variables + [shift], BATCH, STEPS).equal


def test_a_part_in_half_precision_is_equal_to_the_rounding_of_that():
    kernel = tf.Variable(_random.randn(8, 300).astype(np.float32))

    def product(x):
        return tf.matmul(tf.cast(x, tf.bfloat16), tf.cast(kernel, tf.bfloat16))

    def loss(x):
        return tf.reduce_mean(tf.square(tf.cast(product(x), tf.float32)))

    report = ga.upgrade.verify(loss, [kernel], X, STEPS)
    assert report.equal and 1e-4 < report.variables[0].difference < 1e-2


def test_a_gradient_of_nan_is_not_equal_and_has_no_cause():
    variable = tf.Variable(1.0)
    report = ga.upgrade.verify(
        lambda x: variable * tf.reduce_mean(x) * float("nan"), [variable], X, STEPS
    )
    assert not report.equal and report.causes == [] and "NaN" in str(report)


# What is said


def test_the_report_says_in_words_what_differs_and_what_to_do():
    said = str(verify(sum_loss, model()))
    assert said.startswith(
        "The accumulated gradient of 4 slices is not the big batch's: 4 of 4 variables differ."
    )
    assert 'loss_reduction="sum"' in said and "accumulated / big batch = 0.25" in said


def test_the_report_of_an_equal_gradient_gives_the_largest_difference():
    said = str(verify(mean_loss, model()))
    assert said.startswith(
        "The accumulated gradient of 4 slices is the big batch's, for each of 4 variables."
    )


# What stays as it was


def test_weights_and_moving_averages_stay_as_they_were():
    built = model(layers.BatchNormalization(), layers.Dropout(0.5))
    before = [each.copy() for each in built.get_weights()]
    verify(sum_loss, built)
    for value, expected in zip(built.get_weights(), before):
        np.testing.assert_array_equal(value, expected)


def test_averages_that_are_made_in_the_first_call_begin_as_they_are_made():
    built = tf.keras.Sequential([layers.Dense(4), layers.BatchNormalization(), layers.Dense(3)])
    ga.upgrade.verify(mean_loss(built), lambda: built.trainable_variables, BATCH, STEPS)
    mean, variance = built.layers[1].get_weights()[2:]
    np.testing.assert_array_equal(mean, np.zeros(4))
    np.testing.assert_array_equal(variance, np.ones(4))


def test_random_numbers_go_on_as_if_nothing_had_been():
    built, drawn = model(layers.Dropout(0.5)), []
    for also_verify in (False, True):
        tf.compat.v1.set_random_seed(5)
        np.random.seed(5)
        for each in built.variables + [each for layer in built.layers for each in layer.variables]:
            if "seed" in each.name:
                each.assign(tf.zeros_like(tf.convert_to_tensor(each)))
        if also_verify:
            verify(mean_loss, built)
        drawn.append(
            [
                tf.random.uniform([3]).numpy().tolist(),
                np.random.rand(),
                built(X, training=True).numpy()[0, 0],
            ]
        )
    assert drawn[0] == drawn[1]


def test_a_failing_loss_leaves_everything_as_it_was():
    variable = tf.Variable(1.0)

    def failing(x):
        variable.assign_add(1.0)
        raise ValueError("the user's own")

    with pytest.raises(ValueError, match="the user's own"):
        ga.upgrade.verify(failing, [variable], X, STEPS)
    assert variable.numpy() == 1.0


# What is refused


@pytest.mark.parametrize("steps", [0, 1, -1, 2.0, True, "auto", None])
def test_steps_that_are_no_number_of_slices_are_refused(steps):
    with pytest.raises(ga.errors.OptionError, match="steps must be an integer of at least 2"):
        verify(mean_loss, model(), steps=steps)


def test_more_slices_than_examples_are_refused():
    with pytest.raises(ga.errors.OptionError, match="Each slice has at least one example"):
        verify(mean_loss, model(), steps=EXAMPLES + 1)


def test_a_loss_in_place_of_its_function_is_refused():
    variable = tf.Variable(1.0)
    with pytest.raises(ga.errors.OptionError, match="loss_fn is a function"):
        ga.upgrade.verify(variable * 2.0, [variable], X, STEPS)


def test_variables_that_are_none_are_refused():
    with pytest.raises(ga.errors.VariablesError):
        ga.upgrade.verify(lambda x: tf.reduce_mean(x), [], X, STEPS)


def test_a_batch_of_different_heights_is_refused():
    with pytest.raises(ga.errors.OptionError, match="common first dimension"):
        verify(mean_loss, model(), (X, Y[:3]))


def test_a_call_in_a_graph_is_refused():
    with tf.Graph().as_default():
        with pytest.raises(ga.errors.EagerRequiredError, match="enable_eager_execution"):
            ga.upgrade.verify(lambda x: x, [], X, STEPS)
