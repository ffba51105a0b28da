"""Pages of the reference, as Markdown by path: API by package, command line, errors.

Public is what a package's `__init__.py` imports as `X as X` or defines; a name that several
packages hand on is described once, in the first of them, and the others link to it.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Mapping
from pathlib import Path

import click

from entity_env import errors
from entity_env.cli import main
from entity_env.cli.app import COMMANDS, command_of

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "entity_env"
NOT_IMPORTED = {f"{PACKAGE}.cli"}
"""Packages that programs have no reason to import."""
_INDEX = """# Reference

What every name, option and file means. To learn how they go together, begin with
[a game in ten minutes](../tutorials/first_game.md).

[Writing a game](writing_games.md) has all that games are written with on one page: `Game`, `Obs`,
`Agent`, actions and fields, with examples. [Writing a learner](own_learner.md) has every field of
batches, masks, transitions and episodes.

## Packages

@PACKAGES@

## Commands, errors, files

- [Command line](command_line.md): all commands with all options.
- [Errors](errors.md): which one is whose fault.
- [File formats](file_formats.md): replay, agent, checkpoint, folder of a run.
- [Changelog](../project/CHANGELOG.md).
"""


def pages() -> dict[str, str]:
    """All generated pages of the reference, by path from the root of the site."""
    listed = "\n".join(
        f"- [`{name}`](api/{name}.md): {_summary_of(name)}" for name in public_packages()
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
        lines.append(f"Described elsewhere: {', '.join(also)}.\n")
    if foreign:
        lines.append(f"Of another library: {', '.join(foreign)}.\n")
    return "\n".join([*lines, *(_directive(package, name) for name in sorted(own, key=_rank))])


def _directive(package: str, name: str) -> str:
    """What shows a name; of a game that is called as its module, the docstring of the module."""
    is_module = _init(package).with_name(f"{name}.py").exists()
    options = "    options:\n      members: false\n" if is_module else ""
    return f"::: {package}.{name}\n{options}"


def _rank(name: str) -> tuple[bool, bool, str]:
    """Classes first, then constants, then functions."""
    return not name[0].isupper(), name.isupper(), name.lower()


def _summary_of(package: str) -> str:
    text = ast.get_docstring(ast.parse(_init(package).read_text())) or ""
    return " ".join(text.partition("\n\n")[0].split())


# ------------------------------------------------------------------ errors


def error_page() -> str:
    """The tree of errors, and what each one means."""
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


def command_line() -> str:
    """Every command with its arguments and options, as click knows them."""
    parts = ["# Command line", _help(main, "entity-env")]
    for name in sorted(COMMANDS):
        parts += [f"## `entity-env {name}`", _help(command_of(name), f"entity-env {name}")]
    return "\n\n".join(parts) + "\n"


def _help(command: click.Command, name: str) -> str:
    context = click.Context(command, info_name=name, max_content_width=96, terminal_width=96)
    return f"```text\n{command.get_help(context).rstrip()}\n```"
