"""A cycle that is begun on some number of replicas is finished on another, as if it had not been
interrupted."""

from __future__ import absolute_import, division, print_function

import json

import numpy as np
import pytest

from support import processes


def run(replicas, part, folder):
    """Runs a part of elastic.py on these replicas, and returns the weights that it ends with."""
    command = processes.command("elastic", replicas, part, folder)
    printed, code = processes.output_of(command[1:], folder.join(part + ".log"))
    assert code == 0, printed
    return json.loads(folder.join(part + ".json").read())


@pytest.fixture(scope="module")
def whole(tmpdir_factory):
    """The weights of one replica that was not interrupted."""
    return run("1", "whole", tmpdir_factory.mktemp("whole"))


@pytest.fixture(scope="module")
def saved(tmpdir_factory):
    """The folder with what some replicas saved in mid-cycle."""
    folders = {}

    def by(before):
        if before not in folders:
            folders[before] = tmpdir_factory.mktemp("saved")
            run(before, "save", folders[before])
        return folders[before]

    return by


@pytest.mark.parametrize("before, after", [("2", "1"), ("2", "3"), ("1", "4"), ("2-sharing", "3")])
def test_another_number_of_replicas_finishes_the_cycle(saved, whole, before, after):
    for got, want in zip(run(after, "finish", saved(before)), whole):
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)
