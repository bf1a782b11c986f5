"""Updates in turn: large variables are updated two at a time, each gradient made when its variable's turn comes.

From TF 2.11 on Keras updates a variable by some ten ops. All sums are there at once, so TensorFlow begins with many
variables side by side, and keeps what those ops put out: for 67 million parameters in 16 layers and Adam the peak of
the process lay 4 to 7 bytes a parameter above that without accumulation, another one in each run (without oneDNN, whose
allocator made it 5 to 11). TensorFlow 2.21, two cores, the time of a cycle of four layers of 2048, K = 8, over that
without accumulation, in three processes:

    at a time    time                   peak above
    one          1.35 1.32 1.30         4.0 bytes a parameter
    two          1.22 1.19 1.18         4.2
    all          1.23 1.34 1.18         4.2 to 7.0
"""

from __future__ import absolute_import, division, print_function

import contextlib

import tensorflow as tf

from gradaccum_compat import _checks
from gradaccum_compat._order import after
from gradaccum_compat.backends import BACKEND

#: Elements from which on a variable waits for its turn: 4 MiB of float32, which keep several processors busy by
#: themselves. Smaller ones are better updated side by side.
LARGE = 2 ** 20


@contextlib.contextmanager
def updates(optimizer, anew):
    """Inside, and in a tf.function, an optimizer that has update_step(gradient, variable, ...) updates in turn.

    Args:
        optimizer: any optimizer.
        anew: functions that make a gradient once more, by the id of the tensor that is handed to the optimizer.
    """
    # What stands in for a wrapped optimizer has the plain one, whose method it is.
    optimizer = getattr(optimizer, "plain", optimizer)
    # Replicas update side by side, and in a TF 1 graph a read does not wait for what was written before.
    if not hasattr(optimizer, "update_step") or tf.distribute.get_strategy().num_replicas_in_sync > 1 or (
            tf.executing_eagerly() or BACKEND.outermost_graph() is not None):
        yield
        return
    # Past __setattr__, which would track it.
    attributes = optimizer.__dict__
    own = {name: attributes[name] for name in ["update_step"] if name in attributes}
    attributes["update_step"] = InTurn(optimizer.update_step, anew)
    try:
        yield
    finally:
        del attributes["update_step"]
        attributes.update(own)


class InTurn(object):
    """An update_step that waits for the last but one before it, where the variable is large."""

    def __init__(self, update_step, anew):
        self._update_step, self._anew = update_step, anew
        self._graph = tf.compat.v1.get_default_graph()
        self._before = [None, None]

    def __call__(self, gradient, variable, *args, **kwargs):
        raw = _checks.raw_variable(variable)
        # An optimizer that compiles its updates makes each in a graph of its own.
        if raw.shape.num_elements() < LARGE or tf.compat.v1.get_default_graph() is not self._graph:
            return self._update_step(gradient, variable, *args, **kwargs)
        with after(self._before[:1]):
            # If it is the very tensor that was handed over, nothing was done to it, such as clipping: what the first
            # one was made by has no other use and does not run.
            gradient = self._anew.get(id(gradient), lambda: gradient)()
            updated = self._update_step(gradient, variable, *args, **kwargs)
        # A tf.function reads a variable when all that was to be written before is written.
        self._before = [self._before[1], tf.identity(BACKEND.local(raw))]
        return updated
