"""Every import path and dotted name in README.md and the docs exists."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from entity_env import MissingExtraError
from tests import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# Top-level modules of optional dependencies.
EXTRAS = {
    "torch",
    "numba",
    "gymnasium",
    "pettingzoo",
    "minari",
    "entity_gym",
    "warp",
    "pyboy",
    "click",
}
_IMPORT = re.compile(
    r"^[ >]*(from entity_env[\w.]* import (?:\([^)]*\)|[^\n#`]*)|import entity_env[\w.]*)", re.M
)
_DOTTED = re.compile(r"(?<![\w/.\"-])entity_env(?:\.[A-Za-z_]\w*)+(?!\w*/)")


def shown_paths() -> Iterator[str]:
    """Dotted names of all modules and attributes that the pages import or mention."""
    for page in PAGES:
        text = page.read_text()
        for statement in _IMPORT.findall(text):
            (node,) = ast.parse(statement.strip()).body
            if isinstance(node, ast.ImportFrom):
                yield from (f"{node.module}:{alias.name}" for alias in node.names)
            elif isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
        yield from (name for name in _DOTTED.findall(text) if not name.endswith((".py", ".md")))


@contextmanager
def skipping_what_is_not_installed() -> Iterator[None]:
    try:
        yield
    except MissingExtraError as error:
        pytest.skip(str(error))
    except ImportError as error:
        if (error.name or "").split(".")[0] in EXTRAS:
            pytest.skip(f"needs {error.name}")
        raise


PATHS = sorted(set(shown_paths()))


def test_pages_show_some() -> None:
    assert "entity_env:Game" in PATHS
    assert len(PATHS) > 20


@pytest.mark.parametrize("path", PATHS)
def test_path_is_importable(path: str) -> None:
    with skipping_what_is_not_installed():
        pkgutil.resolve_name(path)


@pytest.mark.parametrize(
    "module",
    [
        "entity_env",
        "entity_env.agents",
        "entity_env.agents.ppo",
        "entity_env.agents.rogue_net",
        "entity_env.check",
        "entity_env.games",
        "entity_env.games.azul",
        "entity_env.games.classic",
        "entity_env.games.multi_snake_batch",
        "entity_env.games.pixel",
        "entity_env.games.pixel.xo_chip",
        "entity_env.interop.entity_gym",
        "entity_env.interop.gymnasium",
        "entity_env.interop.pettingzoo",
        "entity_env.vec",
    ],
)
def test_names_that_a_public_package_lists_exist(module: str) -> None:
    with skipping_what_is_not_installed():
        package = importlib.import_module(module)
        assert [name for name in dir(package) if not hasattr(package, name)] == []
