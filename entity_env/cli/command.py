"""Commands as dataclasses: their fields are the arguments and options of a command line."""

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
    """How a field of a command is given, in `Annotated[int, Range(1, 9), CliOption("Meaning.")]`.

    The field's type says what a text may be. A bool is a flag, a tuple an option that may be
    repeated, and a field without a default one that has to be given. The mark may be left out.

    Args:
        help: what it means; "" = as the text below the field says, or the docs of `of`.
        name: as it is typed; "" = the name of the field with dashes.
        metavar: what stands for its value in the help.
        default: the default in words, where the field has none that says it.
        read: makes the value of a text, and raises a `ValueError` that says what it must be.
        make: makes the field of the value, of any value that its type allows.
        of: settings with a field of this name, whose type, bounds and choices count.
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
    """A field of a command that is typed without a name; of a tuple any number of them.

    Args:
        metavar: what stands for it in the help.
    """

    metavar: str


class Section(NamedTuple):
    """Title in the help of an option, or of all options in a field that is a dataclass."""

    title: str


class CliCommand(Protocol):
    """A dataclass of arguments and options; its docstring is the help.

    A class may have `PARSER`, the class of its parser, and `ATTRS` of click's commands, such as
    `epilog`.
    """

    def run(self) -> None:
        """Does what the command line asks for."""


class CommandParser(click.Command):
    """A command of click whose help shows the options in sections."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the sections in the order of the fields."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            if isinstance(param, click.Option) and (record := param.get_help_record(ctx)):
                sections.setdefault(getattr(param, "section", ""), []).append(record)
        rest = sections.pop("", [])  # with --help
        for title, records in [*sections.items(), ("Options", rest)]:
            with formatter.section(title):
                formatter.write_dl(records)


class SectionOption(click.Option):
    """An option with the title of its section, whose help is made when it is asked for."""

    section = ""
    mark = CliOption()
    owner: type = object
    """The dataclass of its field."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Its names and its help, see click."""
        name = self.name or ""
        self.help = self.mark.help or docs_of(self.owner).get(name, "")
        if not self.help and self.mark.of is not None:
            self.help = meaning_of(self.mark.of, name)
        if self.mark.default:
            self.help += f"  [default: {self.mark.default}]"
        return super().get_help_record(ctx)


def parser_of(command: type[CliCommand], name: str) -> CommandParser:
    """The command of click that reads a command line as a dataclass, and runs it.

    Args:
        command: the dataclass. Fields that are dataclasses hold options of their own.
        name: of the command.
    """
    leaves = list(_leaves(command, ""))
    params = [_param(leaf) for leaf in leaves]
    makers = {
        leaf.field.name: leaf.mark.make
        for leaf in leaves
        if isinstance(leaf.mark, CliOption) and leaf.mark.make is not None
    }
    # Errors of episodes say how to begin them again, where the game is an argument.
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
    """A dataclass of the values of its fields, and those of the dataclasses in it."""
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
    """The fields that are typed, also those of dataclasses in it."""
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
    """What the parts of a type are annotated with."""
    if get_origin(hint) is Annotated:
        yield from hint.__metadata__  # type: ignore[attr-defined]  # an annotated type has it
    for each in get_args(hint):
        yield from _marks(each)


def _param(leaf: _Leaf) -> click.Parameter:
    """The argument or option of a field."""
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
    if Setting.of(item).kinds == (bool,):
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
    """The type of what is typed, and whether the field is a tuple of them."""
    bare = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    return (get_args(bare)[0], True) if get_origin(bare) is tuple else (hint, False)


def _type_of(name: str, item: object, mark: CliOption | Argument) -> click.ParamType | None:  # type: ignore[type-arg]  # generic in new releases
    """What reads the texts of an argument or option; None for a flag."""
    setting = Setting.of(item)
    if isinstance(mark, CliOption):
        if mark.read is not None:
            return _Text(name, mark.read)
        if mark.of is not None:
            setting = settings_of(mark.of)[name]
    # An option that may be left out is None then, but no text says so.
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
    """A number, or a word beside it, that a setting may be; also one such as 1e6."""

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
    """The number that a text is, a whole one if it can be; other texts as they are."""
    with suppress(ValueError):
        return int(text)
    if _EXPONENT.fullmatch(text.strip()) and (number := Decimal(text)) == int(number):
        return int(number)
    with suppress(ValueError):
        return float(text)
    return text


class _Text(click.ParamType):  # type: ignore[type-arg]  # generic in new releases
    """A text that is read by a function, which raises a `ValueError` for a wrong one."""

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
