"""One variable's part of an update: whether it is made at all, and when its turn comes.

A variable that had no gradient in a cycle is not updated. Where the device alone knows whether it
had one, the optimizer's own method that updates one variable runs in a conditional.

Large variables are updated two at a time, each gradient made when its variable's turn comes. From
TF 2.11 on Keras updates a variable by some ten ops. All sums are there at once, so TensorFlow
begins with many variables side by side, and keeps what those ops put out: for 67 million parameters
in 16 layers and Adam the peak of the process lay 4 to 7 bytes a parameter above that without
accumulation, another one in each run (without oneDNN, whose allocator made it 5 to 11). TensorFlow
2.21, two cores, the time of a cycle of four layers of 2048, K = 8, over that without accumulation,
in three processes:

    at a time    time                   peak above
    one          1.35 1.32 1.30         4.0 bytes a parameter
    two          1.22 1.19 1.18         4.2
    all          1.23 1.34 1.18         4.2 to 7.0
"""

from __future__ import absolute_import, division, print_function

import collections
import contextlib
import functools

import tensorflow as tf

from gradaccum_compat.backends import BACKEND
from gradaccum_compat.core import _state
from gradaccum_compat.core._gradients import is_dense
from gradaccum_compat.core._graph import control_dependencies, done, ops_of
from gradaccum_compat.optimizers import patches

#: Elements from which on a variable waits for its turn: 4 MiB of float32, which keep several
#: processors busy by themselves. Smaller ones are better updated side by side.
LARGE = 2**20

#: The methods that update one variable, called as method(gradient, variable, ...). update_step: the
#: Keras of 2.11 and later. The others: OptimizerV2 and tf.compat.v1.train. An optimizer without
#: them, or one that does not call them, updates every variable that it is handed.
_METHODS = (
    "update_step",
    "_resource_apply_dense",
    "_resource_apply_sparse_duplicate_indices",
    "_apply_dense",
    "_apply_sparse_duplicate_indices",
)
#: Where an optimizer keeps another one that it is around.
_INNER = ("plain", "inner_optimizer", "_optimizer", "_opt")


class Update(
    collections.namedtuple("Update", ["variable", "raw", "gradient", "again", "came", "touched"])
):
    """One variable's part of an update.

    Attributes:
        variable: as it is handed to the optimizer.
        raw: TensorFlow's own, where that is Keras 3's.
        gradient: what the optimizer gets.
        again: function that makes the gradient once more, or None.
        came: whether the variable had a gradient in the cycle, a scalar bool tensor; None if it is
            sure to have had one.
        touched: for a dense gradient that stands for rows, whether each row was touched; or None.
    """

    __slots__ = ()

    def make(self, method, turn, gradient, variable, *args, **kwargs):
        """Calls the optimizer's method for this variable."""
        make = functools.partial(self._in_turn, method, turn)
        if self.came is None:
            return make(gradient, variable, *args, **kwargs)
        made = tf.cond(
            self.came,
            lambda: done(ops_of([make(gradient, variable, *args, **kwargs)])),
            lambda: tf.constant(False),
        )
        return getattr(made, "op", None)

    def _in_turn(self, method, turn, gradient, variable, *args, **kwargs):
        if turn is None or not turn.takes(self.raw):
            return method(gradient, variable, *args, **kwargs)
        with turn.next():
            # If the gradient is the same tensor that the optimizer was given, the optimizer has not
            # changed it, by clipping for instance. It is then made once more, at this variable's
            # turn; nothing uses the first one, so it does not run. Rows are made once: they are
            # few, and most of the work is to find them.
            if self.again is not None and gradient is self.gradient and is_dense(gradient):
                gradient = self.again()
            made = method(gradient, variable, *args, **kwargs)
        turn.took(self.raw)
        return made


class _Turn(object):
    """Has each large variable wait for the last but one before it."""

    def __init__(self):
        self._graph = tf.compat.v1.get_default_graph()
        self._before = []

    def takes(self, raw):
        # An optimizer that compiles its updates makes each in a graph of its own.
        here = tf.compat.v1.get_default_graph() is self._graph
        return here and raw.shape.num_elements() >= LARGE

    def next(self):
        return control_dependencies(self._before[:-1])

    def took(self, raw):
        # A tf.function reads a variable after all writes that come before in the code.
        self._before = self._before[-1:] + [tf.identity(_state.local(raw))]


class _Intercepted(object):
    """Stands before an optimizer's methods, and knows the updates that are being made."""

    def __init__(self):
        self._updates = {}

    def join(self, updates, turn):
        """Takes updates in; returns a function that takes them out again."""
        graph = id(tf.compat.v1.get_default_graph())
        own = {}
        for update in updates:
            # Under a strategy each replica's component is updated by itself.
            components = tf.distribute.get_strategy().experimental_local_results(update.raw)
            for each in (update.variable, update.raw) + tuple(components):
                own[graph, id(each)] = update, turn
        added = [key for key in own if key not in self._updates]
        self._updates.update((key, own[key]) for key in added)

        def leave():
            for key in added:
                self._updates.pop(key, None)

        return leave

    def call(self, method, gradient, variable, *args, **kwargs):
        graph = tf.compat.v1.get_default_graph()
        while graph is not None:
            if (id(graph), id(variable)) in self._updates:
                update, turn = self._updates[id(graph), id(variable)]
                return update.make(method, turn, gradient, variable, *args, **kwargs)
            graph = getattr(graph, "outer_graph", None)
        return method(gradient, variable, *args, **kwargs)


@contextlib.contextmanager
def one_by_one(optimizer, updates):
    """Inside, in a graph, the optimizer's methods for one variable follow these updates."""
    turn = _turn(optimizer)
    if turn is None and all(update.came is None for update in updates):
        yield
        return
    with _stacked([_intercepted(each, updates, turn) for each in all_of(optimizer)]):
        yield


def _turn(optimizer):
    # Replicas update side by side, and in a TF 1 graph a read does not wait for what was written
    # before.
    if any(hasattr(each, "update_step") for each in all_of(optimizer)) and (
        tf.distribute.get_strategy().num_replicas_in_sync == 1 and BACKEND.outermost_graph() is None
    ):
        return _Turn()
    return None


def all_of(optimizer):
    """The optimizer and those that it is around, from the outermost to the innermost."""
    found = []
    while optimizer is not None and all(optimizer is not each for each in found):
        found.append(optimizer)
        inner = [getattr(optimizer, name, None) for name in _INNER]
        optimizer = next((each for each in inner if hasattr(each, "apply_gradients")), None)
    return found


def _intercepted(optimizer, updates, turn):
    methods = [name for name in _METHODS if name in dir(type(optimizer))]

    def make():
        stands_before = _Intercepted()
        made = dict(
            (name, functools.partial(stands_before.call, getattr(optimizer, name)))
            for name in methods
        )
        made[_STANDS_BEFORE] = stands_before
        return made

    return patches.attributes(
        optimizer, make, join=lambda made: made[_STANDS_BEFORE].join(updates, turn)
    )


_STANDS_BEFORE = "_gradaccum_compat_stands_before"


@contextlib.contextmanager
def _stacked(blocks):
    """contextlib.ExitStack, which Python 2 lacks."""
    if not blocks:
        yield
        return
    with blocks[0]:
        with _stacked(blocks[1:]):
            yield
