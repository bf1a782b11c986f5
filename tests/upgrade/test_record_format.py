"""What is written is read again; what is hostile is refused in words."""

from __future__ import absolute_import, division, print_function

import io
import json
import os
import zipfile

import numpy as np
import pytest

from gradaccum_compat import errors
from gradaccum_compat.upgrade import _format, _sketch

SHAPES = [(2, 3), (3,)]
SKETCHER = _sketch.Sketcher()


def manifest(**changed):
    given = {
        "schema": 1,
        "gradaccum_compat": "0",
        "tensorflow": "2.21.0",
        "python": "3.13",
        "numpy": "2",
        "platform": "x",
        "devices": [],
        "strategy": None,
        "replicas": 1,
        "context": "eager",
        "options": {},
        "number": 0,
        "optimizer": {"class": "SGD", "module": "keras", "generation": "keras_3", "settings": {}},
        "variables": [
            {"name": "v%d" % index, "shape": list(shape), "dtype": "float32"}
            for index, shape in enumerate(SHAPES)
        ],
        "slots": [["m"], []],
        "sketch": {"seed": 0, "size": 64},
        "snapshots": "default",
        "followed": None,
    }
    return dict(given, **changed)


def line(number, **changed):
    quantity = [_format.as_json(SKETCHER.summary(np.ones(shape, "float32"))) for shape in SHAPES]
    given = {
        "update": number,
        "micro_batches": 2,
        "weight": 2.0,
        "learning_rate": 0.1,
        "iterations": number,
        "loss": None,
        "applied": True,
        "followed": False,
        "gradient": [quantity[0], None],
        "update_": quantity,
        "weights": quantity,
    }
    return dict(given, **changed)


@pytest.fixture
def folder(tmp_path):
    path = _format.claim(str(tmp_path), "accumulator")
    writer = _format.Writer(path)
    writer.manifest(manifest())
    for number in range(3):
        writer.update(line(number))
    writer.state(
        1,
        {
            "weight_0": np.arange(6, dtype="f4").reshape(2, 3),
            "slot_0_m": np.zeros([2, 3], "f4"),
            "iterations": np.int64(1),
            "learning_rate": np.float64(0.1),
        },
    )
    writer.close()
    return path


def rewrite(folder, name, data):
    with io.open(os.path.join(folder, name), "wb") as stream:
        stream.write(data)


def everything(record):
    return [(each.gradient, each.update_, each.weights, each.micro_sketches) for each in record]


def refused(function):
    with pytest.raises(errors.RecordError) as raised:
        function()
    assert len(str(raised.value)) < 1000
    return str(raised.value)


# What was written


def test_an_update_is_read_as_it_was_written(folder):
    update = _format.Record(folder).at(1)
    assert (update.update, update.micro_batches, update.learning_rate, update.iterations) == (
        1,
        2,
        0.1,
        1,
    )
    assert update.gradient[1] is None and update.gradient[0].zeros == 0
    np.testing.assert_allclose(update.gradient[0].norm, 6**0.5, rtol=1e-8)
    np.testing.assert_allclose(
        update.weights[0].sketch, SKETCHER.sketch(np.ones([2, 3])), rtol=1e-6
    )


def test_a_state_is_read_as_it_was_written(folder):
    record = _format.Record(folder)
    state = record.state(record.snapshots[0])
    np.testing.assert_array_equal(state.weight(0), np.arange(6).reshape(2, 3))
    assert sorted(state.slots(0)) == ["m"] and state.slots(1) == {} and state.gradient(0) is None
    assert (state.iterations, state.learning_rate) == (1, 0.1)


def test_each_accumulator_has_a_folder_of_its_own(folder):
    top = os.path.dirname(folder)
    second = _format.claim(top, "accumulator")
    _format.Writer(second).manifest(manifest(number=1))
    assert [each.name for each in _format.read(top)] == ["accumulator", "accumulator-2"]
    assert [each.name for each in _format.read(second)] == ["accumulator-2"]


def test_a_name_with_a_path_in_it_stays_in_the_folder(tmp_path):
    path = _format.claim(str(tmp_path), "../../etc/my accumulator")
    assert os.path.dirname(os.path.abspath(path)) == str(tmp_path)


def test_a_line_that_is_cut_off_is_left_out(folder):
    path = os.path.join(folder, "updates.jsonl")
    with io.open(path, "rb") as stream:
        whole = stream.read()
    rewrite(folder, "updates.jsonl", whole[:-20])
    record = _format.Record(folder)
    assert record.updates == [0, 1] and record.cut_off


def test_a_record_without_an_update_is_empty(folder):
    os.remove(os.path.join(folder, "updates.jsonl"))
    assert list(_format.Record(folder)) == []


# What is hostile


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"null",
        b"{" * 100000,
        b"[" * 100000,
        b'{"schema": 1}',
        b'{"schema": NaN}',
        b"\xff\xfe",
        b'{"schema": ' + b"1" * 100000 + b"}",
    ],
)
def test_a_manifest_that_is_none_is_refused(folder, text):
    rewrite(folder, "manifest.json", text)
    refused(lambda: _format.Record(folder))


def test_another_schema_is_refused(folder):
    rewrite(folder, "manifest.json", json.dumps(manifest(schema=2)).encode())
    assert "schema 1" in refused(lambda: _format.read(os.path.dirname(folder)))


@pytest.mark.parametrize(
    "changed",
    [
        {"variables": []},
        {"variables": "x"},
        {"slots": [[]]},
        {"slots": [["m"], [3]]},
        {"variables": [{"name": "v", "shape": [10**9, 10**9], "dtype": "float32"}] * 2},
        {"variables": [{"name": "v", "shape": [-1], "dtype": "float32"}] * 2},
        {"variables": [{"name": "v" * 10000, "shape": [1], "dtype": "float32"}] * 2},
        {"variables": [{"name": "v", "shape": [1], "dtype": "object"}] * 2},
        {"sketch": {"seed": 1, "size": 64}},
        {"optimizer": {}},
        {"tensorflow": 3},
    ],
)
def test_a_manifest_with_a_wrong_value_is_refused(folder, changed):
    rewrite(folder, "manifest.json", json.dumps(manifest(**changed)).encode())
    refused(lambda: _format.Record(folder))


@pytest.mark.parametrize(
    "changed",
    [
        {"gradient": []},
        {"gradient": None},
        {"weights": [3, 3]},
        {"micro_batches": -1},
        {"iterations": 1e9},
        {"learning_rate": "high"},
        {"micro_sketches": [["x", None]]},
        {"micro_sketches": 3},
    ],
)
def test_a_line_with_a_wrong_value_is_refused(folder, changed):
    rewrite(
        folder,
        "updates.jsonl",
        b'{"update": 0, ' + json.dumps(line(0, **changed)).encode()[1:] + b"\n",
    )
    assert "line 1" in refused(lambda: everything(_format.Record(folder)))


@pytest.mark.parametrize(
    "changed",
    [
        {"sketch": "AAAA"},
        {"sketch": None},
        {"sketch": "!" * 344},
        {"sketch": "AADAf" * 68 + "AAAA"},
    ],
)
def test_a_sketch_that_is_none_is_refused(folder, changed):
    quantity = dict(line(0)["weights"][0], **changed)
    rewrite(
        folder,
        "updates.jsonl",
        b'{"update": 0, ' + json.dumps(line(0, weights=[quantity, None])).encode()[1:] + b"\n",
    )
    with pytest.raises(ValueError):
        assert _format.Record(folder).at(0).weights[0].sketch


@pytest.mark.parametrize(
    "text",
    [
        b"\n",
        b"[1]\n",
        b'{"update": -1, "x": 2}\n',
        b'{"update": 0, ' + b"[" * 100000 + b"\n",
        b'{"update": 0, "loss": NaN}\n',
    ],
)
def test_a_line_that_is_no_update_is_refused(folder, text):
    rewrite(folder, "updates.jsonl", text)
    refused(lambda: list(_format.Record(folder)))


def test_an_npz_with_a_pickle_inside_is_refused(folder):
    np.savez(os.path.join(folder, "state-1.npz"), weight_0=np.array([print, {}], dtype=object))
    refused(lambda: _format.Record(folder).state(1).weight(0))


def test_an_array_of_another_shape_than_its_variable_is_refused(folder):
    np.savez(os.path.join(folder, "state-1.npz"), weight_0=np.zeros([3, 2], "f4"))
    refused(lambda: _format.Record(folder).state(1).weight(0))


def test_a_compressed_npz_is_refused(folder):
    np.savez_compressed(os.path.join(folder, "state-1.npz"), weight_0=np.zeros([1000, 1000]))
    refused(lambda: _format.Record(folder).state(1))


@pytest.mark.parametrize("shape", [b"(999999999999,)", b"(2, 3, 10000000)", b"(-1,)", b"((2,3),)"])
def test_an_array_that_claims_to_be_larger_than_its_file_is_refused(folder, shape):
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': " + shape + b", }\n"
    with zipfile.ZipFile(os.path.join(folder, "state-1.npz"), "w") as archive:
        archive.writestr(
            "weight_0.npy",
            b"\x93NUMPY\x01\x00" + np.uint16(len(header)).tobytes() + header + b"1234",
        )
    refused(lambda: _format.Record(folder).state(1).weight(0))


def test_a_folder_without_a_record_is_refused(tmp_path):
    refused(lambda: _format.read(str(tmp_path)))
    refused(lambda: _format.read(str(tmp_path / "nowhere")))
