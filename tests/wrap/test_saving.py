"""Models with a wrapped optimizer, saved in mid-cycle: what is loaded goes on there, and ends with
the same weights."""

from __future__ import absolute_import, division, print_function

import copy
import json
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import six
import tensorflow as tf

import gradaccum_compat as ga
from support import fitting, optimizers, processes

STEPS, SIZE = 4, 4
RANDOM = np.random.RandomState(0)
X, Y = RANDOM.randn(12 * SIZE, 3).astype(np.float32), RANDOM.randn(12 * SIZE, 1).astype(np.float32)
START = [RANDOM.randn(3, 1).astype(np.float32), np.zeros(1, np.float32)]
#: TF 1.14 loads a name, and Keras 3 an object.
LOSS = tf.keras.losses.MeanSquaredError() if hasattr(tf.keras, "Variable") else "mse"
#: Keras 3 leaves the optimizer out of h5 files, with a warning. Up to 2.11 a file named .keras is
#: an h5 file.
FORMATS = ["keras"] if hasattr(tf.keras, "Variable") else ["h5", "keras"]


def new_model(optimizer=None):
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(3,))])
    optimizer = optimizer or ga.wrap_optimizer(tf.keras.optimizers.Adam(0.05), steps=STEPS)
    model.compile(optimizer=optimizer, loss=LOSS)
    model.set_weights(START)
    return model


def train(model, begin, end):
    for number in range(begin, end):
        model.train_on_batch(X[SIZE * number :][:SIZE], Y[SIZE * number :][:SIZE])


def assert_ends_alike(model):
    """Where the saved one was in the second micro-batch of its second cycle."""
    whole = new_model()
    train(whole, 0, 12)
    train(model, STEPS + 2, 12)
    for expected, actual in zip(whole.get_weights(), model.get_weights()):
        np.testing.assert_array_equal(expected, actual)
    assert int(model.optimizer.iterations.numpy()) == 3


def saved_in_mid_cycle(path):
    model = new_model()
    train(model, 0, STEPS + 2)
    model.save(path)
    return path


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_model(tmp_path, suffix):
    loaded = tf.keras.models.load_model(saved_in_mid_cycle(str(tmp_path / ("model." + suffix))))
    assert isinstance(loaded.optimizer, tf.keras.optimizers.Adam)
    assert_ends_alike(loaded)


@pytest.mark.skipif(
    not hasattr(tf.keras.Model, "train_step") or hasattr(tf.keras, "Variable"),
    reason="model.save writes SavedModels from TF 2.2 on, and no longer with Keras 3",
)
def test_a_saved_model_has_the_optimizer_without_its_state(tmp_path):
    """Keras leaves the variables of any optimizer out: it begins afresh, in a fresh cycle."""
    loaded = tf.keras.models.load_model(saved_in_mid_cycle(str(tmp_path / "model")))
    assert isinstance(loaded.optimizer, tf.keras.optimizers.Adam)
    train(loaded, 0, STEPS - 1)
    assert int(loaded.optimizer.iterations.numpy()) == 0
    train(loaded, STEPS - 1, STEPS)
    assert int(loaded.optimizer.iterations.numpy()) == 1


@pytest.mark.parametrize("suffix", FORMATS[:1])
@pytest.mark.parametrize(
    "imports",
    [
        "import tensorflow as tf; tf.keras.Model; import gradaccum_compat",
        "import gradaccum_compat.keras, tensorflow as tf",
    ],
    ids=["Keras first", "the line in the docs"],
)
def test_a_program_that_loads_a_model(tmp_path, suffix, imports):
    path = saved_in_mid_cycle(str(tmp_path / ("model." + suffix)))
    program = textwrap.dedent("""
        {}
        optimizer = tf.keras.models.load_model({!r}).optimizer
        print(type(optimizer).__name__, isinstance(optimizer, tf.keras.optimizers.Adam))
    """).format(imports, path)
    assert run(program).split()[-2:] == ["AccumulatedOptimizer", "True"]


def run(program):
    return subprocess.check_output(
        [sys.executable, "-c", "from __future__ import print_function\n" + program],
        env=processes.environment(TF_CPP_MIN_LOG_LEVEL="3"),
        universal_newlines=True,
    )


@pytest.mark.skipif(
    not hasattr(tf.keras, "saving") or hasattr(tf.keras, "Variable"),
    reason="from TF 2.12 on a .keras file says where its classes are, which Keras 3 does not ask",
)
def test_a_keras_file_says_where_the_class_is(tmp_path):
    path = saved_in_mid_cycle(str(tmp_path / "model.keras"))
    program = (
        "import tensorflow as tf; m = tf.keras.models.load_model({!r}); print(type(m.optimizer))"
    )
    assert "AccumulatedOptimizer" in run(program.format(path))


def test_importing_the_package_changes_nothing_outside():
    program = """
import sys
before = list(sys.meta_path), list(sys.path_hooks), set(sys.modules)
import gradaccum_compat
print(before[:2] == (sys.meta_path, sys.path_hooks), [
    name for name in set(sys.modules) - before[2] if name.startswith(("keras", "tensorflow"))])
"""
    assert run(program).split() == ["True", "[]"]


#: In 2.9 and 2.10 `legacy` holds the same optimizers.
FAMILIES = [each.family for each in fitting.GENERATIONS if each.keras is tf.keras]


def makers():
    """Each built-in optimizer of tf.keras, and of its legacy namespace where that has others."""
    return [
        (family, name)
        for family, name in optimizers.ALL
        if family in FAMILIES and name != "MultiOptimizer"
    ]


def configurable(plain):
    try:
        plain.get_config()
    except AttributeError:  # Ftrl's on TF 1.14
        return False
    return True


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("family, name", makers())
def test_every_optimizer(tmp_path, family, name, suffix):
    plain = optimizers.FAMILIES[family][name]()
    if not configurable(plain):
        pytest.skip("the plain one has no configuration")
    model = new_model(ga.wrap_optimizer(plain, steps=STEPS))
    train(model, 0, 1)
    path = str(tmp_path / ("model." + suffix))
    model.save(path)
    loaded = tf.keras.models.load_model(path)
    assert isinstance(ga.unwrap_optimizer(loaded.optimizer), type(plain))
    if family == "keras.legacy" and suffix == "keras":
        return  # Keras leaves their variables out of .keras files, accumulating or not
    for each in (model, loaded):
        train(each, 1, STEPS)
    for expected, actual in zip(model.get_weights(), loaded.get_weights()):
        np.testing.assert_array_equal(expected, actual)
    assert not np.array_equal(loaded.get_weights()[0], START[0])


def test_a_checkpoint(tmp_path):
    model = new_model()
    train(model, 0, STEPS + 2)
    path = tf.train.Checkpoint(model=model, optimizer=model.optimizer).save(
        str(tmp_path / "checkpoint")
    )
    other = new_model()
    checkpoint = tf.train.Checkpoint(model=other, optimizer=other.optimizer)
    status = checkpoint.restore(path)
    assert_ends_alike(other)
    status.assert_consumed()


def test_save_weights_leaves_the_cycle_alone(tmp_path):
    """They hold the model's weights; the cycle goes on in the one that saved them."""
    model = new_model()
    train(model, 0, STEPS + 2)
    model.save_weights(
        str(tmp_path / ("w.weights.h5" if hasattr(tf.keras, "Variable") else "w.h5"))
    )
    assert_ends_alike(model)


@pytest.mark.skipif(
    not hasattr(tf.keras.callbacks, "BackupAndRestore"), reason="this callback came with TF 2.8"
)
def test_backup_and_restore(tmp_path):
    class Interrupted(Exception):
        pass

    def interrupt(epoch, logs):
        if epoch == 1:
            raise Interrupted()

    def fit(model, *callbacks):
        model.fit(
            X, Y, batch_size=SIZE, epochs=2, shuffle=False, verbose=0, callbacks=list(callbacks)
        )

    whole = new_model(
        ga.wrap_optimizer(tf.keras.optimizers.Adam(0.05), steps=5)
    )  # an epoch ends in mid-cycle
    fit(whole)
    first = new_model(ga.wrap_optimizer(tf.keras.optimizers.Adam(0.05), steps=5))
    with pytest.raises(Interrupted):
        fit(
            first,
            tf.keras.callbacks.BackupAndRestore(str(tmp_path / "backup")),
            tf.keras.callbacks.LambdaCallback(on_epoch_begin=interrupt),
        )
    second = new_model(ga.wrap_optimizer(tf.keras.optimizers.Adam(0.05), steps=5))
    fit(second, tf.keras.callbacks.BackupAndRestore(str(tmp_path / "backup")))
    for expected, actual in zip(whole.get_weights(), second.get_weights()):
        np.testing.assert_array_equal(expected, actual)


def test_the_configuration_makes_the_same_optimizer():
    options = dict(steps=3, loss_reduction="none", clip_norm=0.5, dtype="float64", weight=2.0)
    optimizer = ga.wrap_optimizer(tf.keras.optimizers.SGD(0.25, momentum=0.5), **options)
    twin = type(optimizer).from_config(optimizer.get_config())
    assert (
        isinstance(twin, tf.keras.optimizers.SGD)
        and float(tf.keras.backend.get_value(twin.learning_rate)) == 0.25
    )
    configuration = twin.get_config()["accumulation"]
    assert {name: configuration[name] for name in options} == options


@pytest.mark.parametrize("how", ["as it is", "copied", "as Keras saves it"])
def test_a_configuration_that_is_passed_on(how):
    config = ga.wrap_optimizer(tf.keras.optimizers.SGD(0.25), steps=3).get_config()
    passed = {
        "as it is": lambda: config,
        "copied": lambda: copy.deepcopy(config).copy(),
        "as Keras saves it": lambda: json.loads(json.dumps(dict(config.items()), default=float)),
    }[how]()
    optimizer = type(ga.wrap_optimizer(tf.keras.optimizers.SGD(), steps=2)).from_config(passed)
    assert optimizer.accumulator is not None and optimizer.get_config() == config
    assert optimizer.get_config()["accumulation"] == config["accumulation"]


@pytest.mark.skipif(six.PY2, reason="there its configuration holds how it accumulates as a keyword")
def test_the_plain_class_makes_a_plain_optimizer_of_the_configuration():
    plain = tf.keras.optimizers.SGD(0.25, momentum=0.5)
    config = ga.wrap_optimizer(plain, steps=3).get_config()
    made = type(plain).from_config(config)
    assert type(made) is type(plain) and made.get_config() == plain.get_config()


def test_a_configuration_of_a_plain_optimizer_is_refused():
    wrapped = ga.wrap_optimizer(tf.keras.optimizers.SGD(), steps=2)
    with pytest.raises(ga.errors.OptionError, match="accumulation"):
        type(wrapped).from_config(tf.keras.optimizers.SGD().get_config())


@pytest.mark.skipif(
    not hasattr(getattr(tf.keras, "__internal__", None), "optimizers")
    or not hasattr(tf.keras.__internal__.optimizers, "convert_to_legacy_optimizer"),
    reason="convert_to_legacy_optimizer is of 2.11 to 2.15",
)
def test_converted_to_a_legacy_optimizer():
    wrapped = ga.wrap_optimizer(tf.keras.optimizers.Adam(0.5), steps=3)
    legacy = tf.keras.__internal__.optimizers.convert_to_legacy_optimizer(wrapped)
    assert isinstance(ga.unwrap_optimizer(legacy), tf.keras.optimizers.legacy.Adam)
    assert legacy.get_config()["accumulation"]["steps"] == 3


def test_unwrapped_it_is_the_plain_optimizer_with_its_state():
    model = new_model()
    train(model, 0, STEPS)
    plain = ga.unwrap_optimizer(model.optimizer)
    assert type(plain) is tf.keras.optimizers.Adam and int(plain.iterations.numpy()) == 1
    before = model.get_weights()[0]
    variables = model.trainable_variables
    plain.apply_gradients([(tf.ones_like(each), each) for each in variables])
    assert (model.get_weights()[0] != before).all() and int(plain.iterations.numpy()) == 2
    with pytest.raises(ga.errors.OptimizerError):
        ga.unwrap_optimizer(plain)
