"""Checkpoints load as saved, survive a kill at any moment, and report errors."""

from __future__ import annotations

import json
import math
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch

from entity_env.agents.rogue_net import (
    RogueNet,
    RogueNetConfig,
    load_checkpoint,
    save_checkpoint,
    write_enn_checkpoint,
)
from entity_env.agents.rogue_net.checkpoints import folder as checkpoint_folder
from entity_env.agents.rogue_net.checkpoints.reader import read_checkpoint
from entity_env.agents.rogue_net.checkpoints.safetensors import read_safetensors
from entity_env.agents.rogue_net.torch_net.policy import Policy
from entity_env.core.spaces import Entity, ObsSpace
from entity_env.errors import CheckpointError, UsageError
from tests.agents.rogue_net.fixtures import FIXTURES, OPTIONS, batch_of

FIXTURE = FIXTURES[0]
NET: dict[str, object] = {"d_model": 16, "n_layer": 2, "n_head": 2, "d_qk": 16}


def _net(seed: int = 0) -> RogueNet:
    torch.manual_seed(seed)
    return RogueNet(FIXTURE.obs_space, FIXTURE.action_space, RogueNetConfig(d_model=16))


def _is(net: Policy, other: Policy) -> bool:
    state = other.state_dict()
    return all(torch.equal(value, state[name]) for name, value in net.state_dict().items())


@pytest.mark.slow
def test_everything_comes_back(tmp_path: Path) -> None:
    for fixture in FIXTURES + OPTIONS:
        net, path = fixture.net(), tmp_path / "runs" / fixture.name
        save_checkpoint(path, net, training={"step": 3}, optimizer={"a.b": torch.arange(3)})
        loaded = load_checkpoint(path)
        assert _is(loaded.net, net)
        assert loaded.net.config == net.config
        assert loaded.net.obs_space == net.obs_space
        assert loaded.net.action_space == net.action_space
        assert list(loaded.net.obs_space.entities) == list(net.obs_space.entities)
        assert loaded.training == {"step": 3}
        assert loaded.optimizer["a.b"].tolist() == [0, 1, 2]
        batch = batch_of(fixture, fixture.cases())
        np.testing.assert_array_equal(loaded.net.values(batch), net.values(batch))


def test_a_run_s_folder_will_do_and_nothing_else_is_left(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "checkpoint", _net())
    save_checkpoint(tmp_path / "checkpoint", _net(1))
    assert _is(load_checkpoint(tmp_path).net, _net(1))
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]
    assert {path.name for path in (tmp_path / "checkpoint").iterdir()} == {
        "config.json",
        "model.safetensors",
    }


FILE_OPERATIONS = (
    (Path, "mkdir"),
    (Path, "unlink"),
    (os, "replace"),
    (os, "fsync"),
)
"""All operations that change a folder while a checkpoint is saved."""


class Kill(BaseException):
    """The process is killed here."""


def _killed_at(monkeypatch: pytest.MonkeyPatch, call: int, after: bool) -> Callable[[], int]:
    """Kills at the n-th file operation, before or after it happens."""
    count = 0

    def dying(operation: Callable[..., object]) -> Callable[..., object]:
        def run(*args: object, **kwargs: object) -> object:
            nonlocal count
            count += 1
            if count > call or (count == call and not after):
                raise Kill  # code that runs during unwinding has no effect either
            result = operation(*args, **kwargs)
            if count == call:
                raise Kill
            return result

        return run

    for where, name in FILE_OPERATIONS:
        monkeypatch.setattr(where, name, dying(getattr(where, name)))
    return lambda: count


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True])
def test_a_kill_at_any_moment_leaves_a_checkpoint(tmp_path: Path, after: bool) -> None:
    """Also after a second kill during the next save, followed by a successful save."""
    call = 0
    while True:
        call += 1
        path = tmp_path / f"{call}"
        save_checkpoint(path, _net(0), optimizer={"x": torch.zeros(1)})
        for seed in (1, 2):
            with pytest.MonkeyPatch.context() as patch:
                made = _killed_at(patch, call, after)
                try:
                    save_checkpoint(path, _net(seed), optimizer={"x": torch.zeros(1)})
                except Kill:
                    pass
                else:
                    assert call > made() > 5
                    return
            net = load_checkpoint(path).net
            assert any(_is(net, _net(previous)) for previous in range(seed + 1))
        save_checkpoint(path, _net(3))
        assert _is(load_checkpoint(path).net, _net(3))


def test_a_full_disk_leaves_the_last_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "checkpoint"
    save_checkpoint(path, _net(0))

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        save_checkpoint(path, _net(1))
    assert _is(load_checkpoint(path).net, _net(0))


def tree(folder: Path) -> dict[str, bytes]:
    """All files below a folder, with their content."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_files_of_others_in_a_checkpoint_stay(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    save_checkpoint(path, _net(), optimizer={"x": torch.zeros(1)})
    mine = {"notes.txt": b"mine", "epoch_17/model.pt": b"weeks", "model.safetensors.new": b"old"}
    for folder in (path, tmp_path / "checkpoint.old", tmp_path / "checkpoint.new"):
        for name, content in mine.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
    save_checkpoint(path, _net(1))
    assert _is(load_checkpoint(path).net, _net(1))
    assert load_checkpoint(path).optimizer == {}
    after = tree(path)
    assert set(after) == {"config.json", "model.safetensors", *mine}
    assert mine.items() <= after.items()
    assert tree(tmp_path / "checkpoint.old") == tree(tmp_path / "checkpoint.new") == mine


@pytest.mark.parametrize(
    "theirs",
    [
        {"epoch_17/model.pt": b"weeks of work"},
        {"notes.txt": b""},
        {"config.json": b'{"model_type": "bert"}', "model.safetensors": b"x"},
        {"config.json": b"", "notes.txt": b""},
        {"model.safetensors": b"x"},
        {"config.json.new": b"x"},
    ],
)
def test_a_folder_that_is_no_checkpoint_is_refused_and_stays(
    tmp_path: Path, theirs: dict[str, bytes]
) -> None:
    path = tmp_path / "home"
    for name, content in theirs.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)
    with pytest.raises(UsageError, match=r"is not a checkpoint but holds .*move") as error:
        save_checkpoint(path, _net())
    assert "\n" not in str(error.value)
    assert tree(tmp_path / "home") == theirs
    with pytest.raises(UsageError, match="is not a checkpoint but holds"):
        write_enn_checkpoint(path, _net().weights())
    assert tree(tmp_path / "home") == theirs


def test_files_and_links_in_the_place_of_a_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError, match="is a file"):
        save_checkpoint(tmp_path / "file", _net())
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    with pytest.raises(UsageError, match=r"symbolic link to .*nowhere, which does not exist"):
        save_checkpoint(tmp_path / "dangling", _net())
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    for seed in (0, 1):
        save_checkpoint(tmp_path / "link", _net(seed))
    assert (tmp_path / "link").is_symlink()
    assert _is(load_checkpoint(tmp_path / "disk").net, _net(1))


def test_here_and_the_root_are_folders_like_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_checkpoint(tmp_path / "checkpoint", _net())
    monkeypatch.chdir(tmp_path)
    assert _is(load_checkpoint(".").net, _net())
    monkeypatch.chdir(tmp_path / "checkpoint")
    assert _is(load_checkpoint("").net, _net())
    assert _is(load_checkpoint("..").net, _net())
    with pytest.raises(CheckpointError, match="no checkpoint at"):
        load_checkpoint("/")
    for nothing in ("/", "x" * 5000, "a\0b"):
        with pytest.raises(CheckpointError, match="no checkpoint at"):
            checkpoint_folder.find_checkpoint(Path(nothing))


def test_a_checkpoint_of_release_1_0_is_read_and_replaced(tmp_path: Path) -> None:
    """Its `config.json` names no save; a kill has left it under a different name."""
    save_checkpoint(tmp_path / "c", _net(), optimizer={"x": torch.zeros(1)})
    _edit(tmp_path / "c", lambda data: data.pop("save"))
    assert set(load_checkpoint(tmp_path / "c").optimizer) == {"x"}
    (tmp_path / "c").rename(tmp_path / "c.old")
    assert _is(load_checkpoint(tmp_path / "c").net, _net())
    save_checkpoint(tmp_path / "c", _net(1))
    assert _is(load_checkpoint(tmp_path / "c").net, _net(1))
    save_checkpoint(tmp_path / "c.old", _net(2))
    assert load_checkpoint(tmp_path / "c.old").optimizer == {}


@pytest.mark.parametrize(
    "save",
    [
        {"id": "../../x", "files": ["model.safetensors"]},
        {"id": "0" * 16, "files": ["../model.safetensors"]},
        {"id": 3, "files": []},
        {"id": "0" * 16, "files": 3},
        ["0" * 16],
        "0" * 16,
    ],
)
def test_an_id_that_is_none_raises(tmp_path: Path, save: object) -> None:
    save_checkpoint(tmp_path / "c", _net())
    _edit(tmp_path / "c", lambda data: data.update(save=save))
    with pytest.raises(CheckpointError, match='expected "save" with an "id"'):
        load_checkpoint(tmp_path / "c")


def test_readers_and_writers_at_once(tmp_path: Path) -> None:
    """Readers always find one complete save."""
    path, is_over = tmp_path / "c", threading.Event()
    save_checkpoint(path, _net(), training={"n": 0}, optimizer={"n": torch.tensor([0.0])})

    def write(first: int) -> None:
        number = first
        while not is_over.is_set():
            number += 2
            n = torch.tensor([float(number)])
            save_checkpoint(path, _net(), training={"n": number}, optimizer={"n": n})

    with ThreadPoolExecutor(2) as pool:
        writers = [pool.submit(write, first) for first in (0, 1)]
        try:
            for _ in range(100):
                header, files = read_checkpoint(path, "model.safetensors", "optimizer.safetensors")
                tensors = read_safetensors(files["optimizer.safetensors"], "optimizer")
                assert tensors["n"] == [header.training["n"]]
        finally:
            is_over.set()
        for writer in writers:
            writer.result()
    assert {each.name for each in path.iterdir()} == {
        "config.json",
        "model.safetensors",
        "optimizer.safetensors",
    }


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "optimizer.safetensors"])
@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
def test_truncated_files_raise(tmp_path: Path, name: str, share: float) -> None:
    save_checkpoint(tmp_path / "c", _net(), optimizer={"x": torch.zeros(100)})
    file = tmp_path / "c" / name
    file.write_bytes(file.read_bytes()[: int(share * file.stat().st_size)])
    with pytest.raises(CheckpointError, match=f"cannot read .*{name}"):
        load_checkpoint(tmp_path / "c")


def test_missing_files_raise(tmp_path: Path) -> None:
    with pytest.raises(
        CheckpointError, match=r"no checkpoint at .*nowhere: the path does not exist"
    ):
        load_checkpoint(tmp_path / "nowhere")
    with pytest.raises(CheckpointError, match="holds none"):
        load_checkpoint(tmp_path)
    save_checkpoint(tmp_path / "c", _net())
    (tmp_path / "c" / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"cannot read .*model\.safetensors.*copy the whole"):
        load_checkpoint(tmp_path / "c")


def _edit(path: Path, change: Callable[[dict[str, object]], object]) -> None:
    data = json.loads((path / "config.json").read_text())
    change(data)
    (path / "config.json").write_text(json.dumps(data))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "is not a checkpoint of entity_env"),
        ({"version": 99}, "version 99 of the format, expected 1"),
        ({"version": None}, "version None"),
        (
            {"net": {"d_model": 16}},
            "needs d_model, d_qk, n_head, n_layer and may have .*; got d_model",
        ),
        ({"net": 3}, "the network needs d_model"),
        (
            {"net": NET | {"d_ff": 3}},
            r"may have dropout, memory, pooling, relpos_encoding, .*; got .*d_ff",
        ),
        ({"net": NET | {"translation": {"reference_entity": "Input"}}}, "position_features"),
        (
            {"net": NET | {"translation": {"reference_entity": "X", "position_features": []}}},
            "the entity 'X', expected one of Input, __global__",
        ),
        (
            {"net": NET | {"d_model": 15}},
            "d_model must be a multiple of n_head",
        ),
        ({"net": NET | {"d_model": "16"}}, "must be an integer"),
        ({"spaces": {}}, "need a list under"),
        ({"spaces": {"global_features": [], "entities": [], "actions": []}}, "no entity"),
        ({"training": []}, 'an object under "training"'),
    ],
)
def test_other_descriptions_raise(tmp_path: Path, change: dict[str, object], message: str) -> None:
    save_checkpoint(tmp_path / "c", _net())
    _edit(tmp_path / "c", lambda data: data.update(change))
    with pytest.raises(CheckpointError, match=message):
        load_checkpoint(tmp_path / "c")


def test_tensors_that_do_not_fit_raise(tmp_path: Path) -> None:
    path = tmp_path / "c"
    save_checkpoint(path, _net())
    _edit(path, lambda data: data.update(net={"d_model": 8, "n_layer": 2, "n_head": 2, "d_qk": 16}))
    with pytest.raises(CheckpointError, match=r"has shape \(.*16.*expected \(.*and \d+ more"):
        load_checkpoint(path)
    save_checkpoint(path, _net())
    tensors = safetensors.torch.load_file(path / "model.safetensors")
    tensors["extra"] = tensors.pop("auxiliary_heads.value.bias")
    tensors["auxiliary_heads.value.weight"] = tensors["auxiliary_heads.value.weight"].double()
    safetensors.torch.save_file(tensors, path / "model.safetensors")
    with pytest.raises(CheckpointError) as error:
        load_checkpoint(path)
    assert "auxiliary_heads.value.bias is missing" in str(error.value)
    assert "extra does not belong to the network" in str(error.value)
    assert "of float64, expected (1, 16) of float32" in str(error.value)


def test_numbers_that_are_not_finite_raise(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, _net())
    tensors = safetensors.torch.load_file(tmp_path / "model.safetensors")
    next(iter(tensors.values())).fill_(float("nan"))
    safetensors.torch.save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match="holds numbers that are not finite"):
        load_checkpoint(tmp_path)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_not_finite_replace_no_checkpoint(tmp_path: Path, value: float) -> None:
    save_checkpoint(tmp_path, _net(1), optimizer={"x": torch.zeros(3)})
    bad = _net()
    with torch.no_grad():
        next(bad.parameters()).view(-1)[-1] = value
    with pytest.raises(CheckpointError, match=r"nothing was written"):
        save_checkpoint(tmp_path, bad)
    with pytest.raises(CheckpointError, match=r"'x' of optimizer\.safetensors"):
        save_checkpoint(tmp_path, _net(), optimizer={"x": torch.tensor([0.0, value])})
    assert _is(load_checkpoint(tmp_path).net, _net(1))


def test_what_cannot_be_read_again_replaces_no_checkpoint(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, _net())
    obs_space = ObsSpace((), {"a" * 2000: Entity(("x",))})
    long = RogueNet(obs_space, FIXTURE.action_space, RogueNetConfig(d_model=16))
    with pytest.raises(CheckpointError, match=r"could not be read again: .*; nothing was written"):
        save_checkpoint(tmp_path, long)
    with pytest.raises(CheckpointError, match=r"are too many.*; nothing was written"):
        save_checkpoint(tmp_path / "new", _net(), training={"x": "x" * (5 << 20)})
    assert not (tmp_path / "new").exists()
    assert _is(load_checkpoint(tmp_path).net, _net())


def test_a_description_that_is_a_bomb_is_refused(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, _net())
    for bomb in (b"[" * 100_000, b"[" + b"[]," * 50_000 + b"[]]", b" " * (5 << 20)):
        (tmp_path / "config.json").write_bytes(bomb)
        with pytest.raises(CheckpointError, match=r"cannot read .*are too many"):
            load_checkpoint(tmp_path)


def test_no_pickle(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "c", _net(), optimizer={"x": torch.zeros(1)})
    for path in (tmp_path / "c").iterdir():
        assert path.suffix in {".json", ".safetensors"}
    torch.save({"a": torch.zeros(1)}, tmp_path / "c" / checkpoint_folder.MODEL)
    with pytest.raises(CheckpointError, match="cannot read"):
        load_checkpoint(tmp_path / "c")


def test_a_given_network_gets_the_tensors(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, _net(1))
    mine = _net(2)
    assert load_checkpoint(tmp_path, policy=mine).net is mine
    assert _is(mine, _net(1))


def test_a_given_network_of_another_size_is_refused(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, _net(1))
    net = _net()
    other = RogueNet(net.obs_space, net.action_space, replace(net.config, d_model=64))
    with pytest.raises(CheckpointError, match="its d_model is"):
        load_checkpoint(tmp_path, policy=other)
    other = RogueNet(net.obs_space, {}, net.config)
    with pytest.raises(CheckpointError, match="does not fit the network"):
        load_checkpoint(tmp_path, policy=other)


def test_only_missing_files_are_called_missing(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, _net())
    model = tmp_path / "model.safetensors"
    model.unlink()
    with pytest.raises(CheckpointError, match="copy the whole folder"):
        load_checkpoint(tmp_path)
    model.mkdir()
    with pytest.raises(CheckpointError, match="cannot read") as caught:
        load_checkpoint(tmp_path)
    assert "copy the whole folder" not in str(caught.value)
