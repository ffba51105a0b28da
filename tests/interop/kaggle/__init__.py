"""Games of kaggle-environments; skipped where it is not installed (`make interop` has it)."""

import pytest

pytest.importorskip(
    "kaggle_environments", reason="kaggle-environments is not installed: run `make interop`"
)
