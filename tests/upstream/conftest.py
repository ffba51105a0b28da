"""What holds where enn-trainer is: torch_scatter has a stand-in, and torch one thread.

pytest also comes by here without it, on its way through the ordinary tests: then nothing changes.
"""

import warnings
from importlib.util import find_spec

import pytest

if find_spec("enn_trainer") is not None:
    import torch

    with warnings.catch_warnings():  # before pytest has heard of those below
        warnings.simplefilter("ignore", DeprecationWarning)
        from tests.upstream.torch_scatter import provide_torch_scatter

    torch.set_num_threads(1)
    provide_torch_scatter()


def pytest_configure(config: pytest.Config) -> None:
    """entity-gym is older than the numpy that it runs with."""
    for package in ("entity_gym", "enn_trainer", "rogue_net", "hyperstate"):
        config.addinivalue_line("filterwarnings", f"ignore::DeprecationWarning:{package}")
