"""Tests, in the tree of the package: core/test_spaces.py tests entity_env/core/spaces.py.

`helpers` has code shared by several folders, `contract` has suites over every game or executor,
`project` tests the repository itself, `attack` injects faults, `upstream` tests other packages.
"""

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
"""The root of the repository."""
DATA: Final = ROOT / "tests" / "data"
"""Recorded games, checkpoints and broken files."""
