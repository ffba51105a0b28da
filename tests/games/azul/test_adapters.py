"""One game through all interfaces of Azul: rules, fast games, environments, batches, entities.

Each interface has its own tests; here all must agree, in this process and in another one.
"""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from entity_env import Action as Choice, Observation, ProtocolError
from entity_env.agents import PolicyAgent, RandomAgent
from entity_env.games.azul import (
    ACTION_SPACE_SIZE,
    Action,
    ActionEncoder,
    AgentInput,
    AzulEnv,
    EntityAgent,
    EnvConfig,
    FastGame,
    FeatureExtractor,
    GameState,
    GreedyAgent,
    RandomAgent as RandomIds,
    apply_in_place,
    azul,
    azul_by_id,
    legal_actions,
    new_game,
    play_game,
    winners,
)
from tests import ROOT
from tests.games.azul.recorded_games import (
    NUM_PLAYERS,
    POLICIES,
    SEEDS,
    Policy,
    count_tiles,
    interpreted,
    recorded_draw,
    recorded_games,
    states,
)

ALL_TILES = [20] * 5


def ids_of(state: GameState) -> list[int]:
    return sorted(ActionEncoder.encode(action) for action in legal_actions(state))


# --------------------------------------------------------------------------- all interfaces


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(seed=SEEDS, num_players=NUM_PLAYERS, policy=st.sampled_from(POLICIES))
def test_every_face_plays_the_same_game(seed: int, num_players: int, policy: Policy) -> None:
    """Draws come from a list, so all interfaces get the same tiles."""
    drawn: list[int] = []
    source = random.Random(seed)

    def draw(bag: Sequence[int]) -> int:
        drawn.append(source.choices(range(5), list(bag))[0])
        return drawn[-1]

    rng = random.Random(seed + 1)
    start = seed % num_players
    plain = new_game(num_players, starting_player=start, draw=draw)

    def replay() -> Any:  # noqa: ANN401 - a draw
        at = itertools.count()
        return lambda bag: drawn[next(at)]

    fast = FastGame(num_players, starting_player=start, draw=replay())
    config = EnvConfig(num_players, starting_player=start, include_full_state_in_step=True)
    envs = [AzulEnv(config)]
    with interpreted():
        envs.append(AzulEnv(config))
    steps = [env.reset(draw=replay()) for env in envs]
    features = FeatureExtractor()
    for _ in range(250):
        assert count_tiles(plain) == ALL_TILES
        mask = np.zeros(ACTION_SPACE_SIZE, np.bool_)
        mask[ids_of(plain)] = True
        assert fast.state() == plain
        for step in steps:
            assert step.state == plain
            np.testing.assert_array_equal(step.legal_action_mask, mask)
            assert step.done == plain.is_over
            for player in range(num_players):
                np.testing.assert_array_equal(
                    step.observations[player], features.encode(plain, player)
                )
        if plain.is_over:
            break
        action = policy(plain, legal_actions(plain), rng)
        action_id = ActionEncoder.encode(action)
        apply_in_place(plain, action)
        fast.play(action_id)
        steps = [env.step(action_id) for env in envs]


@settings(max_examples=25, deadline=None)
@given(state=states(max_moves=90), turns=st.integers(0, 3))
def test_whoever_sits_where_sees_the_same(state: GameState, turns: int) -> None:
    """Moves, features and entities do not depend on the number of a seat."""
    if state.is_over:
        return
    turned = state.rotated(turns % state.num_players)
    assert ids_of(turned) == ids_of(state)
    features = FeatureExtractor()
    for player in range(state.num_players):
        seat = (player - turns) % state.num_players
        np.testing.assert_array_equal(features.encode(state, player), features.encode(turned, seat))


RECORDED = recorded_games()
SPECIAL = {tag: game for game in RECORDED for tag in game["tags"]}
"""A recorded game with all special cases."""


@pytest.mark.parametrize("tag", sorted(SPECIAL))
def test_recorded_games_are_replayed_by_the_environment(tag: str) -> None:
    game = SPECIAL[tag]
    config = EnvConfig(game["players"], starting_player=game["start"])
    env = AzulEnv(config)
    step = env.reset(draw=recorded_draw(game))
    total = np.zeros(4)
    for i, move in enumerate(game["moves"]):
        assert step.current_player == int(game["player"][i])
        step = env.step(ActionEncoder.encode(Action(*move)))
        total += step.rewards
    assert step.terminated
    assert total[: game["players"]].tolist() == env.state.scores == game["final"]
    assert env.state.end == game["end"]
    assert winners(env.state) == game["winners"]


@pytest.mark.parametrize("max_rounds", [1, 2, 3])
@pytest.mark.parametrize("num_players", [2, 3, 4])
def test_every_face_cuts_after_the_same_rounds(num_players: int, max_rounds: int) -> None:
    result = play_game([RandomIds()] * num_players, seed=3, max_rounds=max_rounds)
    assert (result.end, result.num_rounds) == (None, max_rounds + 1)
    agents = [RandomAgent(seed=i) for i in range(num_players)]
    played = azul.run(*agents, num_players=num_players, max_rounds=max_rounds)
    assert all(episode.truncated and not episode.terminated for episode in played)
    env = AzulEnv(EnvConfig(num_players, max_rounds=max_rounds, include_full_state_in_step=True))
    rng, step = random.Random(1), env.reset(seed=1)
    while not step.done:
        step = env.step(rng.choice(np.flatnonzero(step.legal_action_mask).tolist()))
    assert step.truncated
    assert not step.terminated
    assert not step.legal_action_mask.any()
    assert step.state is not None
    assert step.state.round == max_rounds + 1


# --------------------------------------------------------------------------- other processes

SCRIPT = """
import hashlib, random, sys
import numpy as np
from entity_env.games.azul import AzulBatch, AzulEnv, EnvConfig, GreedyAgent, RandomAgent, play_game
digest = hashlib.sha256()
for players in (2, 3, 4):
    config = EnvConfig(players, starting_player="random")
    env = AzulEnv(config, seed=7)
    rng, step = random.Random(5), env.reset()
    while not step.done:
        digest.update(step.observations.tobytes() + step.rewards.tobytes())
        step = env.step(rng.choice(np.flatnonzero(step.legal_action_mask).tolist()))
    digest.update(repr(env.state.to_dict()).encode())
    agents = [GreedyAgent(), *[RandomAgent()] * (players - 1)]
    result = play_game(agents, seed=11)
    digest.update(repr((result.scores, result.num_moves)).encode())
batch = AzulBatch(4)
batch.reset(3)
for _ in range(60):
    result = batch.step_no_reset_with_result(batch.legal_masks.argmax(axis=1))
    digest.update(result.observations.tobytes())
    batch.reset_envs(result.to_reset_mask())
print(digest.hexdigest(), "numba" in sys.modules)
"""


@pytest.mark.slow
def test_the_same_seed_is_the_same_game_in_every_process() -> None:
    """Whatever the string hashes, and with or without numba."""
    digests = []
    for is_plain, hash_seed in (("0", "0"), ("0", "1"), ("1", "2")):
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT],
            text=True,
            stdout=subprocess.PIPE,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "NUMBA_DISABLE_JIT": is_plain},
            cwd=ROOT,
        )
        digests.append(done.stdout.split())
    [(digest, _), *_] = digests
    assert len(digest) == 64
    assert digests == [[digest, "True"], [digest, "True"], [digest, "False"]]


# --------------------------------------------------------------------------- agents with entities


class Highest(PolicyAgent):
    """Takes the last legal choice, and records its observations."""

    def __init__(self) -> None:
        super().__init__()
        self.shown: list[Observation] = []

    def decide(self, observation: Observation) -> dict[str, Choice] | None:
        self.shown.append(observation)
        return {
            question.name: question.action([int(np.flatnonzero(question.allowed[0])[-1])])
            for question in self.questions(observation)
        }


@settings(max_examples=20, deadline=None)
@given(state=states(max_moves=80))
def test_an_agent_with_entities_chooses_among_the_legal_ids(state: GameState) -> None:
    if state.is_over:
        return
    given_input = AgentInput(
        np.zeros(1, np.float32), np.zeros(300, np.bool_), state.current_player, state
    )
    before = state.copy()
    for game in (azul, azul_by_id):
        agent = Highest()
        chosen = EntityAgent(agent, game).select_action(given_input, np.random.default_rng(0))
        assert chosen == ids_of(state)[-1]
        assert set(agent.shown[0].actions) == set(game.action_space())
    assert state == before


def test_an_agent_with_entities_sees_what_the_game_shows() -> None:
    """In `play_game` and in `azul.run`, equal observations lead to equal decisions."""
    agents = [Highest(), Highest()]
    play_game([EntityAgent(agent) for agent in agents], seed=2, max_rounds=2)
    for agent in agents:
        assert len(agent.shown) > 3
        names = set(azul.obs_space().entities)
        assert all(set(observation.features) <= names for observation in agent.shown)


def test_agents_with_entities_play_with_others() -> None:
    result = play_game([EntityAgent(RandomAgent(seed=1)), GreedyAgent()], seed=4)
    again = play_game([EntityAgent(RandomAgent(seed=1)), GreedyAgent()], seed=4)
    assert result == again
    assert result.shares[1] == 1


def test_an_agent_that_hangs_up_is_an_error() -> None:
    class Gone(Highest):
        def decide(self, observation: Observation) -> dict[str, Choice] | None:
            return None

    with pytest.raises(ProtocolError, match="Gone stopped in the middle of a game"):
        play_game([EntityAgent(Gone()), RandomIds()], seed=1)
