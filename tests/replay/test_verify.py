"""Repeated episodes are equal, or a sentence says where they differ."""

import os
import random
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, make_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from entity_env import (
    Action,
    Game,
    Obs,
    Observation,
    ReplayError,
    UsageError,
    WorkerError,
)
from entity_env.agents import Agent, PolicyAgent, RandomAgent
from entity_env.cli.load_game import load_game
from entity_env.games import GAMES, snake
from entity_env.replay import (
    Decision,
    Replay,
    ReplayWriter,
    branch,
    record,
    verify_in_new_process,
)
from tests.helpers.batches import PLAIN_GAMES
from tests.helpers.tiny_games import TINY_GAMES

GOLDEN = Path(__file__).parents[1] / "data" / "replays"
ALL = {**PLAIN_GAMES, **TINY_GAMES}


def random_agents(game: Game, seed: int = 0) -> list[Agent]:
    return [RandomAgent(seed=seed + i) for i in range(game.num_agents)]


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.replay")), ids=lambda path: path.stem)
def test_golden(path: Path) -> None:
    replay = Replay.load(path)
    if replay.header.game.startswith("pixel"):
        pytest.importorskip("torch")
    assert replay.is_whole
    assert replay.verify() is None


def test_every_game_has_a_golden_replay() -> None:
    names = {*GAMES} - {"pixel"}  # pixel runs a user's file
    assert {path.stem for path in GOLDEN.glob("*.replay")} == {
        name.replace(":", "_") for name in names
    }


# ------------------------------------------------------------------ games that were changed


@dataclass
class Dot:
    x: int


class Go(Enum):
    LEFT = 0
    RIGHT = 1


class Jump(Enum):
    UP = 0


def dots(
    name: str = "dots",
    *,
    length: int = 30,
    move: Callable[[random.Random, int, int], int] = lambda rng, i, x: x,
    entity: type = Dot,
    actions: tuple[type[Enum], ...] = (Go,),
    ask: type[Enum] = Go,
    num_dots: Callable[[int], int] = lambda i: 1,
    reward: int = 1,
    mask: bool = False,
) -> Game:
    def play(agent: Agent, *, seed: int) -> None:
        rng = random.Random(seed)
        x = score = 0
        for i in range(length):
            obs = Obs(score).entities([entity(x)] * num_dots(i))
            if mask:
                obs = obs.mask(ask, [True, i < 3])
            action = agent.act(obs, ask)
            if action is None:
                return
            x = move(rng, i, x + 1)
            score += reward * (i == 4) + 1
        agent.game_over(Obs(score).entities([entity(x)]))

    return Game(play, entities=(entity,), actions=actions, name=name)


class Right(PolicyAgent):
    """Always takes the last choice."""

    def decide(self, observation: Observation) -> Mapping[str, Action]:
        return {each.name: each.action([1]) for each in self.questions(observation)}


Wide = make_dataclass("Dot", [("x", int), ("y", int, 0)])

BOTH = (Go, Jump)


@pytest.mark.parametrize(
    ("game", "kind", "sentence"),
    [
        (dots(move=lambda rng, i, x: x + (i > 20)), "observation",
         "agent 0, step 22: Dot 0: x was 22, is 23 now"),
        (dots(reward=2), "observation", "agent 0, step 5: the reward was 2, is 3 now"),
        (dots(length=20), "end",
         "agent 0, step 20: the episode ends now, 10 more decisions were recorded"),
        (
            dots(length=31),
            "end",
            "agent 0, step 30: the episode ended here, the game continues now",
        ),
        (dots(num_dots=lambda i: 1 + (i == 7)), "observation",
         "agent 0, step 7: 1 Dot was seen, 2 now"),
        (dots(entity=Wide), "schema",
         "entity 'Dot': the game has the feature 'y', the replay does not"),
        (dots(actions=BOTH), "schema", "the game has the action 'Jump', the replay does not"),
        (dots(move=lambda rng, i, x: x // (i < 9)), "raises",
         "agent 0, step 10: the game raises ZeroDivisionError: integer division or modulo by zero"),
        (dots(mask=True), "observation", "agent 0, step 0: the mask of Go differs"),
    ],
)  # fmt: skip
def test_a_changed_game_diverges(game: Game, kind: str, sentence: str) -> None:
    found = record(dots(), RandomAgent(seed=1), seed=1).verify(game)
    assert found is not None
    assert (found.kind, str(found)) == (kind, sentence)


def test_without_observations_the_checksums_differ() -> None:
    replay = record(dots(), RandomAgent(seed=1), seed=1, see=False)
    found = replay.verify(dots(move=lambda rng, i, x: x + (i > 20)))
    assert str(found).startswith("agent 0, step 22: the observation differs (")


def test_an_action_that_is_no_longer_allowed() -> None:
    replay = record(dots(), Right(), seed=1, see=False)
    lines = [
        Decision(line.agent_id, line.step, line.actions, end=line.end) for line in replay.lines
    ]
    found = Replay(replay.header, lines).verify(dots(mask=True))
    assert str(found) == (
        "agent 0, step 3: a recorded action does not fit: action 'Go': got 'RIGHT', "
        "which its mask forbids; allowed are LEFT"
    )


def test_other_actions_are_requested() -> None:
    replay = record(dots(actions=BOTH), RandomAgent(seed=1), seed=1)
    found = replay.verify(dots(actions=BOTH, ask=Jump))
    assert str(found) == "agent 0, step 0: Go was requested, Jump is now"


def duel(first: int) -> Game:
    def play(agents: list[Agent], *, seed: int) -> None:
        for i in range(6):
            if agents[(i + first) % 2].act(Obs(0).entities([Dot(1)]), Go) is None:
                return
        for agent in agents:
            agent.game_over(Obs(0))

    return Game(play, entities=(Dot,), actions=(Go,), num_agents=2, name="duel")


def test_another_agent_is_next() -> None:
    replay = record(duel(0), *random_agents(duel(0)), seed=1)
    found = replay.verify(duel(1))
    assert str(found) == "agent 1, step 0: agent 0 decided next, agent 1 does now"


def test_food_drawn_in_another_order(monkeypatch: pytest.MonkeyPatch) -> None:
    replay = Replay.load(GOLDEN / "snake.replay")
    module = sys.modules["entity_env.games.snake"]
    draw = module._new_food

    def in_reverse(cells: list[Any], head: object, body: list[Any], rng: object) -> object:
        return draw(cells[::-1] if len(body) >= 3 else cells, head, body, rng)

    monkeypatch.setattr(module, "_new_food", in_reverse)
    found = replay.verify(snake)
    assert found is not None
    assert (found.kind, found.entity, found.feature) == ("observation", "Food 0", "x")
    assert str(found).startswith(f"agent 0, step {found.step}: Food 0: x was ")


FAULTS: dict[str, Callable[[random.Random, int, int], int]] = {
    "global random": lambda rng, i, x: x + random.randrange(1000),
    "clock": lambda rng, i, x: x + time.perf_counter_ns() % 1000,
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_game_that_no_seed_governs(name: str) -> None:
    game = dots(move=FAULTS[name])
    found = record(game, RandomAgent(seed=1), seed=1).verify(game)
    assert found is not None
    assert (found.step, found.entity, found.feature) == (1, "Dot 0", "x")


@pytest.mark.slow
def test_the_order_of_a_set_differs_in_another_process_only() -> None:
    def from_a_set(rng: random.Random, i: int, x: int) -> int:
        return x + int(next(iter({str(rng.random()) for _ in range(30)}))[-3:])

    game = dots(move=from_a_set)
    replay = record(game, RandomAgent(seed=1), seed=1)
    assert replay.verify(game) is None
    (found,) = verify_in_new_process(game, [replay])
    assert found is not None  # with a probability of 1/30, the first step is equal
    assert (found.entity, found.feature) == ("Dot 0", "x")


def test_another_process_finds_the_same() -> None:
    replays = [record(snake, RandomAgent(seed=i), seed=i) for i in range(3)]
    assert verify_in_new_process(snake, replays) == [None] * 3


@pytest.mark.slow
def test_another_process_that_dies_or_hangs_is_named() -> None:
    def die(rng: random.Random, i: int, x: int) -> int:
        os._exit(7)

    def kill(rng: random.Random, i: int, x: int) -> int:
        os.kill(os.getpid(), 9)
        return x

    def hang(rng: random.Random, i: int, x: int) -> int:
        time.sleep(60)
        return x

    replay = record(dots(), RandomAgent(seed=1), seed=1)
    with pytest.raises(ReplayError, match=r"another process: it died \(signal 9\)"):
        verify_in_new_process(dots(move=kill), [replay])
    with pytest.raises(ReplayError, match="played in another process: it ended with the code 7"):
        verify_in_new_process(dots(move=die), [replay])
    with pytest.raises(ReplayError, match=r"took longer than 0\.5 s"):
        verify_in_new_process(dots(move=hang), [replay], timeout_s=0.5)


# ------------------------------------------------------------------ failures, games, branches


def boom(rng: random.Random, i: int, x: int) -> int:
    if i == 6:
        raise ValueError("boom")
    return x


def test_a_failure_is_played_again() -> None:
    writer = ReplayWriter()
    with pytest.raises(ValueError, match="boom"):
        dots(move=boom).run(RandomAgent(seed=1), seed=1, watch=writer)
    (replay,) = writer.replays
    assert (replay.failure, replay.num_decisions, replay.is_whole) == ("ValueError: boom", 7, False)
    read = Replay.from_bytes(replay.to_bytes())
    assert read.failure == "ValueError: boom"
    assert read.verify(dots(move=boom)) is None
    assert str(read.verify(dots())) == (
        "the game failed here with ValueError: boom, but now it does not"
    )


def test_the_game_is_found_or_asked_for() -> None:
    assert record(snake, RandomAgent(seed=1)).find_game() is snake
    replay = record(dots(), RandomAgent(seed=1))
    with pytest.raises(
        ReplayError, match="is a replay of the game 'dots', which is not imported: pass the"
    ):
        replay.verify()


def test_a_file_cannot_make_anything_be_imported() -> None:
    replay = record(snake, RandomAgent(seed=1))
    header = {**vars(replay.header), "source": "antigravity:snake"}
    with pytest.raises(ReplayError, match="in antigravity:snake, which is not imported"):
        Replay(type(replay.header)(**header), replay.lines).verify()


def test_other_settings_and_numbers_of_agents() -> None:
    replay = record(snake, RandomAgent(seed=1), board_size=5)
    assert replay.header.settings == {"board_size": 5}
    assert replay.verify() is None
    with pytest.raises(ReplayError, match="cannot be played: dots has no setting 'board_size'"):
        replay.verify(dots())
    with pytest.raises(ReplayError, match="has 1 agents, but rock_paper_scissors is for 2"):
        record(snake, RandomAgent(seed=1)).verify(PLAIN_GAMES["rock_paper_scissors"])


def test_a_branch_goes_on_from_a_decision() -> None:
    replay = record(dots(), RandomAgent(seed=1), seed=1)
    other = branch(replay, 12, [Right()], dots())
    assert other.lines[:12] == replay.lines[:12]
    assert other.header.parent == {"sha": replay.sha, "at": 12}
    assert [line.actions for line in other.lines[12:30]] == [{"Go": 1}] * 18
    assert other.verify(dots()) is None
    with pytest.raises(UsageError, match="has 30 decisions: expected 0 to 30, got 31"):
        branch(replay, 31, [Right()], dots())
    with pytest.raises(ReplayError, match="cannot be continued: agent 0, step 1: Dot"):
        branch(replay, 12, [Right()], dots(move=lambda rng, i, x: x + 1))


def test_a_branch_of_several_agents() -> None:
    game = PLAIN_GAMES["tic_tac_toe"]
    replay = record(game, *random_agents(game), seed=1)
    other = branch(replay, 3, random_agents(game, 50))
    assert other.lines[:3] == replay.lines[:3]
    assert other.is_whole
    assert other.verify() is None


# ------------------------------------------------------------------ subtle ends


def pair(leaves_at: int = 3, ends: tuple[int, ...] = (0, 1)) -> Game:
    """Two agents in turn; the second is not asked in one round, or not told about the end."""

    def play(agents: list[Agent], *, seed: int) -> None:
        for i in range(3):
            for agent in agents[: 1 if i == leaves_at else 2]:
                if agent.act(Obs(i), Go) is None:
                    return
        for i in ends:
            agents[i].game_over(Obs(3))

    return Game(play, entities=(), actions=(Go,), num_agents=2, name="pair")


def test_a_game_that_returns_early_diverges() -> None:
    replay = record(pair(), *random_agents(pair()), seed=1)
    assert replay.verify(pair()) is None
    assert str(replay.verify(pair(2, ends=(0,)))) == (
        "agent 1, step 2: the game returns now, 1 more decisions were recorded"
    )
    assert str(replay.verify(pair(ends=(0,)))) == (
        "agent 1, step 3: the game returns now, the end of the episode was recorded"
    )
    with pytest.raises(
        ReplayError, match="cannot be continued: agent 1, step 2: the game returns now"
    ):
        branch(replay, 6, random_agents(pair()), pair(2, ends=(0,)))


@pytest.mark.parametrize("score", [2**60 + 1, 10**30, 1e300])
def test_large_scores_are_the_same(score: float) -> None:
    def play(agent: Agent, *, seed: int) -> None:
        agent.act(Obs(score), Go)
        agent.game_over(Obs(3 * score).metric("large", score))

    game = Game(play, entities=(), actions=(Go,), name="large")
    for see in (True, False):
        replay = record(game, RandomAgent(seed=1), see=see)
        assert Replay.from_bytes(replay.to_bytes()).verify(game) is None


def failing(name: str) -> Callable[[random.Random, int, int], int]:
    def move(rng: random.Random, i: int, x: int) -> int:
        if i == 4 and name == "hangs":
            time.sleep(60)
        if i == 4 and name == "exits":
            sys.exit(3)
        if i == 4 and name == "dies":
            os._exit(7)
        return x

    return move


def test_a_game_that_leaves_python_is_played_again() -> None:
    writer = ReplayWriter()
    with pytest.raises(WorkerError, match=r"called sys\.exit\(3\): return from play instead"):
        dots(move=failing("exits")).run(RandomAgent(seed=1), seed=1, watch=writer)
    (replay,) = writer.replays
    assert replay.failure == "called sys.exit(3)"
    assert replay.verify(dots(move=failing("exits"))) is None
    assert str(replay.verify(dots())).endswith("called sys.exit(3), but now it does not")


def failed(failure: str) -> Replay:
    """Actions alone, as stored by a `VecEnv`."""
    replay = record(dots(), RandomAgent(seed=1), seed=1, see=False)
    lines = [Decision(0, i, line.actions) for i, line in enumerate(replay.lines[:5])]
    return Replay(replay.header, lines, failure=failure)


def test_a_hang_is_verified_with_the_timeout_that_found_it() -> None:
    replay = failed("hangs: no answer for 0.2 s")
    assert replay.verify(dots(move=failing("hangs"))) is None
    assert "but now it does not" in str(replay.verify(dots()))


@pytest.mark.parametrize("failure", ["hangs: no answer for 30 s", "died (signal 11)"])
def test_what_hangs_or_dies_is_shown_up_to_there(failure: str) -> None:
    game = dots(move=failing("dies"))
    assert [turn.step for turn in failed(failure).turns(game)] == [0, 1, 2, 3, 4]
    empty = Replay(failed(failure).header, [], failure=failure)
    assert empty.turns(dots(length=0)) == []


def test_a_setting_named_self_is_refused() -> None:
    replay = record(dots(), RandomAgent(seed=1))
    header = {**vars(replay.header), "settings": {"self": 1}}
    with pytest.raises(ReplayError, match=r"cannot be played: .*'self'"):
        Replay(type(replay.header)(**header), replay.lines).verify(dots())


FILE = """
from enum import Enum
from entity_env import Game, Obs
class Go(Enum):
    LEFT, RIGHT = 0, 1
def play(agent, *, seed):
    print("printed", flush=True)
    if agent.act(Obs({score}), Go) is not None:
        agent.game_over(Obs(5))
game = Game(play, entities=(), actions=(Go,), name="game")
"""


def loaded(folder: Path, name: str, score: int = 0) -> Game:
    """Loads the game of a file like the command line."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(FILE.format(score=score))
    return load_game(str(path))


@pytest.fixture
def folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder; modules imported from it are unloaded afterwards."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("random_game", "twice"):
        monkeypatch.setitem(sys.modules, name, sys)
        monkeypatch.delitem(sys.modules, name)
    return tmp_path


def test_a_file_called_as_a_module_of_python(folders: Path) -> None:
    game = loaded(folders, "random.py")
    assert game.play.__module__ == "random_game"
    assert verify_in_new_process(game, [record(game, RandomAgent(seed=1))]) == [None]


def test_modules_of_python_are_not_taken_from_the_current_folder(
    folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folders)
    (folders / "pickle.py").write_text("raise RuntimeError('another pickle')")
    replay = record(snake, RandomAgent(seed=1))
    assert verify_in_new_process(snake, [replay]) == [None]


def test_two_files_of_one_name_are_two_games(folders: Path) -> None:
    games = [loaded(folders / f"{i}", "twice.py", score=i) for i in range(2)]
    games[0] = loaded(folders / "0", "twice.py")
    replay = record(games[0], RandomAgent(seed=1))
    assert verify_in_new_process(games[0], [replay]) == [None]
