"""Canned Estimators: what their loss is reduced by, and what their global step counts."""

from __future__ import absolute_import, division, print_function

import pytest
import tensorflow as tf

import gradaccum_compat as ga
from support.v1_programs import SIZE, STEPS, X, Y, assert_same_weights

v1 = tf.compat.v1

pytestmark = pytest.mark.skipif(
    not hasattr(tf, "estimator"), reason="tf.estimator ended with TensorFlow 2.15"
)

UPDATES = len(X) // (STEPS * SIZE)


def canned(module, family, make, folder):
    """A classifier of the module, such as DNNClassifier of tf.compat.v1.estimator."""
    columns = [tf.feature_column.numeric_column("x", [3])]
    arguments = {
        "Baseline": lambda: {"optimizer": make()},
        "Linear": lambda: {"feature_columns": columns, "optimizer": make()},
        "DNN": lambda: {"hidden_units": [4], "feature_columns": columns, "optimizer": make()},
        "DNNLinearCombined": lambda: {
            "linear_feature_columns": columns,
            "linear_optimizer": make(),
            "dnn_feature_columns": columns,
            "dnn_optimizer": make(),
            "dnn_hidden_units": [4],
        },
    }[family]()
    config = tf.estimator.RunConfig(model_dir=str(folder), tf_random_seed=1)
    return getattr(module, family + "Classifier")(config=config, **arguments)


def input_fn(size):
    labels = (Y > 0).astype("int32")
    return tf.data.Dataset.from_tensor_slices(({"x": X}, labels)).batch(size)


def trained(module, family, make, folder, size):
    """The weights and the global step after one pass over the data."""
    estimator = canned(module, family, make, folder)
    estimator.train(lambda: input_fn(size))
    weights = [
        estimator.get_variable_value(each)
        for each in estimator.get_variable_names()
        if each.startswith(("baseline/", "linear/", "dnn/")) and "Momentum" not in each
    ]
    return weights, estimator.get_variable_value("global_step")


def momentum():
    return v1.train.MomentumOptimizer(0.001, 0.9)


@pytest.mark.parametrize("family", ["Baseline", "DNN", "DNNLinearCombined", "Linear"])
def test_those_of_v1_add_up_the_loss_over_the_batch(tmpdir, family):
    """So the sum of the micro-batches' gradients is that of the big batch. DNNLinearCombined
    increments the global step for each batch, whatever its optimizers do."""

    def wrapped():
        return ga.wrap_optimizer(momentum(), steps=STEPS, loss_reduction="none")

    want = trained(v1.estimator, family, momentum, tmpdir.join("plain"), STEPS * SIZE)
    got = trained(v1.estimator, family, wrapped, tmpdir.join("accumulated"), SIZE)
    assert_same_weights(got[0], want[0])
    counts = UPDATES * STEPS if family == "DNNLinearCombined" else UPDATES
    assert (want[1], got[1]) == (UPDATES, counts)


def descent():
    return getattr(tf.keras.optimizers, "legacy", tf.keras.optimizers).SGD(0.1, momentum=0.9)


def wrapped_descent():
    return ga.wrap_optimizer(descent(), steps=STEPS)


@pytest.mark.skipif(ga.backend().name != "tf2", reason="TF 1's take optimizers of tf.train alone")
@pytest.mark.parametrize(
    "family, make",
    [
        ("DNN", lambda: wrapped_descent),  # called in the graph, by each call of train()
        ("DNN", wrapped_descent),  # of use in one call of train(), as the plain optimizer is
        ("DNNLinearCombined", lambda: wrapped_descent),
    ],
    ids=["function", "optimizer", "two functions"],
)
def test_those_of_tf_2_take_the_mean_and_count_updates(tmpdir, family, make):
    want = trained(tf.estimator, family, descent, tmpdir.join("plain"), STEPS * SIZE)
    got = trained(tf.estimator, family, make, tmpdir.join("accumulated"), SIZE)
    assert_same_weights(got[0], want[0])
    assert want[1] == got[1] == UPDATES
