"""Several workers, as real processes that talk gRPC on the loopback: the weights of one device and one big batch."""

from __future__ import absolute_import, division, print_function

import json
import os
import socket
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorflow as tf

import modes
import worker
from reference import Reference, Slices

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LIMIT = 150  # seconds: what hangs, hangs for ever


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def start(index, addresses, out, log):
    config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
    environment = dict(os.environ, TF_CONFIG=json.dumps(config), GRPC_ENABLE_FORK_SUPPORT="0",
                       PYTHONPATH=os.pathsep.join([os.path.dirname(HERE), HERE]))
    return subprocess.Popen([sys.executable, os.path.join(HERE, "worker.py"), out],
                            env=environment, stdout=log, stderr=subprocess.STDOUT)


def run_workers(count, folder):
    """Runs the workers to their end, or kills them all, and returns what each has written."""
    addresses = ["127.0.0.1:%d" % port for port in free_ports(count)]
    outs = [str(folder.join("worker%d.json" % index)) for index in range(count)]
    logs = [open(out + ".log", "wb") for out in outs]
    processes = [start(index, addresses, out, log) for index, (out, log) in enumerate(zip(outs, logs))]
    try:
        deadline = time.time() + LIMIT
        while any(each.poll() is None for each in processes) and time.time() < deadline:
            if any(each.poll() not in (None, 0) for each in processes):
                break  # the others would wait for it
            time.sleep(0.1)
        codes = [each.poll() for each in processes]
    finally:
        for each in processes:
            if each.poll() is None:
                each.kill()
            each.wait()
        for log in logs:
            log.close()
    assert codes == [0] * count, "\n".join(open(out + ".log").read()[-3000:] for out in outs)
    return [json.load(open(out)) for out in outs]


@pytest.mark.parametrize("count", [2, 3])
def test_workers_end_with_the_weights_of_the_big_batch(tmpdir, count):
    weights = run_workers(count, tmpdir)
    for other in weights[1:]:
        assert other == weights[0], "the workers have come apart"
    plain = modes.Eager([np.ones(shape, np.float32) for shape in worker.SHAPES],
                        lambda: tf.compat.v1.train.MomentumOptimizer(0.5, 0.9))
    for cycle in range(len(worker.CYCLES)):
        reference, touched = Reference(worker.SHAPES), set()
        for number, each in [(number, each) for at, number, each in worker.numbered() if at == cycle]:
            shares = [share for share in (worker.share(index, number, each) for index in range(count))
                      if share[-1] is not None]
            touched.update(row for _, _, rows, _ in shares for row in rows)
            reference.accumulate_on_replicas([([vector, Slices(values, rows)], weight)
                                              for vector, values, rows, weight in shares])
        big, rows = [each.astype(np.float32) for each in reference.gradients()], sorted(touched)
        plain.plain_apply([big[0], Slices(big[1][rows], rows)])
    for got, want in zip(weights[0], plain.weights()):
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)
