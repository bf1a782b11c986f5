"""Optimizers with slots: tf.compat.v1.train, and Keras's OptimizerV2 (1.14 to 2.10, `legacy` to
2.15).

Neither has a public way to make its state ahead of an update; these are the calls that their own
apply_gradients begins with, each of which makes only what is missing.
"""

from __future__ import absolute_import, division, print_function

import tensorflow as tf

from gradaccum_compat.core import _state
from gradaccum_compat.core._graph import control_dependencies, ops_of
from gradaccum_compat.optimizers import updates


def serves(optimizer):
    return hasattr(optimizer, "_create_slots")


def create_state(optimizer, variables):
    if not hasattr(optimizer, "_create_hypers"):
        return optimizer._create_slots(variables)
    with tf.name_scope(optimizer._name):  # as apply_gradients does: it is part of their names
        if hasattr(optimizer, "_create_all_weights"):
            return optimizer._create_all_weights(variables)
        # OptimizerV2 before TF 2.3: reading `iterations` makes them.
        assert optimizer.iterations is not None
        optimizer._create_hypers()
        return optimizer._create_slots(variables)


#: Optimizers that leave rows alone which no micro-batch has touched: their slots too, or the
#: variable alone. Under XLA a dense gradient stands for rows: its changes of such rows are undone.
_LAZY = {
    "SGD": True,
    "Adadelta": True,
    "Adamax": True,
    "Ftrl": True,
    "RMSprop": True,
    "Nadam": False,
    "MomentumOptimizer": True,
    "AdadeltaOptimizer": True,
    "RMSPropOptimizer": True,
    "FtrlOptimizer": True,
    "AdagradDAOptimizer": True,
    "ProximalAdagradOptimizer": True,
    "ProximalGradientDescentOptimizer": True,
}


def apply_gradients(optimizer, parts):
    kept = [pair for part in parts for pair in _rows_to_keep(optimizer, part)]
    before = [_state.read(variable) for variable, _ in kept]
    with control_dependencies(before):
        updated = optimizer.apply_gradients([(part.gradient, part.variable) for part in parts])
    for (variable, touched), old in zip(kept, before):
        mask = tf.reshape(touched, [-1] + [1] * (old.shape.ndims - 1))
        new = tf.compat.v2.where(mask, _state.read(variable), old)
        _state.write(variable, new)
    return ops_of([updated])


def _rows_to_keep(optimizer, part):
    """Variables with a row for each of this one's, and which of their rows were touched."""
    if part.touched is None:
        return []
    optimizer = updates.all_of(optimizer)[-1]
    names = [each.__name__ for each in type(optimizer).__mro__]
    lazy = [_LAZY[name] for name in names if name in _LAZY]
    # OptimizerV2's RMSprop has a sparse rule of its own for momentum alone.
    if not lazy or ("RMSprop" in names and not getattr(optimizer, "_momentum", True)):
        return []
    slots = [optimizer.get_slot(part.variable, name) for name in optimizer.get_slot_names()]
    return [(variable, part.touched) for variable in [part.raw] + (slots if lazy[0] else [])]
