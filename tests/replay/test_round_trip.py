"""Episodes are recorded, read and repeated: observations, actions and rewards are equal."""

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st

from entity_env import Continuous, Obs, Turn
from entity_env.agents import RandomAgent, ScriptedAgent
from entity_env.authoring.action_type import ActionKey, GlobalCategorical, action_type
from entity_env.core.spaces import Spaces
from entity_env.replay import Replay, ReplayWriter
from entity_env.replay.encoding import actions_to_json, observation_to_json
from tests.replay.games import ALL, with_random_settings

_SLOW = ("azul", "pixel:")
each_game = pytest.mark.parametrize(
    "name", [pytest.param(x, marks=[pytest.mark.slow] * x.startswith(_SLOW)) for x in ALL]
)


def told(turn: Turn, spaces: Spaces) -> tuple[object, ...]:
    """The content of a turn, for comparison."""
    shown, episode = turn.observation, turn.episode
    return (
        (turn.agent_id, turn.step, turn.score),
        observation_to_json(shown, spaces[0]),
        (float(shown.reward), shown.terminated, shown.truncated),
        actions_to_json(turn.actions, shown, spaces[0]),
        None if episode is None else replace(episode, number=0),
    )


@each_game
@given(data=st.data(), seed=st.integers(0, 2**40), see=st.booleans(), episodes=st.integers(1, 3))
@settings(max_examples=30)
def test_episodes_come_back(
    name: str, data: st.DataObject, seed: int, see: bool, episodes: int
) -> None:
    game = data.draw(with_random_settings(ALL[name]))
    turns: list[Turn] = []
    writer = ReplayWriter(see=see, watch=turns.append)
    agents = [RandomAgent(seed % 1000 + i) for i in range(game.num_agents)]
    game.run(*agents, seed=seed, episodes=episodes, watch=writer)
    assert [replay.header.run["seed"] for replay in writer.replays] == [seed] * episodes
    for replay in writer.replays:
        read = Replay.from_bytes(replay.to_bytes())
        assert (read.header, read.lines) == (replay.header, replay.lines)
        assert (read.is_whole, read.is_cut, read.failure) == (True, False, "")
        assert read.has_observations == see
        assert read.verify(game) is None
        mine = [turn for turn in turns if turn.number == read.header.run["episode"]]
        found = [told(turn, read.spaces) for turn in read.turns(game)]
        assert found == [told(turn, read.spaces) for turn in mine]
        assert [each for each in read.rewards if each is not None] == [
            turn.episode.reward
            for turn in sorted(mine, key=lambda turn: turn.agent_id)
            if turn.episode is not None
        ]


class Anything(ScriptedAgent):
    """Chooses random legal actions."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def choose(self, obs: Obs, *actions: ActionKey) -> object:
        answers = [self.one(obs, action) for action in actions]
        return answers[0] if len(answers) == 1 else tuple(answers)

    def one(self, obs: Obs, action: ActionKey) -> object:
        kind = action_type(action)
        if isinstance(kind, Continuous):
            bounds = list(zip(kind.space.low, kind.space.high, strict=True))
            return [[self.random.uniform(*each) for each in bounds] for _ in obs.actors_of(kind)]
        allowed = obs.allowed(kind)
        if isinstance(kind, GlobalCategorical):
            return self.random.choice(allowed)
        return [self.random.choice(each) if each else None for each in allowed]


@each_game
@given(data=st.data(), seed=st.integers(0, 2**40))
@settings(max_examples=10)
def test_a_bot_is_recorded_alike_with_and_without_arrays(
    name: str, data: st.DataObject, seed: int
) -> None:
    game = data.draw(with_random_settings(ALL[name]))
    plain, read = ReplayWriter(), ReplayWriter(watch=lambda turn: None)
    assert (plain.takes_plain, read.takes_plain) == (True, False)
    for writer in (plain, read):
        agents = [Anything(seed + i) for i in range(game.num_agents)]
        game.run(*agents, seed=seed, watch=writer)
    [one], [other] = plain.replays, read.replays
    assert one.to_bytes() == other.to_bytes()
