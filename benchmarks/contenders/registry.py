"""The list of contenders, and what their modules share."""

from __future__ import absolute_import, division, print_function

import collections
import gc

import tensorflow as tf

Contender = collections.namedtuple("Contender", "name make why_not legacy")
_ALL = collections.OrderedDict()


def contender(name, why_not=lambda: None, legacy=False):
    """Registers a maker: a function of a Problem that returns a function that runs one cycle.

    Args:
        why_not: says why it cannot run here, or returns None.
        legacy: whether it takes none but the optimizers of `tf.keras.optimizers.legacy`, where
            there are those.
    """

    def register(make):
        _ALL[name] = Contender(name, make, why_not, legacy)
        return make

    return register


def cycles(problem, names):
    """The cycles of those that can run here, and the reasons of the others.

    Returns:
        A list of (name, cycle), a dictionary from name to reason, and a function from name to its
        baseline.
    """
    # The tables and sums of a section before lie in cycles of Python's objects, GiBs of them.
    gc.collect()
    usable, reasons, baselines = [], collections.OrderedDict(), {}
    for name in names:
        reason = _ALL[name].why_not()
        if reason:
            reasons[name] = reason
            continue
        problem.legacy = _ALL[name].legacy and _has_legacy()
        baselines[name] = "plain_legacy" if problem.legacy else "plain"
        if baselines[name] not in dict(usable):
            usable.append((baselines[name], _ALL["plain"].make(problem)))
            baselines[baselines[name]] = baselines[name]
        if name != "plain":
            usable.append((name, _ALL[name].make(problem)))
    return usable, reasons, baselines.get


def make(problem, name):
    """One contender's cycle, or None with the reason."""
    reason = _ALL[name].why_not()
    problem.legacy = _ALL[name].legacy and _has_legacy()
    return (None, reason) if reason else (_ALL[name].make(problem), None)


def _has_legacy():
    return (
        hasattr(tf.keras.optimizers, "legacy")
        and hasattr(tf.keras.optimizers, "Adam")
        and (hasattr(getattr(tf.keras.optimizers.legacy, "Adam", None), "_create_slots"))
    )


def build(optimizer, variables):
    if hasattr(optimizer, "build"):
        optimizer.build(variables)
    return optimizer


def loop(problem, step):
    """The training loop around a compiled step: K calls, the last one's result awaited."""

    def cycle():
        for micro_batch in problem.micro_batches:
            moved = step(*micro_batch)
        assert moved.numpy()

    return cycle


def names():
    """All of them, in the order in which they were registered."""
    return tuple(_ALL)
