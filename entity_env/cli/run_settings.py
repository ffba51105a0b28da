"""Settings of a run from four places: options, --set-train, --config, and the run that goes on."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final, TypeAlias

import click

from entity_env.agents.ppo import PPOConfig
from entity_env.agents.ppo.tracking.runs import RUN_FILE, read_about
from entity_env.agents.ppo.tracking.settings_file import (
    SettingsFile,
    parse_setting_text,
    read_settings,
    run_settings,
)
from entity_env.agents.rogue_net import RogueNetConfig
from entity_env.cli.load_game import load_game, nearest
from entity_env.errors import UsageError, shown

_Text: TypeAlias = str | list[str]

_TRAINER: Final = {"steps", *(each.name for each in fields(PPOConfig))}
_NET: Final = {each.name for each in fields(RogueNetConfig)}
_BEGINS: Final = {"init_from", "adapt"}
"""Options of the begin of a run: one that goes on has its network."""
_OF_THE_CALL: Final = {"config", "set_train", "resume", "out", "help"}
"""Options that a run does not go on with."""
_SET: Final = "set"
_TABLES: Final = ("net", "game", "run")


@dataclass
class GivenSettings:
    """What the command line, a file and an earlier run say.

    Args:
        options: texts of all options that are not of the trainer, by their names with underscores;
            with them `run.json` says how to go on.
        trainer: settings of the trainer, each with its source, later ones first in rank.
        earlier: the `run.json` of the run that goes on; empty for a new run.
        sources: where options that were not typed are from.
    """

    options: dict[str, _Text] = field(default_factory=dict)
    trainer: list[tuple[str, Mapping[str, object]]] = field(default_factory=list)
    earlier: Mapping[str, Any] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)

    @property
    def total_steps(self) -> int | None:
        """The steps that a file or --set-train say."""
        found = [
            settings["total_steps"] for _, settings in self.trainer if "total_steps" in settings
        ]
        return found[-1] if found and type(found[-1]) is int else None

    def applied(self, start: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of `PPOConfig` in `start`, with the settings of files in their place."""
        if not self.trainer:
            return dict(start)
        config = PPOConfig(**start)
        for source, settings in self.trainer:
            config = config.changed(settings, source)
        return {each.name: getattr(config, each.name) for each in fields(config)}

    def changes(self, start: Mapping[str, Any], config: PPOConfig) -> list[str]:
        """What is other than in the run that goes on, in words."""
        run = run_settings(self.earlier).run
        before = {
            **PPOConfig(**start).to_json(),
            **{name: _text(value) for name, value in run.items()},
        }
        after = {**config.to_json(), **self.stored}
        return [
            f"{name} {_shown(before[name])} -> {_shown(value)}"
            if name in before
            else f"{name} {_shown(value)}"
            for name, value in after.items()
            if before.get(name) != value
        ]

    @property
    def stored(self) -> dict[str, _Text]:
        """The options with which the run goes on."""
        return {name: value for name, value in self.options.items() if name != "out"}


def _shown(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


class RunCommand(click.Command):
    """A command whose options may also come from a file, and from the run that it resumes.

    The command gets what they say as the argument `given`.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        typed, *_ = self.make_parser(ctx).parse_args(args=list(args))
        if ctx.resilient_parsing or typed.get("help"):
            return super().parse_args(ctx, args)
        by_param = {param.name: _public_name(param) for param in self.params if param.name}
        texts = {
            by_param[name]: value
            for name, value in typed.items()
            if name in by_param and isinstance(value, str | list | bool)
        }
        repeated = {by_param[p.name] for p in self.params if p.name and _is_repeated(p)}
        given = _collect(texts, {option: name for name, option in by_param.items()}, repeated)
        ctx.default_map = {
            **(ctx.default_map or {}),
            **{
                name: given.options[option]
                for name, option in by_param.items()
                if option in given.sources
            },
        }
        try:
            rest = super().parse_args(ctx, args)
        except click.BadParameter as error:
            name = by_param.get(error.param.name or "", "") if error.param is not None else ""
            if source := given.sources.get(name):
                raise UsageError(f"{source}: {name}: {error.message}") from error
            raise
        ctx.params["settings"] = tuple(given.options.get(_SET, ()))  # also those of files
        ctx.params["given"] = given
        return rest


def _public_name(param: click.Parameter) -> str:
    """The name of an option in files: `num_envs` of --num-envs; of an argument its own."""
    if isinstance(param, click.Option):
        return max(param.opts, key=len).lstrip("-").replace("-", "_")
    return param.name or ""


def _is_repeated(param: click.Parameter) -> bool:
    """Whether an option may be given several times."""
    return isinstance(param, click.Option) and param.multiple


def _collect(
    typed: Mapping[str, Any], params: Mapping[str, str], repeated: Collection[str]
) -> GivenSettings:
    """Options and settings of all places, those that were typed before the others.

    Args:
        typed: options of the command line.
        params: the name of the parameter of every option.
        repeated: options that may be given several times; in files also once, without a list.
    """
    given = GivenSettings()
    path = Path(typed["config"]) if "config" in typed else None
    file = SettingsFile({}, {}, {}) if path is None else read_settings(path)
    found: list[tuple[str, Mapping[str, object]]] = []
    if typed.get("resume"):
        out = _folder({**file.run, **typed})
        given.earlier = read_about(out)
        if given.earlier:
            _require_same_game(typed.get("game"), given.earlier, out)
            run = run_settings(given.earlier).run
            run = {name: value for name, value in run.items() if name not in _BEGINS}
            found.append((str(out / RUN_FILE), run))
        elif "game" not in typed and "game" not in file.run:
            raise UsageError(f"{out} has no {RUN_FILE} that names the game: name it")
    if path is not None:
        if path.suffix != ".json":
            _require_places(path, file, params)
        given.trainer.append((str(path), file.trainer))
        found.append((str(path), file.run))
    for text in typed.get("set_train", ()):
        given.trainer.append((f"--set-train {text}", parse_setting_text(text)))
    own = _own(params) | {_SET}
    settings: dict[str, str] = {}
    for source, options in found:
        for name, value in options.items():
            if (option := name.replace("-", "_")) in own:
                is_single = option in repeated and not isinstance(value, list)
                given.options[option] = _text([value] if is_single else value)
                given.sources[option] = source
        settings |= _by_name(given.options.pop(_SET, ()))
    settings |= {name: _game_text(path, name, value) for name, value in file.game.items()}
    settings |= _by_name(typed.get(_SET, ()))
    given.options |= {name: _text(typed[name]) for name in own & set(typed)}
    given.sources = {name: each for name, each in given.sources.items() if name not in typed}
    if settings:
        given.options[_SET] = list(settings.values())
    return given


def _folder(given: Mapping[str, Any]) -> Path:
    """The folder of the run that goes on."""
    if "out" in given:
        return Path(str(given["out"]))
    if "game" not in given:
        raise UsageError("--resume needs the folder of the run, --out runs/NAME, or its game")
    return Path("runs", load_game(str(given["game"])).name)


def _require_same_game(typed: str | None, earlier: Mapping[str, Any], out: Path) -> None:
    """Raises `UsageError` if the run that goes on is one of another game."""
    theirs = earlier.get("game")
    if typed in (None, theirs) or theirs is None:
        return
    name = earlier.get("game_name") or theirs
    if (game := load_game(str(typed)).name) != name:  # one game may be typed in several ways
        raise UsageError(f"{out} is a run of {name}, not of {game}")


def _own(params: Mapping[str, str]) -> set[str]:
    """Options that may stand in [run]: neither of the trainer and network, nor of one call."""
    kept = {option for option, name in params.items() if name not in _TRAINER | _NET}
    return kept - _OF_THE_CALL - {_SET} | {"out"}


def _require_places(path: Path, file: SettingsFile, params: Mapping[str, str]) -> None:
    """Checks that every key of a file is in its table."""
    options = _own(params)
    for name, value in file.trainer.items():
        if isinstance(value, Mapping) and name not in _TRAINER:
            hint = nearest(name, _TABLES) or "; there are net, game and run"
            raise UsageError(f"{path}: there is no table [{name}]{hint}")
        if name.replace("-", "_") in options:
            raise UsageError(f"{path}: {name} belongs in the table [run]")
        if name in _NET:
            raise UsageError(f"{path}: {name} belongs in the table [net]")
    for name in file.run:
        option = name.replace("-", "_")
        if option in options:
            continue
        setting = params.get(option, option)
        if setting in _NET:
            raise UsageError(f"{path}: in [run]: {name} belongs in the table [net], as {setting}")
        if setting in _TRAINER:
            right = "total_steps" if setting == "steps" else setting
            raise UsageError(f"{path}: in [run]: {name} belongs before the tables, as {right}")
        hint = nearest(option, options) or f"; there are {', '.join(sorted(options))}"
        raise UsageError(f"{path}: there is no option {name!r} in [run]{hint}")


def _by_name(settings: Iterable[str]) -> dict[str, str]:
    return {text.partition("=")[0]: text for text in settings}


def _game_text(path: Path | None, name: str, value: object) -> str:
    if isinstance(value, list | dict):
        raise UsageError(
            f"{path}: in [game]: {name} must be a number or a text, got {shown(value)}"
        )
    return f"{name}={_text(value)}"


def _text(value: object) -> _Text:
    """A value as it would be typed, so that options check it themselves."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [str(_text(each)) for each in value]
    return str(value).lower() if isinstance(value, bool) else str(value)
