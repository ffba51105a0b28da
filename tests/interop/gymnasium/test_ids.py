"""Gymnasium ids of the games of this package, and their default sizes."""

from __future__ import annotations

import json
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import data_equivalence

from entity_env import SchemaError
from entity_env.games import GAMES
from entity_env.games.versions import VERSIONS
from entity_env.interop.gymnasium import EntityVectorEnv, GameEnv, game_ids
from tests import ROOT
from tests.interop.named_games import NAMED, each_of, needs

ROOM_IS_NEEDED = "give the largest number"


def test_every_game_for_one_agent_has_an_id() -> None:
    assert set(game_ids()) == {name for name, game in NAMED.items() if game.num_agents == 1}
    assert game_ids()["multi_snake"] == "entity_env/MultiSnake-v0"
    assert game_ids()["pixel:grid"] == "entity_env/PixelGrid-v0"


@pytest.mark.parametrize("name", VERSIONS)
def test_versions_are_those_of_the_game(name: str) -> None:
    game, version = NAMED[name], VERSIONS[name]
    assert getattr(game, "version", None) in (None, version, str(version))


@pytest.mark.parametrize("name", NAMED)
def test_every_game_knows_its_largest_numbers(name: str) -> None:
    game = NAMED[name]
    assert set(game.max_entities) <= set(game.obs_space().entities)


@each_of(game_ids())
def test_an_id_makes_one_and_many_alike(name: str) -> None:
    needs(name)
    env_id = game_ids()[name]
    env = gymnasium.make(env_id)
    assert env.spec is not None
    assert env.spec.id == env_id
    assert isinstance(env.unwrapped, GameEnv)
    obs, info = env.reset(seed=3)
    envs = gymnasium.make_vec(env_id, 2)
    assert isinstance(envs, EntityVectorEnv)
    assert envs.single_observation_space == env.observation_space
    assert envs.single_action_space == env.action_space
    many, infos = envs.reset(seed=3)
    assert data_equivalence({key: rows[0] for key, rows in many.items()}, obs, exact=True)
    assert infos["episode_seed"][0] == info["episode_seed"]
    env.close()
    envs.close()


def test_the_page_of_games_lists_ids_and_sizes() -> None:
    ids = game_ids()
    rows = [
        f"| `{name}` | {f'`{ids[name]}`' if name in ids else '–'} | "
        f"{f'`{json.dumps(game.max_entities)}`' if game.max_entities else '–'} |"
        for name, game in NAMED.items()
    ]
    page = (ROOT / "docs" / "games.md").read_text("utf-8")
    assert "\n".join(["|---|---|---|", *rows, ""]) in page


def test_settings_of_the_game_and_of_the_environment() -> None:
    env = gymnasium.make(
        "entity_env/Snake-v0", board_size=5, max_entities={"Segment": 24}, max_episode_steps=2
    )
    assert env.observation_space["Segment"].shape == (24, 2)  # type: ignore[index]
    env.reset(seed=1)
    assert [env.step(0)[3] for _ in range(2)] == [False, True]
    env.close()
    with pytest.raises(SchemaError, match=ROOM_IS_NEEDED):
        gymnasium.make("entity_env/Snake-v0", max_entities={})


def test_a_full_board_of_snake_fits() -> None:
    assert GAMES["snake"].max_entities["Segment"] == 10**2 - 1


@pytest.mark.slow
def test_ids_are_there_after_the_import_and_by_the_name_of_the_module() -> None:
    """This loads no game, and neither torch nor numba."""
    code = """
import sys, gymnasium, entity_env.interop.gymnasium
found = [name for name in gymnasium.registry if name.startswith("entity_env/")]
heavy = {"torch", "numba", "entity_env.games.azul", "entity_env.games.classic.play"}
print(len(found), sorted(heavy & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == f"{len(game_ids())} []\n", done.stderr
    code = """
import gymnasium
env = gymnasium.make("entity_env.interop.gymnasium:entity_env/CherryPick-v0")
print(env.reset(seed=1)[0]["Cherry"].shape)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "(16, 1)\n", done.stderr


def test_an_id_is_made_in_other_processes() -> None:
    envs = gymnasium.make_vec("entity_env/Meteors-v0", 2, vectorization_mode="async")
    plain = gymnasium.make_vec("entity_env/Meteors-v0", 2)
    assert data_equivalence(envs.reset(seed=4)[0], plain.reset(seed=4)[0], exact=True)
    actions = np.zeros(2, np.int64)
    assert data_equivalence(envs.step(actions)[0], plain.step(actions)[0], exact=True)
    envs.close()
    plain.close()
