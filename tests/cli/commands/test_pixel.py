"""ROMs on the command line: capture a goal, play, train and evaluate."""

import io
import json
import pickle
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner, Result
from rich.console import Console

from entity_env import Turn
from entity_env.agents import RandomAgent
from entity_env.cli import main
from entity_env.cli.display.terminal_view import TerminalView
from entity_env.cli.load_game import load_game
from entity_env.games import pixel_maze, pixel_rom
from entity_env.games.pixel import GridWorld
from entity_env.games.pixel.look import GREENS, LIGHT_GREENS
from entity_env.games.pixel.play import ScreenPlay, colors_of, open_rom, rom_batch
from entity_env.games.pixel.reward.goal_files import load_goal
from entity_env.games.pixel.xo_chip.programs import goal_frame, program
from entity_env.vec.game_training import is_batch, preset_of
from tests.games.pixel.worlds.game_boy_rom import square_rom
from tests.helpers.terminals import Terminal

WAY = "DOWN RIGHT*2 UP RIGHT*2 DOWN*2 LEFT DOWN RIGHT*4"
ZERO = "max_episode_steps=0"
NO_STEPS = r"max_episode_steps must be an integer from 1 to 2147483647: got 0"
SMALL = ("--num-envs=4", "--set-train=net={d_model=8,n_layer=1,n_head=1}")


class Screen(io.StringIO):
    """Output that claims to be a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def run(*args: str | Path, typed: str = "") -> Result:
    return CliRunner().invoke(main, [str(arg) for arg in args], input=typed)


@pytest.fixture(scope="module")
def rom(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("roms") / "maze.ch8"
    path.write_bytes(program("maze"))
    return path


@pytest.fixture(scope="module")
def goal(rom: Path) -> Path:
    folder = rom.parent / "goal"
    result = run("capture-goal", rom, "--start", "A*2", "--keys", WAY, "--out", folder)
    assert result.exit_code == 0
    return folder


class TestCaptureGoal:
    @pytest.mark.slow
    def test_draws_measures_and_records(self, rom: Path, tmp_path: Path) -> None:
        out = tmp_path / "goals" / "maze"
        result = run("capture-goal", rom, "--start", "A*2", "--keys", WAY, "--out", out)
        assert (result.exit_code, result.stderr) == (0, "")
        shown = result.stdout
        assert re.search(r"^start\n[⠀-⣿]{64}\n", shown)
        assert re.search(r"\ngoal\n[⠀-⣿]{64}\n", shown)
        assert re.search(r"\n +0  start +8090 +0\.3292\n +1  DOWN +7698 +0\.3132\n", shown)
        assert re.search(r"\n +14  RIGHT +0 +0\.0000  matches\n", shown)
        assert "below 1229 (tau 0.05) a screen matches: first after step 14\n" in shown
        assert "the match is kept at the next step with any button\n" in shown
        assert f"recorded in {out}" in shown
        assert np.array_equal(load_goal(out).goal.pixels.numpy(), goal_frame("maze"))

    def test_says_that_tau_cannot_be_met_for_long(self, rom: Path, tmp_path: Path) -> None:
        arguments = ("--start", "A*2", "--keys", "DOWN RIGHT", "--tau", "0.0001")
        result = run("capture-goal", rom, *arguments, "--out", tmp_path / "goal")
        assert re.search(
            "the match is lost at the next step with .*, and kept with the others", result.stdout
        )

    def test_many_keys_are_shown_in_part(self, rom: Path, tmp_path: Path) -> None:
        arguments = ("--start", "A*2", "--keys", f"{WAY} A*200")
        result = run("capture-goal", rom, *arguments, "--out", tmp_path / "goal")
        assert result.exit_code == 0
        assert 20 < len(re.findall(r"^ *\d+  [A-Z]", result.stdout, re.MULTILINE)) <= 32
        assert re.search(r"\n +214  A +0", result.stdout)

    def test_keys_may_be_files(self, rom: Path, goal: Path, tmp_path: Path) -> None:
        (tmp_path / "start.txt").write_text("A*2  # the title\n")
        (tmp_path / "way.txt").write_text(WAY.replace(" ", "\n"))
        arguments = ("--start", tmp_path / "start.txt", "--keys", tmp_path / "way.txt")
        result = run("capture-goal", rom, *arguments, "--out", tmp_path / "goal")
        assert result.exit_code == 0
        same = [(folder / "goal.json").read_bytes() for folder in (goal, tmp_path / "goal")]
        assert same[0] == same[1]

    def test_settings_are_recorded(self, rom: Path, tmp_path: Path) -> None:
        options = ("--quirks=chip8", "--frames=12", "--instructions=60", "--seed=7")
        more = ("--tau=1/1000", "--metric=squared", "--keys=A*4 DOWN", "--out")
        assert run("capture-goal", rom, *options, *more, tmp_path / "goal").exit_code == 0
        meta = json.loads((tmp_path / "goal" / "goal.json").read_text())
        assert meta["settings"] == {
            "quirks": "chip8",
            "frames": 12,
            "instructions": 60,
            "seed": 7,
        }
        assert (meta["tau"], meta["metric"]) == ("1/1000", "squared")

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (
                ["--keys", "SELECT"],
                "--keys, line 1: 'SELECT' is not a button: write A, B, .*; and the",
            ),
            (["--keys", "A", "--start", "A SELECT"], "--start, line 1: 'SELECT' is not a button"),
            (["--keys", ""], "keys: expected at least one button"),
            (["--keys", "A"], r"matches the goal already \(distance 0"),
            (["--keys", "DOWN", "--quirks", "atari"], "quirks: expected one of xochip, superchip"),
            (["--keys", "DOWN", "--tau", "0"], "tau: expected a number above 0, got '0'"),
            (["--keys", "DOWN", "--tau", "near"], "tau: expected a finite number above 0"),
            (["--keys", "DOWN", "--seed", "0"], "seed: expected a number from 1"),
            (["--keys", "DOWN", "--frames", "0"], "must be an integer from 1 to .*, got '0'"),
        ],
    )
    def test_one_line_says_what_is_wrong(
        self, rom: Path, tmp_path: Path, arguments: Sequence[str], message: str
    ) -> None:
        start = [] if "--start" in arguments else ["--start", "A*2"]
        result = run("capture-goal", rom, *start, *arguments, "--out", tmp_path / "goal")
        assert result.exit_code == 2
        assert result.stderr.count("\n") == 1
        assert re.search(message, result.stderr)
        assert not list(tmp_path.iterdir())

    def test_a_rom_that_is_none(self, tmp_path: Path) -> None:
        (tmp_path / "big").write_bytes(bytes(70_000))
        (tmp_path / "short.gb").write_bytes(b"GB")
        for name, message in (("none", "No such file"), ("big", "big: "), ("short.gb", "rom: exp")):
            result = run("capture-goal", tmp_path / name, "--keys", "A", "--out", tmp_path / "goal")
            assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
            assert message in result.stderr

    def test_needs_torch(self, rom: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "torch", None)
        result = run("capture-goal", rom, "--keys", "A", "--out", "goal")
        assert result.exit_code == 2
        assert "pip install 'entity-env[pixel]'" in result.stderr

    def test_a_broken_key_file_is_named(self, rom: Path, tmp_path: Path) -> None:
        (tmp_path / "keys.txt").write_text("A\nB\nC\n")
        result = run("capture-goal", rom, "--keys", tmp_path / "keys.txt", "--out", tmp_path / "g")
        assert f"{tmp_path / 'keys.txt'}, line 3: 'C' is not a button" in result.stderr


class TestGame:
    def test_plays_without_a_goal_for_nothing(self, rom: Path) -> None:
        game = pixel_rom.with_settings(rom=str(rom), max_episode_steps=5)
        first, second = game.run(RandomAgent(1), episodes=2)
        assert (first.reward, first.length, first.truncated) == (0.0, 5, True)
        assert (second.reward, second.length) == (0.0, 5)

    def test_is_paid_for_a_goal(self, rom: Path, goal: Path) -> None:
        env = open_rom(2, rom=str(rom), goal=str(goal))
        env.reset(0)
        buttons = [4, 6, 6, 3, 6, 6, 4, 4, 5, 4, 6, 6, 6, 6, 0]
        earned = 0.0
        for button in buttons:
            assert not env.trackers.ended.any()
            env.step_tensors(torch.full((2,), button, dtype=torch.int32))
            earned += float(env.trackers.reward[1])
        assert env.trackers.terminated.all()
        assert earned == pytest.approx(10 * 8090 / 24576 + 10 - 0.15, abs=1e-4)
        env.close()

    def test_episodes_begin_at_the_start(self, rom: Path, goal: Path) -> None:
        env = rom_batch(3, rom=str(rom), goal=str(goal))
        env.reset(5)
        before = {name: rows.clone() for name, rows in env.world.state().items()}
        env.step_tensors(torch.tensor([4, 4, 6], dtype=torch.int32))
        env.reset_mask(torch.ones(3, dtype=torch.bool))
        for name, rows in env.world.state().items():
            assert torch.equal(rows, before[name])
        env.close()

    def test_settings_of_its_own(self) -> None:
        assert preset_of(pixel_rom).name == preset_of(pixel_maze).name == "screen"

    def test_a_dialect_is_chosen(self, tmp_path: Path) -> None:
        # 8XYE doubles VY into VX, or VX in place; then a digit of V0 is drawn.
        rom = bytes.fromhex("6001 6103 801E F029 D000 D005 120C".replace(" ", ""))
        (tmp_path / "shift.ch8").write_bytes(rom)
        screens = []
        for quirks in ("xochip", "superchip"):
            env = open_rom(1, rom=str(tmp_path / "shift.ch8"), quirks=quirks)
            env.reset(0)
            env.step_tensors(torch.zeros(1, dtype=torch.int32))
            screens.append(env.pixels.clone())
            env.close()
        assert not torch.equal(*screens)


class TestCommands:
    def test_play_draws_the_screen(self, rom: Path, goal: Path) -> None:
        result = run("play", "pixel", "--set", f"rom={rom}", "--set", f"goal={goal}", "--seed", "1")
        assert (result.exit_code, result.stderr) == (0, "")
        assert re.search(r"pixel  episode 1\nstep 1  score -?\d.*\n[⠀-⣿]{64}\n", result.stdout)
        assert re.search(r"dist=0\.\d+ match=0 time=", result.stdout)
        assert re.search(r"episode 1: reward \S+, \d+ steps, ", result.stdout)

    def test_play_draws_without_a_goal(self, rom: Path) -> None:
        settings = ("--set", "max_episode_steps=2", "--set", "quirks=xochip")
        result = run("play", "pixel", "--set", f"rom={rom}", *settings, "--seed", "1")
        assert "episode 1: reward 0, 2 steps, truncated" in result.stdout

    @pytest.mark.parametrize("name", ["pixel:maze", "pixel:catch", "pixel:grid"])
    def test_play_draws_the_games_of_the_package(self, name: str) -> None:
        result = run("play", name, "--seed", "1", "--set", "max_episode_steps=3")
        assert (result.exit_code, result.stderr) == (0, "")
        assert f"{name}  episode 1" in result.stdout
        assert re.search(r"dist=\S+ match=\S+ time=", result.stdout)

    def test_play_without_a_picture(self, rom: Path) -> None:
        arguments = ("--no-render", "--set", "max_episode_steps=3", "--seed", "1")
        result = run("play", "pixel", "--set", f"rom={rom}", *arguments)
        end = r"episode 1: reward 0, 3 steps, truncated \(--episode-seed \d+\)\nseed 1\n"
        assert re.fullmatch(end, result.stdout)

    def test_a_person_plays_by_lines(self, rom: Path, goal: Path) -> None:
        typed = "s\nd\nz\nc\nright\nq\n"
        result = run(
            "play",
            "pixel",
            "--set",
            f"rom={rom}",
            "--set",
            f"goal={goal}",
            "--agent",
            "human",
            typed=typed,
        )
        assert result.exit_code == 0
        assert all(f"step {step}" in result.stdout for step in range(5))
        assert "left before the end" in result.stdout
        assert "z A" in result.stdout

    def test_a_person_plays_with_keys(
        self, rom: Path, goal: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Runs in this process, which has imported torch; keys typed ahead count."""
        screen = Screen()
        words = [
            "play",
            "pixel",
            "--set",
            f"rom={rom}",
            "--set",
            f"goal={goal}",
            "--agent",
            "human",
        ]
        with Terminal() as terminal:
            monkeypatch.setattr(sys, "stdin", terminal.source)
            monkeypatch.setattr(sys, "stdout", screen)
            monkeypatch.setenv("TERM", "xterm-256color")
            terminal.type("\x1b[B\rzxq")
            with pytest.raises(SystemExit) as left:
                main([*words, "--fps", "1000"])
            assert left.value.code == 0
            assert terminal.is_restored
        shown = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", screen.getvalue())
        steps = re.findall(r"^step \d +score \S+ +(\w+)", shown, re.M)
        assert steps == ["DOWN", "START", "A", "B"]
        assert "left before the end" in shown

    @pytest.mark.slow
    @pytest.mark.timeout(180)
    def test_train_and_play_and_eval_with_a_goal(
        self, rom: Path, goal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        words = (
            "pixel",
            "--set",
            f"rom={rom}",
            "--set",
            f"goal={goal}",
            "--set",
            "max_episode_steps=8",
        )
        trained = run("train", *words, "--steps", "64", "--num-steps", "8", *SMALL)
        assert (trained.exit_code, trained.stderr) == (0, "")
        assert f"play: entity-env play pixel --set rom={rom} --set goal={goal} --set" in (
            trained.stdout.replace("\n", " ")
        )
        played = run("play", *words, "--agent", "runs/pixel", "--no-render")
        assert "episode 1: reward" in played.stdout
        measured = run("eval", *words, "--agent", "runs/pixel", "--episodes", "2", "--json")
        assert json.loads(measured.stdout)["episodes"] == 2

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["play", "pixel"], "setting 'rom' has no default"),
            (["play", "pixel", "--set", "rom=none"], "the ROM none cannot be read: No such file"),
            (
                ["play", "pixel", "--set", "rom=ROM", "--set", "goal=none"],
                r"none/goal\.json cannot be read",
            ),
            (
                [
                    "play",
                    "pixel",
                    "--set",
                    "rom=ROM",
                    "--set",
                    "goal=GOAL",
                    "--set",
                    "quirks=chip8",
                ],
                "captured with its own settings: leave out quirks",
            ),
            (
                ["play", "pixel", "--set", "rom=ROM", "--set", "quirks=atari"],
                "setting 'quirks' must be",
            ),
            (["play", "pixel:maze", "--set", "rom=ROM"], "pixel:maze has no setting 'rom'"),
            (["play", "snake", "--set", "goal=x"], "snake has no setting 'goal'"),
            (
                ["train", "pixel", "--set", "rom=ROM"],
                "without a goal there is nothing to train",
            ),
            (["play", "pixel", "--set", "rom=ROM", "--set", ZERO], NO_STEPS),
            (["play", "pixel", "--set", "rom=ROM", "--set", "goal=GOAL", "--set", ZERO], NO_STEPS),
            (["play", "pixel:grid", "--set", ZERO], NO_STEPS),
            (["play", "pixel:maze", "--set", "max_episode_steps=-3"], "got -3"),
            (["train", "pixel:catch", "--set", ZERO], NO_STEPS),
            (["play", "pixel", "--set", "rom=ROM", "--set", "frames=0"], "frames must be .* got 0"),
            (["play", "pixel", "--set", "rom=ROM", "--set", "device=tpu"], "'cpu' or 'cuda', got"),
            (["play", "pixel:grid", "--set", "device=tpu"], "device: torch cannot use 'tpu': "),
        ],
    )
    def test_one_line_says_what_is_wrong(
        self,
        rom: Path,
        goal: Path,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        arguments: Sequence[str],
        message: str,
    ) -> None:
        monkeypatch.chdir(tmp_path)
        paths = {"rom=ROM": f"rom={rom}", "goal=GOAL": f"goal={goal}"}
        result = run(*(paths.get(argument, argument) for argument in arguments))
        assert result.exit_code == 2
        assert result.stderr.count("\n") == 1
        assert re.search(message, result.stderr)

    def test_a_rom_that_is_too_large(self, tmp_path: Path) -> None:
        (tmp_path / "big.ch8").write_bytes(bytes(70_000))
        result = run("play", "pixel", "--set", f"rom={tmp_path / 'big.ch8'}")
        assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
        assert "big.ch8: " in result.stderr

    @pytest.mark.slow
    @pytest.mark.filterwarnings("default")
    def test_a_game_boy(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        pytest.importorskip("pyboy", reason="PyBoy is not installed")
        monkeypatch.setenv("COLUMNS", "80")
        monkeypatch.setenv("LINES", "25")
        (tmp_path / "square.gb").write_bytes(square_rom())
        words = ("--start", "A*2", "--keys", "DOWN", "--tau", "0.001", "--out", tmp_path / "goal")
        captured = run("capture-goal", tmp_path / "square.gb", *words)
        assert captured.exit_code == 0
        assert "the match is lost at the next step with" in captured.stdout
        rom_words = ("--set", f"rom={tmp_path / 'square.gb'}", "--set", f"goal={tmp_path / 'goal'}")
        played = run("play", "pixel", *rom_words, "--set", "max_episode_steps=2", "--seed", "1")
        assert (played.exit_code, played.stderr) == (0, "")
        assert re.search(r"│ [⠀-⣿]{40} │  pixel  episode 1", played.stdout)
        sizes = ("--steps", "32", "--num-steps", "4", *SMALL, "--out", tmp_path / "run")
        trained = run("train", "pixel", *rom_words, "--set", "max_episode_steps=4", *sizes)
        assert (trained.exit_code, trained.stderr) == (0, "")
        assert "trained 32 steps" in trained.stdout
        agent = ("--agent", tmp_path / "run", "--no-render")
        assert "episode 1: reward" in run("play", "pixel", *rom_words, *agent).stdout


class TestView:
    def test_what_is_played_draws_its_own_screen(self, rom: Path) -> None:
        chosen = load_game("pixel", [f"rom={rom}", "max_episode_steps=4"])
        assert isinstance(chosen.play, ScreenPlay)
        drawn: list[str] = []

        def watch(turn: Turn) -> None:
            assert isinstance(chosen.play, ScreenPlay)
            screen = chosen.play.text(80, 30, has_colors=False, ascii_only=True)
            assert screen is not None
            drawn.append(screen.plain)

        [episode] = chosen.run(RandomAgent(1), watch=watch)
        assert (episode.length, len(drawn)) == (4, 5)
        assert {len(line) for text in drawn for line in text.splitlines()} == {64}
        assert chosen.play.text(80, 30, has_colors=True, ascii_only=False) is None

    def test_it_is_the_same_in_another_process(self) -> None:
        assert pickle.loads(pickle.dumps(pixel_maze.play)) is pixel_maze.play
        assert is_batch(pixel_maze.with_settings(max_episode_steps=3))

    def test_it_fits_a_small_terminal(self, rom: Path, goal: Path) -> None:
        file = Screen()
        console = Console(file=file, width=80, height=24, color_system="truecolor")
        chosen = load_game("pixel", [f"rom={rom}", f"goal={goal}", "max_episode_steps=2"])
        with TerminalView(chosen, console, fps=1000) as view:
            chosen.run(RandomAgent(1), watch=view)
        frame = file.getvalue().split("\x1b[?25l")[-1]
        lines = re.sub(r"\x1b\[\??[0-9;]*[A-Za-z]", "", frame).strip().splitlines()
        assert len(lines) <= 24 - 2
        assert lines[0] == "pixel  episode 1"
        assert lines[-1].startswith("Screen dist=")
        assert sum(bool(re.fullmatch("[\u2800-\u28ff]+", line)) for line in lines) >= 16

    def test_colours(self) -> None:
        assert colors_of(GridWorld(1)) == GREENS
        assert tuple(reversed(GREENS)) == LIGHT_GREENS
