"""What a graph costs before its first update: the time to it, and its nodes, by K."""

from __future__ import absolute_import, division, print_function

import time

import tensorflow as tf

from benchmarks import contenders, harness, problems

STEPS = (2, 8, 32)


def run(settings):
    names = contenders.EVERYONE
    rows, skipped = [], {}
    repeats = 1 if settings.quick else 3
    progress = harness.Progress("tracing", len(STEPS) * len(names) * repeats)
    for steps in STEPS:
        problem = problems.dense(4, steps, width=32)
        for name in names:
            best = []
            for _ in range(repeats):
                progress.advance()
                outcome = _first_update(problem, name)
                if isinstance(outcome, str):
                    skipped[name] = outcome
                else:
                    best.append(outcome)
            if best:
                rows.append(
                    {
                        "contender": name,
                        "x": steps,
                        "seconds": min(each[0] for each in best),
                        "nodes": best[0][1],
                    }
                )
    return [
        {
            "title": "To the first update, by K",
            "kind": "traces_by_x",
            "x": "K",
            "rows": rows,
            "skipped": skipped,
        }
    ]


def _first_update(problem, name):
    """Seconds and nodes, or why it cannot run."""
    traced, original = [], tf.function

    def counting(function, *args, **kwargs):
        traced.append(original(function, *args, **kwargs))
        return traced[-1]

    begin = time.time()
    tf.function = counting
    try:
        cycle, reason = contenders.make(problem, name)
    finally:
        tf.function = original
    if reason:
        return reason
    cycle()
    return time.time() - begin, sum(map(_nodes, traced))


def _nodes(function):
    """The nodes of a tf.function's traces, those of the functions that they call included."""
    concrete = getattr(function, "_list_all_concrete_functions", None) or (
        lambda: function._stateful_fn._function_cache.all_values()
    )
    return sum(_nodes_of(each.graph.as_graph_def()) for each in concrete())


def _nodes_of(definition):
    return len(definition.node) + sum(len(each.node_def) for each in definition.library.function)
