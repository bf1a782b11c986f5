"""ExactCycles: fit in uneven micro-batches ends with the weights of fit with the big batch."""

from __future__ import absolute_import, division, print_function

import functools
import warnings

import numpy as np
import pytest
import tensorflow as tf

import gradaccum_compat as ga
from support import fitting

if not hasattr(tf.keras.Model, "train_step"):
    pytest.skip("ExactCycles is for TensorFlow 2.2 and later", allow_module_level=True)

# Six micro-batches of 4 and one of 2: a cycle of 4, and a partial one of 10 examples.
COUNT, MICRO, BIG, TIMES, IDS = 26, 4, 16, 6, 9
RANDOM = np.random.RandomState(0)
X, Y = RANDOM.randn(COUNT, 5).astype("f"), RANDOM.randn(COUNT, 2).astype("f")
WEIGHTS = RANDOM.rand(COUNT).astype("f") * 3
#: Token ids, of which zeros are padding: one to six tokens, so that micro-batches differ.
TOKENS = np.where(
    np.arange(TIMES) < RANDOM.randint(1, TIMES + 1, (COUNT, 1)),
    RANDOM.randint(1, IDS, (COUNT, 6)),
    0,
)
TOKEN_WEIGHTS = RANDOM.rand(COUNT, TIMES).astype("f") * 3
TAGS = RANDOM.randn(COUNT, TIMES, 1).astype("f")


def sgd(generation):
    return generation.optimizers.SGD(0.1, momentum=0.9)


def adam(generation):
    # An epsilon that does not blow up the rounding of small gradients.
    return generation.optimizers.Adam(0.05, epsilon=1e-3)


def data(*arrays):
    return tf.data.Dataset.from_tensor_slices(arrays)


def masked(generation, outputs=1):
    """A model of token ids whose predictions carry the embedding's mask."""
    layers = generation.keras.layers
    ids = layers.Input((TIMES,))
    vectors = layers.Embedding(IDS, 3, mask_zero=True, embeddings_initializer=fitting.initial)(ids)
    tags = [fitting.dense(generation, 1)(vectors) for _ in range(outputs)]
    return generation.keras.Model(ids, tags if outputs > 1 else tags[0])


def train(generation, make, size, examples, callbacks=(), build=fitting.sequential, **options):
    fit_options = {name: options.pop(name) for name in ("class_weight",) if name in options}
    model, _ = fitting.compiled(generation, make, build, **options)
    model.fit(examples.batch(size), epochs=2, verbose=0, callbacks=list(callbacks), **fit_options)
    return model


def check(generation, plain, examples=None, **options):
    """Trains with the big batch, and in micro-batches with ExactCycles; returns both models."""
    examples = data(X, Y) if examples is None else examples
    make = functools.partial(plain, generation)
    big = train(generation, make, BIG, examples, **options)
    exact = [ga.keras.ExactCycles()]
    small = train(
        generation, fitting.accumulating(make), MICRO, examples, callbacks=exact, **options
    )
    fitting.check_same(small.get_weights(), big.get_weights())
    return big, small


@pytest.mark.parametrize("plain", [sgd, adam])
def test_a_short_batch_and_a_partial_cycle(generation, plain):
    big, small = check(generation, plain)
    assert fitting.updates(small.optimizer) == fitting.updates(big.optimizer) == 4
    # Without it they differ.
    flush = [ga.keras.FlushPartialCycle()]
    make = fitting.accumulating(lambda: plain(generation))
    uneven = train(generation, make, MICRO, data(X, Y), callbacks=flush)
    assert np.abs(uneven.get_weights()[0] - big.get_weights()[0]).max() > 1e-3


def test_each_token_counts_once(generation):
    check(generation, sgd, data(TOKENS, TAGS), build=masked)


def test_each_token_counts_once_with_sample_weights(generation):
    check(generation, sgd, data(TOKENS, TAGS, TOKEN_WEIGHTS), build=masked)


def test_sample_weights(generation):
    check(generation, sgd, data(X, Y, WEIGHTS))


def test_class_weights(generation):
    labels = RANDOM.randint(0, 2, COUNT)
    loss = generation.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    check(generation, sgd, data(X, labels), loss=loss, class_weight={0: 1.0, 1: 7.0})


def having(reduction):
    """The generations whose losses have a reduction."""

    def has(generation):
        try:
            generation.keras.losses.MeanSquaredError(reduction=reduction)
        except (ValueError, TypeError):
            return False
        return True

    return pytest.mark.parametrize("generation", fitting.having(has, "no such reduction"))


@having("mean_with_sample_weight")
def test_a_loss_that_divides_by_the_sample_weights(generation):
    mean = generation.keras.losses.MeanSquaredError(reduction="mean_with_sample_weight")
    check(generation, sgd, data(X, Y, WEIGHTS), loss=mean)
    check(generation, sgd, data(TOKENS, TAGS, TOKEN_WEIGHTS), loss=mean, build=masked)


def test_targets_that_a_loss_ignores(generation):
    losses = generation.keras.losses
    try:
        loss = losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=0)
    except TypeError:
        pytest.skip("ignore_class came with TensorFlow 2.10")
    # Some micro-batches have one such target and others three.
    check(generation, sgd, data(X, np.where(WEIGHTS > 1, 1, 0)), loss=loss)


def test_several_steps_in_an_execution(generation):
    try:
        check(generation, adam, steps_per_execution=3)
    except TypeError:
        pytest.skip("compile() takes steps_per_execution from TensorFlow 2.4 on")


def test_an_eager_training_step(generation):
    check(generation, sgd, run_eagerly=True)


def test_compiled_by_xla(generation):
    try:
        check(generation, sgd, jit_compile=True)
    except (TypeError, ValueError):
        pytest.skip("compile() takes jit_compile from TensorFlow 2.8 on")


def test_a_loss_function_of_one_s_own_that_returns_a_mean(generation):
    check(generation, sgd, loss=lambda y, p: tf.reduce_mean(tf.square(y - p)))


def test_penalties_on_weights(generation):
    def build(generation):
        l2 = generation.keras.regularizers.L2(0.1)
        return fitting.linear(generation, kernel_regularizer=l2)

    check(generation, adam, build=build)


def test_a_loss_of_the_predictions_by_add_loss(generation):
    """A mean over examples, as Keras's activity regularizers are."""

    def build(generation):
        l2 = generation.keras.regularizers.L2(0.1)
        return fitting.linear(generation, activity_regularizer=l2)

    check(generation, sgd, build=build)


# Several outputs


def two_heads(generation):
    inputs = generation.keras.layers.Input((fitting.FEATURES,))
    hidden = fitting.dense(generation, 7, activation="tanh")(inputs)
    return generation.keras.Model(
        inputs, [fitting.dense(generation, units)(hidden) for units in (2, 3)]
    )


def test_two_outputs_with_losses_of_their_own(generation):
    examples = tf.data.Dataset.zip((data(X).map(lambda x: x), data(Y, Y[:, [0, 1, 0]])))
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "gradaccum_compat")
        check(
            generation,
            sgd,
            examples,
            build=two_heads,
            loss=["mse", "mae"],
            loss_weights=[1.0, 0.5],
        )


def test_two_outputs_with_one_mask(generation):
    examples = tf.data.Dataset.zip((data(TOKENS).map(lambda x: x), data(TAGS, TAGS)))
    check(generation, sgd, examples, build=lambda each: masked(each, 2), loss=["mse", "mae"])


@having("mean_with_sample_weight")
def test_outputs_that_are_means_over_different_numbers_are_said(generation):
    mean = generation.keras.losses.MeanSquaredError(reduction="mean_with_sample_weight")
    three = tf.data.Dataset.zip(
        (data(X).map(lambda x: x), data(Y, Y[:, [0, 1, 0]]), data(WEIGHTS, WEIGHTS))
    )
    make = fitting.accumulating(lambda: sgd(generation))
    with pytest.warns(UserWarning, match="2 losses may be means over different numbers"):
        train(
            generation,
            make,
            MICRO,
            three,
            [ga.keras.ExactCycles()],
            build=two_heads,
            loss=["mse", mean],
        )


# Training steps and losses of one's own


def model_with(generation, **methods):
    """A function that builds a model whose class has these methods."""

    def build(generation):
        inputs = generation.keras.layers.Input((fitting.FEATURES,))
        of_its_own = type("OfItsOwn", (generation.keras.Model,), methods)
        return of_its_own(inputs, fitting.dense(generation, fitting.TARGETS)(inputs))

    return build


def computing(loss_of):
    def train_step(self, batch):
        x, y = batch
        with tf.GradientTape() as tape:
            loss = loss_of(self, x, y, self(x, training=True))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {"loss": loss}

    return train_step


def test_a_training_step_that_calls_compute_loss(generation):
    if not hasattr(generation.keras.Model, "compute_loss"):
        pytest.skip("compute_loss came with TensorFlow 2.9")
    step = computing(lambda model, x, y, p: model.compute_loss(x=x, y=y, y_pred=p))
    check(generation, sgd, build=model_with(generation, train_step=step))


def test_a_training_step_that_calls_compiled_loss(generation):
    if fitting.is_keras_3(generation):
        pytest.skip("Keras 3 has compute_loss alone")
    step = computing(lambda model, x, y, p: model.compiled_loss(y, p))
    check(generation, sgd, build=model_with(generation, train_step=step))


def test_a_training_step_that_computes_two_losses_of_the_same_examples(generation):
    def loss_of(model, x, y, p):
        both = [(x, p), (-x, model(-x, training=True))]
        if hasattr(model, "compute_loss"):
            return sum(model.compute_loss(x=x, y=y, y_pred=p) for x, p in both)
        return sum(model.compiled_loss(y, p) for _, p in both)

    check(generation, sgd, build=model_with(generation, train_step=computing(loss_of)))


def test_a_compute_loss_of_one_s_own_is_a_mean_over_examples(generation):
    if not hasattr(generation.keras.Model, "compute_loss"):
        pytest.skip("compute_loss came with TensorFlow 2.9")

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, **_):
        return tf.reduce_mean(tf.square(y - y_pred))

    check(generation, sgd, build=model_with(generation, compute_loss=compute_loss))


def test_a_training_step_that_calls_neither_is_refused(generation):
    step = computing(lambda model, x, y, p: tf.reduce_mean(tf.square(y - p)))
    make = fitting.accumulating(lambda: sgd(generation))
    build = model_with(generation, train_step=step)
    with pytest.raises(Exception, match="calls neither compute_loss nor compiled_loss"):
        train(generation, make, MICRO, data(X, Y), [ga.keras.ExactCycles()], build=build)


# Sums


def test_sums_are_added_up(generation):
    total = generation.keras.losses.MeanSquaredError(reduction="sum")
    big = train(generation, lambda: generation.optimizers.SGD(0.01), BIG, data(X, Y), loss=total)
    make = fitting.accumulating(lambda: generation.optimizers.SGD(0.01), loss_reduction="none")
    small = train(generation, make, MICRO, data(X, Y), [ga.keras.ExactCycles()], loss=total)
    fitting.check_same(small.get_weights(), big.get_weights())


@pytest.mark.parametrize("reduction, options", [("sum", {}), ("mean", {"loss_reduction": "none"})])
def test_sums_and_means_that_do_not_fit_the_optimizer_are_refused(generation, reduction, options):
    loss = generation.keras.losses.MeanSquaredError
    loss = loss(reduction="sum") if reduction == "sum" else loss()
    make = fitting.accumulating(lambda: sgd(generation), **options)
    with pytest.raises(Exception, match="a loss that is a sum are added up, and means are weighed"):
        train(generation, make, MICRO, data(X, Y), [ga.keras.ExactCycles()], loss=loss)


# fit() around it


def test_the_validation_sees_the_partial_cycle_s_update(generation):
    seen = []
    for make, size, callbacks in (
        (lambda: sgd(generation), BIG, []),
        (fitting.accumulating(lambda: sgd(generation)), MICRO, [ga.keras.ExactCycles()]),
    ):
        model, _ = fitting.compiled(generation, make)
        history = model.fit(
            X, Y, size, shuffle=False, verbose=0, callbacks=callbacks, validation_data=(X, Y)
        )
        seen.append(history.history["val_loss"][0])
    np.testing.assert_allclose(seen[1], seen[0], rtol=1e-6)


def test_the_model_and_the_optimizer_are_left_as_they_were(generation):
    loss = generation.keras.losses.Loss.__call__
    make = fitting.accumulating(lambda: sgd(generation))
    model, optimizer = fitting.compiled(generation, make)
    model.fit(X, Y, MICRO, verbose=0)
    before = dict(model.__dict__)
    model.fit(X, Y, MICRO, verbose=0, callbacks=[ga.keras.ExactCycles()])
    assert generation.keras.losses.Loss.__call__ is loss
    assert "compute_loss" not in model.__dict__
    for name in ("train_function", "compiled_loss"):
        assert model.__dict__.get(name) is before.get(name)
    # A plain fit weighs each micro-batch alike again: 26 examples are 7 micro-batches.
    model.fit(X, Y, MICRO, verbose=0)
    assert float(fitting.number(optimizer.accumulator.total_weight)) == 7 % fitting.STEPS


class Stops(Exception):
    pass


def test_a_training_that_was_interrupted_is_followed_by_an_exact_one(generation):
    class Interrupts(generation.keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            raise Stops()

    make = functools.partial(sgd, generation)
    big = train(generation, make, BIG, data(X, Y))
    model, optimizer = fitting.compiled(generation, fitting.accumulating(make))
    start = model.get_weights()
    with pytest.raises(Stops):
        model.fit(X, Y, MICRO, verbose=0, callbacks=[ga.keras.ExactCycles(), Interrupts()])
    optimizer.accumulator.reset()
    model.set_weights(start)
    exact = ga.keras.ExactCycles()
    for _ in range(2):
        model.fit(X, Y, MICRO, shuffle=False, verbose=0, callbacks=[exact])
    fitting.check_same(model.get_weights(), big.get_weights())


def test_a_second_fit_builds_no_second_training_function(generation):
    traces = []

    def loss(y, p):
        traces.append(1)
        return tf.reduce_mean(tf.square(y - p), -1)

    make = fitting.accumulating(lambda: sgd(generation))
    model, _ = fitting.compiled(generation, make, loss=loss)
    exact = ga.keras.ExactCycles()
    model.fit(X, Y, MICRO, verbose=0, callbacks=[exact])
    first = len(traces)
    model.fit(X, Y, MICRO, verbose=0, callbacks=[exact])
    assert len(traces) == first


# Refusals


def test_a_plain_optimizer_is_refused_when_training_begins(generation):
    model, _ = fitting.compiled(generation, lambda: sgd(generation))
    for callback in (ga.keras.ExactCycles(), ga.keras.FlushPartialCycle()):
        start = model.get_weights()
        with pytest.raises(ga.errors.OptimizerError, match="wrap_optimizer"):
            model.fit(X, Y, MICRO, verbose=0, callbacks=[callback])
        np.testing.assert_array_equal(model.get_weights()[0], start[0])


@pytest.mark.parametrize("options", [{"weight": 2.0}, {"loss_reduction": "sum"}])
def test_options_that_weigh_otherwise_are_refused(generation, options):
    make = fitting.accumulating(lambda: sgd(generation), **options)
    model, _ = fitting.compiled(generation, make)
    with pytest.raises(ga.errors.OptionError, match=sorted(options)[0]):
        model.fit(X, Y, MICRO, verbose=0, callbacks=[ga.keras.ExactCycles()])
