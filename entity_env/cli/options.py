"""Arguments and options shared by several commands."""

from __future__ import annotations

import logging
import secrets
import sys
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import click

from entity_env.agents import Agent
from entity_env.agents.human.keyboard import Keyboard
from entity_env.agents.human.prompt import HUMAN
from entity_env.agents.training.presets import PRESETS
from entity_env.authoring.game import Game, Transport
from entity_env.authoring.local_run import RunLimits, Watch
from entity_env.cli.command import Argument, CliOption
from entity_env.cli.game_errors import game_errors
from entity_env.cli.load_game import AgentLoader
from entity_env.core.episode import MAX_STEPS, Episode
from entity_env.core.validation import OneOf, Range, num_cores
from entity_env.errors import UsageError
from entity_env.replay.new_process import PLAY_LIMITS, PlayLimits
from entity_env.vec.options import OnError, missing_for_workers

_log: Final = logging.getLogger(__name__)

_GIB: Final = 1 << 30
Count: TypeAlias = Annotated[int, Range(1, 10**9)]
Number: TypeAlias = Annotated[int, Range(0, 10**15)]
SeedNumber: TypeAlias = Annotated[int, Range(0, 2**63 - 1)]
"""Seeds that torch, numpy and games all accept."""
Envs: TypeAlias = Annotated[int, Range(1, 10**6)]
Workers: TypeAlias = Annotated[int, Range(0, 1024)]
Steps: TypeAlias = Annotated[int, Range(1, 10**15)]
Seconds: TypeAlias = Annotated[float, Range(0, 10**6, is_above=True)]
FrameRate: TypeAlias = Annotated[float, Range(0.001)]
Folder: TypeAlias = Annotated[Path, click.Path(file_okay=False, path_type=Path)]
File: TypeAlias = Annotated[Path, click.Path(dir_okay=False, path_type=Path)]


# ------------------------------------------------------------------ single options

_STEP_TIMEOUT: Final = CliOption(
    "Time a game may take between two actions before it counts as hanging, a bot for a decision, "
    "unless a person plays, and a function of a look for a picture. 0 = no limit. Without workers, "
    "only Python code that hangs can be stopped.",
    name="--step-timeout",
    metavar="SECONDS",
    make=lambda seconds: seconds or None,
)
STEP_TIMEOUT_S: Final = 30.0
PageTimeout: TypeAlias = Annotated[
    float | None,
    Range(0, 10**6),
    _STEP_TIMEOUT._replace(
        help="Time the game may take between two actions, and an agent for a decision; then the "
        "page stops them and says so. 0 = no limit."
    ),
]
StepTimeout: TypeAlias = Annotated[float | None, Range(0, 10**6), _STEP_TIMEOUT]
_MAX_STEPS: Final = CliOption(
    "Actions of an agent after which an episode counts as truncated, because it may never end; 0 = "
    "no limit.",
    name="--max-steps",
    metavar="N",
    default=f"{MAX_STEPS}; no limit if a person plays",
)
MaxSteps: TypeAlias = Annotated[int | None, Range(0, 10**15), _MAX_STEPS]
"""None = the default; see `step_limit`."""


def step_limit(max_steps: int | None, names: Sequence[str] = ()) -> int | None:
    """The step limit of episodes, or None, given `--max-steps` and the names of the agents."""
    if max_steps is None:
        return None if HUMAN in names else MAX_STEPS
    return max_steps or None


OnErrorChoice: TypeAlias = Annotated[
    OnError,
    CliOption(
        "What to do when a game raises, hangs or dies: raise ends the command; restart truncates "
        "the failed episode and begins the next one.",
        name="--on-error",
    ),
]
TransportChoice: TypeAlias = Annotated[
    Transport | None,
    CliOption(
        "How copies of the game wait for their actions: greenlet runs all of them in one thread; "
        "thread gives each its own thread, for games that run an event loop (asyncio).",
        default="the game's own",
    ),
]
Failures: TypeAlias = Annotated[
    Folder | None,
    CliOption("Folder for replays of episodes that raise, hang or die.", metavar="FOLDER"),
]
RayAddress: TypeAlias = Annotated[
    str | None,
    CliOption(
        "Run on a Ray cluster: auto (the one on this machine, or a new one), local, HOST:PORT or "
        "ray://HOST:PORT.",
        name="--ray",
        metavar="ADDRESS",
    ),
]
Jobs: TypeAlias = Annotated[
    int | None,
    Range(1, 1024),
    CliOption(
        "Number of parallel training runs, each in its own process.",
        name="--jobs",
        metavar="N",
        default="one per core",
    ),
]
Clock: TypeAlias = Annotated[
    Seconds | None,
    CliOption(
        "Time limit for each decision of a human player, except the first of an episode. When time "
        "runs out, the choice is the one that does nothing (such as STAY, WAIT or PASS), or else "
        "the previous choice, or else the first. With at most 1 second, the game runs in real "
        "time: it always waits until the time is up.",
        name="--clock",
        metavar="SECONDS",
    ),
]
PresetName: TypeAlias = Annotated[
    str | None,
    OneOf(PRESETS),
    CliOption("Default settings for a kind of environment.", default="chosen for the game"),
]
LookName: TypeAlias = Annotated[
    str | None, CliOption("Look that draws the game.", metavar="FILE.py|MODULE:NAME")
]
Renames: TypeAlias = Annotated[
    tuple[str, ...],
    CliOption(
        "Use OURS, a name in the game, for what a trained agent knows as THEIRS: an entity, "
        "feature, action or choice. May be repeated.",
        name="--rename",
        metavar="THEIRS=OURS",
    ),
]
Greedy: TypeAlias = Annotated[
    bool | None,
    CliOption(
        "Trained agents take the most probable action, or sample.",
        name="--greedy/--sample",
        default="what plays better, as measured at the end of their training; else --sample",
    ),
]
IsOpened: TypeAlias = Annotated[
    bool,
    CliOption(
        "Open the browser if there is a screen. The address is always printed.",
        name="--open/--no-open",
    ),
]


def names_of(pairs: Sequence[str]) -> dict[str, str]:
    """The game's names by those of a network, from the texts of `--rename`."""
    found = {}
    for pair in pairs:
        theirs, _, ours = pair.partition("=")
        if not (theirs and ours):
            raise UsageError(f"--rename needs THEIRS=OURS, got {pair!r}")
        found[theirs] = ours
    return found


def any_seed() -> int:
    """A random seed; known to the command line, so error messages can name it."""
    return secrets.randbelow(2**31)


# ------------------------------------------------------------------ groups of options


@dataclass(frozen=True, kw_only=True)
class GameSettings:
    """Settings of a game."""

    texts: Annotated[tuple[str, ...], CliOption(name="--set", metavar="NAME=VALUE")] = ()
    """A setting of the game, such as board_size=6. May be repeated."""

    @property
    def words(self) -> list[str]:
        return [word for text in self.texts for word in ("--set", text)]


GameName: TypeAlias = Annotated[str, Argument("GAME")]


@dataclass(frozen=True, kw_only=True)
class AgentOptions:
    """The agents that play, and how they choose actions."""

    agents: Annotated[tuple[str, ...], CliOption(name="--agent", metavar="AGENT")] = ()
    """random, human, a bot FILE.py:CLASS, the folder of a checkpoint or training run, or an
    exported *.agent file. In a game for several agents, repeat the option once per agent; agents
    that are not given are random."""
    greedy: Greedy = None
    temperature: Annotated[float, Range(0, is_above=True)] = 1.0
    """Randomness of trained agents: above 1 closer to uniform, below 1 closer to --greedy."""
    adapt: bool = False
    """Let trained agents play a game with more entities and features than they were trained on;
    they ignore the additions."""
    rename: Renames = ()

    def __post_init__(self) -> None:
        names_of(self.rename)

    @property
    def load(self) -> AgentLoader:
        names = names_of(self.rename)
        return AgentLoader(self.greedy, self.temperature, self.adapt, names or None)


@dataclass(frozen=True, kw_only=True)
class PlayOptions:
    """Seeds and time limits of episodes that are played or watched."""

    seed: SeedNumber = field(default_factory=any_seed)
    """Seed of the run and of the agents."""
    episode_seed: SeedNumber | None = None
    """Play the episode with this seed, as shown by play and in errors."""
    clock_s: Clock = None
    step_timeout_s: StepTimeout = STEP_TIMEOUT_S
    max_steps: MaxSteps = None

    def require(self, names: Sequence[str]) -> None:
        if self.clock_s is not None and HUMAN not in names:
            raise UsageError("--clock is for human players: add --agent human")

    def play(
        self,
        game: Game,
        agents: Sequence[Agent],
        watch: Watch,
        episodes: int = 1,
        *,
        names: Sequence[str],
    ) -> list[Episode]:
        """Plays episodes with agents of these names."""
        start = partial(game.run, seed=self.seed, episodes=episodes)
        if self.episode_seed is not None:
            start = partial(game.play_episode, seed=self.episode_seed)
        limits = RunLimits(
            max_steps=step_limit(self.max_steps, names),
            agent_timeout_s=None if HUMAN in names else self.step_timeout_s,
        )
        return start(*agents, watch=watch, step_timeout_s=self.step_timeout_s, limits=limits)

    def play_in_terminal(
        self,
        game: Game,
        agents: Sequence[Agent],
        watch: Watch,
        episodes: int = 1,
        *,
        names: Sequence[str],
    ) -> list[Episode]:
        """Like `play`; with a clock, the terminal does not echo keys between questions."""
        keys = nullcontext() if self.clock_s is None else Keyboard(sys.stdin).single_keys()
        with game_errors(game), keys:
            return self.play(game, agents, watch, episodes, names=names)

    @property
    def seeds(self) -> str:
        """The seeds in words; agents use the run's seed even in a single episode."""
        words = "" if self.episode_seed is None else f", episode seed {self.episode_seed}"
        return f"seed {self.seed}{words}"


@dataclass(frozen=True, kw_only=True)
class CopyOptions:
    """The environments of a run."""

    num_envs: Annotated[Envs | None, CliOption(default="chosen for the game and --steps")] = None
    """Number of environments."""
    num_workers: Annotated[
        Workers | None, CliOption(default="one per core; 0 for batch environments")
    ] = None
    """Number of worker processes; 0 = none."""
    given_timeout_s: Annotated[
        float | None,
        Range(0, 10**6),
        _STEP_TIMEOUT._replace(make=None, default="30; no limit for batch environments"),
    ] = None
    on_error: OnErrorChoice = "raise"
    transport: TransportChoice = None

    def step_timeout_s(self, *, is_batch: bool) -> float | None:
        """Time limit of a step, or None; without `--step-timeout`, for a batch or for games."""
        if self.given_timeout_s is None:
            return None if is_batch else STEP_TIMEOUT_S
        return self.given_timeout_s or None


@dataclass(frozen=True, kw_only=True)
class LimitOptions:
    """Limits of playing a replay again."""

    timeout_s: Annotated[Seconds, CliOption(name="--timeout", metavar="SECONDS")] = (
        PLAY_LIMITS.timeout_s or 0
    )
    """Time limit for playing a replay again; for a report, all of its replays together."""
    max_gib: Annotated[Seconds, CliOption(name="--max-memory", metavar="GIB")] = (
        PLAY_LIMITS.max_memory or 0
    ) / _GIB
    """Memory limit for playing a replay again, on Linux."""
    step_timeout_s: StepTimeout = STEP_TIMEOUT_S

    @property
    def limits(self) -> PlayLimits:
        memory = int(self.max_gib * _GIB)
        return PlayLimits(self.timeout_s, self.step_timeout_s, memory, None)


_MAX_SHOWN: Final = CliOption(
    "Most entities and features that one replay may show, over all of its decisions.",
    metavar="N",
)


@dataclass(frozen=True, kw_only=True)
class DrawingLimits(LimitOptions):
    """Limits of commands that draw replays."""

    max_shown: Annotated[Count, _MAX_SHOWN] = PLAY_LIMITS.max_shown or 1

    @property
    def limits(self) -> PlayLimits:
        return super().limits._replace(max_shown=self.max_shown)


@dataclass(frozen=True, kw_only=True)
class ReadingLimits(DrawingLimits):
    """Limits of commands that only read replays, which takes a tenth of the time of drawing."""

    max_shown: Annotated[Count, _MAX_SHOWN] = 100_000_000


def require_writable(folder: Path, option: str = "--out") -> None:
    """Checks that files can be written to a folder, which need not exist.

    Raises:
        UsageError: they cannot; the message names the option for the folder.
    """
    try:
        missing = [each for each in (folder, *folder.parents) if not each.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
        with suppress(OSError):  # another run has started there
            for each in missing:
                each.rmdir()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot write to {folder}: {reason}; choose another {option}") from error


def default_workers(num_envs: int, num_ranks: int = 1) -> int:
    """Default number of worker processes: one per core, at most `num_envs`; 0 on one core.

    `num_ranks` processes share the cores. Also 0, with a warning, on systems without workers.
    """
    cores = num_cores() // num_ranks
    if cores <= 1:
        return 0
    if missing := missing_for_workers():
        _log.warning("everything runs in this process: workers need %s", missing)
        return 0
    return min(cores, num_envs)
