"""Every seat of a game has its own state, whatever agents are used or shared."""

import copy
import io
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import cycle
from random import Random
from string import ascii_lowercase
from types import SimpleNamespace
from typing import Any, TypeAlias

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from entity_env import Action, Continuous, Episode, Game, Obs, Observation, Turn, UsageError
from entity_env.agents import Agent, HumanAgent, PolicyAgent, RandomAgent, ScriptedAgent
from entity_env.agents.rogue_net.numpy_net.agent import NumpyAgent
from entity_env.agents.rogue_net.torch_net.agent import NeuralAgent
from entity_env.agents.rogue_net.weights import Weights
from entity_env.agents.scripted_agent import Bot
from entity_env.authoring.action_type import ActionKey
from entity_env.authoring.agent import Answered, Pending
from entity_env.authoring.local_run import AgentRun
from entity_env.core.spaces import ActionName
from entity_env.games import rock_paper_scissors, tic_tac_toe
from entity_env.games.azul import azul
from entity_env.replay import ReplayWriter
from entity_env.replay.play_again import play_again
from entity_env.replay.writer import record
from tests.agents.rogue_net.test_adapt import spaces_of, weights_for
from tests.helpers.tiny_games import TINY_GAMES, DrawingBot, Move, ask, dots_game

NUM_EPISODES = 2
SEEDS = st.integers(0, 2**32)


def play_until_out(agents: Sequence[Agent], *, seed: int) -> None:
    """Agents act in turn; each is out after a number of turns that depends on its choices."""
    left = {i: 2 + (seed + i) % 3 for i in range(len(agents))}
    scores = [0.0] * len(agents)
    while left:
        for i in list(left):
            move = ask(agents[i], scores[i], x=left[i])
            if move is None:
                return
            scores[i] += move.value + i
            left[i] -= 1 + (move is Move.LEFT)
            if left[i] <= 0:
                del left[i]
                agents[i].game_over(Obs(scores[i]))


GAMES: dict[str, Game] = {
    "rock_paper_scissors": rock_paper_scissors,
    "tic_tac_toe": tic_tac_toe,
    "azul": azul.with_settings(num_players=3, max_rounds=1),
    "together": TINY_GAMES["together"],
    "together_forever": TINY_GAMES["together_forever"],
    "until_out": dots_game(play_until_out, num_agents=4),
}
games = st.sampled_from(list(GAMES))


class Rotating(ScriptedAgent):
    """Chooses by the number of its decisions in the episode, counted in two ways."""

    def __init__(self) -> None:
        self.chosen: list[object] = []
        self.num_chosen = 0

    def begin_episode(self) -> None:
        self.chosen.clear()
        self.num_chosen = 0

    def choose(self, obs: Obs, *actions: ActionKey) -> object:
        assert len(self.chosen) == self.num_chosen
        rows = [self._answer(obs, action) for action in actions]
        self.chosen.append(rows)
        self.num_chosen += 1
        return rows[0] if len(rows) == 1 else rows

    def _answer(self, obs: Obs, action: ActionKey) -> object:
        if isinstance(action, Continuous):
            return [[0.5] * len(action.space.labels) for _ in obs.actors_of(action)]
        allowed = obs.allowed(action)
        if isinstance(action, type):
            return allowed[self.num_chosen % len(allowed)]
        return [row[self.num_chosen % len(row)] if row else None for row in allowed]


class Drawing:
    """A bot that is not an agent, with a random generator."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)

    def choose(self, obs: Obs, action: ActionKey) -> object:
        return self.rng.choice(obs.allowed(action))


class Typist(io.StringIO):
    """Types letters and numbers until one is accepted, repeatedly."""

    def __init__(self) -> None:
        super().__init__()
        self._lines = cycle(["0.5", *ascii_lowercase.replace("q", ""), *map(str, range(301))])

    def readline(self, size: int | None = -1, /) -> str:  # type: ignore[override]  # of bytes
        return f"{next(self._lines)}\n"


@cache
def weights_of(name: str) -> Weights:
    """A network for the game with this name."""
    return weights_for(spaces_of(GAMES[name]))


MakeAgent: TypeAlias = Callable[[str], Agent]
DETERMINISTIC: dict[str, MakeAgent] = {
    "greedy": lambda name: NumpyAgent(weights_of(name), greedy=True),
    "rotating": lambda _: Rotating(),
}
AGENTS: dict[str, MakeAgent] = DETERMINISTIC | {
    "random": lambda _: RandomAgent(seed=1),
    "numpy": lambda name: NumpyAgent(weights_of(name), seed=1),
    "drawing": lambda _: DrawingBot(1),
    "human": lambda _: HumanAgent(source=Typist(), out=io.StringIO()),
}


@dataclass
class Ledger(Agent):
    """Forwards calls, and records the scores shown to one seat."""

    agent: Agent
    played: list[tuple[float, int]] = field(default_factory=list)
    """Reward and length of every episode."""
    scores: list[float] = field(default_factory=list)
    num_answers: int = 0

    @property
    def seed(self) -> int:
        return self.agent.seed

    def act(self, obs: Obs, /, *actions: Any) -> Any:  # noqa: ANN401 - the overloads of Agent say more
        return self._counted(obs, self.agent.act(obs, *actions))

    def act_async(self, obs: Obs, /, *actions: Any) -> Pending[Any]:  # noqa: ANN401 - as `act`
        return Answered(self._counted(obs, self.agent.act_async(obs, *actions).get()))

    def game_over(self, obs: Obs | None = None, *, truncated: bool = False) -> None:
        self.agent.game_over(obs, truncated=truncated)
        self.scores += self.scores[-1:] or [0.0] if obs is None else [obs.score]
        self.played.append((self.scores[-1] - self.scores[0], self.num_answers))
        self.scores, self.num_answers = [], 0

    def _counted(self, obs: Obs, answer: Any) -> Any:  # noqa: ANN401 - as `act`
        if answer is not None:
            self.scores.append(obs.score)
            self.num_answers += 1
        return answer


def with_ledgers(game: Game) -> tuple[Game, list[Ledger]]:
    """The game, and the records of every seat during play."""
    kept: list[Ledger] = []

    def play(agents: Sequence[Agent], *, seed: int, **settings: object) -> None:
        if not kept:
            kept.extend(map(Ledger, agents))
        game.play(kept, seed=seed, **settings)

    watched = copy.copy(game)
    watched.play = play
    return watched, kept


@pytest.mark.slow
@pytest.mark.parametrize("kind", AGENTS)
@given(name=games, seed=SEEDS)
def test_one_object_in_all_seats_has_an_episode_per_seat(kind: str, name: str, seed: int) -> None:
    game, ledgers = with_ledgers(GAMES[name])
    agent = AGENTS[kind](name)
    turns: list[Turn] = []
    episodes = game.run(
        *[agent] * game.num_agents, seed=seed, episodes=NUM_EPISODES, watch=turns.append
    )
    for agent_id, ledger in enumerate(ledgers):
        own = [episode for episode in episodes if episode.agent_id == agent_id]
        assert [(each.reward, each.length) for each in own] == ledger.played[:NUM_EPISODES]
        assert [each.number for each in own] == list(range(NUM_EPISODES))
        for number in range(NUM_EPISODES):
            seen = [turn for turn in turns if (turn.agent_id, turn.number) == (agent_id, number)]
            assert [turn.step for turn in seen] == list(range(len(seen)))
            assert sum(turn.observation.reward for turn in seen) == pytest.approx(
                own[number].reward
            )
            assert [turn.episode for turn in seen][-1] == own[number]


@pytest.mark.slow
@pytest.mark.parametrize("kind", DETERMINISTIC)
@given(name=games, seed=SEEDS)
def test_one_object_plays_as_separate_objects(kind: str, name: str, seed: int) -> None:
    game, make = GAMES[name], DETERMINISTIC[kind]

    def played(agents: Sequence[Agent]) -> tuple[list[Episode], list[object]]:
        decided: list[object] = []
        episodes = game.run(
            *agents,
            seed=seed,
            episodes=NUM_EPISODES,
            watch=lambda turn: decided.append(repr((turn.agent_id, turn.step, turn.actions))),
        )
        return episodes, decided

    apart = played([make(name) for _ in range(game.num_agents)])
    assert played([make(name)] * game.num_agents) == apart
    mixed = make(name)
    assert played([mixed, *(make(name) for _ in range(game.num_agents - 2)), mixed]) == apart


def test_a_network_of_torch_fills_several_seats() -> None:
    weights = weights_of("tic_tac_toe")
    agent, separate = (NeuralAgent.of(weights, greedy=True) for _ in range(2))
    expected = tic_tac_toe.run(agent, separate, seed=4)
    assert tic_tac_toe.run(agent, agent, seed=4) == expected


class Holding(ScriptedAgent):
    """Uses a random generator that it stores in some way."""

    def __init__(self, held: object, draw: Callable[[Any], float]) -> None:
        self.held = held
        self.draw = draw

    def choose(self, obs: Obs, *actions: ActionKey) -> object:
        allowed = obs.allowed(actions[0])
        return allowed[int(self.draw(self.held) * len(allowed))]


@dataclass(slots=True)
class HoldingInSlot(ScriptedAgent):
    rng: Random = field(default_factory=lambda: Random(1))

    def choose(self, obs: Obs, *actions: ActionKey) -> object:
        return self.rng.choice(obs.allowed(actions[0]))


@pytest.mark.parametrize(
    "agent",
    [
        RandomAgent(seed=1),
        DrawingBot(1),
        Bot(Drawing)(1),
        HoldingInSlot(),
        Holding([{"rng": Random(1)}], lambda held: held[0]["rng"].random()),
        Holding(Drawing(1), lambda held: held.rng.random()),
        Holding(SimpleNamespace(bot=Drawing(1)), lambda held: held.bot.rng.random()),
        Holding(Random(1).uniform, lambda held: held(0, 1)),
        Holding(np.random.RandomState(1), lambda held: held.random()),
        Holding(
            torch.Generator().manual_seed(1), lambda held: torch.rand((), generator=held).item()
        ),
    ],
)
def test_seats_of_one_object_share_its_random_generator(agent: Agent) -> None:
    first, second = list[object](), list[object]()

    def watch(turn: Turn) -> None:
        [first, second][turn.agent_id] += map(repr, turn.actions.values())

    rock_paper_scissors.run(agent, agent, num_rounds=30, watch=watch)
    assert len(first) == len(second) == 30
    assert first != second


def test_an_agent_that_holds_another_one_fills_several_seats() -> None:
    class Passing(PolicyAgent):
        def __init__(self) -> None:
            super().__init__()
            self.inner = RandomAgent(seed=1)

        def join(self, run: AgentRun) -> None:
            super().join(run)
            self.inner.join(run)

        def decide(self, observation: Observation) -> Mapping[ActionName, Action] | None:
            return self.inner.decide(observation)

    class Watch:
        def __init__(self) -> None:
            self.num_turns = 0
            self.lock = threading.Lock()  # cannot be copied

        def __call__(self, turn: Turn) -> None:
            self.num_turns += 1

    passing, agent, watch = Passing(), RandomAgent(seed=1), Watch()
    assert tic_tac_toe.run(passing, passing, watch=watch) == tic_tac_toe.run(agent, agent)
    assert watch.num_turns > 6


def test_the_object_itself_plays_the_first_of_its_seats() -> None:
    class Counting(ScriptedAgent):
        num_chosen = 0

        def choose(self, obs: Obs, *actions: ActionKey) -> object:
            self.num_chosen += 1
            return obs.allowed(actions[0])[0]

    counting = Counting()
    lengths = [each.length for each in tic_tac_toe.run(RandomAgent(1), counting)]
    assert counting.num_chosen == lengths[1]
    counting.num_chosen = 0
    lengths = [each.length for each in tic_tac_toe.run(counting, counting)]
    assert counting.num_chosen == lengths[0]


def test_a_game_may_play_another_one_with_the_same_agent() -> None:
    agent, inside = Rotating(), list[list[Episode]]()

    def play(outer: Agent, *, seed: int) -> None:
        for step in range(4):
            if ask(outer, score=step) is None:
                return
            inside.append(tic_tac_toe.run(agent, agent, seed=seed))
            agent.choose(Obs(), Move)  # its count does not affect copies
        outer.game_over(Obs(4.0))

    episodes = dots_game(play).run(agent, episodes=2, seed=3)
    assert [(each.reward, each.length) for each in episodes] == [(4.0, 4)] * 2
    assert inside[0] == tic_tac_toe.run(Rotating(), Rotating(), seed=episodes[0].seed)
    assert inside[:4] == [inside[0]] * 4


def test_an_agent_that_played_one_game_plays_the_next_as_a_new_one() -> None:
    agent = Rotating()
    for name, game in GAMES.items():
        seats = [agent] * game.num_agents
        separate = [Rotating() for _ in seats]
        assert game.run(*seats, seed=5) == game.run(*separate, seed=5), name


def test_a_replay_of_one_object_in_two_seats_repeats() -> None:
    agent = RandomAgent(seed=3)
    replay = record(tic_tac_toe, agent, agent, seed=2)
    assert play_again(replay, tic_tac_toe)[0] is None
    writer = ReplayWriter()
    _, episodes = play_again(replay, tic_tac_toe, until=2, then=[agent, agent], watch=writer)
    first, second = episodes
    assert abs(first.length - second.length) <= 1


def test_an_agent_that_cannot_be_copied_is_refused() -> None:
    class Locked(ScriptedAgent):
        def __init__(self) -> None:
            self.lock = threading.Lock()

        def choose(self, obs: Obs, *actions: ActionKey) -> object:
            return obs.allowed(actions[0])[0]

    locked = Locked()
    expected = "one Locked fills several seats.*cannot be copied.*make or load one agent per seat"
    with pytest.raises(UsageError, match=expected):
        tic_tac_toe.run(locked, locked)
    assert len(tic_tac_toe.run(locked, Locked())) == 2, "nothing is left of the refusal"


def test_an_agent_that_only_joins_is_refused_in_two_seats() -> None:
    class Bare(Agent):
        seed = 0

        def join(self, run: AgentRun) -> None:
            self.run = run

        def act(self, obs: Obs, /, *actions: Any) -> Any:  # noqa: ANN401 - the overloads of Agent say more
            return None

        def act_async(self, obs: Obs, /, *actions: Any) -> Any:  # noqa: ANN401 - as `act`
            return Answered(None)

        def game_over(self, obs: Obs | None = None, *, truncated: bool = False) -> None: ...

    bare = Bare()
    with pytest.raises(UsageError, match="one Bare fills several seats"):
        tic_tac_toe.run(bare, bare)


def test_an_agent_that_leaves_in_one_seat_ends_the_run() -> None:
    class Leaving(PolicyAgent):
        num_asked = 0

        def decide(self, observation: Observation) -> Mapping[ActionName, Action] | None:
            self.num_asked += 1
            return (
                None
                if self.num_asked > 2
                else {
                    each.name: each.action([int(each.allowed[0].argmax())])
                    for each in self.questions(observation)
                }
            )

    leaving = Leaving()
    assert tic_tac_toe.run(leaving, leaving, seed=6) == []  # it begins
    assert leaving.num_asked == 3
