"""Episodes that kaggle-environments saved become decisions; wrong files are named in one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from entity_env.agents.imitation import Dataset, DatasetRecorder
from entity_env.cli.app import main
from entity_env.errors import UsageError
from entity_env.interop.kaggle import ADAPTED
from entity_env.interop.kaggle.episodes import kaggle_dataset, play_moves, read_episode
from entity_env.interop.kaggle.game import kaggle_env


def saved(name: str, bots: list[str], seed: int, turns: int) -> dict[str, Any]:
    env = kaggle_env(name, turns).clone()
    env.configuration.seed, env.info = seed, {"TeamNames": [f"team {bot}" for bot in bots]}
    env.reset(len(bots))
    env.run(bots)
    found: dict[str, Any] = json.loads(json.dumps(env.toJSON()))
    return found


@pytest.fixture(scope="module")
def episode() -> str:
    return json.dumps(saved("planet_wars", ["nearest_enemy", "random"], 5, 30))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "bots"),
    [
        ("orbit_wars", ["starter", "random"]),
        ("orbit_wars", ["starter", "random", "random", "starter"]),
        ("planet_wars", ["random", "nearest_enemy"]),
    ],
)
@given(seed=st.integers(0, 2**31 - 1), turns=st.integers(20, 60))
@settings(max_examples=3, deadline=None)
def test_played_again_it_ends_with_the_same_rewards(
    tmp_path_factory: pytest.TempPathFactory, name: str, bots: list[str], seed: int, turns: int
) -> None:
    whole = saved(name, bots, seed, turns)
    file = tmp_path_factory.mktemp("saved") / "episode.json"
    file.write_text(json.dumps(whole))
    recorder = DatasetRecorder()
    play_moves(read_episode(file, ADAPTED), recorder)
    dataset = recorder.dataset()
    for player, reward in enumerate(whole["rewards"]):
        assert dataset.reward[dataset.agent_id == player].sum() == pytest.approx(reward, abs=1e-5)


def test_command_writes_a_dataset(tmp_path: Path, episode: str) -> None:
    (tmp_path / "a.json").write_text(episode)
    out = tmp_path / "a.npz"
    with pytest.raises(SystemExit, match="0"):
        main(["dataset", str(tmp_path / "a.json"), "--out", str(out), "--agent", "team random"])
    dataset = Dataset.load(out)
    assert dataset.seed is not None
    assert set(dataset.agent_id.tolist()) == {1}
    assert np.array_equal(dataset.seed, np.full(len(dataset), 5))


def _change(path: list[Any], value: object) -> Callable[[Any], None]:
    def change(whole: Any) -> None:  # noqa: ANN401 - JSON
        for key in path[:-1]:
            whole = whole[key]
        whole[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_change(["name"], "__import__"), "its game is '__import__', expected orbit_wars or"),
        (_change(["steps"], []), "0 steps, expected 2 to 10000"),
        (_change(["steps"], None), "steps is None, expected a list"),
        (_change(["steps", 3], {}), "steps\\[3\\] is {}, expected a list"),
        (_change(["steps", 3, 0], 7), "steps\\[3\\]\\[0\\] is 7, expected a dict"),
        (_change(["steps", 3, 0, "action"], "exit"), "action is 'exit', expected a list"),
        (_change(["steps", 3, 0, "action"], [[1, "x", 2]]), "expected lists of numbers"),
        (_change(["steps", 3, 0, "action"], [[1, 1e300, 2]]), "expected lists of numbers"),
        (_change(["steps", 3, 0, "action"], [[0, 1, 1]] * 2000), "2000 moves, at most 1000"),
        (_change(["info"], {"seed": "1"}), "info.seed is '1', expected an integer"),
        (_change(["info"], {"seed": 10**30}), "info.seed is 1000"),
        (_change(["info", "TeamNames"], 3), "info.TeamNames is 3, expected a list"),
        (_change(["configuration", "episodeSteps"], 1e9), "episodeSteps is 1000000000.0"),
        (_change(["configuration", "map"], "P 0 0 1 1 1"), "only random is supported"),
        (_change(["rewards"], 3), ""),
        (_change(["steps", -1, 0, "reward"], 0.5), "played again, it ends with the rewards"),
    ],
)
def test_wrong_files_are_named_in_one_line(
    tmp_path: Path, episode: str, change: Callable[[Any], None], words: str
) -> None:
    whole = json.loads(episode)
    change(whole)
    file = tmp_path / "wrong.json"
    file.write_text(json.dumps(whole))
    if not words:  # unused by the conversion
        kaggle_dataset([file], ADAPTED)
        return
    with pytest.raises(UsageError, match=words) as caught:
        kaggle_dataset([file], ADAPTED)
    assert "\n" not in str(caught.value)
    assert "wrong.json" in str(caught.value)


@pytest.mark.parametrize("text", ["", "[", "[" * 100_000, "3", "null", '{"name": 1e999}', "\0"])
def test_text_that_is_not_an_episode(tmp_path: Path, text: str) -> None:
    file = tmp_path / "wrong.json"
    file.write_text(text)
    with pytest.raises(UsageError, match="is not an episode of kaggle-environments"):
        read_episode(file, ADAPTED)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_any_value_anywhere_is_accepted_or_refused(
    tmp_path_factory: pytest.TempPathFactory, episode: str, data: st.DataObject
) -> None:
    whole = json.loads(episode)
    inside: Any = whole
    while isinstance(inside, dict | list) and inside:
        keys = list(inside) if isinstance(inside, dict) else list(range(min(len(inside), 4)))
        key = data.draw(st.sampled_from(keys))
        if data.draw(st.booleans()) or not isinstance(inside[key], dict | list):
            inside[key] = data.draw(JSON)
            break
        inside = inside[key]
    file = tmp_path_factory.mktemp("any") / "any.json"
    file.write_text(json.dumps(whole))
    with suppress(UsageError):
        play_moves(read_episode(file, ADAPTED), DatasetRecorder())
