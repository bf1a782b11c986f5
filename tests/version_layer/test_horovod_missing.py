"""Horovod missing, broken or too old is one typed error, at the call and not before."""

from __future__ import absolute_import, division, print_function

import pytest

CALL = """
import gradaccum_compat as ga
try:
    ga.horovod.sum_over_workers([])
except ga.errors.HorovodError as error:
    print(json.dumps([error.rule, error.received, error.remedy, isinstance(error, ImportError)]))
"""


def told(sandbox, received):
    rule, came, remedy, is_import_error = sandbox.run(CALL)
    assert (
        received in came and "sum_over_workers" in rule and "orovod" in remedy and is_import_error
    )


def with_horovod(sandbox, source):
    sandbox.package("horovod", "")
    sandbox.folder.join("horovod").join("tensorflow.py").write(source)


def test_missing(sandbox):
    told(sandbox, "horovod")


@pytest.mark.parametrize(
    "source", ["raise ImportError('undefined symbol: x')", "raise OSError('undefined symbol: x')"]
)
def test_built_for_another_tensorflow(sandbox, source):
    with_horovod(sandbox, source)
    told(sandbox, "undefined symbol")


@pytest.mark.parametrize("source", ["", "def grouped_allreduce(tensors, op=None): pass"])
def test_too_old(sandbox, source):
    with_horovod(sandbox, source)
    told(sandbox, "without it")


def test_is_imported_at_the_call_alone(sandbox):
    with_horovod(sandbox, "")
    assert sandbox.run("""
import gradaccum_compat as ga
ga.horovod.sum_over_workers
names = {"horovod", "horovod.tensorflow", "tensorflow", "numpy"}
print(json.dumps(sorted(set(sys.modules) & names)))
""") == []
