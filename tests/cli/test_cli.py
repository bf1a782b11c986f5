"""The command line on the TensorFlow at hand: real runs, small ones."""

from __future__ import absolute_import, division, print_function

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import gradaccum_compat as ga
from gradaccum_compat.cli import demo, demo_training, doctor


def run(*arguments):
    """Runs the command line; returns its exit code, its output and its errors."""
    process = subprocess.Popen(
        [sys.executable, "-m", "gradaccum_compat"] + list(arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
    )
    output, problems = process.communicate()
    return process.returncode, output, problems


def test_who_reads_may_have_seen_enough():
    process = subprocess.Popen(
        [sys.executable, "-m", "gradaccum_compat", "doctor"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    process.stdout.close()
    assert (process.stderr.read(), process.wait()) == (b"", 141)
    process.stderr.close()


@pytest.fixture(scope="module")
def report():
    code, output, problems = run("doctor", "--json")
    assert (code, problems) == (0, "")
    return json.loads(output)


def test_doctor_names_what_backend_names(report):
    detected = ga.backend()
    assert report["tensorflow"]["version"] == detected.tensorflow_version
    assert report["backend"] == {"name": detected.name, "why": detected.why}


def test_doctor_finds_keras_a_device_and_a_strategy(report):
    assert report["keras"]["tf.keras"]["usable"]
    assert report["keras"]["tf.keras"]["detail"] in (
        doctor.KERAS_3,
        doctor.KERAS_BUILDING,
        doctor.KERAS_SLOTS,
    )
    assert "CPU" in [device["type"] for device in report["devices"]]
    assert report["strategies"]["MirroredStrategy"]["usable"]


def test_doctor_explains_every_part(report):
    parts = [
        part for section in ("keras", "strategies", "parts") for part in report[section].values()
    ]
    assert len(parts) == 8
    assert all(part["detail"] for part in parts)


def test_doctor_says_the_same_in_words(report):
    lines = doctor.text(report).splitlines()
    assert len(lines) == 5 + 8
    assert all(ord(letter) < 128 for letter in "".join(lines))


def test_demo_ends_with_the_same_weights_and_is_quiet():
    code, output, problems = run("demo", "--updates", "3", "--batch", "64", "--micro-batches", "4")
    lines = output.splitlines()
    assert (code, problems) == (0, "")
    assert lines[-1].startswith("The same weights")
    assert ["updates", "of", "the", "optimizer", "3", "3"] in [line.split() for line in lines]


def test_demo_exits_with_1_where_a_weight_differs(monkeypatch, capsys):
    def trained(_, arguments, *rest):
        np.savez(arguments["path"], [0.5, 2e-6 if arguments["micro_batches"] else 0.0])
        return {
            "sizes": [1, 3],
            "updates": 1,
            "losses": [1.0],
            "seconds": 0.5,
            "peak_bytes": None,
            "weight_count": 2,
            "backend": "TensorFlow",
        }

    monkeypatch.setattr(demo.process, "call", trained)
    assert demo.main(updates=1, batch=4, micro_batches=2, seed=0) == 1
    assert "NOT the same weights" in capsys.readouterr()[0]


def test_the_largest_difference_is_found_in_any_weight(tmpdir):
    one, other = str(tmpdir.join("one.npz")), str(tmpdir.join("other.npz"))
    np.savez(one, [0.0, 1.0], [2.0])
    np.savez(other, [0.5, 1.0], [-1.0])
    assert demo.largest_difference(one, other) == 3.0


def test_nan_in_a_weight_is_a_difference(tmpdir):
    one, other = str(tmpdir.join("one.npz")), str(tmpdir.join("other.npz"))
    np.savez(one, [0.0], [float("nan")])
    np.savez(other, [0.0], [0.0])
    assert demo.judge(demo.largest_difference(one, other))[1] == 1


@pytest.mark.parametrize("batch, count", [(1, 1), (7, 7), (100, 8), (16384, 8)])
def test_a_batch_is_cut_completely_into_micro_batches_that_hold_something(batch, count):
    sizes = demo_training.micro_batch_sizes(np.random.RandomState(0), batch, count)
    assert len(sizes) == count and sum(sizes) == batch and min(sizes) >= 1


def test_micro_batches_are_uneven():
    assert len(set(demo_training.micro_batch_sizes(np.random.RandomState(0), 16384, 8))) == 8


@pytest.mark.skipif(os.name == "nt", reason="Windows does not tell a peak")
def test_a_peak_remembers_memory_that_is_free_again():
    demo_training._peak_from_here()
    before = demo_training.peak_bytes()
    np.ones(2**23)
    assert demo_training.peak_bytes() - before > 48 * 2**20
