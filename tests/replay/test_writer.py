"""Replays written while a game runs."""

import gzip
import json
import math
import os
import random
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from entity_env import Game, Obs, Observation, ReplayError, Turn, UsageError
from entity_env.agents import Agent, RandomAgent
from entity_env.authoring.local_run import Thoughts
from entity_env.games import multi_snake, rock_paper_scissors, snake
from entity_env.replay import Replay, ReplayWriter, record
from entity_env.replay.failures import FailureWriter
from entity_env.replay.play_again import same_random_states
from tests.helpers.tiny_games import Dot, Move, dots_game


def test_a_file_can_be_read_while_its_episode_runs(tmp_path: Path) -> None:
    path = tmp_path / "new" / "x.replay"
    seen = []

    def play(agent: Agent, *, seed: int) -> None:
        for i in range(3):
            if agent.act(Obs(i).entities([Dot(i)]), Move) is None:
                return
            seen.append(Replay.load(path.with_name("x.part.replay")))
        agent.game_over(Obs(3))

    dots_game(play).run(RandomAgent(seed=1), watch=ReplayWriter(path))
    assert [replay.num_decisions for replay in seen] == [1, 2, 3]
    assert not any(replay.is_whole for replay in seen)
    assert Replay.load(path).is_whole
    assert path.read_bytes().startswith(b"\x1f\x8b")
    assert list(path.parent.iterdir()) == [path]


def test_a_file_for_every_episode(tmp_path: Path) -> None:
    writer = ReplayWriter(tmp_path / "snake-{episode}.replay", see=False)
    episodes = snake.run(RandomAgent(seed=1), episodes=3, watch=writer)
    read = [Replay.load(tmp_path / f"snake-{i}.replay") for i in range(3)]
    assert [replay.header.episode_seed for replay in read] == [each.seed for each in episodes]
    assert [replay.rewards for replay in read] == [[each.reward] for each in episodes]
    assert [replay.verify() for replay in read] == [None] * 3
    assert [replay.to_bytes() for replay in writer.replays] == [each.to_bytes() for each in read]


def test_one_file_is_refused_for_several_episodes(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"would hold 2: write \{episode\} in its name"):
        snake.run(RandomAgent(seed=1), episodes=2, watch=ReplayWriter(tmp_path / "x.replay"))
    assert not list(tmp_path.iterdir())
    with pytest.raises(UsageError, match=r"must be called NAME.replay, got x.json"):
        ReplayWriter("x.json")


def test_leaving_in_the_middle_keeps_what_there_was(tmp_path: Path) -> None:
    class Leaves(RandomAgent):
        def decide(self, observation: Observation) -> Any:  # noqa: ANN401 - may be None
            return None if self._run.num_steps == 3 else super().decide(observation)

    path = tmp_path / "x.replay"
    snake.run(Leaves(seed=2), seed=6, watch=ReplayWriter(path))
    replay = Replay.load(path)
    assert (replay.num_decisions, replay.is_whole, replay.failure) == (3, False, "")
    assert replay.verify() is None


def test_what_is_in_the_header(tmp_path: Path) -> None:
    agent = tmp_path / "some.agent"
    agent.write_bytes(b"x")
    writer = ReplayWriter(agents=(str(agent),), source="my.py:game")
    multi_snake.with_settings(num_snakes=2).run(RandomAgent(seed=1), seed=3, watch=writer)
    header = writer.replays[0].header
    assert (header.game, header.settings) == ("multi_snake", {"num_snakes": 2})
    assert header.source == "my.py:game"
    assert header.agents == [{"name": str(agent), "sha": "2d711642b726b044"}]
    assert set(header.made_with) == {"entity_env", "python", "numpy"}
    assert record(multi_snake, RandomAgent(seed=1)).header.agents == [{"name": "RandomAgent"}]


@pytest.mark.parametrize("name", ["/home/me/runs/first/", r"C:\runs\first", "first"])
def test_a_picture_shows_no_folders(name: str) -> None:
    writer = ReplayWriter(agents=(name,))
    snake.run(RandomAgent(seed=1), seed=3, watch=writer)
    assert writer.replays[0].animation().names[0] == "first"


@pytest.mark.parametrize("version", [None, 3, "2b"])
def test_the_version_of_a_game_is_in_the_header(tmp_path: Path, version: str | int | None) -> None:
    def play(agent: Agent, *, seed: int) -> None:
        agent.act(Obs(0).entities([Dot(1)]), Move)
        agent.game_over(Obs(0))

    path = tmp_path / "x.replay"
    game = Game(play, entities=(Dot,), actions=(Move,), version=version)
    record(game, RandomAgent(seed=1)).save(path)
    assert Replay.load(path).header.game_version == version
    with gzip.open(path, "rt") as file:
        assert ("game_version" in json.loads(file.readline())) == (version is not None)


def test_settings_that_json_cannot_hold() -> None:
    def play(agent: Agent, *, seed: int, cells: tuple[int, ...] = ()) -> None:
        agent.act(Obs(0).entities([Dot(1)]), Move)
        agent.game_over(Obs(0))

    game: Game = dots_game(play).with_settings(cells=(1, 2))
    with pytest.raises(ReplayError, match=r"numbers, texts or Enums, .* got cells=\(1, 2\)"):
        record(game, RandomAgent(seed=1))


class Colour(Enum):
    RED = 0
    BLUE = 1


def with_limit(
    agent: Agent,
    *,
    seed: int,
    limit: float = 1.0,
    count: int = 1,
    named: Colour = Colour.RED,
    anything: Any = Colour.RED,  # noqa: ANN401 - in a file, not distinguishable from a string
) -> None:
    agent.act(Obs(0).entities([Dot(len(f"{limit} {count:x} {named} {anything}"))]), Move)
    agent.game_over(Obs(0))


@pytest.mark.parametrize("settings", [{"limit": math.inf}, {"limit": "-inf"}, {"named": "BLUE"}])
def test_settings_that_are_read_back(settings: dict[str, object]) -> None:
    game: Game = dots_game(with_limit)
    replay = record(game.with_settings(**settings), RandomAgent(seed=1))
    assert Replay.from_bytes(replay.to_bytes()).verify(game) is None


@pytest.mark.parametrize(
    "settings", [{"limit": math.nan}, {"count": 10**5000}, {"anything": Colour.BLUE}]
)
def test_settings_that_would_be_others_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ReplayError, match="texts or Enums, and are annotated as such, got"):
        record(dots_game(with_limit).with_settings(**settings), RandomAgent(seed=1))


def test_numbers_that_are_not_finite() -> None:
    class Doubts(RandomAgent):
        def think(self, observation: Observation) -> Thoughts:
            return Thoughts({"Move": np.array([[math.nan, 0.5]], np.float32)}, math.nan)

    def play(agent: Agent, *, seed: int) -> None:
        agent.act(Obs(0).entities([Dot(1)]), Move)
        agent.game_over(Obs(1).metric("mean", math.nan).metric("ok", 2))

    game: Game = dots_game(play)
    replay = Replay.from_bytes(record(game, Doubts(seed=1)).to_bytes())
    assert replay.lines[0].value is None
    assert not replay.lines[0].probabilities
    assert replay.lines[-1].end is not None
    assert replay.lines[-1].end.metrics == {"ok": 2}
    assert replay.verify(game) is None


def test_episodes_that_are_never_whole_keep_no_file_open(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")

    def play(agents: list[Agent], *, seed: int) -> None:
        if agents[0].act(Obs(0), Move) is not None:  # the other agent never acts
            agents[0].game_over(Obs(1))

    game = Game(play, entities=(), actions=(Move,), num_agents=2)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/dev/fd")) + 10, limits[1]))
    try:
        agents = [RandomAgent(seed=i) for i in range(2)]
        game.run(*agents, episodes=30, watch=ReplayWriter(tmp_path / "{episode}.replay"))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert len([Replay.load(path) for path in tmp_path.iterdir()]) == 30


def test_a_full_disk_is_a_replay_error(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    path = tmp_path / "x.replay"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1500, limits[1]))
    try:
        with pytest.raises(ReplayError, match="cannot write"):
            rock_paper_scissors.run(
                *(RandomAgent(seed=i) for i in range(2)), watch=ReplayWriter(path)
            )
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert Replay.load(path).num_decisions


def test_only_game_run_begins_a_replay() -> None:
    with pytest.raises(ReplayError, match=r"a ReplayWriter watches Game\.run"):
        ReplayWriter()(Turn(0, 0, 0.0, None))  # type: ignore[arg-type]  # not read


@dataclass(frozen=True)
class Frozen(Exception):
    """An error that takes no notes."""

    code: int


def test_an_error_that_takes_no_notes_is_raised_and_its_replay_written(tmp_path: Path) -> None:
    def play(agent: Agent, *, seed: int) -> None:
        agent.act(Obs(0), Move)
        raise Frozen(seed)

    game = Game(play, entities=(), actions=(Move,))
    with pytest.raises(Frozen):
        game.run(RandomAgent(), seed=3, watch=FailureWriter(tmp_path, lambda turn: None))
    [path] = tmp_path.iterdir()
    assert "Frozen" in Replay.load(path).failure


def test_global_random_states_are_restored() -> None:
    def drawn() -> tuple[float, float]:
        return random.random(), float(np.random.random())

    random.seed(1)
    np.random.seed(1)
    with same_random_states():
        first = drawn()
    assert drawn() == first
