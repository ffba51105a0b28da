"""Tests, in the tree of the package: core/test_spaces.py tests entity_env/core/spaces.py.

`helpers` is for what several folders share, `contract` for suites over every game or executor,
`project` for the repository itself, `attack` for faults on purpose, `upstream` for other packages.
"""

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
"""The root of the repository."""
DATA: Final = ROOT / "tests" / "data"
"""Recorded games, checkpoints and broken files."""
