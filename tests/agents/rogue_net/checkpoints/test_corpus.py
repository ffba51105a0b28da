"""Files that once broke a reader, decompression bombs, non-files: one clear error each."""

import io
import json
import os
import re
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from entity_env.agents import load_agent
from entity_env.agents.rogue_net import RogueNet, RogueNetConfig, load_checkpoint, read_network
from entity_env.cli.commands.capture_goal import _read_keys
from entity_env.core.files import parse_json, read_file
from entity_env.core.spaces import Entity, ObsSpace, SelectEntityActionSpace
from entity_env.errors import EntityEnvError, SchemaError, UsageError, shown
from entity_env.games.pixel.reward.goal_files import load_goal
from entity_env.games.pixel.worlds.machines import read_rom
from tests.helpers.readers import CORPUS, GOOD, READERS, limits

BROKEN = CORPUS / "broken"
EXPECTED: dict[str, str] = json.loads((BROKEN / "expected.json").read_text())
MOST_BYTES = 300_000


@pytest.mark.parametrize("name", READERS)
def test_good_files_are_read(name: str, tmp_path: Path) -> None:
    for seed in READERS[name].seeds:
        READERS[name].read(seed, tmp_path)


@pytest.mark.parametrize("name", EXPECTED)
def test_what_broke_a_reader_is_refused(name: str, tmp_path: Path) -> None:
    reader = READERS[name.partition("/")[0]]
    with limits(), pytest.raises(reader.error) as error:
        reader.read((BROKEN / name).read_bytes(), tmp_path)
    assert re.search(EXPECTED[name], str(error.value))
    assert len(str(error.value)) < 1000


def test_the_corpus_is_small_and_whole() -> None:
    files = [path for path in CORPUS.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < MOST_BYTES
    broken = {str(path.relative_to(BROKEN)) for path in BROKEN.glob("*/*")}
    assert broken == set(EXPECTED)


def _config(**changes: object) -> bytes:
    data = json.loads((GOOD / "checkpoint" / "config.json").read_text())
    data["spaces"] |= changes
    return json.dumps(data).encode()


def _npz(size: int, declared: int | None = None) -> bytes:
    """An archive with one array of zeros, which may declare a wrong size."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("memory.npy", bytes(size))
    content = bytearray(file.getvalue())
    if declared is not None:
        for place in (22, content.index(b"PK\1\2") + 24):
            content[place : place + 4] = declared.to_bytes(4, "little")
    return bytes(content)


def _names(count: int) -> list[str]:
    return [f"{i:x}" for i in range(count)]


def _entities(count: int) -> list[dict[str, object]]:
    return [{"name": name, "features": [], "note": "x" * 60} for name in _names(count)]


BOMBS: dict[str, tuple[str, Callable[[], bytes], str]] = {
    "features of every entity, the global ones too": (
        "config.json",
        lambda: _config(global_features=_names(50_000), entities=_entities(5000)),
        "a network reads at most 1048576",
    ),
    "many names that must differ": (
        "config.json",
        lambda: _config(entities=[{"name": "a", "features": [*_names(300_000), "0"]}]),
        "features must differ: got 0 more than once",
    ),
    "a label that no network has room for": (
        "config.json",
        lambda: _config(
            actions=[{"name": str(i), "kind": "select_entity", "x": "x" * 40} for i in range(9000)]
        ),
        "does not match config.json: .* more$",
    ),
    "a description of spaces": ("config.json", lambda: b" " * (5 << 20), "bytes are too many"),
    "an archive of zeros": ("start.npz", lambda: _npz(64 << 20), "at most 64 of 8388608"),
    "an archive that says less": ("start.npz", lambda: _npz(64 << 20, 100), "cannot be read"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BOMBS)
def test_bombs_are_refused(name: str, tmp_path: Path) -> None:
    kind, make, message = BOMBS[name]
    content = make()
    if not message:
        assert READERS[kind].read(content, tmp_path) == []  # truncated by a crash: left out
        return
    with limits(), pytest.raises(READERS[kind].error) as error:
        READERS[kind].read(content, tmp_path)
    assert re.search(message, str(error.value))


def _checkpoint_with(folder: Path) -> Iterator[Path]:
    for name in ("checkpoint", "goal"):
        (folder / name).mkdir()
        for file in (GOOD / name).iterdir():
            (folder / name / file.name).write_bytes(file.read_bytes())
    yield folder


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield from _checkpoint_with(tmp_path)


FILES: dict[str, Callable[[Path], object]] = {
    "checkpoint/config.json": lambda path: load_agent(path.parent),
    "checkpoint/model.safetensors": lambda path: read_network(path.parent),
    "checkpoint/optimizer.safetensors": lambda path: load_checkpoint(path.parent),
    "net.agent": load_agent,
    "run/config.ron": lambda path: load_agent(path.parent),
    "net.roguenet": load_agent,
    "goal/goal.json": lambda path: load_goal(path.parent),
    "goal/goal.npy": lambda path: load_goal(path.parent),
    "goal/start.npz": lambda path: load_goal(path.parent),
    "game.ch8": read_rom,
    "keys.txt": lambda path: _read_keys("--keys", str(path)),
}


def _make_fifo(path: Path) -> None:
    os.mkfifo(path)


def _make_link_to_zeros(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _make_link_to_nothing(path: Path) -> None:
    path.symlink_to("nowhere")


def _make_folder(path: Path) -> None:
    path.mkdir()


def _make_sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 50 << 30)


@pytest.mark.parametrize(
    "make", [_make_fifo, _make_link_to_zeros, _make_link_to_nothing, _make_folder, _make_sparse]
)
@pytest.mark.parametrize("name", FILES)
def test_what_is_no_file_of_that_kind_is_refused(
    folder: Path, name: str, make: Callable[[Path], None]
) -> None:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    make(path)
    with limits():
        if name == "checkpoint/optimizer.safetensors" and make is _make_link_to_nothing:
            FILES[name](path)  # as if it were missing
            return
        with pytest.raises(EntityEnvError):
            FILES[name](path)


def test_links_to_files_are_followed(folder: Path) -> None:
    for path in (folder / "checkpoint").iterdir():
        path.rename(folder / path.name)
        path.symlink_to(folder / path.name)
    read_network(folder / "checkpoint")


def test_a_file_longer_than_expected_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert read_file(path, 5) == b"12345"
    with pytest.raises(OSError, match="5 bytes are too many, at most 4 are read"):
        read_file(path, 4)
    with pytest.raises(OSError, match="expected a regular file, got a folder"):
        read_file(tmp_path, 4)
    with pytest.raises(OSError, match="expected a regular file, got a device"):
        read_file(Path("/dev/null"), 4)


def test_json_that_is_too_deep_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_json(b"[" * 5000 + b" " * 200_000 + b"]" * 5000)


def test_values_in_messages_are_cut() -> None:
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    assert shown("a" * 10**6) == f"'{'a' * 79}…"
    assert (shown(deep), shown(10**5000)) == ("a value of type list", "a value of type int")
    assert (shown([1, "x"]), shown(None)) == ("[1, 'x']", "None")


def test_a_network_that_is_too_large_is_never_made() -> None:
    space, actions = ObsSpace((), {"A": Entity(("x",))}), {"aim": SelectEntityActionSpace()}
    with limits():
        with pytest.raises(UsageError, match="more than 268435456 parameters"):
            RogueNetConfig(d_model=1 << 16, n_layer=1)
        with pytest.raises(
            SchemaError, match=r"would have .* parameters, but at most 268435456 are allowed"
        ):
            RogueNet(space, actions, RogueNetConfig(d_model=1 << 16, n_layer=0, d_qk=1 << 16))
