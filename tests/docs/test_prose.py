"""The check of the prose: matches of each rule, detection of prose, and limits."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import prose
from tools.prose import AREAS, RULES, Area, Hit, Paragraph, Rule, find, judge, paragraphs, python

FENCED = """Before.

```python
beside()
# anew
```

    > ~~~
    beside
    > ~~~
After.
"""


def names(text: str) -> list[str]:
    """Names of the rules with hits in a page."""
    return [hit.rule.name for hit in hits_in_page(text)]


def hits_in_page(text: str) -> list[Hit]:
    return list(find(paragraphs("docs", "x.md", text, range(1, text.count("\n") + 2))))


def hits_in_code(path: str, source: str) -> list[tuple[str, int, str]]:
    return [(hit.area, hit.line, hit.rule.name) for hit in find(python(path, source))]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_finds_its_example_and_leaves_its_counterexample(rule: Rule) -> None:
    def hits(text: str) -> list[Hit]:
        return list(find(paragraphs("docs", "x.md", text, [1]), [rule]))

    assert hits(rule.example)
    assert hits(rule.counterexample) == []


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ("per", "a line an update"),
        ("per", "in 5 µs an environment"),
        ("is no", "A file that is no agent."),
        ("go on", "training went\non"),
        ("some", "some minutes"),
        ("own", "a package of their own: install it"),
        ("what", "## What is where"),
        ("what", "It ends. What is new begins."),
        ("the same", "| a | the same | b |"),
        ("british", "Initialised towards the centre."),
        ("british", "labelled neighbours"),
        ("cut", "the end of the episodes that are cut"),
    ],
)
def test_more_that_rules_find(rule: str, text: str) -> None:
    assert rule in names(text)


@pytest.mark.parametrize(
    "text",
    [
        "Calls a function. Moves a row.",
        "There is no agent, and there are\nno files.",
        "What does it cost?",
        "the same\nrow",
        "analyses of labels, initial values, a metric size",
        "a cut of the rope when it ends",
    ],
)
def test_plain_english_passes(text: str) -> None:
    assert names(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "`beside`, ``a ` beside`` and `x\nbeside`",
        "[a page](docs/beside.md) and https://example.org/beside",
        "[a page]: beside.md",
        "<!-- beside -->",
        '<a href="beside">a page</a>',
        "---\ntitle: beside\n---\n",
        "{{ beside }}",
        ">>> beside",
        FENCED,
    ],
)
def test_code_and_links_are_no_prose(text: str) -> None:
    assert names(text) == []
    assert names(f"{text}\n\nfaster beside it") == ["beside"]


def test_lines_of_hits_in_a_page() -> None:
    text = "# Anew\nIt goes\non.\n\n- a\n- it is\n  no agent\n\n| a | anew |\n\n```\nx\n```\nanew"
    assert [(hit.line, hit.rule.name) for hit in hits_in_page(text)] == [
        (1, "anew"),
        (2, "go on"),
        (6, "is no"),
        (9, "anew"),
        (14, "anew"),
    ]


def test_allowed_phrases_are_no_hits(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "It lies beside the\nboard, beside it."
    assert names(text) == ["beside", "beside"]
    monkeypatch.setattr(prose, "ALLOWED", {"beside the board": "a place"})
    assert names(text) == ["beside"]
    monkeypatch.setattr(prose, "ALLOWED", {})
    assert names(text) == ["beside", "beside"]


def test_allowed_phrases_are_found_by_a_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    phrases = list(prose.ALLOWED)
    assert [names(phrase) for phrase in phrases] == [[]] * len(phrases)
    monkeypatch.setattr(prose, "ALLOWED", {})
    assert all(names(phrase) for phrase in phrases)


SOURCE = '''"""Anew.

    beside = 1

Fine.
"""

x = 1  # anew
# It goes
# on.
TEXT = """anew beside it"""
"""Documented
beside it."""

def colour(beside: str) -> str:
    """Sets a colour.

    Args:
        beside: what is beside it,
            anew.
        colour: none
    """
    if beside == "anew":
        raise ValueError(
            f"expected {beside + 'anew'} here; "
            "the run goes "
            f"on\\nanew, '# besides'"
        )
    return """
    trained anew
    """
'''


def test_prose_of_a_module() -> None:
    compile(SOURCE, "x.py", "exec")
    expected = [
        ("package", 1, "anew"),
        ("package", 8, "anew"),
        ("package", 9, "go on"),
        ("messages", 11, "beside"),
        ("messages", 11, "anew"),
        ("package", 13, "beside"),
        ("package", 16, "british"),
        ("package", 19, "beside"),
        ("package", 20, "anew"),
        ("messages", 26, "go on"),
        ("messages", 27, "anew"),
        ("messages", 27, "besides"),
        ("messages", 30, "anew"),
    ]
    assert hits_in_code("entity_env/core/x.py", SOURCE) == expected
    in_cli = hits_in_code("entity_env/cli/x.py", SOURCE)
    assert in_cli[1] == ("package", 8, "anew")
    assert {line for area, line, _ in in_cli if area == "help"} == {1, 13, 16, 19, 20}
    in_script = hits_in_code("tools/x.py", SOURCE)
    assert in_script == [("scripts", *hit[1:]) for hit in expected if hit[0] == "package"]


def plant(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)


def test_files_of_a_project(tmp_path: Path) -> None:
    read = ("CHANGELOG.md", "docs/how-to/a.md", "entity_env/cli/a.py", "entity_env/a.py")
    for name in (*read, "tools/docs/a.py", "build/a.md", "tests/a.py", "docs/a.py", "tests/a.md"):
        plant(tmp_path, name, '"""Anew."""' if name.endswith("py") else "anew")
    assert sorted((hit.path, hit.area) for hit in find(prose.project(tmp_path))) == [
        ("CHANGELOG.md", "docs"),
        ("docs/how-to/a.md", "docs"),
        ("entity_env/a.py", "package"),
        ("entity_env/cli/a.py", "help"),
        ("tools/docs/a.py", "scripts"),
    ]


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most one hit in docs, and none elsewhere."""
    for area in AREAS:
        monkeypatch.setitem(AREAS, area, Area("", limit=int(area == "docs"), before=9))


@pytest.mark.usefixtures("limits")
def test_more_hits_than_the_limit_fail() -> None:
    text = "Train it anew.\n\nIt goes on."
    assert judge(hits_in_page("Train it anew.")) == ([], [])
    assert judge([]) == ([], ["docs: lower the limit in tools/prose.py to 0"])
    failures, advice = judge(hits_in_page(text))
    assert failures == [
        "x.md:1: anew: Train it anew. -> again",
        "x.md:3: go on: It goes on. -> continue",
        "docs: 2 hits, limit 1",
    ]
    assert advice == []


@pytest.mark.usefixtures("limits")
@pytest.mark.parametrize(("text", "status"), [("fine", 0), ("anew", 0), ("anew anew", 1)])
def test_the_command(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    text: str,
    status: int,
) -> None:
    plant(tmp_path, "README.md", text)
    monkeypatch.setattr("sys.argv", ["prose", "--root", str(tmp_path)])
    assert prose.main() == status
    table = [line.split() for line in capsys.readouterr().out.splitlines()]
    count = str(text.count("anew"))
    assert ["anew", count, "0", "0", "0", "0", count] in table
    assert ["limit", "1", "0", "0", "0", "0", "1"] in table
    monkeypatch.setattr("sys.argv", ["prose", "--root", str(tmp_path), "--list", "docs"])
    assert prose.main() == 0
    assert capsys.readouterr().out == f"README.md:1: anew: {text} -> again\n" * text.count("anew")


def test_a_missing_checkout_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["prose", "--root", str(tmp_path / "none")])
    with pytest.raises(SystemExit, match="2"):
        prose.main()
    assert "is not a folder" in capsys.readouterr().err


def test_a_paragraph_is_one_line() -> None:
    found = list(paragraphs("docs", "x.md", "a\n b\n\n**c** `d`", [5, 6, 7, 8]))
    assert found == [
        Paragraph("docs", "x.md", [(0, 5), (2, 6)], "a b"),
        Paragraph("docs", "x.md", [(0, 8)], "c ¤"),
    ]
