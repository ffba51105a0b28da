"""Turns and datasets for tests, and comparison of datasets."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from random import Random

import numpy as np
from hypothesis import strategies as st

from entity_env import Game, Obs, Observation
from entity_env.agents import Agent
from entity_env.agents.imitation import Dataset, DatasetRecorder
from entity_env.agents.policy_agent import PolicyAgent
from entity_env.authoring.local_run import Turn
from entity_env.core.action_request import questions, random_action
from entity_env.core.episode import Episode
from entity_env.core.observation import Action
from entity_env.core.ragged import RaggedArray
from entity_env.core.spaces import Spaces, spaces_to_json
from tests.helpers.strategies import action_spaces, obs_spaces, observations


@st.composite
def episodes(draw: st.DrawFn) -> tuple[Spaces, list[list[Turn]]]:
    """Spaces, and the turns of up to three episodes of two agents, with random actions."""
    obs_space, action_space = draw(obs_spaces()), draw(action_spaces())
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    found = []
    for _ in range(draw(st.integers(1, 3))):
        turns: list[Turn] = []
        for agent_id in range(2):
            shown = draw(st.lists(observations(obs_space, action_space), min_size=1, max_size=4))
            for step, observation in enumerate(shown):
                actions = {
                    each.name: random_action(each, rng)
                    for each in questions(observation, obs_space, action_space)
                }
                turns.append(Turn(agent_id, step, 0.0, observation, actions))
            if draw(st.booleans()):
                cut = draw(st.booleans())
                last = Observation(reward=0.5, truncated=cut, terminated=not cut)
                episode = Episode(0.0, len(shown), not cut, cut, 0, agent_id=agent_id)
                turns.append(Turn(agent_id, len(shown), 0.0, last, {}, episode))
        found.append(turns)
    return (obs_space, action_space), found


def recorded(spaces: Spaces, given: Sequence[Sequence[Turn]]) -> DatasetRecorder:
    """The dataset that a recorder makes of these episodes."""
    recorder = DatasetRecorder()
    for turns in given:
        recorder.add_episode(spaces, turns, "the game")
    return recorder


def assert_same_dataset(first: Dataset, second: Dataset) -> None:
    """Compares every array with its dtype, and the spaces."""
    assert spaces_to_json(*first.spaces) == spaces_to_json(*second.spaces)
    columns, others = first.columns(), second.columns()
    assert columns.keys() == others.keys()
    for name, column in columns.items():
        other = others[name]
        if isinstance(column, RaggedArray):
            assert isinstance(other, RaggedArray)
            assert column.values.dtype == other.values.dtype, name
            assert column.values.shape == other.values.shape, name
            assert column == other, name
        else:
            assert isinstance(other, np.ndarray)
            assert column.dtype == other.dtype, name
            assert np.array_equal(column, other), name


# ------------------------------------------------------------------ a game and its player


@dataclass
class Dot:
    x: int


class Go(Enum):
    LEFT = 0
    STAY = 1
    RIGHT = 2


def play_dots(agent: Agent, *, seed: int, length: int = 6) -> None:
    """Shows a dot and two other entities; reward 1 for moving to the dot's side, from -1 to 1."""
    rng, score = Random(seed), 0
    for _ in range(length):
        dot = Dot(rng.randrange(-1, 2))
        go = agent.act(Obs(score).entities([dot]), Go)
        if go is None:
            return
        score += go.value - 1 == dot.x
    agent.game_over(Obs(score))


dots = Game(play_dots, entities=(Dot,), actions=(Go,), name="dots")
"""An agent that always moves to the dot's side earns 6."""


class Follower(PolicyAgent):
    """Moves to the dot's side, or at random with some probability."""

    def __init__(self, noise: float = 0.0, seed: int = 0) -> None:
        super().__init__()
        self._noise, self._rng = noise, np.random.default_rng(seed)

    def decide(self, observation: Observation) -> dict[str, Action]:
        [question] = self.questions(observation)
        side = int(np.asarray(observation.features["Dot"])[0][0]) + 1
        if self._rng.random() < self._noise:
            side = int(self._rng.integers(3))
        return {question.name: question.action([side])}


def dots_dataset(num_episodes: int = 20, noise: float = 0.0, seed: int = 1) -> Dataset:
    """Decisions of a `Follower`."""
    recorder = DatasetRecorder()
    dots.run(Follower(noise, seed), seed=seed, episodes=num_episodes, watch=recorder)
    return recorder.dataset()
