"""Gymnasium's and PettingZoo's environment tests, on every game of the registry."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env

from entity_env import UsageError
from entity_env.interop.gymnasium import GameEnv
from tests.interop.named_games import NAMED, each_of, needs

# Expected warnings: features have no bounds, a torque has; masks make an observation a dict;
# entities may be absent.
pytestmark = pytest.mark.filterwarnings(
    "ignore:.*A Box observation space m.*infinity",
    "ignore:.*For Box action spaces, we recommend",
    "ignore:.*Not able to test alternative render modes",
    "ignore:Observation is not a NumPy array",
    "ignore:Observation space for each agent probably should be",
    "ignore:Observation numpy array is all zeros",
    "ignore:Action mask numpy array is all zeros",
)
NUM_CYCLES = 60


def options(name: str) -> dict[str, Any]:
    """Options for tests that sample actions without masks."""
    return {"illegal_actions": "next"}


@each_of(name for name, game in NAMED.items() if game.num_agents == 1)
def test_gymnasium_finds_nothing_wrong(name: str) -> None:
    """Its check also resets with equal and different seeds, and compares equal environments."""
    needs(name)
    env = GameEnv(NAMED[name], **options(name))
    check_env(env)
    env.close()


@each_of(NAMED, slow=lambda name: name.startswith("azul"))
def test_pettingzoo_finds_nothing_wrong_where_agents_act_at_once(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    needs(name)
    test = pytest.importorskip("pettingzoo.test")
    from entity_env.interop.pettingzoo import GameParallelEnv

    make = partial(GameParallelEnv, NAMED[name], **options(name))
    test.parallel_api_test(make(), num_cycles=NUM_CYCLES)
    test.parallel_seed_test(make, num_cycles=10)
    capsys.readouterr()


@each_of(NAMED, slow=lambda name: name.startswith("azul"))
def test_pettingzoo_finds_nothing_wrong_where_agents_take_turns(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    needs(name)
    test = pytest.importorskip("pettingzoo.test")
    from entity_env.interop.pettingzoo import GameAECEnv, GameParallelEnv

    parallel = GameParallelEnv(NAMED[name], **options(name))
    is_one_choice = isinstance(parallel.action_space("player_0"), spaces.Discrete)
    parallel.close()
    make = partial(GameAECEnv, NAMED[name], **options(name))
    if not is_one_choice:
        with pytest.raises(UsageError, match="one choice at a time; take a GameParallelEnv"):
            make()
        return
    test.api_test(make(), num_cycles=NUM_CYCLES)
    test.seed_test(make, num_cycles=10)
    capsys.readouterr()
