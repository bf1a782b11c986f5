from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Union

import tensorflow as tf

from gradaccum_compat._typing import Variables

class _MicrobatchGradients(NamedTuple):
    loss: tf.Tensor
    gradients: list[Union[tf.Tensor, tf.IndexedSlices, None]]
    extras: Any
    # An attribute of its own at run time: the tuple has three elements.
    @property
    def weight(self) -> tf.Tensor: ...

def microbatch_gradients(
    loss_fn: Callable[[Any], Any],
    variables: Variables,
    batch: Any,
    steps: Union[int, Literal["auto"]],
) -> _MicrobatchGradients: ...
