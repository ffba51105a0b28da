"""Environments that keep all copies as arrays (`BatchEnv`, `BatchVecEnv`), and `ResetMask`.

`BatchSource` and `ArrayBatch` let a `VecEnv` step other environments that keep their state in
arrays. Rules of games belong to `games`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from entity_env.lazy_imports import late_names

if TYPE_CHECKING:
    from entity_env.vec.batch_env.array_batch import (
        ActionValues as ActionValues,
        ArrayBatch as ArrayBatch,
    )
    from entity_env.vec.batch_env.batch_env import (
        MISFIT as MISFIT,
        NUM_SLOTS as NUM_SLOTS,
        BatchActions as BatchActions,
        BatchEnv as BatchEnv,
        BatchSeed as BatchSeed,
        PackedResult as PackedResult,
        ResetMask as ResetMask,
        StepResult as StepResult,
        are_in_range as are_in_range,
        as_any_array as as_any_array,
        checked_actions as checked_actions,
    )
    from entity_env.vec.batch_env.reset_mask import require_reset_mask as require_reset_mask
    from entity_env.vec.batch_env.reset_mask_kernel import pack_words as pack_words
    from entity_env.vec.batch_env.source import BatchSource as BatchSource

_LATE = {
    **dict.fromkeys(("ActionValues", "ArrayBatch"), "array_batch"),
    **dict.fromkeys(("MISFIT", "NUM_SLOTS", "BatchActions", "BatchEnv", "BatchSeed"), "batch_env"),
    **dict.fromkeys(("PackedResult", "ResetMask", "StepResult"), "batch_env"),
    **dict.fromkeys(("are_in_range", "as_any_array", "checked_actions"), "batch_env"),
    "require_reset_mask": "reset_mask",
    "pack_words": "reset_mask_kernel",
    "BatchSource": "source",
}

__getattr__ = late_names(__name__, _LATE)
