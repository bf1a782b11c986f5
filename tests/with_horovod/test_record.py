"""Horovod's workers: the first records for all of them."""

from __future__ import absolute_import, division, print_function

import json

import numpy as np

from gradaccum_compat.upgrade import _format
from support import recorded
from support.recorded_horovod_worker import STEPS, UPDATES, micro_batch


def test_workers_are_recorded_once_with_the_gradients_of_all_of_them(run_workers, tmpdir):
    path = str(tmpdir.join("record"))
    outs = run_workers(["-m", "support.recorded_horovod_worker", path], tmpdir.mkdir("outs"))
    weights = [json.loads(out) for out in outs]
    (record,) = _format.read(path)
    assert len(record) == UPDATES and weights[0] == weights[1]
    for update, line in enumerate(record):
        given = [
            micro_batch(rank, number)
            for number in range(update * STEPS, (update + 1) * STEPS)
            for rank in range(2)
        ]
        total = sum(weight for _, weight in given)
        assert line.weight == total
        big = sum(gradient * weight for gradient, weight in given) / total
        recorded.check_array(line.gradient[0], big)
    np.testing.assert_array_equal(np.float32(weights[0]), record.state(UPDATES - 1).after(0))
