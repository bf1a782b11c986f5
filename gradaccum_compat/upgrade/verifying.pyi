from collections.abc import Callable
from typing import Any, NamedTuple, Union

from gradaccum_compat._typing import Variables

class Difference(NamedTuple):
    name: str
    difference: float
    rounding: float
    ratio: Union[float, None]
    accumulated_norm: float
    big_norm: float
    @property
    def equal(self) -> bool: ...

class Cause(NamedTuple):
    id: str
    evidence: str
    remedy: str

class Report:
    variables: list[Difference]
    explained: list[Cause]
    steps: int
    loss: float
    big_loss: float
    @property
    def equal(self) -> bool: ...
    @property
    def causes(self) -> list[str]: ...

def verify(
    loss_fn: Callable[[Any], Any], variables: Variables, batch: Any, steps: int
) -> Report: ...
