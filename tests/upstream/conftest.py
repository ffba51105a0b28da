"""What holds where enn-trainer is: torch_scatter has a stand-in, and torch one thread.

pytest also comes by here without it, on its way through the ordinary tests: then nothing changes.
"""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

STAND_IN = str(Path(__file__).parent / "stand_in")

if find_spec("enn_trainer") is not None:
    import torch

    torch.set_num_threads(1)
    sys.path.insert(0, STAND_IN)
    # Also for processes that the tests start.
    paths = [STAND_IN, *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)


def pytest_configure(config: pytest.Config) -> None:
    """entity-gym is older than the numpy that it runs with."""
    for package in ("entity_gym", "enn_trainer", "rogue_net", "hyperstate"):
        config.addinivalue_line("filterwarnings", f"ignore::DeprecationWarning:{package}")
