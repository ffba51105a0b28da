"""`entity-env collect`: receives the replays that players of a page send."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Annotated, Final

from entity_env.cli.command import CliOption, Section
from entity_env.cli.display.console import echo
from entity_env.cli.load_game import load_game
from entity_env.cli.options import (
    Count,
    Folder,
    GameName,
    GameSettings,
    LimitOptions,
    Seconds,
    require_writable,
)
from entity_env.core.validation import Range
from entity_env.page.collect import CollectSettings, ReplayCollector

_DEFAULTS: Final = CollectSettings()
_A_DAY_S: Final = 86400.0


@dataclass(frozen=True, kw_only=True)
class AddressOptions:
    """Address for replays, and the senders that may use it."""

    host: str = _DEFAULTS.host
    """Address to listen on; 0.0.0.0 = all of this machine."""
    port: Annotated[int, Range(0, 65535)] = 8753
    """Port to listen on; 0 = any free port."""
    key: Annotated[str | None, CliOption(metavar="TEXT", default="random")] = None
    """Last part of the address, which senders must know. A page with the address contains it."""
    origins: Annotated[tuple[str, ...], CliOption(name="--origin", metavar="URL")] = ()
    """Receive only from pages of this site, such as https://example.com. May be repeated."""
    proxied: bool = False
    """Requests come through a proxy that adds the sender's address to X-Forwarded-For."""


@dataclass(frozen=True, kw_only=True)
class AmountOptions:
    """How much is received."""

    max_kb: Annotated[int, Range(1, 1 << 18)] = _DEFAULTS.max_kb
    """Largest replay, in KiB."""
    per_minute: Count = _DEFAULTS.per_minute
    """Replays per minute and sender."""
    max_replays: Count = _DEFAULTS.max_replays
    """Replays in the folder; further ones are refused."""


@dataclass(frozen=True, kw_only=True)
class PlayingLimits(LimitOptions):
    """Limits of playing a received replay again."""

    timeout_s: Annotated[Seconds, CliOption(name="--timeout", metavar="SECONDS")] = (
        _DEFAULTS.play.timeout_s or 0
    )
    """Time limit for playing a replay again."""


@dataclass(frozen=True, kw_only=True)
class Collect:
    """Receive replays that players send from a page.

    Every replay is played again in GAME, in its own process with limits. Only those that play
    equally to their end are kept, written by the game as it plays here. Replays of other games or
    other settings are refused: senders choose moves, never code. Prints the address for the page's
    --send, and a line for each replay. Ctrl-C ends it.
    """

    game: GameName
    out: Folder
    """Folder for the replays. Nothing in it is replaced or deleted."""
    address: Annotated[AddressOptions, Section("Address")]
    amount: Annotated[AmountOptions, Section("Amount")]
    settings: GameSettings
    limits: Annotated[PlayingLimits, Section("Playing again")]

    def run(self) -> None:
        game = load_game(self.game, self.settings.texts)
        game.require_settings()
        require_writable(self.out)
        settings = CollectSettings(
            host=self.address.host,
            port=self.address.port,
            key=self.address.key or "",
            origins=self.address.origins,
            is_proxied=self.address.proxied,
            max_kb=self.amount.max_kb,
            per_minute=self.amount.per_minute,
            max_replays=self.amount.max_replays,
            play=self.limits.limits,
        )
        collector = ReplayCollector(game, self.out, echo, settings)
        with suppress(KeyboardInterrupt), _interrupted_by_sigterm(), collector:
            echo(f"replays of {game.name} are received at {collector.url}")
            while True:
                time.sleep(_A_DAY_S)
        counts = collector.counts
        again = f", {counts['again']} sent again" if counts["again"] else ""
        echo(f"kept {counts['kept']} in {self.out}{again}, refused {counts['refused']}")


@contextmanager
def _interrupted_by_sigterm() -> Iterator[None]:
    """Context in which SIGTERM, as sent by service managers, ends the command like Ctrl-C."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
