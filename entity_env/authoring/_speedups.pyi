from array import array
from collections.abc import Sequence
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

@final
class Reader:
    def __new__(
        cls, of: type, features: tuple[tuple[str] | tuple[str, object], ...], /
    ) -> Reader: ...
    def read(self, entities: Sequence[object], numbers: list[Any], /) -> bool: ...

def set_obs_class(cls: type, /) -> None: ...
def gather(
    shown: Sequence[object],
    asked: Sequence[tuple[Any, ...]],
    first: int,
    row: int,
    kinds: tuple[Any, ...],
    acts: bool,
    columns: tuple[tuple[type | None, object, list[Any], list[int], int, int], ...],
    globals_cls: type,
    has_globals: bool,
    acting: list[int],
    asking: list[int],
    named: list[Any],
    /,
) -> int: ...
def pack_floats(
    numbers: list[Any], out: NDArray[np.float32] | array[float], start: int = 0, /
) -> int: ...
def pack_ints(numbers: list[int], out: NDArray[np.int64], start: int = 0, /) -> int: ...
