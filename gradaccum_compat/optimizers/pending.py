"""Says once that micro-batches have come in that moved nothing: where fit() ends, or else where the program does."""

from __future__ import absolute_import, division, print_function

import atexit
import warnings
import weakref

from gradaccum_compat.backends import BACKEND

_MESSAGE = (
    "gradaccum_compat: {} ended in mid-cycle: {} of {} micro-batches have come in and moved nothing yet. {} "
    "ga.keras.FlushPartialCycle() among the callbacks makes an update of them at the end of each epoch.")


class EndOfFit(object):
    """Mixin for the generations that fit() calls at its end."""

    def finalize_variable_values(self, var_list):
        warn(self._accumulation, "fit()", "They go on into the next one.")
        self._accumulation.hand_over.plain.finalize_variable_values(var_list)


def warn_at_exit(accumulation):
    """For the generation that learns of no end but that of the program."""
    reference = weakref.ref(accumulation)
    atexit.register(lambda: reference() is not None and warn(reference(), "the program", "They are lost."))


def warn(accumulation, what, outlook):
    if accumulation.told or BACKEND.outermost_graph() is not None or not accumulation.state():
        return
    pending = int(accumulation.accumulator.micro_count.numpy())
    if pending:
        accumulation.told = True
        warnings.warn(_MESSAGE.format(what, pending, accumulation.options["steps"], outlook))
