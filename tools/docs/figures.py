"""Writes the figures of performance in README and docs/ from the results in docs/results.

    python -m tools.docs.figures

A page names the result in a comment directly behind the number; readers of the page do not see it:

    6.2<!--vec.vs_env_list_256--> times as many steps per second
    0.06<!--latency.us_10_entities_ours/1000--> ms
    up to 3.9<!--max train.fps_ratio_*--> times

`vec` is docs/results/vec.json, printed by `benchmarks/vec.py --json`. Numbers keep their number of
decimals.
A figure of performance without a comment fails the tests, except in the pages of `LOGS`, in the
column "aim" of a table, and in the phrases of `ALLOWED`.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
RESULTS: Final = ROOT / "docs" / "results"
OTHER_FILES: Final = ("scores.json",)
"""Files in the folder of results that are not from a benchmark: scores of players, see `games`."""

LOGS: Final = {
    "docs/explanation/measurements.md": "a log: what was measured at the time, with dates",
    "docs/reliability_tests.md": "single runs that kill workers, with their conditions",
    "docs/roadmap.md": "a log: what was measured when a part was finished, and aims",
}
"""Pages whose figures need not match the current results, with the reason."""

ALLOWED: Final = {
    "takes 10 ms or more": "own_loop.md: the threshold of a warning",
    "take less than 1 ms": "own_loop.md: an estimate, next to that threshold",
    "60 frames per second": "embed.md: a setting of the example",
    "27 µs of processor time to play one decision of snake and 49 µs": "scaling.md: its model",
    "an additional 0.8 ms per minibatch": "scaling.md: of that model",
    "50 µs latency": "scaling.md: of that model",
    "| 0.10 million per second | 0.90 | 0.10 million per second |": "scaling.md: of that model",
    "at 1.4 times the processor time": "defaults.md: an experiment, not a benchmark",
    "at 20 to 30 % more processor time": "defaults.md: an experiment, not a benchmark",
}
"""Phrases with a figure that is not from a benchmark, with the page and the reason."""

_NUMBER: Final = r"[-−]?\d[\d,]*(?:\.\d+)?"
_FIGURE: Final = re.compile(rf"({_NUMBER})<!--(.*?)-->")
_SOURCE: Final = re.compile(r"(?:(min|max) )?(\w+)\.([\w*]+)(?:/(\d+(?:\.\d+)?(?:e-?\d+)?))?")
_CODE: Final = re.compile(r"^```.*?^```$|`[^`\n]+`|<!--.*?-->", re.MULTILINE | re.DOTALL)
_BREAK: Final = re.compile(r"(?<![\n|])\n(?![\n|])\s*")
_UNIT: Final = (
    r"(?:[µmn]s|(?:micro|milli|nano)seconds?|CPU seconds|GFLOP/s|steps/s"
    r"|[×%]?\s*(?:times )?(?:as (?:fast|long|much processor time|many \w+ per)|faster|slower)"
    r"|(?:times|%)\s+(?:the\s+)?(?:less |more |of the )?(?:processor )?(?:time|speed)"
    r"|(?:million |thousand |billion )?(?:\w+ ){0,3}per (?:CPU )?second|a second of processor time)"
)
_SPEED: Final = re.compile(
    rf"{_NUMBER}(?:\s+(?:to|and)\s+{_NUMBER})?\s*{_UNIT}(?!\w)"
    r"|(?:third|quarter|fifth|sixth|seventh|eighth|ninth|tenth|\w+teenth|twentieth)s? of the"
    r" (?:processor )?time"
    rf"|makes? (?:about )?{_NUMBER}(?:\s+to\s+{_NUMBER})? (?:million|thousand)"
    rf"|(?:memory|worker|suspended|process)\b[^.|\n]*\b{_NUMBER}\s*(?:[kMG]i?B)\b",
)
_HEADER: Final = re.compile(rf"(?:^|\W){_UNIT}(?!\w)|\bCPU\b|processor time")


@dataclass(frozen=True)
class Result:
    """Output of a benchmark: its figures, and where they come from.

    Args:
        script: path of the benchmark, from the root.
        date: of the run.
        machine: processor and number of cores.
        figures: by name.
        spread: smallest and largest value of all rounds, for some of the figures.
    """

    script: str
    date: date
    machine: str
    figures: Mapping[str, float]
    spread: Mapping[str, tuple[float, float]] = field(default_factory=dict)


def read(path: Path) -> Result:
    """The result in NAME.json; its script is `benchmarks/NAME.py`, unless the file names another.

    Raises:
        ValueError: no date, machine or script, or a figure is not a number.
    """
    raw: dict[str, Any] = json.loads(path.read_text("utf-8"))
    script = raw.get("script", f"benchmarks/{path.stem}.py")
    try:
        if not (ROOT / script).exists():
            raise ValueError(f"{script} does not exist")
        machine = f"{raw['machine']['processor']}, {raw['machine']['cores']} cores"
        figures = {name: float(value) for name, value in raw["figures"].items()}
        spread = {name: (float(a), float(b)) for name, (a, b) in raw.get("spread", {}).items()}
        if wrong := [name for name, value in figures.items() if not math.isfinite(value)]:
            raise ValueError(f"{', '.join(wrong)} must be finite")
        return Result(script, date.fromisoformat(raw["date"]), machine, figures, spread)
    except (KeyError, ValueError, TypeError) as error:
        raise ValueError(
            f"{path.name} is not a result: expected script, date, machine and figures, as "
            f"`python {script} --json` prints them: {error!r}"
        ) from error


def results() -> dict[str, Result]:
    """All results, by name."""
    paths = sorted(RESULTS.glob("*.json"))
    return {path.stem: read(path) for path in paths if path.name not in OTHER_FILES}


def value_of(source: str, known: Mapping[str, Result]) -> float:
    """The value that a comment names.

    Raises:
        ValueError: no such result or figure, or several figures without `min` or `max`.
    """
    if (match := _SOURCE.fullmatch(source)) is None:
        raise ValueError(f"{source!r}: expected RESULT.FIGURE, as in vec.vs_env_list_256")
    pick, name, pattern, divisor = match.groups()
    if name not in known:
        raise ValueError(f"{source!r}: no docs/results/{name}.json; there are {', '.join(known)}")
    found = [value for key, value in known[name].figures.items() if fnmatchcase(key, pattern)]
    if not found or (len(found) > 1 and pick is None):
        raise ValueError(f"{source!r} names {len(found)} figures of docs/results/{name}.json")
    value = max(found) if pick == "max" else min(found)
    return value / float(divisor or 1)


def rendered(text: str, known: Mapping[str, Result]) -> str:
    """A page with the figures of the current results."""

    def figure(match: re.Match[str]) -> str:
        decimals = len(match[1].partition(".")[2])
        number = f"{value_of(match[2], known):,.{decimals}f}"
        return f"{number.replace('-', '−')}<!--{match[2]}-->"

    return _FIGURE.sub(figure, text)


def plain(text: str) -> str:
    """A page without the comments behind its figures."""
    return _FIGURE.sub(r"\1", text)


def joined(text: str) -> str:
    """A page with each paragraph on one line."""
    return _BREAK.sub(" ", text)


def unmarked(text: str) -> Iterator[str]:
    """Figures of performance without a comment, with the text around them."""
    text = joined(_CODE.sub("", _FIGURE.sub("", text)))
    for phrase in ALLOWED:
        text = text.replace(phrase, "")
    header: list[str] = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]] if line.startswith("|") else []
        header = (header or cells) if cells else []
        for title, cell in zip(header, cells, strict=False):
            is_speed = _HEADER.search(title) or (cells[0] != cell and _HEADER.search(cells[0]))
            is_figure = _SPEED.search(cell) or (is_speed and re.match(_NUMBER, cell))
            if is_figure and cells != header and title != "aim":
                yield f"{cells[0]} | {title}: {cell}"
        for match in _SPEED.finditer("" if cells else line):
            yield line[max(0, match.start() - 30) : match.end() + 10]


def pages() -> list[Path]:
    """README and the pages of docs/."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def main() -> None:
    known = results()
    for path in pages():
        text = path.read_text("utf-8")
        try:
            new = rendered(text, known)
        except ValueError as error:
            sys.exit(f"{path.relative_to(ROOT)}: {error}")
        if new != text:
            path.write_text(new, "utf-8")
            sys.stdout.write(f"{path.relative_to(ROOT)}: figures changed\n")


if __name__ == "__main__":
    main()
