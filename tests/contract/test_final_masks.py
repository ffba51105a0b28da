"""Actors and masks of the final observation of a truncated episode, in all modes and files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from entity_env import (
    Categorical,
    Composite,
    ContractError,
    Game,
    Obs,
    SchemaError,
    SelectEntity,
    VecObs,
    VecSelectEntityActionMask,
)
from entity_env.agents import Agent, RandomAgent, random_actions
from entity_env.agents.imitation import Dataset, DatasetRecorder
from entity_env.check import check_game
from entity_env.interop.gymnasium import GameEnv, make_vector_env
from entity_env.replay import Replay, dataset_of, record
from entity_env.vec import Autoreset, ReplayBuffer, VecEnv


@dataclass
class Hero:
    x: float


@dataclass
class Foe:
    x: float


class Turn(Enum):
    LEFT = 0
    STAY = 1
    RIGHT = 2


TURN = Categorical(Turn)
AIM = SelectEntity(Foe)
LEGAL = [[True, False, True], [False, True, False]]
TARGETS = [[True, False], [False, True]]


def _look(score: float) -> Obs:
    heroes, foes = [Hero(1), Hero(2)], [Foe(3), Foe(4)]
    obs = Obs(score).actors(heroes).entities(foes)
    return obs.mask(TURN, LEGAL).mask(AIM, TARGETS)


def _play(agent: Agent, *, seed: int, is_cut: bool = True) -> None:
    for step in range(3):
        if agent.act(_look(step), TURN, AIM) is None:
            return
    agent.game_over(_look(3), truncated=is_cut)


duel = Game(_play, entities=(Hero, Foe), actions=(TURN, AIM), name="duel")


def until_an_end(vec: VecEnv, seed: int = 1) -> VecObs:
    rng = np.random.default_rng(seed)
    obs = vec.reset()
    while not obs.done.any():
        obs = vec.act(random_actions(obs, vec.action_space(), rng))
    return obs


def require_legal(masks: Any, row: int) -> None:  # noqa: ANN401 - from a VecObs or a dataset
    """Checks that the row allows what `_look` allows."""
    turn, aim = masks["Turn"], masks["SelectFoe"]
    assert isinstance(aim, VecSelectEntityActionMask)
    assert turn.mask is not None
    assert aim.mask is not None
    assert turn.actors[row].tolist() == aim.actors[row].tolist() == [0, 1]
    assert turn.mask[row].tolist() == LEGAL
    assert aim.actees[row].tolist() == [2, 3]
    assert aim.mask[row].reshape(2, 2).tolist() == TARGETS


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("autoreset", ["same_step", "next_step", "disabled"])
def test_final_observations_have_them(autoreset: Autoreset, num_workers: int) -> None:
    with VecEnv(duel, 2, num_workers, autoreset=autoreset) as vec:
        obs = until_an_end(vec)
        assert obs.final is not None
        assert obs.is_ready.all() == (autoreset == "same_step")
        led_to = obs.with_final()
        for row in range(2):
            require_legal(obs.final.action_masks, row)
            require_legal(led_to.action_masks, row)


@pytest.mark.parametrize("autoreset", ["same_step", "next_step", "disabled"])
def test_terminated_episodes_have_no_actors(autoreset: Autoreset) -> None:
    with VecEnv(duel.with_settings(is_cut=False), 2, autoreset=autoreset) as vec:
        obs = until_an_end(vec)
        assert obs.final is not None
        assert obs.final.features["Hero"].lengths.tolist() == [2, 2]
        assert not obs.final.is_ready.any()


@pytest.mark.parametrize("autoreset", ["same_step", "next_step", "disabled"])
def test_a_replay_buffer_keeps_them(autoreset: Autoreset) -> None:
    buffer, rng = ReplayBuffer(50), np.random.default_rng(1)
    with VecEnv(duel, 2, autoreset=autoreset) as vec:
        obs = vec.reset().copy()
        for _ in range(3):
            actions = random_actions(obs, vec.action_space(), rng)
            next_obs = vec.act(actions)
            buffer.add(obs, actions, next_obs)
            obs = next_obs.copy()
    kept = buffer.select(np.arange(len(buffer))).next_obs
    assert kept.truncated.sum() == 2
    for row in range(len(kept)):
        require_legal(kept.action_masks, row)


@pytest.mark.parametrize("ending", [".npz", ".parquet"])
def test_datasets_keep_them(ending: str, tmp_path: Path) -> None:
    if ending == ".parquet":
        pytest.importorskip("pyarrow")
    recorder = DatasetRecorder()
    duel.run(RandomAgent(1), episodes=2, watch=recorder)
    path = tmp_path / f"duel{ending}"
    recorder.dataset().save(path)
    for dataset in (recorder.dataset(), Dataset.load(path)):
        final = dataset.final
        assert final is not None
        assert dataset.truncated.tolist() == [False, False, True] * 2
        assert final.features["Hero"].lengths.tolist() == [0, 0, 2] * 2
        for row in (2, 5):
            require_legal(final.action_masks, row)
        last = dataset.select([5, 0]).final
        assert last is not None
        require_legal(last.action_masks, 0)
        assert not len(last.action_masks["Turn"].actors[1])


@pytest.mark.parametrize("see", [True, False])
def test_replays_keep_them_for_datasets(see: bool, tmp_path: Path) -> None:
    """With observations in the file, and by playing the game again."""
    replay = record(duel, RandomAgent(1), seed=4, see=see)
    path = tmp_path / "duel.replay"
    replay.save(path)
    dataset = dataset_of([Replay.load(path)], duel)
    assert dataset.final is not None
    require_legal(dataset.final.action_masks, len(dataset) - 1)
    assert Replay.load(path).verify(duel) is None


class Gate(Enum):
    OPEN = 0
    SHUT = 1


def _play_gate(agent: Agent, *, seed: int, last: str = "gate") -> None:
    """Asks two questions in turn; the final observation has a different one from the last step."""
    if agent.act(Obs(0).actors([Hero(0)]).mask(TURN, [[True, True, False]]), TURN) is None:
        return
    if agent.act(Obs(1).actors([Hero(1)]), Gate) is None:
        return
    obs = Obs(2).actors([Hero(2)])
    if last == "turn":
        obs.mask(TURN, [[False, True, True]])
    elif last == "blocked":
        obs.mask(TURN, [[False, False, False]])
    elif last == "blank":
        obs = Obs(2)
    agent.game_over(obs, truncated=True)


gate = Game(_play_gate, entities=(Hero,), actions=(TURN, Gate), name="gate")


@pytest.mark.parametrize("num_workers", [0, 1])
@pytest.mark.parametrize(
    ("last", "offered"),
    [("gate", ["Gate"]), ("turn", ["Turn"]), ("blocked", ["Turn"]), ("blank", [])],
)
def test_offered_are_the_actions_asked_last_or_those_that_masks_name(
    last: str, offered: list[str], num_workers: int
) -> None:
    with VecEnv(gate.with_settings(last=last), 1, num_workers) as vec:
        final = until_an_end(vec).final
        assert final is not None
        masks: Any = final.action_masks
        assert [name for name in masks if len(masks[name].actors.values)] == offered
        if last == "turn":
            assert masks["Turn"].mask[0].tolist() == [[False, True, True]]
        if last == "blocked":
            assert not masks["Turn"].mask[0].any()


@dataclass(frozen=True)
class Strike:
    foe: Foe
    turn: Turn


STRIKE = Composite(Strike)
AFTER_FOE = [[[True, False, False], [False, True, True]]] * 2
MASKS: dict[str, tuple[Callable[[Obs], Obs], str]] = {
    "first part": (lambda obs: obs.mask(STRIKE.foe, TARGETS), ""),
    "second part": (lambda obs: obs.mask(STRIKE.turn, LEGAL), ""),
    "part given": (lambda obs: obs.mask(STRIKE.turn, AFTER_FOE, given=STRIKE.foe), ""),
    "both parts": (lambda obs: obs.mask(STRIKE.foe, TARGETS).mask(STRIKE.turn, LEGAL), ""),
    "rows": (
        lambda obs: obs.mask(STRIKE.foe, TARGETS[:1]),
        r"shape .* \(2, 2\): got \(1",
    ),
    "choices": (
        lambda obs: obs.mask(STRIKE.turn, TARGETS),
        r"shape .* \(2, 3\): got \(2",
    ),
    "earlier": (
        lambda obs: obs.mask(STRIKE.turn, np.ones((2, 5, 3), np.bool_), given=STRIKE.foe),
        "needs 2 rows, one for each choice",
    ),
    "no actors": (
        lambda obs: Obs(obs.score).entities(obs.groups[0]).mask(STRIKE.foe, TARGETS),
        "asks every actor, but the observation marks none",
    ),
}


def _play_strike(agent: Agent, *, seed: int, mask: str, where: str = "cut") -> None:
    """Masks a decision in an `act`, or in the last observation after another question."""
    for step in range(2):
        obs = Obs(step).actors([Hero(1), Hero(2)]).entities([Foe(3), Foe(4)])
        if step and where == "act":
            answer: Any = agent.act(MASKS[mask][0](obs), STRIKE)
        else:
            answer = agent.act(obs, TURN)
        if answer is None:
            return
    obs = Obs(2).actors([Hero(1), Hero(2)]).entities([Foe(3), Foe(4)])
    agent.game_over(obs if where == "act" else MASKS[mask][0](obs), truncated=True)


strike = Game(
    _play_strike,
    entities=(Hero, Foe),
    actions=(TURN, STRIKE),
    name="strike",
)


@pytest.mark.slow
@pytest.mark.parametrize("where", ["act", "cut"])
@pytest.mark.parametrize("mask", MASKS)
def test_masks_of_one_part_follow_the_same_rules_in_act_and_at_a_cut(mask: str, where: str) -> None:
    """In a `VecEnv`, in `Game.run` and in `check_game`."""
    game, problem = strike.with_settings(mask=mask, where=where), MASKS[mask][1]
    if problem:
        with pytest.raises(SchemaError, match=problem), VecEnv(game, 1) as vec:
            until_an_end(vec)
        with pytest.raises(ContractError, match=problem):
            check_game(game, episodes=1, new_process=False)
        return
    with VecEnv(game, 1) as vec:
        obs = vec.act(random_actions(vec.reset(), vec.action_space(), np.random.default_rng(1)))
        if where == "cut":
            last = vec.act(random_actions(obs, vec.action_space(), np.random.default_rng(1))).final
            assert last is not None
            obs = last
        masks: Any = obs.action_masks
        assert masks["Strike.foe"].actors[0].tolist() == [0, 1]
        assert masks["Strike.turn"].actors[0].tolist() == [0, 1]
        assert not len(masks["Turn"].actors[0])
        if mask in ("first part", "both parts"):
            assert masks["Strike.foe"].mask[0].reshape(2, 2).tolist() == TARGETS
        if mask in ("second part", "both parts"):
            after_each = masks["Strike.turn"].mask[0].reshape(2, -1, 3)  # of the first part
            assert after_each.tolist() == [[row, row] for row in LEGAL]
    [episode] = game.run(RandomAgent(1))
    assert episode.truncated
    assert check_game(game, episodes=1, new_process=False) >= 1


@pytest.mark.parametrize("mode", [each.value for each in AutoresetMode])
def test_gymnasium_vectors_show_the_last_masks(mode: str) -> None:
    # Each of two heroes: [left, right], [stay]; places of foes follow those of heroes.
    turn, aim = [[1, 0, 1], [0, 1, 0]], [[0, 0, 1, 0], [0, 0, 0, 1]]
    actions = {TURN.name: [[0, 1]] * 2, AIM.name: [[2, 3]] * 2}
    for is_cut in (True, False):
        env = make_vector_env(duel, 2, autoreset_mode=mode, is_cut=is_cut)
        env.reset(seed=1)
        infos: dict[str, Any] = {}
        for _ in range(3):
            *_, terminated, truncated, infos = env.step(actions)
        assert (truncated if is_cut else terminated).all()
        last = infos["final_info"] if mode == "SameStep" else infos
        for name, rows in ((TURN.name, turn), (AIM.name, aim)):
            expected = np.array([rows] * 2) * is_cut
            np.testing.assert_array_equal(last["action_mask"][name], expected)
        env.close()


def test_a_single_gymnasium_environment_shows_the_last_masks() -> None:
    env = GameEnv(duel)
    env.reset(seed=1)
    for _ in range(3):
        *_, truncated, info = env.step({TURN.name: [0, 1], AIM.name: [2, 3]})
    assert truncated
    assert info["action_mask"][TURN.name].tolist() == [[1, 0, 1], [0, 1, 0]]
    env.close()
