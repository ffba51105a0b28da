"""Checkpoints of enn-trainer: reading, writing, and damaged files."""

from __future__ import annotations

import contextlib
import io
import shutil
import struct
import subprocess
import sys
import tarfile
import tracemalloc
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import HealthCheck, given, settings, strategies as st
from numpy.typing import NDArray
from torch import nn

from entity_env.agents.rogue_net import (
    RogueNet,
    RogueNetConfig,
    Weights,
    load_checkpoint,
    read_network,
    save_checkpoint,
    write_enn_checkpoint,
)
from entity_env.agents.rogue_net.checkpoints.safetensors import read_safetensors
from entity_env.agents.rogue_net.enn_trainer.checkpoint import FILES, parse_enn_checkpoint, read_tar
from entity_env.agents.rogue_net.enn_trainer.config import config_from_ron
from entity_env.agents.rogue_net.enn_trainer.msgpack_tensors import DTYPES, read_blob, write_blob
from entity_env.agents.rogue_net.enn_trainer.ron import parse_ron
from entity_env.core.spaces import (
    ActionSpace,
    CategoricalActionSpace,
    ContinuousActionSpace,
    Entity,
    GlobalCategoricalActionSpace,
    ObsSpace,
    SelectEntityActionSpace,
)
from entity_env.errors import CheckpointError
from tests import ROOT
from tests.agents.rogue_net.fixtures import DATA, FIXTURES, OPTIONS, Fixture

msgpack = import_module("msgpack")  # ships no types
XOR = {name: (DATA / "trained_xor" / name).read_bytes() for name in FILES}
POLAR = {name: (DATA / "made_relpos_polar" / name).read_bytes() for name in FILES}
TINY = {name: (DATA / "options_projected" / name).read_bytes() for name in FILES}


def _same(a: Weights, b: Weights) -> bool:
    return (
        (a.obs_space, dict(a.action_space), a.config)
        == (b.obs_space, dict(b.action_space), b.config)
        and list(a.obs_space.entities) == list(b.obs_space.entities)
        and set(a.tensors) == set(b.tensors)
        and all(np.array_equal(tensor, b.tensors[name]) for name, tensor in a.tensors.items())
    )


def test_spaces_and_sizes_of_real_checkpoints() -> None:
    ship = Entity(("x", "y", "hp"))
    snake = Entity(("x", "y", "color"))
    assert [(f.obs_space, f.action_space, f.config) for f in FIXTURES[:4]] == [
        (
            ObsSpace(("negate",), {"Input": Entity(("is_set",))}),
            {"output": GlobalCategoricalActionSpace(("0", "1"))},
            RogueNetConfig(d_model=16),
        ),
        (
            ObsSpace((), {"Cherry": Entity(("quality",)), "Player": Entity(())}),
            {"Pick Cherry": SelectEntityActionSpace()},
            RogueNetConfig(n_layer=1),
        ),
        (
            ObsSpace(("step",), {"SnakeHead": snake, "SnakeBody": snake, "Food": snake}),
            {"move": CategoricalActionSpace(("up", "down", "left", "right"))},
            RogueNetConfig(),
        ),
        (
            ObsSpace(
                ("step", "wind"), {"Ship": ship, "Rock": Entity(("x", "y")), "Flag": Entity(())}
            ),
            {
                "move": CategoricalActionSpace(("a", "b", "c", "d")),
                "aim": SelectEntityActionSpace(),
            },
            RogueNetConfig(d_model=64, n_head=4, d_qk=8),
        ),
    ]
    assert list(FIXTURES[3].obs_space.entities) == ["Ship", "Rock", "Flag"]


def test_a_folder_an_archive_and_a_network_in_torch() -> None:
    folder, archive = (read_network(DATA / f"trained_multisnake{s}") for s in ("", ".roguenet"))
    assert _same(folder, archive)
    checkpoint = load_checkpoint(DATA / "trained_multisnake.roguenet")
    assert checkpoint.training == checkpoint.optimizer == {}
    for name, tensor in checkpoint.net.state_dict().items():
        np.testing.assert_array_equal(tensor.numpy(), folder.tensors[name])


def test_the_newest_checkpoint_of_a_training_run(tmp_path: Path) -> None:
    for step, name in enumerate(("trained_xor", "trained_cherrypick")):
        shutil.copytree(DATA / name, tmp_path / f"latest-step{step:012d}")
    cherries = next(fixture for fixture in FIXTURES if fixture.name == "trained_cherrypick")
    assert _same(read_network(tmp_path), cherries.weights)


@pytest.mark.parametrize("fixture", FIXTURES + OPTIONS, ids=lambda fixture: fixture.name)
def test_what_is_written_is_read(fixture: Fixture, tmp_path: Path) -> None:
    write_enn_checkpoint(tmp_path / "x", fixture.weights, step=3)
    assert {path.name for path in (tmp_path / "x").iterdir()} == set(FILES)
    assert _same(read_network(tmp_path / "x"), fixture.weights)
    write_enn_checkpoint(tmp_path / "x", fixture.net().weights())
    again = read_network(tmp_path / "x")
    assert all(np.array_equal(again.tensors[k], t) for k, t in fixture.weights.tensors.items())
    # Every block repeats the tables of relative positions, like rogue-net's names.
    ours = set(msgpack.unpackb((tmp_path / "x" / FILES[2]).read_bytes(), strict_map_key=False))
    theirs = set(msgpack.unpackb((fixture.path / FILES[2]).read_bytes(), strict_map_key=False))
    assert ours == theirs
    save_checkpoint(tmp_path / "ours", fixture.net())
    assert _same(read_network(tmp_path / "ours"), again)


@pytest.mark.parametrize(
    ("entity", "action", "message"),
    [
        ("A", ContinuousActionSpace((0,), (1,)), "'act' chooses real numbers"),
        ("keys", SelectEntityActionSpace(), "a module of torch cannot have the name 'keys'"),
        ("a.b", SelectEntityActionSpace(), r"a module of torch cannot have the name 'a\.b'"),
    ],
)
def test_what_enn_trainer_does_not_know_is_not_written(
    tmp_path: Path, entity: str, action: ActionSpace, message: str
) -> None:
    net = RogueNet(ObsSpace((), {entity: Entity(("x",))}), {"act": action})
    with pytest.raises(CheckpointError, match=message):
        write_enn_checkpoint(tmp_path / "x", net.weights())
    assert not (tmp_path / "x").exists()


def test_every_name_that_modules_of_torch_refuse_is_refused(tmp_path: Path) -> None:
    for name in dir(nn.ModuleDict()):
        obs_space = ObsSpace((), {name: Entity(())})
        weights = Weights(obs_space, {}, RogueNetConfig(), {})
        with pytest.raises(CheckpointError, match="rename the entity"):
            write_enn_checkpoint(tmp_path / "x", weights)


def _edited(files: dict[str, bytes], **changes: tuple[str, str]) -> dict[str, bytes]:
    """The files with one text in a `.ron` replaced."""
    edited = dict(files)
    for file, (old, new) in changes.items():
        name = f"{file}.ron"
        assert old.encode() in edited[name]
        edited[name] = edited[name].replace(old.encode(), new.encode(), 1)
    return edited


def test_what_a_setting_that_is_left_out_meant() -> None:
    flag = "            enable_negative_distance_weight_bug: false,\n"
    values = "            per_entity_values: false,\n"

    def relpos(version: int, left_out: str) -> tuple[bool, bool]:
        old = "version: 4,", f"version: {version},"
        files = _edited(_edited(POLAR, config=old), config=(left_out, ""))
        config = config_from_ron(parse_ron(files["config.ron"], "x"), "x").relpos_encoding
        assert config is not None
        return config.enable_negative_distance_weight_bug, config.per_entity_values

    assert relpos(4, flag) == (False, False)
    assert [relpos(version, flag) for version in range(4)] == [(True, False)] * 4
    assert relpos(0, values) == (False, True)
    assert [relpos(version, values) for version in (1, 2, 3, 4)] == [(False, False)] * 4
    layers = "        n_layer: 2,\n"
    read = parse_enn_checkpoint(_edited(XOR, config=(layers, "")), "x")
    assert read.rogue_net_config().n_layer == 2
    old = _edited(_edited(XOR, config=("version: 4", "version: 1")), config=(layers, ""))
    with pytest.raises(CheckpointError, match=r"blocks\.1.* does not belong to the network"):
        parse_enn_checkpoint(old, "x")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"config": ("version: 4", "version: 5")}, "version 5 of the configuration is unknown"),
        ({"config": ("version: 4,", "")}, "needs a int under 'version'"),
        ({"config": ("net:", "nett:")}, r"expected RogueNetConfig\(…\), got a NoneType"),
        ({"config": ("pooling: None", 'pooling: "mean"')}, "prepool.bias is missing"),
        ({"config": ("pooling: None", 'pooling: "sum"')}, "pooling must be one of"),
        ({"config": ("d_qk: 16", "d_qk: 16, d_ff: 4")}, "unknown setting 'd_ff'"),
        ({"config": ("d_qk: 16", "d_qk: 16.0")}, "d_qk must be an integer"),
        ({"config": ("n_head: 2", "n_head: 3")}, "multiple of n_head"),
        (
            {"config": ("n_layer: 2", "n_layer: 2000000000")},
            "n_layer must be an integer from 0 to 1000",
        ),
        ({"config": ("d_model: 16", "d_model: 8")}, "expected"),
        ({"config": ("TrainConfig(", "[")}, "line 2, column 12: expected ','"),
        ({"state": ("<blob:msgpack>", "<blob:pickle>")}, "pickles, which could run any code"),
        ({"state": ("<blob:msgpack>", "<BLOB>")}, "save it with hyperstate 0.4"),
        ({"state": ("agent:", "agen:")}, "the agent is kept as 'None'"),
        ({"state": ("obs_space:", "obs:")}, r"expected ObsSpace\(…\)"),
        ({"state": ("action_space:", "actions:")}, "needs a dict under 'action_space'"),
        ({"state": ("GlobalCategoricalActionSpace", "Box")}, "no action space 'Box'"),
        ({"state": ('"is_set"', "3")}, "expected a name, got a int"),
        ({"state": ('"is_set"', '"is_set", "is_set"')}, "got is_set more than once"),
        ({"state": ('"Input"', '"__global__"')}, "'__global__' is reserved"),
        ({"state": ('"is_set"', '"is_set", "more"')}, r"has shape \(2,\) .*expected \(3,\)"),
    ],
)
def test_other_files_raise(changes: dict[str, tuple[str, str]], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        parse_enn_checkpoint(_edited(XOR, **changes), "x")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"relu"', '"tanh"', "value_gate must be one of"),
        ("radial: true", "radial: 1", "radial must be true or false"),
        ("radial: true", "radial: false", "extent must have length 1"),
        ("scale: 1.5", "scale: 0.0", "scale must be a number above 0"),
        ("scale: 1.5", "scale: 1e-320", "scale must be at least 1e-30"),
        ("scale: 1.5", "scales: 1.5", "unexpected keyword argument 'scales'"),
        ('"hp",', '"speed", "hp",', "needs two names"),
        ("exclude_entities: []", 'exclude_entities: ["Rock"]', "cannot run such a network"),
        ('"x",\n                "y"', '"x",\n                "hp"', "'hp' of every entity"),
        ("8,\n                6", "800000,\n                600000", "at most 1000000 are allowed"),
        ("8,\n                6", "6,\n                8", "extent_tensor is"),
    ],
)
def test_options_that_cannot_be_raise(old: str, new: str, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        parse_enn_checkpoint(_edited(POLAR, config=(old, new)), "x")


def _blob(**changes: object) -> bytes:
    """A blob with one tensor."""
    tensor: dict[bytes, object] = {
        b"__tensor__": "torch",
        b"dtype": "<f4",
        b"shape": [2],
        b"data": struct.pack("<ff", 1, 2),
    }
    tensor.update({key.encode(): value for key, value in changes.items()})
    packed: bytes = msgpack.packb({"a": {k: v for k, v in tensor.items() if v is not None}})
    return packed


def test_a_tensor_is_what_it_says() -> None:
    np.testing.assert_array_equal(read_blob(_blob(), "x")["a"], np.array([1, 2], np.float32))
    empty = read_blob(_blob(shape=[0, 3], data=b""), "x")["a"]
    assert empty.shape == (0, 3)
    scalar = read_blob(_blob(shape=[], dtype="<f8", data=struct.pack("<d", 3)), "x")["a"]
    assert (scalar.shape, float(scalar)) == ((), 3.0)


@pytest.mark.parametrize(
    ("blob", "message"),
    [
        (_blob(dtype="|O"), "|i1, |u1, got '|O'"),
        (_blob(dtype="<U2"), "expected the dtype <f2"),
        (_blob(dtype=b"<f4"), "expected the dtype <f2"),
        (_blob(dtype="<M8[s]"), "expected the dtype <f2"),
        (_blob(dtype="f4,f4"), "expected the dtype <f2"),
        (_blob(shape=[3]), "expected 12 bytes for shape (3,) of <f4, got 8"),
        (_blob(shape=[-2]), "expected a shape of integers, 0 or more, got [-2]"),
        (_blob(shape=[2.0]), "expected a shape of integers"),
        (_blob(shape=[True]), "expected a shape of integers"),
        (_blob(shape=[1] * 9), "9 exceeds max_array_len(8)"),
        (_blob(shape=[[2]]), "expected a shape of integers"),
        (_blob(shape=[2**63, 0], data=b""), "expected tensors in msgpack"),
        (_blob(shape=[2**40, 2**40, 0], data=b""), "expected tensors in msgpack"),
        (_blob(shape=2), "expected tensors in msgpack"),
        (_blob(data="text"), "and data of type str"),
        (_blob(data=None), "keys of a tensor, got [b'__tensor__', b'dtype', b'shape']"),
        (_blob(extra=1), "5 exceeds max_map_len(4)"),
        (_blob(extra=1, data=None), "expected the four keys of a tensor"),
        (_blob(__tensor__="jax"), "expected the kind torch or numpy, got 'jax'"),
        (msgpack.packb({1: {}}), "damaged: ValueError: expected a new tensor name as text, got 1"),
        (b"\x82" + _blob()[1:] * 2, "expected a new tensor name as text, got 'a'"),
        (_blob() + b"\0", "expected the end after the last tensor, got 1 more bytes"),
        (_blob()[:-1], "OutOfData"),
        (b"", "OutOfData"),
        (b"\xdf\xff\xff\xff\xff", "at most 131072 tensors, got 4294967295"),
        (b"\x91\x01", "expected tensors in msgpack"),
        (b"\x80\x04\x95", "begins like a pickle"),
        (b"\xc1", "expected tensors in msgpack"),
        (b"\x81" + msgpack.packb(msgpack.ExtType(1, b"x")), "expected tensors in msgpack"),
        (b"\x81" + b"\x91" * 100_000, "expected tensors in msgpack"),
    ],
)
def test_damaged_blobs_raise(blob: bytes, message: str) -> None:
    with pytest.raises(CheckpointError) as error:
        read_blob(blob, "some/blob")
    assert message in str(error.value)
    assert str(error.value).startswith("some/blob")
    assert len(str(error.value)) < 300


@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
        st.tuples(st.sampled_from(sorted(DTYPES)), st.lists(st.integers(0, 3), max_size=4)),
        max_size=4,
    )
)
def test_blobs_come_back(shapes: dict[str, tuple[str, list[int]]]) -> None:
    tensors: dict[str, NDArray[Any]] = {
        name: np.arange(int(np.prod(shape))).reshape(shape).astype(dtype)
        for name, (dtype, shape) in shapes.items()
    }
    for found in (
        read_blob(write_blob(tensors), "x"),
        read_safetensors(safetensors.numpy.save(dict(tensors)), "x"),
    ):
        assert set(found) == set(tensors)
        for name, tensor in tensors.items():
            assert found[name].dtype == tensor.dtype
            np.testing.assert_array_equal(found[name], tensor)
            assert not found[name].flags.writeable


def _tar(*members: tuple[str, bytes], format: int = tarfile.GNU_FORMAT) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=format) as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


@pytest.mark.parametrize("format", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT])
def test_archives_as_others_write_them(tmp_path: Path, format: int) -> None:
    for folder in ("", "latest-step000000149504/", "a/" * 60, f"{'b' * 90}/{'c' * 60}/"):
        content = _tar(*((folder + name, data) for name, data in XOR.items()), format=format)
        assert {name: bytes(data) for name, data in read_tar(content, "x").items()} == XOR
        (tmp_path / "x.roguenet").write_bytes(content)
        assert _same(read_network(tmp_path / "x.roguenet"), FIXTURES[0].weights)


def test_an_archive_as_tar_writes_it(tmp_path: Path) -> None:
    command = ["tar", "cf", str(tmp_path / "x.roguenet"), "-C", str(DATA), "trained_xor"]
    subprocess.run(command, check=True, timeout=20)
    assert _same(read_network(tmp_path / "x.roguenet"), FIXTURES[0].weights)


def _odd_member(kind: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        info = tarfile.TarInfo("state.ron")
        info.type, info.linkname = kind, "/etc/passwd"
        archive.addfile(info)
    return buffer.getvalue()


def _resized(content: bytes, size: int) -> bytes:
    """The archive with a different size in its first header, and the matching checksum."""
    header = bytearray(content[:512])
    header[124:136] = b"%011o\0" % size
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + content[512:]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (_odd_member(tarfile.SYMTYPE), "'state.ron' is not a regular file"),
        (_odd_member(tarfile.LNKTYPE), "'state.ron' is not a regular file"),
        (_odd_member(tarfile.CHRTYPE), "'state.ron' is not a regular file"),
        (_odd_member(tarfile.GNUTYPE_SPARSE), "'state.ron' is not a regular file but of type b'S'"),
        (_tar(("a/state.ron", b""), ("b/state.ron", b"")), "more than one file 'state.ron'"),
        (_tar(*((f"{i}", b"") for i in range(1001))), "more than 1000 members"),
        (_tar(("a", b"x" * 600))[:1000], "a file of 600 bytes is beyond the end"),
        (_resized(_tar(("a", b"x")), 8**11 - 1), "is beyond the end"),
        (_tar(("a", b"x"))[:1024], "empty header: the archive is incomplete"),
        (b"", "empty header: the archive is incomplete"),
        (
            b"\x1f\x8b" + bytes(600),
            "bad checksum: the archive is incomplete, or not an uncompressed",
        ),
        (b"x" * 1024, "invalid header: the archive"),
    ],
)
def test_odd_archives_raise(content: bytes, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        read_tar(content, "x.roguenet")


def test_a_sparse_file_in_the_manner_of_pax_raises() -> None:
    """Its bytes are a map of the holes, then the data between them, under a separate name."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        info = tarfile.TarInfo("GNUSparseFile.0/state.ron")
        info.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.name": "state.ron"}
        archive.addfile(info)
    with pytest.raises(CheckpointError, match=r"x.roguenet: byte 0: a sparse file: pack plain"):
        read_tar(buffer.getvalue(), "x.roguenet")


def test_missing_files_raise(tmp_path: Path) -> None:
    for name in FILES[1:]:
        shutil.copytree(DATA / "trained_xor", tmp_path / name)
        (tmp_path / name / name).unlink()
        with pytest.raises(CheckpointError, match=rf"cannot read .*{name}: No such file"):
            read_network(tmp_path / name)
    (tmp_path / "x.roguenet").write_bytes(_tar(("config.ron", b"")))
    with pytest.raises(CheckpointError, match=r"lacks state\.ron: it holds config\.ron"):
        read_network(tmp_path / "x.roguenet")
    with pytest.raises(CheckpointError, match=r"or, from enn-trainer, a folder with config\.ron"):
        read_network(tmp_path / "nothing")


SAFE = safetensors.numpy.save({"a": np.ones(3, np.float32), "b": np.zeros((2, 2), np.int64)})


def _with_header(header: str, data: bytes = b"") -> bytes:
    return struct.pack("<Q", len(header.encode())) + header.encode() + data


ENTRY = '"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}'


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\0", "more than the file (1 bytes)"),
        (SAFE[:-1], "must begin at byte"),
        (SAFE + b"\0", "1 bytes belong to no tensor"),
        (b"\xff" * 8 + SAFE[8:], "more than the file"),
        (_with_header("[]"), "the header is not a JSON object"),
        (_with_header("{"), "Expecting property name"),
        (_with_header("{" + ENTRY, b"0000"), "Expecting ',' delimiter"),
        (_with_header("{" + ENTRY + "," + ENTRY + "}", b"0000"), "a name twice"),
        (_with_header("{" + ENTRY.replace("[1]", "[2]") + "}", b"0000"), "needs 8 bytes, not 4"),
        (
            _with_header("{" + ENTRY.replace("F32", "BF16") + "}", b"0000"),
            "the dtype 'BF16' is not",
        ),
        (_with_header("{" + ENTRY.replace("[1]", "[-1]") + "}", b"0000"), "[-1] is not a shape"),
        (_with_header("{" + ENTRY.replace("[1]", "[1,,1]") + "}", b"0000"), "Expecting value"),
        (
            _with_header("{" + ENTRY.replace("[1]", f"[{'1,' * 9}1]") + "}", b"0000"),
            "is not a shape",
        ),
        (_with_header("{" + ENTRY.replace("[1]", f"[1,{'9' * 21}]") + "}", b"0000"), "needs 3999"),
        (
            _with_header("{" + ENTRY.replace("[0,4]", "[4,0]") + "}", b"0000"),
            "must begin at byte 0 and end by byte 4, got bytes 4 to 0",
        ),
        (
            _with_header("{" + ENTRY.replace("[0,4]", "[1,5]") + "}", b"00000"),
            "must begin at byte 0 and end by byte 5, got bytes 1 to 5",
        ),
        (_with_header('{"a":{}}'), "the header does not describe the tensor 'a'"),
        (_with_header('{"' + "a" * 2000 + ENTRY[2:] + "}", b"0000"), "describe the tensor 'aaaa"),
        (_with_header('{"\\q' + ENTRY[2:] + "}", b"0000"), "Invalid \\escape"),
        (_with_header("{" + "[" * 100_000), "too many brackets"),
        (struct.pack("<Q", 1) + b"\xff", "can't decode byte 0xff"),
    ],
)
def test_damaged_safetensors_raise(content: bytes, message: str) -> None:
    with pytest.raises(CheckpointError) as error:
        read_safetensors(content, "some/model.safetensors")
    assert message in str(error.value)
    assert "cannot read some/model.safetensors" in str(error.value)


def test_spaces_in_a_shape_count_for_nothing() -> None:
    for space in ("", " ", " " * 30):
        header = "{" + ENTRY.replace("[1]", f"[1,{space}1{space}]") + "}"
        assert read_safetensors(_with_header(header, b"0000"), "x")["a"].shape == (1, 1)


def test_safetensors_of_others() -> None:
    spaced = (
        ' {"__metadata__" : {"format": "pt", "x": "y"}, "b": {"dtype": "U8", "shape": [2, 1], '
        '"data_offsets": [4, 6]}, "a\\n": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]} } '
    )
    found = read_safetensors(_with_header(spaced.lstrip(), struct.pack("<f", 2) + b"\1\2"), "x")
    assert float(found["a\n"]) == 2
    np.testing.assert_array_equal(found["b"], [[1], [2]])
    assert read_safetensors(_with_header("{}  "), "x") == {}
    assert read_safetensors(_with_header('{"__metadata__":{"a":"b"}}'), "x") == {}


def _mutated(source: bytes) -> st.SearchStrategy[bytes]:
    """The source truncated, or with pieces swapped or repeated."""

    @st.composite
    def mutate(draw: st.DrawFn) -> bytes:
        content = bytearray(source)
        for _ in range(draw(st.integers(1, 4))):
            start = draw(st.integers(0, len(content)))
            stop = min(
                len(content), start + draw(st.integers(0, 64) | st.integers(0, len(content)))
            )
            piece = draw(st.binary(max_size=16) | st.just(bytes(content[start:stop]) * 2))
            content[start:stop] = piece
        return bytes(content)

    return mutate()


def _peak(read: Callable[[], object]) -> int:
    """Peak memory of reading; only our own error may be raised."""
    tracemalloc.start()
    try:
        with contextlib.suppress(CheckpointError):
            read()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


ALLOWANCE = 1 << 20
"""Bytes that reading may take even for an empty file."""
FUZZ = settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=60)


@pytest.mark.parametrize("name", FILES)
@FUZZ
@given(data=st.data())
def test_damaged_files_raise_our_error_and_nothing_else(name: str, data: st.DataObject) -> None:
    files = dict(data.draw(st.sampled_from([XOR, TINY])))
    files[name] = data.draw(_mutated(files[name]) | st.binary(max_size=200))
    size = sum(map(len, files.values()))
    assert _peak(lambda: parse_enn_checkpoint(files, "x")) < 10 * size + ALLOWANCE


@FUZZ
@given(_mutated(_tar(*((name, TINY[name]) for name in FILES))) | st.binary(max_size=2000))
def test_damaged_archives_raise_our_error_and_nothing_else(content: bytes) -> None:
    assert _peak(lambda: read_tar(content, "x")) < 10 * len(content) + ALLOWANCE


@FUZZ
@given(_mutated(SAFE) | st.binary(max_size=200))
def test_damaged_safetensors_raise_our_error_and_nothing_else(content: bytes) -> None:
    assert _peak(lambda: read_safetensors(content, "x")) < 10 * len(content) + ALLOWANCE


def _bombs() -> Iterator[tuple[str, Callable[[bytes, str], object], bytes]]:
    tiny: bytes = _blob(shape=[0], data=b"")[1:]
    many = b"\xdf" + struct.pack(">I", 40_000)
    yield (
        "tensors",
        read_blob,
        many + b"".join(tiny.replace(b"\xa1a", b"\xa4%04x" % i, 1) for i in range(40_000)),
    )
    yield "keys", read_blob, many + b"\xa1a" + b"\x84" + b"\xa1a\xc0" * 500_000
    yield "arrays", read_blob, b"\x81\xa1a\x84" + b"\xdd\xff\xff\xff\xff" * 100_000
    yield "header", read_safetensors, _with_header("{" + "[]," * 500_000 + "}")
    metadata = ",".join(f'"{i}":""' for i in range(100_000))
    yield "metadata", read_safetensors, _with_header('{"__metadata__":{' + metadata + "}}")
    entries = ",".join(
        f'"{i}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}' for i in range(20_000)
    )
    yield "entries", read_safetensors, _with_header("{" + entries + "}")
    yield "members", read_tar, _resized(_tar(("a", b"x")), 8**10)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("read", "content"),
    [pytest.param(read, content, id=name) for name, read, content in _bombs()],
)
def test_bombs_cost_little(read: Callable[[bytes, str], object], content: bytes) -> None:
    # A dictionary of short texts takes 15 times its JSON; headers are limited to 16 MiB.
    assert _peak(lambda: read(content, "x")) < 20 * len(content) + ALLOWANCE


@pytest.mark.slow
def test_the_fuzzer_reads_every_kind_and_is_not_missed() -> None:
    code = (
        "import sys; sys.modules['atheris'] = None\n"
        "import importlib.util as u; find = u.find_spec\n"
        "u.find_spec = lambda name: None if name == 'atheris' else find(name)\n"
        "import tools.fuzz_checkpoints as fuzz, tempfile, pathlib\n"
        "sys.argv = ['fuzz']\n"
        "status = fuzz.main()\n"
        "with tempfile.TemporaryDirectory() as folder:\n"
        "    fuzz.seeds(pathlib.Path(folder))\n"
        "    files = sorted(pathlib.Path(folder).iterdir())\n"
        "    with tempfile.TemporaryDirectory() as place:\n"
        "        read = fuzz.reading_in(pathlib.Path(place))\n"
        "        for file in files: read(file.read_bytes())\n"
        "sys.exit(status or len(files) < 50)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, text=True, capture_output=True, timeout=50
    )
    assert done.returncode == 0, done.stderr
    assert "atheris is not installed" in done.stdout
