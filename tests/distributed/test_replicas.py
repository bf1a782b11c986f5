"""Several replicas give the numbers of one device and one big batch, however the calls are made."""

from __future__ import absolute_import, division, print_function

import numpy as np
import pytest
import tensorflow as tf

import gradaccum_compat as ga
from gradaccum_compat.core import _replicas, _tables
from support import modes, replicas
from support.reference import Reference, Slices

v1 = tf.compat.v1
SHAPES = [(3,), (40, 2)]
COUNT = replicas.COUNT
LOSS_REDUCTIONS = ["mean", "sum", "global_mean", "none"]


@pytest.fixture(params=replicas.WAYS, ids=lambda way: way.__name__.lower())
def way(request):
    return request.param


@pytest.fixture(params=replicas.WAYS + replicas.EAGER_WAYS, ids=lambda way: way.__name__.lower())
def any_way(request):
    return request.param


def draw(seed, rows=None):
    """A vector's gradient, and a table's: dense, or of these rows."""
    random = np.random.RandomState(seed)
    vector = random.randn(3).astype(np.float32)
    if rows is None:
        return [vector, random.randn(40, 2).astype(np.float32)]
    return [vector, Slices(random.randn(len(rows), 2).astype(np.float32), rows)]


def shares(seed, weights, rows=None):
    """A micro-batch: a share for each replica, all different; weights repeat if there are more
    replicas."""
    return [
        (
            draw(100 * seed + number, rows and rows[number % len(rows)]),
            weights[number % len(weights)],
        )
        for number in range(COUNT)
    ]


def check_cycles(run, micro_batches_of_cycles, **meaning):
    """Runs each cycle and compares the weights with NumPy's."""
    expected = [value.astype(np.float64) for value in run.weights()]
    for number, micro_batches in enumerate(micro_batches_of_cycles):
        reference = Reference(SHAPES, **meaning)
        for count, each in enumerate(micro_batches, 1):
            assert run.accumulate(each) == count
            reference.accumulate_on_replicas(each)
        assert run.apply()
        expected = [value - gradient for value, gradient in zip(expected, reference.gradients())]
        for got, want in zip(run.weights(), expected):
            np.testing.assert_allclose(
                got, want, rtol=1e-6, atol=1e-6, err_msg="after cycle %d" % number
            )


def start():
    return draw(0)


@pytest.mark.parametrize("loss_reduction", LOSS_REDUCTIONS)
def test_uneven_replicas_give_the_big_batch(way, loss_reduction):
    weights = [1.0, 7.0]

    def even(seed):
        return [(gradients, float(seed)) for gradients, _ in shares(seed, weights)]

    make = (
        even
        if loss_reduction == "global_mean"
        else lambda seed: shares(seed, weights if seed % 2 else weights[::-1])
    )
    check_cycles(
        way(start(), loss_reduction=loss_reduction),
        [[make(1), make(2), make(3)], [make(4)]],
        loss_reduction=loss_reduction,
    )


def test_a_replica_whose_share_is_empty(way):
    """The mean over no examples is NaN and its weight is zero: a last batch that does not
    divide."""
    micro_batch = shares(1, [3.0])
    micro_batch[-1] = ([np.full(shape, np.nan, np.float32) for shape in SHAPES], 0.0)
    run, reference = way(start()), Reference(SHAPES)
    for each in (shares(2, [2.0, 5.0]), micro_batch):
        run.accumulate(each)
    reference.accumulate_on_replicas(shares(2, [2.0, 5.0]))
    reference.accumulate_on_replicas(micro_batch[:-1])
    assert run.apply()
    for got, begun, gradient in zip(run.weights(), start(), reference.gradients()):
        np.testing.assert_allclose(got, begun - gradient, rtol=1e-6, atol=1e-6)


def test_rows_that_differ_between_replicas(way):
    rows = [[1, 2, 1], [2, 39]]
    check_cycles(
        way(start()),
        [
            [shares(1, [1.0, 4.0], rows), shares(2, [2.0], rows[::-1])],
            [shares(3, [1.0], [[7], []])],
        ],
    )


@pytest.mark.skipif(
    not hasattr(tf.distribute.Strategy, "gather"), reason="before TF 2.4 no strategy can gather"
)
def test_workers_of_several_replicas_send_rows(way, monkeypatch):
    """As on machines with several GPUs each; here one worker, with all replicas."""
    monkeypatch.setattr(_replicas, "STRATEGIES", [("MirroredStrategy", _replicas.Workers)])
    monkeypatch.setattr(_tables, "SMALLEST", 0)
    rows = [[1, 2, 1], [2, 39]]
    few, dense = shares(1, [1.0, 4.0], rows), shares(2, [1.0, 4.0])
    many = shares(3, [1.0, 2.0], [list(range(40))])
    check_cycles(way(start()), [[few, few], [few, dense], [many], [shares(4, [1.0], rows)]])


def statistics_of(cycle):
    """What a cycle of shares tells: (means and sizes of each replica's micro-batches)."""
    sizes = np.array([weight for each in cycle for _, weight in each])
    flat = [np.concatenate([part.ravel() for part in g]) for each in cycle for g, _ in each]
    big = sizes.dot(flat) / sizes.sum()
    of_each = sizes.dot(np.sum(np.square(flat, dtype=np.float64), 1))
    trace = (of_each - sizes.sum() * big.dot(big)) / (len(sizes) - 1)
    noise_scale = trace / (big.dot(big) - trace / sizes.sum())
    return [np.sqrt(big.dot(big)), 1.0, sizes.sum(), len(sizes), noise_scale]


def test_statistics_count_the_micro_batches_of_each_replica(way):
    run, cycle = way(start(), statistics=True), [shares(1, [1.0, 4.0]), shares(2, [2.0, 3.0])]
    for each in cycle:
        run.accumulate(each)
    assert run.apply()
    np.testing.assert_allclose(run.accumulator.statistics(), statistics_of(cycle), rtol=1e-6)


def test_statistics_of_a_global_mean(way):
    """Each replica has an even share of the micro-batch, and its gradient is divided by their
    number."""
    run = way(start(), loss_reduction="global_mean", statistics=True)
    cycle = [shares(1, [2.0]), shares(2, [6.0])]
    for each in cycle:
        run.accumulate([([part / COUNT for part in g], weight * COUNT) for g, weight in each])
    assert run.apply()
    np.testing.assert_allclose(run.accumulator.statistics(), statistics_of(cycle), rtol=1e-6)


def test_none_that_differs_between_replicas(way):
    def with_none(seed, on, index):
        micro_batch = shares(seed, [1.0, 3.0])
        micro_batch[on][0][index] = None
        return micro_batch

    check_cycles(
        way(start()),
        [
            [with_none(1, 0, 0), with_none(2, COUNT - 1, 1)],
            [with_none(3, 0, 1), shares(4, [1.0])],
            [with_none(5, COUNT - 1, 0)],
        ],
    )


def test_clipping_by_the_norm_of_the_reduced_gradient(way):
    for rows in (None, [[1, 2, 1], [2, 39]]):
        check_cycles(
            way(start(), clip_norm=0.3),
            [[shares(1, [1.0, 7.0], rows), shares(2, [2.0], rows)]],
            clip_norm=0.3,
        )


def test_a_micro_batch_that_is_not_finite_on_one_replica_only(way):
    run, reference = way(start(), nonfinite="skip", steps=2), Reference(SHAPES)
    bad = shares(1, [5.0, 2.0])
    bad[0][0][0][1] = np.inf
    assert not run.step(bad)
    assert run.step(shares(2, [1.0, 3.0]))
    reference.accumulate_on_replicas(bad[1:])
    reference.accumulate_on_replicas(shares(2, [1.0, 3.0]))
    for got, begun, gradient in zip(run.weights(), start(), reference.gradients()):
        np.testing.assert_allclose(got, begun - gradient, rtol=1e-6, atol=1e-6)


def test_skipping_a_share_of_a_global_mean_is_refused(way):
    with pytest.raises(ga.errors.OptionError):
        way(start(), nonfinite="skip", loss_reduction="global_mean")


def test_raise_raises_on_every_replica_and_starts_over(way):
    run = way(start(), nonfinite="raise")
    bad = shares(1, [1.0])
    bad[-1][0][0][0] = np.nan
    run.accumulate(bad)
    with pytest.raises((ga.errors.NonFiniteGradientsError, tf.errors.InvalidArgumentError)):
        run.apply()
    for got, begun in zip(run.weights(), start()):
        np.testing.assert_array_equal(got, begun)
    check_cycles(run, [[shares(2, [1.0, 2.0])]])


def test_step_decides_on_the_device(any_way):
    run = any_way(start(), steps=3)
    assert [run.step(shares(seed, [1.0, 2.0])) for seed in range(1, 5)] == [
        False,
        False,
        True,
        False,
    ]
    reference = Reference(SHAPES)
    reference.accumulate_on_replicas(shares(4, [1.0, 2.0]))
    before = run.weights()
    assert run.apply()
    for got, begun, gradient in zip(run.weights(), before, reference.gradients()):
        np.testing.assert_allclose(got, begun - gradient, rtol=1e-6, atol=1e-6)


def test_no_weight_anywhere_is_no_update(way):
    run = way(start())
    assert not run.apply()
    run.accumulate(shares(1, [0.0]))
    assert not run.apply()
    run.accumulate(shares(1, [4.0]))
    run.reset()
    assert not run.apply()
    for got, begun in zip(run.weights(), start()):
        np.testing.assert_array_equal(got, begun)


# One reduction per cycle


class Reductions(object):
    """Counts the reductions that the strategy is asked for while a graph is built, and their
    bytes."""

    def __init__(self, monkeypatch):
        self.bytes = []
        for name in ("_reduce_to", "_batch_reduce_to"):
            self._watch(monkeypatch, name)

    def _watch(self, monkeypatch, name):
        extended = replicas.strategy().extended
        original = getattr(extended, name)

        def watched(reduce_op, value, *args, **kwargs):
            values = [each for each, _ in value] if isinstance(value, (list, tuple)) else [value]
            self.bytes.append(sum(_bytes(replicas.local(each)[0]) for each in values))
            return original(reduce_op, value, *args, **kwargs)

        monkeypatch.setattr(extended, name, watched, raising=False)


def _bytes(tensor):
    return tensor.dtype.size * int(np.prod(tensor.shape.as_list()))


@pytest.mark.parametrize(
    "make",
    [
        modes.sgd,
        lambda: v1.train.AdamOptimizer(0.1),
        lambda: tf.keras.optimizers.SGD(0.1, momentum=0.9),
    ],
)
@pytest.mark.parametrize("micro_batches", [1, 2, 5])
def test_a_cycle_reduces_its_weight_and_its_gradients_once(monkeypatch, make, micro_batches):
    run = replicas.InsideFunction(start(), make)
    gradients = [tf.constant(each) for each in draw(1)]
    watched = Reductions(monkeypatch)

    @tf.function
    def cycle():
        def on_replica():
            for _ in range(micro_batches):
                run.accumulator.accumulate(gradients, 2.0)
            return run.accumulator.apply()

        return replicas.run(on_replica)

    cycle.get_concrete_function()
    # A first trace may be made twice, to tell whether it makes variables.
    # The small one has each replica's weight, number of micro-batches and a mark for each variable.
    once = [8 * (2 + len(SHAPES)), sum(4 * int(np.prod(shape)) for shape in SHAPES)]
    assert watched.bytes in (once, once * 2)


# Places


def test_made_outside_of_the_scope_of_its_variables():
    """It goes by its variables' strategy."""
    run = replicas.InsideFunction(start())
    run.accumulator = ga.Accumulator(run.optimizer, run.variables)
    check_cycles(run, [[shares(1, [1.0, 7.0]), shares(2, [3.0])]])


def test_made_inside_a_replica_is_refused():
    run = replicas.InsideEager(start())
    with pytest.raises(ga.errors.ContextError) as caught:
        replicas.run(lambda: ga.Accumulator(run.optimizer, run.variables) and None)
    assert "scope" in str(caught.value)


def test_variables_of_no_strategy_are_refused():
    variable = tf.Variable([0.0])
    with replicas.strategy().scope():
        with pytest.raises(ga.errors.VariablesError) as caught:
            ga.Accumulator(modes.sgd(), [variable])
    assert "scope" in str(caught.value)


def test_a_strategy_without_a_common_end_of_the_cycle_is_refused():
    with tf.Graph().as_default():
        strategy = tf.compat.v1.distribute.experimental.ParameterServerStrategy()
        with strategy.scope():
            with pytest.raises(ga.errors.ContextError) as caught:
                ga.Accumulator(modes.sgd(), [v1.Variable([0.0], use_resource=True)])
    assert "ParameterServer" in str(caught.value)


def test_a_bad_share_on_one_replica_changes_no_state():
    run = replicas.OutOfScope(start())
    run.accumulate(shares(1, [1.0]))
    for bad in ((shares(2, [1.0])[-1][0], -1.0), ([None, np.zeros((3, 3), np.float32)], 1.0)):
        with pytest.raises((ga.errors.WeightError, ga.errors.GradientsError)):
            run.accumulate(shares(2, [1.0])[:-1] + [bad])
        assert int(run.accumulator.micro_count) == 1


def test_gradients_across_replicas_are_the_reduced_ones():
    run, reference = replicas.InsideFunction(start()), Reference(SHAPES)
    for seed in (1, 2):
        run.accumulate(shares(seed, [1.0, 7.0]))
        reference.accumulate_on_replicas(shares(seed, [1.0, 7.0]))
    for got, want in zip(run.accumulator.gradients(), reference.gradients()):
        for each in replicas.local(got):
            np.testing.assert_allclose(each.numpy(), want, rtol=1e-6, atol=1e-6)
    assert float(run.accumulator.total_weight) == sum(
        weight for seed in (1, 2) for _, weight in shares(seed, [1.0, 7.0])
    )
