"""Optimizers with slots: tf.compat.v1.train, and Keras's OptimizerV2 (1.14 to 2.10, `legacy` to 2.15).

Neither has a public way to make its state ahead of an update; these are the calls that their own
apply_gradients begins with, each of which makes only what is missing.
"""

from __future__ import absolute_import, division, print_function


def serves(optimizer):
    return hasattr(optimizer, "_create_slots")


def create_state(optimizer, variables):
    if hasattr(optimizer, "_create_all_weights"):
        optimizer._create_all_weights(variables)
    elif hasattr(optimizer, "_create_hypers"):
        # OptimizerV2 before TF 2.3: reading `iterations` makes them.
        assert optimizer.iterations is not None
        optimizer._create_hypers()
        optimizer._create_slots(variables)
    else:
        optimizer._create_slots(variables)


def apply_gradients(optimizer, pairs):
    return optimizer.apply_gradients(pairs)
