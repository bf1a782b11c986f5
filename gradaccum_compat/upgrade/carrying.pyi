from collections.abc import Mapping, Sequence
from typing import Any, Union

class CarriedOver:
    matched: Mapping[str, str]
    converted: Mapping[str, str]
    fresh: list[str]
    left_over: list[str]
    notes: list[str]

def carry_over(
    checkpoint: str,
    optimizer: Any,
    variables: Sequence[Any],
    names: Union[Mapping[str, Any], None] = None,
) -> CarriedOver: ...
