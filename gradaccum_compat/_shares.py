"""Shares: what the replicas and workers have, and what decides about a cycle, from one small reduction.

What decides is a sum over all of them, so that each enters the same reductions: one that decides alone
hangs the others.
"""

from __future__ import absolute_import, division, print_function

import collections

import tensorflow as tf

from gradaccum_compat import _algebra
from gradaccum_compat._cycle import Cycle
from gradaccum_compat._order import following

#: Each replica's sums, if they are to be reduced; the weight of all replicas, and the marks of the variables that were
#: asked for, added up; whether no micro-batch failed while it was being added; whether an update is due; the positions
#: of the known variables, and whether an unknown one had a gradient (None if there is no unknown one).
Shares = collections.namedtuple("Shares", ["sums", "total", "marks", "intact", "due", "known", "late"])


def layout_of(home):
    """How sums are handed to what reduces them."""
    if home.is_alone():
        return Cycle.OWN
    return Cycle.MASKED if home.adds_rows() else Cycle.WHOLE


def collect(cycle, home, variables, before=()):
    """Makes the small reduction, after the ops before it. The sums are not reduced yet."""
    known, layout = cycle.known(), layout_of(home)
    whole = layout == Cycle.WHOLE
    # Workers may differ in what is known to them; where they may, all of them are asked about all variables.
    asked = [index for index in range(len(variables)) if whole or index not in known]
    share, sums = home.at_state(following(before, cycle.share_and_sums), known, asked, layout)
    reduced = home.sum_over_replicas(share, variables[0])
    total, marks = reduced[0], reduced[2:]
    due = total > 0
    if whole:
        due = tf.logical_and(due, tf.reduce_any(marks > 0))
        known = cycle.known_to_all(marks) if tf.executing_eagerly() else known
    unknown = [position for position, index in enumerate(asked) if index not in known]
    late = tf.reduce_any(tf.gather(marks, unknown) > 0) if unknown else None
    return Shares(sums, total, marks, tf.equal(total, total), due, known, late)


def where(full, shares):
    """The shares of a cycle that ends where `full` holds: elsewhere nothing is due, and nothing to be said."""
    if full is None:
        return shares
    return shares._replace(due=tf.logical_and(full, shares.due),
                           intact=tf.logical_or(tf.logical_not(full), shares.intact))


def added_up_whole(shares, home, variables):
    """Reduces what comes in whole tensors ahead of the conditionals that depend on what a worker has seen.

    TensorFlow tells workers' reductions from one another by counting them as graphs are built: a worker whose
    graph has one in each of two branches would wait for ever for one that has a single branch.
    """
    if layout_of(home) != Cycle.WHOLE:
        return shares
    # Whole tensors are followed by two of flags.
    return shares._replace(sums=home.sum_gradients(shares.sums, variables + variables[:1] * 2))


def reduced(shares, indices, cycle, home, variables):
    """These variables' sums over all replicas and workers: the one reduction of gradients in a cycle.

    None where one state has everything: each replica reads what it needs of it.
    """
    layout = layout_of(home)
    if layout == Cycle.OWN:
        return None
    if layout == Cycle.MASKED:
        return home.sum_gradients(_algebra.only(shares.sums, indices), variables)
    return home.on_replicas(cycle.from_whole, shares.sums, shares.marks, indices)
