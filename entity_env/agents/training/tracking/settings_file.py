"""Settings files: TOML, or the `run.json` of an earlier run; and settings typed as text."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from entity_env.agents.rogue_net.config import stored_net
from entity_env.core.files import parse_json, read_file
from entity_env.errors import UsageError, shown

RUN_FORMAT: Final = "entity_env.run"
MAX_BYTES: Final = 1 << 20
_TABLES: Final = ("run", "game")
_WORD: Final = re.compile(r"[A-Za-z_][\w:./-]*")


class SettingsFile(NamedTuple):
    """Content of a settings file.

    Args:
        trainer: fields of `PPOConfig`; "net" is a mapping.
        run: command-line options, named with underscores, and "game", the game's name.
        game: settings of the game; empty for a `run.json`, where `run` includes them.
    """

    trainer: Mapping[str, object]
    run: Mapping[str, object]
    game: Mapping[str, object]


def read_settings(path: Path) -> SettingsFile:
    """Reads a settings file.

    Raises:
        UsageError: the file is unreadable, is neither valid TOML nor the `run.json` of a run, or
            its `run` or `game` is not a table; the message names the file.
    """
    try:
        text = read_file(path, MAX_BYTES)
        data = parse_json(text) if path.suffix == ".json" else tomllib.loads(text.decode())
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:  # raised by TOML, JSON and UTF-8
        raise UsageError(f"cannot read {path}: {error}") from error
    if path.suffix != ".json" and isinstance(data, dict):
        tables = {name: data.pop(name, {}) for name in _TABLES}
        for name, table in tables.items():
            if not isinstance(table, dict):
                hint = '; name the game in the table [run]: game = "snake"'
                raise UsageError(
                    f"{path}: {name} must be a table, [{name}], got {shown(table)}"
                    + hint * (name == "game")
                )
        return SettingsFile(data, tables["run"], tables["game"])
    if not isinstance(data, dict) or data.get("format") != RUN_FORMAT:
        raise UsageError(f"{path}: expected the run.json of a run, or a TOML file, NAME.toml")
    return run_settings(data)


def run_settings(data: Mapping[str, Any]) -> SettingsFile:
    """The settings in a `run.json`, whose options include the settings of the game."""
    config, options = data.get("config"), data.get("options")
    net = config.get("net") if isinstance(config, dict) else None
    if isinstance(config, dict) and isinstance(net, dict):
        kind, sizes = stored_net(net)
        config = {**config, "net": {"kind": kind, **sizes}}
    run = {name: data[name] for name in ("game", "num_envs") if data.get(name) is not None}
    run |= options if isinstance(options, dict) else {}
    return SettingsFile(config if isinstance(config, dict) else {}, run, {})


def parse_setting_text(text: str) -> dict[str, object]:
    """Parses `NAME=VALUE`, where VALUE is TOML or a bare word; a dotted NAME gives nested dicts.

    Raises:
        UsageError: the text does not have this form.
    """
    name, is_given, value = (part.strip() for part in text.partition("="))
    if not is_given or not re.fullmatch(r"\w+(\.\w+)*", name) or "\n" in value:
        raise UsageError(f"expected a setting NAME=VALUE, got {shown(text)}")
    try:
        return tomllib.loads(f"{name} = {value}")
    except (ValueError, RecursionError) as error:  # also numbers too long, lists too deep
        if not _WORD.fullmatch(value):
            raise UsageError(
                f"{name} must be a word or a TOML value (a number, a list), got {shown(value)}"
            ) from error
        return tomllib.loads(f'{name} = "{value}"')
