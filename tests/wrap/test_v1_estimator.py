"""Wrapped tf.compat.v1.train optimizers in model functions of tf.estimator, on one replica and on
two."""

from __future__ import absolute_import, division, print_function

import os

import numpy as np
import pytest
import tensorflow as tf

import gradaccum_compat as ga
from support import v1_programs
from support.v1_programs import (
    BIG,
    IDS,
    MICRO,
    SIZE,
    STEPS,
    Program,
    X,
    Y,
    assert_same_weights,
    plain,
)

v1 = tf.compat.v1

pytestmark = pytest.mark.skipif(
    not hasattr(tf, "estimator"), reason="tf.estimator ended with TensorFlow 2.15"
)

REPLICAS = 2


def strategy():
    # On one device: reductions by collectives hang in a Session on CPUs of 2.15, whatever the
    #     optimizer.
    return tf.distribute.MirroredStrategy(
        ["/cpu:%d" % index for index in range(REPLICAS)],
        cross_device_ops=tf.distribute.ReductionToOneDevice(),
    )


def model_fn(features, labels, mode, params):
    loss = v1_programs.mean_loss(v1_programs.model(features["x"], features["ids"]), labels)
    if mode == tf.estimator.ModeKeys.EVAL:
        return tf.estimator.EstimatorSpec(mode, loss=loss)
    optimizer = ga.wrap_optimizer(
        v1_programs.OPTIMIZERS[params["optimizer"]](), steps=STEPS, **params["options"]
    )
    return tf.estimator.EstimatorSpec(
        mode,
        loss=loss,
        train_op=optimizer.minimize(loss, v1.train.get_global_step()),
        scaffold=v1.train.Scaffold(saver=ga.Saver(max_to_keep=None)) if params["saver"] else None,
    )


def input_fn(size, first=0):
    data = tf.data.Dataset.from_tensor_slices(({"x": X, "ids": IDS}, Y)).skip(first * SIZE)
    return data.batch(size, drop_remainder=True)


def estimator(folder, optimizer="adam", replicas=1, saver=False, warm_start_from=None, **options):
    config = tf.estimator.RunConfig(
        model_dir=str(folder),
        save_checkpoints_steps=1,
        keep_checkpoint_max=None,
        save_summary_steps=1,
        train_distribute=strategy() if replicas > 1 else None,
        session_config=v1.ConfigProto(device_count={"CPU": REPLICAS}),
    )
    params = {"optimizer": optimizer, "options": options, "saver": saver}
    return tf.estimator.Estimator(
        model_fn, config=config, params=params, warm_start_from=warm_start_from
    )


def weights(folder, name):
    reader = v1.train.NewCheckpointReader(os.path.join(str(folder), name))
    return [reader.get_tensor(each) for each in ("kernel", "table")]


@pytest.mark.parametrize("replicas", [1, REPLICAS])
@pytest.mark.parametrize("optimizer", ["momentum", "adam"])
def test_each_checkpoint_holds_the_weights_of_the_big_batches(tmpdir, optimizer, replicas):
    estimator(tmpdir, optimizer, replicas).train(lambda: input_fn(SIZE // replicas))
    for number, want in enumerate(plain(optimizer), 1):
        assert_same_weights(weights(tmpdir, "model.ckpt-%d" % number), want)
    assert not os.path.exists(str(tmpdir.join("model.ckpt-4.index")))


@pytest.mark.parametrize("replicas", [1, REPLICAS])
@pytest.mark.parametrize("counts, updates", [("updates", 3), ("micro_batches", 1)])
def test_max_steps_counts_what_the_global_step_counts(tmpdir, counts, updates, replicas):
    max_steps = 3 if counts == "updates" else STEPS
    estimator(tmpdir, "adam", replicas, global_step=counts).train(
        lambda: input_fn(SIZE // replicas).repeat(), max_steps=max_steps
    )
    assert_same_weights(weights(tmpdir, "model.ckpt-%d" % max_steps), plain("adam")[updates - 1])


@pytest.mark.parametrize("replicas", [1, REPLICAS])
@pytest.mark.parametrize("stopped_at", [2, 6])
def test_two_calls_of_train_are_one(tmpdir, stopped_at, replicas):
    """A checkpoint in mid-cycle holds the cycle, and the second call, which makes a new graph, goes
    on with it."""
    each = estimator(tmpdir, "adam", replicas, global_step="micro_batches")
    each.train(lambda: input_fn(SIZE // replicas), steps=stopped_at)
    each.train(lambda: input_fn(SIZE // replicas, stopped_at))
    assert_same_weights(weights(tmpdir, "model.ckpt-%d" % len(MICRO)), plain("adam")[-1])


def test_evaluation_has_no_accumulators(tmpdir):
    each = estimator(tmpdir)
    each.train(lambda: input_fn(SIZE))
    got = each.evaluate(lambda: input_fn(len(X)), steps=1)
    assert got["global_step"] == 3
    assert np.isfinite(got["loss"])


def old_checkpoint(folder, optimizer="adam"):
    program = Program(optimizer, options=None)
    program.run(BIG[:1])
    with program.graph.as_default():
        return v1.train.Saver().save(
            program.session, os.path.join(str(folder), "model.ckpt"), global_step=1
        )


@pytest.mark.parametrize("replicas", [1, REPLICAS])
def test_goes_on_from_an_old_checkpoint(tmpdir, replicas):
    old_checkpoint(tmpdir)
    estimator(tmpdir, "adam", replicas, saver=True).train(lambda: input_fn(SIZE // replicas, STEPS))
    for number, want in enumerate(plain("adam"), 1):
        assert_same_weights(weights(tmpdir, "model.ckpt-%d" % number), want)


def test_warm_start(tmpdir):
    path = old_checkpoint(tmpdir.mkdir("old"), "sgd")
    settings = tf.estimator.WarmStartSettings(path)
    estimator(tmpdir, "sgd", warm_start_from=settings).train(lambda: input_fn(SIZE, STEPS))
    assert_same_weights(weights(tmpdir, "model.ckpt-2"), plain("sgd")[-1])


def test_canned_estimators_take_a_wrapped_optimizer(tmpdir):
    """They are handed an optimizer that was made outside of the graphs that they train in."""
    ends = []
    for name, size in (("plain", STEPS * SIZE), ("accumulated", SIZE)):
        optimizer = v1.train.AdamOptimizer(0.1)
        if name == "accumulated":
            optimizer = ga.wrap_optimizer(optimizer, steps=STEPS)
        # Their loss is a sum over the batch before TF 2, unless it is told.
        canned = v1.estimator.LinearRegressor(
            [tf.feature_column.numeric_column("x", [3])],
            optimizer=optimizer,
            model_dir=str(tmpdir.join(name)),
            loss_reduction=v1.losses.Reduction.SUM_OVER_BATCH_SIZE,
        )
        for first in (0, STEPS):
            canned.train(
                lambda: input_fn(size, first)
                .map(lambda features, y: ({"x": features["x"]}, y))
                .take(STEPS * SIZE // size)
            )
        ends.append(
            [
                canned.get_variable_value(each)
                for each in canned.get_variable_names()
                if each.startswith("linear/") and "Adam" not in each
            ]
        )
        assert canned.get_variable_value("global_step") == 2
    assert_same_weights(*ends)
