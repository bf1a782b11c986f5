"""Records are the same from a Session, MonitoredTrainingSession, Estimator, fit() and replicas.

They are followed there.
"""

from __future__ import absolute_import, division, print_function

import functools
import time

import numpy as np
import pytest
import tensorflow as tf

import gradaccum_compat as ga
from gradaccum_compat.upgrade import _log
from support import fitting, modes, recorded, replicas, strategies, v1_programs
from support.v1_programs import MICRO, SIZE, STEPS, Program, assert_same_weights, plain

v1 = tf.compat.v1


def check_updates(record, want):
    """Each update ends with the plain optimizer's weights, and has all its micro-batches."""
    assert record.updates == list(range(len(want)))
    for number, weights in enumerate(want):
        assert_same_weights(
            [record.state(number).after(index) for index in range(len(weights))], weights
        )
    assert [each.micro_batches for each in record] == [STEPS] * len(want)
    recorded.check_course(
        record, [record.state(len(want) - 1).after(index) for index in range(len(want[0]))]
    )


def check_losses(record, loss):
    """Each update has the big batch's loss at the weights that it begins from."""
    want = [
        loss(number, [record.state(number).weight(index) for index in range(2)])
        for number in record.updates
    ]
    np.testing.assert_allclose([each.loss for each in record], want, rtol=1e-6)


def loss_of_program(number, weights):
    x, ids, y = v1_programs.BIG[number]
    return np.mean((x.dot(weights[0]) + weights[1][ids] - y) ** 2)


# Graphs


def test_a_session(tmp_path):
    with recorded.into(tmp_path) as records:
        program = Program("adam")
        program.run(MICRO)
    check_updates(records[0], plain("adam"))
    check_losses(records[0], loss_of_program)
    assert records[0].manifest["context"] == "graph"
    assert [each.name for each in records[0].variables] == ["kernel:0", "table:0"]
    # The table's gradient has the rows of the cycle's ids.
    assert records[0].at(0).gradient[1].zeros >= v1_programs.ROWS - SIZE * STEPS


def monitored(**options):
    program = Program("adam")
    with program.graph.as_default(), v1.train.MonitoredTrainingSession(**options) as session:
        for batch in MICRO:
            session.run(program.train_op, dict(zip(program.inputs, batch)))


def test_a_monitored_session(tmp_path):
    with recorded.into(tmp_path / "record") as records:
        monitored(checkpoint_dir=str(tmp_path / "model"), save_checkpoint_steps=1)
    check_updates(records[0], plain("adam"))


def test_a_monitored_session_follows_from_its_first_state(tmp_path):
    with recorded.into(tmp_path / "old"):
        Program("adam", build=functools.partial(starting_at, 2.0)).run(MICRO)
    with recorded.into(tmp_path / "new", follow=str(tmp_path / "old")) as new:
        monitored()
    assert [each.followed for each in new[0]] == [True] * 3
    np.testing.assert_array_equal(new[0].initial().weight(0), np.full([3, 1], 0.5))
    np.testing.assert_array_equal(new[0].state(0).weight(0), np.full([3, 1], 2.0))


def starting_at(value, x, ids):
    prediction = v1_programs.model(x, ids)
    for each in v1.trainable_variables():
        each._initializer_op = each.assign(tf.fill(each.shape, value)).op
    return prediction


def test_training_that_is_restored_goes_on_counting(tmp_path):
    model = str(tmp_path / "model")
    monitored(checkpoint_dir=model, save_checkpoint_steps=1)
    with recorded.into(tmp_path / "record") as records:
        monitored(checkpoint_dir=model, save_checkpoint_steps=1)
    assert records[0].updates == [3, 4, 5] and records[0].snapshots == [3]
    assert [each.iterations for each in records[0]] == [3, 4, 5]


def model_fn(features, labels, mode, params):
    loss = v1_programs.mean_loss(v1_programs.model(features["x"], features["ids"]), labels)
    optimizer = ga.wrap_optimizer(v1.train.AdamOptimizer(0.1), steps=STEPS)
    return tf.estimator.EstimatorSpec(
        mode, loss=loss, train_op=optimizer.minimize(loss, v1.train.get_global_step())
    )


def estimator(folder, count):
    # On one device: reductions by collectives hang in a Session on CPUs of 2.15, whatever the
    # optimizer.
    strategy = (
        None
        if count == 1
        else tf.distribute.MirroredStrategy(
            ["/cpu:%d" % index for index in range(count)],
            cross_device_ops=tf.distribute.ReductionToOneDevice(),
        )
    )
    config = tf.estimator.RunConfig(
        model_dir=str(folder),
        train_distribute=strategy,
        session_config=v1.ConfigProto(device_count={"CPU": count}),
    )
    tf.estimator.Estimator(model_fn, config=config).train(
        lambda: tf.data.Dataset.from_tensor_slices(
            ({"x": v1_programs.X, "ids": v1_programs.IDS}, v1_programs.Y)
        ).batch(SIZE // count, drop_remainder=True)
    )


@pytest.mark.skipif(not hasattr(tf, "estimator"), reason="tf.estimator ended with TensorFlow 2.15")
@pytest.mark.parametrize("count", [1, 2])
def test_an_estimator(tmp_path, count):
    with recorded.into(tmp_path / "record") as records:
        estimator(tmp_path / "model", count)
    record = records[0]
    assert len(records) == 1 and record.manifest["replicas"] == count
    for number, want in enumerate(plain("adam")):
        assert_same_weights([record.state(number).after(index) for index in range(2)], want)
    check_losses(record, loss_of_program)
    assert [each.micro_batches for each in record] == [STEPS * count] * 3
    assert len(record.at(0).micro_sketches) == STEPS * count


# fit()


def sgd(generation):
    return lambda: generation.optimizers.SGD(0.1, momentum=0.9)


def fitted(generation, replicated=False, start=None):
    model, _ = fitting.compiled(
        generation, fitting.accumulating(sgd(generation)), fitting.linear, replicated
    )
    if start is not None:
        model.set_weights([np.full_like(each, start) for each in model.get_weights()])
    fitting.fit(model, fitting.BIG // STEPS, None, replicated)
    return model.get_weights()


@pytest.mark.parametrize("replicated", [False, True], ids=["one", "replicas"])
@pytest.mark.parametrize("generation", fitting.GENERATIONS, ids=lambda each: each.family)
def test_fit(tmp_path, generation, replicated):
    with recorded.into(tmp_path) as records:
        final = fitted(generation, replicated)
    # In 1.14 to 2.3 the wrapped optimizer is made once more by fit() for its own graph.
    record = records[-1]
    fitting.check_same([record.state(3).after(index) for index in range(2)], final)
    count = replicas.COUNT if replicated else 1
    assert [each.micro_batches for each in record] == [STEPS * count] * fitting.UPDATES
    recorded.check_course(record, [record.state(3).after(index) for index in range(2)])
    assert record.slots == [["momentum"]] * 2
    if fit_gives_its_loss(generation, replicated):
        check_losses(record, loss_of_fit)
    else:
        assert [each.loss for each in record] == [None] * fitting.UPDATES


def loss_of_fit(number, weights):
    first = fitting.BIG * (number % (fitting.EXAMPLES // fitting.BIG))
    x, y = [each[first : first + fitting.BIG] for each in fitting.data()]
    return np.mean((x.dot(weights[0]) + weights[1] - y) ** 2)


def fit_gives_its_loss(generation, replicated):
    """fit() of TensorFlow 2.0 to 2.3, and of 1.x on replicas, takes the gradients by itself."""
    if tf.__version__.startswith("1."):
        return not replicated
    sgd_class = generation.optimizers.SGD
    return not fitting.is_optimizer_v2(generation) or hasattr(sgd_class, "_transform_gradients")


@pytest.mark.parametrize("generation", fitting.GENERATIONS, ids=lambda each: each.family)
def test_fit_follows_from_its_first_state(tmp_path, generation):
    with recorded.into(tmp_path / "old"):
        want = fitted(generation, start=2.0)
    with recorded.into(tmp_path / "new", follow=str(tmp_path / "old")) as new:
        got = fitted(generation, start=-1.0)
    for one, other in zip(got, want):
        np.testing.assert_array_equal(one, other)
    assert [each.followed for each in new[0]] == [True] * fitting.UPDATES
    np.testing.assert_array_equal(new[0].initial().weight(1), np.full(fitting.TARGETS, -1.0))


# Replicas


@pytest.mark.parametrize("way", replicas.WAYS + replicas.EAGER_WAYS, ids=lambda each: each.__name__)
def test_replicas_record_once_for_all_of_them(tmp_path, way):
    one, two = np.array([1.0, 2.0], np.float32), np.array([3.0, 5.0], np.float32)
    with recorded.into(tmp_path) as records:
        run = way([np.zeros(2, np.float32)], steps=2)
        for _ in range(2):
            run.step([([one], 1.0), ([two], 3.0)])
        final = run.weights()
    assert len(records) == 1 and records[0].updates == [0]
    update = records[0].at(0)
    recorded.check_array(update.gradient[0], (one + 3 * two) / 4)
    assert (update.micro_batches, update.weight) == (4, 8.0)
    np.testing.assert_allclose(
        [each[0] for each in update.micro_sketches],
        [recorded.SKETCHER.sketch(each) for each in (one, two)] * 2,
    )
    recorded.check_course(records[0], final)
    assert (
        records[0].manifest["strategy"] == "MirroredStrategy"
        and records[0].manifest["replicas"] == 2
    )


@pytest.mark.parametrize("way", replicas.WAYS, ids=lambda each: each.__name__)
def test_an_update_waits_until_each_replica_s_micro_batches_are_recorded(
    tmp_path, monkeypatch, way
):
    written = _log.Log.micro_batch

    def slowly(log, replica, *args):
        time.sleep(0.3 * replica)
        written(log, replica, *args)

    monkeypatch.setattr(_log.Log, "micro_batch", slowly)
    with recorded.into(tmp_path) as records:
        run = way([np.zeros(2, np.float32)], steps=1)
        run.step([([np.ones(2, np.float32)], 1.0)] * 2)
    assert len(records[0].at(0).micro_sketches) == 2


def test_replicas_that_share_their_variables_record_once(tmp_path):
    gradient = np.array([1.0, 2.0], np.float32)
    with recorded.into(tmp_path) as records:
        run = strategies.CentralStorage([np.zeros(2, np.float32)], steps=2)
        for _ in range(4):
            run.step([gradient])
        final = run.weights()
    assert len(records) == 1 and records[0].updates == [0, 1]
    recorded.check_array(records[0].at(0).gradient[0], gradient)
    recorded.check_course(records[0], final)


@pytest.mark.parametrize("way", replicas.WAYS, ids=lambda each: each.__name__)
def test_each_replica_follows(tmp_path, way):
    def adam():
        return v1.train.AdamOptimizer(0.1)

    values = [np.array([1.0, -1.0], np.float32)]
    with recorded.into(tmp_path / "old"):
        single = modes.Eager(values, adam, steps=1)
        for _ in range(3):
            single.step(values)
    with recorded.into(tmp_path / "new", follow=str(tmp_path / "old")) as new:
        run = way([np.zeros(2, np.float32)], adam, steps=1)
        for _ in range(3):
            run.step([(values, 1.0)] * 2)
    assert [each.followed for each in new[0]] == [True] * 3
    np.testing.assert_allclose(
        run.weights()[0], single.weights()[0], rtol=1e-6
    )  # weights() compares the replicas
