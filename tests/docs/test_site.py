"""Front matter, tables for phones, the index of the search, and the order of the reference."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from tests import ROOT
from tools.docs import check_site, finish, front_matter, reference, stage

MEMBER = "reference/api/entity_env.vec.html#entity_env.vec.VecEnv.step"


def html_of(text: str) -> str:
    markdown = pytest.importorskip("markdown")
    html: str = markdown.markdown(text, extensions=["tables", "tools.docs.tables"])
    return html


def item(location: str, title: str) -> dict[str, Any]:
    text = "<pre><code>step(actions)\n</code></pre> <p>Sends actions.</p>"
    return {"location": location, "title": title, "text": text, "path": ["Reference"]}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# A\n\nOne `name`,\n[a link](b.md) and **bold**.\n\nMore.", "One name, a link and bold."),
        ("# A\n\n```console\n$ ls\n```\n\n| a |\n|---|\n\nThe text.", "The text."),
        ("# A\n\n" + "A sentence of some length that goes on. " * 6, "A sentence"),
        ("# A\n\n" + "word " * 60, "word word"),
        ("# A\n\nIt is 6<!--vec.x--> times faster:\n\n- b", "It is 6 times faster."),
    ],
)
def test_a_description_is_the_first_paragraph(text: str, expected: str) -> None:
    found = front_matter.description(text)
    assert found.startswith(expected)
    assert len(found) <= front_matter.MOST
    assert found.endswith((".", "…"))


def test_every_page_has_a_description_and_the_release() -> None:
    release = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    found = {
        name: content.decode()
        for name, content in stage.files({"games.md": "# Games\n\nAll of them.", "index.md": "# A"})
        if name.endswith(".md")
    }
    assert f'description: "All of them."\nrelease: "{release}"' in found["games.md"]
    assert found["index.md"].startswith("---\n")
    assert "title: " in found["index.md"]
    for name in reference.public_packages():
        assert front_matter.description(f"::: {name}\n").startswith(f"API of {name}. ")


def test_written_pages_weigh_more_than_the_api() -> None:
    assert 'search: {"boost": 2}' in front_matter.with_front_matter("tutorials/units.md", "text")
    assert "boost" not in front_matter.with_front_matter("reference/api/entity_env.md", "text")


def test_cells_of_a_wide_table_name_their_column() -> None:
    html = html_of("| | `aim` | measured |\n|---|---|---|\n| a | 1 | 2 |\n")
    assert '<div class="stacked"><table>' in html.replace("\n", "")
    assert '<td data-label="aim">1</td>' in html
    assert '<td data-label="measured">2</td>' in html
    assert "<td>a</td>" in html
    assert "<th></th>" not in html


@pytest.mark.parametrize(("cell", "is_wide"), [("short", False), ("long " * 10, True)])
def test_a_table_of_two_columns_is_wide_with_a_long_cell(cell: str, is_wide: bool) -> None:
    html = html_of(f"Before.\n\n| a | b |\n|---|---|\n| 1 | {cell} |\n\nAfter.")
    assert ("stacked" in html) == is_wide
    assert html.index("Before.") < html.index("<table>") < html.index("After.")


def test_the_index_lists_members_of_the_api_last_and_without_signatures() -> None:
    label = "step <small><code>abstractmethod</code></small>"
    page = item("how-to/arrays.html#step", "A step")
    index, first_member = finish.shortened({"config": {}, "items": [item(MEMBER, label), page]})
    assert first_member == 1
    assert index["items"][0] == page
    assert index["items"][1] == {
        "location": MEMBER,
        "title": "step",
        "text": "<p>Sends actions.</p>",
        "path": ["Reference", "VecEnv"],
    }


def test_the_search_sorts_members_last() -> None:
    script = finish.sorting(f"before;{finish.SORT};after", 7)
    assert "item.id >= 7" in script
    assert "before;l.items.sort(ht(pagesFirst,...s));after" in script
    with pytest.raises(ValueError, match="expected"):
        finish.sorting("another sort", 7)


@pytest.mark.slow
def test_the_api_begins_with_games_and_ends_with_types_of_hints() -> None:
    page = reference.api_pages()["entity_env"]
    names = [line.rpartition(".")[2] for line in page.splitlines() if line.startswith("::: ")][1:]
    assert names[:2] == ["Game", "Obs"]
    types_of_hints = [names.index(each) for each in ("ActionMask", "ActionName", "ActionSpace")]
    assert names.index("Environment") < names.index("questions") < min(types_of_hints)


def test_the_theme_and_the_site_describe_the_project_alike() -> None:
    config = stage.CONFIG.read_text()
    assert f"site_description: {front_matter.project()['description']}\n" in config
    for name in ("favicon.svg", "search_later.js", "site.js", "site.css"):
        assert (stage.DOCS / name).exists()
        assert name in config


def test_without_chromium_a_line_says_that_nothing_is_checked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(check_site, "PROGRAM", None)
    monkeypatch.setattr(check_site, "axe_core", lambda: "axe")
    check_site.main()
    assert capsys.readouterr().out == "site: not checked in a browser, Chromium not found\n"
