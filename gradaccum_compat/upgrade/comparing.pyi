from collections.abc import Callable, Mapping
from typing import Any, Union

class Comparison:
    verdict: str
    first: Union[dict[str, Any], None]
    causes: list[Any]
    notes: list[str]
    def to_json(self) -> dict[str, Any]: ...
    def json(self) -> str: ...
    def to_html(self) -> str: ...
    def where(self) -> str: ...

def compare(
    old: str,
    new: str,
    map: Union[Mapping[str, str], None] = None,
    progress: Union[Callable[[float], object], None] = None,
) -> Comparison: ...
