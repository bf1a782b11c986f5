# What the stubs share. For type checkers alone: there is no such module when a program runs.
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, SupportsFloat, Union

import tensorflow as tf

Gradients = Sequence[Any]
LossReduction = Literal["mean", "sum", "global_mean", "none"]
NonFinite = Literal["propagate", "skip", "raise"]
Reducer = Callable[[list[tf.Tensor]], Sequence[tf.Tensor]]
Steps = Union[int, Mapping[int, int], Callable[[Any], Any]]
Variables = Union[Sequence[Any], Callable[[], Sequence[Any]]]
Weight = Union[SupportsFloat, tf.Tensor]
