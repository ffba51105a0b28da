"""`entity-env capture-goal`: plays keys into a ROM and records the screen as a goal."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeAlias

from rich.console import RenderableType
from rich.table import Table

from entity_env.cli.command import Argument, CliOption
from entity_env.cli.display.console import Console, echo, plain_table
from entity_env.core.files import read_file
from entity_env.core.validation import Range
from entity_env.errors import UsageError
from entity_env.games.pixel.look import GREENS, LIGHT_GREENS, draw_pixels
from entity_env.games.pixel.play import require_torch
from entity_env.games.pixel.worlds.world import Button, parse_keys

if TYPE_CHECKING:
    from entity_env.games.pixel.reward.goal_files import Captured

_MAX_LISTED: Final = 30
_MAX_KEY_BYTES: Final = 16 << 20
_Count: TypeAlias = Annotated[int, Range(1, 10**30)]


@dataclass(frozen=True, kw_only=True)
class CaptureGoal:
    """Record a start and a goal screen of a ROM.

    `play`, `train` and `eval` read them with --set goal=DIR. ROM is an XO-CHIP program, or a .gb or
    .gbc file for the Game Boy. KEYS is text such as "RIGHT*3 DOWN A*2", or a file with such text;
    RIGHT*3 holds the button for 3 steps.
    """

    rom: Annotated[Path, Argument("ROM")]
    start: Annotated[str, CliOption(metavar="KEYS", default="none")] = ""
    """Keys from power-on to the start of an episode."""
    keys: Annotated[str, CliOption(metavar="KEYS")]
    """Keys from the start to the goal."""
    out: Path
    """Folder to write."""
    quirks: Annotated[str | None, CliOption(metavar="NAME", default="xochip")] = None
    """Variant of CHIP-8: xochip, superchip or chip8."""
    frames: Annotated[_Count | None, CliOption(default="24")] = None
    """Frames per step."""
    instructions: Annotated[_Count | None, CliOption(default="30")] = None
    """Instructions per frame."""
    seed: Annotated[int | None, Range(-(10**30), 10**30), CliOption(default="1")] = None
    """Seed of the machine's random numbers."""
    tau: Annotated[str, CliOption(metavar="NUMBER")] = "0.05"
    """A screen matches the goal if their distance, from 0 to 1, is below this number."""
    metric: Literal["absolute", "squared"] = "absolute"
    """How two pixels are compared: by their absolute or squared difference."""

    def run(self) -> None:
        start, keys = _read_keys("--start", self.start), _read_keys("--keys", self.keys)
        require_torch("capture-goal")
        from entity_env.games.pixel.reward.goal_files import capture, save_goal
        from entity_env.games.pixel.worlds.machines import blamed_on, machine_for, read_rom

        machine = machine_for(
            self.rom,
            quirks=self.quirks,
            frames=self.frames,
            instructions=self.instructions,
            seed=self.seed,
        )
        data = read_rom(self.rom)
        with blamed_on(self.rom):
            captured = capture(data, machine, start, keys, tau=self.tau, metric=self.metric)
        save_goal(captured, data, self.rom.name, self.out)
        console = Console()
        for part in _report(captured, console):
            console.print(part)
        echo(f"recorded in {self.out}")


def _read_keys(option: str, text: str) -> tuple[Button, ...]:
    """Buttons from a text, or the file with that name."""
    path = Path(text)
    try:
        return parse_keys(text, option)
    except UsageError as error:
        if not path.is_file():
            hint = f"; and there is no file {text}" if len(text.split()) == 1 else ""
            raise UsageError(f"{error}{hint}") from error
    try:
        return parse_keys(read_file(path, _MAX_KEY_BYTES).decode(), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{option}: {path} cannot be read: {error}") from error


def _report(captured: Captured, console: Console) -> list[RenderableType]:
    """Both screens, the distance from the goal after each step, and when the screen matches."""
    parts: list[RenderableType] = []
    goal = captured.goal.pixels.numpy()
    for name, pixels in (("start", captured.start_pixels), ("goal", goal)):
        drawn = draw_pixels(
            pixels,
            console.width,
            max(4, console.height - 4),
            colors=LIGHT_GREENS if captured.machine.kind == "game-boy" else GREENS,
            has_colors=console.color_system is not None,
            ascii_only=console.options.ascii_only,
        )
        parts += [f"[bold]{name}[/bold]", drawn, ""]
    return [*parts, _distances(captured), *_verdict(captured)]


def _distances(captured: Captured) -> Table:
    """The distance from the goal after each step; every nth step if there are many."""
    table = plain_table()
    for title in ("step", "button", "distance", "of 1"):
        table.add_column(title, justify="left" if title == "button" else "right")
    sums, largest = captured.sums, float(captured.goal.divisor)
    every = max(1, -(-len(sums) // _MAX_LISTED))
    names = ["start", *(button.name for button in captured.keys)]
    for step, (name, distance) in enumerate(zip(names, sums, strict=True)):
        if step % every == 0 or step == len(sums) - 1:
            mark = "  matches" if distance < captured.goal.threshold else ""
            table.add_row(str(step), name, str(distance), f"{distance / largest:.4f}{mark}")
    return table


def _verdict(captured: Captured) -> list[str]:
    goal, sums = captured.goal, captured.sums
    matching = [step for step, distance in enumerate(sums) if distance < goal.threshold]
    lines = [
        f"below {goal.threshold} (tau {goal.tau}) a screen matches: first after step {matching[0]}"
    ]
    lost = [button.name for button in Button if button not in captured.kept_by]
    if not captured.kept_by:
        lines.append(
            "any button loses the match at the next step, but an episode ends after several "
            "matches in a row"
        )
    elif lost:
        lines.append(
            f"the match is lost at the next step with {', '.join(lost)}, and kept with the others"
        )
    else:
        lines.append("the match is kept at the next step with any button")
    return lines
