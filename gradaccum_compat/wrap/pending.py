"""Says once, where fit() or the program ends, that micro-batches came in that made no update."""

from __future__ import absolute_import, division, print_function

import atexit
import sys
import warnings
import weakref

from gradaccum_compat import errors
from gradaccum_compat.backends import BACKEND

_MESSAGE = (
    "gradaccum_compat: {} ended in mid-cycle: {} of {} micro-batches have come in and made no"
    " update yet. {} ga.keras.FlushPartialCycle() among the callbacks makes an update of them at"
    " the end of each epoch."
)
#: Modules whose lines stand between the user's line and the warning.
_PACKAGES = ("gradaccum_compat", "keras", "tensorflow", "tensorflow_core", "tf_keras")


class EndOfFit(object):
    """Mixin for the generations that fit() calls at its end."""

    def finalize_variable_values(self, var_list):
        warn(self._accumulation, "fit()", "They go on into the next one.")
        self._accumulation.hand_over.plain.finalize_variable_values(var_list)


def warn_at_exit(accumulation):
    """For the generation that learns of no end but that of the program."""
    reference = weakref.ref(accumulation)
    atexit.register(
        lambda: reference() is not None and warn(reference(), "the program", "They are lost.")
    )


def warn(accumulation, what, outlook):
    if accumulation.told or BACKEND.outermost_graph() is not None or not accumulation.state():
        return
    try:
        accumulator = accumulation.accumulator
        pending, steps = int(accumulator.micro_count.numpy()), int(accumulator.steps)
    except errors.ContextError:
        return  # made in a graph, whose values are unknown here
    if pending:
        accumulation.told = True
        warnings.warn(_MESSAGE.format(what, pending, steps, outlook), stacklevel=_users_frame())


def _users_frame():
    """The stacklevel of the user's own line, for warnings.warn in the function that calls this."""
    frame, level = sys._getframe(1), 1
    while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] in _PACKAGES:
        frame, level = frame.f_back, level + 1
    return level
