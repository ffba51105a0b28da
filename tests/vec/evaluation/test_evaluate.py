"""`evaluate`, and the command that does the same."""

from __future__ import annotations

import json
import math
import signal
import statistics
from collections.abc import Sequence
from enum import Enum
from pathlib import Path

import pytest
from click.testing import CliRunner

from entity_env import Game, Obs, UsageError
from entity_env.agents import Agent, RandomAgent, ScriptedAgent
from entity_env.agents.intervals import student_t95
from entity_env.authoring.action_type import ActionKey
from entity_env.cli import main
from entity_env.cli.commands import eval as eval_command
from entity_env.cli.display.console import ProgressBar
from entity_env.core.seeding import EpisodeSeeds
from entity_env.games import snake, tic_tac_toe
from entity_env.vec import evaluate
from entity_env.vec.evaluation.episodes import PlayedEpisode
from tests.helpers.tiny_games import ask, dots_game


class First(ScriptedAgent):
    def choose(self, obs: Obs, *actions: ActionKey) -> object:
        return obs.allowed(actions[0])[0]


class Failing(First):
    """Fails in every second episode."""

    def __init__(self) -> None:
        self.num_episodes = 0

    def begin_episode(self) -> None:
        self.num_episodes += 1

    def choose(self, obs: Obs, *actions: ActionKey) -> object:
        if self.num_episodes % 2:
            raise ValueError("an odd episode")
        return super().choose(obs, *actions)


def play_some(agent: Agent, *, seed: int) -> None:
    """Every third episode never ends."""
    score = 0
    while seed % 3 == 0 or score < 4:
        if ask(agent, score=score) is None:
            return
        score += 1
    agent.game_over(Obs(score), truncated=seed % 3 == 1)


SOME = dots_game(play_some)
AGENTS: dict[str, Agent] = {"batched": RandomAgent(1), "one by one": First()}


@pytest.mark.parametrize("agent", AGENTS.values(), ids=AGENTS)
def test_truncated_episodes_are_counted_and_those_at_the_limit_are_told(agent: Agent) -> None:
    found: list[PlayedEpisode] = []
    [scores] = evaluate(SOME, agent, episodes=60, max_steps=9, on_episode=found.append)
    kinds = [seed % 3 for seed in scores.seeds]
    assert scores.rewards == [9 if kind == 0 else 4 for kind in kinds]
    assert scores.at_limit == kinds.count(0)
    assert scores.truncated == kinds.count(0) + kinds.count(1)
    assert scores.failed == 0
    assert {each.number for each in found} == set(range(60))
    assert {each.number for each in found if each.is_cut} == {
        i for i, kind in enumerate(kinds) if kind == 0
    }


def test_batches_and_single_episodes_measure_alike() -> None:
    class OneByOne(ScriptedAgent):
        def choose(self, obs: Obs, *actions: ActionKey) -> object:
            return obs.allowed(actions[0])[0]

    options = {"episodes": 30, "max_steps": 9}
    [batched] = evaluate(SOME, RandomAgent(1), **options)  # type: ignore[arg-type]
    [single] = evaluate(SOME, OneByOne(), **options)  # type: ignore[arg-type]
    assert batched == single  # the choices do not matter


def test_the_interval_is_that_of_students_t() -> None:
    [scores] = evaluate(snake, RandomAgent(1), episodes=40)
    error = statistics.stdev(scores.rewards) / math.sqrt(40)
    assert scores.mean_reward == pytest.approx(statistics.fmean(scores.rewards))
    assert scores.ci95 == pytest.approx(student_t95(39) * error)


def test_names_are_loaded_and_measure_what_the_command_measures() -> None:
    done = CliRunner().invoke(
        main, ["eval", "snake", "--episodes", "30", "--seed", "3", "--num-workers", "0", "--json"]
    )
    told = json.loads(done.stdout)
    [scores] = evaluate(snake, "random", episodes=30, seed=3)
    assert told == {**vars(scores)}


def test_several_agents_have_scores_each() -> None:
    first, second = evaluate(tic_tac_toe, [First(), "random"], episodes=10)
    assert first.episodes == second.episodes == 10
    assert first.mean_reward == -second.mean_reward


def test_an_agent_that_fails_ends_the_evaluation_or_only_its_episode() -> None:
    with pytest.raises(ValueError, match="an odd episode"):
        evaluate(snake, Failing(), episodes=4)
    [scores] = evaluate(snake, Failing(), episodes=4, on_error="restart")
    assert (scores.episodes, scores.failed, scores.at_limit) == (4, 2, 0)


class Go(Enum):
    A = 0


def play_alone(agent: Agent, *, seed: int) -> None:
    play_failing([agent], seed=seed)


def play_failing(agents: Sequence[Agent], *, seed: int) -> None:
    """Fails before its first decision, after its second, or after the end of the episode."""
    kind = seed % 4
    if kind == 0:
        raise ValueError("at once")
    for n in range(3):
        for agent in agents:
            if agent.act(Obs(n), Go) is None:
                raise ValueError("after the end")
        if kind == 1 and n == 1:
            raise ValueError("in the middle")
    for agent in agents:
        agent.game_over(Obs(3))
    if kind == 3:
        raise ValueError("after its own end")


class FailingAt1(First):
    def choose(self, obs: Obs, *actions: ActionKey) -> object:
        if obs.score == 1:
            raise ValueError("of the agent")
        return super().choose(obs, *actions)


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("num_agents", [1, 2])
def test_episodes_in_which_the_game_fails_are_truncated_also_if_played_one_by_one(
    num_agents: int, fails: bool, tmp_path: Path
) -> None:
    play = play_alone if num_agents == 1 else play_failing
    game = Game(play, entities=(), actions=(Go,), num_agents=num_agents)
    agents = [FailingAt1() if fails else First() for _ in range(num_agents)]
    with pytest.raises(ValueError, match=r"at once|in the middle|of the agent|after"):
        evaluate(game, agents, episodes=120)
    known = [EpisodeSeeds(0)[i] for i in range(120)]
    seen = list[PlayedEpisode]()
    found = evaluate(
        game, agents, episodes=120, on_error="restart", failures=tmp_path, on_episode=seen.append
    )
    for i, scores in enumerate(found):
        assert scores.seeds == known
        first = i == 0  # when it fails, the other one has not seen the score 1
        rewards = [0, first, first, first] if fails else [0, 1, 3, 3]
        assert scores.rewards == [rewards[seed % 4] for seed in known]
        expected = 120 if fails else sum(seed % 4 < 2 for seed in known)
        assert (scores.failed, scores.truncated) == (expected, expected)
    assert sorted(each.number for each in seen) == list(range(120))
    assert fails or list(tmp_path.glob("*.replay"))


@pytest.mark.parametrize("agents", [[], [RandomAgent(1)], "random", [RandomAgent(1), 3]])
def test_the_wrong_agents_are_refused(agents: Sequence[Agent]) -> None:
    with pytest.raises(UsageError, match="tic_tac_toe needs 2 agents"):
        evaluate(tic_tac_toe, agents)


@pytest.mark.parametrize("wrong", [{"episodes": 0}, {"max_steps": 0}, {"seed": -1}])
def test_invalid_numbers_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        evaluate(snake, RandomAgent(1), **wrong)  # type: ignore[arg-type]


# ------------------------------------------------------------------ the command

ENDLESS = """
from dataclasses import dataclass
from enum import Enum
from entity_env import Game, Obs

class Move(Enum):
    LEFT = 0
    RIGHT = 1

@dataclass
class Dot:
    x: float

def play(agent, *, seed):
    score = 0
    while agent.act(Obs(score).entities([Dot(score)]), Move) is not None:
        score += 1

endless = Game(play, entities=(Dot,), actions=(Move,), name="endless")
"""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["eval", "--episodes", "2", "--num-workers", "0"],
            "2 of 2 episodes did not end in 7 steps",
        ),
        (["play", "--agent", "random", "--no-render"], "the episode did not end in 7 steps"),
        (["record", "--agent", "random"], "the episode did not end in 7 steps"),
        (["dataset", "--play", "random", "--episodes", "2"], "2 of 2 episodes did not end in 7"),
    ],
)
def test_commands_that_play_end_endless_episodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "endless.py").write_text(ENDLESS)
    command, *rest = words
    given = [command, "endless.py", *rest]
    if command == "dataset":
        given = ["dataset", "--game", "endless.py", *rest, "--out", "d.npz"]
    done = CliRunner().invoke(main, [*given, "--max-steps", "7"])
    assert done.exit_code == 0, done.output
    assert said in done.output
    assert "--max-steps" in done.output


def test_a_recording_that_was_cut_verifies_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "endless.py").write_text(ENDLESS)
    CliRunner().invoke(main, ["record", "endless.py", "--agent", "random", "--max-steps", "7"])
    done = CliRunner().invoke(main, ["verify", "endless.replay", "--game", "endless.py"])
    assert (done.exit_code, done.output) == (0, "endless.replay: same, 7 decisions\n")


def test_long_work_tells_its_place_every_ten_seconds_without_a_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    now = [0.0]
    with ProgressBar(3, max_steps=5000, clock=lambda: now[0]) as bar:
        bar.count()
        bar.at(1, 10)
        assert capsys.readouterr().err == ""
        now[0] = 10.5
        bar.at(1, 1234)
        bar.at(1, 1235)
        told = capsys.readouterr().err
        place = "episode 1 is at step 1,234 of at most 5,000 (--max-steps)"
        assert told == f"playing: 1 of 3 after 10 s; {place}\n"
        now[0] = 15.0
        bar.count()
        assert capsys.readouterr().err == ""
        now[0] = 21.0
        bar.count()
        assert capsys.readouterr().err == "playing: 3 of 3 after 21 s\n"


def test_ctrl_c_tells_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(ProgressBar):
        def count(self, done: object = None) -> None:
            super().count(done)
            if self._num_done == 7:
                signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(eval_command, "ProgressBar", Interrupted)
    words = ["eval", "snake", "--episodes", "50", "--num-workers", "0", "--json"]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 130
    told = json.loads(done.stdout)
    assert f"interrupted: these are the first {told['episodes']} of 50 episodes" in done.stderr
    [whole] = evaluate(snake, "random", episodes=50)
    assert told["rewards"] == list(whole.rewards[: told["episodes"]])
    assert told["episodes"] <= 7
