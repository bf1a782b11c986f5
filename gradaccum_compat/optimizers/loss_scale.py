"""Loss-scale optimizers: the accumulating one goes inside, so that gradients are unscaled before they are added up."""

from __future__ import absolute_import, division, print_function


def serves(optimizer):
    # `inner_optimizer` came with 2.4, for the experimental one's `get_unscaled_gradients`; v1's has `_optimizer` alone.
    return any(hasattr(optimizer, each) for each in ("inner_optimizer", "get_unscaled_gradients")) or (
        "LossScale" in type(optimizer).__name__)


def around(optimizer, wrap):
    """A loss-scale optimizer like this one around a wrapped inner optimizer.

    Args:
        optimizer: the loss-scale optimizer; its scale starts afresh.
        wrap: function that wraps the inner optimizer.
    """
    inner = wrap(getattr(optimizer, "inner_optimizer", None) or optimizer._optimizer)
    if not hasattr(optimizer, "initial_scale"):
        return type(optimizer)(inner, optimizer._loss_scale)
    config = {name: value for name, value in optimizer.get_config().items() if name != "inner_optimizer"}
    inner.__dict__.pop("_is_wrapped_by_loss_scale_optimizer", None)
    return type(optimizer)(inner, **config)
