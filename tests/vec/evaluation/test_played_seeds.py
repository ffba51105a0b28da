"""One seed means the same episodes in every way of playing, and none of them occurs in training."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from entity_env import Episode, EpisodeEnv, Game, Obs
from entity_env.agents import Agent, RandomAgent, ScriptedAgent
from entity_env.agents.imitation import DatasetRecorder
from entity_env.cli import main
from entity_env.core.seeding import EVALUATED_ENV, PLAYED, EpisodeSeeds
from entity_env.replay import ReplayWriter, record
from entity_env.vec import VecEnv, evaluate
from entity_env.vec.evaluation.games import FRESH_STARTS, SAME_STARTS, EvaluationGames
from entity_env.vec.evaluation.matches import MatchGames
from tests.helpers.tiny_games import ask, dots_game

SEED = 5
NUM = 4
EXPECTED = [EpisodeSeeds(SEED)[number] for number in range(NUM)]
Way = Callable[[Game], Sequence[int]]


class First(ScriptedAgent):
    """Is asked one by one."""

    def choose(self, obs: Obs, *actions: object) -> object:
        return obs.allowed(actions[0])[0]  # type: ignore[arg-type]


def play(agent: Agent, *, seed: int) -> None:
    for _ in range(1 + seed % 3):
        if ask(agent, x=float(seed % 7)) is None:
            return
    agent.game_over(Obs(1))


def play_two(agents: Sequence[Agent], *, seed: int) -> None:
    for agent in agents:
        if ask(agent, x=float(seed % 7)) is None:
            return
    for i, agent in enumerate(agents):
        agent.game_over(Obs(i))


ALONE = dots_game(play)
TWO = dots_game(play_two, num_agents=2)


def seeds_of(episodes: Sequence[Episode]) -> list[int]:
    return [episode.seed for episode in sorted(episodes, key=lambda each: each.number)]


def by_starts(game: Game) -> Sequence[int]:
    with VecEnv(game, NUM, autoreset="disabled") as vec:
        vec.reset(SEED, starts=range(NUM))
        return [int(seed) for seed in vec.episode_seeds()]  # type: ignore[union-attr]  # of a game


def by_episode_env(game: Game) -> Sequence[int]:
    asked: list[int] = []

    def noting(agent: Agent, *, seed: int) -> None:
        asked.append(seed)
        play(agent, seed=seed)

    with EpisodeEnv.of(dots_game(noting), seed=SEED) as env:
        for number in range(NUM):
            env.reset_with_index(number)
    return asked


def by_recorder(game: Game) -> Sequence[int]:
    recorder = DatasetRecorder()
    game.run(First(), seed=SEED, episodes=NUM, watch=recorder)
    found = recorder.dataset().seed
    assert found is not None
    return list(dict.fromkeys(found.tolist()))


def by_writer(game: Game) -> Sequence[int]:
    writer = ReplayWriter()
    game.run(First(), seed=SEED, episodes=NUM, watch=writer)
    first = record(game, First(), seed=SEED)
    assert first.header.episode_seed == writer.replays[0].header.episode_seed
    return [replay.header.episode_seed for replay in writer.replays]


def by_match(_: Game) -> Sequence[int]:
    asked: list[int] = []

    def noting(agents: Sequence[Agent], *, seed: int) -> None:
        asked.append(seed)
        play_two(agents, seed=seed)

    game = dots_game(noting, num_agents=2)
    games = MatchGames(
        game=game,
        names="ab",
        make=lambda name, seed: RandomAgent(seed),
        num_games=2 * NUM,
        seed=SEED,
    )
    games.run()
    assert asked[::2] == asked[1::2]  # with exchanged seats
    return asked[::2]


WAYS: dict[str, Way] = {
    "run with random": lambda game: seeds_of(game.run(RandomAgent(1), seed=SEED, episodes=NUM)),
    "run with a bot": lambda game: seeds_of(game.run(First(), seed=SEED, episodes=NUM)),
    "evaluate in batches": lambda game: (
        evaluate(game, RandomAgent(1), episodes=NUM, seed=SEED)[0].seeds
    ),
    "evaluate one by one": lambda game: evaluate(game, First(), episodes=NUM, seed=SEED)[0].seeds,
    "evaluate two agents": lambda _: (
        evaluate(TWO, [First(), RandomAgent(1)], episodes=NUM, seed=SEED)[0].seeds
    ),
    "starts of a VecEnv": by_starts,
    "EpisodeEnv": by_episode_env,
    "dataset": by_recorder,
    "replays": by_writer,
    "match": by_match,
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_one_seed_means_the_same_episodes_in_every_way_of_playing(way: Way) -> None:
    assert list(way(ALONE)) == EXPECTED


@pytest.mark.parametrize("agent", [RandomAgent(1), First()], ids=["batched", "one by one"])
def test_more_episodes_than_a_block_begin_like_fewer(agent: Agent) -> None:
    seeds = EpisodeSeeds(2)
    [scores] = evaluate(ALONE, agent, episodes=130, seed=2)
    assert list(scores.seeds) == [seeds[number] for number in range(130)]


def test_no_episode_that_is_played_occurs_in_training_with_the_same_seed() -> None:
    trained: set[int] = set()
    with VecEnv(ALONE, 8, seed=SEED) as vec:
        obs = vec.reset()
        while len(trained) < 400:
            trained |= set(map(int, vec.episode_seeds()))  # type: ignore[arg-type]  # of a game
            obs = vec.act(RandomAgent(1).decide_batch(obs, ALONE.schema))
    assert not trained.intersection(EpisodeSeeds(SEED)[number] for number in range(2000))
    environments = {PLAYED, EVALUATED_ENV}
    assert len(environments) == 2
    assert environments.isdisjoint(range(10**6))


def test_evaluations_during_training_play_neither_its_episodes_nor_those_of_eval() -> None:
    runs = [EpisodeSeeds(SEED, EVALUATED_ENV)[kind] for kind in (SAME_STARTS, FRESH_STARTS)]
    evaluated = {EpisodeSeeds(run)[number] for run in runs for number in range(200)}
    assert len(evaluated) == 400
    trained = {EpisodeSeeds(SEED, env_id)[n] for env_id in range(20) for n in range(200)}
    played = {EpisodeSeeds(SEED)[number] for number in range(200)}
    assert not evaluated & (trained | played)
    games = EvaluationGames(ALONE, 4, RandomAgent, SEED)
    with games.vec as vec:
        seeds, _ = vec.runs_of([0], runs[0], range(4))[0]
        assert seeds[0] in evaluated


BOT = """
from entity_env.agents import ScriptedAgent
class First(ScriptedAgent):
    def choose(self, obs, *actions):
        return obs.allowed(actions[0])[0]
"""


@pytest.mark.slow
def test_the_command_plays_the_same_episodes_with_a_bot_and_with_random(tmp_path: Path) -> None:
    bot = tmp_path / "first_bot.py"
    bot.write_text(BOT)
    seeds = []
    for agent in ("random", f"{bot}:First"):
        words = ["eval", "snake", "--agent", agent, "--episodes", "120", "--seed", str(SEED)]
        done = CliRunner().invoke(main, [*words, "--json", "--num-workers", "0"])
        assert done.exit_code == 0, done.output
        seeds.append(json.loads(done.stdout)["seeds"])
    assert seeds[0] == seeds[1]
    assert seeds[0][:NUM] == EXPECTED
