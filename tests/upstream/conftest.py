"""Set-up for tests with enn-trainer: a replacement for torch_scatter, and one torch thread.

pytest also loads this file in ordinary test runs, without enn-trainer: then it has no effect.
"""

import warnings
from importlib.util import find_spec

import pytest

if find_spec("enn_trainer") is not None:
    import torch

    with warnings.catch_warnings():  # before pytest applies the filters below
        warnings.simplefilter("ignore", DeprecationWarning)
        from tests.upstream.torch_scatter import provide_torch_scatter

    torch.set_num_threads(1)
    provide_torch_scatter()


def pytest_configure(config: pytest.Config) -> None:
    """Ignores warnings: entity-gym is older than its numpy."""
    for package in ("entity_gym", "enn_trainer", "rogue_net", "hyperstate"):
        config.addinivalue_line("filterwarnings", f"ignore::DeprecationWarning:{package}")
