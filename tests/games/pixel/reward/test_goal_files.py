"""Captured goals: files load as recorded, and other files are rejected."""

import json
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from entity_env import UsageError
from entity_env.games.pixel import Button
from entity_env.games.pixel.reward import goal_files
from entity_env.games.pixel.reward.goal_files import (
    Captured,
    capture,
    load_goal,
    save_goal,
    screen_of,
)
from entity_env.games.pixel.worlds.machines import (
    GameBoyMachine,
    XoChipMachine,
    machine_for,
    read_rom,
    state_of,
)
from entity_env.games.pixel.worlds.world import parse_keys
from entity_env.games.pixel.xo_chip.programs import PROGRAMS, goal_frame, program
from tests.games.pixel.worlds.game_boy_rom import square_rom
from tests.games.pixel.xo_chip.plain_machine import run

MAZE = program("maze")
START, SOLUTION = PROGRAMS["maze"]
REASON = "PyBoy is not installed"


@pytest.fixture(scope="module")
def captured() -> Captured:
    return capture(MAZE, XoChipMachine(), START, SOLUTION, tau="0.05")


@pytest.fixture
def folder(captured: Captured, tmp_path: Path) -> Path:
    save_goal(captured, MAZE, "maze.ch8", tmp_path / "goals" / "maze")
    return tmp_path / "goals" / "maze"


def change(folder: Path, **fields: object) -> None:
    path = folder / "goal.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


class TestCapture:
    def test_the_goal_is_the_last_screen(self, captured: Captured) -> None:
        assert np.array_equal(captured.goal.pixels.numpy(), goal_frame("maze"))
        assert np.array_equal(captured.start_pixels, run(MAZE, START).pixels())

    def test_the_way_is_that_of_the_plain_machine(self, captured: Captured) -> None:
        goal = goal_frame("maze").astype(int)
        for step, found in enumerate(captured.sums):
            pixels = run(MAZE, (*START, *SOLUTION[:step])).pixels().astype(int)
            assert found == np.abs(pixels - goal).sum()
        assert captured.sums[-1] == 0

    def test_says_which_buttons_keep_the_goal(self) -> None:
        still = capture(MAZE, XoChipMachine(), START, SOLUTION)
        assert still.kept_by == tuple(Button)
        passing = capture(MAZE, XoChipMachine(), START, SOLUTION[:3], tau=1e-4)
        assert 0 < len(passing.kept_by) < len(Button)
        assert SOLUTION[3] not in passing.kept_by

    def test_other_settings_lead_elsewhere(self) -> None:
        slow = capture(MAZE, XoChipMachine(instructions=3), START, SOLUTION)
        assert not np.array_equal(slow.goal.pixels.numpy(), goal_frame("maze"))

    def test_refuses_no_keys_and_a_start_at_the_goal(self) -> None:
        with pytest.raises(UsageError, match="at least one button"):
            capture(MAZE, XoChipMachine(), START, ())
        with pytest.raises(UsageError, match=r"matches the goal already \(distance 0,"):
            capture(MAZE, XoChipMachine(), START, parse_keys("A"), tau=0.05)


class TestFolder:
    def test_comes_back(self, captured: Captured, folder: Path) -> None:
        found = load_goal(folder)
        assert found.machine == captured.machine
        assert found.start_sum == captured.sums[0]
        assert torch.equal(found.goal.pixels, captured.goal.pixels)
        assert found.goal.threshold == captured.goal.threshold
        assert set(found.start) == set(captured.start)
        for name, array in captured.start.items():
            assert np.array_equal(found.start[name], array)

    def test_says_how_it_came_about(self, captured: Captured, folder: Path) -> None:
        meta = json.loads((folder / "goal.json").read_text())
        assert parse_keys(meta["start_keys"]) == START
        assert parse_keys(meta["keys"]) == SOLUTION
        assert meta["rom"] == "maze.ch8"
        assert meta["settings"] == {
            "quirks": "xochip",
            "frames": 24,
            "instructions": 30,
            "seed": 1,
        }
        assert (meta["height"], meta["width"], meta["shades"]) == (64, 128, 4)
        assert (meta["tau"], meta["metric"]) == ("0.05", "absolute")
        assert meta["largest_distance"] == 3 * 64 * 128

    def test_the_same_keys_make_the_same_bytes(self, folder: Path, tmp_path: Path) -> None:
        again = capture(MAZE, XoChipMachine(), START, SOLUTION, tau="0.05")
        save_goal(again, MAZE, "maze.ch8", tmp_path / "again")
        for name in ("goal.json", "goal.npy", "start.npz"):
            assert (folder / name).read_bytes() == (tmp_path / "again" / name).read_bytes()

    @pytest.mark.parametrize(
        "machine", [XoChipMachine("chip8"), XoChipMachine("superchip", seed=9)]
    )
    def test_machines_begin_at_the_start(self, machine: XoChipMachine, tmp_path: Path) -> None:
        captured = capture(MAZE, machine, START, SOLUTION, tau="1/1000", metric="squared")
        save_goal(captured, MAZE, "maze.ch8", tmp_path / "goal")
        world = load_goal(tmp_path / "goal").world(MAZE, 3)
        for _ in range(2):
            for env in range(3):
                for name, array in state_of(world, env).items():
                    assert np.array_equal(array, captured.start[name])
            world.step(torch.full((3,), Button.DOWN.value, dtype=torch.int32))
            world.reset(torch.ones(3, dtype=torch.bool), torch.zeros(3, dtype=torch.int32))

    def test_the_keys_lead_to_the_goal_from_there(self, folder: Path) -> None:
        found = load_goal(folder)
        world = found.world(MAZE, 1)
        for button in SOLUTION:
            world.step(torch.full((1,), button.value, dtype=torch.int32))
        assert torch.equal(screen_of(world), found.goal.pixels)

    def test_is_written_whole_or_not_at_all(
        self, captured: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_: object, **__: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(np, "savez_compressed", fail)
        with pytest.raises(UsageError, match="cannot be written: No space left on device"):
            save_goal(captured, MAZE, "maze.ch8", tmp_path / "goal")
        assert not list(tmp_path.iterdir())

    def test_overwrites_nothing(self, captured: Captured, folder: Path) -> None:
        before = (folder / "goal.json").read_bytes()
        with pytest.raises(UsageError, match="already exists: remove it, or choose another"):
            save_goal(captured, MAZE, "maze.ch8", folder)
        assert (folder / "goal.json").read_bytes() == before
        (folder.parent / "file").write_text("")
        with pytest.raises(UsageError, match="already exists"):
            save_goal(captured, MAZE, "maze.ch8", folder.parent / "file")

    def test_an_empty_folder_will_do(self, captured: Captured, tmp_path: Path) -> None:
        (tmp_path / "goal").mkdir()
        save_goal(captured, MAZE, "maze.ch8", tmp_path / "goal")
        assert len(list((tmp_path / "goal").iterdir())) == 3
        assert [path.name for path in tmp_path.iterdir()] == ["goal"]
        assert stat.S_IMODE((tmp_path / "goal").stat().st_mode) & stat.S_IXUSR


WRONG: Mapping[str, object] = {
    "schema_version": 2,
    "machine": "amiga",
    "settings": 3,
    "rom": None,
    "rom_sha256": "ABC",
    "start_keys": "SELECT",
    "keys": "",
    "height": 0,
    "width": True,
    "shades": 2,
    "metric": "cosine",
    "tau": 0.05,
    "start_distance": -1,
    "largest_distance": "much",
    "goal_sha256": 5,
    "start_sha256": "0" * 63,
}


class TestRefuses:
    def test_every_field_is_checked(self, folder: Path) -> None:
        assert set(WRONG) == set(json.loads((folder / "goal.json").read_text()))

    @pytest.mark.parametrize(("name", "value"), WRONG.items(), ids=WRONG)
    def test_a_field_of_another_kind(self, folder: Path, name: str, value: object) -> None:
        change(folder, **{name: value})
        with pytest.raises(UsageError, match=rf"goal\.json: {name}: expected .*, got "):
            load_goal(folder)

    @pytest.mark.parametrize("name", WRONG)
    def test_a_field_that_is_missing(self, folder: Path, name: str) -> None:
        path = folder / "goal.json"
        meta = json.loads(path.read_text())
        del meta[name]
        path.write_text(json.dumps(meta))
        with pytest.raises(UsageError, match=f"the field {name} is missing"):
            load_goal(folder)

    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            ({"speed": 1}, "unknown fields speed"),
            ({"height": 32}, "largest_distance: expected 12288 of 32 x 128 pixels, got 24576"),
            (
                {"height": 128, "width": 64},
                r"goal\.npy is \(64, 128\), goal\.json says \(128, 64\)",
            ),
            ({"goal_sha256": "0" * 64}, "goal is not what goal.json was written with"),
            ({"start_sha256": "0" * 64}, "start is not what goal.json was written with"),
            ({"start_distance": 1}, "start_distance 1 is below 1229"),
            ({"tau": "0"}, "tau: expected a number above 0"),
            ({"tau": "2/0"}, "tau: expected a number above 0"),
            ({"settings": {"quirks": "xochip"}}, "settings: expected quirks, frames, instructions"),
            (
                {"settings": {"quirks": "xochip", "frames": 1.5, "instructions": 1, "seed": 1}},
                "settings: frames: expected int, got 1.5",
            ),
            (
                {"settings": {"quirks": "atari", "frames": 1, "instructions": 1, "seed": 1}},
                "quirks: expected one of xochip, superchip, chip8, got 'atari'",
            ),
            (
                {"settings": {"quirks": "xochip", "frames": 0, "instructions": 1, "seed": 1}},
                "frames must be an integer from 1",
            ),
            (
                {"settings": {"quirks": "xochip", "frames": 1, "instructions": 1, "seed": 0}},
                "seed: expected a number from 1",
            ),
        ],
    )
    def test_fields_that_do_not_fit(
        self, folder: Path, fields: Mapping[str, object], message: str
    ) -> None:
        change(folder, **fields)
        with pytest.raises(UsageError, match=message):
            load_goal(folder)

    @pytest.mark.parametrize(
        ("name", "data", "message"),
        [
            ("goal.json", b"{", r"goal\.json is not JSON"),
            ("goal.json", b"[]", r"goal\.json: expected an object, got list"),
            ("goal.json", b"\xff\xfe", r"goal\.json is not JSON"),
            ("goal.npy", b"", r"goal\.npy cannot be read"),
            ("goal.npy", b"\x93NUMPY rubbish", r"goal\.npy cannot be read"),
            ("start.npz", b"", r"start\.npz cannot be read"),
            ("start.npz", b"PK rubbish", r"start\.npz cannot be read"),
        ],
    )
    def test_broken_files(self, folder: Path, name: str, data: bytes, message: str) -> None:
        (folder / name).write_bytes(data)
        with pytest.raises(UsageError, match=message):
            load_goal(folder)

    @pytest.mark.parametrize("name", ["goal.json", "goal.npy", "start.npz"])
    def test_missing_files(self, folder: Path, name: str) -> None:
        (folder / name).unlink()
        with pytest.raises(UsageError, match=f"{name} cannot be read"):
            load_goal(folder)

    @pytest.mark.parametrize(
        ("pixels", "message"),
        [
            (np.zeros((64, 128), np.int32), "expected an array .H, W. of uint8"),
            (np.zeros((1, 64, 128), np.uint8), "expected an array .H, W. of uint8"),
            (np.full((64, 128), 4, np.uint8), r"expected pixels in 0\.\.3, got 4"),
            (np.zeros((64, 128), np.uint8), "goal is not what goal.json was written with"),
        ],
    )
    def test_another_picture(self, folder: Path, pixels: Any, message: str) -> None:  # noqa: ANN401
        np.save(folder / "goal.npy", pixels)
        with pytest.raises(UsageError, match=message):
            load_goal(folder)

    def test_pickles(self, folder: Path) -> None:
        np.save(folder / "goal.npy", np.array([{}], dtype=object))
        with pytest.raises(UsageError, match=r"goal\.npy cannot be read"):
            load_goal(folder)

    def test_another_rom(self, folder: Path) -> None:
        with pytest.raises(UsageError, match="captured from another ROM: expected SHA-256 4785"):
            load_goal(folder).world(program("catch"), 1)

    @pytest.mark.parametrize(
        ("edit", "message"),
        [
            (lambda s: {**s, "planes": np.zeros_like(s["planes"])}, "does not show what was"),
            (lambda s: {**s, "planes": s["planes"][1:]}, r"expected planes of \(512,\)"),
            (lambda s: {"machine": s["memory"]}, "expected .'memory', 'planes', 'registers'. of"),
        ],
    )
    def test_the_state_of_another_machine(
        self, folder: Path, edit: Callable[[Any], Any], message: str
    ) -> None:
        state = edit(dict(load_goal(folder).start))
        np.savez(folder / "start.npz", **state)
        change(folder, start_sha256=goal_files._state_sha256(state))
        with pytest.raises(UsageError, match=message):
            load_goal(folder).world(MAZE, 2)


class TestRoms:
    def test_the_name_says_what_runs_it(self) -> None:
        assert isinstance(machine_for(Path("a.ch8")), XoChipMachine)
        assert machine_for(Path("a"), quirks="chip8", frames=2) == XoChipMachine("chip8", 2)
        assert machine_for(Path("a.GB")) == GameBoyMachine()
        assert machine_for(Path("a.gbc"), frames=4) == GameBoyMachine(4, hold_frames=4)

    @pytest.mark.parametrize("name", ["quirks", "instructions", "seed"])
    def test_a_game_boy_has_no(self, name: str) -> None:
        settings: dict[str, Any] = {name: 1}
        with pytest.raises(UsageError, match=f"a Game Boy has no {name}"):
            machine_for(Path("a.gb"), **settings)

    @pytest.mark.parametrize(
        "settings", [{"hold_frames": 25}, {"shrink": 3}, {"frames": 0}, {"hold_frames": True}]
    )
    def test_a_game_boy_refuses(self, settings: dict[str, int]) -> None:
        with pytest.raises(UsageError, match=next(iter(settings))):
            GameBoyMachine(**settings)

    def test_a_file_that_is_none(self, tmp_path: Path) -> None:
        (tmp_path / "empty").write_bytes(b"")
        for path, message in ((tmp_path / "no", "No such file"), (tmp_path / "empty", "is empty")):
            with pytest.raises(UsageError, match=message):
                read_rom(path)


def test_what_cannot_be_read_again_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    captured = capture(MAZE, XoChipMachine(), START, SOLUTION, tau="0.05")
    monkeypatch.setattr(goal_files, "_MAX_META", 10)
    with pytest.raises(UsageError, match=r"goal\.json"):
        save_goal(captured, MAZE, "maze.ch8", tmp_path / "goal")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_a_game_boy_goes_the_same_way(tmp_path: Path) -> None:
    pytest.importorskip("pyboy", reason=REASON)
    rom = square_rom()
    captured = capture(rom, GameBoyMachine(), parse_keys("A*2"), parse_keys("DOWN RIGHT"), tau=1e-3)
    save_goal(captured, rom, "square.gb", tmp_path / "goal")
    found = load_goal(tmp_path / "goal")
    assert found.machine == GameBoyMachine()
    world = found.world(rom, 2)
    try:
        for name in ("DOWN", "RIGHT"):
            world.step(torch.full((2,), Button[name].value, dtype=torch.int32))
        assert torch.equal(screen_of(world), found.goal.pixels)
    finally:
        world.close()
