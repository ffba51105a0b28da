"""Commands as dataclasses: parsing of their fields, and their help."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Literal

import click
import pytest
from click.testing import CliRunner
from hypothesis import given, strategies as st

from entity_env.agents.ppo import PPOConfig
from entity_env.cli.app import COMMANDS, command_of
from entity_env.cli.command import Argument, CliCommand, CliOption, Section, parser_of
from entity_env.core.validation import OneOf, Range

ran: list[object] = []
Count = Annotated[int, Range(1, 10**15)]


def even(text: str) -> int:
    if not text.isdecimal() or int(text) % 2:
        raise ValueError(f"{text!r} is not even")
    return int(text)


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Common fields of sizes."""

    is_round: Annotated[bool, CliOption(name="--round")] = True
    """Round."""


@dataclass(frozen=True, kw_only=True)
class Size(Shape):
    """Options in a section."""

    width: Annotated[
        Count | None, CliOption("Cells.", metavar="N", default="as wide as can be")
    ] = None


@dataclass(frozen=True, kw_only=True)
class Draw:
    """Draw FILES.

    With options of every kind.
    """

    files: Annotated[tuple[Path, ...], Argument("[FILE]...")] = ()
    size: Annotated[Size, Section("Size")]
    share: Annotated[float, Range(0, 1, is_below=True)] = 0.5
    """Of
    the whole. 0 = none."""
    mode: Annotated[Literal["fast", "fine"], CliOption("How.")] = "fast"
    colors: Annotated[
        tuple[Annotated[str, OneOf(("red", "blue"))], ...],
        CliOption("May be repeated.", name="--color"),
    ] = ()
    tags: Annotated[tuple[str, ...], CliOption("May be repeated.", name="--tag")] = ()
    number: Annotated[int, CliOption("Even.", read=even)] = 2
    limit_s: Annotated[
        float | None,
        Range(0),
        CliOption("0 = none.", name="--limit", make=lambda each: each or None),
    ] = 3
    seed: Annotated[int, Range(0), CliOption("Drawn.")] = field(default_factory=lambda: 7)
    gamma: Annotated[float | None, CliOption(of=PPOConfig)] = None
    compile: Annotated[str | int | None, CliOption("When.", of=PPOConfig)] = None

    def run(self) -> None:
        ran.append(self)


@dataclass(frozen=True, kw_only=True)
class Needs:
    """An argument and an option without defaults."""

    file: Annotated[Path, Argument("FILE")]
    out: Annotated[Path, CliOption("To write.")]

    def run(self) -> None:
        ran.append(self)


PARSERS: dict[type[CliCommand], click.Command] = {
    kind: parser_of(kind, "draw") for kind in (Draw, Needs)
}


def run(*args: str, kind: type[CliCommand] = Draw) -> tuple[int, str]:
    ran.clear()
    result = CliRunner().invoke(PARSERS[kind], args, catch_exceptions=False)
    return result.exit_code, result.output


def made(*args: str) -> Draw:
    code, output = run(*args)
    assert code == 0, output
    [found] = ran
    assert isinstance(found, Draw)
    return found


def test_without_options_fields_have_their_defaults() -> None:
    assert made() == Draw(size=Size())


def test_every_kind_of_option_is_read() -> None:
    words = "a b --width 1e3 --no-round --share 0 --mode fine --color blue --color red --tag x"
    words += " --number 4 --limit 0 --seed 1 --gamma 1 --compile 12"
    assert made(*words.split()) == Draw(
        files=(Path("a"), Path("b")),
        size=Size(width=1000, is_round=False),
        share=0.0,
        mode="fine",
        colors=("blue", "red"),
        tags=("x",),
        number=4,
        limit_s=None,
        seed=1,
        gamma=1.0,
        compile=12,
    )
    assert isinstance(made("--share", "0").share, float)
    assert made("--compile", "never").compile == "never"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--width 0", "'--width': must be an integer from 1 to 1e+15, got '0'"),
        ("--width 1.5", "must be an integer from 1 to 1e+15, got '1.5'"),
        ("--width none", "must be an integer from 1 to 1e+15, got 'none'"),
        ("--share 1", "must be a number from 0 to below 1, got '1'"),
        ("--share nan", "must be a number from 0 to below 1, got 'nan'"),
        ("--share inf", "must be a number from 0 to below 1, got 'inf'"),
        ("--mode slow", "'slow' is not one of 'fast', 'fine'"),
        ("--color green", "'green' is not one of 'red', 'blue'"),
        ("--number 3", "'3' is not even."),
        ("--gamma 2", "must be a number from 0 to 1, got '2'"),
        ("--compile later", "must be one of wait, background, never, or an integer from 1 to"),
        ("--compile 0", "must be one of wait, background, never, or an integer from 1 to"),
        ("--seed", "requires an argument"),
        ("--other", "No such option"),
    ],
)
def test_other_texts_are_refused_in_words_of_the_type(words: str, told: str) -> None:
    code, output = run(*words.split())
    assert code == 2
    assert told in output
    assert ran == []


@pytest.mark.parametrize("words", [(), ("a",), ("--out", "b"), ("a", "c", "--out", "b")])
def test_fields_without_defaults_have_to_be_given(words: tuple[str, ...]) -> None:
    assert run(*words, kind=Needs)[0] == 2
    assert run("a", "--out", "b", kind=Needs) == (0, "")
    assert ran == [Needs(file=Path("a"), out=Path("b"))]


def test_the_help_shows_sections_defaults_and_the_docs_of_settings() -> None:
    _, text = run("--help")
    parts = re.split(r"^(\w+):$", text, flags=re.MULTILINE)
    assert "Usage: draw [OPTIONS] [FILE]...\n\n  Draw FILES.\n\n  With options" in parts[0]
    found = dict(zip(parts[1::2], (" ".join(part.split()) for part in parts[2::2]), strict=True))
    assert list(found) == ["Size", "Options"]
    assert "--width N Cells. [default: as wide as can be]" in found["Size"]
    assert "--round / --no-round Round." in found["Size"]
    assert "--mode [fast|fine] How." in found["Options"]
    assert "--share NUMBER Of the whole. 0 = none." in found["Options"]
    assert "--seed INTEGER Drawn. [default: (random)]" in found["Options"]
    assert "--gamma NUMBER Discount of the reward per decision." in found["Options"]


@pytest.mark.parametrize(
    ("text", "number"),
    [("1e6", 10**6), ("2.5E3", 2500), ("1_000", 1000), ("12", 12), ("1e+2", 100), (" 7 ", 7)],
)
def test_whole_numbers_may_be_written_with_an_exponent(text: str, number: int) -> None:
    assert made("--width", text).size.width == number


@pytest.mark.parametrize("text", ["1.5", "1.23e1", "1e-3", "ten", "", "1e", "1e999", "nan", "0x10"])
def test_other_numbers_are_no_whole_numbers(text: str) -> None:
    assert run("--width", text)[0] == 2


@given(st.integers(1, 10**15))
def test_a_whole_number_is_read_as_it_is_written(number: int) -> None:
    for text in (str(number), f"{number:_}", f"{Decimal(number):e}"):
        assert made("--width", text).size.width == number


def test_numbers_of_every_command_are_checked_by_the_types_of_fields() -> None:
    kinds = click.types.IntParamType, click.types.FloatParamType
    others = {
        f"{name} {option.opts[0]}"
        for name in COMMANDS
        for option in command_of(name).params
        if isinstance(option.type, kinds)
    }
    assert others == set()


def test_every_option_of_every_command_has_a_help() -> None:
    for name in COMMANDS:
        each = command_of(name)
        context = click.Context(each, info_name=name)
        for param in each.params:
            if isinstance(param, click.Option) and not param.hidden:
                record = param.get_help_record(context)
                assert record is not None
                assert record[1].strip(), f"{name} {param.opts}"


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_shows_the_whole_first_sentence_of_each(name: str) -> None:
    command = command_of(name)
    text = " ".join((command.help or "").split())
    assert text.startswith(command.get_short_help_str(55))
    assert command.get_short_help_str(55).endswith(".")
    assert not command.get_short_help_str(55).endswith("...")


@pytest.mark.parametrize("name", COMMANDS)
def test_a_default_that_is_typed_changes_nothing(name: str) -> None:
    command = command_of(name)
    needed = [
        "x" if isinstance(each, click.Argument) else f"{each.opts[0]}=x"
        for each in command.params
        if each.required
    ]
    drawn = {each.name for each in command.params if callable(each.default)}

    def read(*words: str) -> dict[str, object]:
        found = command.make_context(name, [*words, *needed]).params
        return {key: value for key, value in found.items() if key not in drawn}

    for option in command.params:
        if not isinstance(option, click.Option) or option.name in {*drawn, "help"}:
            continue
        if option.is_flag and option.default is None:
            continue  # neither of its words: the agent's own choice
        if option.is_flag and (option.default or option.secondary_opts):
            word = option.opts[0] if option.default else option.secondary_opts[0]
            assert read(word) == read()
        elif isinstance(option.default, str | int | float | Path) and not option.is_flag:
            assert read(f"{option.opts[0]}={option.default}") == read()


def test_a_run_without_a_seed_is_repeated_by_its_default() -> None:
    seeds = {
        name: next((each.default for each in command_of(name).params if each.name == "seed"), None)
        for name in COMMANDS
    }
    fixed = {name: seed for name, seed in seeds.items() if isinstance(seed, int)}
    assert fixed == {"check": 0, "eval": 0, "clone": 1, "dataset": 1, "sweep": 1}
