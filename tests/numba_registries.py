"""Initializes numba as for the first function that a process loads or compiles."""

from numba.core.registry import cpu_target

cpu_target.typing_context.refresh()
cpu_target.target_context.refresh()
