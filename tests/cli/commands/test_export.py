"""An exported agent: one self-contained file, with errors for all kinds of damage."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings, strategies as st

from entity_env import (
    ActionSpace,
    CheckpointError,
    Entity,
    GlobalCategoricalActionSpace,
    ObsSpace,
    SchemaError,
    SelectEntityActionSpace,
)
from entity_env.agents import load_agent
from entity_env.agents.rogue_net.checkpoints.agent_file import (
    MAGIC,
    VERSION,
    agent_bytes,
    agent_checksum,
    agent_from_bytes,
    read_agent,
    write_agent,
)
from entity_env.agents.rogue_net.checkpoints.reader import find_network, read_network
from entity_env.agents.rogue_net.checkpoints.safetensors import read_safetensors
from entity_env.agents.rogue_net.config import RogueNetConfig
from entity_env.agents.rogue_net.numpy_net.agent import NumpyAgent
from entity_env.agents.rogue_net.numpy_net.net import NumpyNet
from entity_env.agents.rogue_net.torch_net.checkpoint import save_checkpoint
from entity_env.agents.rogue_net.torch_net.net import RogueNet
from entity_env.agents.rogue_net.weights import Weights, expected_tensors
from entity_env.cli import main
from entity_env.games import cherry_pick, snake
from tests import DATA as DATA_ROOT, ROOT

DATA = DATA_ROOT / "roguenet"
CHECKPOINTS = sorted(path.parent for path in DATA.glob("*/config.ron"))
SHIPPED = sorted((ROOT / "examples").glob("**/*.agent"))
HEADER = len(MAGIC) + 4 + 32


@cache
def snake_weights(seed: int = 1) -> Weights:
    """A network for snake with random parameters."""
    rng = np.random.default_rng(seed)
    obs_space, action_space = snake.schema.obs_space(), snake.schema.action_space()
    config = RogueNetConfig(d_model=16, n_layer=1)
    specs = expected_tensors(obs_space, action_space, config)
    tensors = {
        name: np.asarray(rng.random(spec.shape), dtype=spec.dtype) for name, spec in specs.items()
    }
    return Weights(obs_space, action_space, config, tensors)


ODD_NAMES = st.text(st.sampled_from("a.\0\x1b\ud800 \u202e"), max_size=3) | st.just("a" * 2000)


@given(names=st.tuples(ODD_NAMES, ODD_NAMES, ODD_NAMES, ODD_NAMES), scale=st.floats(width=32))
def test_what_cannot_be_read_again_is_not_written(
    tmp_path_factory: pytest.TempPathFactory, names: tuple[str, str, str, str], scale: float
) -> None:
    entity, feature, action, label = names
    try:
        obs_space = ObsSpace((), {entity: Entity((feature,))})
        action_space = {action: GlobalCategoricalActionSpace((label, f"{label}1"))}
    except SchemaError:
        return
    config = RogueNetConfig(d_model=2, n_layer=1, n_head=1)
    tensors = {
        name: np.full(spec.shape, scale if name.endswith("weight") else 1, dtype=spec.dtype)
        for name, spec in expected_tensors(obs_space, action_space, config).items()
    }
    path = tmp_path_factory.mktemp("agents") / "x.agent"
    write_agent(path, kept := snake_weights())
    with suppress(CheckpointError, SchemaError):
        write_agent(path, other := Weights(obs_space, action_space, config, tensors))
        kept = other
    require_same(read_agent(path), kept)


def test_a_game_of_many_types_with_short_names_is_written(tmp_path: Path) -> None:
    obs_space = ObsSpace((), {f"{i:x}": Entity(()) for i in range(1200)})
    action_space: dict[str, ActionSpace] = {"a": SelectEntityActionSpace()}
    config = RogueNetConfig(d_model=2, n_layer=1, n_head=1)
    specs = expected_tensors(obs_space, action_space, config)
    tensors = {name: np.ones(spec.shape, dtype=spec.dtype) for name, spec in specs.items()}
    weights = Weights(obs_space, action_space, config, tensors)
    write_agent(tmp_path / "x.agent", weights)
    require_same(read_agent(tmp_path / "x.agent"), weights)


def require_same(a: Weights, b: Weights) -> None:
    assert list(a.obs_space.entities) == list(b.obs_space.entities)
    assert list(a.action_space) == list(b.action_space)
    assert a.config == b.config
    assert a.tensors.keys() == b.tensors.keys()
    for name, tensor in a.tensors.items():
        assert tensor.dtype == b.tensors[name].dtype
        np.testing.assert_array_equal(tensor, b.tensors[name])


def resealed(body: bytes) -> bytes:
    """A file with a valid checksum and arbitrary content."""
    return MAGIC + VERSION.to_bytes(4, "little") + hashlib.sha256(body).digest() + body


@pytest.mark.parametrize("path", CHECKPOINTS, ids=lambda path: path.name)
def test_a_network_survives(path: Path, tmp_path: Path) -> None:
    weights = read_network(path)
    write_agent(tmp_path / "x.agent", weights)
    require_same(read_network(tmp_path / "x.agent"), weights)
    assert find_network(tmp_path / "x.agent") == tmp_path / "x.agent"
    assert [each.name for each in tmp_path.iterdir()] == ["x.agent"]


def test_there_are_checkpoints() -> None:
    assert len(CHECKPOINTS) > 2


def test_the_same_network_makes_the_same_bytes() -> None:
    weights = snake_weights()
    turned = Weights(
        weights.obs_space,
        weights.action_space,
        weights.config,
        dict(reversed(list(weights.tensors.items()))),
    )
    assert agent_bytes(weights) == agent_bytes(turned)
    assert agent_bytes(weights) != agent_bytes(snake_weights(2))


def test_the_tensors_are_safetensors() -> None:
    body = agent_bytes(snake_weights())[HEADER:]
    tensors = read_safetensors(body[8 + int.from_bytes(body[:8], "little") :], "it")
    assert tensors.keys() == snake_weights().tensors.keys()


def test_operations_are_listed_for_other_languages() -> None:
    body = agent_bytes(snake_weights())[HEADER:]
    listed = json.loads(body[8 : 8 + int.from_bytes(body[:8], "little")])["operations"]
    assert listed[:2] == [
        ["normalize", ["features/Head"], "embedded/Head", "embedding.embeddings.Head.0.", {}],
        [
            *("linear", ["embedded/Head"], "embedded/Head", "embedding.embeddings.Head.1."),
            {"activation": "relu"},
        ],
    ]
    expected = [each.to_json() for each in snake_weights().operations()]
    assert listed == json.loads(json.dumps(expected))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_shipped_agents_list_their_operations(path: Path) -> None:
    assert path.read_bytes() == agent_bytes(read_agent(path))


def test_a_file_without_operations_is_read() -> None:
    old = DATA_ROOT / "releases" / "0.2.0" / "catch.agent"
    assert b'"operations"' not in old.read_bytes()
    assert read_agent(old).operations()


def test_an_exported_agent_plays_its_game_and_no_other(tmp_path: Path) -> None:
    write_agent(tmp_path / "snake.agent", snake_weights())
    agent = NumpyAgent.load(tmp_path / "snake.agent", seed=1)
    assert snake.run(agent, episodes=2, seed=3)
    with pytest.raises(CheckpointError, match="Cherry"):
        cherry_pick.run(NumpyAgent.load(tmp_path / "snake.agent", seed=1))


def test_both_backends_load_it_and_choose_the_same(tmp_path: Path) -> None:
    path = tmp_path / "snake.agent"
    write_agent(path, snake_weights())
    played = [
        snake.run(load_agent(str(path), greedy=True, backend=backend), episodes=2, seed=3)
        for backend in ("numpy", "torch")
    ]
    assert played[0] == played[1]


def test_a_file_is_replaced_or_stays(tmp_path: Path) -> None:
    file = tmp_path / "x.agent"
    write_agent(file, snake_weights(1))
    write_agent(file, snake_weights(2))
    require_same(read_agent(file), snake_weights(2))
    broken = Weights(
        snake_weights().obs_space, snake_weights().action_space, snake_weights().config, {}
    )
    with pytest.raises(CheckpointError, match="is missing"):
        write_agent(file, broken)
    require_same(read_agent(file), snake_weights(2))


def test_another_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"must be named \*\.agent, got 'x\.bin'"):
        write_agent(tmp_path / "x.bin", snake_weights())


def test_what_is_no_agent_is_told(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="cannot read"):
        read_agent(tmp_path / "nothing.agent")
    for content in (b"", b"PK", MAGIC[:-1]):
        with pytest.raises(
            CheckpointError, match="is not an agent file: create one with `entity-env export"
        ):
            agent_from_bytes(content, "it")


def test_another_version_is_told() -> None:
    content = bytearray(agent_bytes(snake_weights()))
    content[len(MAGIC)] = VERSION + 1
    with pytest.raises(CheckpointError, match=f"version {VERSION + 1} of the format, expected"):
        agent_from_bytes(bytes(content), "it")


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_damage_is_told(data: st.DataObject) -> None:
    content = bytearray(agent_bytes(snake_weights()))
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(0, len(content) - 1)) :]
    else:
        at = data.draw(st.integers(0, len(content) - 1))
        content[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(CheckpointError):
        agent_from_bytes(bytes(content), "it")


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_a_forged_file_is_a_clear_error_or_a_network(data: st.DataObject) -> None:
    body = bytearray(agent_bytes(snake_weights())[HEADER:])
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, min(len(body) - 1, 3000)))
        body[at] = data.draw(st.integers(0, 255))
    try:
        weights = agent_from_bytes(resealed(bytes(body)), "it")
    except CheckpointError:
        return
    assert weights.tensors.keys() == snake_weights().tensors.keys()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"[]", "the description is not a JSON object but a list"),
        (b"{", "it: "),
        (b"\xff", "it: "),
        (b"[" * 5000, "brackets, which are too many"),
        (b"{}", "it: "),
    ],
)
def test_a_forged_description_is_told(text: bytes, words: str) -> None:
    with pytest.raises(CheckpointError, match=words):
        agent_from_bytes(resealed(len(text).to_bytes(8, "little") + text), "it")


def test_a_description_beyond_the_end_is_told() -> None:
    for body in (b"", b"\x01", (99).to_bytes(8, "little")):
        with pytest.raises(CheckpointError, match="beyond its end"):
            agent_from_bytes(resealed(body), "it")


def test_the_command_exports(tmp_path: Path) -> None:
    file = tmp_path / "game.agent"
    result = CliRunner().invoke(main, ["export", str(CHECKPOINTS[0]), str(file)])
    assert result.exit_code == 0, result.output
    assert "numbers" in result.output
    require_same(read_agent(file), read_network(CHECKPOINTS[0]))
    for name in read_agent(file).obs_space.global_features:
        assert name in result.output


@pytest.mark.parametrize(
    ("source", "target", "words"),
    [
        ("nothing", "x.agent", "no checkpoint at"),
        (str(CHECKPOINTS[0]), "x.bin", "must be named *.agent or *.onnx, got"),
        (str(CHECKPOINTS[0]), "no/folder/x.agent", "cannot write"),
        ("nothing", "x.onnx", "no checkpoint at"),
        (str(CHECKPOINTS[0]), "no/folder/x.onnx", "cannot write"),
    ],
)
def test_the_command_tells_what_is_wrong(
    tmp_path: Path, source: str, target: str, words: str
) -> None:
    result = CliRunner().invoke(main, ["export", source, str(tmp_path / target)])
    assert result.exit_code == 2
    assert words in result.stderr
    assert not list(tmp_path.iterdir())


def exported(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["export", *map(str, arguments)])


@pytest.mark.parametrize("source", [CHECKPOINTS[0], *SHIPPED[:1]], ids=lambda path: path.name)
def test_the_command_exports_for_other_engines(source: Path, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    file = tmp_path / "game.onnx"
    for _ in range(2):  # replaces a file, like an agent
        result = exported(source, file)
        assert result.exit_code == 0, result.output
        assert [each.name for each in tmp_path.iterdir()] == ["game.onnx"]
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    expected = [f"input {each.name}: " for each in session.get_inputs()]
    expected += [f"output {each.name}: " for each in session.get_outputs()]
    lines = result.output.splitlines()[2:]
    assert all(map(str.startswith, lines, expected))
    assert len(lines) == len(expected)
    metadata = session.get_modelmeta().custom_metadata_map
    assert metadata["checksum"] == agent_checksum(agent_bytes(read_network(source)))
    assert metadata["game"] == ""


@pytest.mark.parametrize("part", [".", "best", "checkpoints/step-7"])
def test_the_file_names_the_game_of_its_run(part: str, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    save_checkpoint(tmp_path / "run" / part, RogueNet.of(snake_weights()))
    about = {"format": "entity_env.run", "game_name": "snake", "game": "/home/me/snake.py"}
    (tmp_path / "run" / "run.json").write_text(json.dumps(about))
    assert exported(tmp_path / "run" / part, tmp_path / "x.onnx").exit_code == 0
    metadata = {each.key: each.value for each in onnx.load(tmp_path / "x.onnx").metadata_props}
    assert metadata["game"] == "snake"
    assert b"/home/me" not in (tmp_path / "x.onnx").read_bytes()


def test_inputs_for_hidden_entities_are_on_request(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    write_agent(tmp_path / "snake.agent", snake_weights())
    result = exported(tmp_path / "snake.agent", tmp_path / "x.onnx", "--visible")
    assert result.exit_code == 0, result.output
    assert "input visible/Food: bool (num_Food)" in result.output
    assert "visible" not in exported(tmp_path / "snake.agent", tmp_path / "x.onnx").output


@pytest.mark.parametrize(
    ("source", "target", "words"),
    [
        ("ship/snake.agent", "x.agent", "--visible is for a file named *.onnx"),
        ("gallery/pendulum.agent", "x.onnx", "--visible is for networks that read entities one by"),
    ],
)
def test_hidden_entities_are_refused_by_name(
    source: str, target: str, words: str, tmp_path: Path
) -> None:
    pytest.importorskip("onnx")
    result = exported(ROOT / "examples" / source, tmp_path / target, "--visible")
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
    assert words in result.stderr
    assert not list(tmp_path.iterdir())


def test_another_engine_is_refused_if_it_decides_differently(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    file = tmp_path / "x.onnx"
    file.write_bytes(b"an earlier file")
    other = NumpyNet(snake_weights(2))
    monkeypatch.setattr("entity_env.agents.rogue_net.onnx_net.file.NumpyNet", lambda _: other)
    result = exported(ROOT / "examples" / "ship" / "snake.agent", file)
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
    assert "logprobs/Move of onnxruntime differs by" in result.stderr
    assert file.read_bytes() == b"an earlier file"
    assert [each.name for each in tmp_path.iterdir()] == ["x.onnx"]


@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_a_missing_package_is_named_with_its_extra(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnx")
    for name in [*sys.modules]:
        if name.startswith("entity_env.agents.rogue_net.onnx_net."):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    result = exported(ROOT / "examples" / "ship" / "snake.agent", tmp_path / "x.onnx")
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
    assert f"needs the package {package!r}" in result.stderr
    assert "pip install 'entity-env[onnx]'" in result.stderr
    assert not list(tmp_path.iterdir())


def test_playing_needs_neither_torch_nor_msgpack(tmp_path: Path) -> None:
    write_agent(tmp_path / "snake.agent", snake_weights())
    program = f"""
import sys
for name in ("torch", "msgpack", "safetensors", "onnx", "onnxruntime", "click", "rich"):
    sys.modules[name] = None
from entity_env.agents.rogue_net.numpy_net.agent import NumpyAgent
from entity_env.games import snake
print(len(snake.run(NumpyAgent.load({str(tmp_path / "snake.agent")!r}, seed=1), seed=2)))
"""
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stdout) == (0, "1\n"), result.stderr
