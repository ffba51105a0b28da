"""Single pixel games, for a person or a trained agent.

Each plays a batch of one: observations and actions (see `entity_env.games.pixel.entities`) match
the batch in a `BatchVecEnv`. Importing this does not import torch.

Reward:
    -0.01 per step, plus the decrease of the distance between screen and goal (times 10, except in
    `pixel:grid`), plus 10 for reaching the goal; always 0 in `pixel` without a goal.
Terminated when:
    two consecutive screens match the goal; never without a goal.
Truncated when:
    max_episode_steps steps have been taken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from inspect import Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from entity_env import Game, MissingExtraError, Obs, UsageError
from entity_env.agents import Agent
from entity_env.games.pixel.entities import NUM_SCREEN, PRESS, Screen, Tile
from entity_env.vec.batch_env import StepResult

if TYPE_CHECKING:
    from rich.text import Text

    from entity_env.games.pixel.env import PixelGoalEnv
    from entity_env.games.pixel.worlds.world import World


def grid_batch(num_envs: int, *, max_episode_steps: int = 40, device: str = "cpu") -> PixelGoalEnv:
    """`pixel:grid` as a batch; see `batches.grid_env`.

    Raises:
        MissingExtraError: torch is not installed.
    """
    settings = {"max_episode_steps": max_episode_steps, "device": device}
    env: PixelGoalEnv = _batches("pixel:grid").grid_env(num_envs, **settings)
    return env


def program_batch(
    name: str, num_envs: int, *, max_episode_steps: int = 40, device: str = "cpu"
) -> PixelGoalEnv:
    """An XO-CHIP program as a batch; see `batches.program_env`.

    Raises:
        MissingExtraError: torch or Warp is not installed.
    """
    settings = {"max_episode_steps": max_episode_steps, "device": device}
    env: PixelGoalEnv = _batches(f"pixel:{name}").program_env(name, num_envs, **settings)
    return env


def open_rom(
    num_envs: int,
    *,
    rom: str,
    goal: str = "",
    quirks: Literal["xochip", "superchip", "chip8"] | None = None,
    frames: int | None = None,
    instructions: int | None = None,
    max_episode_steps: int = 128,
    device: str = "cpu",
    needs_goal: bool = False,
) -> PixelGoalEnv:
    """A batch of machines that run a ROM; other arguments are the settings of `play_rom`.

    Args:
        needs_goal: refuse to run without a goal, for training and evaluation.

    Raises:
        UsageError: a missing goal that is needed, an unreadable file, a goal of another ROM, a
            setting that the machine does not have, or settings together with a goal, which has its
            own.
        MissingExtraError: torch, or the emulator of the ROM, is not installed.
    """
    if needs_goal and not goal:
        raise UsageError(
            "pixel: without a goal there is nothing to train or measure: add --set goal=DIR, "
            "which entity-env capture-goal ROM --keys KEYS --out DIR makes"
        )
    batches = _batches("pixel")
    machine = {"quirks": quirks, "frames": frames, "instructions": instructions}
    common = {"max_episode_steps": max_episode_steps, "device": device}
    env: PixelGoalEnv
    if not goal:
        env = batches.unrewarded_env(num_envs, Path(rom), machine, **common)
        return env
    given = [name for name, value in machine.items() if value is not None]
    if given:
        raise UsageError(f"{goal} was captured with its own settings: leave out {', '.join(given)}")
    env = batches.captured_env(num_envs, Path(rom), Path(goal), **common)
    return env


_ARGUMENTS: Final = {
    "agent": "holds the buttons.",
    "seed": "changes nothing: there is one initial state.",
}
_SETTINGS: Final = {
    "max_episode_steps": "steps after which the episode is truncated.",
    "device": "torch device of the machine.",
}
_ROM_SETTINGS: Final = {
    "rom": "a file: `.gb` and `.gbc` for a Game Boy, all others for an XO-CHIP.",
    "goal": "the folder of a captured goal; without one there are no rewards.",
    "quirks": "the dialect; None = xochip.",
    "frames": "frames in a step; None = 24.",
    "instructions": "instructions in a frame; None = 30.",
}


class ScreenPlay:
    """Game loop on a batch of one; `text` draws the screen of the machine.

    Args:
        name: name of this object in its module.
        doc: one-line description of the game.
        open_batch: makes a batch for a number of environments and the game's settings.
        settings: descriptions by name of the keyword-only arguments of `open_batch`.
    """

    def __init__(
        self,
        name: str,
        doc: str,
        open_batch: Callable[..., PixelGoalEnv],
        settings: Mapping[str, str],
    ) -> None:
        self.__name__ = name
        lines = (f"    {name}: {words}" for name, words in {**_ARGUMENTS, **settings}.items())
        self.__doc__ = "\n".join([doc, "", "Args:", *lines])
        given = signature(open_batch).parameters
        own = signature(self.__call__).parameters.values()
        fixed = [each for each in own if each.kind is not each.VAR_KEYWORD]
        self.__signature__ = Signature([*fixed, *(given[name] for name in settings)])
        self._open_batch = open_batch
        self._env: PixelGoalEnv | None = None

    def __call__(self, agent: Agent, *, seed: int, **settings: object) -> None:
        """See `Game`. The seed has no effect: there is one initial state."""
        self._env = self._open_batch(1, **settings)
        try:
            play_env(agent, self._env, seed)
        finally:
            self._env = None

    def text(self, columns: int, rows: int, *, has_colors: bool, ascii_only: bool) -> Text | None:
        """The screen, as large as fits; None when nothing is being played."""
        if self._env is None:
            return None
        from entity_env.games.pixel.look import draw_pixels

        return draw_pixels(
            self._env.pixels[0].cpu().numpy(),
            columns,
            rows,
            colors=colors_of(self._env.world),
            has_colors=has_colors,
            ascii_only=ascii_only,
        )

    def __reduce__(self) -> str:
        return self.__name__


def colors_of(world: World) -> tuple[str, ...]:
    """Colors of shades 0 to 3: a Game Boy's background is bright, others are dark."""
    from entity_env.games.pixel.look import GREENS, LIGHT_GREENS
    from entity_env.games.pixel.worlds.game_boy import PyBoyWorld  # imports torch

    return LIGHT_GREENS if isinstance(world, PyBoyWorld) else GREENS


def play_env(agent: Agent, env: PixelGoalEnv, seed: int) -> None:
    """Plays episodes on a batch of one until the agent stops, then closes the batch.

    `seed` is for the first episode; later ones use `agent.seed`.
    """
    try:
        while True:
            env.reset(seed)
            result, score = env.view(), 0.0
            while not result.is_done(0):
                button = agent.act(_obs(result, score, env.num_entities), PRESS)
                if button is None:
                    return
                result = env.step_no_reset_with_result(np.array([button.value]))
                score += float(result.rewards[0])
            obs = _obs(result, score, env.num_entities)
            agent.game_over(obs, truncated=not result.is_terminal(0))
            seed = agent.seed
    finally:
        env.close()


def _obs(result: StepResult, score: float, num_tiles: int) -> Obs:
    row = result.observations[0]
    tiles, screen = row[:-NUM_SCREEN].reshape(num_tiles, -1), row[-NUM_SCREEN:]
    return Obs(score).globals(Screen(*screen.tolist())).entities(tiles, of=Tile)


def require_torch(purpose: str) -> None:
    """Checks that torch is installed.

    Raises:
        MissingExtraError: it is not; the message names the purpose.
    """
    try:
        import torch  # noqa: F401 - only checks that it is installed
    except ModuleNotFoundError as error:
        raise MissingExtraError("torch", "pixel", purpose) from error


def _batches(purpose: str) -> Any:  # noqa: ANN401 - a module, imported late because it needs torch
    require_torch(purpose)
    return import_module("entity_env.games.pixel.batches")


maze_batch: Callable[..., PixelGoalEnv] = partial(program_batch, "maze")
catch_batch: Callable[..., PixelGoalEnv] = partial(program_batch, "catch")
rom_batch: Callable[..., PixelGoalEnv] = partial(open_rom, needs_goal=True)
play_grid = ScreenPlay("play_grid", "Lead a figure through a grid of walls.", grid_batch, _SETTINGS)
play_maze = ScreenPlay(
    "play_maze", "Find the way through a maze on XO-CHIP, a virtual console.", maze_batch, _SETTINGS
)
play_catch = ScreenPlay(
    "play_catch", "Catch what falls, on XO-CHIP, a virtual console.", catch_batch, _SETTINGS
)
play_rom = ScreenPlay(
    "play_rom",
    "Play any ROM until its screen is the one that was captured as the goal.",
    open_rom,
    _ROM_SETTINGS | _SETTINGS,
)
_game = partial(
    Game,
    entities=(Tile,),
    actions=(PRESS,),
    global_features=Screen,
    look="entity_env.games.pixel.look:look",
)
_TRAINING: Final = "entity_env.games.pixel.training"
pixel_grid: Game = _game(play_grid, name="pixel:grid", training=f"{_TRAINING}:grid")
"""One `GridWorld` with its goal."""
pixel_maze: Game = _game(play_maze, name="pixel:maze", training=f"{_TRAINING}:maze")
"""One XO-CHIP that runs the program `maze`."""
pixel_catch: Game = _game(play_catch, name="pixel:catch", training=f"{_TRAINING}:catch")
"""One XO-CHIP that runs the program `catch`."""
pixel_rom: Game = _game(play_rom, name="pixel", training=f"{_TRAINING}:rom")
"""One machine that runs a user's ROM file."""
