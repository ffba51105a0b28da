"""Meaning of the settings of the trainer and its network: `train --set-train help`."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from types import NoneType
from typing import Final

from rich.table import Table
from rich.text import Text

from entity_env.agents.ppo import PPOConfig
from entity_env.agents.ppo.config import NET_KIND, NETS
from entity_env.agents.training.schedule import Schedule
from entity_env.core.validation import settings_of

_ARGS: Final = re.compile(r"^Args:\n((?:    .*\n?|\n)*)", re.MULTILINE)
_ARG: Final = re.compile(r"^(\w[\w, ]*): (.*(?:\n +.*)*)", re.MULTILINE)


def settings_table(config: PPOConfig) -> Table:
    """Every setting of the trainer and its network, with possible values, default and meaning."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("setting", no_wrap=True)
    for title in ("values", "default", "meaning"):
        table.add_column(title, overflow="fold")
    for settings, prefix in ((config, ""), (config.net, "net.")):
        kind: type = type(settings)
        for name, setting in settings_of(kind).items():
            value = getattr(settings, name)
            words = setting.words + ", or a schedule" * (Schedule in setting.kinds)
            shown = str(value).lower() if isinstance(value, bool | NoneType) else str(value)
            if name != "net":
                table.add_row(f"{prefix}{name}", words, shown, Text(meaning_of(kind, name)))
    [used] = [name for name, kind in NETS.items() if kind is type(config.net)]
    words = f"one of {', '.join(NETS)}, each with its own settings"
    table.add_row(f"net.{NET_KIND}", words, used, meaning_of(PPOConfig, "net"))
    return table


def meaning_of(kind: type, name: str) -> str:
    """Meaning of a dataclass field: its docs up to the first period or semicolon, or ""."""
    sentence = re.match(r".*?(?:[.;](?= |$)|$)", docs_of(kind).get(name, ""))
    text = sentence[0].rstrip(".;") if sentence else ""
    return f"{text[:1].upper()}{text[1:]}." if text else ""


@cache
def docs_of(kind: type) -> Mapping[str, str]:
    """Docs of a dataclass's fields: strings below them, or `Args` of its docstring."""
    args = _ARGS.search(inspect.getdoc(kind) or "")
    named = _ARG.findall(textwrap.dedent(args[1])) if args else []
    found = {name: text for names, text in named for name in names.split(", ")}
    for each in reversed(kind.__mro__[:-1]):
        found |= _below(each)
    return {name: " ".join(text.split()) for name, text in found.items()}


def _below(kind: type) -> Iterator[tuple[str, str]]:
    """Fields with a string below them, and these strings; none if the class has no source."""
    try:
        [node] = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    except (OSError, ValueError):
        return
    body = node.body if isinstance(node, ast.ClassDef) else []
    for field, after in pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            match after:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    yield field.target.id, text
