"""Figures from random play of a game, and the resulting defaults."""

import itertools
from types import SimpleNamespace

import gymnasium
import pytest
from gymnasium import spaces
from hypothesis import given, strategies as st

from entity_env import Continuous, Game, Obs
from entity_env.agents import Agent
from entity_env.agents.ppo import PPOConfig
from entity_env.agents.rogue_net.config import MLPConfig, RogueNetConfig
from entity_env.agents.training import presets
from entity_env.agents.training.presets import PRESETS, GameFigures, preset_for
from entity_env.core.spaces import GlobalCategoricalActionSpace, spaces_from_json, spaces_to_json
from entity_env.games import rock_paper_scissors, tic_tac_toe
from entity_env.interop.gymnasium.spaces import ObsConverter
from entity_env.vec import VecEnv
from entity_env.vec.game_training import preset_of
from tests.helpers.tiny_games import Dot, ask, dots_game

FITTED = PRESETS["entities"]


def figures(game: Game) -> GameFigures:
    with VecEnv(game, 4) as vec:
        return GameFigures.of(vec)


def lasting(length: int, *, truncated: bool = False) -> Game:
    """A game whose episodes have these numbers of decisions."""

    def play(agent: Agent, *, seed: int) -> None:
        for _ in range(length):
            if ask(agent) is None:
                return
        agent.game_over(Obs(1.0), truncated=truncated)

    return dots_game(play)


@pytest.mark.parametrize("truncated", [False, True])
@pytest.mark.parametrize("length", [1, 7, 40])
def test_length_and_end_of_episodes(length: int, *, truncated: bool) -> None:
    seen = figures(lasting(length, truncated=truncated))
    assert (seen.mean_length, seen.is_cut) == (length, truncated)
    assert (seen.decisions_per_step, seen.is_continuous) == (1, False)
    again = figures(lasting(length, truncated=truncated))
    assert again == seen._replace(decisions_per_s=again.decisions_per_s)


def test_short_episodes_count_no_more_than_long_ones() -> None:
    lengths = {}

    def play(agent: Agent, *, seed: int) -> None:
        lengths[seed] = 2 if seed % 2 else 60
        for _ in range(lengths[seed]):
            if ask(agent) is None:
                return
        agent.game_over()

    seen = figures(dots_game(play))
    # Nearly all episodes that end first are short.
    assert 2 < seen.mean_length <= 60
    first = sorted(lengths.values())
    assert seen.mean_length > first[len(first) // 4]


def test_turns_and_agents() -> None:
    turns, at_once = figures(tic_tac_toe), figures(rock_paper_scissors)
    assert turns.decisions_per_step == pytest.approx(0.5, abs=0.1)
    assert at_once.decisions_per_step == 1
    assert not turns.is_cut


def clock_of(monkeypatch: pytest.MonkeyPatch, step_s: float) -> None:
    """Lets every look at the clock of the probe take a time."""
    clock = itertools.count(0.0, step_s)
    monkeypatch.setattr(presets, "time", SimpleNamespace(monotonic=lambda: next(clock)))


def test_an_episode_that_has_not_ended_is_not_truncated(monkeypatch: pytest.MonkeyPatch) -> None:
    """10,000 decisions of four copies, however long they take."""
    clock_of(monkeypatch, 0.001)
    seen = figures(lasting(10**9))
    assert (seen.mean_length, seen.is_cut, seen.is_whole) == (2500, False, True)
    assert seen.decisions_per_s == pytest.approx(4000)


@pytest.mark.parametrize("truncated", [False, True])
def test_defaults_do_not_depend_on_speed_as_long_as_random_play_is_whole(
    monkeypatch: pytest.MonkeyPatch, *, truncated: bool
) -> None:
    found = []
    for step_s in (0.0, 0.02, 0.05):
        clock_of(monkeypatch, step_s)
        with VecEnv(lasting(20, truncated=truncated), 4) as vec:
            found.append(PPOConfig.for_env(vec))
    assert found[0] == found[1] == found[2]
    assert (found[0].gamma == 0.99) is not truncated


@pytest.mark.parametrize("truncated", [False, True])
def test_nothing_follows_from_random_play_that_was_too_slow(
    monkeypatch: pytest.MonkeyPatch, *, truncated: bool
) -> None:
    found = set()
    for length, step_s in ((3, 8.0), (9, 3.0), (400, 0.2)):
        clock_of(monkeypatch, step_s)
        seen = figures(lasting(length, truncated=truncated))
        assert not seen.is_whole
        num_envs, settings, reasons = FITTED.defaults_for(1, 60_000, seen)
        assert "too long" in reasons[0].text
        found.add((num_envs, PPOConfig(**settings)))
    [(num_envs, config)] = found
    assert (num_envs, config.gamma, config.staggered_steps) == (FITTED.num_envs, 0.99, 0)


@pytest.mark.parametrize("is_whole", [False, True])
@given(
    st.sampled_from(["entities", "control", "board"]),
    st.integers(1, 4),
    st.integers(1, 10**6),
    st.floats(1, 10**4),
    st.sampled_from([None, 1, 32]),
)
def test_several_rollouts_fit_in_a_time_limit(
    is_whole: bool,
    name: str,
    num_agents: int,
    most_steps: int,
    length: float,
    given_envs: int | None,
) -> None:
    seen = GameFigures(length, False, 1, is_whole=is_whole)
    num_envs, settings, _ = PRESETS[name].defaults_for(
        num_agents, seen=seen, num_envs=given_envs, most_steps=most_steps
    )
    config = PPOConfig(**settings)
    assert config.total_steps == PPOConfig(**PRESETS[name].settings).total_steps
    fewest = num_envs if given_envs else 1
    assert num_envs * num_agents * config.num_steps <= max(most_steps / 3, fewest * num_agents)


def test_a_run_is_planned_for_the_steps_that_fit_in_its_time() -> None:
    assert GameFigures(1, False, 1, decisions_per_s=10).steps_within(None, 2) is None
    assert GameFigures(1, False, 1, decisions_per_s=10).steps_within(100, 2) == pytest.approx(
        2000, rel=0.02
    )
    assert GameFigures(1, False, 1).steps_within(100, 0) == 200_000


@given(
    st.integers(1, 4),
    st.integers(1, 10**7),
    st.floats(1, 10**4),
    st.booleans(),
    st.sampled_from([0.25, 0.5, 1.0]),
)
def test_rollouts_have_about_the_size_of_the_preset(
    num_agents: int, total_steps: int, length: float, is_cut: bool, share: float
) -> None:
    seen = GameFigures(length, is_cut, share)
    num_envs, settings, reasons = FITTED.defaults_for(num_agents, total_steps, seen)
    assert 8 <= num_envs <= 128
    assert settings["num_steps"] >= 8
    size = num_envs * num_agents * share * settings["num_steps"]
    wanted = min(max(512, min(total_steps // 60, 8192)), max(total_steps // 4, 1))
    assert size >= 0.9 * wanted
    assert size <= 1.1 * wanted or settings["num_steps"] == 8
    assert settings.get("gamma", 0.99) == 0.99 or is_cut
    assert len(reasons) == 1 + is_cut
    num_steps = total_steps / (num_envs * num_agents * share)
    assert settings["staggered_steps"] == int(min(length / share, num_steps / 4))
    PPOConfig(**settings)


@pytest.mark.parametrize("is_continuous", [False, True])
def test_many_entities_have_one_block(is_continuous: bool) -> None:
    for num_entities, n_layer in ((63.0, 2), (64.0, 1)):
        seen = GameFigures(100, False, 1, is_continuous, num_entities)
        chosen = FITTED.defaults_for(1, 60_000, seen)
        net = chosen.settings.get("net", RogueNetConfig())
        assert (net.n_layer, net.separate_value) == (n_layer, is_continuous)
        assert len(chosen.reasons) == 1 + is_continuous + (n_layer == 1)


def test_a_reason_holds_only_for_the_setting_that_it_explains() -> None:
    chosen = FITTED.defaults_for(1, 60_000, GameFigures(100, True, 1, True, 64.0))
    config = PPOConfig(**chosen.settings)
    assert len(chosen.reasons) == 4
    assert all(each.holds(config) for each in chosen.reasons)
    other = config.changed({"gamma": 0.5, "net": {"separate_value": False}})
    told = [each.setting for each in chosen.reasons if each.holds(other)]
    assert told == ["num_steps", "net.n_layer"]
    told = [each.setting for each in chosen.reasons if each.holds(PPOConfig(net=MLPConfig()))]
    assert told == ["gamma"]


def test_several_agents_have_a_larger_step_size_but_for_real_numbers() -> None:
    for num_agents, is_continuous, rate in ((1, False, 0.003), (2, False, 0.005), (2, True, 0.003)):
        seen = GameFigures(100, False, 1, is_continuous)
        assert FITTED.defaults_for(num_agents, 60_000, seen).settings["learning_rate"] == rate


def test_given_sizes_stay() -> None:
    seen = GameFigures(100, False, 1)
    chosen = FITTED.defaults_for(1, 60_000, seen, num_envs=16)
    assert (chosen.num_envs, chosen.settings["num_steps"]) == (16, 62)
    chosen = FITTED.defaults_for(1, 60_000, seen, num_steps=20)
    assert (chosen.num_envs, chosen.settings["num_steps"]) == (50, 20)


def test_other_presets_follow_the_kind_of_environment_alone() -> None:
    seen = GameFigures(100, True, 1)
    preset = PRESETS["control"]
    assert preset.defaults_for(1, 1000, seen) == preset.defaults_for(1, 1000)
    assert preset.defaults_for(1, 1000).num_envs == preset.num_envs
    assert not preset.defaults_for(1, 1000).reasons


@pytest.mark.parametrize(
    ("space", "is_binary"),
    [
        (spaces.Discrete(500), True),
        (spaces.Tuple((spaces.Discrete(3), spaces.MultiDiscrete([2, 2]))), True),
        (spaces.MultiBinary(4), True),
        (spaces.Box(0, 1, (4,)), False),
        (spaces.Dict({"room": spaces.Discrete(3), "speed": spaces.Box(-1, 1, (1,))}), False),
    ],
    ids=str,
)
def test_an_mlp_reads_flags_as_they_are(space: gymnasium.Space[object], is_binary: bool) -> None:
    """If normalized, the flag of a rare state would be as large as the clip limit."""
    obs_space = ObsConverter(space, "Env").obs_space
    assert obs_space.entities["Env"].is_binary == is_binary
    push = {"Push": GlobalCategoricalActionSpace(("L", "R"))}
    for own, actions in ((obs_space, push), spaces_from_json(spaces_to_json(obs_space, push))):
        for num_agents, name in ((1, "control"), (2, "entities")):
            preset = preset_for(own, actions, num_agents=num_agents)
            assert preset.name == name
            assert preset.settings["net"] == MLPConfig(norm_inputs=not is_binary)


def test_real_numbers_have_a_network_apart_for_the_value() -> None:
    thrust = Continuous("Thrust", low=[-1], high=[1])

    def play(agent: Agent, *, seed: int) -> None:
        for _ in range(3):
            if agent.act(Obs(0.0).actors([Dot(0)]), thrust) is None:
                return
        agent.game_over()

    seen = figures(Game(play, entities=(Dot,), actions=(thrust,)))
    assert seen.is_continuous
    chosen = FITTED.defaults_for(1, 1000, seen)
    assert chosen.settings["net"] == RogueNetConfig(separate_value=True)
    assert "a separate network for the value" in chosen.reasons[-1].text
    assert "net" not in FITTED.defaults_for(1, 1000, seen._replace(is_continuous=False)).settings


@pytest.mark.parametrize("is_measured", [True, False])
@pytest.mark.parametrize("remembers", [True, False])
def test_a_games_own_settings_stay(*, is_measured: bool, remembers: bool) -> None:
    own = {"learning_rate": 0.123, "num_steps": 17, "gamma": 0.5, "minibatch_size": 99}
    game = lasting(7, truncated=True)
    game.training = {"total_steps": 5000, "num_envs": 3, **own}
    seen = figures(game) if is_measured else None
    for asked, expected in ((None, 5000), (800, 800)):
        found = preset_of(game).defaults_for(2, asked, seen, remembers=remembers)
        assert found.settings | own | {"total_steps": expected} == found.settings
        assert found.num_envs == 3
    assert preset_of(game).defaults_for(2, num_envs=8).num_envs == 8
