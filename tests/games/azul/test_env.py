"""AzulEnv: masks, rewards, errors, determinism, truncation."""

import copy
import dataclasses
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from numpy.typing import NDArray

from entity_env import ProtocolError, SchemaError, UsageError
from entity_env.games.azul import (
    Action,
    ActionEncoder,
    AzulEnv,
    EnvConfig,
    EnvStep,
    EpisodeDone,
    FeatureExtractor,
    GameState,
    IllegalAction,
    InvalidActionId,
    Phase,
    RewardScheme,
    StepError,
    legal_actions,
)
from tests.games.azul.recorded_games import (
    NUM_PLAYERS,
    SEEDS,
)


def play(env: AzulEnv, seed: int, limit: int = 10_000) -> Iterator[EnvStep]:
    """Steps of an episode of random moves, starting with a reset."""
    rng = random.Random(seed)
    step = env.reset(seed=seed)
    yield step
    while not step.done and limit:
        step = env.step(rng.choice(np.flatnonzero(step.legal_action_mask).tolist()))
        yield step
        limit -= 1


def check_same(one: EnvStep, other: EnvStep) -> None:
    for name, mine, theirs in zip(EnvStep._fields, one, other, strict=True):
        if isinstance(mine, np.ndarray):
            assert isinstance(theirs, np.ndarray)
            assert mine.dtype == theirs.dtype
            np.testing.assert_array_equal(mine, theirs, name)
        else:
            assert mine == theirs, name


# --------------------------------------------------------------------------- result of a step


@pytest.mark.slow
@settings(max_examples=15)
@given(seed=SEEDS, num_players=NUM_PLAYERS)
def test_every_step_tells_all_there_is(seed: int, num_players: int) -> None:
    config = EnvConfig(num_players, include_full_state_in_step=True, starting_player="random")
    env = AzulEnv(config)
    extractor = FeatureExtractor()
    last_action = None
    for step in play(env, seed):
        state = step.state
        assert state is not None
        assert step.last_action == last_action or last_action is None
        assert step.observations.shape == (4, extractor.obs_size)
        assert step.observations.dtype == step.rewards.dtype == np.float32
        assert step.rewards.shape == (4,)
        assert step.legal_action_mask.shape == (300,)
        assert step.legal_action_mask.dtype == np.bool_
        assert not step.rewards[num_players:].any()
        assert not step.observations[num_players:].any()
        for player in range(num_players):
            np.testing.assert_array_equal(
                step.observations[player], extractor.encode(state, player)
            )
        assert step.current_player == state.current_player
        assert step.done == env.done == (state.phase is Phase.GameOver)
        assert step.terminated == step.done
        assert not step.truncated
        check_mask(step.legal_action_mask, state)


def check_mask(mask: NDArray[np.bool_], state: GameState) -> None:
    legal = legal_actions(state)
    assert all(mask[ActionEncoder.encode(action)] for action in legal)
    assert {ActionEncoder.decode(int(i)) for i in np.flatnonzero(mask)} == set(legal)
    assert mask.any() == (not state.is_over)


def test_a_reset_earns_nothing_and_has_no_last_action() -> None:
    step = AzulEnv(EnvConfig(3, starting_player=2), seed=4).reset()
    assert not step.rewards.any()
    assert step.last_action is None
    assert step.current_player == 2
    assert step.state is None
    assert not step.done


def test_the_player_who_ends_the_game_stays_the_current_one() -> None:
    for seed in range(5):
        steps = list(play(AzulEnv(EnvConfig(3)), seed))
        assert steps[-1].current_player == steps[-2].current_player


def test_arrays_are_the_callers_own() -> None:
    env = AzulEnv(seed=1)
    step = env.reset()
    kept = [step.observations.copy(), step.legal_action_mask.copy()]
    legal = np.flatnonzero(step.legal_action_mask)
    after = env.step(int(legal[0]))
    np.testing.assert_array_equal(step.observations, kept[0])
    np.testing.assert_array_equal(step.legal_action_mask, kept[1])
    after.legal_action_mask[:] = True
    with pytest.raises(IllegalAction):
        env.step(int(legal[0]))


def test_the_state_is_a_copy() -> None:
    env = AzulEnv(EnvConfig(include_full_state_in_step=True), seed=1)
    step = env.reset()
    assert step.state is not None
    step.state.players[0].score = 50
    assert env.state.scores == [0, 0]
    env.state.players[0].score = 50
    assert env.state.scores == [0, 0]


# --------------------------------------------------------------------------- rewards


@settings(max_examples=15)
@given(seed=SEEDS, num_players=NUM_PLAYERS)
def test_dense_rewards_add_up_to_the_score(seed: int, num_players: int) -> None:
    env = AzulEnv(EnvConfig(num_players, "DenseScoreDelta"))
    total = np.zeros(4)
    for step in play(env, seed):
        total += step.rewards
        assert total[:num_players].tolist() == env.state.scores


@settings(max_examples=15)
@given(seed=SEEDS, num_players=NUM_PLAYERS)
def test_terminal_rewards_are_scores_less_their_mean(
    seed: int,
    num_players: int,
) -> None:
    env = AzulEnv(EnvConfig(num_players, RewardScheme.TerminalOnly))
    for step in play(env, seed):
        if not step.done:
            assert not step.rewards.any()
    scores = np.array(env.state.scores, np.float64)
    expected = (scores - scores.mean()).astype(np.float32)
    np.testing.assert_array_equal(step.rewards[:num_players], expected)
    assert abs(float(step.rewards.sum(dtype=np.float64))) < 1e-4
    assert not step.rewards[num_players:].any()


# --------------------------------------------------------------------------- refusals


NO_IDS = [-1, 300, 2**70, True, np.True_, 3.0, np.float64(3), float("nan"), None, "3", [3]]


@pytest.mark.parametrize("action_id", NO_IDS)
def test_no_id_is_refused_before_anything_else_but_an_end(action_id: int) -> None:
    env = AzulEnv(seed=1)
    with pytest.raises(EpisodeDone, match=r"no episode has begun: call reset\(\)"):
        env.step(action_id)
    env.reset()
    before = env.state
    with pytest.raises(InvalidActionId, match="from 0 to 299, got"):
        env.step(action_id)
    assert env.state == before


def test_after_the_end_every_step_is_refused() -> None:
    env = AzulEnv(seed=1)
    *_, last = play(env, 1)
    assert last.done
    for action_id in (0, 299, -1, 300, None, float("nan")):
        with pytest.raises(EpisodeDone, match=r"the episode is over: call reset\(\)"):
            env.step(action_id)  # type: ignore[arg-type]
    assert not env.reset().done
    assert not env.done


def test_a_refused_step_draws_nothing() -> None:
    one, other, rng = AzulEnv(seed=3), AzulEnv(seed=3), random.Random(3)
    step = one.reset()
    other.reset()
    while not step.done:
        for action_id in (-1, int(np.flatnonzero(~step.legal_action_mask)[0])):
            with pytest.raises(StepError):
                one.step(action_id)
        action_id = rng.choice(np.flatnonzero(step.legal_action_mask).tolist())
        step = one.step(action_id)
        check_same(step, other.step(action_id))


def test_the_errors_belong_to_the_tree() -> None:
    assert issubclass(EpisodeDone, ProtocolError)
    assert issubclass(InvalidActionId, SchemaError)
    assert issubclass(IllegalAction, SchemaError)
    assert all(
        issubclass(error, StepError) for error in (EpisodeDone, InvalidActionId, IllegalAction)
    )


def test_a_refusal_gives_a_reason() -> None:
    env = AzulEnv()
    env.reset(draw=lambda bag: 1)
    with pytest.raises(
        IllegalAction,
        match="player 0 may not take blue from factory 3 to line 2: there is none",
    ):
        env.step(ActionEncoder.encode(Action(3, 0, 2)))


# --------------------------------------------------------------------------- determinism


def test_episodes_follow_from_the_seed_of_the_environment() -> None:
    def episodes(env: AzulEnv, count: int) -> list[GameState]:
        states = []
        for _ in range(count):
            env.reset()
            states.append(env.state)
        return states

    one = episodes(AzulEnv(seed=5), 3)
    assert one == episodes(AzulEnv(seed=5), 3)
    assert len(set(one)) == 3
    assert episodes(AzulEnv(seed=6), 3) != one
    env = AzulEnv(seed=6)
    env.reset(seed=5)
    assert env.state == one[0]
    env.reset()
    assert env.state == one[1]


def test_an_environment_can_be_copied_in_the_middle() -> None:
    env = AzulEnv(EnvConfig(3))
    *_, step = play(env, 4, 25)
    other = copy.deepcopy(env)
    while not step.done:
        action_id = int(np.flatnonzero(step.legal_action_mask)[0])
        step = env.step(action_id)
        check_same(other.step(action_id), step)
    check_same(other.reset(), env.reset())


def test_a_starting_player_at_random_is_everybody() -> None:
    env = AzulEnv(EnvConfig(4, starting_player="random"), seed=1)
    assert {env.reset().current_player for _ in range(60)} == {0, 1, 2, 3}


def test_a_draw_that_answers_nonsense_changes_nothing() -> None:
    env = AzulEnv()
    answers = iter([0] * 20)
    step = env.reset(draw=lambda bag: next(answers, 9))
    while True:
        before = env.state
        try:
            step = env.step(int(np.flatnonzero(step.legal_action_mask)[-1]))
        except SchemaError as error:
            assert "draw must return a color" in str(error)  # noqa: PT017
            break
    assert before == env.state
    assert not env.done


# --------------------------------------------------------------------------- truncation


@pytest.mark.parametrize("scheme", list(RewardScheme))
def test_max_rounds_cuts(scheme: RewardScheme) -> None:
    config = EnvConfig(3, scheme, True, max_rounds=2)
    env = AzulEnv(config)
    steps = list(play(env, 3))
    last = steps[-1]
    assert last.done
    assert last.truncated
    assert not last.terminated
    assert not last.legal_action_mask.any()
    assert last.state is not None
    assert last.state.round == 3
    assert not last.state.is_over
    assert last.current_player == last.state.current_player
    assert all(step.state is not None and step.state.round <= 2 for step in steps[:-1])
    if scheme is RewardScheme.TerminalOnly:
        assert not last.rewards.any()
    with pytest.raises(EpisodeDone, match="the episode is over"):
        env.step(0)
    assert not env.reset().done


def test_a_game_that_ends_in_the_last_round_is_not_cut() -> None:
    *_, free = play(AzulEnv(EnvConfig(include_full_state_in_step=True)), 2)
    assert free.state is not None
    config = EnvConfig(max_rounds=free.state.round, include_full_state_in_step=True)
    *_, last = play(AzulEnv(config), 2)
    check_same(last, free)
    assert last.terminated
    *_, cut = play(AzulEnv(dataclasses.replace(config, max_rounds=free.state.round - 1)), 2)
    assert cut.truncated


# --------------------------------------------------------------------------- configuration


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_players": 1}, "num_players must be an integer from 2 to 4, got 1"),
        ({"num_players": 5}, "num_players"),
        ({"num_players": 2.0}, "num_players"),
        ({"num_players": True}, "num_players"),
        (
            {"reward_scheme": "Dense"},
            "reward_scheme must be one of DenseScoreDelta, TerminalOnly, or a RewardScheme",
        ),
        ({"reward_scheme": None}, "reward_scheme"),
        (
            {"include_full_state_in_step": 1},
            "include_full_state_in_step must be true or false",
        ),
        ({"starting_player": 2}, "starting_player must be an integer from 0 to 1: got 2"),
        ({"starting_player": "first"}, "starting_player"),
        ({"starting_player": -1}, "starting_player"),
        ({"starting_player": None}, "starting_player"),
        ({"max_rounds": 0}, "max_rounds must be an integer, 1 or more, or none, got 0"),
        ({"max_rounds": 2.5}, "max_rounds"),
        ({"max_rounds": True}, "max_rounds"),
        ({"max_rounds": "2"}, "max_rounds"),
    ],
)
def test_a_configuration_that_cannot_be(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        EnvConfig(**arguments)


def test_what_is_no_configuration() -> None:
    wrong: Any = {"num_players": 2}
    with pytest.raises(UsageError, match=r"AzulEnv: config must be an EnvConfig, got \{'num_"):
        AzulEnv(wrong)
    extractors: list[Any] = [wrong, 5, FeatureExtractor]
    for extractor in extractors:
        with pytest.raises(UsageError, match=r"AzulEnv: features must be an object with obs_size"):
            AzulEnv(features=extractor)


def test_a_configuration_stays_as_it_is() -> None:
    config = EnvConfig(reward_scheme="TerminalOnly")
    assert config.reward_scheme is RewardScheme.TerminalOnly
    assert config == EnvConfig(reward_scheme=RewardScheme.TerminalOnly)
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.num_players = 3  # type: ignore[misc]
    assert AzulEnv().config == EnvConfig(2, RewardScheme.DenseScoreDelta, False, 0, None)


@pytest.mark.parametrize("seed", [-1, 1.0, True, "1"])
def test_a_seed_that_cannot_be(seed: int) -> None:
    with pytest.raises(UsageError, match="a seed must be an integer, 0 or more"):
        AzulEnv(seed=seed)
    with pytest.raises(UsageError, match="a seed must be an integer, 0 or more"):
        AzulEnv().reset(seed=seed)


def test_before_the_first_reset_there_is_no_state() -> None:
    env = AzulEnv()
    assert env.done
    with pytest.raises(EpisodeDone, match=r"there is no game yet: call reset\(\) first"):
        env.state  # noqa: B018


class Scores(FeatureExtractor):
    """A custom extractor."""

    @property
    def obs_size(self) -> int:
        return 2

    def encode(self, state: GameState, player: int) -> NDArray[np.float32]:
        return np.array([state.players[player].score, player], np.float32)


def test_features_may_be_of_the_users_own() -> None:
    env = AzulEnv(EnvConfig(3), features=Scores())
    total = np.zeros(4)
    for step in play(env, 1):
        total += step.rewards
        assert step.observations.shape == (4, 2)
        np.testing.assert_array_equal(step.observations[:, 0], total)
        np.testing.assert_array_equal(step.observations[:, 1], [0, 1, 2, 0])


WIDE = np.zeros(5, np.float32)


class Plain:
    """An extractor that is not a `FeatureExtractor`, with a method `obs_size`; later too wide.

    Args:
        num_right: calls that return a vector of the right width.
    """

    def __init__(self, num_right: int = 10**9, wrong: object = WIDE) -> None:
        self.num_right = num_right
        self.wrong = wrong

    def obs_size(self) -> int:
        return 3

    def encode(self, state: GameState, player: int) -> Any:  # noqa: ANN401 - anything
        self.num_right -= 1
        return [state.round, player, 0.5] if self.num_right >= 0 else self.wrong


def test_features_need_no_base_class() -> None:
    env = AzulEnv(EnvConfig(3), features=Plain())
    assert env.obs_size == 3
    step = env.reset()
    expected = [[1, 0, 0.5], [1, 1, 0.5], [1, 2, 0.5], [0, 0, 0]]
    np.testing.assert_array_equal(step.observations, expected)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (np.zeros(5), r"\(3,\) numbers, as its obs_size says: got \(5,\) float64 for player 0"),
        (1.0, r"got \(\) float64"),
        (np.zeros((1, 3)), r"got \(1, 3\) float64"),
        ([[1], [1, 2]], r"got \(\) object"),
        (["a", "b", "c"], r"got \(3,\) <U1"),
        (None, r"got \(\) object"),
    ],
)
def test_features_that_do_not_fit_are_refused_when_the_environment_is_made(
    wrong: object, told: str
) -> None:
    with pytest.raises(SchemaError, match=rf"AzulEnv: Plain.encode must return .*{told}"):
        AzulEnv(features=Plain(0, wrong))


@pytest.mark.parametrize("size", [0, -1, 2.0, True, "3"])
def test_a_size_of_features_that_cannot_be(size: Any) -> None:  # noqa: ANN401
    class Sized(Plain):
        obs_size = size

    for sized in (Sized(), type("Sized", (Plain,), {"obs_size": lambda _: size})()):
        with pytest.raises(UsageError, match="AzulEnv: obs_size of Sized must be an integer, 1 or"):
            AzulEnv(features=sized)


@pytest.mark.parametrize("draws", [False, True])
def test_features_that_become_wrong_change_nothing(draws: bool) -> None:
    """Whether or not the rejected move ends a round, which draws tiles."""
    extractor, twin = Plain(), AzulEnv(seed=3, features=Plain())
    env = AzulEnv(seed=3, features=extractor)
    step, _ = env.reset(), twin.reset()
    while True:
        action = int(np.flatnonzero(step.legal_action_mask)[0])
        before, extractor.num_right = env.state, 1
        with pytest.raises(SchemaError, match=r"got \(5,\) float32 for player 1"):
            env.step(action)
        assert (env.state, env.done) == (before, False)
        extractor.num_right = 10**9
        step, expected = env.step(action), twin.step(action)
        check_same(step, expected)
        if not draws or env.state.round > before.round:
            break
    before, extractor.num_right = env.state, 0
    with pytest.raises(SchemaError, match="for player 0"):
        env.reset(seed=4)
    assert (env.state, env.done) == (before, False)
    extractor.num_right = 10**9
    check_same(env.reset(), twin.reset())
