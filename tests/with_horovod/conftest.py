"""Starts Horovod's workers as horovodrun does: a rendezvous server here, and what it says in their
environment."""

from __future__ import absolute_import, division, print_function

import subprocess
import sys
import time

import pytest

from support import processes

LIMIT = 150  # seconds: what hangs, hangs for ever
COUNT = 2


@pytest.fixture(scope="session")
def environments():
    """A function that returns the environment of each worker of a new run."""
    from horovod.runner import gloo_run

    server = gloo_run.RendezvousServer()
    port = server.start()

    def begin():
        slots = gloo_run.get_host_assignments(gloo_run.parse_hosts("127.0.0.1:%d" % COUNT), COUNT)
        server.init(slots)
        shared = processes.environment(**gloo_run.create_run_env_vars("127.0.0.1", ["lo"], port))
        return [
            {
                key: str(value)
                for values in (shared, gloo_run.create_slot_env_vars(slot))
                for key, value in values.items()
            }
            for slot in slots
        ]

    yield begin
    server.stop()


@pytest.fixture(scope="session")
def run_workers(environments):
    """A function that runs a program on all workers to its end, or ends it, and returns what each
    printed."""

    def run(arguments, folder):
        names = [str(folder.join("worker%d" % index)) for index in range(COUNT)]
        started = []
        try:
            for name, environment in zip(names, environments()):
                with open(name + ".out", "wb") as out, open(name + ".err", "wb") as err:
                    started.append(
                        subprocess.Popen(
                            [sys.executable] + arguments, env=environment, stdout=out, stderr=err
                        )
                    )
            wait(started)
            codes = [each.poll() for each in started]
        finally:
            for each in started:
                if each.poll() is None:
                    each.kill()
                each.wait()
        assert codes == [0] * COUNT, "\n".join(
            open(name + end).read()[-3000:] for name in names for end in (".out", ".err")
        )
        return [open(name + ".out").read() for name in names]

    return run


def wait(processes):
    """Waits until all have ended, or one has failed, for which the others would wait, or the time
    is up."""
    deadline = time.time() + LIMIT
    while any(each.poll() is None for each in processes) and time.time() < deadline:
        if any(each.poll() not in (None, 0) for each in processes):
            break
        time.sleep(0.1)
