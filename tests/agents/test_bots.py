"""Games against bots: seats, metrics, determinism, looping games, and absent agents."""

from __future__ import annotations

import random
import re
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest

from entity_env import Game, Obs, UsageError, check_game
from entity_env.agents import (
    Agent,
    RandomAgent,
    ScriptedAgent,
    Transport,
    against,
    load_agent,
    random_actions,
)
from entity_env.agents.policy_agent import PolicyAgent
from entity_env.authoring.action_type import ActionKey
from entity_env.core.episode import Episode
from entity_env.errors import AnswerError, ProtocolError, ReplayError, WorkerError
from entity_env.games import rock_paper_scissors, snake, tic_tac_toe
from entity_env.games.azul import azul
from entity_env.replay import Replay, record
from entity_env.vec import VecEnv
from tests.helpers.tiny_games import TINY_GAMES, Dot, DrawingBot, Move, ask, dots_game


class FirstFree(ScriptedAgent):
    """Takes the first free square."""

    def choose(self, obs: Obs, *actions: ActionKey) -> object:
        return obs.allowed(actions[0])[0]


def right(obs: Obs, *actions: ActionKey) -> object:
    return Move.RIGHT


def left(obs: Obs, *actions: ActionKey) -> object:
    return Move.LEFT


def _race(agents: Sequence[Agent], steps: int, rng: random.Random, *, present: int) -> bool:
    """All agents move simultaneously; the score counts moves to the right."""
    xs = [0.0] * len(agents)
    playing = agents[: present or len(agents)]
    for _ in range(steps):
        pending = [
            a.act_async(Obs(x).entities([Dot(x)]), Move) for a, x in zip(playing, xs, strict=False)
        ]
        for i, answer in enumerate(each.get() for each in pending):
            if answer is None:
                return False
            xs[i] += answer.value
    for agent, x in zip(playing, xs, strict=False):
        agent.game_over(Obs(x).entities([Dot(x)]).metric("own", 7))
    return True


def play_race(agents: Sequence[Agent], *, seed: int, steps: int = 3, vary: bool = False) -> None:
    rng = random.Random(seed)
    _race(agents, steps, rng, present=rng.randint(1, len(agents)) if vary else 0)


def play_races(agents: Sequence[Agent], *, seed: int) -> None:
    """Loops over episodes."""
    while _race(agents, 2, random.Random(seed), present=0):
        seed = agents[0].seed


def game_of(play: Callable[..., None], num_agents: int = 3) -> Game:
    return Game(play, entities=(Dot,), actions=(Move,), num_agents=num_agents, name="race")


race, races = game_of(play_race), game_of(play_races)


GAMES = [
    *(tic_tac_toe, rock_paper_scissors, race, races, race.with_settings(vary=True)),
    *(game for game in TINY_GAMES.values() if game.num_agents > 1),
]


def episodes_of(
    game: Game, steps: int = 60, num_workers: int = 0, transport: Transport = "greenlet"
) -> list[Episode]:
    """Episodes of random play in a `VecEnv`."""
    found: list[Episode] = []
    with VecEnv(game, 8, num_workers, transport=transport, seed=1) as vec:
        rng, obs = np.random.default_rng(1), vec.reset(seed=1)
        for _ in range(steps):
            obs = vec.act(random_actions(obs, vec.action_space(), rng))
            found += obs.episodes
    return found


def test_it_has_the_schema_and_settings_of_the_game() -> None:
    game = against(race.with_settings(steps=5), right)
    assert game.schema is race.schema
    assert (game.num_agents, game.name) == (3, "race_against_right")
    assert game.settings == {"steps": 5}
    [episode] = game.run(*[RandomAgent(1)] * 3)
    assert episode.length == 5
    [episode] = game.with_settings(steps=2).run(*[RandomAgent(1)] * 3)
    assert episode.length == 2


def test_metrics_say_who_was_ahead() -> None:
    for mine, ahead in ((right, 0.5), (left, 0.0)):
        for episode in against(race, right).run(*_agents(mine), episodes=5):
            assert episode.metrics == {"own": 7, "against/right": ahead}
    for episode in against(race, [left, right]).run(*_agents(right), episodes=20):
        assert episode.metrics.get("against/left", 1.0) == 1.0
        assert episode.metrics.get("against/right", 0.5) == 0.5
        assert set(episode.metrics) - {"own"}


def _agents(choose: Callable[..., object], count: int = 3) -> list[Agent]:
    class Chosen(ScriptedAgent):
        def choose(self, obs: Obs, *actions: ActionKey) -> object:
            return choose(obs, *actions)

    return [Chosen() for _ in range(count)]


@pytest.mark.parametrize("game", [race, races, race.with_settings(vary=True)], ids=repr)
def test_every_seat_is_the_learners_and_one_alone_ends(game: Game) -> None:
    episodes = against(game, [left, right]).run(*_agents(right), episodes=300, seed=3)
    assert sorted(each.number for each in episodes) == list(range(300))
    assert len({each.seed for each in episodes}) == 300
    counts = Counter(each.agent_id for each in episodes)
    if not game.settings:
        assert all(80 <= counts[seat] <= 120 for seat in range(3))
    assert set(counts) == {0, 1, 2}


@pytest.mark.slow
@pytest.mark.parametrize("game", GAMES, ids=repr)
def test_the_same_in_every_executor(game: Game) -> None:
    game = against(game, DrawingBot)
    expected = episodes_of(game)
    assert len(expected) > 50
    assert episodes_of(game, num_workers=2) == expected
    assert episodes_of(game, transport="thread") == expected


@pytest.mark.slow
@pytest.mark.parametrize("game", GAMES, ids=repr)
def test_it_keeps_the_contract(game: Game) -> None:
    check_game(against(game, [DrawingBot, "random"]), episodes=5)


def test_a_replay_plays_the_same_again() -> None:
    game = against(tic_tac_toe, DrawingBot)
    replay = record(game, *[RandomAgent(i) for i in range(2)], seed=4)
    assert replay.verify(game) is None
    assert replay.is_whole  # only the learner takes part
    with pytest.raises(ReplayError, match="tic_tac_toe_against_DrawingBot"):
        replay.verify()


@pytest.mark.slow
def test_it_can_be_pickled() -> None:
    game = cloudpickle.loads(cloudpickle.dumps(against(tic_tac_toe, FirstFree)))
    assert episodes_of(game) == episodes_of(against(tic_tac_toe, FirstFree))


@pytest.mark.slow
def test_bots_of_one_name_have_different_metrics() -> None:
    game = against(tic_tac_toe, ["random", RandomAgent, FirstFree, "random"])
    names = {name for each in episodes_of(game) for name in each.metrics}
    assert names == {
        "against/random",
        "against/RandomAgent",
        "against/FirstFree",
        "against/random#2",
    }


def test_trained_agents_are_bots_too() -> None:
    game = against(snake_for_two(), "examples/ship/snake.agent")
    names = {name for each in episodes_of(game, steps=20) for name in each.metrics}
    assert names <= {"against/snake.agent"}


def snake_for_two() -> Game:
    """Two boards of snake in one game, one after another."""

    def play_two(agents: Sequence[Agent], *, seed: int) -> None:
        ends = [_End(agent) for agent in agents]
        for each in ends:
            snake.play(each, seed=seed)
            if each.obs is None:
                return
        for each in ends:
            each.agent.game_over(each.obs)

    return Game(
        play_two,
        entities=[kind.cls for kind in snake.schema.entities],
        actions=list(snake.schema.actions),
        num_agents=2,
        name="two_snakes",
    )


class _End:
    """Plays one episode of a game that loops."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.obs: Obs | None = None
        self.seed = 0

    def act(self, obs: Obs, *actions: Any) -> Any:  # noqa: ANN401 - as of Agent
        return None if self.obs is not None else self.agent.act(obs, *actions)

    def game_over(self, obs: Obs, *, truncated: bool = False) -> None:
        self.obs = obs.frozen()


# ------------------------------------------------------------------ mistakes


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: against(snake, right), "snake is for 1 agent: it has no seats for bots"),
        (lambda: against(race, []), "race: against needs at least one bot, got none"),
        (lambda: against(race, "radnom"), "no agent 'radnom'; did you mean random?"),
        (lambda: against(race, "human"), "against does not support human players"),
        (
            lambda: against(race, int),
            "int is not a bot: expected a subclass of entity_env.agents.ScriptedAgent",
        ),
        (
            lambda: against(race, 3),  # type: ignore[arg-type]
            "int is not a bot",
        ),
    ],
)
def test_says_what_is_wrong(make: Callable[[], Game], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        make()


@pytest.mark.slow
def test_a_bot_that_answers_illegally_is_named_with_its_episode() -> None:
    def wrong(obs: Obs, *actions: ActionKey) -> object:
        return 3

    expected = "test_bots.py:wrong answered 3 to the action 'Move': expected a Move, one of"
    with pytest.raises(AnswerError, match=expected):
        against(race, wrong).run(*_agents(right))
    expected = rf"(?s){expected}.*\(env 0, seed \d+, episode 0, step 0"
    with VecEnv(against(race, wrong), 2, 1) as vec, pytest.raises(AnswerError, match=expected):
        vec.reset(seed=1)


def test_a_game_that_forgets_the_end_of_a_bot_is_named() -> None:
    def play(agents: Sequence[Agent], *, seed: int) -> None:
        for agent in agents:
            if agent.act(Obs().entities([Dot(0)]), Move) is None:
                return
        agents[0].game_over()

    with pytest.raises(ProtocolError, match="play returned without game_over for agent"):
        against(game_of(play, 2), right).run(*_agents(right, 2))


def test_a_game_that_goes_on_after_none_is_named() -> None:
    def play(agents: Sequence[Agent], *, seed: int) -> None:
        while True:
            for agent in agents:
                agent.act(Obs().entities([Dot(0)]), Move)
            for agent in agents:
                agent.game_over()

    with pytest.raises(ProtocolError, match="play must return after act returned None"):
        against(game_of(play, 2), right).run(*_agents(right, 2), episodes=2)


def test_the_learner_may_leave() -> None:
    class Leaving(PolicyAgent):
        def decide(self, observation: object) -> None:
            return None

    def play_on(agents: Sequence[Agent], *, seed: int) -> None:
        """Calls game_over even after it was told to stop."""
        _race(agents, 3, random.Random(seed), present=0)
        for agent in agents:
            agent.game_over(Obs(5))

    left = against(game_of(play_on), right).run(*[Leaving() for _ in range(3)])
    assert [(each.length, each.reward) for each in left] == [(0, 5)]  # as in the game
    for game in (race, races, tic_tac_toe):
        agents = [Leaving() for _ in range(game.num_agents)]
        assert against(game, DrawingBot).run(*agents) == []


def test_a_game_that_takes_none_for_an_answer_is_told_why_it_fails() -> None:
    def play_on(agents: Sequence[Agent], *, seed: int) -> None:
        while True:
            for agent in agents:
                assert ask(agent).name  # type: ignore[union-attr]
            for agent in agents:
                agent.game_over()

    game = against(dots_game(play_on, num_agents=2), DrawingBot)
    with VecEnv(game, num_envs=1) as vec:
        actions = random_actions(vec.reset(seed=1), game.action_space(), np.random.default_rng(1))
        with pytest.raises(WorkerError) as caught:
            vec.act(actions)
    assert "act had returned None before" in caught.value.game_traceback


BOT = """
from entity_env.agents import ScriptedAgent

class At(ScriptedAgent):
    def choose(self, obs, *actions):
        return obs.allowed(actions[0])[{place}]
"""


@pytest.mark.slow
def test_bots_by_file_reach_workers_also_from_files_of_one_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", sys.path.copy())
    names = []
    for folder, place in (("one", 0), ("two", -1)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "some_bot.py").write_text(BOT.format(place=place))
        names.append(f"{tmp_path / folder / 'some_bot.py'}:At")
    assert isinstance(load_agent(tmp_path / "one" / "some_bot.py"), ScriptedAgent)
    game = against(tic_tac_toe, names)
    expected = episodes_of(game)
    assert {name for each in expected for name in each.metrics} == {"against/At", "against/At#2"}
    assert episodes_of(game, num_workers=2) == expected


@pytest.mark.slow
def test_the_games_own_agents_are_bots_and_settings_change_later() -> None:
    game = against(azul, ["rush", "random"]).with_settings(num_players=3, max_rounds=1)
    episodes = game.run(*[RandomAgent(i) for i in range(3)], episodes=6)
    assert {name for each in episodes for name in each.metrics} == {
        "against/rush",
        "against/random",
    }
    assert len({each.agent_id for each in episodes}) > 1


def test_a_failure_leaves_a_replay_that_fails_again(tmp_path: Path) -> None:
    def fails(obs: Obs, *actions: ActionKey) -> object:
        if obs.of_class(Dot)[0].x >= 2:
            raise ValueError("at the border")
        return Move.RIGHT

    game = against(race, fails)
    with VecEnv(game, 2, on_error="restart", failures=tmp_path) as vec:
        rng, obs = np.random.default_rng(1), vec.reset(seed=1)
        while not obs.episodes:
            obs = vec.act(random_actions(obs, vec.action_space(), rng))
    found = [Replay.load(file) for file in tmp_path.iterdir()]
    assert found
    for replay in found:
        assert replay.failure == "ValueError: at the border"
        assert replay.verify(game) is None
