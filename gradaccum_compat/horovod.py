"""The reducer for workers that Horovod has started: ``Accumulator(...,
reducer=ga.horovod.sum_over_workers)``.

Horovod matches tensors by the names of the ops that reduce them, and waits for ever for a name that
only one worker has. So these names are made from nothing but what all workers have alike. Neither
Horovod nor TensorFlow is imported before the first call.
"""

from __future__ import absolute_import, division, print_function

import weakref

from gradaccum_compat import errors

#: How many accumulators of a name were made in each graph, and in eager code.
_MADE = weakref.WeakKeyDictionary()


class _Eager(object):
    """Stands for the lack of a graph."""


_EAGER = _Eager()


def sum_over_workers(tensors, name="gradaccum"):
    """Adds up tensors over all of Horovod's workers.

    Every worker calls it with tensors of the same shapes and dtypes in the same order, which is how
    Accumulator calls it, whatever a worker's own gradients are. All go in one grouped allreduce, in
    the widest of their types. Two calls in one session.run need a name each, since Horovod starts
    them in any order.

    The rest is as usual with Horovod: hvd.init() comes first, and hvd.broadcast_variables or
    BroadcastGlobalVariablesHook makes the workers begin alike. The optimizer and the tape are the
    plain ones: hvd.DistributedOptimizer and hvd.DistributedGradientTape would reduce each
    micro-batch as well.

    Example:
        >>> accumulator = ga.Accumulator(
        ...     optimizer, variables, steps=4, reducer=ga.horovod.sum_over_workers)

    Args:
        tensors: list of dense floating-point tensors.
        name: what Horovod is to call them; an accumulator hands in a name of its own.

    Returns:
        A list of their sums.

    Raises:
        HorovodError: Horovod cannot be used here.
    """
    hvd = _horovod()
    import tensorflow as tf

    if not tensors:
        return []
    dtypes = [each.dtype for each in tensors]
    # One op, also where types differ: TensorFlow drops one whose results a worker does not need,
    # control dependencies or not, since Horovod's are not marked as stateful; and the other workers
    # wait for it.
    widest = max(dtypes, key=lambda dtype: dtype.size)
    with tf.name_scope(
        "sum_over_workers"
    ):  # unique in a graph, so that the name below it stays as it is
        sums = hvd.grouped_allreduce(
            [tf.cast(each, widest) for each in tensors],
            op=hvd.Sum,
            name=name,
            ignore_name_scope=True,
        )
    return [tf.cast(each, dtype) for each, dtype in zip(sums, dtypes)]


def _for_accumulator(name, graph):
    """sum_over_workers with a name that no other accumulator of this graph has, and each worker's
    has."""
    made = _MADE.setdefault(graph or _EAGER, {})
    made[name] = made.get(name, 0) + 1
    return _Reducer("{}_{}".format(name, made[name]))


class _Reducer(object):
    """sum_over_workers for one accumulator. Calls at the same time have different names."""

    def __init__(self, name):
        self._name = name

    def __call__(self, tensors, name=None):
        return sum_over_workers(tensors, self._named(name))

    def gather(self, tensor, name):
        """The rows of all workers, in the order of their ranks; each may have another number."""
        hvd = _horovod()
        import tensorflow as tf

        with tf.name_scope("rows_of_workers"):
            return hvd.allgather(tensor, name=self._named(name), ignore_name_scope=True)

    def _named(self, name):
        return "{}_{}".format(self._name, name) if name else self._name


#: Where an accumulator finds it.
sum_over_workers.for_accumulator = _for_accumulator


def _horovod():
    try:
        import horovod.tensorflow as hvd
    except Exception as error:  # built for another TensorFlow, it raises whatever the loader does
        raise errors.HorovodError(
            "sum_over_workers needs a Horovod that was built for the TensorFlow at hand.",
            "{}: {}".format(type(error).__name__, error),
            "Run HOROVOD_WITH_TENSORFLOW=1 pip install --no-build-isolation --no-cache-dir horovod,"
            " after TensorFlow.",
        )
    grouped = getattr(hvd, "grouped_allreduce", None)
    if (
        grouped is None
        or "ignore_name_scope" not in grouped.__code__.co_varnames
        or ("name" not in grouped.__code__.co_varnames)
    ):
        raise errors.HorovodError(
            "sum_over_workers needs hvd.grouped_allreduce with the argument `name`.",
            "a Horovod without it",
            "Use Horovod 0.26 or newer.",
        )
    return hvd
