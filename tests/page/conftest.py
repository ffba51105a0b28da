"""Fixtures for pages in Chromium."""

from pathlib import Path

import pytest


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    return tmp_path / "profile"
