"""The big batch's gradients, from what its micro-batches add up to. The one place that divides."""

from __future__ import absolute_import, division, print_function

from gradaccum_compat import _algebra
from gradaccum_compat._adaptive_clip import adaptively_clipped


def big_batch(sums, total, replicas, target, options):
    """What the optimizer gets.

    Args:
        sums: for each variable the sum over all replicas, or None.
        total: the total weight of all replicas.
        replicas: how many they are.
        target: the Target.
        options: the accumulator's Options.
    """
    if replicas > 1:
        sums = _algebra.unique_rows(sums)
    if options.loss_reduction == "global_mean":
        total = total / replicas
    if options.loss_reduction != "none":
        sums = _algebra.divide(sums, total)
    if options.adaptive_clip is not None:
        sums = adaptively_clipped(sums, target.raw, options.adaptive_clip)
    if options.clip_norm is not None:
        sums = _algebra.clip_by_global_norm(sums, options.clip_norm)
    return _algebra.cast(sums, target.dtypes)
