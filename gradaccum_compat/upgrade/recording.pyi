from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Union

def record(
    path: str,
    follow: Union[str, None] = None,
    snapshots: Union[Iterable[int], None] = None,
) -> AbstractContextManager[None]: ...
