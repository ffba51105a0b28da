"""What numba sets up before it loads or compiles the first function of a process."""

from numba.core.registry import cpu_target

cpu_target.typing_context.refresh()
cpu_target.target_context.refresh()
