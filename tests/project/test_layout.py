"""The layout holds: who imports whom, what an import loads, sizes, links. Each rule can fail."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import ROOT
from tests.project import layout

RULES = (
    layout.arrows,
    layout.optional_dependencies,
    layout.link_imports,
    layout.sizes,
    layout.prints_and_asserts,
    layout.links,
)
Rule = Callable[[Path], list[str]]

BREACHES: list[tuple[Rule, str, str]] = [
    (layout.arrows, "entity_env/obs.py", "import entity_env.agents"),
    (layout.arrows, "entity_env/obs.py", "from entity_env import vec"),
    (layout.arrows, "entity_env/obs.py", "from .games import snake"),
    (layout.arrows, "entity_env/obs.py", "def f() -> None:\n    from entity_env.vec import VecEnv"),
    (layout.arrows, "entity_env/obs.py", "if True:\n    import entity_env.interop.gymnasium"),
    (layout.arrows, "entity_env/agents/random.py", "from entity_env.vec.in_process.base import x"),
    (layout.arrows, "entity_env/agents/ppo/train.py", "from ...games import snake"),
    (layout.arrows, "entity_env/vec/local.py", "from entity_env.games.snake import snake"),
    (layout.arrows, "entity_env/vec/local.py", "import entity_env.cli"),
    (layout.arrows, "entity_env/games/snake.py", "from entity_env.agents import RandomAgent"),
    (layout.arrows, "entity_env/games/snake.py", "from entity_env.vec import VecEnv"),
    (layout.arrows, "entity_env/interop/gymnasium.py", "from entity_env.cli import main"),
    (layout.optional_dependencies, "entity_env/agents/rogue_net/numpy.py", "import torch.nn"),
    (layout.optional_dependencies, "entity_env/vec/x.py", "def f() -> None:\n    import torch"),
    (layout.optional_dependencies, "entity_env/games/snake.py", "from numba import njit"),
    (layout.optional_dependencies, "entity_env/vec/batch.py", "import numba"),
    (layout.optional_dependencies, "entity_env/vec/reset_mask.py", "from numba import njit"),
    (layout.optional_dependencies, "entity_env/episode.py", "import gymnasium as gym"),
    (layout.link_imports, "entity_env/vec/local.py", "from agents import Agent"),
    (layout.link_imports, "examples/demo.py", "import games.snake"),
    (layout.sizes, "entity_env/obs.py", "x = 1\n" * 601),
    (layout.sizes, "entity_env/obs.py", "class A:\n  def f(self):\n" + "    x = 1\n" * 60),
    (layout.prints_and_asserts, "entity_env/obs.py", "def f() -> None:\n    print(1)"),
    (layout.prints_and_asserts, "entity_env/cli/main.py", "assert True, 'no'"),
]
FINE = {
    "entity_env/obs.py": "if TYPE_CHECKING:\n    from entity_env.agents import Agent\n"
    + "x = 1\n" * 598,
    "entity_env/vec_obs.py": "from entity_env.core.spaces import ObsSpace\nimport greenlet",
    "entity_env/agents/ppo/train.py": "import torch\nfrom entity_env.authoring.agent import Agent",
    "entity_env/agents/rogue_net/torch_network.py": "from torch import nn",
    "entity_env/vec/local.py": "from entity_env.agents import TrainAgent\nimport entity_env.vec",
    "entity_env/games/snake.py": "from entity_env.agents import Agent\nimport entity_env.authoring.obs",
    "entity_env/games/classic/cart.py": "import numba\nfrom entity_env.vec.batch_env.batch_env import StepResult",
    "entity_env/games/classic/cart_compiled.py": "from entity_env.core.numba_utils import loaded",
    "entity_env/vec/batch_compiled.py": "from numba import njit",
    "entity_env/interop/gymnasium.py": "import gymnasium\nfrom entity_env.vec import VecEnv",
    "entity_env/cli/main.py": "from entity_env.games import snake\nfrom entity_env.cli import play",
    "entity_env/schema.py": "def f() -> None:\n" + "    console.print(1)\n" * 59,
    "tests/test_snake.py": "from entity_env.games import snake\nassert print(snake)",
}


def plant(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)


@pytest.mark.parametrize("rule", RULES)
def test_layout(rule: Rule) -> None:
    assert rule(ROOT) == []


@pytest.mark.parametrize(("rule", "name", "text"), BREACHES)
def test_finds_a_breach(tmp_path: Path, rule: Rule, name: str, text: str) -> None:
    plant(tmp_path, name, text)
    (breach,) = rule(tmp_path)
    assert breach.startswith(name)


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule is not layout.links])
def test_lets_the_rest_pass(tmp_path: Path, rule: Rule) -> None:
    for name, text in FINE.items():
        plant(tmp_path, name, text)
    assert rule(tmp_path) == []


def test_finds_a_link_that_is_missing_absolute_or_astray(tmp_path: Path) -> None:
    (tmp_path / "agents").symlink_to(tmp_path / "entity_env" / "agents")
    (tmp_path / "vec").symlink_to("entity_env/games")
    assert [breach.split(":")[0] for breach in layout.links(tmp_path)] == ["agents", "games", "vec"]


def test_import_loads_nothing_heavy() -> None:
    script = "import sys, entity_env; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], text=True, stdout=subprocess.PIPE, check=True
    )
    loaded = set(done.stdout.split())
    assert "entity_env" in loaded
    assert not loaded & {"torch", "numba", "gymnasium", "pettingzoo", "warp", "click", "rich"}
