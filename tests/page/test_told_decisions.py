"""A page, a picture, a terminal and the page for playing tell the same of one decision."""

from __future__ import annotations

import json
import math
import random
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeAlias

import numpy as np
import pytest

import entity_env
from benchmarks.peers.network_vectors import NODE
from entity_env import (
    Action,
    ActionMask,
    ActionName,
    ActionSpace,
    CategoricalAction,
    CategoricalActionMask,
    CategoricalActionSpace,
    ContinuousAction,
    ContinuousActionMask,
    ContinuousActionSpace,
    Entity,
    Game,
    GlobalCategoricalAction,
    GlobalCategoricalActionMask,
    GlobalCategoricalActionSpace,
    GlobalComposite,
    Obs,
    Observation,
    ObsSpace,
    SelectEntityAction,
    SelectEntityActionMask,
    SelectEntityActionSpace,
)
from entity_env.agents import Agent, ScriptedAgent
from entity_env.authoring.local_run import Thoughts, Turn
from entity_env.page.live.seat_view import SeatView, ShownGame
from entity_env.views import Animation, Look
from entity_env.views.describe import describe_number, percent
from entity_env.views.page import _rounded
from entity_env.views.parts.bars import NOT_ALLOWED
from entity_env.views.text import thoughts_of

pytestmark = pytest.mark.skipif(NODE is None, reason="needs Node.js")
BOARD = Path(entity_env.__file__).parent / "views" / "board.js"
IN_NODE = """
const fs = require("fs");
const make = tag => ({tag, style: {}, className: "", textContent: "", children: [],
  append(...children) { this.children.push(...children); }, getContext() {}});
const source = fs.readFileSync(process.argv[1], "utf8") + "; return {barsOf, number, percent};";
const document = {createElement: make}, matchMedia = () => ({matches: false});
const board = new Function("document", "matchMedia", source)(document, matchMedia);
const textOf = element => element.textContent;
const wordsOf = row => [row.className, row.textContent, ...row.children.map(textOf)];
require("readline").createInterface({input: process.stdin}).on("line", line => {
  const [name, given] = JSON.parse(line);
  const found = name == "barsOf" ? board.barsOf(...given).map(wordsOf) : given.map(board[name]);
  console.log(JSON.stringify(found));
});
"""
Board: TypeAlias = Callable[[str, list[Any]], list[Any]]
"""Results of a function of `board.js`: `barsOf(*given)`, or others of each of the given."""


@pytest.fixture(scope="module")
def board() -> Iterator[Board]:
    command = [str(NODE), "-e", IN_NODE, str(BOARD)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as node:
        assert node.stdin is not None
        assert node.stdout is not None
        ours, theirs = node.stdin, node.stdout

        def call(name: str, given: list[Any]) -> list[Any]:
            print(json.dumps([name, given], allow_nan=False), file=ours, flush=True)
            found: list[Any] = json.loads(theirs.readline())
            return found

        yield call


class Tool(Enum):
    AXE = 0
    BOW = 1
    CUP = 2


class Way(Enum):
    HIT = 0
    USE = 1
    DROP = 2


@dataclass(frozen=True)
class Act:
    tool: Tool
    way: Way


@dataclass
class Dot:
    x: int


ACT = GlobalComposite(Act)


def play(agent: Agent, *, seed: int) -> None:
    obs = Obs(0).entities([Dot(1)]).mask(ACT.tool, [True, False, True])
    after = [[True, True, True], [True, True, True], [True, False, True]]
    agent.act(obs.mask(ACT.way, after, given=ACT.tool), ACT)
    agent.game_over()


class Bot(ScriptedAgent):
    _takes_plain = False

    def choose(self, obs: Obs, *actions: Any) -> Act:  # noqa: ANN401
        return Act(Tool.CUP, Way.DROP)


class Thinker(Bot):
    """Has the thoughts of a turn."""

    def __init__(self, turn: Turn) -> None:
        self.turn = turn

    def think(self, observation: Observation) -> Thoughts | None:
        return self.turn.thoughts


@dataclass(frozen=True)
class Decision:
    """One turn, and what each telling should say of every actor: the share of each choice."""

    turn: Turn
    obs_space: ObsSpace
    action_space: Mapping[ActionName, ActionSpace]
    told: Sequence[Mapping[str, str]]
    value: str = "0.5"

    @property
    def chosen(self) -> Iterator[str]:
        """By actor."""
        for action in self.turn.actions.values():
            match action:
                case GlobalCategoricalAction():
                    yield action.label
                case CategoricalAction():
                    yield from action.labels
                case SelectEntityAction():
                    yield from (NAMES[str(actee)] for actee in action.actees)


NAMES = {"a": "Dot x=1", "b": "Dot x=2"}
SPACE = ObsSpace([], {"Dot": Entity(["x"])})


def decision(
    space: ActionSpace,
    mask: ActionMask,
    action: Action,
    shares: Sequence[Sequence[float]],
    *told: Mapping[str, str],
    value: float = 0.5,
) -> Decision:
    """Of two dots; no shares = without probabilities."""
    observation = Observation(
        reward=0,
        terminated=False,
        features={"Dot": np.array([[1], [2]], np.float32)},
        ids={"Dot": [*NAMES]},
        actions={"Go": mask},
    )
    known = {"Go": np.array(shares, np.float32)} if shares else {}
    thoughts = Thoughts(known, value)
    turn = Turn(0, 0, 0.0, observation, {"Go": action}, thoughts=thoughts)
    return Decision(turn, SPACE, {"Go": space}, told, describe_number(value))


def dependent() -> Decision:
    tools = Game(play, entities=(Dot,), actions=(ACT,), name="tools")
    turns: list[Turn] = []
    tools.run(Bot(), watch=turns.append)
    shares = {"Act.tool": [[0.25, 0.0, 0.75]], "Act.way": [[0.375, 0.0, 0.625]]}
    thoughts = Thoughts({name: np.array(rows) for name, rows in shares.items()}, 0.5)
    told = [
        {"AXE": "25%", "BOW": NOT_ALLOWED, "CUP": "75%"},
        {"HIT": "38%", "USE": NOT_ALLOWED, "DROP": "63%"},
    ]
    turn = replace(turns[0], thoughts=thoughts)
    return Decision(turn, tools.obs_space(), tools.action_space(), told)


def one_of(labels: str, chosen: int, *shares: float, value: float = 0.5) -> Decision:
    """A global choice without a mask."""
    names = labels.split()
    texts = [percent(share) for share in shares]
    return decision(
        GlobalCategoricalActionSpace(names),
        GlobalCategoricalActionMask(),
        GlobalCategoricalAction(chosen, names[chosen]),
        [shares] if shares else [],
        *([dict(zip(names, texts, strict=True))] if shares else []),
        value=value,
    )


def numbers(low: float, high: float, *values: float) -> Decision:
    return decision(
        ContinuousActionSpace([low] * len(values), [high] * len(values)),
        ContinuousActionMask(actor_ids=["a"]),
        ContinuousAction(["a"], np.array([values], np.float32)),
        [],
    )


DECISIONS = {
    "dependent": dependent(),
    "tiny": one_of("A B C", 0, 0.9956, 0.004, 0.0004),
    "ties": one_of("A B C D", 3, 0.125, 0.125, 0.125, 0.625, value=1.125),
    "single": one_of("A", 0, 1.0, value=-1234.5),
    "unknown": one_of("A B", 1),
    "invalid": replace(one_of("A B", 1, math.nan, 1.0), told=[]),
    "unfit": replace(one_of("A B", 1, 0.5, 0.5), told=[]),
    "many": one_of(" ".join(f"C{i}" for i in range(20)), 0, *[i / 190 for i in range(20)]),
    "actors": decision(
        CategoricalActionSpace(["A", "B"]),
        CategoricalActionMask(None, None, np.array([[True, True], [False, True]])),
        CategoricalAction([*NAMES], np.array([0, 1]), ["A", "B"]),
        [[0.75, 0.25], [0, 1]],
        {"A": "75%", "B": "25%"},
        {"A": NOT_ALLOWED, "B": "100%"},
        value=1e-5,
    ),
    "select": decision(
        SelectEntityActionSpace(),
        SelectEntityActionMask(actor_ids=["a"]),
        SelectEntityAction(["a"], ["b"]),
        [[0.005, 0.995]],
        {"Dot x=1": "1%", "Dot x=2": "100%"},
    ),
    "numbers": numbers(-1, 1, 0.5, -1.0, 1.0),
    "rounded": numbers(0.7, 0.9, 0.7, 0.9),  # as float32, 0.7 is less
    "huge": numbers(-1e308, 1e308, 0.0),
}
DECISIONS["unfit"].turn.thoughts.probabilities["Go"] = np.ones((1, 3), np.float32)  # type: ignore[index, union-attr]
Told: TypeAlias = tuple[str, list[dict[str, str]]]
"""The value, and by actor the share of each choice; a chosen one ends with "*"."""


def of_bars(groups: Sequence[Any], board: Board) -> list[dict[str, str]]:
    """What `board.js` makes of `[title, bars, number of others]`."""
    told = []
    for group in groups:
        _, *rows = board("barsOf", [*group, 0][:3])
        bars = [row for row in rows if row[0].startswith("bar")]
        told.append(
            {
                label.removeprefix("● "): more[-1] + "*" * (name == "bar hit")
                for name, _, label, *more in bars
            }
        )
    return told


def of_page(given: Decision, board: Board) -> Told:
    data = json.loads(json.dumps(_rounded(drawn(given)._page_data()), allow_nan=False))
    [frame], words = data["frames"], data["words"]
    groups = [
        [words[title], [[words[label], *more[:2]] for label, *more in bars], *more]
        for title, bars, *more in frame["b"]
    ]
    shown = [group for group in groups if any(bar[1] is not None for bar in group[1])]
    [value] = board("number", [frame["v"]])
    return value, of_bars(shown, board)


def of_picture(given: Decision, board: Board) -> Told:
    plain = drawn(given)
    before, after = (
        [shape.text for shape in each.shapes_of(0) if shape.kind == "text"]
        for each in (plain, plain.with_thoughts())
    )
    told: list[dict[str, str]] = []
    if after == before:
        return given.value, told
    value, *lines = after[len(before) :]
    actors = plain.stills[0].actors
    marks = [{bar.label for bar in each.bars if bar.is_chosen} for each in actors]
    texts = iter(lines)
    for line in texts:
        if line.startswith(("Go", "Act.")):
            told.append({})
        elif not line.startswith("and "):
            told[-1][line] = next(texts) + "*" * (line in marks[len(told) - 1])
    return value.removeprefix("value "), told


def of_terminal(given: Decision, board: Board) -> Told:
    value, *lines = thoughts_of(given.turn, given.obs_space, given.action_space)
    told: list[dict[str, str]] = []
    for line in lines:
        found = re.fullmatch(rf" *(\S+%|{NOT_ALLOWED}) *█* *(\S.*)", line.plain)
        if found is None:  # a title, or how many are left out
            told += [{}] * (" of " in line.plain)
            continue
        share, label = found.groups()
        if not told or label not in given.told[len(told) - 1]:
            told.append({})
        told[-1] = told[-1] | {label: share + "*" * ("bold" in str(line.style))}
    return value.plain.removeprefix("value "), told


def of_play(given: Decision, board: Board, *, has_chosen: bool = True) -> Told:
    """Legal choices alone."""
    game: Any = SimpleNamespace(
        play=None, obs_space=lambda: given.obs_space, action_space=lambda: given.action_space
    )
    seat = SeatView("tester", ShownGame(game, Look(), ["tester"]))
    actions = given.turn.actions if has_chosen else {}
    found = seat.see(given.turn).bars(Thinker(given.turn), actions)
    [value, *_], *groups = json.loads(json.dumps(found, allow_nan=False))
    return value.removeprefix("value "), of_bars(groups, board)


def drawn(given: Decision) -> Animation:
    return Animation.of([given.turn], given.obs_space, given.action_space, look=Look())


@pytest.mark.parametrize("tell", [of_page, of_picture, of_terminal, of_play])
@pytest.mark.parametrize("name", DECISIONS)
def test_every_telling_has_the_same_value_shares_and_choice(
    name: str, tell: Callable[[Decision, Board], Told], board: Board
) -> None:
    given = DECISIONS[name]
    value, told = tell(given, board)
    assert value == given.value
    if any(isinstance(each, ContinuousActionSpace) for each in given.action_space.values()):
        return
    assert len(told) == len(given.told)
    for shown, expected, chosen in zip(told, given.told, given.chosen, strict=bool(told)):
        marked = {label: share + "*" * (label == chosen) for label, share in expected.items()}
        assert shown.items() <= marked.items()
        needed = {label for label, share in marked.items() if "*" in share or len(marked) <= 5}
        if tell is of_play:
            needed = {label for label in needed if NOT_ALLOWED not in marked[label]}
        assert shown.keys() >= needed


def test_without_actions_the_most_probable_legal_choices_count_as_chosen(board: Board) -> None:
    given = DECISIONS["dependent"]
    assert of_play(given, board, has_chosen=False) == of_play(given, board)


@pytest.mark.parametrize("name", ["numbers", "rounded", "huge"])
def test_numbers_are_bars_between_their_bounds_without_a_share_in_words(
    name: str, board: Board
) -> None:
    given = DECISIONS[name]
    [actor] = drawn(given).stills[0].actors
    assert all(bar.share is not None and 0 <= bar.share <= 1 for bar in actor.bars)
    for _, [told] in (of_page(given, board), of_picture(given, board)):
        assert told == {bar.label: "*" for bar in actor.bars}


def test_pages_write_numbers_and_shares_as_python_does(board: Board) -> None:
    rng = random.Random(0)
    values = [rng.uniform(-1, 1) * 10 ** rng.randint(-9, 9) for _ in range(2_000)]
    values += [0.0, -0.0, 3.0, 1e21, 999.5, 999.49, 9.995e-5, 1e-4, 1e-10, 1.5e-7, 1000.25]
    values += [i / 8 for i in range(-100, 100)] + [round(value, 2) for value in values]
    shares = [i / 10_000 for i in range(10_001)]
    assert board("number", values) == [describe_number(value) for value in values]
    assert board("percent", shares) == [percent(share) for share in shares]
