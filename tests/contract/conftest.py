"""The modes that every case of the contract runs in, and the strategies that some run under."""

from __future__ import absolute_import, division, print_function

from support import modes, strategies
from support.microbatch_contexts import context  # noqa: F401, a fixture of all tests here


def pytest_configure(config):
    config.addinivalue_line(
        "markers", "not_under(*strategies, reason): a case that makes no sense there"
    )


def pytest_generate_tests(metafunc):
    """Parametrises what takes a `mode` and does not say itself which."""
    marks = getattr(metafunc.function, "pytestmark", [])
    if "mode" not in metafunc.fixturenames or any(
        mark.name == "parametrize" and "mode" in mark.args[0] for mark in marks
    ):
        return
    left_out = [strategy for mark in marks if mark.name == "not_under" for strategy in mark.args]
    under = strategies.OF_MODULE.get(metafunc.module.__name__.split(".")[-1], [])
    chosen = [modes.Eager, modes.Function, modes.Graph] + [
        each for each in under if each.__name__ not in left_out
    ]
    metafunc.parametrize("mode", chosen, ids=[each.__name__.lower() for each in chosen])
