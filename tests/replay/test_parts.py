"""Replays of decisions in several parts: round trips, branches, other processes and datasets."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from entity_env import (
    CategoricalActionMask,
    CategoricalActionSpace,
    Entity,
    Game,
    Observation,
    ObsSpace,
    ReplayError,
    SchemaError,
)
from entity_env.agents import RandomAgent, random_actions
from entity_env.replay import Decision, Replay, branch, record, verify_in_new_process
from entity_env.replay.encoding import checksum, observation_from_json, observation_to_json
from entity_env.vec import VecEnv
from tests.contract.test_parts import RULES
from tests.games.composite_games import RandomGame, Rules, duel, order, pair, send

GAMES = [send, pair, duel, order]


@pytest.mark.slow
@settings(max_examples=25)
@given(RULES, st.integers(0, 99), st.booleans())
def test_episodes_come_back(rules: Rules, seed: int, see: bool) -> None:
    game = RandomGame(rules)
    replay = record(game, RandomAgent(seed=seed), seed=seed, see=see)
    read = Replay.from_bytes(replay.to_bytes())
    assert read.lines == replay.lines
    assert read.verify(game) is None
    shown = [list(each.turns(game)) for each in (replay, read)]
    for one, other in zip(*shown, strict=True):
        obs_space = game.obs_space()
        assert checksum(one.observation, obs_space) == checksum(other.observation, obs_space)
    continued = branch(read, min(2, read.num_decisions), [RandomAgent(seed=seed + 1)], game)
    assert continued.verify(game) is None


@pytest.mark.parametrize("game", GAMES, ids=lambda game: game.name)
def test_another_process_repeats_it(game: Game) -> None:
    agents = [RandomAgent(seed=i) for i in range(game.num_agents)]
    replays = [record(game, *agents, seed=seed) for seed in range(3)]
    assert verify_in_new_process(game, replays) == [None] * 3


def test_batches_make_the_same_replays() -> None:
    found: list[Replay] = []
    rng = np.random.default_rng(0)
    with VecEnv(send, 3, seed=1) as vec:
        vec.watch_episodes(lambda _, make: found.append(make()))
        obs = vec.reset()
        for _ in range(12):
            obs = vec.act(random_actions(obs, vec.action_space(), rng))
    assert len(found) == 6
    assert [replay.verify(send) for replay in found] == [None] * 6


def test_an_illegal_combination_in_a_file_is_named() -> None:
    replay = record(send, RandomAgent(seed=1), seed=2)
    first = replay.lines[0]
    assert isinstance(first, Decision)
    found = []
    for share in range(3):
        actions: Any = {**first.actions, "Send.share": [share] * 2}
        changed = Replay(replay.header, [replace(first, actions=actions), *replay.lines[1:]])
        try:
            found.append(str(changed.verify(send)))
        except ReplayError as error:
            found.append(str(error))
    assert any("Send.share" in each and "mask forbids" in each for each in found), found


def test_lists_and_arrays_have_the_same_checksum() -> None:
    rows = [[[True, False], [True, True]], [[False, True], [False, True]]]
    found = set()
    for mask in (rows, np.array(rows), [np.array(each) for each in rows]):
        found.add(checksum(_observation(mask), OBS_SPACE))
    assert len(found) == 1
    for place in np.ndindex(2, 2, 2):
        changed = np.array(rows)
        changed[place] ^= True
        assert checksum(_observation(changed), OBS_SPACE) not in found


@given(st.integers(0, 2), st.integers(1, 3), st.integers(0, 99))
def test_masks_come_back(num_actors: int, num_earlier: int, seed: int) -> None:
    mask = np.random.default_rng(seed).random((num_actors, num_earlier, 2)) < 0.5
    observation = _observation(mask, num_actors)
    data = observation_to_json(observation, OBS_SPACE)
    read: Any = observation_from_json(json.loads(json.dumps(data)), SPACES, reward=0.0)
    np.testing.assert_array_equal(np.reshape(read.actions["share"].mask, mask.shape), mask)
    assert checksum(read, OBS_SPACE) == checksum(observation, OBS_SPACE)


@pytest.mark.parametrize(
    "mask",
    [
        [["10", "11"]],
        [["10"], ["11", "11"]],
        [["10"], "11"],
        [["1"], ["1"]],
        [[1], [1]],
    ],
)
def test_what_does_not_fit_is_refused(mask: object) -> None:
    data = observation_to_json(_observation(None), OBS_SPACE)
    data["m"]["share"]["mask"] = mask
    message = r"the mask of 'share' needs 2 texts of 2 digits 0 or 1, or lists of them"
    with pytest.raises(SchemaError, match=message):
        observation_from_json(data, SPACES, reward=0.0)


OBS_SPACE = ObsSpace(entities={"Base": Entity(("x",))})
SPACES = (
    OBS_SPACE,
    {
        "target": CategoricalActionSpace(("a", "b", "c")),
        "share": CategoricalActionSpace(("x", "y"), given=("target",)),
    },
)


def _observation(mask: Any, num_actors: int = 2) -> Observation:  # noqa: ANN401 - a mask
    return Observation(
        reward=0.0,
        features={"Base": [[float(i)] for i in range(num_actors)]},
        actions={
            "target": CategoricalActionMask(actor_types=["Base"]),
            "share": CategoricalActionMask(actor_types=["Base"], mask=mask),
        },
    )
