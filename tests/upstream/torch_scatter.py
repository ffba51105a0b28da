"""The part of torch_scatter that rogue-net needs; the original takes four minutes to build.

Equal to the last bit if every row is reached, in values and gradients. `reduce="max"` only supports
pooling, which rogue-net 0.1.9 cannot run anyway.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec

import torch


def provide_torch_scatter() -> None:
    """Makes `import enn_trainer` succeed without torch_scatter.

    Registers this module under that name, in this process. Does nothing if torch_scatter is
    installed or has been imported.
    """
    if "torch_scatter" not in sys.modules and find_spec("torch_scatter") is None:
        sys.modules["torch_scatter"] = sys.modules[__name__]


def scatter(
    src: torch.Tensor,
    index: torch.Tensor,
    dim: int = -1,
    out: torch.Tensor | None = None,
    dim_size: int | None = None,
    reduce: str = "sum",
) -> torch.Tensor:
    """Joins the rows of `src` that have the same index.

    Args:
        src: `(num_rows, num_columns)`.
        index: `(num_rows,)` int64, the target of each row.
        dim: only 0 is supported.
        out: zeros, the buffer for the result.
        dim_size: rows of the result; None = one more than the largest index.
        reduce: "sum", "mean" or "max".
    """
    if dim != 0 or index.dim() != 1:
        raise NotImplementedError(f"rows alone are joined: got dim {dim}, {index.dim()} axes")
    if out is None:
        if dim_size is None:
            dim_size = int(index.max()) + 1 if index.numel() else 0
        out = src.new_zeros(dim_size, *src.shape[1:])
    places = index.view(-1, *[1] * (src.dim() - 1)).expand_as(src)
    kind = {"sum": "sum", "mean": "mean", "max": "amax"}[reduce]
    return out.scatter_reduce_(0, places, src, kind, include_self=False)
