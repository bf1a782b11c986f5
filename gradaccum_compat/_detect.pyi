from typing import NamedTuple

class Detected(NamedTuple):
    name: str
    tensorflow_version: str
    why: str

def backend() -> Detected: ...
