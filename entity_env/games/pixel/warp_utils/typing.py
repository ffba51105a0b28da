"""Types of NVIDIA Warp for kernels and type checkers.

Functions marked `func` and `kernel` are compiled, never run by Python. Importing this imports Warp;
call `runtime.import_warp` first.
"""

# No `from __future__ import annotations`: Warp reads the annotations.
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar

if TYPE_CHECKING:
    Function = TypeVar("Function", bound=Callable[..., object])
    T = TypeVar("T")

    class Array(Generic[T]):
        """An array in a kernel."""

        ptr: int
        shape: tuple[int, ...]

        def __getitem__(self, place: int | tuple[int, ...]) -> T: ...
        def __setitem__(self, place: int | tuple[int, ...], value: T) -> None: ...

    # One, two and three dimensions.
    Ints1: TypeAlias = Array[int]
    Words1: TypeAlias = Array[int]
    Words3: TypeAlias = Array[int]
    Longs2: TypeAlias = Array[int]
    Bytes1: TypeAlias = Array[int]
    Floats1: TypeAlias = Array[float]
    Floats2: TypeAlias = Array[float]
    Flags1: TypeAlias = Array[bool]
    Word: TypeAlias = int
    Long: TypeAlias = int

    def func(function: Function) -> Function:
        """Decorator for functions that kernels call."""

    def kernel(function: Function) -> Function:
        """Decorator for a kernel, which runs once per index of its launch."""

    def native(snippet: str) -> Callable[[Function], Function]:
        """Decorator for functions with a C++ body."""

    class wp:
        """Warp functions used by kernels."""

        @staticmethod
        def int32(value: float) -> int: ...
        @staticmethod
        def uint8(value: int) -> int: ...
        @staticmethod
        def float32(value: float) -> float: ...
        @staticmethod
        def where(condition: bool, chosen: T, otherwise: T) -> T: ...
        @staticmethod
        def abs(value: int) -> int: ...
        @staticmethod
        def min(first: int, second: int) -> int: ...
        @staticmethod
        def max(first: int, second: int) -> int: ...
        @staticmethod
        def clamp(value: int, low: int, high: int) -> int: ...
        @staticmethod
        def bit_count(bits: int) -> int: ...
        @staticmethod
        def array(*, ptr: int, shape: tuple[int], dtype: Callable[[Any], T]) -> Array[T]: ...
        @staticmethod
        def atomic_add(array: Array[T], place: int, value: T) -> T: ...
        # Any: one number or several, depending on the launch.
        @staticmethod
        def tid() -> Any: ...  # noqa: ANN401
        @staticmethod
        def block_dim() -> int: ...
        @staticmethod
        def tile(value: T) -> Array[T]: ...
        @staticmethod
        def tile_sum(tile: Array[T]) -> Array[T]: ...
        @staticmethod
        def tile_store(array: Array[T], tile: Array[T], *, offset: tuple[int]) -> None: ...
        @staticmethod
        def set_module_options(options: dict[Literal["fuse_fp"], bool]) -> None: ...

else:
    import warp as wp

    Ints1 = wp.array1d(dtype=wp.int32)
    Words1, Words3 = wp.array1d(dtype=wp.uint32), wp.array3d(dtype=wp.uint32)
    Longs2 = wp.array2d(dtype=wp.uint64)
    Bytes1 = wp.array1d(dtype=wp.uint8)
    Floats1, Floats2 = wp.array1d(dtype=wp.float32), wp.array2d(dtype=wp.float32)
    Flags1 = wp.array1d(dtype=wp.bool)
    Word, Long = wp.uint32, wp.uint64
    func, native = wp.func, wp.func_native
    kernel = wp.kernel(enable_backward=False)
