"""Records made in tests, and what they are compared with."""

from __future__ import absolute_import, division, print_function

import contextlib

import numpy as np

import gradaccum_compat as ga
from gradaccum_compat.upgrade import _format, _sketch

SKETCHER = _sketch.Sketcher()


@contextlib.contextmanager
def into(path, **options):
    """Records into a list, which holds the records once the block has ended."""
    records = []
    with ga.upgrade.record(str(path), **options):
        yield records
    records.extend(_format.read(str(path)))


def check_array(recorded, array, rtol=1e-6):
    """A recorded quantity is that of the array."""
    array = np.asarray(array, np.float64)
    np.testing.assert_allclose(recorded.norm, np.linalg.norm(array), rtol=rtol)
    np.testing.assert_allclose(recorded.max, np.max(np.abs(array)), rtol=rtol)
    assert recorded.zeros == np.sum(array == 0)
    np.testing.assert_allclose(recorded.sketch, SKETCHER.sketch(array), rtol=rtol, atol=rtol)


def check_course(record, final):
    """Each update begins where the one before ended, and the last ended with these weights."""
    assert record.snapshots == record.updates
    states = [record.state(number) for number in record.snapshots]
    for index, weights in enumerate(final):
        for before, after in zip(states, states[1:]):
            np.testing.assert_array_equal(before.after(index), after.weight(index))
        np.testing.assert_array_equal(states[-1].after(index), weights)
        for update, state in zip(record, states):
            check_array(update.weights[index], state.weight(index))
            check_array(update.update_[index], state.after(index) - state.weight(index))
            if state.gradient(index) is not None:
                check_array(update.gradient[index], state.gradient(index))
