"""Which engine plays: compiled, or the reference."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Literal, TypeAlias, get_args

from entity_env.errors import MissingExtraError, UsageError

Backend: TypeAlias = Literal["auto", "numba", "python"]
"""`numba`: compiled, which takes seconds for the first process of an installation. `python`: the
plain reference, which plays the same games. `auto`: compiled where numba is installed."""


def is_compiled(backend: Backend, purpose: str) -> bool:
    """Whether a backend is the compiled one.

    Args:
        backend: whose.
        purpose: what asks, for messages.

    Raises:
        UsageError: no such backend.
        MissingExtraError: "numba" where numba is not installed.
    """
    if backend not in get_args(Backend):
        raise UsageError(
            f"Azul: backend of {purpose} must be one of {', '.join(get_args(Backend))}, "
            f"got {backend!r}"
        )
    has_numba = find_spec("numba") is not None
    if backend == "numba" and not has_numba:
        raise MissingExtraError("numba", "fast", f'Azul: {purpose}(backend="numba")')
    return has_numba and backend != "python"
