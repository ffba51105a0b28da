"""Pages of the reference, as Markdown by path: API by package, command line, errors.

A name is public if a package's `__init__.py` defines it or imports it as `X as X`. If several
packages export a name, the page of the first describes it, and the other pages link to it.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import click

from entity_env import errors
from entity_env.cli import main
from entity_env.cli.app import COMMANDS, command_of

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "entity_env"
NOT_IMPORTED = {f"{PACKAGE}.cli"}
"""Packages without a page, since programs do not import them."""
BEGINNINGS: Final = ("entity_env.authoring.game.Game", "entity_env.authoring.obs.Obs")
"""Names that come first on the page of their package."""
_INDEX = """# Reference

These pages describe every public name, option and file. To learn how to use them, start with
[a game in ten minutes](../tutorials/first_game.md).

[Writing a game](writing_games.md) shows everything for writing a game on one page: `Game`, `Obs`,
`Agent`, actions and fields, with examples. [Writing a learner](own_learner.md) lists every field of
batches, masks, transitions and episodes.

## Packages

@PACKAGES@

## Commands, errors, files

- [Command line](command_line.md): all commands with all options.
- [Errors](errors.md): every error, and when it is raised.
- [File formats](file_formats.md): replay, agent, checkpoint, folder of a run.
- [Changelog](../project/CHANGELOG.md).
"""


def pages() -> dict[str, str]:
    """All generated pages of the reference, by path from the root of the site."""
    listed = "\n".join(
        f"- [`{name}`](api/{name}.md): {summary_of(name)}" for name in public_packages()
    )
    return {
        "reference/index.md": _INDEX.replace("@PACKAGES@", listed),
        "reference/command_line.md": command_line(),
        "reference/errors.md": error_page(),
        **{f"reference/api/{name}.md": text for name, text in api_pages().items()},
    }


# ------------------------------------------------------------------ API


def public_packages() -> dict[str, list[str]]:
    """Public names of every package that has some, in the order of its `__init__.py`."""
    found = {}
    for path in sorted((ROOT / PACKAGE).rglob("__init__.py")):
        name = ".".join(path.parent.relative_to(ROOT).parts)
        names = list(dict.fromkeys(_exported(ast.parse(path.read_text()))))
        if names and name not in NOT_IMPORTED:
            found[name] = names
    return found


def _exported(module: ast.Module) -> Iterator[str]:
    for node in ast.walk(module):
        if isinstance(node, ast.ImportFrom):
            yield from (alias.name for alias in node.names if alias.asname == alias.name)
    for statement in module.body:
        name = ""
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            name = statement.name
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            name = statement.target.id
        if name and not name.startswith("_"):
            yield name


def api_pages() -> dict[str, str]:
    """A page for every package: its docstring, then every public name."""
    origins = {package: _origins(package, names) for package, names in public_packages().items()}
    first: dict[str, str] = {}
    for package, found in origins.items():
        for name, origin in found.items():
            first.setdefault(origin, f"{package}.{name}")
    return {package: _api_page(package, found, first) for package, found in origins.items()}


def _origins(package: str, names: list[str]) -> dict[str, str]:
    """Public names of a package, each with the module that defines it and its name there."""
    found = {name: f"{package}.{name}" for name in names}
    for node in ast.walk(ast.parse(_init(package).read_text())):
        if isinstance(node, ast.ImportFrom):
            found |= {a.name: f"{node.module}.{a.name}" for a in node.names if a.name in found}
    return found


def _init(package: str) -> Path:
    return ROOT.joinpath(*package.split(".")) / "__init__.py"


def _api_page(package: str, names: Mapping[str, str], first: Mapping[str, str]) -> str:
    ours = [name for name in names if names[name].startswith(f"{PACKAGE}.")]
    own = [name for name in ours if first[names[name]] == f"{package}.{name}"]
    also = [f"[`{name}`][{first[names[name]]}]" for name in sorted(set(ours) - set(own))]
    foreign = [f"`{name}`" for name in names if name not in ours]
    whole = f"::: {package}\n    options:\n      members: false\n      show_root_heading: false\n"
    lines = [f"# `{package}`\n", whole]
    if also:
        lines.append(f"Also exported here, but described elsewhere: {', '.join(also)}.\n")
    if foreign:
        lines.append(f"From other libraries: {', '.join(foreign)}.\n")
    ordered = sorted(own, key=lambda name: _rank(name, names[name]))
    return "\n".join([*lines, *(_directive(package, name) for name in ordered)])


def _directive(package: str, name: str) -> str:
    """Directive that shows a name; for a game named like its module, the module's docstring."""
    is_module = _init(package).with_name(f"{name}.py").exists()
    options = "    options:\n      members: false\n" if is_module else ""
    return f"::: {package}.{name}\n{options}"


def _rank(name: str, origin: str) -> tuple[int, str]:
    """Sort key: `BEGINNINGS`, then classes, constants, functions, and type aliases last."""
    if origin in BEGINNINGS:
        return BEGINNINGS.index(origin) - len(BEGINNINGS), ""
    kinds = (_is_hint(origin), not name[0].isupper(), name.isupper())
    return sum(2**i for i, is_kind in zip((2, 1, 0), kinds, strict=True) if is_kind), name.lower()


def _is_hint(origin: str) -> bool:
    """True for a type alias, such as `Seeds = int | Sequence[int]`."""
    module, _, name = origin.rpartition(".")
    path = ROOT.joinpath(*module.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    if not path.exists() or name.isupper() or not name[0].isupper():
        return False
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and name in (alias.name for alias in node.names):
            return _is_hint(f"{node.module}.{name}")
        if isinstance(node, ast.Assign | ast.AnnAssign) and not isinstance(node.value, ast.Call):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name) and target.id == name:
                return True
    return False


def summary_of(package: str) -> str:
    """The first paragraph of a package's docstring, on one line."""
    text = ast.get_docstring(ast.parse(_init(package).read_text())) or ""
    return " ".join(text.partition("\n\n")[0].split())


# ------------------------------------------------------------------ errors


def error_page() -> str:
    """The page of errors: their tree, and when each error is raised."""
    head, tree, *rest = (inspect.getdoc(errors) or "").split("\n\n")
    lines = ["| error | also | when |", "|---|---|---|"]
    for name, each in vars(errors).items():
        if inspect.isclass(each) and each.__module__ == errors.__name__:
            also = [base.__name__ for base in each.__bases__ if base.__module__ != errors.__name__]
            when = (inspect.getdoc(each) or "").partition("\n\n")[0]
            link = f"[`{name}`][{PACKAGE}.{name}]"
            lines.append(f"| {link} | {', '.join(also)} | {' '.join(when.split())} |")
    return "\n\n".join(["# Errors", head, f"```text\n{tree}\n```", *rest, "\n".join(lines), ""])


# ------------------------------------------------------------------ command line

_BRACKETS: Final = re.compile(r"  \[([^][]*(?:\[[^][]*\][^][]*)*)\]")
"""Text that click adds to the help of an option: its default, and whether it is required."""
_MARKUP: Final = re.compile(r"(`[^`]*`)|(?<!\S)(--[a-z][a-z-]*)|([*_<\[\\])")


def command_line() -> str:
    """Every command with its arguments and options, as click knows them."""
    program = click.Context(main, info_name="entity-env", **main.context_settings)
    rows = [
        f"| [`{name}`](#entity-env-{name}) | {_prose(_short_help(name))} |"
        for name in sorted(COMMANDS)
    ]
    table = "\n".join(["| Command | What it does |", "|---|---|", *rows])
    parts = ["# Command line", *_about(main), table]
    for name in sorted(COMMANDS):
        command = command_of(name)
        context = click.Context(command, info_name=name, parent=program)
        usage = " ".join(["entity-env", name, *command.collect_usage_pieces(context)])
        heading = f"## `entity-env {name}` {{ #entity-env-{name} }}"
        parts += [heading, f"```text\n{usage}\n```", *_about(command)]
        parts += _options(command, context)
        if command.epilog:
            parts.append(f"```text\n{inspect.cleandoc(command.epilog.replace(chr(8), ''))}\n```")
    return "\n\n".join(parts) + "\n"


def _short_help(name: str) -> str:
    return command_of(name).get_short_help_str(limit=200)


def _about(command: click.Command) -> list[str]:
    """The paragraphs of a command's help."""
    text = inspect.cleandoc(command.help or "").replace("\b\n", "")
    return [_prose(each) for each in text.split("\n\n")]


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    """Sections of options, each a list of definitions with an anchor per option."""
    sections: dict[str, list[str]] = {}
    for param in command.get_params(context):
        is_option = isinstance(param, click.Option) and "--help" not in param.opts
        record = param.get_help_record(context) if is_option else None
        if record is None:
            continue
        names, text = record
        anchor = str(context.info_name) + next(each for each in param.opts if each.startswith("--"))
        lines = [f"`{names}`{{ #{anchor} }}", f":   {_prose(_BRACKETS.sub('', text))}"]
        lines += [
            f"    *{_prose(extra[0].upper() + extra[1:])}*" for extra in _BRACKETS.findall(text)
        ]
        sections.setdefault(getattr(param, "section", ""), []).append("\n".join(lines))
    rest = sections.pop("", [])
    for title, entries in [*sections.items(), ("Options", rest)]:
        if entries:
            yield "\n\n".join([f"**{title}**", *entries])


def _prose(text: str) -> str:
    """Help as one line of Markdown: options as code, and Markdown's own characters escaped."""

    def replaced(found: re.Match[str]) -> str:
        return found[1] or (f"`{found[2]}`" if found[2] else f"\\{found[3]}")

    return _MARKUP.sub(replaced, " ".join(text.split()))
