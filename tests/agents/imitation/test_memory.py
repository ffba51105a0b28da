"""Cloning with memory: whole episodes are sequences."""

from __future__ import annotations

import copy
import random
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np
import pytest

from entity_env import Game, GlobalCategorical, Obs
from entity_env.agents import Agent, ScriptedAgent
from entity_env.agents.imitation import CloneConfig, DatasetRecorder, clone, cloning
from entity_env.agents.rogue_net import NumpyAgent, RogueNetConfig


@dataclass
class Note:
    """A note that is heard at first, and the place in the song."""

    pitch: int
    place: int


class Key(Enum):
    """The keys of an instrument."""

    LOW = 0
    HIGH = 1


KEY = GlobalCategorical(Key)


def play(agent: Agent, *, seed: int) -> None:
    rng, score = random.Random(seed), 0.0
    pitch, length = rng.randrange(2), rng.randrange(3, 7)
    for place in range(length):
        heard = Note(pitch if not place else -1, place)
        key = agent.act(Obs(score).entities([heard]), KEY)
        if key is None:
            return
        score += float(key.value == pitch)
    agent.game_over(Obs(score / length))


SONG = Game(play, entities=(Note,), actions=(KEY,), name="song")


class Musician(ScriptedAgent):
    """Plays what it heard at first."""

    def choose(self, obs: Obs, *actions: object) -> object:
        [note] = obs.of_class(Note)
        if note.pitch >= 0:
            self._pitch = note.pitch
        return Key(self._pitch)


@pytest.mark.slow
@pytest.mark.parametrize(("memory", "least", "most"), [(8, 0.97, 1.0), (0, 0.5, 0.8)])
def test_only_with_memory_can_a_network_repeat_what_it_heard(
    memory: int, least: float, most: float
) -> None:
    recorder = DatasetRecorder()
    SONG.run(Musician(), episodes=150, seed=1, watch=recorder)
    dataset = recorder.dataset()
    shuffled = dataset.select(np.random.default_rng(1).permutation(len(dataset)))
    net = RogueNetConfig(d_model=16, n_layer=1, memory=memory)
    result = clone(shuffled, CloneConfig(net=net, epochs=40, learning_rate=0.01))
    assert least <= result.held_out.accuracy <= most
    if memory:
        agent = NumpyAgent(result.net.weights(), greedy=True)
        assert all(SONG.play_episode(agent, seed=seed)[0].reward > 0.9 for seed in range(20))


@pytest.mark.slow
def test_long_episodes_are_learned_in_pieces_that_remember_the_earlier_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recorder = DatasetRecorder()
    SONG.run(Musician(), episodes=100, seed=1, watch=recorder)
    net = RogueNetConfig(d_model=16, n_layer=1, memory=8)
    dataset, config = recorder.dataset(), CloneConfig(net=net, epochs=15, learning_rate=0.01)
    musician = clone(dataset, config).net
    still = replace(config, epochs=1, learning_rate=1e-9)
    whole = clone(dataset, still, policy=copy.deepcopy(musician)).held_out
    monkeypatch.setattr(cloning, "_MEMORY_STEPS", 2)
    pieces = clone(dataset, still, policy=copy.deepcopy(musician)).held_out
    assert whole.accuracy > 0.9
    assert pieces == pytest.approx(whole, rel=1e-4)
    monkeypatch.setattr(cloning._Decisions, "recall", lambda self, net: None)
    forgetful = clone(dataset, still, policy=musician).held_out
    assert forgetful.accuracy < 0.9
