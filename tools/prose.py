"""Finds habits of translated English in the project's text: `python -m tools.prose`.

Counts hits by rule and area, and fails if an area exceeds its limit. `--list [AREA]` prints every
hit with its location and what to write instead. Code is skipped. After removing hits, lower the
limit in `AREAS`; never raise it. If a phrase is correct, add it to `ALLOWED` with the reason.

Hits at commit 888962ce, 1,463 in all:

    docs 373, help 103, package 740, messages 96, scripts 151
    per 98, beside 77, is no 101, go on 135, anew 27, besides 20, some 8, own 96, as well 29,
    so that 163, what 311, the same 49, british 244, person 34, told 23, cut 46, lots 2
"""

from __future__ import annotations

import argparse
import inspect
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[1]


class Area(NamedTuple):
    """A kind of text, and the number of hits it may have."""

    sources: str
    limit: int
    """The check fails if there are more hits."""
    before: int
    """Hits before this check was added."""


AREAS: Final = {
    "docs": Area("pages in Markdown", 12, 373),
    "help": Area("docstrings of entity_env/cli, the source of --help", 0, 103),
    "package": Area("other docstrings, and comments, of entity_env", 0, 740),
    "messages": Area("other strings of entity_env with several words", 0, 96),
    "scripts": Area("docstrings and comments of examples, benchmarks and tools", 0, 151),
}

ALLOWED: Final = {
    "reaches the ground beside the ship": "a place on the board, not a comparison",
    "is no exception": "an idiom",
    **dict.fromkeys(
        (
            *("source, colour, count", "source; colour; count", "row; colour; count"),
            *("colour_tiles", "number of groups; centre"),
        ),
        "names of features",
    ),
}
"""Phrases that no rule matches, with the reason."""


class Rule(NamedTuple):
    """A habit. The pattern sees a paragraph as one line, from `^` to `$`, and ignores case."""

    name: str
    pattern: str
    instead: str
    example: str
    counterexample: str


def _not_after(words: str) -> str:
    """A pattern for the start of a word that does not follow any of these."""
    return "".join(rf"(?<!\b{word} )" for word in words.split()) + r"\b"


def _words(text: str) -> str:
    return rf"\b(?:{'|'.join(text.split())})\b"


_COUNTED: Final = _words(
    r"[\d,.]*\d[kMG]? [kMG]?B [µmn]s one two three four five ten hundred thousand million billion "
    r"bytes? megabytes? (?:micro|milli)?seconds? minutes? hours? times steps? decisions? moves? "
    r"frames? games? episodes? rows? lines? actions? samples? updates? numbers? "
    r"observations? calls? rounds? points? tokens? pixels files? choices? masks?"
)
_UNITS: Final = _words(
    "second minute hour day step update decision game actor row episode environment core worker "
    "run rank agent line table round batch machine unit frame call move process player cell page "
    "entity observation file choice job test script folder function thread turn side seat feature"
)
_BRITISH: Final = _words(
    r"(?:learn|burn|spel)t (?:behavi|col|fav|flav|hon|lab|neighb)our\w* grey(?:s|ed|ish|scale)? "
    r"centre[ds]? licences? (?:met|fib)res? artefacts? defence programmes? towards whilst amongst "
    r"analys(?:e|ed|er|ers|ing) (?:canc|chann|lab|mod|trav)ell(?:ed|ing|ers?) "
    r"(?:categor|character|custom|discret|emphas|final|general|initial|maxim|memor|minim|normal|"
    r"optim|organ|parallel|penal|priorit|random|real|recogn|serial|special|stabil|standard|summar|"
    r"synchron|token|vector|visual)is(?:e[drs]?|ing|ations?)"
)

RULES: Final = (
    Rule(
        "per",
        rf"(?-i:{_COUNTED} an? {_UNITS})(?! (?:can|gets|has|is|makes|may|needs|sees|takes|was)\b)",
        "per",
        "It makes 3,000 steps a second.",
        "Steps a game once. In games an agent has a step, a second and a game.",
    ),
    Rule("beside", r"\bbeside\b", "compared with; next to", "training beside X", "besides X"),
    Rule(
        "is no",
        _not_after("there will can could may must would") + r"(?:is|are|was|were|be|being) no "
        r"(?!(?:longer|more|less|fewer|later|better|worse|different|problem|doubt|need|one)\b)",
        "is not a, are not",
        "values that are no numbers",
        "There is no agent. There can be no seeds. It is no longer; they share no seeds.",
    ),
    Rule(
        "go on",
        _not_after("what") + r"(?:go|goes|going|gone|went) on\b(?! (?:top|the (?:board|wire))\b)",
        "continue",
        "The run goes on.",
        "The run goes on top; go one step.",
    ),
    Rule("anew", r"\banew\b", "again", "train anew", "a new one"),
    Rule("besides", r"\bbesides\b", "also, other than", "besides the loss", "in addition"),
    Rule(
        "some",
        r"\bsome (?:ten|dozen|hundred|thousand|million|second|minute|hour)s?\b(?! of\b)",
        "a few",
        "some hundred thousand steps",
        "some of the hundred; some tests",
    ),
    Rule(
        "own",
        r"\bof (?:its|his|her|their|one's) own\b(?=$|[^\w ]| (?:a|also|and|are|as|at|but|by|can|"
        r"for|from|has|have|if|in|into|is|on|or|so|that|to|was|when|where|which|while|with)\b)",
        "its own X, a separate X",
        "in a process of its own with two threads",
        "in its own process; the tests of their own folder",
    ),
    Rule(
        "as well",
        _not_after("just least almost nearly might may") + r"as well\b(?! as\b)",
        "also, too",
        "Masks are read as well.",
        "It learns as well as ours, or at least as well; masks as well as rows.",
    ),
    Rule(
        "so that", r", so that\b", "so", "It is kept, so that X skips.", "Keep it so that X skips."
    ),
    Rule(
        "what",
        r"(?:^|(?<=[.:!] ))(?-i:What)(?= (?!to )[^.?!]*(?:[.!]|$))",
        "a noun",
        "What is new begins without effect.",
        "What is new? What to do next. It shows what is new.",
    ),
    Rule(
        "the same",
        _not_after("is are was were be been not always nearly exactly look looks stay stays")
        + r"the same(?=[.,;:)]|$)",
        "repeat the noun",
        "The worker does the same.",
        "They are the same. It does the same work. They look the same.",
    ),
    Rule("british", _BRITISH, "American spelling", "It learnt the colour.", "It learned colors."),
    Rule("person", r"\bwho(?:so)?ever\b|\bwhom\b|\bnobody\b", "the caller, no X", "whoever", "who"),
    Rule("told", r"\b(?:is|are|was|were|be) told\b(?! apart)", "given", "is told", "be told apart"),
    Rule(
        "cut",
        r"\bend(?:s|ed|ing)? (?:or|and|nor) (?:a |the |is |are |was )?cuts?\b|\bcut when\b|"
        r"\bcut episodes?\b|\bepisodes? (?:that )?(?:is|are|was|were|be) cut\b",
        "terminated, truncated",
        "It ends or is cut. An episode is cut.",
        "Messages are cut to 100 characters.",
    ),
    Rule("lots", r"\bdr(?:aws?|ew|awn|awing) lots\b", "sample", "It draws lots.", "lots of draws"),
)


class Paragraph(NamedTuple):
    """Text joined into one line, code as ¤, with the offset and number of each original line."""

    area: str
    path: str
    lines: Sequence[tuple[int, int]]
    text: str


class Hit(NamedTuple):
    """A match of a rule, with the text around it."""

    area: str
    path: str
    line: int
    rule: Rule
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule.name}: {self.text} -> {self.rule.instead}"


_BLOCK: Final = re.compile(
    r"^ *(?:> *)?(`{3,}|~{3,}).*?(?:^ *(?:> *)?\1[`~]* *$|\Z)"  # fenced code
    r"|\A---\n.*?^---$|<!--.*?-->|^:::[^\n]*|</?[a-zA-Z][^>\n]*>"  # front matter, comments, tags
    r"|^ *(?:>>>|\.\.\. )[^\n]*"  # examples
    r"|(?<=\])\([^()\s]*(?:\s+\"[^\"]*\")?\)|^ *\[[^\]]+\]:[^\n]*|https?://\S+",  # links
    re.DOTALL | re.MULTILINE,
)
_CODE: Final = re.compile(r"(`+)(?!`)(?:(?!\n\s*\n).)+?(?<!`)\1(?!`)|\{\{.*?\}\}", re.DOTALL)
_INDENTED: Final = re.compile(r"(?<=\n\n)(?: {4}[^\n]*(?:\n+|\Z))+")
_ENTRY: Final = re.compile(r"^ +\*{0,2}\w+(?:, \w+)*(?: \([^)]*\))?:(?=\s)", re.MULTILINE)
"""An entry of a docstring's section, whose name is code."""
_BEGIN: Final = re.compile(r"\s*(?:[-*+] |\d+\. |#+ |\||> |(?:!!!|\?\?\?|===) )")
"""Start of an item, a heading, a table row or another line that does not continue a paragraph."""
_TOKEN: Final = re.compile(
    r"(?P<prefix>\b[bfru]{1,2})?(?P<quote>\"{3}|'{3}|[\"'])"
    r"(?P<text>(?:\\.|(?!(?P=quote)).)*)(?P=quote)|#(?P<comment>[^\n]*)",
    re.DOTALL | re.IGNORECASE,
)
_FIELD: Final = re.compile(r"\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}|\\n")


def _blank(match: re.Match[str]) -> str:
    return "\n" * match[0].count("\n")


def paragraphs(area: str, path: str, text: str, numbers: Sequence[int]) -> Iterator[Paragraph]:
    """Paragraphs, headings, items and cells of Markdown, given the line number of each line."""
    text = _CODE.sub(lambda match: "¤" + _blank(match), _BLOCK.sub(_blank, text))
    joined, lines = "", list[tuple[int, int]]()
    for number, each in zip(numbers, text.split("\n"), strict=True):
        begin = _BEGIN.match(each)
        mark = begin[0].strip()[:1] if begin else ""
        if joined and (mark or not each.strip()):
            yield Paragraph(area, path, lines, joined)
            joined, lines = "", []
        for cell in each[begin.end() if begin else 0 :].split("|" if mark == "|" else "\n"):
            if words := cell.replace("*", "").strip():
                lines.append((len(joined) + bool(joined), number))
                joined = f"{joined} {words}" if joined else words
            if joined and mark in ("|", "#"):
                yield Paragraph(area, path, lines, joined)
                joined, lines = "", []
    if joined:
        yield Paragraph(area, path, lines, joined)


def tokens(source: str) -> Iterator[tuple[str, int, str, bool]]:
    """Kind, line and text of comments, docstrings and strings; True if it continues the last."""
    line, end, last = 1, 0, ""
    for token in _TOKEN.finditer(source):
        gap = source[end : token.start()]
        line += gap.count("\n")
        starts_line = not gap.rpartition("\n")[2].strip() and ("\n" in gap or not end)
        is_value = not starts_line or gap.strip()[-1:] in tuple("(,=[{+")
        if token["quote"] is None:
            kind, text = "comment", token["comment"].lstrip("#:!")
        elif token["quote"] == '"""' and not is_value:
            kind, text = "docstring", token["text"]
        else:
            kind, text = "string", _FIELD.sub("¤", token["text"])
        adjoins = kind == last and not gap.strip() and (kind == "string" or gap.count("\n") == 1)
        yield kind, line, text, adjoins and kind != "docstring"
        line, end = line + token[0].count("\n"), token.end()
        last = kind if kind == "string" or starts_line else ""


def python(path: str, source: str) -> Iterator[Paragraph]:
    """Paragraphs of docstrings and comments; in the package also of other strings."""
    in_package = path.startswith("entity_env/")
    parts = list[tuple[str, list[str], list[int]]]()
    for kind, line, text, continues in tokens(source):
        if kind == "docstring":
            line += text[: len(text) - len(text.lstrip())].count("\n")
            text = _ENTRY.sub("- ", _INDENTED.sub(_blank, inspect.cleandoc(text)))
        if not continues:
            parts.append((kind, [], []))
        parts[-1][1].append(text)
        parts[-1][2].extend(range(line, line + text.count("\n") + 1))
    for kind, texts, numbers in parts:
        area = "package" if in_package else "scripts"
        if kind == "docstring" and path.startswith("entity_env/cli/"):
            area = "help"
        elif kind == "string":
            area = "messages"
        text = "\n".join(texts)
        if kind != "string" or (in_package and re.search("[a-z] [a-z]", text)):
            yield from paragraphs(area, path, text, numbers)


def project(root: Path) -> Iterator[Paragraph]:
    """Paragraphs of a checkout."""
    for path in sorted([*root.glob("*.md"), *root.glob("docs/**/*.md")]):
        text = path.read_text()
        numbers = range(1, text.count("\n") + 2)
        yield from paragraphs("docs", path.relative_to(root).as_posix(), text, numbers)
    for folder in ("entity_env", "examples", "benchmarks", "tools"):
        for path in sorted(root.glob(f"{folder}/**/*.py")):
            yield from python(path.relative_to(root).as_posix(), path.read_text())


def find(found: Iterator[Paragraph], rules: Sequence[Rule] = RULES) -> Iterator[Hit]:
    """Hits of the rules in paragraphs, except in allowed phrases."""
    compiled = [(rule, re.compile(rule.pattern, re.IGNORECASE)) for rule in rules]
    allowed = re.compile("|".join(map(re.escape, ALLOWED)) or "(?!)", re.IGNORECASE)
    for area, path, lines, text in found:
        text = allowed.sub("¤", text)
        for rule, pattern in compiled:
            for match in pattern.finditer(text):
                line = next(line for start, line in reversed(lines) if start <= match.start())
                around = text[max(match.start() - 30, 0) : match.end() + 40]
                yield Hit(area, path, line, rule, around)


def summary(hits: Sequence[Hit]) -> str:
    """A table of hits by rule and area."""
    counts = Counter((hit.rule.name, hit.area) for hit in hits)
    rows = {rule.name: [counts[rule.name, area] for area in AREAS] for rule in RULES}
    rows["all"] = [sum(column) for column in zip(*rows.values(), strict=True)]
    rows["limit"] = [area.limit for area in AREAS.values()]
    rows["before"] = [area.before for area in AREAS.values()]
    table = [("", *AREAS, "all"), *((name, *row, sum(row)) for name, row in rows.items())]
    return "\n".join(f"{row[0]:11}" + "".join(f"{cell:>9}" for cell in row[1:]) for row in table)


def judge(hits: Sequence[Hit]) -> tuple[list[str], list[str]]:
    """Reasons to fail, and advice."""
    failures, advice = list[str](), list[str]()
    for name, area in AREAS.items():
        found = [hit for hit in hits if hit.area == name]
        if len(found) > area.limit:
            failures += [*map(str, found), f"{name}: {len(found)} hits, limit {area.limit}"]
        elif len(found) < area.limit:
            advice.append(f"{name}: lower the limit in tools/prose.py to {len(found)}")
    return failures, advice


def main() -> int:
    """Returns 1 if an area has more hits than its limit."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--list", nargs="?", const="all", choices=["all", *AREAS], metavar="AREA")
    parser.add_argument("--root", type=Path, default=ROOT, help="another checkout")
    options = parser.parse_args()
    if not options.root.is_dir():
        parser.error(f"{options.root} is not a folder: give the root of a checkout")
    hits = list(find(project(options.root)))
    if options.list:
        chosen = [str(hit) for hit in hits if options.list in ("all", hit.area)]
        sys.stdout.write("".join(f"{line}\n" for line in chosen))
        return 0
    failures, advice = judge(hits)
    sys.stdout.write("\n".join([*failures, summary(hits), *advice, ""]))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
