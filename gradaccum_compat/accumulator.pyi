from typing import Any, Literal, NamedTuple, Union

import tensorflow as tf

from gradaccum_compat._typing import (
    Gradients,
    LossReduction,
    NonFinite,
    Reducer,
    Steps,
    Variables,
    Weight,
)

class _LastUpdate(NamedTuple):
    gradient_norm: tf.Tensor
    clip_factor: tf.Tensor
    weight: tf.Tensor
    micro_batches: tf.Tensor
    noise_scale: tf.Tensor

class Accumulator(tf.Module):
    def __init__(
        self,
        optimizer: Any,
        variables: Variables,
        steps: Union[Steps, None] = None,
        loss_reduction: LossReduction = "mean",
        dtype: Union[Literal["float32", "float64"], tf.DType] = "float32",
        clip_norm: Union[float, None] = None,
        nonfinite: NonFinite = "propagate",
        reducer: Union[Reducer, None] = None,
        name: str = "accumulator",
        adaptive_clip: Union[float, None] = None,
        statistics: bool = False,
    ) -> None: ...
    def accumulate(self, gradients: Gradients, weight: Weight = 1.0) -> tf.Tensor: ...
    def apply(self) -> tf.Tensor: ...
    def step(self, gradients: Gradients, weight: Weight = 1.0) -> tf.Tensor: ...
    def reset(self) -> tf.Tensor: ...
    def build(self) -> None: ...
    def gradients(self) -> list[Union[tf.Tensor, tf.IndexedSlices, None]]: ...
    def statistics(self) -> _LastUpdate: ...
    @property
    def micro_count(self) -> tf.Tensor: ...
    @property
    def total_weight(self) -> tf.Tensor: ...
    @property
    def update_count(self) -> tf.Tensor: ...
    @property
    def skipped_count(self) -> tf.Tensor: ...
    @property
    def steps(self) -> Any: ...
