"""Causes planted in real trainings, v1's optimizer against Keras's, and clean pairs."""

from __future__ import absolute_import, division, print_function

import json
import subprocess
import sys

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

import gradaccum_compat as ga  # noqa: E402
from gradaccum_compat import upgrade  # noqa: E402
from gradaccum_compat.upgrade import _slots, comparing  # noqa: E402
from support import compared_training, modes, processes  # noqa: E402

#: Where an optimizer of one side has what another of the same rule has too.
SGD = (dict(optimizer="v1.GradientDescent"), dict(optimizer="keras.SGD"))
MOMENTUM = (
    dict(optimizer="v1.Momentum", settings={"momentum": 0.9}),
    dict(optimizer="keras.SGD", settings={"momentum": 0.9}),
)
ADAM = (
    dict(optimizer="v1.Adam", settings={"epsilon": 1e-7}),
    dict(optimizer="keras.Adam", settings={"epsilon": 1e-7}),
)
ADAGRAD = (dict(optimizer="v1.Adagrad"), dict(optimizer="keras.Adagrad"))
ADADELTA = (
    dict(optimizer="v1.Adadelta", settings={"epsilon": 1e-7}),
    dict(optimizer="keras.Adadelta", settings={"epsilon": 1e-7}),
)
FTRL = (dict(optimizer="v1.Ftrl"), dict(optimizer="keras.Ftrl"))
FAMILIES = {
    "sgd": SGD,
    "momentum": MOMENTUM,
    "adam": ADAM,
    "adagrad": ADAGRAD,
    "adadelta": ADADELTA,
    "ftrl": FTRL,
}
#: What has nothing to do with an optimizer's rule is shown on two of them, or on Adam alone.
TWO = pytest.mark.parametrize("family", ["sgd", "adam"])
BOTH = pytest.mark.parametrize("sides", [SGD, ADAM], ids=["sgd", "adam"])
EVERY = pytest.mark.parametrize("family", sorted(FAMILIES))
UPDATES = 5


def generation():
    return _slots.generation_of(tf.keras.optimizers.SGD())


def recorded(tmpdir, name, options, follow=None):
    path = str(tmpdir.join(name))
    with upgrade.record(path, follow=follow):
        compared_training.Training(tf, **dict({"updates": UPDATES}, **options)).run()
    return path


def between(tmpdir, sides, old=None, new=None, follow=True):
    """The comparison of a training with one that follows it."""
    one = recorded(tmpdir, "old", dict(sides[0], **(old or {})))
    other = recorded(tmpdir, "new", dict(sides[1], **(new or {})), one if follow else None)
    return comparing.compare(one, other)


def named(*args):
    found = between(*args)
    assert found.verdict == "different", str(found)
    return [each.id for each in found.causes]


# Clean pairs


@EVERY
def test_v1_and_keras_train_the_same(tmpdir, family):
    found = between(tmpdir, FAMILIES[family])
    assert found.verdict == "same", str(found)


def same(tmpdir, family, old, new):
    """Asserts that one optimizer of the family trains the same in both ways."""
    optimizer, _ = FAMILIES[family]
    found = between(tmpdir, (optimizer, optimizer), old, new)
    assert found.verdict == "same", str(found)


@EVERY
def test_eager_code_and_a_function_train_the_same(tmpdir, family):
    same(tmpdir, family, {}, dict(mode="function"))


@EVERY
def test_a_session_and_eager_code_train_the_same(tmpdir, family):
    same(tmpdir, family, dict(mode="session"), {})


@TWO
def test_a_session_follows_eager_code(tmpdir, family):
    same(tmpdir, family, dict(mode="function"), dict(mode="session"))


@TWO
def test_one_replica_and_two_train_the_same(tmpdir, family):
    same(tmpdir, family, {}, dict(mode="replicas"))


@pytest.mark.skipif(modes.JIT is None, reason=modes.NO_JIT)
@TWO
def test_gradients_that_xla_compiles_train_the_same(tmpdir, family):
    same(tmpdir, family, {}, dict(mode="compiled"))


@pytest.fixture(scope="module")
def on_one_thread(tmpdir_factory):
    """A folder with the record of each family's training on one thread."""
    folder = tmpdir_factory.mktemp("one-thread")
    cases = {
        family: dict(FAMILIES[family][0], updates=UPDATES, examples=4000)
        for family in ("sgd", "adam")
    }
    command = [sys.executable, compared_training.__file__.replace(".pyc", ".py"), str(folder)]
    subprocess.check_call(command + [json.dumps(cases), "1"], env=processes.environment())
    return folder


@TWO
def test_one_thread_and_several_train_the_same(tmpdir, on_one_thread, family):
    old = str(on_one_thread.join(family))
    new = recorded(tmpdir, "new", dict(FAMILIES[family][0], examples=4000), old)
    found = comparing.compare(old, new)
    assert found.verdict == "same", str(found)


@EVERY
def test_examples_permuted_within_their_micro_batches_train_the_same(tmpdir, family):
    found = between(tmpdir, FAMILIES[family], dict(uneven=True), dict(uneven=True, permute=True))
    assert found.verdict == "same", str(found)


@EVERY
def test_sparse_gradients_of_one_optimizer_train_the_same(tmpdir, family):
    old, _ = FAMILIES[family]
    found = between(tmpdir, (old, old), dict(sparse=True), dict(sparse=True, permute=True))
    assert found.verdict == "same", str(found)


@TWO
def test_a_gradient_that_is_rounding_alone_is_no_cause(tmpdir, family):
    centered = dict(centered=True, uneven=True)
    found = between(tmpdir, FAMILIES[family], centered, dict(centered, permute=True))
    assert found.verdict == "same", str(found)


def test_a_deep_relu_network_in_lockstep_trains_the_same(tmpdir):
    deep = dict(relu=True, deep=5, updates=12)
    found = between(tmpdir, ADAM, deep, dict(deep, permute=True))
    assert found.verdict == "same", str(found)


def test_chaos_of_free_runs_is_inconclusive(tmpdir):
    chaos = dict(relu=True, deep=5, updates=200, rate=0.3, mode="function")
    found = between(tmpdir, SGD, chaos, dict(chaos, permute=True), False)
    assert (found.verdict, found.causes) == ("inconclusive", [])


# Gradients


class Wrapped(compared_training.Training):
    """The same with a wrapped optimizer, which knows its variables by the first gradient."""

    def run(self):
        optimizer = ga.wrap_optimizer(self.made, steps=self.steps)
        for number in range(self.steps * self.updates):
            rows, target = self.batch(number)
            optimizer.apply_gradients(
                zip(self.gradients(tf.constant(rows), tf.constant(target)), self.variables)
            )


def test_a_gradient_that_came_before_the_state_is_no_cause(tmpdir):
    paths = [str(tmpdir.join(name)) for name in ("old", "new")]
    for initial, path, follow in zip((0, 1), paths, (None, paths[0])):
        with upgrade.record(path, follow=follow):
            Wrapped(tf, optimizer="v1.Adam", initial=initial, updates=UPDATES).run()
    assert [each.id for each in comparing.compare(*paths).causes] == ["initial-values"]


def test_initial_values(tmpdir):
    assert named(tmpdir, ADAM, {}, dict(initial=1)) == ["initial-values"]


def test_other_data(tmpdir):
    assert named(tmpdir, ADAM, {}, dict(seed=1)) == ["other-data-or-randomness"]


def test_data_order(tmpdir):
    order = [3, 1, 7, 5, 9, 10, 11, 2, 4, 0, 8, 6, 12, 13, 14]
    assert named(tmpdir, ADAM, dict(rate=0.005), dict(rate=0.005, order=order)) == ["data-order"]


@BOTH
def test_data_order_of_a_whole_run(tmpdir, sides):
    # Any of 36 micro-batches may come in the place of another, at a rate that changes the weights
    # much meanwhile.
    order = [(11 * index + 5) % 36 for index in range(36)]
    run = dict(updates=12)
    assert named(tmpdir, sides, run, dict(run, order=order)) == ["data-order"]


@BOTH
def test_gradient_scale_where_nothing_is_divided(tmpdir, sides):
    assert named(tmpdir, sides, {}, dict(accumulator={"loss_reduction": "none"})) == [
        "gradient-scale"
    ]


@BOTH
def test_clipping_of_the_accumulated_gradient(tmpdir, sides):
    assert named(tmpdir, sides, {}, dict(accumulator={"clip_norm": 0.3})) == ["clipping"]


def test_clipping_of_each_micro_batch(tmpdir):
    assert named(tmpdir, ADAM, {}, dict(clip_micro=0.3)) == ["clipping"]


@BOTH
def test_regularizer(tmpdir, sides):
    assert named(tmpdir, sides, {}, dict(l2=1e-4)) == ["regularizer"]


@BOTH
def test_a_regularizer_that_is_hardly_more_than_rounding(tmpdir, sides):
    assert named(tmpdir, sides, {}, dict(l2=1e-6)) == ["regularizer"]


def test_partial_cycle(tmpdir):
    # What divides by a constant: the sum of 3 micro-batches' parts, of which the second update has
    # 2.
    cycles = dict(cycles=[3, 2, 3, 3, 3])
    thirds = dict(cycles, scale=1.0 / 3, accumulator={"loss_reduction": "none"})
    assert named(tmpdir, ADAM, cycles, thirds) == ["partial-cycle"]


@pytest.mark.parametrize("half", ["bfloat16", "float16"])
def test_half_precision(tmpdir, half):
    assert named(tmpdir, ADAM, {}, dict(half=half)) == ["half-precision"]


@pytest.mark.parametrize("half", ["bfloat16", "float16"])
def test_half_precision_that_crosses_kinks(tmpdir, half):
    deep = dict(relu=True, deep=2, seed=2, updates=12)
    assert named(tmpdir, SGD, deep, dict(deep, half=half)) == ["half-precision"]


@pytest.mark.skipif(
    not hasattr(tf.keras.mixed_precision, "set_global_policy"), reason="policies are from 2.4 on"
)
@pytest.mark.parametrize("follow", [True, False], ids=["followed", "free"])
@pytest.mark.parametrize("optimizer", ["SGD", "Adam"])
def test_a_mixed_precision_whose_loss_scale_drops_the_first_micro_batches(
    tmpdir, optimizer, follow
):
    paths = []
    for policy in ("float32", "mixed_float16"):
        paths.append(str(tmpdir.join(policy)))
        random = np.random.RandomState(1)
        x, y = random.randn(64, 16).astype("f"), random.randn(64, 3).astype("f") * 4
        tf.keras.backend.clear_session()
        tf.keras.mixed_precision.set_global_policy(policy)
        try:
            with upgrade.record(paths[-1], follow=paths[0] if follow and paths[1:] else None):
                layers = [(16, "relu", policy), (16, "relu", policy), (3, None, "float32")]
                layers = [
                    tf.keras.layers.Dense(
                        units,
                        activation=activation,
                        dtype=tf.keras.mixed_precision.Policy(dtype),
                        kernel_initializer=tf.keras.initializers.GlorotUniform(seed),
                    )
                    for seed, (units, activation, dtype) in enumerate(layers)
                ]
                model = tf.keras.Sequential(layers)
                plain = getattr(tf.keras.optimizers, optimizer)(0.01)
                model.compile(ga.wrap_optimizer(plain, steps=4), "mse")
                model.fit(x, y, batch_size=4, epochs=3, shuffle=False, verbose=0)
        finally:
            tf.keras.mixed_precision.set_global_policy("float32")
    causes = upgrade.compare(*paths).causes
    assert [each.id for each in causes] == ["half-precision", "loss-scale-skip"]


def test_missing_gradient(tmpdir):
    assert named(tmpdir, ADAM, {}, dict(stop=[2])) == ["missing-gradient"]


def test_overflow_on_one_side(tmpdir):
    assert named(tmpdir, ADAM, {}, dict(overflow=4)) == ["loss-scale-skip"]


def test_overflow_that_one_side_skips(tmpdir):
    skip = dict(overflow=4, accumulator={"nonfinite": "skip"})
    assert named(tmpdir, ADAM, dict(overflow=4), skip) == ["loss-scale-skip"]


# Updates


@pytest.mark.parametrize(
    "sides", [SGD, MOMENTUM, ADAM, FTRL], ids=["sgd", "momentum", "adam", "ftrl"]
)
def test_learning_rate(tmpdir, sides):
    assert named(tmpdir, sides, {}, dict(rate=0.06)) == ["learning-rate"]


@BOTH
def test_schedule(tmpdir, sides):
    rates = [[0.1 * 0.9 ** (each * update) for update in range(UPDATES)] for each in (1, 3)]
    assert named(tmpdir, sides, dict(rates=rates[0]), dict(rates=rates[1])) == ["schedule"]


def test_epsilon_of_the_defaults(tmpdir):
    sides = (dict(optimizer="v1.Adam"), dict(optimizer="keras.Adam"))
    assert named(tmpdir, sides) == ["epsilon"]


def test_epsilon_placement(tmpdir):
    module = getattr(tf.keras.optimizers, "legacy", None)
    if generation() != "keras_2_11" or not hasattr(module, "RMSprop"):
        pytest.skip("one TensorFlow has both: 2.11 to 2.15")
    sides = (dict(optimizer="legacy.RMSprop"), dict(optimizer="keras.RMSprop"))
    assert named(tmpdir, sides) == ["epsilon-placement"]


def test_slot_initial_value_of_rmsprop(tmpdir):
    if generation() == "keras_v2":
        pytest.skip("OptimizerV2 has epsilon in another place too")
    sides = [
        dict(optimizer=name, settings={"epsilon": 1e-7}) for name in ("v1.RMSProp", "keras.RMSprop")
    ]
    assert named(tmpdir, sides) == ["slot-initial-value"]


def test_slot_initial_value_of_adagrad(tmpdir):
    new = dict(settings={"initial_accumulator_value": 0.5})
    assert named(tmpdir, ADAGRAD, {}, new) == ["slot-initial-value"]


def test_momentum_convention_where_the_learning_rate_changes(tmpdir):
    rates = dict(rates=[0.1, 0.1, 0.01, 0.01, 0.01])
    assert named(tmpdir, MOMENTUM, rates, rates) == ["momentum-convention"]


def test_sparse_rule_of_momentum(tmpdir):
    if generation() == "keras_v2":
        pytest.skip("OptimizerV2 updates the touched rows, as v1 does")
    assert named(tmpdir, MOMENTUM, dict(sparse=True), dict(sparse=True)) == ["sparse-rule"]


def test_sparse_rule_and_momentum_convention(tmpdir):
    if generation() == "keras_v2":
        pytest.skip("OptimizerV2 updates the touched rows, as v1 does")
    options = dict(sparse=True, rates=[0.1, 0.1, 0.01, 0.01, 0.01])
    assert named(tmpdir, MOMENTUM, options, options) == ["sparse-rule", "momentum-convention"]


def test_another_optimizer_is_said_where_no_cause_explains_it(tmpdir):
    found = between(tmpdir, (MOMENTUM[0], SGD[1]))
    assert (found.verdict, found.causes) == ("different", [])
    assert found.notes[0] == "The optimizers are MomentumOptimizer and {}.".format(
        tf.keras.optimizers.SGD.__name__
    )


needs_adamw = pytest.mark.skipif(
    not hasattr(tf.keras.optimizers, "AdamW"), reason="AdamW comes with 2.11"
)


@needs_adamw
def test_weight_decay(tmpdir):
    new = dict(optimizer="keras.AdamW", settings={"weight_decay": 0.01})
    assert named(tmpdir, (ADAM[0], new)) == ["weight-decay"]


@needs_adamw
def test_clipping_by_the_optimizer(tmpdir):
    for index, clip in enumerate(({"global_clipnorm": 0.2}, {"clipnorm": 0.1})):
        new = dict(optimizer="keras.SGD", settings=clip)
        assert named(tmpdir.mkdir(str(index)), (SGD[0], new)) == ["clipping"]


def without_following(tmpdir, **new):
    """The causes where one run loses something in its middle and each update of both is
    recorded."""
    old = dict(optimizer="keras.Adam", updates=6)
    paths = [str(tmpdir.join(name)) for name in ("old", "new")]
    for path, options in zip(paths, (old, dict(old, **new))):
        with upgrade.record(path, snapshots=range(6)):
            compared_training.Training(tf, **options).run()
    return [each.id for each in comparing.compare(*paths).causes]


def test_lost_slots(tmpdir):
    assert without_following(tmpdir, lost="slots") == ["lost-slots"]


def test_bias_correction_where_iterations_are_lost(tmpdir):
    assert without_following(tmpdir, lost="iterations") == ["bias-correction"]


class Restored(compared_training.Training):
    """The same, begun from values that stand for a checkpoint, which are there after the
    Accumulator."""

    values = None

    def run(self):
        accumulator = ga.Accumulator(self.made, self.variables)
        every = self.made.variables() if callable(self.made.variables) else self.made.variables
        every = self.variables + [each for each in every if "learning_rate" not in each.name]
        for variable, value in zip(every, self.values or []):
            variable.assign(value)
        accumulate, apply = self.calls(accumulator)
        for number in range(self.steps * self.updates):
            rows, target = self.batch(number)
            accumulate(tf.constant(rows), tf.constant(target))
            if number % self.steps == self.steps - 1:
                apply()
        return [each.numpy() for each in every]


@pytest.mark.parametrize("lost", [None, "slots"])
def test_both_sides_go_on_from_a_checkpoint(tmpdir, lost):
    options = dict(optimizer="keras.Adam", updates=4)
    values = Restored(tf, **options).run()
    paths = [str(tmpdir.join(name)) for name in ("old", "new")]
    for path, follow in zip(paths, (None, paths[0])):
        training = Restored(tf, **dict(options, initial=int(follow is not None)))
        training.values = list(values)
        if lost and follow is not None:
            training.values[4:] = [
                each if each.shape == () else 0 * each for each in training.values[4:]
            ]
        with upgrade.record(path, follow=follow):
            training.run()
    found = comparing.compare(*paths)
    assert [each.id for each in found.causes] == ([] if lost is None else ["lost-slots"])
    assert found.verdict == ("same" if lost is None else "different")


# Two together


@BOTH
def test_gradient_scale_and_regularizer(tmpdir, sides):
    assert named(tmpdir, sides, {}, dict(scale=2.0, l2=1e-4)) == ["gradient-scale", "regularizer"]


@BOTH
def test_gradient_scale_and_learning_rate(tmpdir, sides):
    assert named(tmpdir, sides, {}, dict(scale=2.0, rate=0.1)) == [
        "gradient-scale",
        "learning-rate",
    ]


@needs_adamw
def test_epsilon_and_weight_decay(tmpdir):
    new = dict(optimizer="keras.AdamW", settings={"weight_decay": 0.01, "epsilon": 1e-3})
    assert named(tmpdir, (ADAM[0], new)) == ["epsilon", "weight-decay"]


def test_slot_initial_value_and_epsilon(tmpdir):
    if generation() == "keras_v2":
        pytest.skip("OptimizerV2 has epsilon in another place too")
    new = dict(optimizer="keras.RMSprop", settings={"epsilon": 1e-4})
    assert named(tmpdir, (dict(optimizer="v1.RMSProp"), new)) == ["slot-initial-value", "epsilon"]
