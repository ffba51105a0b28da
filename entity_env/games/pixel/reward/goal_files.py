"""Captured goals: capture, and storage in folders of `goal.npy`, `start.npz` and `goal.json`.

`goal.npy` holds the goal's screen, (H, W) uint8 in 0..3; `start.npz` the whole state of a machine
at the start, by name; `goal.json` the settings, buttons and hashes. Equal ROM, settings and keys
give identical bytes.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path
from typing import Any, Final, Literal
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from entity_env.core.files import parse_json, read_file
from entity_env.errors import EntityEnvError, SchemaError, UsageError, shown
from entity_env.games.pixel.reward.reward import (
    NUM_SHADES,
    PIXEL_RANGE,
    Goal,
    Metric,
    Tau,
    distance_sum,
    exact_tau,
)
from entity_env.games.pixel.worlds.machines import (
    GameBoyMachine,
    Machine,
    State,
    XoChipMachine,
    blamed_on,
    state_of,
)
from entity_env.games.pixel.worlds.world import Button, World, format_keys, parse_keys


@dataclass(frozen=True, slots=True, eq=False)
class Captured:
    """A start, a goal, and the buttons between them.

    Attributes:
        start_keys: buttons held from power-on to the start, one step each.
        keys: buttons held from the start to the goal, at least one.
        start: whole state at the start.
        start_pixels: (H, W) uint8 in 0..3, screen at the start.
        goal: the goal, on the CPU.
        sums: distances from the goal: of the start, then after each of `keys`.
        kept_by: buttons that keep the screen matching for one more step; relevant because an
            episode ends after several consecutive matches.
    """

    machine: Machine
    start_keys: tuple[Button, ...]
    keys: tuple[Button, ...]
    start: State
    start_pixels: NDArray[np.uint8]
    goal: Goal
    sums: tuple[int, ...]
    kept_by: tuple[Button, ...]


def capture(
    rom: bytes,
    machine: Machine,
    start_keys: Sequence[Button],
    keys: Sequence[Button],
    *,
    tau: Tau = 0.05,
    metric: Metric = "absolute",
) -> Captured:
    """Runs a machine from power-on, and records the start and the last screen.

    The keys are run twice: for the goal, then for the distances on the way. Then each button is
    tried for one more step.
    """
    if not keys:
        raise UsageError("keys: expected at least one button from the start to the goal, got none")
    world = machine.world(rom, 1)
    try:
        _hold(world, start_keys)
        world.snapshot(0, 0)
        start, start_pixels = state_of(world), screen_of(world)
        _hold(world, keys)
        goal = Goal(screen_of(world), tau, metric)
        _restore(world)
        sums = (_sum(start_pixels, goal), *_sums_along(world, keys, goal))
        kept_by = tuple(_keeping(world, goal))
    finally:
        world.close()
    if sums[0] < goal.threshold:
        raise UsageError(
            f"the start matches the goal already (distance {sums[0]}, a match is below "
            f"{goal.threshold} for tau {tau}): choose other keys, or a smaller tau"
        )
    return Captured(
        machine=machine,
        start_keys=tuple(start_keys),
        keys=tuple(keys),
        start=start,
        start_pixels=start_pixels.numpy(),
        goal=goal,
        sums=sums,
        kept_by=kept_by,
    )


def screen_of(world: World) -> Tensor:
    """Screen of a world's first machine, (H, W) uint8 in 0..3; a copy on the CPU."""
    shape = (world.num_envs, world.height, world.width)
    pixels = torch.zeros(shape, dtype=torch.uint8, device=world.device)
    world.render(pixels)
    return pixels[0].cpu().clone()


def _hold(world: World, buttons: Sequence[Button]) -> None:
    for button in buttons:
        world.step(torch.full((1,), button.value, dtype=torch.int32))


def _sums_along(world: World, keys: Sequence[Button], goal: Goal) -> Iterator[int]:
    for button in keys:
        _hold(world, (button,))
        yield _sum(screen_of(world), goal)


def _keeping(world: World, goal: Goal) -> Iterator[Button]:
    world.snapshot(0, 0)
    for button in Button:
        _restore(world)
        if next(_sums_along(world, (button,), goal)) < goal.threshold:
            yield button


def _restore(world: World) -> None:
    world.reset(torch.ones(1, dtype=torch.bool), torch.zeros(1, dtype=torch.int32))


def _sum(pixels: Tensor, goal: Goal) -> int:
    return int(distance_sum(pixels[None], goal))


SCHEMA_VERSION: Final = 1
_MAX_META: Final = 16 << 20
"""Maximum bytes of `goal.json`; a million keys take six million."""
_MAX_STATE: Final = 8 << 20
"""Maximum bytes of `goal.npy`, and of all arrays in `start.npz`; a Game Boy needs under a
million."""
_MAX_ARRAYS: Final = 64
_NPY: Final = re.compile(
    rb"\x93NUMPY\x01\x00(?P<length>..)\{'descr': '(?P<dtype>[|<][biuf][1248])', "
    rb"'fortran_order': (?P<is_fortran>True|False), "
    rb"'shape': \((?P<shape>(?:[1-9][0-9]{0,9},? ?){0,8})\), \} *\n",
    re.DOTALL,
)
"""Header that `np.save` writes for numbers; numpy evaluates it as a Python literal."""
_MACHINES: Final[Mapping[str, type[XoChipMachine] | type[GameBoyMachine]]] = {
    XoChipMachine.kind: XoChipMachine,
    GameBoyMachine.kind: GameBoyMachine,
}


@dataclass(frozen=True, slots=True, eq=False)
class GoalFile:
    """Validated contents of a folder.

    Attributes:
        start: whole state at the start.
        goal: the goal, on the CPU.
        start_sum: distance of the start from the goal.
    """

    folder: Path
    machine: Machine
    rom_sha256: str
    start: State
    goal: Goal
    start_sum: int

    def world(self, rom: bytes, num_envs: int, *, device: str = "cpu") -> World:
        """Machines in the state at the start, which also fills the bank."""
        found = _sha256(rom)
        if found != self.rom_sha256:
            raise UsageError(
                f"{self.folder} was captured from another ROM: expected SHA-256 "
                f"{self.rom_sha256}, got {found}"
            )
        with blamed_on(self.folder / "start.npz"):  # the ROM is unchanged: the file is at fault
            world = self.machine.world(rom, num_envs, start=self.start, device=device)
        shown = screen_of(world)
        same = shown.shape == self.goal.pixels.shape
        if not same or int(distance_sum(shown[None], self.goal)) != self.start_sum:
            world.close()
            raise UsageError(
                f"{self.folder}: its start does not show what was captured, so another version of "
                "the machine wrote it: capture the goal again"
            )
        return world


def save_goal(captured: Captured, rom: bytes, rom_name: str, folder: Path) -> None:
    """Writes a folder atomically, and only if `load_goal` will accept it."""
    meta = _meta(captured, rom, rom_name)
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise UsageError(f"{folder} already exists: remove it, or choose another --out")
        folder.parent.mkdir(parents=True, exist_ok=True)
        part = folder.parent / f".{folder.name}.{os.getpid()}.part"
        try:
            part.mkdir()
            np.save(part / "goal.npy", captured.goal.pixels.numpy())
            arrays: dict[str, Any] = dict(captured.start)
            np.savez_compressed(part / "start.npz", **arrays)
            (part / "goal.json").write_text(json.dumps(meta, indent=2) + "\n", encoding="utf-8")
            load_goal(part)
            part.replace(folder)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    except OSError as error:
        raise UsageError(f"{folder} cannot be written: {error.strerror}") from error


def load_goal(folder: Path) -> GoalFile:
    """Reads a folder, with every check that does not need the ROM."""
    meta = _read_meta(folder / "goal.json")
    try:
        machine = _machine(meta)
        pixels = _read_array(folder / "goal.npy")
        goal = Goal(
            torch.from_numpy(pixels), exact_tau(str(meta["tau"])), _metric(str(meta["metric"]))
        )
    except EntityEnvError as error:
        raise UsageError(f"{folder}: {error}") from error
    if goal.pixels.shape != (meta["height"], meta["width"]):
        raise UsageError(
            f"{folder}: goal.npy is {tuple(goal.pixels.shape)}, goal.json says "
            f"{(meta['height'], meta['width'])}"
        )
    start = _read_state(folder / "start.npz")
    for name, found in (("goal", _sha256(pixels.tobytes())), ("start", _state_sha256(start))):
        if found != meta[f"{name}_sha256"]:
            raise UsageError(
                f"{folder}: {name} is not what goal.json was written with: expected SHA-256 "
                f"{meta[f'{name}_sha256']}, got {found}"
            )
    start_sum = meta["start_distance"]
    if not isinstance(start_sum, int) or start_sum < goal.threshold:
        raise UsageError(
            f"{folder / 'goal.json'}: start_distance {start_sum} is below {goal.threshold}, so "
            f"with tau {meta['tau']} the start matches the goal already"
        )
    return GoalFile(folder, machine, str(meta["rom_sha256"]), start, goal, start_sum)


def _meta(captured: Captured, rom: bytes, rom_name: str) -> dict[str, object]:
    goal, machine = captured.goal, captured.machine
    height, width = goal.pixels.shape
    return {
        "schema_version": SCHEMA_VERSION,
        "machine": machine.kind,
        "settings": asdict(machine),
        "rom": rom_name,
        "rom_sha256": _sha256(rom),
        "start_keys": format_keys(captured.start_keys),
        "keys": format_keys(captured.keys),
        "height": height,
        "width": width,
        "shades": NUM_SHADES,
        "metric": goal.metric,
        "tau": str(goal.tau),
        "start_distance": captured.sums[0],
        "largest_distance": PIXEL_RANGE[goal.metric] * height * width,
        "goal_sha256": _sha256(goal.pixels.numpy().tobytes()),
        "start_sha256": _state_sha256(captured.start),
    }


def _is_count(value: object) -> bool:
    return type(value) is int and 1 <= value < 2**31


def _is_hash(value: object) -> bool:
    return isinstance(value, str) and len(value) == 64 and not set(value) - set("0123456789abcdef")


def _is_tau(value: object) -> bool:
    try:
        return isinstance(value, str) and exact_tau(value) > 0
    except SchemaError:
        return False


def _is_keys(value: object) -> bool:
    try:
        return isinstance(value, str) and parse_keys(value) is not None
    except UsageError:
        return False


_FIELDS: Final[Mapping[str, tuple[str, Callable[[object], bool]]]] = {
    "schema_version": (str(SCHEMA_VERSION), lambda v: type(v) is int and v == SCHEMA_VERSION),
    "machine": (" or ".join(_MACHINES), lambda v: isinstance(v, str) and v in _MACHINES),
    "settings": ("an object", lambda v: isinstance(v, dict)),
    "rom": ("a name", lambda v: isinstance(v, str)),
    "rom_sha256": ("64 hexadecimal digits", _is_hash),
    "start_keys": ("buttons such as RIGHT*3", _is_keys),
    "keys": ("buttons such as RIGHT*3", lambda v: v != "" and _is_keys(v)),
    "height": ("a whole number above 0", _is_count),
    "width": ("a whole number above 0", _is_count),
    "shades": (str(NUM_SHADES), lambda v: type(v) is int and v == NUM_SHADES),
    "metric": (" or ".join(PIXEL_RANGE), lambda v: isinstance(v, str) and v in PIXEL_RANGE),
    "tau": ("a number above 0 as text", _is_tau),
    "start_distance": ("a whole number above 0", _is_count),
    "largest_distance": ("a whole number above 0", _is_count),
    "goal_sha256": ("64 hexadecimal digits", _is_hash),
    "start_sha256": ("64 hexadecimal digits", _is_hash),
}
"""Fields of `goal.json`: the expected value as text, and its check."""


def _read_meta(path: Path) -> dict[str, object]:
    try:
        meta = parse_json(read_file(path, _MAX_META))
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read ({error.strerror}): a goal is a folder that "
            "entity-env capture-goal wrote"
        ) from error
    except ValueError as error:  # also for text that is not UTF-8
        raise UsageError(f"{path} is not JSON: {error}") from error
    if not isinstance(meta, dict):
        raise UsageError(f"{path}: expected an object, got {type(meta).__name__}")
    for name, (expected, is_right) in _FIELDS.items():
        if name not in meta:
            raise UsageError(f"{path}: the field {name} is missing: expected {expected}")
        if not is_right(meta[name]):
            raise UsageError(f"{path}: {name}: expected {expected}, got {shown(meta[name])}")
    unknown = sorted(set(meta) - set(_FIELDS))
    if unknown:
        raise UsageError(f"{path}: unknown fields {', '.join(unknown)[:200]}")
    height, width = meta["height"], meta["width"]
    largest = PIXEL_RANGE[_metric(str(meta["metric"]))] * int(str(height)) * int(str(width))
    if meta["largest_distance"] != largest:
        raise UsageError(
            f"{path}: largest_distance: expected {largest} of {height} x {width} pixels, got "
            f"{meta['largest_distance']}"
        )
    return meta


def _machine(meta: Mapping[str, object]) -> Machine:
    kind, settings = _MACHINES[str(meta["machine"])], meta["settings"]
    expected = asdict(kind())
    if not isinstance(settings, dict) or set(settings) != set(expected):
        raise UsageError(f"settings: expected {', '.join(expected)}, got {shown(settings)}")
    for name, default in expected.items():
        if type(settings[name]) is not type(default):
            raise UsageError(
                f"settings: {name}: expected {type(default).__name__}, got {shown(settings[name])}"
            )
    return kind(**settings)


def _metric(name: str) -> Metric:
    return "squared" if name == "squared" else "absolute"


def _read_array(path: Path) -> NDArray[np.uint8]:
    try:
        array = _parse_npy(read_file(path, _MAX_STATE))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path.name} cannot be read: {error}") from error
    if array.dtype != np.uint8 or array.ndim != 2:
        raise UsageError(f"{path.name}: expected an array (H, W) of uint8")
    return array


def _read_state(path: Path) -> State:
    try:
        with ZipFile(io.BytesIO(read_file(path, _MAX_STATE))) as archive:
            return dict(_arrays_in(archive))
    # zipfile raises a dozen kinds of errors, from zlib.error to NotImplementedError.
    except Exception as error:
        reason = str(error) or type(error).__name__
        raise UsageError(f"{path} cannot be read: {reason}") from error


def _arrays_in(archive: ZipFile) -> Iterator[tuple[str, NDArray[Any]]]:
    """Arrays of an archive by name; rejects what `np.savez` cannot have written."""
    members = archive.infolist()
    size = sum(member.file_size for member in members)
    if len(members) > _MAX_ARRAYS or size > _MAX_STATE:
        raise ValueError(
            f"{len(members)} arrays of {size} bytes, expected at most {_MAX_ARRAYS} of {_MAX_STATE}"
        )
    for member in members:
        if member.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
            raise ValueError(f"{shown(member.filename)} is compressed otherwise than by np.savez")
        with archive.open(member) as file:
            # With a size: else the archive decides how much is unpacked.
            content = file.read(member.file_size)
        yield member.filename.removesuffix(".npy"), _parse_npy(content)


def _parse_npy(content: bytes) -> NDArray[Any]:
    """Non-empty numeric array written by `np.save`; ValueError for anything else."""
    header = _NPY.match(content)
    if header is None or int.from_bytes(header["length"], "little") != header.end() - 10:
        raise ValueError("expected plain numbers as np.save writes them")
    shape = tuple(int(side) for side in header["shape"].replace(b",", b" ").split())
    dtype = np.dtype(header["dtype"].decode())
    expected, found = prod(shape) * dtype.itemsize, len(content) - header.end()
    if expected != found:
        raise ValueError(f"{shape} of {dtype} needs {expected} bytes, got {found}")
    order: Literal["F", "C"] = "F" if header["is_fortran"] == b"True" else "C"
    return np.ndarray(shape, dtype, content, header.end(), order=order).copy()


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _state_sha256(state: State) -> str:
    hashed = hashlib.sha256()
    for name in sorted(state):
        array = state[name]
        hashed.update(f"{name} {array.dtype.str} {array.shape} ".encode())
        hashed.update(np.ascontiguousarray(array).tobytes())
    return hashed.hexdigest()
