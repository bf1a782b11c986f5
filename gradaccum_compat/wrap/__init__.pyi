from collections.abc import Callable
from typing import Any, Literal, Union

import tensorflow as tf

from gradaccum_compat._typing import LossReduction, NonFinite, Reducer, Steps, Weight
from gradaccum_compat.accumulator import Accumulator

# At run time it is of the plain optimizer's own class, with all of its attributes.
class _AccumulatedOptimizer(tf.keras.optimizers.Optimizer):
    @property
    def accumulator(self) -> Accumulator: ...
    def __getattr__(self, name: str) -> Any: ...

def wrap_optimizer(
    optimizer: Any,
    steps: Steps,
    loss_reduction: LossReduction = "global_mean",
    weight: Union[Weight, Callable[[], Any]] = 1.0,
    *,
    dtype: Union[Literal["float32", "float64"], tf.DType] = "float32",
    clip_norm: Union[float, None] = None,
    nonfinite: NonFinite = "propagate",
    reducer: Union[Reducer, None] = None,
    name: str = "accumulator",
    adaptive_clip: Union[float, None] = None,
    statistics: bool = False,
    global_step: Literal["updates", "micro_batches"] = "updates",
) -> _AccumulatedOptimizer: ...
def unwrap_optimizer(optimizer: Any) -> Any: ...
