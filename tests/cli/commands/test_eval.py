"""Parallel episodes do not depend on the number of processes and copies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray

from entity_env import (
    Episode,
    EpisodeEnv,
    Game,
    Obs,
    Observation,
    RaggedArray,
    Schema,
    VecCategoricalActionMask,
    VecContinuousActionMask,
    VecObs,
)
from entity_env.agents import Agent, BatchPolicy, RandomAgent
from entity_env.cli import main
from entity_env.cli.display.match_tables import distinct_ends
from entity_env.cli.load_game import load_game
from entity_env.core.seeding import EpisodeSeeds
from entity_env.games import snake
from entity_env.replay import Replay
from entity_env.vec.evaluation.episodes import Episodes, PlayedEpisode
from tests.helpers.batches import PLAIN_GAMES
from tests.helpers.tiny_games import TINY_GAMES, ask, dots_game

ALONE = {name: game for name, game in {**PLAIN_GAMES, **TINY_GAMES}.items() if game.num_agents == 1}
each_game = pytest.mark.parametrize("game", ALONE.values(), ids=ALONE)


class Fixed:
    """Always takes the first or the last legal choice, without randomness."""

    def __init__(self, takes_last: bool = False) -> None:
        self._takes_last = takes_last

    def decide_batch(self, obs: VecObs, schema: Schema) -> dict[str, NDArray[Any]]:
        spaces = schema.action_space()
        choices: dict[str, NDArray[Any]] = {}
        for name, mask in obs.action_masks.items():
            if isinstance(mask, VecContinuousActionMask):
                width = len(spaces[name])  # type: ignore[arg-type]
                choices[name] = np.zeros((len(mask.actors.values), width), np.float32)
                continue
            if isinstance(mask, VecCategoricalActionMask):
                num_choices = np.full(len(obs), len(spaces[name]))  # type: ignore[arg-type]
            else:
                num_choices = mask.actees.lengths
            choices[name] = self._choose(mask.actors, num_choices, mask.mask)
        return choices

    def _choose(
        self,
        actors: RaggedArray[np.int64],
        num_choices: NDArray[np.int64],
        mask: RaggedArray[np.bool_] | None,
    ) -> NDArray[np.int64]:
        chosen = []
        for row, count in enumerate(num_choices.tolist()):
            shape = int(actors.lengths[row]), count
            allowed = np.ones(shape, np.bool_) if mask is None else mask[row].reshape(shape)
            chosen += [np.flatnonzero(each)[-self._takes_last] for each in allowed]
        return np.array(chosen, dtype=np.int64)


def played(
    game: Game,
    agent: BatchPolicy,
    episodes: int = 10,
    seed: int = 2,
    num_workers: int = 0,
    num_envs: int = 64,
) -> list[Episode]:
    told: list[PlayedEpisode] = []
    planned = Episodes(
        game=game,
        players=lambda block: [agent],  # type: ignore[list-item]  # only used for batches
        count=episodes,
        seed=seed,
        num_workers=num_workers,
        num_envs=num_envs,
    )
    done = planned.play(range(planned.num_blocks), told.append)
    assert sorted(told, key=lambda episode: episode.number) == done
    return [episode for each in done for episode in each.episodes]


@each_game
def test_neither_workers_nor_copies_change_anything(game: Game) -> None:
    alone = played(game, Fixed(), num_envs=1)
    assert len(alone) == 10
    assert played(game, Fixed(), num_envs=64) == alone
    assert played(game, Fixed(), num_envs=3) == alone
    assert played(game, Fixed(), num_envs=4, num_workers=2) == alone


@pytest.mark.slow
@each_game
def test_an_agent_that_draws_lots_is_the_same_with_workers(game: Game) -> None:
    assert played(game, RandomAgent(1), num_workers=2) == played(game, RandomAgent(1))


@each_game
@pytest.mark.parametrize("episodes", [1, 7, 70])
def test_every_start_is_played_once(game: Game, episodes: int) -> None:
    done = played(game, RandomAgent(3), episodes, seed=5)
    assert [episode.number for episode in done] == list(range(episodes))
    assert [episode.seed for episode in done] == [EpisodeSeeds(5)[ix] for ix in range(episodes)]
    assert {episode.env_id for episode in done} == {0}


def test_more_episodes_are_the_same_and_more() -> None:
    assert played(snake, Fixed(), 70)[:9] == played(snake, Fixed(), 9)


def test_two_agents_meet_the_same_starts() -> None:
    """Also if their episodes differ in length, so different copies play them."""
    first = played(snake, Fixed(), 40, num_envs=8)
    last = played(snake, Fixed(takes_last=True), 40, num_envs=8)
    assert [episode.seed for episode in first] == [episode.seed for episode in last]
    assert [episode.length for episode in first] != [episode.length for episode in last]


def play_starts(agent: Agent, *, seed: int) -> None:
    """Shows its first random number; the action sets the length."""
    first = float(np.random.default_rng(seed).random())
    move = ask(agent, x=first)
    for _ in range(0 if move is None else 1 + 3 * move.value * (seed % 3)):
        if ask(agent, x=first) is None:
            return
    agent.game_over(None)


def test_equal_starts_look_the_same() -> None:
    """The first observations of an evaluation equal those of `reset_with_index`."""
    game = dots_game(play_starts)

    class Watching(Fixed):
        def __init__(self, takes_last: bool) -> None:
            super().__init__(takes_last)
            self.seen: set[float] = set()

        def decide_batch(self, obs: VecObs, schema: Schema) -> dict[str, NDArray[Any]]:
            self.seen |= set(obs.features["Dot"].values.ravel().tolist())
            return super().decide_batch(obs, schema)

    with EpisodeEnv.of(game, seed=4) as env:
        starts = [plain_start(env.reset_with_index(ix)) for ix in range(30)]
    assert len(set(starts)) == 30
    for takes_last in (False, True):
        agent = Watching(takes_last)
        played(game, agent, 30, seed=4, num_envs=5)
        assert set(starts) <= agent.seen


def plain_start(obs: Observation) -> float:
    return float(np.asarray(obs.features["Dot"], dtype=np.float32)[0, 0])


def play_long_or_short(agent: Agent, *, seed: int) -> None:
    """A game that is long for every third seed; the reward is its length."""
    length = 40 if seed % 3 == 0 else 1
    for i in range(length):
        if ask(agent, score=i) is None:
            return
    agent.game_over(Obs(length))


@pytest.mark.parametrize("num_envs", [1, 4, 64])
def test_short_episodes_do_not_count_more_often(num_envs: int) -> None:
    done = played(dots_game(play_long_or_short), Fixed(), 60, num_envs=num_envs)
    expected = [40 if EpisodeSeeds(2)[ix] % 3 == 0 else 1 for ix in range(60)]
    assert [episode.length for episode in done] == expected
    assert [episode.reward for episode in done] == expected


def test_it_plays_what_game_run_plays() -> None:
    """A game for one agent gets equal results in parallel and one by one."""
    game = dots_game(play_long_or_short)
    assert played(game, RandomAgent(1), 20) == game.run(RandomAgent(1), seed=2, episodes=20)


BROKEN = """
from dataclasses import dataclass
from enum import Enum
from entity_env import Game, Obs

class Move(Enum):
    LEFT = 0
    RIGHT = 1

@dataclass
class Dot:
    x: float

def play(agents, *, seed):
    agents = agents if isinstance(agents, (list, tuple)) else [agents]
    for i in range(3):
        for agent in agents:
            if agent.act(Obs(i).entities([Dot(i)]), Move) is None:
                return
        if seed % 5 == 0:
            raise ValueError("a multiple of five")
    for agent in agents:
        agent.game_over(Obs(3))

game = Game(play, entities=(Dot,), actions=(Move,), num_agents=NUM_AGENTS, name="broken")
"""


@pytest.mark.parametrize("num_agents", [1, 2])
def test_an_episode_that_fails_leaves_a_replay(tmp_path: Path, num_agents: int) -> None:
    file = tmp_path / "broken.py"
    file.write_text(BROKEN.replace("NUM_AGENTS", str(num_agents)))
    folder = tmp_path / "failures"
    words = ["eval", str(file), "--num-workers", "0", "--failures", str(folder)]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 1
    [path] = folder.iterdir()
    assert "ValueError: a multiple of five" in done.output
    assert str(path) in done.output
    replay = Replay.load(path)
    assert replay.failure == "ValueError: a multiple of five"
    assert replay.num_decisions == num_agents
    assert replay.verify(load_game(str(file))) is None


def test_a_match_keeps_no_failures(tmp_path: Path) -> None:
    words = ["eval", "tic_tac_toe", "--agents", "random,random2", "--failures", str(tmp_path)]
    done = CliRunner().invoke(main, words)
    assert done.exit_code
    assert "--failures is for episodes of --agent" in done.output


@pytest.mark.parametrize(
    "short",
    [
        {
            "run/checkpoints/step-1": "step-1",
            "run/checkpoints/step-2": "step-2",
            "random": "random",
        },
        {"run/a/best": "a/best", "run/b/best": "b/best", "best": "best", "x/bot.py:B": "bot.py:B"},
        {"run/a": "a", "run/a#2": "a#2"},
    ],
)
def test_names_of_a_match_are_as_short_as_they_are_distinct(short: dict[str, str]) -> None:
    assert distinct_ends(tuple(short)) == short
