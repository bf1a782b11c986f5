"""A worker is killed in mid-cycle; all are started again and end as if nothing had happened."""

from __future__ import absolute_import, division, print_function

import signal
import time

import numpy as np
import tensorflow as tf

from support import modes, processes, restarted_worker
from support.reference import Reference, Slices

COUNT = 2


def killed_in_mid_cycle(folder, saved, index, number):
    """Starts the workers, kills one of them before this micro-batch, and ends the others, which
    cannot go on."""
    with processes.workers(COUNT, folder, "restarted_worker", [saved, index, number]) as started:
        started.wait_until(lambda: folder.join("worker%d.json.stopped" % index).check())
        started.processes[index].send_signal(signal.SIGKILL)
        started.processes[index].wait()
        time.sleep(2)  # in which a worker that needs no other would come to its end
        codes = started.codes()
    assert codes[index] == -signal.SIGKILL
    assert not any(folder.join("worker%d.json" % each).check() for each in range(COUNT))
    return started


def big_batches():
    """The weights that the plain optimizer makes of the big batches."""
    plain = modes.Eager(
        [np.ones(shape, np.float32) for shape in restarted_worker.SHAPES],
        lambda: tf.compat.v1.train.MomentumOptimizer(0.5, 0.9),
    )
    for first in range(0, restarted_worker.END, restarted_worker.STEPS):
        reference, touched = Reference(restarted_worker.SHAPES), set()
        for number in range(first, first + restarted_worker.STEPS):
            shares = [restarted_worker.share(index, number) for index in range(COUNT)]
            touched.update(row for _, _, rows, _ in shares for row in rows)
            reference.accumulate_on_replicas(
                [
                    ([vector, Slices(values, rows)], weight)
                    for vector, values, rows, weight in shares
                ]
            )
        big, rows = [each.astype(np.float32) for each in reference.gradients()], sorted(touched)
        plain.plain_apply([big[0], Slices(big[1][rows], rows)])
    return plain.weights()


def test_all_go_on_from_the_last_checkpoint_as_if_not_interrupted(tmpdir):
    saved = tmpdir.mkdir("saved")
    ended = killed_in_mid_cycle(tmpdir.mkdir("killed"), saved, index=1, number=7)
    assert None not in ended.codes(), "a worker is left"
    again = processes.run(COUNT, tmpdir.mkdir("again"), "restarted_worker", [saved])
    assert [each["begun"] for each in again] == [6, 6]
    assert again[1]["weights"] == again[0]["weights"], "the workers have come apart"
    for got, want in zip(again[0]["weights"], big_batches()):
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)
