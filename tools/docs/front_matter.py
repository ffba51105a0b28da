"""Front matter of the pages: a description, the release, the weight in the search."""

from __future__ import annotations

import json
import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Final

from tools.docs import reference

ROOT: Final = Path(__file__).resolve().parents[2]
MOST: Final = 160
"""Maximum length of a description, since search engines show no more characters."""
TITLES: Final = {"index.md": "Games in plain Python, and agents that play them"}
"""Titles of browser windows, for pages whose first heading would repeat the name of the site."""
_API: Final = re.compile(r"^::: (\S+)", re.MULTILINE)
_LINK: Final = re.compile(r"!?\[((?:[^][]|\[[^]]*\])*)\](?:\([^)]*\)|\[[^]]*\])")
_MARKUP: Final = re.compile(r"[`*]|<!--.*?-->")
_NO_TEXT: Final = ("#", "|", "<", "```", "- ", "* ", "!", ":::", "    ", "1. ")


@cache
def project() -> dict[str, object]:
    """The table `project` of pyproject.toml."""
    found: dict[str, object] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))[
        "project"
    ]
    return found


def with_front_matter(name: str, text: str) -> str:
    """A page with front matter, which the theme and the search of Material for MkDocs read."""
    meta: dict[str, object] = {"description": description(text), "release": project()["version"]}
    if name in TITLES:
        meta["title"] = TITLES[name]
    if is_concept(name):
        meta["search"] = {"boost": 2}
    lines = [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in meta.items()]
    return "\n".join(["---", *lines, "---", "", text])


def is_concept(name: str) -> bool:
    """True for all pages except those of the API, which the search lists last."""
    return not name.startswith("reference/api/")


def description(text: str) -> str:
    """The first paragraph of a page as plain text, shortened at the end of a sentence or word.

    For a page of the API, the summary of its package; for a page without text, of the project.
    """
    if found := _API.search(text):
        return _cut(f"API of {found[1]}. {_plain(reference.summary_of(found[1]))}")
    for paragraph in text.split("\n\n"):
        if paragraph.strip() and not paragraph.lstrip("\n").startswith(_NO_TEXT):
            return _cut(_plain(paragraph))
    return str(project()["description"])


def _plain(text: str) -> str:
    plain = " ".join(_MARKUP.sub("", _LINK.sub(r"\1", text)).split())
    return f"{plain[:-1]}." if plain.endswith(":") else plain


def _cut(text: str) -> str:
    if len(text) <= MOST:
        return text
    sentences = text[:MOST].rpartition(". ")[0]
    if len(sentences) > MOST // 3:
        return f"{sentences}."
    return f"{text[: MOST - 1].rpartition(' ')[0].rstrip(',;:')}…"
