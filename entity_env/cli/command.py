"""Commands as dataclasses: fields are the arguments and options of a command line."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext, suppress
from dataclasses import MISSING, Field, fields, is_dataclass
from decimal import Decimal
from pathlib import Path
from types import NoneType
from typing import (
    Annotated,
    Any,
    Final,
    NamedTuple,
    Protocol,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

import click

from entity_env.cli.game_errors import episode_named
from entity_env.cli.setting_docs import docs_of, meaning_of
from entity_env.core.validation import Setting, settings_of
from entity_env.errors import shown

T = TypeVar("T")
_EXPONENT: Final = re.compile(r"-?\d+(\.\d+)?[eE]\+?\d\d?")


class CliOption(NamedTuple):
    """How to type a command's field, in `Annotated[int, Range(1, 9), CliOption("Meaning.")]`.

    The field's type defines the allowed texts. A bool is a flag, a tuple a repeatable option, and a
    field without a default is required. `CliOption` itself is optional.

    Args:
        help: help text; default: the string below the field, or the docs of `of`.
        name: the option as typed; default: the field's name with dashes.
        metavar: placeholder of the value in the help.
        default: the default in words, if the field's default does not say it.
        read: converts a text to the value; raises a `ValueError` that says what it must be.
        make: converts the parsed value, or the default, to the field's value.
        of: dataclass of settings with a field of this name, which defines type, bounds and choices.
        kind: class of the option; None = `SectionOption`.
    """

    help: str = ""
    name: str = ""
    metavar: str | None = None
    default: str = ""
    read: Callable[[str], object] | None = None
    make: Callable[[Any], object] | None = None
    of: type | None = None
    kind: type[SectionOption] | None = None


class Argument(NamedTuple):
    """A field typed without a name; a tuple takes any number.

    Args:
        metavar: placeholder in the help.
    """

    metavar: str


class Section(NamedTuple):
    """Help title of an option, or of all options in a dataclass field."""

    title: str


class CliCommand(Protocol):
    """A dataclass of arguments and options; its docstring is the help.

    A class may set `PARSER`, the class of its parser, and `ATTRS` of click's commands, such as
    `epilog`.
    """

    def run(self) -> None:
        """Executes the command."""


class CommandParser(click.Command):
    """A click command whose help groups the options in sections."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            if isinstance(param, click.Option) and (record := param.get_help_record(ctx)):
                sections.setdefault(getattr(param, "section", ""), []).append(record)
        rest = sections.pop("", [])  # includes --help
        for title, records in [*sections.items(), ("Options", rest)]:
            with formatter.section(title):
                formatter.write_dl(records)


class SectionOption(click.Option):
    """An option with a section title; its help is created on use."""

    section = ""
    mark = CliOption()
    owner: type = object
    """The dataclass of its field."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        name = self.name or ""
        self.help = self.mark.help or docs_of(self.owner).get(name, "")
        if not self.help and self.mark.of is not None:
            self.help = meaning_of(self.mark.of, name)
        if self.mark.default:
            self.help += f"  [default: {self.mark.default}]"
        return super().get_help_record(ctx)


def parser_of(command: type[CliCommand], name: str) -> CommandParser:
    """The click command that reads a command line as a dataclass, and runs it.

    Args:
        command: the dataclass; fields that are dataclasses hold further options.
    """
    leaves = list(_leaves(command, ""))
    params = [_param(leaf) for leaf in leaves]
    makers = {
        leaf.field.name: leaf.mark.make
        for leaf in leaves
        if isinstance(leaf.mark, CliOption) and leaf.mark.make is not None
    }
    # Errors in episodes say how to repeat them, if the game is an argument.
    has_game = any(isinstance(each, click.Argument) and each.name == "game" for each in params)

    def call(**values: object) -> None:
        values |= {name: make(values[name]) for name, make in makers.items()}
        context = click.get_current_context()
        with episode_named(context) if has_game else nullcontext():
            _made(command, values).run()

    kind: type[CommandParser] = getattr(command, "PARSER", CommandParser)
    attrs: Mapping[str, Any] = getattr(command, "ATTRS", {})
    return kind(name, params=params, callback=call, help=command.__doc__, **attrs)


def _made(kind: type[T], values: Mapping[str, object]) -> T:
    """A dataclass from the values of its fields, and of the dataclasses in it."""
    hints = get_type_hints(kind)
    own = {
        each.name: _made(hints[each.name], values)
        if is_dataclass(hints[each.name])
        else values[each.name]
        for each in fields(kind)  # type: ignore[arg-type]  # a dataclass
    }
    return kind(**own)


class _Leaf(NamedTuple):
    field: Field[Any]
    hint: object
    mark: CliOption | Argument
    section: str
    owner: type


def _leaves(kind: type, section: str) -> Iterator[_Leaf]:
    """Fields of a command, and of the dataclasses in it."""
    plain, hints = get_type_hints(kind), get_type_hints(kind, include_extras=True)
    for each in fields(kind):
        marks, inner = list(_marks(hints[each.name])), plain[each.name]
        title = [section, *(mark.title for mark in marks if isinstance(mark, Section))][-1]
        if isinstance(inner, type) and is_dataclass(inner):
            yield from _leaves(inner, title)
        else:
            own = (mark for mark in marks if isinstance(mark, CliOption | Argument))
            yield _Leaf(each, hints[each.name], next(own, CliOption()), title, kind)


def _marks(hint: object) -> Iterator[object]:
    """Annotations of a type and its parts."""
    if get_origin(hint) is Annotated:
        yield from hint.__metadata__  # type: ignore[attr-defined]  # an annotated type has it
    for each in get_args(hint):
        yield from _marks(each)


def _param(leaf: _Leaf) -> click.Parameter:
    field, mark = leaf.field, leaf.mark
    item, is_repeated = _item_of(leaf.hint)
    is_needed = field.default is field.default_factory is MISSING
    attrs: dict[str, Any] = {"type": _type_of(field.name, item, mark)}
    if field.default_factory is not MISSING:
        attrs |= {"default": field.default_factory, "show_default": "random"}
    elif field.default is not MISSING and not is_repeated:
        attrs["default"] = field.default
    if isinstance(mark, Argument):
        attrs |= {"nargs": -1 if is_repeated else 1, "required": is_needed}
        return click.Argument([field.name], metavar=mark.metavar, **attrs)
    name = mark.name or f"--{field.name.replace('_', '-')}"
    if {*Setting.of(item).kinds} - {NoneType} == {bool}:
        attrs["is_flag"] = True
        if field.default is True and "/" not in name:
            name = f"{name}/--no-{name[2:]}"
    else:
        attrs |= {"multiple": is_repeated, "required": is_needed, "metavar": mark.metavar}
    if mark.default:
        attrs["show_default"] = False
    found = (mark.kind or SectionOption)([field.name, name], **attrs)
    found.section, found.mark, found.owner = leaf.section, mark, leaf.owner
    return found


def _item_of(hint: object) -> tuple[object, bool]:
    """Type of a typed item, and whether the field is a tuple of such items."""
    bare = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    return (get_args(bare)[0], True) if get_origin(bare) is tuple else (hint, False)


def _type_of(name: str, item: object, mark: CliOption | Argument) -> click.ParamType | None:  # type: ignore[type-arg]  # generic in new releases
    """Type that parses the texts of an argument or option; None for a flag."""
    setting = Setting.of(item)
    if isinstance(mark, CliOption):
        if mark.read is not None:
            return _Text(name, mark.read)
        if mark.of is not None:
            setting = settings_of(mark.of)[name]
    # None means that an option was left out; no text can say so.
    setting = setting._replace(kinds=tuple(each for each in setting.kinds if each is not NoneType))
    for each in _marks(item):
        if isinstance(each, click.ParamType):
            return each
    if Path in setting.kinds:
        return click.Path(path_type=Path)
    if int in setting.kinds or float in setting.kinds:
        return _Number(setting)
    if str in setting.kinds:
        return click.Choice(setting.choices) if setting.choices else click.STRING
    return None


class _Number(click.ParamType):  # type: ignore[type-arg]  # generic in new releases
    """A number, which may be typed as 1e6, or a word that the setting allows instead."""

    def __init__(self, setting: Setting) -> None:
        self.name = "number" if float in setting.kinds else "integer"
        self._setting = setting

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> object:
        number = _number(value) if isinstance(value, str) else value
        if not self._setting.allows(number):
            self.fail(f"must be {self._setting.words}, got {shown(value)}", param, ctx)
        if isinstance(number, int) and int not in self._setting.kinds:
            return float(number)
        return number


def _number(text: str) -> int | float | str:
    """A text as a number, an integer if possible; the text itself if it is not a number."""
    with suppress(ValueError):
        return int(text)
    if _EXPONENT.fullmatch(text.strip()) and (number := Decimal(text)) == int(number):
        return int(number)
    with suppress(ValueError):
        return float(text)
    return text


class _Text(click.ParamType):  # type: ignore[type-arg]  # generic in new releases
    """A text for a function, which raises `ValueError` if it is invalid."""

    def __init__(self, name: str, read: Callable[[str], object]) -> None:
        self.name = name
        self._read = read

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> object:
        if not isinstance(value, str):
            return value
        try:
            return self._read(value)
        except ValueError as error:
            self.fail(f"{error}.", param, ctx)
