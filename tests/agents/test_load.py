"""load_agent: meaning of names and folders, and errors for invalid ones."""

import io
import shutil
import sys
import zipfile
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from entity_env import CheckpointError, MissingExtraError, UsageError
from entity_env.agents import RandomAgent, RogueNetAgent, TrainAgentEnv, TrainEnvBuilder
from entity_env.agents.human.human_agent import HumanAgent
from entity_env.agents.load import Backend, load_agent
from entity_env.agents.rogue_net import (
    RogueNet,
    RogueNetConfig,
    read_network,
    save_checkpoint,
)
from entity_env.agents.rogue_net.adapt import renamed
from entity_env.agents.rogue_net.checkpoints.agent_file import write_agent
from entity_env.agents.rogue_net.neural_agent import Choosing, TrainedAgent
from entity_env.agents.rogue_net.numpy_net.agent import NumpyAgent
from entity_env.agents.rogue_net.torch_net.agent import NeuralAgent
from entity_env.core.observation import CategoricalActionMask, Observation
from entity_env.games import MULTI_SNAKE_NAMES, cherry_pick, multi_snake, snake
from entity_env.games.snake import Food, Head, Move, Segment, play
from tests.agents.rogue_net.fixtures import DATA, FIXTURES

BACKENDS: dict[Backend, type[TrainedAgent]] = {
    "auto": NumpyAgent,
    "numpy": NumpyAgent,
    "torch": NeuralAgent,
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a training run for snake, with an untrained network."""
    folder = tmp_path_factory.mktemp("runs") / "snake"
    config = RogueNetConfig(d_model=8, n_layer=1, n_head=1, d_qk=8)
    save_checkpoint(
        folder / "checkpoint", RogueNet(snake.obs_space(), snake.action_space(), config)
    )
    return folder


def test_names_of_agents() -> None:
    assert isinstance(load_agent("random", seed=1), RandomAgent)
    assert isinstance(load_agent("human"), HumanAgent)


def test_a_seed_repeats_itself() -> None:
    first, again = (snake.run(load_agent("random", seed=3), episodes=3) for _ in range(2))
    assert first == again


def test_loads_a_checkpoint_or_the_run_around_it(trained: Path) -> None:
    for source in (trained, str(trained), trained / "checkpoint"):
        for backend, kind in BACKENDS.items():
            agent = load_agent(source, greedy=True, temperature=0.5, seed=1, backend=backend)
            assert isinstance(agent, kind)
            assert agent.choosing == Choosing(greedy=True, temperature=0.5)
            [episode] = snake.run(agent, board_size=4)
            assert episode.length > 0


@pytest.fixture(scope="module")
def exported(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Content of the network's `.agent` file."""
    path = tmp_path_factory.mktemp("exported") / "snake.agent"
    write_agent(path, read_network(trained))
    return path.read_bytes()


class Download:
    """A file object of another library."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def read(self) -> bytes:
        return self.content


@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_loads_the_content_of_an_agent_from_anywhere(
    exported: bytes,
    trained: Path,
    backend: Backend,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Bytes, open files, and resources of packages in folders and in zips."""
    for name in ("shelf", "packed"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
        (tmp_path / name / "snake.agent").write_bytes(exported)
    with zipfile.ZipFile(tmp_path / "app.pyz", "w") as file:
        for path in sorted((tmp_path / "packed").iterdir()):
            file.write(path, f"packed/{path.name}")
    shutil.rmtree(tmp_path / "packed")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path / "app.pyz"))
    expected = snake.run(load_agent(trained, seed=1, backend=backend), seed=1, board_size=4)
    with (
        open(tmp_path / "shelf" / "snake.agent", "rb") as opened,
        zipfile.ZipFile(tmp_path / "app.pyz") as archive,
        archive.open("packed/snake.agent") as member,
    ):
        for source in (
            exported,
            bytearray(exported),
            memoryview(exported),
            io.BytesIO(exported),
            Download(exported),
            opened,
            member,
            files("shelf") / "snake.agent",
            files("packed") / "snake.agent",
            zipfile.Path(archive, "packed/snake.agent"),
        ):
            agent = load_agent(source, seed=1, backend=backend)
            assert isinstance(agent, BACKENDS[backend])
            assert snake.run(agent, seed=1, board_size=4) == expected
        assert not opened.closed
        with pytest.raises(CheckpointError, match=r"snake.agent is empty, or was read before"):
            load_agent(opened)
    inside = load_agent(tmp_path / "app.pyz" / "packed" / "snake.agent", seed=1, backend=backend)
    assert snake.run(inside, seed=1, board_size=4) == expected
    with pytest.raises(CheckpointError, match=r"cannot read .*app.pyz/packed/no.agent"):
        load_agent(tmp_path / "app.pyz" / "packed" / "no.agent")


@settings(max_examples=40)
@given(data=st.data())
def test_damaged_content_is_one_error(data: st.DataObject, exported: bytes) -> None:
    length = data.draw(st.integers(0, len(exported)))
    content = bytearray(exported[:length])
    if length == len(exported) or (length and data.draw(st.booleans())):
        at = data.draw(st.integers(0, length - 1))
        content[at] ^= data.draw(st.integers(1, 255))
    for source in (bytes(content), io.BytesIO(content)):
        with pytest.raises(CheckpointError):
            load_agent(source)


def test_what_is_no_source_says_what_would_be(exported: bytes, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"the bytes of the agent is empty"):
        load_agent(b"")
    with pytest.raises(CheckpointError, match=r"cannot read .*nothing.*export"):
        load_agent(zipfile.Path(_zip(tmp_path, {"a.agent": exported}), "nothing"))
    (tmp_path / "x.agent").write_text("text")
    with (
        open(tmp_path / "x.agent") as opened,
        pytest.raises(UsageError, match=r"gives str, expected bytes: open it with mode 'rb'"),
    ):
        load_agent(opened)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"a package resource; got 7"):
        load_agent(7)  # type: ignore[arg-type]  # intended


def _zip(folder: Path, contents: Mapping[str, bytes]) -> zipfile.ZipFile:
    path = folder / "some.zip"
    with zipfile.ZipFile(path, "w") as file:
        for name, content in contents.items():
            file.writestr(name, content)
    return zipfile.ZipFile(io.BytesIO(path.read_bytes()))


@pytest.mark.parametrize("backend", ["numpy", "torch"])
@pytest.mark.parametrize("name", ["trained_multisnake", "trained_multisnake.roguenet"])
def test_loads_what_enn_trainer_trained(backend: Backend, name: str) -> None:
    """The agent acts according to its checkpoint in a game with the same schema."""
    agent = load_agent(DATA / name, seed=1, backend=backend)
    assert isinstance(agent, BACKENDS[backend])
    fixture = FIXTURES[2]
    case = fixture.cases()[0]
    observation = Observation(
        reward=0.0,
        global_features=case["global"],
        features={name: case[f"features/{name}"] for name in fixture.obs_space.entities},
        actions={"move": CategoricalActionMask(actor_types=["SnakeHead"])},
    )
    np.testing.assert_allclose(
        agent.choose(observation)[1]["move"],
        np.exp(case["logprobs/move"].astype(float)),
        atol=1e-5,
    )
    with pytest.raises(CheckpointError, match="trained for a different game"):
        snake.run(agent)


def test_a_checkpoint_of_enn_trainer_needs_msgpack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "msgpack", None)
    with pytest.raises(MissingExtraError, match=r"msgpack.*pip install 'entity-env\[train\]'"):
        load_agent(DATA / "trained_xor")


def test_backends_and_temperatures_that_are_none(trained: Path) -> None:
    with pytest.raises(UsageError, match="no backend 'jax': expected one of auto, numpy, torch"):
        load_agent(trained, backend="jax")  # type: ignore[arg-type]  # a user's mistake
    with pytest.raises(UsageError, match="temperature"):
        load_agent(trained, temperature=0.0)


def test_loads_what_an_interrupted_write_left(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained / "checkpoint", tmp_path / "agent.old")
    assert isinstance(load_agent(tmp_path / "agent"), NumpyAgent)


def test_a_checkpoint_of_another_game_is_refused_in_words(trained: Path) -> None:
    with pytest.raises(CheckpointError, match=r"trained for a different game.*'Head'"):
        cherry_pick.run(load_agent(trained))


def test_says_what_was_looked_for(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(trained.parent)
    (trained.parent / "note").write_text("")
    for source, message in (
        ("randm", "no agent 'randm'; did you mean random?"),
        ("snaek", "no agent 'snaek'; did you mean snake?"),
        (
            "other",
            "the folder of a checkpoint, or a file *.agent or *.roguenet, and there is no such",
        ),
        ("other", "trained agents found: snake"),
        ("note", "note is a file; expected 'random', 'human', a bot FILE.py:CLASS, the folder"),
        ("no/such/folder", "no agent 'no/such/folder'"),
    ):
        with pytest.raises(UsageError) as error:
            load_agent(source)
        assert message in str(error.value)


def test_a_folder_around_checkpoints_names_them(trained: Path) -> None:
    with pytest.raises(CheckpointError, match=r"is not a checkpoint; choose .*snake"):
        load_agent(trained.parent)


def test_a_folder_without_a_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no checkpoint at"):
        load_agent(tmp_path)


def test_a_damaged_checkpoint_is_refused(trained: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(trained, damaged)
    (damaged / "checkpoint" / "model.safetensors").write_bytes(b"\0")
    with pytest.raises(CheckpointError, match=r"cannot read .*model\.safetensors"):
        load_agent(damaged)


def test_without_torch_one_line_names_the_extra(
    trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in list(sys.modules):
        if name.startswith("entity_env.agents.rogue_net.torch"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'entity-env\[train\]'"):
        load_agent(trained, backend="torch")
    assert isinstance(load_agent(trained), NumpyAgent)


def test_an_agent_of_entity_gym_plays_our_multi_snake_by_a_mapping_of_names() -> None:
    """enn-trainer has trained it on entity-gym's MultiSnake, with these settings."""
    game = multi_snake.with_settings(num_snakes=1, max_snake_length=5, board_size=6)
    for path in (DATA / "trained_multisnake", DATA / "trained_multisnake.roguenet"):
        agent = load_agent(path, names=MULTI_SNAKE_NAMES, seed=1)
        assert np.mean([each.reward for each in game.run(agent, episodes=20)]) > 0.7
    with pytest.raises(CheckpointError, match="trained for a different game"):
        game.run(load_agent(path))


def test_names_are_those_of_the_network() -> None:
    path = DATA / "trained_multisnake"
    with pytest.raises(UsageError, match="nothing called 'SnakeHed'; it has Food, SnakeBody"):
        load_agent(path, names={"SnakeHed": "Head"})
    with pytest.raises(UsageError, match="names: two of SnakeHead, SnakeBody, Food would have"):
        load_agent(path, names={"SnakeHead": "Food"})


@pytest.mark.parametrize("name", ["made_relpos_grid", "options_translate", "trained_cherrypick"])
def test_renamed_twice_it_is_the_same_network(name: str) -> None:
    """Also if options of the network name features and entity types."""
    weights = read_network(DATA / name)
    spaces = weights.obs_space, weights.action_space
    entities = {each: f"{each}_new" for each in [*spaces[0].entities, *spaces[1]]}
    features = {f: f"{f}_new" for each in spaces[0].entities.values() for f in each.features}
    names = entities | features
    other = renamed(weights, names)
    assert set(other.obs_space.entities) == {entities[each] for each in spaces[0].entities}
    other.require_fit(name, name)
    back = renamed(other, {new: old for old, new in names.items()})
    assert (back.obs_space, back.action_space, back.config) == (*spaces, weights.config)
    assert back.tensors == weights.tensors
    assert all(back.tensors[key] is value for key, value in weights.tensors.items())


def test_the_names_of_entity_gym_rs() -> None:
    agent = RogueNetAgent.load(DATA / "trained_multisnake")
    assert isinstance(agent, type(load_agent(DATA / "trained_multisnake")))
    game = TrainEnvBuilder().entity(Head, Segment).entity(Food).action(Move).build(play)
    assert (game.obs_space(), game.action_space()) == (snake.obs_space(), snake.action_space())
    env = TrainAgentEnv(game)
    assert len(env.reset(seed=1).features["Head"]) == 1
    env.close()
