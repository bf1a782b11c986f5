"""Each public name has an example in its docstring, and it runs."""

from __future__ import absolute_import, division, print_function

import ast
import doctest
import os

import numpy as np
import pytest
import tensorflow as tf

import gradaccum_compat as ga
from support import snippets

v1 = tf.compat.v1
PACKAGE = os.path.join(snippets.ROOT, "gradaccum_compat")
#: What an example needs that not every TensorFlow has.
NEEDS = {
    "CycleBatchNormalization": "tf.keras.Model.train_step",
    "ExactCycles": "tf.keras.Model.train_step",
    "Statistics": "tf.keras.Model.train_step",
}


def docstrings():
    """The docstrings of the package's functions and classes that have an example, by name."""
    found = {}
    for folder, _, names in os.walk(PACKAGE):
        for name in names:
            if name.endswith(".py"):
                path = os.path.relpath(os.path.join(folder, name), snippets.ROOT)
                for node in ast.walk(ast.parse(snippets.read(path.replace(os.sep, "/")))):
                    if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
                        text = ast.get_docstring(node) or ""
                        if ">>> " in text:
                            found[node.name] = text
    return found


DOCSTRINGS = docstrings()


def public_names():
    from gradaccum_compat import upgrade

    return set(ga._HOMES) | set(ga.keras.__all__) | set(upgrade.__all__) | {"sum_over_workers"}


def test_each_public_name_has_an_example():
    assert public_names() == set(DOCSTRINGS)


def surroundings():
    """What the examples take for given: a model, its data, a gradient tape."""
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, name="dense")])
    x, y = np.ones([128, 3], np.float32), np.ones([128, 1], np.float32)
    model.compile(ga.wrap_optimizer(tf.keras.optimizers.SGD(0.1), steps=2), loss="mse")
    model(x)  # which builds it
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(x) - y))
    return {
        "data": tf.data.Dataset.from_tensor_slices((x, y)).batch(8),
        "ga": ga,
        "loss": loss,
        "loss_fn": lambda batch: tf.reduce_mean(tf.square(model(batch[0]) - batch[1])),
        "model": model,
        "optimizer": tf.keras.optimizers.SGD(0.1),
        "tape": tape,
        "tf": tf,
        "train": train,
        "variables": model.trainable_variables,
        "x": x,
        "y": y,
    }


def train():
    weight = tf.Variable(1.0)
    optimizer = v1.train.GradientDescentOptimizer(0.1)
    ga.Accumulator(optimizer, [weight], steps=1).step([tf.constant(1.0)])


def save_a_checkpoint(folder):
    """Leaves old/model.ckpt-1000, which a TF 1 program wrote."""
    folder.mkdir("old")
    with tf.Graph().as_default(), v1.Session() as session:
        weights = [v1.get_variable("dense/" + name, shape) for name, shape in SHAPES]
        step = v1.train.get_or_create_global_step()
        v1.train.GradientDescentOptimizer(0.1).minimize(
            tf.add_n([tf.reduce_sum(each) for each in weights]), global_step=step
        )
        session.run(v1.global_variables_initializer())
        v1.train.Saver().save(session, str(folder.join("old", "model.ckpt")), global_step=1000)


SHAPES = [("kernel", [3, 1]), ("bias", [1])]


def record(folder, *names):
    for name in names:
        with ga.upgrade.record(str(folder.join(name))):
            train()


#: What some examples find.
BEFORE = {
    "carry_over": save_a_checkpoint,
    "compare": lambda folder: record(folder, "old", "new"),
    "record": lambda folder: record(folder, "old"),
}


@pytest.mark.parametrize("name", sorted(DOCSTRINGS))
def test_an_example_runs(name, tmpdir):
    if name == "sum_over_workers":
        pytest.importorskip("horovod.tensorflow")
    if name in NEEDS and not snippets.is_there(NEEDS[name]):
        pytest.skip("this TensorFlow has no " + NEEDS[name])
    names = surroundings()
    if name in BEFORE:
        BEFORE[name](tmpdir)
    if name == "Saver":  # for TF 1 graphs
        with tf.Graph().as_default():
            v1.get_variable("weight", [])
            return run(name, names, tmpdir)
    return run(name, names, tmpdir)


def run(name, names, folder):
    for example in doctest.DocTestParser().get_examples(DOCSTRINGS[name]):
        # Not by chdir: Python 2 finds this package by a path that is relative to the old one.
        source = example.source
        for each in ("old", "new"):
            source = source.replace('"' + each, '"{}/{}'.format(folder, each))
        exec(compile(source, name, "single"), names)
