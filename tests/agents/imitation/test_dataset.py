import hashlib
import json
import sys
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, make_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from numpy.typing import NDArray

from entity_env import (
    Entity,
    Game,
    GlobalCategoricalActionSpace,
    Obs,
    ObsSpace,
    RaggedArray,
    SchemaError,
    UsageError,
)
from entity_env.agents import Agent, RandomAgent, load_agent
from entity_env.agents.agent_identity import agent_identity
from entity_env.agents.imitation import Dataset, DatasetRecorder, dataset_file
from entity_env.agents.rogue_net import RogueNet, RogueNetConfig, save_checkpoint
from entity_env.authoring.identity import identity_of
from entity_env.authoring.local_run import Turn
from entity_env.core.action_request import questions
from entity_env.core.spaces import Spaces
from entity_env.errors import MissingExtraError, ProtocolError
from entity_env.games import cherry_pick, multi_snake, rock_paper_scissors, snake
from tests.agents.imitation.decisions import (
    Dot,
    Follower,
    Go,
    assert_same_dataset,
    dots,
    dots_dataset,
    episodes,
    recorded,
)
from tests.helpers.continuous_games import bodies_game

Trajectories = list[tuple[int, list[float], str]]
EPISODES = st.lists(
    st.tuples(
        st.integers(0, 1),
        st.lists(st.integers(-8, 8).map(lambda n: n / 4), min_size=1, max_size=5),
        st.sampled_from(["terminated", "truncated"]),
    ),
    min_size=1,
    max_size=5,
)
"""Trajectories: agent, rewards with exact sums, kind of end."""


def with_trajectories(trajectories: Trajectories, seed: int) -> Dataset:
    """A dataset of these trajectories, with rows in random order."""
    rows = [
        (episode, agent_id, step, reward, step == len(rewards) - 1 and end)
        for episode, (agent_id, rewards, end) in enumerate(trajectories)
        for step, reward in enumerate(rewards)
    ]
    some = dots_dataset(10).select(np.zeros(len(rows), dtype=np.int64))
    dataset = replace(
        some,
        episode=np.array([row[0] for row in rows]),
        agent_id=np.array([row[1] for row in rows]),
        step=np.array([row[2] for row in rows]),
        reward=np.array([row[3] for row in rows], dtype=np.float32),
        terminated=np.array([row[4] == "terminated" for row in rows]),
        truncated=np.array([row[4] == "truncated" for row in rows]),
    )
    return dataset.select(np.random.default_rng(seed).permutation(len(rows)))


# ------------------------------------------------------------------ recording


@given(episodes())
def test_a_recorder_keeps_every_decision(found: tuple[Spaces, list[list[Turn]]]) -> None:
    spaces, all_turns = found
    recorder = recorded(spaces, all_turns)
    rows = [
        (episode, turn, asked)
        for episode, turns in enumerate(all_turns)
        for turn in turns
        if turn.episode is None
        and (asked := [q for q in questions(turn.observation, *spaces) if len(q.actors)])
    ]
    if not rows:
        with pytest.raises(UsageError, match="no decisions"):
            recorder.dataset()
        return
    dataset = recorder.dataset()
    assert len(dataset) == len(rows)
    for row, (_, turn, asked) in enumerate(rows):
        assert (dataset.agent_id[row], dataset.step[row]) == (turn.agent_id, turn.step)
        for name in spaces[0].entities:
            shown = np.asarray(turn.observation.features.get(name, ()), dtype=np.float32)
            assert dataset.obs.features[name][row].ravel().tolist() == shown.ravel().tolist()
        chosen = {q.name: q.chosen(turn.actions[q.name]) for q in asked}
        for name, values in dataset.actions.items():
            expected = np.asarray(chosen.get(name, []), dtype=values.values.dtype)
            assert values[row].ravel().tolist() == expected.ravel().tolist()
            mask = dataset.obs.action_masks[name]
            if name not in chosen:
                assert not len(mask.actors[row])
            elif not isinstance(spaces[1][name], GlobalCategoricalActionSpace):
                actors = turn.observation.actor_indices(name, spaces[0])
                assert mask.actors[row].tolist() == actors.tolist()
    numbers = [episode for episode, *_ in rows]
    assert len(set(zip(dataset.episode, numbers, strict=True))) == len(set(numbers))


@pytest.mark.parametrize("game", [snake, multi_snake, cherry_pick, rock_paper_scissors])
def test_rewards_add_up_to_those_of_the_episodes(game: Game) -> None:
    recorder = DatasetRecorder()
    agents = [RandomAgent(i) for i in range(game.num_agents)]
    played = game.run(*agents, seed=3, episodes=4, watch=recorder)
    dataset = recorder.dataset()
    for episode in played:
        rows = (dataset.episode == episode.number) & (dataset.agent_id == episode.agent_id)
        assert dataset.reward[rows].sum() == pytest.approx(episode.reward, abs=1e-5)
        assert dataset.step[rows].tolist() == list(range(episode.length))
        assert dataset.terminated[rows].tolist()[-1:] == [episode.terminated][: episode.length]
        assert dataset.truncated[rows].sum() == (episode.truncated and episode.length > 0)


def test_several_runs_add_to_each_other() -> None:
    recorder = DatasetRecorder()
    for length in (2, 3):
        dots.run(RandomAgent(1), episodes=2, watch=recorder, length=length)
    assert recorder.dataset().episode.tolist() == [0, 0, 1, 1, 2, 2, 2, 3, 3, 3]


def test_an_episode_that_was_left_is_truncated() -> None:
    recorder = DatasetRecorder()
    dots.run(RandomAgent(1), episodes=1, watch=recorder)

    def leave(turn: Turn) -> None:
        if turn.step == 2:
            raise KeyboardInterrupt

    recorder = DatasetRecorder(watch=leave)
    with pytest.raises(KeyboardInterrupt):
        dots.run(RandomAgent(1), watch=recorder)
    dots.run(RandomAgent(1), watch=DatasetRecorder())
    dataset = recorder.dataset()
    assert dataset.truncated.tolist() == [False, False, True]
    assert not dataset.terminated.any()


def test_decisions_without_actors_are_left_out() -> None:
    recorder = DatasetRecorder()
    [episode] = bodies_game.run(RandomAgent(1), seed=5, watch=recorder, length=20)
    dataset = recorder.dataset()
    assert 0 < len(dataset) < 20
    assert dataset.reward.sum() == pytest.approx(episode.reward, rel=1e-5)
    assert dataset.actions["push"].values.dtype == np.float32


def test_a_recorder_refuses_another_game_and_turns_without_a_run() -> None:
    recorder = DatasetRecorder()
    with pytest.raises(ProtocolError, match=r"game\.run\(agent, watch"):
        recorder(Turn(0, 0, 0.0, None))  # type: ignore[arg-type]  # rejected before it is read
    dots.run(RandomAgent(1), watch=recorder)
    with pytest.raises(UsageError, match="snake has different spaces"):
        snake.run(RandomAgent(1), watch=recorder)


# ------------------------------------------------------------------ computing


@given(EPISODES, st.sampled_from([0.0, 0.5, 0.9, 1.0]), st.integers(0, 9))
def test_returns(trajectories: Trajectories, gamma: float, seed: int) -> None:
    dataset = with_trajectories(trajectories, seed)
    returns, shares = dataset.returns(gamma), dataset.known_share(gamma)
    for row in range(len(dataset)):
        _, rewards, end = trajectories[dataset.episode[row]]
        later = rewards[dataset.step[row] :]
        expected = sum(gamma**i * reward for i, reward in enumerate(later))
        assert returns[row] == pytest.approx(expected, abs=1e-4)
        share = 1 if end == "terminated" else 1 - gamma ** len(later)
        assert shares[row] == pytest.approx(share, abs=1e-6)


@given(EPISODES, st.integers(0, 9))
def test_filter_keeps_those_who_did_well(trajectories: Trajectories, seed: int) -> None:
    dataset = with_trajectories(trajectories, seed)
    # In pairs: episodes of two agents.
    dataset = replace(dataset, episode=dataset.episode // 2, agent_id=dataset.episode % 2)
    totals = [float(np.array(rewards, np.float32).sum()) for _, rewards, _ in trajectories]
    best = [max(totals[i // 2 * 2 : i // 2 * 2 + 2]) for i in range(len(totals))]
    number_of = dataset.episode * 2 + dataset.agent_id
    limit = totals[0]
    expected = {
        "winners": {i for i, total in enumerate(totals) if total >= best[i] - 1e-4},
        "min_reward": {i for i, total in enumerate(totals) if total >= limit - 1e-4},
    }
    if len(totals) > 1:
        kept = dataset.filter(winners=True)
        assert set(kept.episode * 2 + kept.agent_id) == expected["winners"]
    kept = dataset.filter(min_reward=limit)
    assert set(kept.episode * 2 + kept.agent_id) == expected["min_reward"]
    rows = np.isin(number_of, [0])
    assert len(dataset.filter(rows)) == rows.sum()


def test_filter_says_what_is_wrong() -> None:
    dataset = dots_dataset(3)
    with pytest.raises(UsageError, match="one agent, which always wins"):
        dataset.filter(winners=True)
    with pytest.raises(UsageError, match=r"none of 18 decisions are left: .* 6 to 6"):
        dataset.filter(min_reward=7)
    with pytest.raises(UsageError, match="gamma"):
        dataset.returns(1.5)


def test_concat_keeps_episodes_apart() -> None:
    first, second = dots_dataset(2), dots_dataset(3, seed=2)
    both = Dataset.concat([first.filter(first.episode == 1), second])
    assert both.num_episodes == 4
    assert_same_dataset(replace(both.select(np.arange(6, 24)), episode=second.episode), second)
    recorder = DatasetRecorder()
    snake.run(RandomAgent(1), watch=recorder)
    with pytest.raises(SchemaError, match="datasets have different spaces"):
        Dataset.concat([first, recorder.dataset()])


# ------------------------------------------------------------------ where decisions come from


def test_every_decision_has_the_seed_of_its_episode() -> None:
    recorder = DatasetRecorder()
    agents = RandomAgent(1), RandomAgent(2)
    played = rock_paper_scissors.run(*agents, seed=5, episodes=3, watch=recorder)
    dataset = recorder.dataset()
    assert dataset.seed is not None
    assert dataset.seed.dtype == np.uint64
    found = set(zip(dataset.episode.tolist(), dataset.seed.tolist(), strict=True))
    assert found == {(episode.number, episode.seed) for episode in played}
    dots.play_episode(Follower(), seed=2**63 + 1, watch=(recorder := DatasetRecorder()))
    alone = recorder.dataset().seed
    assert alone is not None
    assert set(alone.tolist()) == {2**63 + 1}


def test_a_seed_that_no_column_holds_leaves_it_out() -> None:
    dots.play_episode(Follower(), seed=2**64, watch=(recorder := DatasetRecorder()))
    assert recorder.dataset().seed is None


def test_a_recorder_says_what_it_recorded() -> None:
    game = dots.with_settings(length=3)
    recorder = DatasetRecorder(agents=["me"])
    for seed in (4, 4, 5):
        game.run(Follower(), seed=seed, watch=recorder)
    first, second = recorder.dataset().recordings
    assert first == {
        "game": "dots",
        "settings": {"length": 3},
        "identity": identity_of(game),
        "agents": [{"name": "me"}],
        "seed": 4,
    }
    assert second == {**first, "seed": 5}


def test_agents_are_identified(tmp_path: Path) -> None:
    bot, checkpoint = tmp_path / "bot.py", tmp_path / "checkpoint"
    bot.write_text("class Bot:\n    def choose(self, obs, action): return None\n")
    assert agent_identity(RandomAgent(1)) == {"name": "RandomAgent"}
    assert agent_identity(Follower(), f"{bot}:Bot") == {
        "name": f"{bot}:Bot",
        "sha256": hashlib.sha256(bot.read_bytes()).hexdigest(),
    }
    net = RogueNet(dots.obs_space(), dots.action_space(), RogueNetConfig(d_model=8, n_layer=1))
    save_checkpoint(checkpoint, net)
    parameters = (checkpoint / "model.safetensors").read_bytes()
    assert agent_identity(load_agent(checkpoint)) == {
        "name": str(checkpoint),
        "sha256": hashlib.sha256(parameters).hexdigest(),
    }
    agent = load_agent(checkpoint)
    (checkpoint / "model.safetensors").unlink()
    assert agent_identity(agent) == {"name": str(checkpoint)}


def test_of_datasets_together_a_seed_is_known_if_it_is_in_all() -> None:
    first, second = dots_dataset(1), dots_dataset(2, seed=2)
    both = Dataset.concat([first, second, first])
    assert both.seed is not None
    assert len(both.recordings) == 2
    assert Dataset.concat([first, replace(second, seed=None)]).seed is None
    assert both.select([0, 1]).recordings == both.recordings


def test_a_file_of_an_earlier_release_is_read(tmp_path: Path) -> None:
    dataset = dots_dataset(2)
    dataset.save(tmp_path / "new.npz")
    with np.load(tmp_path / "new.npz") as file:
        arrays = dict(file)
    header = json.loads(str(arrays["header"]))
    for key in ("recordings", "entity_env"):
        del header[key]
    del arrays["seed"]
    np.savez(tmp_path / "old.npz", **{**arrays, "header": np.array(json.dumps(header))})
    old = Dataset.load(tmp_path / "old.npz")
    assert_same_dataset(old, replace(dataset, seed=None))
    assert list(old.recordings) == []
    header["recordings"] = [1]
    np.savez(tmp_path / "odd.npz", **{**arrays, "header": np.array(json.dumps(header))})
    with pytest.raises(UsageError, match=r"odd.npz is a damaged dataset: its recordings must be"):
        Dataset.load(tmp_path / "odd.npz")


# ------------------------------------------------------------------ files


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
@given(found=episodes())
def test_files_hold_the_same(
    suffix: str, tmp_path_factory: pytest.TempPathFactory, found: tuple[Spaces, list[list[Turn]]]
) -> None:
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    recorder = recorded(*found)
    if not recorder.num_decisions:
        return
    path = tmp_path_factory.mktemp("files") / f"x{suffix}"
    dataset = recorder.dataset()
    dataset.save(path)
    assert_same_dataset(Dataset.load(path), dataset)
    dots_dataset(1).save(path)
    known = Dataset.load(path)
    assert_same_dataset(known, dots_dataset(1))
    assert list(known.recordings) == list(dots_dataset(1).recordings)
    part = dataset.select([0, -1])
    part.save(path)  # replaces it
    assert_same_dataset(Dataset.load(path), part)


ODD_NAMES = st.text(st.sampled_from("aé/\\.:\0\n\x1b\ud800\u202e "), max_size=4) | st.sampled_from(
    ["a.values", "..", "../../a", "a" * 70_000, "é" * 33_000]
)


@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
@given(
    names=st.tuples(ODD_NAMES, ODD_NAMES, ODD_NAMES, ODD_NAMES),
    rewards=st.lists(st.floats(width=32), min_size=6, max_size=6),
    flags=st.tuples(st.booleans(), st.booleans()),
)
def test_what_cannot_be_read_again_is_not_written(
    suffix: str,
    tmp_path_factory: pytest.TempPathFactory,
    names: tuple[str, str, str, str],
    rewards: list[float],
    flags: tuple[bool, bool],
) -> None:
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    entity, feature, action, label = names
    some = dots_dataset(1)
    try:
        obs_space = ObsSpace((), {entity: Entity([feature])})
        space = GlobalCategoricalActionSpace([label, f"{label}1", f"{label}2"])
    except SchemaError:
        return
    other = replace(
        some,
        obs_space=obs_space,
        action_space={action: space},
        obs=replace(
            some.obs,
            features={entity: some.obs.features["Dot"]}
            | {key: each for key, each in some.obs.features.items() if key != "Dot"},
            action_masks={action: some.obs.action_masks["Go"]},
        ),
        actions={action: some.actions["Go"]},
        reward=np.array(rewards, dtype=np.float32),
        terminated=np.full(6, flags[0]),
        truncated=np.full(6, flags[1]),
    )
    path = tmp_path_factory.mktemp("files") / f"x{suffix}"
    some.save(path)
    kept = other
    try:
        other.save(path)
    except UsageError:
        kept = some
    assert_same_dataset(Dataset.load(path), kept)


def test_a_column_that_is_not_of_the_spaces_is_refused(tmp_path: Path) -> None:
    some = dots_dataset(1)
    assert some.final is not None
    features = {**some.final.features, "Other": some.final.features["Dot"]}
    odd = replace(some, final=replace(some.final, features=features))
    with pytest.raises(
        UsageError, match=r"cannot write .*'final/features/Other' does not belong to the spaces"
    ):
        odd.save(tmp_path / "x.npz")


@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
def test_a_file_too_large_to_be_read_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    monkeypatch.setattr(dataset_file, "_MAX_FILE_BYTES", 1000)
    with pytest.raises(UsageError, match="bytes are too many to be read again"):
        dots_dataset(1).save(tmp_path / f"x{suffix}")
    assert not [*tmp_path.iterdir()]


@pytest.mark.slow
def test_a_game_of_many_types_with_short_names_is_kept(tmp_path: Path) -> None:
    types = [make_dataclass(f"e{i}", [("x", float)]) for i in range(1200)]

    def play_many(agent: Agent, *, seed: int) -> None:
        agent.act(Obs().entities([types[7](1.0)]), Go)
        agent.game_over(Obs(1.0))

    recorder = DatasetRecorder()
    game = Game(play_many, entities=tuple(types), actions=(Go,))
    game.run(RandomAgent(seed=1), watch=recorder)
    dataset = recorder.dataset()
    dataset.save(tmp_path / "x.npz")
    assert_same_dataset(Dataset.load(tmp_path / "x.npz"), dataset)


@pytest.mark.parametrize("score", [3.5e38, 1e308, -1e308])
def test_rewards_beyond_float32_are_refused(score: float) -> None:
    def play_far(agent: Agent, *, seed: int) -> None:
        agent.act(Obs(-score / 2).entities([Dot(0)]), Go)
        agent.game_over(Obs(score / 2))

    recorder = DatasetRecorder()
    Game(play_far, entities=(Dot,), actions=(Go,)).run(RandomAgent(seed=1), watch=recorder)
    with pytest.raises(UsageError, match="reward: expected finite numbers that fit float32, got"):
        recorder.dataset()


def test_returns_beyond_float32_are_refused() -> None:
    dataset = dots_dataset(1)
    rewards = np.full(len(dataset), 3e38, dtype=np.float32)
    with pytest.raises(UsageError, match="returns that do not fit float32"):
        replace(dataset, reward=rewards).returns()


def test_numpy_reads_an_npz(tmp_path: Path) -> None:
    dataset = dots_dataset(2)
    dataset.save(tmp_path / "x.npz")
    with np.load(tmp_path / "x.npz") as arrays:
        assert json.loads(str(arrays["header"]))["format"] == "entity_env.dataset"
        assert arrays["features/Dot.lengths"].tolist() == [1] * 12
        assert np.array_equal(arrays["chosen/Go.values"], dataset.actions["Go"].values)


def test_others_read_a_parquet(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    dataset = dots_dataset(2)
    dataset.save(tmp_path / "x.parquet")
    rows = parquet.read_table(tmp_path / "x.parquet").to_pylist()
    assert [row["features/Dot"] for row in rows] == [
        each.tolist() for each in dataset.obs.features["Dot"]
    ]
    assert [row["reward"] for row in rows] == dataset.reward.tolist()


def test_parquet_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"entity-env\[parquet\]"):
        dots_dataset(1).save(tmp_path / "x.parquet")
    (tmp_path / "pyarrow.py").write_text("raise ImportError('numpy is too old')")
    monkeypatch.delitem(sys.modules, "pyarrow")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UsageError, match="cannot be imported: numpy is too old"):
        dots_dataset(1).save(tmp_path / "x.parquet")


def test_nothing_but_a_dataset_is_replaced(tmp_path: Path) -> None:
    dataset = dots_dataset(1)
    path = tmp_path / "x.npz"
    path.write_bytes(b"precious")
    with pytest.raises(UsageError, match="exists and is not a dataset"):
        dataset.save(path)
    assert path.read_bytes() == b"precious"
    with pytest.raises(UsageError, match=r"NAME\.npz or NAME\.parquet"):
        dataset.save(tmp_path / "x.csv")
    with pytest.raises(UsageError, match="cannot read"):
        Dataset.load(tmp_path / "none.npz")
    (tmp_path / "a").write_bytes(b"")
    with pytest.raises(UsageError, match="cannot write"):
        dataset.save(tmp_path / "a" / "x.npz")


def with_wrapping_sum(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Different lengths with the same sum modulo 2**64."""
    hostile = np.zeros_like(lengths)
    hostile[:4] = 2**62
    hostile[4] = lengths.sum()
    return hostile


TAMPERED: list[tuple[str, str, Callable[[Any], Any]]] = [
    ("chosen/Go.values", "chose [345]", lambda values: values + 3),
    ("chosen/Go.values", "needs int64", lambda values: values.astype(np.int32)),
    ("chosen/Go.lengths", "lengths", lambda lengths: -lengths),
    ("chosen/Go.lengths", "add up to", lambda lengths: lengths * 2),
    ("chosen/Go.lengths", "add up to", with_wrapping_sum),
    ("features/Dot.lengths", "add up to", with_wrapping_sum),
    ("actors/Go.lengths", "add up to", with_wrapping_sum),
    ("actors/Go.values", "an actor other than the last entity", lambda values: values - 1),
    ("actors/Go.values", "names entity 9", lambda values: values * 0 + 9),
    ("features/Dot.values", "finite", lambda values: values * np.nan),
    ("features/Dot.values", "rows of 1", lambda values: np.repeat(values, 2, axis=1)),
    ("reward", "not finite", lambda rewards: rewards + np.inf),
    ("reward", "number of decisions", lambda rewards: rewards[:-1]),
    ("episode", "0 or more", lambda numbers: numbers - 1),
    ("truncated", "both terminated and truncated", lambda flags: ~flags),
    ("header", "version 99", lambda text: np.array(str(text).replace('n": 1', 'n": 99'))),
    ("header", "is not text", lambda text: np.arange(3)),
    ("header", "no format", lambda text: np.array("{}")),
    ("header", "spaces", lambda text: np.array(str(text).replace("spaces", "places"))),
    ("step", "Object|object|bytes", lambda steps: steps.astype(object)),
]


@pytest.mark.parametrize(("name", "problem", "change"), TAMPERED)
def test_a_tampered_file_is_one_error(
    tmp_path: Path, name: str, problem: str, change: Callable[[Any], Any]
) -> None:
    path = tmp_path / "x.npz"
    dots_dataset(2).save(path)
    with np.load(path) as found:
        arrays = {key: found[key] for key in found.files}
    np.savez(path, **{**arrays, name: change(arrays[name])})
    with pytest.raises(UsageError, match=rf"(?s)x\.npz is .*{problem}"):
        Dataset.load(path)


@dataclass
class Wall:
    """An entity without features: any number of rows takes no bytes."""


def test_rows_without_features_are_bounded(tmp_path: Path) -> None:
    def play(agent: Agent, *, seed: int) -> None:
        for _ in range(20):
            if agent.act(Obs(0.0).entities([Wall()]), Go) is None:
                return
        agent.game_over(Obs(0.0))

    path = tmp_path / "x.npz"
    recorder = DatasetRecorder()
    Game(play, entities=(Wall,), actions=(Go,)).run(RandomAgent(0), watch=recorder)
    recorder.dataset().save(path)
    with np.load(path) as found:
        arrays: dict[str, Any] = {key: found[key] for key in found.files}
    arrays["features/Wall.values"] = np.zeros((2**40, 0), dtype=np.float32)
    arrays["features/Wall.lengths"][:] = [2**40] + [0] * 19
    np.savez(path, **arrays)
    with pytest.raises(UsageError, match=f"has {2**40} rows, at most"):
        Dataset.load(path)


@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
@given(data=st.data())
def test_damaged_files_raise_one_error(
    suffix: str, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    path = tmp_path_factory.mktemp("files") / f"x{suffix}"
    dots_dataset(2).save(path)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    with suppress(UsageError):  # a damaged file may still be a valid dataset
        Dataset.from_columns((loaded := Dataset.load(path)).spaces, loaded.columns())


def test_sizes_are_refused_before_they_are_read(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    header = b"\x93NUMPY\x01\x00\x76\x00{'descr': '<i8', 'fortran_order': False, 'shape': (%d,)}"
    with zipfile.ZipFile(path, "w") as archive:
        text = header % 10**15
        archive.writestr("header.npy", text + b" " * (127 - len(text)) + b"\n")
    with pytest.raises(UsageError, match=r"x\.npz is"):
        Dataset.load(path)


@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
def test_files_that_would_take_too_much_memory(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    path = tmp_path / f"x{suffix}"
    dots_dataset(30).save(path)
    monkeypatch.setattr(dataset_file, "_MAX_BYTES", 2000)
    with pytest.raises(UsageError, match=r"of \d+ bytes are too many"):
        Dataset.load(path)
    monkeypatch.setattr(dataset_file, "_MAX_FILE_BYTES", 20)
    with pytest.raises(UsageError, match="too many, at most 20"):
        Dataset.load(path)


def test_a_column_is_missing() -> None:
    dataset = dots_dataset(1)
    columns = dataset.columns()
    del columns["actors/Go"]
    with pytest.raises(SchemaError, match="'actors/Go' needs lists"):
        Dataset.from_columns(dataset.spaces, columns)
    columns = {**dataset.columns(), "visible/Dot": RaggedArray(np.ones(0, np.bool_), [0] * 6)}
    with pytest.raises(SchemaError, match="'visible/Dot' has 0 values in decision 0, expected 1"):
        Dataset.from_columns(dataset.spaces, columns)


def test_a_recorder_passes_runs_on_to_another_watcher() -> None:
    class Runs:
        def __init__(self) -> None:
            self.seen: list[str] = []

        def begin_run(self, *_: object) -> None:
            self.seen.append("begin")

        def __call__(self, turn: Turn) -> None:
            self.seen.append("turn")

        def end_run(self, error: BaseException | None) -> None:
            self.seen.append(f"end {error}")

    runs = Runs()
    rock_paper_scissors.run(
        RandomAgent(seed=0), RandomAgent(seed=1), watch=DatasetRecorder(watch=runs)
    )
    assert runs.seen[0] == "begin"
    assert runs.seen[-1] == "end None"
    assert runs.seen.count("turn") > 1
