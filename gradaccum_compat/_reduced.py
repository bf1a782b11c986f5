"""Lets any optimizer take gradients that are reduced already, without reducing them a second time.

Every generation sums the gradients over the replicas itself, and only some can be told not to
(experimental_aggregate_gradients from 2.2 to 2.10, skip_gradients_aggregation from 2.11 to 2.15, nothing
in tf.compat.v1.train and Keras 3). All of them ask the replica context for it: so it is the context
that answers, for as long as the optimizer runs, that there is nothing left to do.
"""

from __future__ import absolute_import, division, print_function

import contextlib

import tensorflow as tf

from gradaccum_compat.backends import BACKEND


@contextlib.contextmanager
def reductions_done():
    """Inside, and inside a replica, sums over the replicas return what they are given."""
    context = tf.distribute.get_replica_context()
    # On one replica too: there Keras gets the same numbers from an IdentityN, which keeps all gradients alive.
    context.all_reduce = lambda reduce_op, value, *args, **kwargs: value
    if context.num_replicas_in_sync > 1:
        merge_call = context.merge_call
        context.merge_call = lambda merge_fn, args=(), kwargs=None: merge_call(_handing_over(merge_fn), args, kwargs)
    try:
        yield
    finally:
        # Without a strategy all threads have the same context.
        for method in ("merge_call", "all_reduce"):
            context.__dict__.pop(method, None)


def _handing_over(merge_fn):
    return lambda strategy, *args, **kwargs: merge_fn(_Strategy(strategy), *args, **kwargs)


class _Delegate(object):

    def __init__(self, wrapped):
        self._wrapped = wrapped

    def __getattr__(self, name):
        return getattr(self._wrapped, name)

    # Distributed variables assert that they are updated by the strategy that they were made under.

    def __eq__(self, other):
        return self._wrapped == getattr(other, "_wrapped", other)

    def __ne__(self, other):
        return not self == other

    def __hash__(self):
        return hash(self._wrapped)


class _Strategy(_Delegate):
    """The strategy, with an extended part that does not reduce again."""

    @property
    def extended(self):
        return _Extended(self._wrapped.extended)


class _Extended(_Delegate):

    def reduce_to(self, reduce_op, value, destinations, *args, **kwargs):
        return BACKEND.as_reduced(value, destinations)

    def batch_reduce_to(self, reduce_op, value_destination_pairs, *args, **kwargs):
        return [BACKEND.as_reduced(*pair) for pair in value_destination_pairs]
