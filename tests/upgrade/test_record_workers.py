"""Workers under MultiWorkerMirroredStrategy: the first records for all of them, and all follow."""

from __future__ import absolute_import, division, print_function

import collections
import json

import numpy as np
import pytest
import tensorflow as tf

import gradaccum_compat as ga
from gradaccum_compat import errors
from gradaccum_compat.upgrade import _format, _record_command
from support import modes, processes, recorded, recorded_worker, worker
from support.reference import Reference

Run = collections.namedtuple("Run", ["old", "records", "weights"])
MICRO_BATCHES = list(worker.numbered(recorded_worker.STORY))
UPDATES = 3


@pytest.fixture(scope="module")
def run(tmpdir_factory):
    """Two workers that follow the record of one process, with other weights and gradients."""
    folder = tmpdir_factory.mktemp("records")
    with recorded.into(folder.join("old")) as old:
        momentum = tf.compat.v1.train.MomentumOptimizer
        single = modes.Eager(
            [np.full(shape, 2, np.float32) for shape in worker.SHAPES],
            lambda: momentum(0.5, 0.9),
            steps=1,
        )
        for number in range(UPDATES):
            single.step([np.full(shape, number, np.float32) for shape in worker.SHAPES])
    paths = [folder.join("new"), folder.join("old")]
    weights = processes.run(2, folder, "recorded_worker", paths)
    return Run(old[0], _format.read(str(paths[0])), weights)


def test_workers_are_recorded_once_with_the_gradients_of_all_of_them(run):
    (record,) = run.records
    assert record.updates == [0, 1, 2] and record.manifest["replicas"] == 2
    for update, want in zip(record, big_batches()):
        recorded.check_array(update.gradient[0], want)
    assert [each.weight for each in record] == [12.0, 5.0, 2.0]


def big_batches():
    """The first variable's gradient in each cycle, over both workers."""
    for cycle in range(UPDATES):
        reference = Reference(worker.SHAPES[:1])
        for number, pairs in [each[1:] for each in MICRO_BATCHES if each[0] == cycle]:
            shares = [worker.share(index, number, pairs) for index in range(2)]
            reference.accumulate_on_replicas(
                [(gradients[:1], weight) for gradients, _, weight in shares if weight]
            )
        yield reference.gradients()[0]


def test_each_worker_follows(run):
    (record,) = run.records
    assert [each.followed for each in record] == [True] * UPDATES
    for number in range(UPDATES):
        np.testing.assert_array_equal(
            record.state(number).weight(0), run.old.state(number).weight(0)
        )
    np.testing.assert_array_equal(record.initial().weight(0), np.ones(worker.SHAPES[0]))
    final = [record.state(UPDATES - 1).after(index) for index in range(len(worker.SHAPES))]
    for weights in run.weights:
        for one, other in zip(weights, final):
            np.testing.assert_array_equal(np.float32(one), other)


# Workers that record into one folder


WORKERS = {"worker": ["one:1", "two:1"]}


def config(kind, index, **more):
    return json.dumps({"cluster": dict(WORKERS, **more), "task": {"type": kind, "index": index}})


@pytest.mark.parametrize(
    "variables",
    [
        {"TF_CONFIG": config("worker", 1)},
        {"TF_CONFIG": config("worker", 0, chief=["three:1"])},
        {"HOROVOD_RANK": "1"},
    ],
)
def test_a_worker_that_does_not_record_is_not_refused_the_folder(tmp_path, monkeypatch, variables):
    with recorded.into(tmp_path):
        modes.Eager([np.ones(2, np.float32)], steps=1).step([np.ones(2, np.float32)])
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with ga.upgrade.record(str(tmp_path)):
        pass
    assert "first worker records" in _record_command._outcome(str(tmp_path))


@pytest.mark.parametrize("text", ["", "{}", "no JSON", config("worker", 0), config("chief", 0)])
def test_the_first_worker_is_refused_a_folder_with_a_record(tmp_path, monkeypatch, text):
    monkeypatch.setenv("TF_CONFIG", text)
    with recorded.into(tmp_path):
        modes.Eager([np.ones(2, np.float32)], steps=1).step([np.ones(2, np.float32)])
    with pytest.raises(errors.RecordError):
        with ga.upgrade.record(str(tmp_path)):
            pass


def test_a_worker_on_its_own_after_all_stops_recording_where_a_record_is(
    tmp_path, monkeypatch, capsys
):
    for index in range(2):
        monkeypatch.setenv("TF_CONFIG", config("worker", index))
        with ga.upgrade.record(str(tmp_path)):
            modes.Eager([np.ones(2, np.float32)], steps=1).step([np.ones(2, np.float32)])
    assert capsys.readouterr().err.count("training goes on") == 1
    assert len(_format.read(str(tmp_path))) == 1
