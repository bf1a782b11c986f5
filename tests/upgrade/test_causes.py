"""Each cause planted in a training that NumPy computes: it is named alone."""

from __future__ import absolute_import, division, print_function

import re

import pytest

np = pytest.importorskip("numpy")

from gradaccum_compat.upgrade import comparing  # noqa: E402
from support import snippets, synthetic  # noqa: E402

SGD = (("GradientDescentOptimizer", "v1", {}), ("SGD", "keras_3", {}))
MOMENTUM = (("MomentumOptimizer", "v1", {"momentum": 0.9}), ("SGD", "keras_3", {"momentum": 0.9}))
ADAM = (("AdamOptimizer", "v1", {"epsilon": 1e-7}), ("Adam", "keras_3", {"epsilon": 1e-7}))
BOTH = pytest.mark.parametrize("sides", [SGD, ADAM], ids=["sgd", "adam"])


def named(tmpdir, sides, old=None, new=None):
    """The causes between a training and one that follows it."""
    old = synthetic.Program(sides[0], **(old or {})).record(tmpdir.mkdir("old"))
    new = synthetic.Program(sides[1], **(new or {})).record(tmpdir.mkdir("new"), follow=old)
    found = comparing.compare(old, new)
    assert found.verdict == ("different" if found.causes else "same"), str(found)
    check_documented(found)
    return [each.id for each in found.causes], " ".join(
        each.evidence + each.text for each in found.causes
    )


#: {cause: the evidence that docs/upgrade.md shows for it, with # for numbers and names}
DOCUMENTED = {}


def check_documented(found):
    """Each piece of evidence reads as that in the table of docs/upgrade.md."""
    if not DOCUMENTED:
        rows = re.findall(
            r"(?m)^\| `([a-z-]+)` \| .* \| (`.*`) \|$", snippets.read("docs/upgrade.md")
        )
        DOCUMENTED.update((cause, bare(evidence).split(" / ")) for cause, evidence in rows)
        assert len(DOCUMENTED) == 20
    for each in found.causes:
        assert bare(each.evidence) in DOCUMENTED[each.id], each.evidence


def bare(evidence):
    for pattern in (r"`", r"-?\d+(\.\d+)?(e-\d+)?", r"[a-z]+/[a-z]+:#", r"#: #", r"#(, #)+"):
        evidence = re.sub(pattern, "" if pattern == "`" else "#", evidence)
    return evidence.replace(", # of the learning rate", "")


def kernel(factor):
    """Adds a multiple of the weights to the kernels' gradients."""
    return lambda update, name, gradient, weights: gradient + (
        factor * weights if "kernel" in name else 0
    )


@pytest.mark.parametrize("sides", [SGD, MOMENTUM, ADAM], ids=["sgd", "momentum", "adam"])
@pytest.mark.parametrize("noise", [0, 1e-7, 5e-7])
def test_rounding_is_no_cause(tmpdir, sides, noise):
    assert named(tmpdir, sides, dict(noise=noise), dict(noise=noise))[0] == []


@BOTH
def test_initial_values(tmpdir, sides):
    assert named(tmpdir, sides, new=dict(initial=1))[0] == ["initial-values"]


@BOTH
def test_data_order(tmpdir, sides):
    order = [5, 2, 11, 14, 0, 7, 9, 1, 15, 3, 8, 12, 6, 10, 4, 13] + list(range(16, 60))
    assert named(tmpdir, sides, dict(rate=1e-3), dict(rate=1e-3, order=order))[0] == ["data-order"]


@BOTH
def test_other_data(tmpdir, sides):
    assert named(tmpdir, sides, new=dict(seed=1))[0] == ["other-data-or-randomness"]


@BOTH
def test_gradient_scale_names_the_steps(tmpdir, sides):
    ids, text = named(
        tmpdir,
        sides,
        new=dict(change_gradient=lambda update, name, gradient, weights: 4 * gradient),
    )
    assert ids == ["gradient-scale"] and "micro-batches (steps)" in text


@BOTH
def test_clipping_of_each_variable(tmpdir, sides):
    def clip(update, name, gradient, weights):
        return gradient * min(1.0, 0.3 / np.sqrt(np.sum(gradient**2)))

    ids, text = named(tmpdir, sides, new=dict(change_gradient=clip))
    assert ids == ["clipping"] and "each variable" in text and "0.3" in text


@BOTH
def test_clipping_of_each_element(tmpdir, sides):
    def clip(update, name, gradient, weights):
        return np.clip(gradient, -0.05, 0.05)

    ids, text = named(tmpdir, sides, new=dict(change_gradient=clip))
    assert ids == ["clipping"] and "element" in text


@BOTH
def test_regularizer_gives_the_factor(tmpdir, sides):
    ids, text = named(tmpdir, sides, new=dict(change_gradient=kernel(2e-4)))
    assert ids == ["regularizer"] and "l2(0.0001)" in text and "bias" not in text


@BOTH
def test_partial_cycle(tmpdir, sides):
    def by_steps(update, name, gradient, weights):
        return gradient / 2 if update % 3 == 1 else gradient

    steps = dict(steps=lambda update: 2 if update % 3 == 1 else 4)
    ids, _ = named(tmpdir, sides, steps, dict(steps, change_gradient=by_steps))
    assert ids == ["partial-cycle"]


@BOTH
@pytest.mark.parametrize("bits, kind", [(8, "bfloat16"), (11, "float16")])
def test_half_precision(tmpdir, sides, bits, kind):
    def rounded(update, name, gradient, weights):
        fraction, exponent = np.frexp(gradient)
        return np.ldexp(np.round(fraction * 2.0**bits) / 2.0**bits, exponent)

    ids, text = named(tmpdir, sides, new=dict(change_gradient=rounded))
    assert ids == ["half-precision"] and " in {}:".format(kind) in text


@BOTH
def test_missing_gradient(tmpdir, sides):
    ids, text = named(tmpdir, sides, new=dict(dead=("dense/bias:0",)))
    assert ids == ["missing-gradient"] and "dense/bias:0" in text


@pytest.mark.parametrize("sides", [SGD, MOMENTUM, ADAM], ids=["sgd", "momentum", "adam"])
def test_learning_rate(tmpdir, sides):
    ids, text = named(tmpdir, sides, new=dict(rate=0.06))
    assert ids == ["learning-rate"] and "1.2" in text


@pytest.mark.parametrize("sides", [SGD, MOMENTUM, ADAM], ids=["sgd", "momentum", "adam"])
def test_schedule_that_counts_micro_batches(tmpdir, sides):
    old = dict(rate=lambda update: 0.1 * 0.9**update)
    new = dict(rate=lambda update: 0.1 * 0.9 ** (4 * update))
    ids, text = named(tmpdir, sides, old, new)
    assert ids[0] == "schedule" and "counts micro-batches, 4 for each update" in text


@BOTH
def test_weight_decay_gives_the_factor(tmpdir, sides):
    def decayed(update, name, change, weights):
        return change - 0.05 * 1e-2 * weights

    ids, text = named(tmpdir, sides, new=dict(change_update=decayed))
    assert ids == ["weight-decay"] and "0.01" in text


@pytest.mark.parametrize("epsilon", [1e-6, 1e-3])
def test_epsilon_gives_the_other_one(tmpdir, epsilon):
    sides = (("AdamOptimizer", "v1", {"epsilon": 1e-8}), ("Adam", "keras_3", {"epsilon": epsilon}))
    ids, text = named(tmpdir, sides)
    assert ids == ["epsilon"] and "{:g}".format(epsilon) in text


def test_epsilon_that_no_manifest_tells_is_found_by_the_replay(tmpdir):
    sides = (("AdamOptimizer", "v1", {"epsilon": 1e-8}), ("Adam", "keras_3", {"epsilon": 1e-3}))
    old = synthetic.Program(sides[0]).record(tmpdir.mkdir("old"))
    new = synthetic.Program(sides[1])
    record = new.record(tmpdir.mkdir("new"), follow=old)
    path = tmpdir.join("new", "accumulator", "manifest.json")
    path.write(path.read().replace('"epsilon": 0.001', '"epsilon": 1e-08'))
    found = comparing.compare(old, record)
    check_documented(found)
    assert [each.id for each in found.causes] == ["epsilon"] and "0.001" in found.causes[0].text


def test_epsilon_placement(tmpdir):
    sides = (("RMSprop", "keras_v2", {"epsilon": 1e-7}), ("RMSprop", "keras_3", {"epsilon": 1e-7}))
    assert named(tmpdir, sides)[0] == ["epsilon-placement"]


def test_slot_initial_value(tmpdir):
    sides = (
        ("RMSPropOptimizer", "v1", {"epsilon": 1e-7}),
        ("RMSprop", "keras_3", {"epsilon": 1e-7}),
    )
    ids, text = named(tmpdir, sides)
    assert ids == ["slot-initial-value"] and "1 on the old side" in text


def test_momentum_convention_where_the_learning_rate_changes(tmpdir):
    rates = dict(rate=lambda update: 0.1 if update < 5 else 0.01)
    ids, text = named(tmpdir, MOMENTUM, rates, rates)
    assert ids == ["momentum-convention"] and "update 5" in text


def test_momentum_convention_is_the_same_while_the_learning_rate_is_constant(tmpdir):
    assert named(tmpdir, MOMENTUM)[0] == []


def test_bias_correction(tmpdir):
    ids, text = named(tmpdir, ADAM, dict(iterations=100), dict(iterations=0))
    assert ids == ["bias-correction"] and "100 on the old side" in text


def test_lost_slots(tmpdir):
    def filled(slots):
        for each in slots.values():
            each["first"][...] = np.random.RandomState(0).randn(*each["first"].shape)

    old = synthetic.Program(ADAM[0], slots_at=(0, filled)).record(tmpdir.mkdir("old"))
    new = synthetic.Program(ADAM[1]).record(tmpdir.mkdir("new"))
    found = comparing.compare(old, new)
    assert [each.id for each in found.causes] == ["lost-slots"], str(found)
    check_documented(found)


def test_sparse_rule(tmpdir):
    def some_rows(update, name, gradient, weights):
        rows = (np.arange(len(gradient)) + update) % 3 > 0
        return gradient * rows.reshape((-1,) + (1,) * (gradient.ndim - 1))

    ids, _ = named(
        tmpdir,
        MOMENTUM,
        dict(change_gradient=some_rows, touched=True),
        dict(change_gradient=some_rows),
    )
    assert ids == ["sparse-rule"]


def test_loss_scale_skip(tmpdir):
    def overflow(update, name, gradient, weights):
        return gradient * (np.inf if update == 2 else 1.0)

    skipping = dict(change_gradient=overflow, applied=lambda update: update != 2)
    assert named(tmpdir, SGD, skipping, dict(change_gradient=overflow))[0] == ["loss-scale-skip"]


# Two together


@BOTH
def test_gradient_scale_and_regularizer(tmpdir, sides):
    def both(update, name, gradient, weights):
        return 2 * gradient + 2e-4 * weights

    ids, _ = named(tmpdir, sides, new=dict(change_gradient=both))
    assert ids == ["gradient-scale", "regularizer"]


@BOTH
def test_gradient_scale_and_learning_rate(tmpdir, sides):
    double = dict(rate=0.1, change_gradient=lambda update, name, gradient, weights: 2 * gradient)
    assert named(tmpdir, sides, new=double)[0] == ["gradient-scale", "learning-rate"]


@BOTH
def test_learning_rate_and_weight_decay(tmpdir, sides):
    both = dict(
        rate=0.1, change_update=lambda update, name, change, weights: change - 5e-4 * weights
    )
    assert named(tmpdir, sides, new=both)[0] == ["learning-rate", "weight-decay"]


def test_epsilon_and_weight_decay(tmpdir):
    new = ("AdamW", "keras_3", {"epsilon": 1e-3, "weight_decay": 1e-2})
    assert named(tmpdir, (ADAM[0], new))[0] == ["epsilon", "weight-decay"]


def test_epsilon_placement_and_epsilon(tmpdir):
    sides = (("RMSprop", "keras_v2", {"epsilon": 1e-7}), ("RMSprop", "keras_3", {"epsilon": 1e-4}))
    assert named(tmpdir, sides)[0] == ["epsilon-placement", "epsilon"]
