"""Replays kept by a training run, which do not affect the run."""

import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import torch

from entity_env import Game, Obs
from entity_env.agents import Agent, RandomAgent
from entity_env.agents.ppo import PPOConfig, TrainProgress, TrainResult, TrainState, train
from entity_env.agents.rogue_net import RogueNetConfig
from entity_env.core.seeding import EpisodeSeeds
from entity_env.errors import UsageError, WorkerError
from entity_env.games import rock_paper_scissors, snake
from entity_env.replay import Replay, TrainingReplays
from entity_env.vec import VecEnv
from tests.helpers.tiny_games import ask, dots_game

NUM_ENVS = 8
CONFIG = PPOConfig(
    total_steps=2048, num_steps=32, num_threads=1, net=RogueNetConfig(d_model=16, n_layer=1)
)


def run(
    folder: Path | None,
    game: Game = snake,
    *,
    moments: int = 0,
    num_workers: int = 0,
) -> tuple[TrainResult, list[float]]:
    """Trains; also returns the highest reward of an agent in each episode."""
    rewards: list[float] = []
    with VecEnv(game, NUM_ENVS, num_workers) as vec:
        vec.watch_episodes(lambda ended, _: rewards.append(max(one.reward for one in ended)))
        callbacks = []
        if folder is not None:
            callbacks.append(TrainingReplays(game, folder / "replays", vec, moments=moments))
        result = train(vec, CONFIG, callbacks=callbacks)
    return result, rewards


def kept(folder: Path) -> dict[str, Replay]:
    return {path.stem: Replay.load(path) for path in sorted((folder / "replays").iterdir())}


@pytest.mark.slow
@pytest.mark.parametrize("num_workers", [0, 2])
def test_the_network_is_the_same_bit_by_bit(tmp_path: Path, num_workers: int) -> None:
    plain, _ = run(None, num_workers=num_workers)
    other, _ = run(tmp_path, moments=4, num_workers=num_workers)
    assert len(kept(tmp_path)) == 2 + 4
    state = other.net.state_dict()
    for name, tensor in plain.net.state_dict().items():
        assert torch.equal(tensor, state[name])


@pytest.mark.slow
def test_best_and_worst_are_those_of_the_run(tmp_path: Path) -> None:
    _, rewards = run(tmp_path)
    replays = kept(tmp_path)
    assert replays["best"].rewards == [max(rewards)]
    assert replays["worst"].rewards == [min(rewards)]
    for replay in replays.values():
        assert replay.has_observations
        assert replay.verify(snake) is None
        [agent] = replay.header.agents
        assert agent["name"].startswith("step ")


@pytest.mark.slow
def test_of_several_agents_the_highest_reward_counts(tmp_path: Path) -> None:
    run(tmp_path, rock_paper_scissors)
    best = kept(tmp_path)["best"]
    assert len(best.rewards) == 2
    assert best.verify(rock_paper_scissors) is None


@pytest.mark.slow
def test_moments_have_one_start_that_training_has_not(tmp_path: Path) -> None:
    seeds = set()
    with VecEnv(snake, NUM_ENVS) as vec:
        vec.watch_episodes(lambda ended, _: seeds.add(ended[0].seed))
        replays = TrainingReplays(snake, tmp_path / "replays", moments=3)
        train(vec, CONFIG, callbacks=[replays])
    moments = kept(tmp_path)
    assert list(moments) == ["step-000000000", "step-000001024", "step-000002048"]
    assert [moment.header.agents[0]["name"] for moment in moments.values()] == [
        "step 0",
        "step 1024",
        "step 2048",
    ]
    assert len({moment.header.episode_seed for moment in moments.values()}) == 1
    assert moments["step-000000000"].header.episode_seed not in seeds
    first = [moment.lines[0].seen["o"] for moment in moments.values()]
    assert first[0] == first[1] == first[2]
    assert all(moment.verify(snake) is None for moment in moments.values())


class Scripted:
    """Reports steps to a `TrainingReplays`, and counts its agents."""

    def __init__(self, replays: TrainingReplays) -> None:
        self.replays = replays
        self.num_agents = 0
        self._has_begun = False

    def update(self, step: int, *, is_resumed: bool = False) -> None:
        tell = self.replays.on_update if self._has_begun else self.replays.on_start
        self._has_begun = True
        tell(self._state(step, is_resumed))

    def end(self) -> None:
        self.replays.on_end(self._state(0, False))

    def _state(self, step: int, is_resumed: bool) -> TrainState:
        progress = TrainProgress(step, 100)
        state = SimpleNamespace(progress=progress, is_resumed=is_resumed, make_agent=self.agent)
        return cast(TrainState, state)

    def agent(self, seed: int) -> Agent:
        self.num_agents += 1
        return RandomAgent(seed)


def test_a_resumed_run_goes_on(tmp_path: Path) -> None:
    with VecEnv(snake, 2) as vec:
        first = Scripted(TrainingReplays(snake, tmp_path, vec, moments=5))
        play(vec, 200)
        for step in (0, 30, 50):
            first.update(step)
        first.end()
        names = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
        assert first.num_agents == 3
    with VecEnv(snake, 2) as vec:
        second = Scripted(TrainingReplays(snake, tmp_path, vec, moments=5))
        second.update(50, is_resumed=True)
        play(vec, 5)  # no better episode
        second.update(60, is_resumed=True)
        second.end()
        assert second.num_agents == 0
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == names
        second.update(75, is_resumed=True)
        assert second.num_agents == 1
    assert (tmp_path / "step-000000075.replay").exists()


def play(vec: VecEnv, num_steps: int) -> None:
    agent = RandomAgent(0)
    obs = vec.reset(seed=3)
    for _ in range(num_steps):
        obs = vec.act(agent.decide_batch(obs, snake.schema))


@pytest.mark.slow
def test_a_game_that_repeats_nothing_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def play(agent: Agent, *, seed: int) -> None:
        score = 0.0
        for _ in range(3):
            if ask(agent, score, x=score) is None:
                return
            score += random.random()  # independent of the seed
        agent.game_over(Obs(score))

    run(tmp_path, dots_game(play))
    [told] = [each for each in caplog.messages if "does not repeat" in each]
    assert "the reward of the episode was" in told
    replays = kept(tmp_path)
    assert not replays["best"].has_observations
    assert replays["best"].num_decisions == 3


@pytest.mark.slow
def test_training_does_not_share_its_random_numbers(tmp_path: Path) -> None:
    def play(agent: Agent, *, seed: int) -> None:
        for _ in range(3):
            if ask(agent, x=random.random()) is None:  # the module's generator, shared by all games
                return
        agent.game_over()

    nets = []
    for folder in (None, tmp_path):
        random.seed(7)
        nets.append(run(folder, dots_game(play), moments=2)[0].net.state_dict())
    assert all(torch.equal(tensor, nets[1][name]) for name, tensor in nets[0].items())


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["raises", "never ends"])
def test_an_evaluation_that_goes_wrong_does_not_end_training(
    tmp_path: Path, fault: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluated = EpisodeSeeds(0, 2**31 - 1)[0]

    def play(agent: Agent, *, seed: int) -> None:
        i = 0
        while i < 3 or (seed == evaluated and fault == "never ends"):
            if seed == evaluated and fault == "raises" and i == 2:
                raise ValueError("boom")
            if ask(agent, x=i) is None:
                return
            i += 1
        agent.game_over()

    monkeypatch.setattr("entity_env.replay.training_replays._MAX_DECISIONS", 50)
    result, _ = run(tmp_path, dots_game(play), moments=2)
    assert result.progress.step == CONFIG.total_steps
    last = kept(tmp_path)["step-000002048"]
    assert last.num_decisions == (2 if fault == "raises" else 50)
    assert last.failure == ("ValueError: boom" if fault == "raises" else "")
    assert len(_warnings(caplog)) == (fault == "raises")


def _warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Warnings about replays; the trainer has other hints."""
    records = (each for each in caplog.records if each.name.startswith("entity_env.replay"))
    return [each.getMessage() for each in records]


@pytest.mark.slow
def test_a_folder_that_cannot_be_written_does_not_end_training(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "replays").write_text("")
    result, _ = run(tmp_path, moments=3)
    assert result.progress.step == CONFIG.total_steps
    assert {message.partition(":")[0] for message in _warnings(caplog)} == {
        "an evaluation episode could not be saved",
        "the best episode could not be saved",
        "the worst episode could not be saved",
    }
    assert len(_warnings(caplog)) == 3


@pytest.mark.slow
def test_a_run_that_fails_keeps_what_it_has(tmp_path: Path) -> None:
    calls: list[int] = []

    def play(agent: Agent, *, seed: int) -> None:
        calls.append(seed)
        for _ in range(3):
            if ask(agent) is None:
                return
        if len(calls) == 200:
            raise ValueError("boom")
        agent.game_over()

    with pytest.raises(WorkerError, match="boom"):
        run(tmp_path, dots_game(play))
    assert set(kept(tmp_path)) == {"best", "worst"}


def test_after_a_crash_nothing_is_played_here(tmp_path: Path) -> None:
    with VecEnv(snake, 2) as vec:
        replays = Scripted(TrainingReplays(snake, tmp_path, vec, moments=5))
        play(vec, 100)
        assert vec._log is not None
        vec._log.has_crashed = True
        replays.update(0)
        replays.end()
    assert replays.num_agents == 0
    assert sorted(path.stem for path in tmp_path.iterdir()) == ["best", "worst"]
    assert not Replay.load(tmp_path / "best.replay").has_observations


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: TrainingReplays(snake, "x", keep=["good"]), "best and worst, got 'good'"),
        (lambda: TrainingReplays(snake, "x", moments=-1), "moments must be"),
    ],
)
def test_wrong_arguments_are_refused(make: Callable[[], object], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        make()
