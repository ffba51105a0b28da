"""Bad files and odd observations: a clear error or a defined action, with either backend.

Both backends and all formats get the same input; tests of a single one are in its own file.
"""

from __future__ import annotations

import math
import shutil
import tarfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import torch
from numpy.typing import NDArray

from entity_env import (
    Categorical,
    CheckpointError,
    Game,
    Obs,
    SchemaError,
    SelectEntity,
    UsageError,
)
from entity_env.agents import Agent, load_agent
from entity_env.agents.load import Backend
from entity_env.agents.rogue_net import (
    NeuralAgent,
    NumpyAgent,
    RogueNet,
    RogueNetConfig,
    Weights,
    write_enn_checkpoint,
)
from entity_env.agents.rogue_net.checkpoints.agent_file import agent_bytes, agent_from_bytes
from entity_env.agents.rogue_net.checkpoints.folder import MODEL, Header, write_checkpoint
from entity_env.agents.rogue_net.neural_agent import TrainedAgent
from entity_env.agents.rogue_net.weights import expected_tensors
from entity_env.core.observation import (
    ActionMask,
    CategoricalActionMask,
    GlobalCategoricalActionMask,
    Observation,
    SelectEntityActionMask,
)
from entity_env.core.spaces import (
    ActionSpace,
    CategoricalActionSpace,
    Entity,
    GlobalCategoricalActionSpace,
    ObsSpace,
    SelectEntityActionSpace,
)
from entity_env.games import cherry_pick, multi_snake

BACKENDS = pytest.mark.parametrize("backend", ["numpy", "torch"])
OBS = ObsSpace((), {"A": Entity(("x", "y")), "B": Entity(())})
ACTIONS: dict[str, ActionSpace] = {
    "move": CategoricalActionSpace(("a", "b", "c")),
    "pick": SelectEntityActionSpace(),
    "mode": GlobalCategoricalActionSpace(("on", "off")),
}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small networks gain nothing from a second thread, and lose a lot of time waiting."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def weights_for(obs_space: ObsSpace, action_space: Mapping[str, ActionSpace]) -> Weights:
    """A small network with random weights."""
    rng = np.random.default_rng(0)
    config = RogueNetConfig(d_model=8, n_layer=1)
    tensors = {
        name: np.asarray(rng.uniform(0.1, 0.5, spec.shape), dtype=spec.dtype)
        for name, spec in expected_tensors(obs_space, action_space, config).items()
    }
    return Weights(obs_space, action_space, config, tensors)


def write_run(path: Path, weights: Weights) -> Path:
    header = Header(weights.obs_space, weights.action_space, weights.config, {})
    tensors = {name: np.array(each, order="C") for name, each in weights.tensors.items()}
    write_checkpoint(path / "run", header, {MODEL: safetensors.numpy.save(tensors)})
    return path / "run"


def write_file(path: Path, weights: Weights) -> Path:
    (path / "x.agent").write_bytes(agent_bytes(weights))
    return path / "x.agent"


def write_enn(path: Path, weights: Weights) -> Path:
    write_enn_checkpoint(path / "enn", weights)
    return path / "enn"


def write_archive(path: Path, weights: Weights) -> Path:
    write_enn(path, weights)
    with tarfile.open(path / "x.roguenet", "w") as archive:
        for each in sorted((path / "enn").iterdir()):
            archive.add(each, each.name)
    shutil.rmtree(path / "enn")
    return path / "x.roguenet"


Write = Callable[[Path, Weights], Path]
FORMATS = pytest.mark.parametrize("write", [write_run, write_file, write_enn, write_archive])


def files_of(path: Path) -> list[Path]:
    return sorted(path.iterdir()) if path.is_dir() else [path]


@BACKENDS
@FORMATS
def test_what_is_whole_is_read(tmp_path: Path, write: Write, backend: Backend) -> None:
    assert isinstance(
        load_agent(write(tmp_path, weights_for(OBS, ACTIONS)), backend=backend), TrainedAgent
    )


@BACKENDS
@FORMATS
def test_a_missing_file_is_told(tmp_path: Path, write: Write, backend: Backend) -> None:
    path = write(tmp_path, weights_for(OBS, ACTIONS))
    for file in files_of(path):
        content = file.read_bytes()
        file.unlink()
        with pytest.raises((CheckpointError, UsageError)) as error:
            load_agent(path, backend=backend)
        assert path.name in str(error.value)
        file.write_bytes(content)


@BACKENDS
@FORMATS
@pytest.mark.parametrize("share", [0.0, 0.3, 0.6])
def test_a_truncated_file_is_told(
    tmp_path: Path, write: Write, backend: Backend, share: float
) -> None:
    path = write(tmp_path, weights_for(OBS, ACTIONS))
    for file in files_of(path):
        content = file.read_bytes()
        file.write_bytes(content[: int(share * len(content))])
        with pytest.raises(CheckpointError) as error:
            load_agent(path, backend=backend)
        assert file.name in str(error.value)
        file.write_bytes(content)


BIAS = "auxiliary_heads.value.bias"
HEAD = "action_heads.move.proj.weight"


@BACKENDS
@FORMATS
@pytest.mark.parametrize(
    ("name", "tensor", "message"),
    [
        (BIAS, None, rf"{BIAS} is missing"),
        (HEAD, np.zeros((4, 8), np.float32), rf"{HEAD} has shape \(4, 8\).*expected \(3, 8\)"),
        (HEAD, np.zeros((3, 8), np.float64), rf"{HEAD} has .*float64, expected .*float32"),
        (HEAD, np.full((3, 8), np.nan, np.float32), rf"{HEAD} holds numbers that are not finite"),
        ("spare.weight", np.zeros(3, np.float32), r"spare\.weight does not belong to the network"),
    ],
)
def test_a_tensor_that_does_not_fit_is_told(
    tmp_path: Path,
    write: Write,
    backend: Backend,
    name: str,
    tensor: NDArray[Any] | None,
    message: str,
) -> None:
    weights = weights_for(OBS, ACTIONS)
    tensors = {key: each for key, each in weights.tensors.items() if key != name}
    if tensor is not None:
        tensors[name] = tensor
    path = write(tmp_path, replace(weights, tensors=tensors))
    with pytest.raises(CheckpointError, match=message):
        load_agent(path, backend=backend)


@BACKENDS
@FORMATS
def test_another_schema_is_told_difference_by_difference(
    tmp_path: Path, write: Write, backend: Backend
) -> None:
    path = write(tmp_path, weights_for(multi_snake.obs_space(), multi_snake.action_space()))
    agent = load_agent(path, backend=backend)
    assert multi_snake.run(agent)
    with pytest.raises(CheckpointError) as error:
        cherry_pick.run(agent)
    for words in (
        "trained for a different game",
        "it has the entities 'Head', 'Segment', 'Food' and the actions 'Move'; ",
        "the game has the entities 'Picker', 'Cherry' and the actions 'SelectCherry'",
    ):
        assert words in str(error.value)
    assert multi_snake.run(agent)  # it is none the worse


def agents(
    obs_space: ObsSpace = OBS, action_space: Mapping[str, ActionSpace] = ACTIONS
) -> list[NumpyAgent | NeuralAgent]:
    """One network on both backends, with greedy actions."""
    weights = weights_for(obs_space, action_space)
    return [NumpyAgent(weights, greedy=True), NeuralAgent(RogueNet.of(weights), greedy=True)]


def shown(features: Mapping[str, object] | None = None, **actions: ActionMask) -> Observation:
    return Observation(reward=0.0, features=features or {}, actions=actions)  # type: ignore[arg-type]  # wrong on purpose


TWO = {"A": np.array([[0.0, 1.0], [2.0, 3.0]], np.float32), "B": np.zeros((1, 0), np.float32)}


def test_an_observation_with_no_entity_is_answered() -> None:
    """Only a global action is possible, because there are no entities."""
    for empty in ({}, {"A": np.zeros((0, 2), np.float32), "B": np.zeros((0, 0), np.float32)}):
        answers = [
            agent.choose(
                shown(
                    empty,
                    mode=GlobalCategoricalActionMask(),
                    move=CategoricalActionMask(),
                    pick=SelectEntityActionMask(),
                )
            )
            for agent in agents()
        ]
        for chosen, probs in answers:
            assert chosen["mode"].shape == (1,)
            np.testing.assert_allclose(probs["mode"].sum(), 1.0, rtol=1e-6)
            assert len(chosen["move"]) == len(chosen["pick"]) == 0
        np.testing.assert_allclose(answers[0][1]["mode"], answers[1][1]["mode"], atol=1e-6)
        for agent in agents():
            chosen, _ = agent.choose(shown(empty))
            assert sum(map(len, chosen.values())) == 0


def test_an_observation_with_no_entity_and_no_global_action_is_answered() -> None:
    for agent in agents(OBS, {"move": ACTIONS["move"]}):
        chosen, _ = agent.choose(shown(move=CategoricalActionMask()))
        assert len(chosen["move"]) == 0


class Mode(Enum):
    ON = 0
    OFF = 1


class Turn(Enum):
    LEFT = 0
    RIGHT = 1


@dataclass
class Ship:
    x: float


@dataclass
class Rock:
    x: float


PICK, STEER = SelectEntity(Rock), Categorical(Turn)


def play(agent: Agent, *, seed: int, fault: str = "") -> None:
    """Shows nothing, then ships, then the fault that the test chooses."""
    assert isinstance(agent.act(Obs(0.0), Mode), Mode)
    none: list[Turn] | None = agent.act(Obs(0.0).actors([]), STEER)
    assert none == []
    ships = [Ship(1.0), Ship(2.0)]
    if fault == "nan":
        agent.act(Obs(0.0).entities([Ship(math.nan)]), Mode)
    elif fault == "choice":
        agent.act(Obs(0.0).actors(ships).mask(STEER, [[1, 0], [0, 0]]), STEER)
    else:
        assert agent.act(Obs(0.0).actors(ships), PICK) == [None, None]
        rock = Rock(1.0)
        some = Obs(0.0).actors(ships).entities([rock]).mask(PICK, [[False], [True]])
        assert agent.act(some, PICK) == [None, rock]
        assert agent.act(Obs(0.0).actors(ships).mask(STEER, [[1, 0], [0, 1]]), STEER) == [*Turn]
    agent.game_over()


GAME = Game(play, entities=(Ship, Rock), actions=(Mode, PICK, STEER))


@BACKENDS
@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("nan", "entity Ship: feature 'x' of row 0 must be finite, got nan"),
        ("choice", "leaves actor 1 no legal choice"),
    ],
)
def test_a_game_is_told_what_it_gets_wrong(
    tmp_path: Path, backend: Backend, fault: str, message: str
) -> None:
    path = write_file(tmp_path, weights_for(GAME.obs_space(), GAME.action_space()))
    with pytest.raises(SchemaError, match=message):
        GAME.run(load_agent(path, backend=backend), fault=fault)
    [episode] = GAME.run(load_agent(path, backend=backend))
    assert episode.length == 5


@pytest.mark.parametrize("index", [0, 1], ids=["numpy", "torch"])
@pytest.mark.parametrize(
    ("features", "actions", "message"),
    [
        (
            TWO,
            {"move": CategoricalActionMask(actor_types=["A"], mask=[[1, 0, 0], [0, 0, 0]])},
            "no legal choice",
        ),
        (TWO, {"mode": GlobalCategoricalActionMask([0, 0])}, "no legal choice"),
        (TWO, {"pick": SelectEntityActionMask(actor_types=["A"], actee_ids=[])}, "no legal choice"),
        (
            {"A": TWO["A"]},
            {"pick": SelectEntityActionMask(actor_types=["A"], actee_types=["B"])},
            "no legal choice",
        ),
        (
            {**TWO, "A": np.array([[0.0, np.nan]])},
            {"mode": GlobalCategoricalActionMask()},
            "finite",
        ),
        (
            {**TWO, "A": np.array([[0.0, -np.inf]])},
            {"move": CategoricalActionMask(actor_types=["B"])},
            "finite",
        ),
    ],
)
def test_an_environment_is_told_what_it_gets_wrong(
    index: int, features: Mapping[str, object], actions: Mapping[str, ActionMask], message: str
) -> None:
    agent = agents()[index]
    with pytest.raises(SchemaError, match=message):
        agent.choose(shown(features, **actions))
    agent.choose(shown(TWO, mode=GlobalCategoricalActionMask()))  # it is none the worse


ODD_NAMES = ["keys", "a.b", "type", "0", "_", "forward", " ", "é", "embedding.embeddings.A"]


@pytest.mark.parametrize("name", ODD_NAMES)
@pytest.mark.parametrize("write", [write_run, write_file])
def test_names_that_modules_of_torch_refuse_are_played_by_both(
    tmp_path: Path, write: Write, name: str
) -> None:
    obs_space = ObsSpace(("t",), {name: Entity(("x",)), "A": Entity(("x",))})
    actions: dict[str, ActionSpace] = {
        name: CategoricalActionSpace(("a", "b")),
        "pick": SelectEntityActionSpace(),
    }
    path = write(tmp_path, weights_for(obs_space, actions))
    observation = Observation(
        reward=0.0,
        global_features=[1.0],
        features={name: np.ones((2, 1), np.float32), "A": np.zeros((1, 1), np.float32)},
        actions={
            name: CategoricalActionMask(actor_types=[name]),
            "pick": SelectEntityActionMask(actor_types=["A"], actee_types=[name]),
        },
    )
    backends: tuple[Backend, ...] = ("numpy", "torch")
    ours, theirs = (
        agent.choose(observation)[1]
        for backend in backends
        for agent in [load_agent(path, backend=backend)]
        if isinstance(agent, TrainedAgent)
    )
    for action in actions:
        np.testing.assert_allclose(ours[action], theirs[action], atol=1e-6)


@pytest.mark.parametrize("write", [write_enn, write_archive])
def test_names_that_rogue_net_cannot_have_are_not_written_for_it(
    tmp_path: Path, write: Write
) -> None:
    for name in ("keys", "a.b", ""):
        weights = weights_for(OBS, {name: ACTIONS["move"]})
        with pytest.raises(CheckpointError, match="rename the entity or the action"):
            write(tmp_path, weights)


def test_an_entity_has_a_name() -> None:
    with pytest.raises(SchemaError, match="entity name '' is reserved: choose another name"):
        ObsSpace((), {"": Entity(("x",))})
    content = agent_bytes(weights_for(OBS, ACTIONS)).replace(b'"name": "A"', b'"name": "" ')
    with pytest.raises(CheckpointError, match="checksum"):
        agent_from_bytes(content, "it")


@pytest.mark.parametrize("write", [write_run, write_file])
@BACKENDS
def test_an_action_without_a_name_is_played(tmp_path: Path, write: Write, backend: Backend) -> None:
    path = write(tmp_path, weights_for(OBS, {"": ACTIONS["move"]}))
    agent = load_agent(path, backend=backend)
    assert isinstance(agent, TrainedAgent)
    chosen, _ = agent.choose(
        Observation(reward=0.0, features=TWO, actions={"": CategoricalActionMask()})
    )
    assert len(chosen[""]) == 3
