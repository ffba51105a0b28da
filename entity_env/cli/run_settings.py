"""Settings of a run from four places: options, --set-train, --config, and a resumed run."""

from __future__ import annotations

import difflib
import json
import os
import re
import shlex
from collections import ChainMap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final, TypeAlias

import click

from entity_env.agents.ppo import PPOConfig
from entity_env.agents.ppo.config import closest_setting
from entity_env.agents.rogue_net import RogueNetConfig
from entity_env.agents.training.tracking.runs import RUN_FILE, read_about
from entity_env.agents.training.tracking.settings_file import (
    SettingsFile,
    parse_setting_text,
    read_settings,
    run_settings,
)
from entity_env.authoring.load_module import split_file_name
from entity_env.cli.command import CommandParser, SectionOption
from entity_env.cli.load_game import game_code, load_game, nearest, setting_names
from entity_env.cli.named import Name, may_name, remember
from entity_env.errors import UsageError, shown

_Text: TypeAlias = str | list[str]

_TRAINER: Final = {each.name for each in fields(PPOConfig)}
_NET: Final = {each.name for each in fields(RogueNetConfig)}
_BEGINS: Final = {"init_from", "adapt", "rename"}
"""Options for the start of a run; a resumed run already has a network."""
_OF_THE_CALL: Final = {
    *("config", "set_train", "resume", "out", "until", "time_of", "help", "seeds", "jobs")
}
"""Options that a resumed run does not take over."""
_CLOSE: Final = 0.8
"""Similarity from which on a wrong option means one of this command, and no setting."""
_SET: Final = "set"
_TYPED: Final = "entity_env.typed"
_GIVEN: Final = "entity_env.given"
HELP: Final = "help"
"""Value of --set-train that lists the settings."""
_TABLES: Final = ("net", "game", "run")
_WRITTEN: Final = ("out", "failures")
"""Options for folders that a run writes."""
_PLAYERS: Final = ("opponent", "eval_opponent")
"""Options for an agent: a path, or a word."""
_PLAIN: Final = {
    "eval_opponent": "random",
    "opponent": "self|random|none",
    "ray": "auto|local",
}
"""Option texts that name nothing outside the package."""


@dataclass
class GivenSettings:
    """Settings from the command line, a file and an earlier run.

    Args:
        options: texts of all options other than the trainer's, by name with underscores; stored in
            `run.json` for a resume.
        trainer: settings of the trainer with their sources; later ones take precedence.
        earlier: the `run.json` of the resumed run; empty for a new run.
        run_file: path of that `run.json`.
        sources: files of options that were not typed.
        setting_sources: files of the game's settings that were not typed.
    """

    options: dict[str, _Text] = field(default_factory=dict)
    trainer: list[tuple[str, Mapping[str, object]]] = field(default_factory=list)
    earlier: Mapping[str, Any] = field(default_factory=dict)
    run_file: str = ""
    sources: dict[str, str] = field(default_factory=dict)
    setting_sources: dict[str, str] = field(default_factory=dict)

    @property
    def total_steps(self) -> int | None:
        """The steps in a file or --set-train."""
        last = ChainMap(*(dict(each) for _, each in reversed(self.trainer))).get("total_steps")
        return last if type(last) is int else None

    def applied(self, start: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of `PPOConfig` in `start`, overridden by the settings in `trainer`."""
        if not self.trainer:
            return dict(start)
        config = PPOConfig(**start)
        for source, settings in self.trainer:
            config = config.changed(settings, source)
        return {each.name: getattr(config, each.name) for each in fields(config)}

    def changes(self, start: Mapping[str, Any], config: PPOConfig) -> list[str]:
        """Differences from the resumed run, in words."""
        before = PPOConfig(**start).to_json()
        before |= {name: _text(value) for name, value in run_settings(self.earlier).run.items()}
        return [
            f"{name} {f'{_shown(before[name])} -> ' if name in before else ''}{_shown(value)}"
            for name, value in {**config.to_json(), **self.stored}.items()
            if before.get(name) != value
        ]

    def of_files(self) -> Iterator[tuple[str, str, str, str]]:
        """Every option that was not typed, except settings of games.

        Yields name, file and text of the option, and the text without an opponent's share.
        """
        for option, source in self.sources.items():
            for text in _texts(self.options.get(option, [])):
                yield option, source, text, _without_share(option, text)
        opponents = self.earlier.get("opponents")
        if "opponent" not in self.options and isinstance(opponents, dict):
            for name in map(str, opponents):
                yield "opponent", self.run_file, name, name

    @property
    def stored(self) -> dict[str, _Text]:
        """The options for a resume."""
        return {name: value for name, value in self.options.items() if name != "out"}


def _shown(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


class ConfigOption(SectionOption):
    """--config, which is read first: its file provides defaults for other options."""

    def __init__(self, *args: Any, **attrs: Any) -> None:  # noqa: ANN401 - as click's
        super().__init__(*args, **attrs, is_eager=True)

    def handle_parse_result(
        self, ctx: click.Context, opts: Mapping[str, Any], args: list[str]
    ) -> tuple[Any, list[str]]:
        """Also reads the file and the resumed run."""
        if not ctx.resilient_parsing and not opts.get("help"):
            _take_defaults(ctx, opts)
        return super().handle_parse_result(ctx, opts, args)


class RunParser(CommandParser):
    """A command whose options may also come from a file and from the resumed run.

    They are in the `meta` of its context, see `given_settings`.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            rest = super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            option, setting = error.option_name, _setting_of(error.option_name)
            close = difflib.get_close_matches(option, error.possibilities or (), 1, _CLOSE)
            if not setting and not close and (found := _option_of(option, self)):
                raise UsageError(f"no option {option}; did you mean {found}?") from error
            if setting:
                raise UsageError(
                    f"{error.option_name} is a setting of the trainer: --set-train {setting}=VALUE"
                    "; --set-train help lists them"
                ) from error
            raise
        except click.BadParameter as error:
            name = _public_name(error.param) if error.param is not None else ""
            given = ctx.meta.get(_GIVEN)
            if given is not None and (source := given.sources.get(name)):
                raise UsageError(f"{source}: {name}: {error.message}") from error
            raise
        if _GIVEN in ctx.meta:
            settings = given_settings(ctx).options.get(_SET, ())  # includes files
            ctx.params["texts"] = tuple(settings)
        return rest


def _setting_of(option: str) -> str:
    """The setting that a text such as --clip-coef names, or ""."""
    name = option.lstrip("-").replace("-", "_")
    for each in (name, name.removeprefix("no_"), f"{name}_encoding"):
        if each in _TRAINER:
            return each
        if each in _NET:
            return f"net.{each}"
    return ""


def _option_of(option: str, command: click.Command) -> str:
    """The option, or setting of the trainer, that a text such as --lr seems to mean, or ""."""
    setting = closest_setting(option.lstrip("-").replace("-", "_"), _TRAINER)
    for param in command.params:
        if setting and param.name == setting:
            return max(param.opts, key=len)
    return f"--set-train {setting}=VALUE" if setting else ""


def given_settings(context: click.Context) -> GivenSettings:
    """See `GivenSettings`."""
    found: GivenSettings = context.meta[_GIVEN]
    return found


def _take_defaults(ctx: click.Context, typed: Mapping[str, Any]) -> None:
    """Reads defaults of options that were not typed."""
    params = {_public_name(param): param for param in ctx.command.params}
    values = {option: typed.get(param.name or "") for option, param in params.items()}
    texts = {name: each for name, each in values.items() if isinstance(each, str | list | bool)}
    given = _collect(texts, params)
    _require_named(given, texts, params)
    defaults = {params[option].name: given.options[option] for option in given.sources}
    ctx.default_map = {**(ctx.default_map or {}), **defaults}
    ctx.meta.update({_TYPED: dict(typed), _GIVEN: given})


def typed_words(context: click.Context, without: Collection[str]) -> list[str]:
    """The typed words of a `RunParser`, without some parameters."""
    words, arguments = [], ["--"]
    for param in context.command.params:
        if param.name not in context.meta[_TYPED] or param.name in without:
            continue
        value = context.meta[_TYPED][param.name]
        if isinstance(param, click.Argument):
            arguments += _texts(value)
        elif isinstance(value, bool):
            words.append(param.opts[0] if value else param.secondary_opts[0])
        else:
            words += [word for text in _texts(value) for word in (param.opts[0], text)]
    return [*words, *arguments]


def _public_name(param: click.Parameter) -> str:
    """Name of an option in files: `num_envs` for --num-envs; for an argument, its own name."""
    if isinstance(param, click.Option):
        return max(param.opts, key=len).lstrip("-").replace("-", "_")
    return param.name or ""


def _collect(typed: Mapping[str, Any], params: Mapping[str, click.Parameter]) -> GivenSettings:
    """Options and settings from all places; typed ones take precedence.

    Args:
        typed: options of the command line.
        params: of the command, by option name.
    """
    given = GivenSettings()
    path = Path(typed["config"]) if "config" in typed else None
    file = SettingsFile({}, {}, {}) if path is None else read_settings(path)
    found: list[tuple[str, Mapping[str, object]]] = []
    if typed.get("resume"):
        out = _folder(typed, file.run)
        given.earlier, given.run_file = read_about(out), str(out / RUN_FILE)
        if given.earlier:
            _require_same_game(typed.get("game"), given.earlier, out)
            run = run_settings(given.earlier).run
            run = {name: value for name, value in run.items() if name not in _BEGINS}
            found.append((str(out / RUN_FILE), run))
        elif "game" not in typed and "game" not in file.run:
            raise UsageError(
                f"{out} has no {RUN_FILE}, so the game is unknown: entity-env train GAME --resume "
                f"--out {shlex.quote(str(out))}"
            )
    if path is not None:
        if path.suffix != ".json":
            _require_places(path, file, params)
        given.trainer.append((str(path), file.trainer))
        found.append((str(path), file.run))
    for text in typed.get("set_train", ()):
        if text != HELP:
            given.trainer.append((f"--set-train {text}", parse_setting_text(text)))
    own = _own(params) | {_SET}
    settings: dict[str, tuple[str, str]] = {}
    """Text and source of the game's settings; "" = typed."""
    for source, options in found:
        for name, value in options.items():
            if (option := name.replace("-", "_")) in own:
                text = _option_text(value, params[option], f"{source}: {name}")
                if option == _SET:
                    settings |= _by_name(text, source)
                else:
                    given.options[option], given.sources[option] = text, source
    settings |= {
        name: (_game_text(path, name, value), str(path)) for name, value in file.game.items()
    }
    settings |= _by_name(typed.get(_SET, ()), "")
    given.setting_sources = {name: source for name, (_, source) in settings.items() if source}
    given.options |= {name: _text(typed[name]) for name in own & set(typed)}
    given.sources = {name: each for name, each in given.sources.items() if name not in typed}
    if settings:
        given.options[_SET] = [text for text, _ in settings.values()]
    return given


def _folder(typed: Mapping[str, Any], file: Mapping[str, Any]) -> Path:
    """The folder of the resumed run."""
    if "out" in typed or "out" in file:
        return Path(str(typed.get("out", file.get("out"))))
    if "game" not in typed:
        raise UsageError("--resume needs the folder of the run, --out runs/NAME, or its game")
    return Path("runs", load_game(str(typed["game"])).name)


def _require_same_game(typed: str | None, earlier: Mapping[str, Any], out: Path) -> None:
    """Raises `UsageError` if the resumed run has another game."""
    theirs = earlier.get("game")
    if typed in (None, theirs) or theirs is None:
        return
    name = earlier.get("game_name") or theirs
    if (game := load_game(str(typed)).name) != name:  # a game may be typed in several ways
        raise UsageError(f"{out} is a run of {name}, not of {game}")


def _own(params: Mapping[str, click.Parameter]) -> set[str]:
    """Options allowed in [run]: `out`, and all except those of the trainer, network or one call."""
    kept = {option for option, param in params.items() if param.name not in _TRAINER | _NET}
    return kept - _OF_THE_CALL - {_SET} | {"out"}


def _require_places(path: Path, file: SettingsFile, params: Mapping[str, click.Parameter]) -> None:
    """Checks that every key of a file is in the right table."""
    options = _own(params)
    for name, value in file.trainer.items():
        if isinstance(value, Mapping) and name not in _TRAINER:
            hint = nearest(name, _TABLES) or "; the tables are net, game and run"
            raise UsageError(f"{path}: there is no table [{name}]{hint}")
        if name.replace("-", "_") in options:
            raise UsageError(f"{path}: {name} belongs in the table [run]")
        if name in _NET:
            raise UsageError(f"{path}: {name} belongs in the table [net]")
    for name in file.run:
        option = name.replace("-", "_")
        if option in options:
            continue
        setting = params[option].name if option in params else option
        if setting in _NET:
            raise UsageError(f"{path}: in [run]: {name} belongs in the table [net], as {setting}")
        if setting in _TRAINER:
            raise UsageError(f"{path}: in [run]: {name} belongs before the tables, as {setting}")
        hint = nearest(option, options) or f"; there are {', '.join(sorted(options))}"
        raise UsageError(f"{path}: there is no option {name!r} in [run]{hint}")


def _by_name(settings: Iterable[str], source: str) -> dict[str, tuple[str, str]]:
    return {text.partition("=")[0]: (text, source) for text in settings}


def _game_text(path: Path | None, name: str, value: object) -> str:
    if isinstance(value, list | dict):
        raise UsageError(
            f"{path}: in [game]: {name} must be a number or a text, got {shown(value)}"
        )
    return f"{name}={_text(value)}"


def _require_named(
    given: GivenSettings, typed: Mapping[str, Any], params: Mapping[str, click.Parameter]
) -> None:
    """Checks that files name only code and paths that the user has named.

    Records what was typed, and the files that pass, as named.

    Raises:
        UsageError: a file names something else; says what to type.
    """
    for option in typed.keys() - {_SET}:  # `load_game` records settings
        for text in _texts(typed[option]):
            name = _named_by(option, params[option].type, _without_share(option, text))
            if name is not None:
                remember(name)
    refused, naming = [], set()
    for option, source, text, what in given.of_files():
        name = _named_by(option, params[option].type, what)
        if isinstance(name, Path) and not os.path.exists(name):
            where = shlex.join(_typed(option, "path/to/FILE.py"))
            raise UsageError(f"{source}: {option}: no file {shown(text)} here: name it, {where}")
        if name is not None:
            naming.add(source)
            if not may_name(Path(source), name):
                refused.append((source, option, text, name))
    if not refused and given.setting_sources and "game" in given.options:
        game = load_game(str(given.options["game"]))
        texts = dict(each.partition("=")[::2] for each in given.options[_SET])
        for key, value in setting_names(game, texts).items():
            if source := given.setting_sources.get(key, ""):
                naming.add(source)
                if not may_name(Path(source), value):
                    refused.append((source, _SET, f"{key}={texts[key]}", value))
    if refused:
        sources = " and ".join(dict.fromkeys(source for source, *_ in refused))
        names = ", ".join(
            f"{shown(text)}, which is {name.resolve()}" if isinstance(name, Path) else shown(text)
            for *_, text, name in refused
        )
        words = shlex.join(word for _, option, text, _ in refused for word in _typed(option, text))
        raise UsageError(
            f"{sources}: code and paths of a file are used only if you have named them here before "
            f"and they have not changed since, got {names}: if you trust them, add to the command: "
            f"{words}"
        )
    for source in naming:
        remember(Path(source))


def _named_by(option: str, kind: object, text: str) -> Name | None:
    """The name in an option, for `remember`; None for numbers, choices and other data.

    Output folders below the current folder are also data.
    """
    if isinstance(kind, click.Path):
        path = os.path.realpath(text)
        is_below = option in _WRITTEN and Path(path).is_relative_to(Path.cwd().resolve())
        return None if is_below else f"path {path}"
    if not isinstance(kind, click.types.StringParamType):
        return None
    if option == "game":
        return game_code(text)
    if re.fullmatch(_PLAIN.get(option, ""), text):
        return None
    if (file := split_file_name(text)) is not None:
        return file[0]
    if option == "callback":
        return None  # refused later: only files have callbacks
    with suppress(OSError, ValueError):
        if Path(text).exists() or option not in _PLAYERS or not re.fullmatch(r"[\w-]+", text):
            return f"path {os.path.realpath(text)}"
    return None


def _without_share(option: str, text: str) -> str:
    """The opponent in NAME=SHARE; a name may contain =."""
    return re.sub(r"=[\d.eE+-]+$", "", text) if option == "opponent" else text


def _typed(option: str, text: str) -> list[str]:
    return [text] if option == "game" else [f"--{option.replace('_', '-')}", text]


def _option_text(value: object, param: click.Parameter, where: str) -> _Text:
    """The text of an option in a file; a repeatable option also accepts a single value."""
    is_list = getattr(param, "multiple", False)
    expected = "a list of texts" if is_list else "a number or a text"
    values = value if is_list and isinstance(value, list) else [value]
    for each in values:
        if isinstance(each, list | dict | None) or not _is_argument(str(each)):
            raise UsageError(f"{where} must be {expected}, got {shown(each)}")
    return _text(values if is_list else value)


def _is_argument(text: str) -> bool:
    """True if a text can be typed: no NUL, no halves of surrogate pairs."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def _texts(value: object) -> list[str]:
    text = _text(value)
    return [text] if isinstance(text, str) else text


def _text(value: object) -> _Text:
    """A value as typed, so options validate it."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [str(_text(each)) for each in value]
    return str(value).lower() if isinstance(value, bool) else str(value)
