"""Schedules, settings from files and texts, and environments that cannot be trained on."""

from __future__ import annotations

import copy
import json
import math
import pickle
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from hypothesis import given, strategies as st

from entity_env import EpisodeEnv
from entity_env.agents.ppo import PPOConfig, Schedule, train
from entity_env.agents.ppo.advice import unusual_settings
from entity_env.agents.rogue_net import RogueNetConfig
from entity_env.agents.rogue_net.config import CNNConfig, MLPConfig
from entity_env.agents.training.tracking.runs import read_run
from entity_env.agents.training.tracking.settings_file import parse_setting_text, read_settings
from entity_env.cluster.search_range import SearchRange, changed
from entity_env.errors import SchemaError, UsageError
from entity_env.games import snake
from entity_env.games.classic import CartPole
from entity_env.vec import Autoreset, BatchVecEnv, VecEnv
from tests.agents.ppo.small_envs import VecSigns
from tests.helpers.tiny_games import count

SMALL = PPOConfig(
    total_steps=512, net=RogueNetConfig(d_model=16, n_layer=1), num_steps=2, minibatch_size=64
)
fractions = st.floats(0, 1)
values = st.floats(-1e6, 1e6)
points = st.lists(st.tuples(fractions, values), min_size=1, max_size=6).map(
    lambda pairs: sorted(pairs, key=lambda pair: pair[0])
)
schedules = st.builds(Schedule, points, st.sampled_from(["linear", "cosine", "steps"]))


# ------------------------------------------------------------------ schedules


@given(schedules, fractions)
def test_a_schedule_is_what_its_definition_says(schedule: Schedule, fraction: float) -> None:
    before = [point for point in schedule.points if point[0] <= fraction]
    after = [point for point in schedule.points if point[0] > fraction]
    if not before or not after:
        expected = (after[0] if after else before[-1])[1]
    else:
        (start, low), (end, high) = before[-1], after[0]
        share = (fraction - start) / (end - start)
        rise = {"linear": share, "cosine": math.sin(math.pi / 2 * share) ** 2, "steps": 0.0}
        expected = low + (high - low) * rise[schedule.kind]
    assert schedule.at(fraction) == pytest.approx(expected, rel=1e-9, abs=1e-6)
    found = [value for _, value in schedule.points]
    assert min(found) <= schedule.at(fraction) <= max(found)


@given(st.dictionaries(fractions, values, min_size=1, max_size=6), fractions)
def test_a_linear_schedule_is_that_of_numpy(pairs: dict[float, float], fraction: float) -> None:
    places = sorted(pairs)
    expected = np.interp(fraction, places, [pairs[each] for each in places])
    found = Schedule([(each, pairs[each]) for each in places]).at(fraction)
    assert found == pytest.approx(float(expected), rel=1e-9, abs=1e-6)


@given(schedules)
def test_a_schedule_comes_back_from_json(schedule: Schedule) -> None:
    assert Schedule.from_json(json.loads(json.dumps(schedule.to_json()))) == schedule


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([], "points must be pairs"),
        ([[0, 1], [0.5]], "points must be pairs"),
        ([[0, "1"]], "points must be pairs"),
        ([[0, math.nan]], "points must be pairs"),
        ([[0, math.inf]], "points must be pairs"),
        ([[0, 10**400]], "points must be pairs"),
        ([[1.5, 1]], "points must be pairs"),
        ([[0.5, 1], [0, 1]], "in the order of their fractions"),
        ({"points": [[0, 1]], "kind": "square"}, "kind must be one of linear, cosine, steps"),
        ({"kind": "linear"}, "a table with `points` and `kind`"),
        ({"points": [[0, 1]], "shape": "linear"}, "a table with `points` and `kind`"),
        ([[0, 0.1], [1, -0.1]], "learning_rate must be a number, 0 or more, got 0:0.1 1:-0.1"),
    ],
)
def test_schedules_that_cannot_be_are_refused(given: object, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        PPOConfig.from_json({"learning_rate": given})


def test_settings_at_a_moment_are_numbers() -> None:
    config = PPOConfig.from_json(
        {
            "total_steps": 100,
            "learning_rate": [[0, 0.5], [1, 0]],
            "gamma": {"points": [[0, 0.9], [0.5, 0.99]], "kind": "steps"},
            "update_epochs": [[0, 1], [1, 4]],
            "target_kl": [[0, 0.1], [1, 0.2]],
        }
    )
    assert isinstance(config.gamma, Schedule)
    now = config.at(50)
    assert (now.learning_rate, now.gamma, now.update_epochs) == (0.25, 0.99, 2)
    assert now.target_kl == pytest.approx(0.15)
    assert now.ent_coef == 0.01  # annealed by `anneal_entropy`
    assert now.at(50) == now
    assert PPOConfig.from_json(json.loads(json.dumps(config.to_json()))) == config
    assert "learning_rate 0:0.5 1:0" in config.summary()


def test_a_schedule_jumps_at_the_step_of_its_fraction() -> None:
    for step in range(1, 100):
        jump = Schedule([(0, 1.0), (step / 100, 1.0), (step / 100, 0.0)])
        config = PPOConfig(total_steps=100, gamma=jump)
        assert [config.at(step + i).gamma for i in (-1, 0)] == [1.0, 0.0]


@given(st.integers(0, 999), st.integers(1, 1000))
def test_the_shorthands_are_schedules(step: int, warmup: int) -> None:
    """`anneal_...` and `warmup_steps` equal schedules with two and three points."""
    total = 1000
    config = PPOConfig(total_steps=total, learning_rate=0.5, ent_coef=0.5)
    falling = Schedule([(0, 0.5), (1, 0)])
    written = replace(config, learning_rate=falling, ent_coef=falling)
    for name in ("learning_rate", "ent_coef"):
        assert getattr(written.at(step), name) == pytest.approx(getattr(config.at(step), name))
    rising = Schedule([(0, 0), (warmup / total, 0.5), (1, 0)])
    short = replace(config, warmup_steps=warmup)
    expected = replace(config, learning_rate=rising).at(step).learning_rate
    assert short.at(step).learning_rate == pytest.approx(expected, abs=1e-12)


@given(st.integers(0, 999), st.integers(0, 1000), st.integers(0, 1000))
def test_schedules_follow_the_time_where_it_is_ahead(step: int, at: int, warmup: int) -> None:
    """Schedules act as if the run were at that step; the warm-up follows only the steps."""
    config = PPOConfig(total_steps=1000, learning_rate=0.5, gamma=Schedule([(0, 0.5), (1, 1)]))
    found, expected = config.at(step, time_fraction=at / 1000), config.at(max(step, at))
    for name in ("learning_rate", "gamma", "ent_coef"):
        assert getattr(found, name) == pytest.approx(getattr(expected, name), abs=1e-12)
    rising = replace(config, warmup_steps=warmup).at(step, time_fraction=at / 1000)
    assert rising.learning_rate <= 0.5 * min(1, step / warmup if warmup else 1)
    if not at:
        assert found == config.at(step)


def test_a_schedule_leaves_no_room_for_a_warm_up() -> None:
    with pytest.raises(UsageError, match="warmup_steps=5 needs a number as learning_rate"):
        PPOConfig(warmup_steps=5, learning_rate=Schedule([(0, 1)]))


@pytest.mark.slow
def test_a_run_follows_its_schedules(tmp_path: Path) -> None:
    config = replace(
        SMALL,
        learning_rate=Schedule([(0, 0.004), (1, 0)]),
        weight_decay=Schedule([(0, 0.01), (0.5, 0.02)], "steps"),
        clip_coef=Schedule([(0, 0.3), (1, 0.1)]),
    )
    whole = train(VecSigns(), config, out=tmp_path / "whole")
    run = read_run(tmp_path / "whole")
    steps = np.array([0, *run.curves["charts/clip_coef"].steps[:-1]])
    np.testing.assert_allclose(run.curves["charts/clip_coef"].values, 0.3 - 0.2 * steps / 512)
    np.testing.assert_allclose(run.curves["charts/learning_rate"].values, 0.004 * (1 - steps / 512))
    assert set(run.curves["charts/weight_decay"].values.tolist()) == {0.01, 0.02}
    assert run.settings()["clip_coef"] == "0:0.3 1:0.1"
    assert run.settings()["weight_decay"] == "steps 0:0.01 0.5:0.02"
    # The same network as with the older shorthand.
    short = replace(config, learning_rate=0.004)
    other = train(VecSigns(), short)
    for mine, its in zip(whole.net.parameters(), other.net.parameters(), strict=True):
        np.testing.assert_allclose(mine.detach(), its.detach(), rtol=1e-4, atol=1e-6)


def test_a_schedule_with_an_unusual_value_is_told() -> None:
    vec = VecSigns()
    found = [
        unusual_settings(config, vec.obs_space(), vec.action_space(), vec.num_rows)
        for config in (
            PPOConfig(learning_rate=Schedule([(0, 0.003), (1, 0)])),
            PPOConfig(learning_rate=Schedule([(0, 0.003), (0.5, 3)])),
        )
    ]
    told = [[each for each in sentences if "learning_rate" in each] for sentences in found]
    assert told == [[], ["learning_rate=3: typical values are 1e-05 to 0.01"]]


# ------------------------------------------------------------------ files and texts

TOML = """
total_steps = 1e3
target_kl = "none"
learning_rate = [[0, 0.003], [0.1, 0.001], [1, 0]]
gamma = { points = [[0, 0.9], [1, 0.99]], kind = "cosine" }
[net]
kind = "cnn"
hidden = [32]
[run]
num_envs = 8
[game]
board_size = 6
"""


def test_settings_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text(TOML)
    config = PPOConfig.from_file(path, PPOConfig(ent_coef=0.5, target_kl=0.1))
    expected = PPOConfig(
        total_steps=1000,
        target_kl=None,
        learning_rate=Schedule([(0, 0.003), (0.1, 0.001), (1, 0)]),
        gamma=Schedule([(0, 0.9), (1, 0.99)], "cosine"),
        net=CNNConfig(hidden=(32,)),
        ent_coef=0.5,
    )
    assert config == expected
    assert read_settings(path)[1:] == ({"num_envs": 8}, {"board_size": 6})


@given(
    st.sampled_from([RogueNetConfig(), MLPConfig((8,)), CNNConfig()]),
    st.sampled_from(
        [
            RogueNetConfig(d_model=8),
            MLPConfig((8, 8)),
            MLPConfig((8, 8), norm_inputs=False),
            CNNConfig(hidden=(4,)),
        ]
    ),
)
def test_the_file_of_a_run_gives_its_settings(before: MLPConfig, after: MLPConfig) -> None:
    config = replace(SMALL, net=after, gamma=Schedule([(0, 0.5), (1, 1)]))
    data = {"format": "entity_env.run", "config": json.loads(json.dumps(config.to_json()))}
    with pytest.MonkeyPatch.context() as patch:
        text = json.dumps(data).encode()
        path = "entity_env.agents.training.tracking.settings_file.read_file"
        patch.setattr(path, lambda *_: text)
        assert PPOConfig.from_file("run.json", PPOConfig(net=before)) == config


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("gama = 0.5", r"run.toml: there is no setting 'gama'; did you mean gamma\?"),
        ("lr = 0.5", r"run.toml: there is no setting 'lr'; did you mean learning_rate\?"),
        ("memory = 32", r"run.toml: there is no setting 'memory'; did you mean net.memory\?"),
        ("zzz = 1", r"no setting 'zzz'; the settings are anneal_entropy, anneal_learning_rate, "),
        ("num_envs = 1", r"no setting 'num_envs'; the environments have their number: --num-envs"),
        ('gamma = "high"', "run.toml: gamma must be a number from 0 to 1, got 'high'"),
        ("gamma = true", "run.toml: gamma must be a number from 0 to 1, got True"),
        ("norm_adv = 1", "run.toml: norm_adv must be true or false, got 1"),
        ("total_steps = 1.5", "run.toml: total_steps must be an integer"),
        ("gamma = [[0, 2]]", "run.toml: gamma must be a number from 0 to 1, got 0:2"),
        ("net = 3", "run.toml: net must be a table of settings, got 3"),
        (
            "[net]\nd_mdoel = 3",
            r"there is no setting 'net.d_mdoel'; did you mean net.d_m",
        ),
        ("[net]\nd_model = 'a'", "run.toml: net: d_model must be an integer"),
        ("[net]\nkind = 'rnn'", "net.kind must be one of rogue_net, mlp, cnn, got 'rnn'"),
        ("[net]\nkind = 'mlp'\nd_model = 3", "there is no setting 'net.d_model'"),
        ("[net]\nhidden = [3]\nd_model = 8", "no kind of network has all of d_model, hidden"),
        ("game = 'snake'", r"game must be a table, \[game\], got 'snake'; name the game in the"),
        ("gamma = \nseed = 1", "cannot read .*run.toml: .*line 1"),
        ("\xff", "cannot read .*run.toml"),
    ],
)
def test_mistakes_in_a_file_name_it(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "run.toml"
    path.write_text(text, "latin-1")
    with pytest.raises(UsageError, match=words) as caught:
        PPOConfig.from_file(path)
    assert "\n" not in str(caught.value)


def test_files_that_are_none_are_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read .*nothing.toml: No such file"):
        PPOConfig.from_file(tmp_path / "nothing.toml")
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(UsageError, match=r"other.json: expected the run.json of a run, or a TOML"):
        PPOConfig.from_file(tmp_path / "other.json")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("clip_coef=0.1", {"clip_coef": 0.1}),
        ("net.d_model = 32", {"net": {"d_model": 32}}),
        ("target_kl=none", {"target_kl": "none"}),
        ("device=cuda:0", {"device": "cuda:0"}),
        ("net.hidden=[8, 8]", {"net": {"hidden": [8, 8]}}),
        ("gamma=[[0, 0.5], [1, 1]]", {"gamma": [[0, 0.5], [1, 1]]}),
    ],
)
def test_settings_are_typed_as_toml_writes_them(text: str, expected: object) -> None:
    assert parse_setting_text(text) == expected


@pytest.mark.parametrize("text", ["gamma", "=3", "a b=3", "a=1\nb=2", "a.=1"])
def test_texts_that_are_no_settings_are_refused(text: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_setting_text(text)
    assert str(error.value) == f"expected a setting NAME=VALUE, got {text!r}"


@pytest.mark.parametrize("text", ["a=", "a=[1", "a=" + "9" * 5000, "a=" + "[" * 5000])
def test_values_that_are_not_toml_are_refused(text: str) -> None:
    wanted = r"^a must be a word or a TOML value \(a number, a list\), got '[9\[]*"
    with pytest.raises(UsageError, match=wanted) as error:
        parse_setting_text(text)
    assert len(str(error.value)) < 200


def test_a_network_keeps_its_kind_where_it_can() -> None:
    mlp = PPOConfig(net=MLPConfig((8,)))
    assert mlp.changed({"net": {"hidden": [4, 4]}}).net == MLPConfig((4, 4))
    assert mlp.changed({"net": {"norm_inputs": False}}).net == MLPConfig((8,), norm_inputs=False)
    assert mlp.changed({"net": {"d_model": 8}}).net == RogueNetConfig(d_model=8)
    cnn = PPOConfig(net=CNNConfig())
    assert cnn.changed({"net": {"hidden": [4]}}).net == CNNConfig(hidden=(4,))
    assert cnn.changed({"net": {"kind": "mlp"}}).net == MLPConfig()
    relpos = {"extent": [2, 2], "position_features": ["x", "y"]}
    text = "net.relpos_encoding = { extent = [2, 2], position_features = ['x', 'y'] }"
    assert PPOConfig().changed(tomllib.loads(text)) == PPOConfig(
        net=RogueNetConfig(relpos_encoding=relpos)  # type: ignore[arg-type]  # as its JSON
    )


def test_fine_tuning_takes_smaller_steps_explores_less_and_stays_close_at_first() -> None:
    tuned = PPOConfig(learning_rate=0.01, ent_coef=0.1, gamma=0.9).for_fine_tuning()
    assert (tuned.learning_rate, tuned.ent_coef, tuned.gamma) == (0.003, 0.01, 0.9)
    assert PPOConfig(ent_coef=0.001).for_fine_tuning().ent_coef == 0.001
    assert isinstance(tuned.stay_close, Schedule)
    assert [tuned.stay_close.at(x) for x in (0, 0.25, 0.5, 1)] == pytest.approx([0.2, 0.1, 0, 0])
    falling = Schedule([(0, 0.1), (1, 0)])
    given = PPOConfig(learning_rate=falling, ent_coef=falling, stay_close=0.5)
    assert given.for_fine_tuning() == given


def test_a_sweep_varies_what_has_a_schedule() -> None:
    falling = Schedule([(0, 0.01), (1, 0)])
    config = replace(
        SMALL, learning_rate=falling, ent_coef=falling, update_epochs=Schedule([(0, 4), (1, 1)])
    )
    found = SearchRange.parse("learning_rate=1e-4:1e-2:log", config)
    trial = changed(config, {"learning_rate": found.at(0.5), "update_epochs": 2})
    assert trial.learning_rate == pytest.approx(1e-3)
    assert (trial.ent_coef, trial.update_epochs) == (falling, 2)


# ------------------------------------------------------------------ wrong environments

MAKERS = (
    r" create one with VecEnv\(game, 64\) .*; for a batch environment, BatchVecEnv; "
    r"for Gymnasium, GymnasiumVecEnv\(gymnasium.*; for PettingZoo, .*from_pettingzoo"
)
WRONG: list[tuple[Callable[[], Any], str]] = [
    (lambda: gymnasium.make("CartPole-v1"), "got <TimeLimit"),
    (lambda: snake, r"got Game\(snake\);"),
    (lambda: CartPole(2), "got <.*CartPole"),
    (lambda: VecEnv, "got <class 'entity_env.vec.vec_env.VecEnv'>;"),
    (lambda: EpisodeEnv.of(snake), "got <entity_env.episodes"),
    (lambda: None, "got None;"),
]


@pytest.mark.parametrize(("make", "told"), WRONG)
def test_what_is_no_vector_environment(make: Callable[[], Any], told: str) -> None:
    wrong = make()
    with pytest.raises(SchemaError, match=rf"train needs a VecEnv: .*{told}.*{MAKERS}"):
        train(wrong, PPOConfig(total_steps=64))
    with pytest.raises(SchemaError, match=rf"PPOConfig.for_env needs a VecEnv: .*{told}"):
        PPOConfig.for_env(wrong)


@pytest.mark.parametrize("autoreset", ["disabled", "next_step"])
def test_another_autoreset(autoreset: Autoreset) -> None:
    for vec in (
        VecEnv(count, 2, autoreset=autoreset),
        BatchVecEnv(CartPole, 2, autoreset=autoreset),
    ):
        with (
            vec,
            pytest.raises(
                UsageError, match=rf'a VecEnv with autoreset="same_step": this .*{autoreset}'
            ),
        ):
            train(vec, PPOConfig(total_steps=64))


@pytest.mark.parametrize("make", [lambda: gymnasium.make("CartPole-v1"), lambda: CartPole(2)])
def test_a_source_of_another_kind(make: Callable[[], Any]) -> None:
    with pytest.raises(SchemaError, match=f"a VecEnv needs a Game.*{MAKERS}"):
        VecEnv(make(), 2)
    with pytest.raises(SchemaError, match=f"a VecEnv needs a Game.* returned a .*{MAKERS}"):
        VecEnv(make, 2)
    with pytest.raises(SchemaError, match=f"an EpisodeEnv needs a Game.*{MAKERS}"):
        EpisodeEnv.of(make())


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("lr", "learning_rate"),
        ("memory", "net.memory"),
        ("memroy", "net.memory"),
        ("epochs", "update_epochs"),
        ("lambda", "gae_lambda"),
        ("batch_size", "minibatch_size"),
    ],
)
def test_a_wrong_name_in_python_gets_the_hint_of_the_command_line(name: str, meant: str) -> None:
    words = rf"there is no setting '{name}'; did you mean {meant}\?"
    settings: dict[str, Any] = {name: 1}
    with pytest.raises(UsageError, match=words):
        PPOConfig(**settings)
    with pytest.raises(UsageError, match=words):
        PPOConfig().changed(settings)
    config = PPOConfig(gamma=0.5)
    assert pickle.loads(pickle.dumps(config)) == copy.deepcopy(config) == replace(config)
