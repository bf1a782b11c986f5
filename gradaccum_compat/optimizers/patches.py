"""Patches of private parts of TensorFlow and Keras: set on one object, for as long as a block runs.

Blocks may be inside one another and on several threads: the first sets the attributes, and the last
takes them away and leaves what was there before.
"""

from __future__ import absolute_import, division, print_function

import contextlib
import threading

import tensorflow as tf

from gradaccum_compat.backends import BACKEND

_LOCK = threading.Lock()
#: Where an object holds its patch: the attributes that were there before, and who needs it.
_KEY = "_gradaccum_compat_patch"


@contextlib.contextmanager
def attributes(target, make, join=None):
    """Inside, the object has attributes of its own.

    Args:
        target: any object with a __dict__.
        make: function that returns the attributes, a dictionary; called by the first block alone.
        join: function that is called with these attributes, and that every block calls.
    """
    own = target.__dict__
    with _LOCK:
        if _KEY not in own:
            made = make()
            # Into the dictionary: Keras's __setattr__ would track them.
            before = dict((name, own[name]) for name in made if name in own)
            own[_KEY] = {"before": before, "made": made, "users": 0}
            own.update(made)
        own[_KEY]["users"] += 1
        leave = join(own[_KEY]["made"]) if join else None
    try:
        yield
    finally:
        with _LOCK:
            if leave:
                leave()
            own[_KEY]["users"] -= 1
            if not own[_KEY]["users"]:
                patch = own.pop(_KEY)
                for name in patch["made"]:
                    own.pop(name, None)
                own.update(patch["before"])


# Lets any optimizer take gradients that are reduced already, without reducing them a second time.
#
# Each generation sums the gradients over the replicas itself, and only some can be told not to:
# experimental_aggregate_gradients from 2.2 to 2.10, skip_gradients_aggregation from 2.11 to 2.15,
# nothing in tf.compat.v1.train and Keras 3. All of them ask the replica context: so the context
# answers, while the optimizer runs, that nothing is left to do. The methods are public; if one of
# them vanishes, an optimizer reduces a second time, and every test on replicas fails.


def reductions_done():
    """Inside, and inside a replica, sums over the replicas return what they are given."""
    context = tf.distribute.get_replica_context()
    return attributes(context, lambda: _answers(context))


def _answers(context):
    # On one replica too: there Keras gets the same numbers from an IdentityN, which keeps all
    # gradients alive.
    answers = {"all_reduce": _as_given}
    if context.num_replicas_in_sync > 1:
        merge_call = context.merge_call

        def merging(merge_fn, args=(), kwargs=None):
            return merge_call(_not_reducing(merge_fn), args, kwargs)

        answers["merge_call"] = merging
    return answers


def _as_given(reduce_op, value, *args, **kwargs):
    return value


def _not_reducing(merge_fn):
    def merged(strategy, *args, **kwargs):
        return merge_fn(_Strategy(strategy), *args, **kwargs)

    return merged


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
