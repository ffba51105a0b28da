"""AzulBatch: it plays by the rules, and rejects illegal actions."""

import copy
import pickle
import random
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from entity_env import ProtocolError, SchemaError, UsageError
from entity_env.core.seeding import splitmix64_int
from entity_env.core.spaces import GlobalCategoricalActionSpace
from entity_env.core.vec_env_base import env_seeds
from entity_env.games.azul import (
    ACTIONS,
    ActionEncoder,
    AzulBatch,
    EnvConfig,
    FeatureExtractor,
    GameState,
    IllegalAction,
    RewardScheme,
    apply_in_place,
    legal_actions,
    new_game,
)
from entity_env.games.azul.engine.tile_draws import SplitMix
from entity_env.games.azul.features import FEATURE_NAMES
from entity_env.games.azul.kernels.observation import OBS_SIZE
from tests.games.azul.recorded_games import NUM_PLAYERS, SEEDS, interpreted


def mask_of(state: GameState) -> np.ndarray:
    mask = np.zeros(300, np.bool_)
    mask[[ActionEncoder.encode(action) for action in legal_actions(state)]] = True
    return mask


def choices(azul: AzulBatch, rng: random.Random, to_floor: float = 0.0) -> np.ndarray:
    """A legal action in every game, sometimes the last, which takes tiles to the floor."""
    chosen = []
    for mask in azul.legal_masks:
        legal = np.flatnonzero(mask).tolist()
        chosen.append(rng.choice(legal[-1:] if rng.random() < to_floor else legal))
    return np.array(chosen)


class Reference:
    """One game of a batch, played by the rules themselves."""

    def __init__(self, seed: int, env_id: int, config: EnvConfig) -> None:
        self.numbers = SplitMix(splitmix64_int(int(env_seeds(seed, np.array([env_id]))[0])))
        self.config = config
        self.features = FeatureExtractor()
        self.begin()

    def begin(self) -> None:
        start = self.config.starting_player
        if start == "random":
            start = int(self.numbers.uniform() * self.config.num_players)
        self.state = new_game(self.config.num_players, starting_player=start, rng=self.numbers)
        self.rewards = [0.0] * 4
        self.mover = self.state.current_player

    def step(self, action_id: int) -> None:
        before = self.state.scores
        self.mover = self.state.current_player
        apply_in_place(self.state, ACTIONS[action_id])
        after = self.state.scores
        if self.config.reward_scheme is RewardScheme.DenseScoreDelta:
            earned = [b - a for a, b in zip(before, after, strict=True)]
        elif self.state.is_over:
            earned = [score - sum(after) / len(after) for score in after]  # type: ignore[misc]
        else:
            earned = [0] * len(after)
        self.rewards = [*map(float, earned), *[0.0] * (4 - len(after))]

    @property
    def is_cut(self) -> bool:
        limit = self.config.max_rounds
        return limit is not None and not self.state.is_over and self.state.round > limit

    def check(self, azul: AzulBatch, env_id: int) -> None:
        result, state = azul.view(), self.state
        player = state.current_player
        assert azul.current_players[env_id] == player
        np.testing.assert_array_equal(result.obs(env_id), self.features.encode(state, player))
        expected = np.zeros(300, np.bool_) if self.is_cut else mask_of(state)
        np.testing.assert_array_equal(azul.legal_masks[env_id], expected)
        np.testing.assert_allclose(azul.player_rewards[env_id], self.rewards, rtol=1e-6)
        assert result.rewards[env_id] == azul.player_rewards[env_id, self.mover]
        assert result.is_terminal(env_id) == state.is_over
        assert result.is_truncated(env_id) == self.is_cut
        assert azul.state(env_id) == state


@pytest.mark.slow
@settings(max_examples=6, deadline=None)
@given(
    seed=SEEDS,
    num_players=NUM_PLAYERS,
    scheme=st.sampled_from(RewardScheme),
    starting_player=st.sampled_from((0, 1, "random")),
    max_rounds=st.sampled_from((None, None, 1, 4)),
    to_floor=st.sampled_from((0.0, 0.5)),
)
def test_it_plays_what_the_rules_say(
    seed: int,
    num_players: int,
    scheme: RewardScheme,
    starting_player: int | Literal["random"],
    max_rounds: int | None,
    to_floor: float,
) -> None:
    azul = AzulBatch(
        2,
        num_players=num_players,
        reward_scheme=scheme,
        starting_player=starting_player,
        max_rounds=max_rounds,
    )
    azul.reset(seed)
    games = [Reference(seed, i, azul.config) for i in range(2)]
    rng = random.Random(seed)
    num_ended = 0
    for _ in range(60):
        actions = choices(azul, rng, to_floor)
        result = azul.step_no_reset_with_result(actions)
        for i, game in enumerate(games):
            game.step(int(actions[i]))
            game.check(azul, i)
        mask = result.to_reset_mask()
        num_ended += mask.count()
        azul.reset_envs(mask)
        for i in mask.indices():
            assert not azul.view().is_done(int(i))
            kept, mover = games[i].rewards, games[i].mover
            games[i].begin()
            games[i].rewards, games[i].mover = kept, mover  # rewards are kept
            games[i].check(azul, int(i))
    assert num_ended > 0 or max_rounds != 1


@settings(max_examples=3, deadline=None)
@given(seed=SEEDS, num_players=NUM_PLAYERS, seeds=st.lists(SEEDS, min_size=1, max_size=2))
def test_without_numba_it_plays_the_same_with_automatic_resets(
    seed: int, num_players: int, seeds: list[int]
) -> None:
    both = [AzulBatch(3, num_players=num_players, starting_player="random")]
    with interpreted():
        both.append(AzulBatch(3, num_players=num_players, starting_player="random"))
    rng = random.Random(seed)
    for reset in (seed, *seeds, None):
        for azul in both:
            azul.reset(reset)
        for _ in range(40):
            actions = choices(both[0], rng)
            for azul in both:
                azul.step(actions)
            assert everything(both[0]) == everything(both[1])
            assert not both[0].view().terminals.any()


def everything(azul: AzulBatch) -> list[Any]:
    result = azul.view()
    arrays = (
        result.observations,
        result.rewards,
        result.terminals,
        azul.legal_masks,
        azul.player_rewards,
        azul.current_players,
    )
    return [*(array.tolist() for array in arrays), [azul.state(i) for i in range(azul.num_envs)]]


def test_an_illegal_action_is_named_and_nothing_is_stepped() -> None:
    azul = AzulBatch(5)
    azul.reset(4)
    rng = random.Random(4)
    for _ in range(10):
        azul.step(choices(azul, rng))
    before = everything(azul)
    for env_id in (0, 3, 4):
        for action_id in np.flatnonzero(~azul.legal_masks[env_id])[::7]:
            actions = choices(azul, rng)
            actions[env_id] = action_id
            with pytest.raises(IllegalAction, match=f"may not take .*, in environment {env_id};"):
                azul.step(actions)
            with pytest.raises(IllegalAction):
                azul.step_no_reset_with_result(actions)
    assert everything(azul) == before


@pytest.mark.parametrize(
    ("actions", "error", "message"),
    [
        ([0, 300], SchemaError, "from 0 to 299: got 300 for environment 1"),
        ([-1, 0], SchemaError, "got -1 for environment 0"),
        (np.array([0, 2**63], np.uint64), SchemaError, "for environment 1"),
        ([0.0, 1.0], SchemaError, r"must be \(2,\) integers, .* float64"),
        ([True, False], SchemaError, "bool"),
        ([[0], [1]], SchemaError, r"got \(2, 1\)"),
        ([0], SchemaError, r"got \(1,\)"),
        ([[0], [1, 2]], SchemaError, "got"),
        (None, SchemaError, "object"),
    ],
)
def test_actions_that_are_none(actions: object, error: type[Exception], message: str) -> None:
    azul = AzulBatch(2)
    azul.reset(0)
    before = everything(azul)
    with pytest.raises(error, match=message):
        azul.step_no_reset(actions)  # type: ignore[arg-type]
    assert everything(azul) == before


def test_ended_games_must_be_reset_and_are_named() -> None:
    azul = AzulBatch(12, max_rounds=1)
    azul.reset(0)
    rng = random.Random(0)
    while not azul.view().truncations.all():
        result = azul.step_no_reset_with_result(choices(azul, rng))
        if result.to_reset_mask().any():
            break
    ended = result.to_reset_mask().indices()
    with pytest.raises(ProtocolError, match=f"environments {ended[0]}.* have ended: reset them"):
        azul.step(np.zeros(12, np.int64))
    azul.reset_envs(result.to_reset_mask())
    azul.step(choices(azul, rng))


def test_every_integer_dtype_is_taken() -> None:
    for dtype in (np.uint16, np.int16, np.int32, np.uint64):
        azul = AzulBatch(2)
        azul.reset(0)
        azul.step(azul.legal_masks.argmax(axis=1).astype(dtype))
        assert azul.view().observations.dtype == np.float32


def test_positions_that_are_not_there() -> None:
    azul = AzulBatch(2)
    with pytest.raises(ProtocolError, match="call reset first"):
        azul.state(0)
    azul.reset()
    with pytest.raises(UsageError, match="env_id must be an integer from 0 to 1: got 2"):
        azul.state(2)


def test_settings_that_cannot_be() -> None:
    with pytest.raises(UsageError, match="num_players"):
        AzulBatch(1, num_players=5)
    with pytest.raises(UsageError, match="max_rounds"):
        AzulBatch(1, max_rounds=0)


def test_spaces() -> None:
    azul = AzulBatch(2)
    [entity] = azul.obs_space().entities.values()
    assert tuple(entity.features) == FEATURE_NAMES
    assert len(set(FEATURE_NAMES)) == OBS_SIZE == azul.obs_size
    space = azul.action_space()["Move"]
    assert isinstance(space, GlobalCategoricalActionSpace)
    assert space.index_to_label[7] == str(ACTIONS[7])


def test_feature_names_fit_what_is_encoded() -> None:
    state = new_game(3, rng=np.random.default_rng(0))
    row = dict(zip(FEATURE_NAMES, FeatureExtractor().encode(state, 0).tolist(), strict=True))
    assert row["factory_1.red"] == state.factories[1][2] / 4
    assert row["bag.white"] == pytest.approx(state.bag[4] / 20)
    assert row["marker_in_centre"] == 1
    assert (row["player_2.is_there"], row["player_3.is_there"]) == (1, 0)
    assert row["turn.0"] == row["began.0"] == 1
    assert row["round"] == pytest.approx(1 / 20)


def test_a_copy_goes_its_own_way() -> None:
    azul = AzulBatch(2)
    azul.reset(1)
    for other in (copy.deepcopy(azul), pickle.loads(pickle.dumps(azul))):
        before = everything(azul)
        assert everything(other) == before
        other.step(choices(other, random.Random(1)))
        assert everything(azul) == before != everything(other)
