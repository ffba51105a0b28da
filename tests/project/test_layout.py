"""The layout: allowed imports, loaded modules, sizes, links. Each rule can fail."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import ROOT
from tests.project import layout

RULES = (
    layout.floors,
    layout.crowded_folders,
    layout.undescribed_folders,
    layout.import_cycles,
    layout.games_named,
    layout.optional_dependencies,
    layout.link_imports,
    layout.sizes,
    layout.prints_and_asserts,
    layout.repeated_names,
    layout.links,
)
Rule = Callable[[Path], list[str]]

VIOLATIONS: list[tuple[Rule, str, str]] = [
    (layout.floors, "entity_env/games/snake.py", "from entity_env.core.spaces import ObsSpace"),
    (layout.floors, "entity_env/games/snake.py", "from entity_env.core.seeding import _private"),
    (layout.floors, "entity_env/games/snake.py", "from entity_env.agents import TrainAgent"),
    (layout.floors, "entity_env/core/obs.py", "import entity_env.agents"),
    (layout.floors, "entity_env/core/obs.py", "from entity_env import vec"),
    (layout.floors, "entity_env/core/obs.py", "from entity_env import Game"),
    (layout.floors, "entity_env/core/obs.py", "from ..games import snake"),
    (layout.floors, "entity_env/core/x.py", "def f() -> None:\n    from entity_env.vec import V"),
    (layout.floors, "entity_env/core/x.py", "if TYPE_CHECKING:\n    import entity_env.authoring"),
    (layout.floors, "entity_env/stray/x.py", "import entity_env.core"),
    (layout.floors, "entity_env/agents/random.py", "from entity_env.vec.local import x"),
    (layout.floors, "entity_env/agents/ppo/train.py", "from ...games import snake"),
    (layout.floors, "entity_env/vec/local.py", "from entity_env.games.snake import snake"),
    (layout.floors, "entity_env/vec/local.py", "import entity_env.cli"),
    (layout.floors, "entity_env/games/snake.py", "from entity_env.agents import RandomAgent"),
    (layout.floors, "entity_env/games/snake.py", "from entity_env.vec import VecEnv"),
    (layout.floors, "entity_env/interop/gymnasium.py", "from entity_env.cli import main"),
    (layout.undescribed_folders, "entity_env/views", "x = 1"),
    (layout.optional_dependencies, "entity_env/agents/rogue_net/numpy.py", "import torch.nn"),
    (layout.optional_dependencies, "entity_env/vec/x.py", "def f() -> None:\n    import torch"),
    (layout.optional_dependencies, "entity_env/games/snake.py", "from numba import njit"),
    (layout.optional_dependencies, "entity_env/vec/batch_env/x.py", "import numba"),
    (layout.optional_dependencies, "entity_env/core/x.py", "import gymnasium as gym"),
    (layout.link_imports, "entity_env/vec/local.py", "from agents import Agent"),
    (layout.link_imports, "examples/demo.py", "import games.snake"),
    (layout.sizes, "entity_env/core/obs.py", "x = 1\n" * 601),
    (layout.sizes, "entity_env/core/obs.py", "class A:\n  def f(self):\n" + "    x = 1\n" * 60),
    (layout.prints_and_asserts, "entity_env/core/obs.py", "def f() -> None:\n    print(1)"),
    (layout.prints_and_asserts, "entity_env/cli/main.py", "assert True, 'no'"),
    (layout.prints_and_asserts, "entity_env/cli/main.py", "import click\nclick.echo(1)"),
    (
        layout.prints_and_asserts,
        "entity_env/cli/main.py",
        "from rich.console import Console, Group\nConsole().print(1)",
    ),
]
FINE = {
    "entity_env/core/obs.py": "from entity_env.core.spaces import Entity\n" + "x = 1\n" * 599,
    "entity_env/core/spaces.py": "if TYPE_CHECKING:\n    from entity_env.core.ids import Id",
    "entity_env/vec/vec_obs.py": "from entity_env.core.spaces import ObsSpace\nimport greenlet",
    "entity_env/agents/ppo/train.py": "import torch\nfrom entity_env.agents.agent import Agent",
    "entity_env/agents/rogue_net/torch_net/net.py": "from torch import nn",
    "entity_env/vec/local.py": "from entity_env.agents import TrainAgent\nimport entity_env.vec",
    "entity_env/games/snake.py": "from entity_env import Game\nfrom entity_env.agents import Agent",
    "entity_env/games/cart/cart.py": "from entity_env.vec.batch_env import BatchEnv",
    "entity_env/games/cart/cart_kernel.py": "from numba import njit",
    "entity_env/games/azul/kernels/engine.py": "from numba import njit",
    "entity_env/interop/gymnasium.py": "import gymnasium\nfrom entity_env.vec import VecEnv",
    "entity_env/cli/main.py": "from entity_env.games import GAMES\nfrom entity_env.cli import play",
    "entity_env/cli/runs.py": "from entity_env.cli.display.console import Console\nConsole()",
    "entity_env/cli/display/console.py": "import click\nclick.echo(1)",
    "entity_env/core/schema.py": "def f() -> None:\n" + "    console.print(1)\n" * 59,
    "tests/games/test_snake.py": "from entity_env.games import snake\nassert print(snake)",
}


def plant(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)


@pytest.mark.parametrize("rule", RULES)
def test_layout(rule: Rule) -> None:
    assert rule(ROOT) == []


@pytest.mark.parametrize(("rule", "name", "text"), VIOLATIONS)
def test_finds_a_violation(tmp_path: Path, rule: Rule, name: str, text: str) -> None:
    plant(tmp_path, name if name.endswith(".py") else f"{name}/x.py", text)
    (violation,) = rule(tmp_path)
    assert violation.startswith(name)


def test_finds_a_folder_of_too_many_files(tmp_path: Path) -> None:
    for i in range(20):
        plant(tmp_path, f"tests/core/test_{i}.py", "")
    assert layout.crowded_folders(tmp_path) == []
    plant(tmp_path, "tests/core/__init__.py", "")
    assert layout.crowded_folders(tmp_path) == ["tests/core has 21 files"]


def test_finds_a_game_that_is_named_outside_of_games(tmp_path: Path) -> None:
    plant(tmp_path, "entity_env/games/chess.py", "")
    plant(tmp_path, "entity_env/cli/a.py", "from entity_env.games import GAMES\nx = 'chess'")
    (violation,) = layout.games_named(tmp_path)
    assert violation == "entity_env/cli/a.py:2 names the game 'chess'"
    plant(tmp_path, "entity_env/cli/a.py", "def f():\n    from entity_env.games.chess import x")
    (violation,) = layout.games_named(tmp_path)
    assert violation.startswith("entity_env/cli/a.py:2 imports entity_env.games.chess")


def test_finds_modules_that_import_each_other(tmp_path: Path) -> None:
    plant(tmp_path, "entity_env/vec/a.py", "from entity_env.vec import b")
    plant(tmp_path, "entity_env/vec/b.py", "def f() -> None:\n    import entity_env.vec.c")
    plant(tmp_path, "entity_env/vec/c.py", "x = 1")
    assert layout.import_cycles(tmp_path) == []
    plant(tmp_path, "entity_env/vec/c.py", "if TYPE_CHECKING:\n    from entity_env.vec.a import x")
    (violation,) = layout.import_cycles(tmp_path)
    assert violation.startswith("entity_env.vec.a and entity_env.vec.b and entity_env.vec.c")
    plant(tmp_path, "entity_env/vec/b.py", "from entity_env.vec.a import x")
    (violation,) = layout.import_cycles(tmp_path)
    assert violation.startswith("entity_env.vec.a and entity_env.vec.b import")


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule is not layout.links])
def test_lets_the_rest_pass(tmp_path: Path, rule: Rule) -> None:
    for name, text in FINE.items():
        plant(tmp_path, name, text)
        if name.startswith("entity_env"):
            plant(tmp_path, f"{Path(name).parent}/__init__.py", '"""What is in here."""')
    assert rule(tmp_path) == []


def test_finds_a_link_that_is_missing_absolute_or_astray(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "agents").symlink_to(tmp_path / "entity_env" / "agents")
    (tmp_path / "vec").symlink_to("entity_env/games")
    assert [violation.split(":")[0] for violation in layout.links(tmp_path)] == [
        "agents",
        "games",
        "vec",
    ]


def test_finds_names_defined_twice(tmp_path: Path) -> None:
    plant(tmp_path, "entity_env/core/a.py", "def f(): ...\nclass Food: ...\ndef _g(): ...")
    plant(tmp_path, "entity_env/vec/b.py", "class C:\n    def f(): ...\nclass Food: ...\n_g = 1")
    assert layout.repeated_names(tmp_path) == []
    plant(tmp_path, "entity_env/vec/c.py", "class f: ...")
    (found,) = layout.repeated_names(tmp_path)
    assert found.startswith("entity_env/core/a.py and entity_env/vec/c.py define f")


def test_every_name_that_may_be_defined_twice_is() -> None:
    assert layout.unused_exceptions(ROOT) == []


def test_a_tree_without_symbolic_links_is_fine(tmp_path: Path) -> None:
    assert layout.links(tmp_path) == []  # as in a source distribution
    for name in layout.LINKS:
        (tmp_path / name).write_text(f"entity_env/{name}")  # as in a zip, or checked out on Windows
    assert layout.links(tmp_path) == []


def test_import_loads_nothing_heavy() -> None:
    script = "import sys, entity_env; from entity_env.games import snake; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], text=True, stdout=subprocess.PIPE, check=True
    )
    loaded = set(done.stdout.split())
    assert "entity_env" in loaded
    assert not loaded & {"numpy", "greenlet", "click", "rich", "cloudpickle", "torch", "numba"}
