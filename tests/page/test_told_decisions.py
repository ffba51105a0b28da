"""A page, a picture, a terminal and the page for playing tell the same of one decision."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import numpy as np
import pytest

from entity_env import Game, GlobalComposite, Obs
from entity_env.agents import Agent, ScriptedAgent
from entity_env.authoring.local_run import Thoughts, Turn
from entity_env.core.observation import Observation
from entity_env.page.live.seat_view import SeatView, ShownGame
from entity_env.views import Animation, Look
from entity_env.views.parts.bars import NOT_ALLOWED
from entity_env.views.text import thoughts_of


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
LEGAL = {"Act.tool": ["AXE", "CUP"], "Act.way": ["HIT", "DROP"]}
FORBIDDEN = {"Act.tool": "BOW", "Act.way": "USE"}
SHARES = {"Act.tool": [[0.25, 0.0, 0.75]], "Act.way": [[0.375, 0.0, 0.625]]}


def play(agent: Agent, *, seed: int) -> None:
    obs = Obs(0).entities([Dot(1)]).mask(ACT.tool, [True, False, True])
    after = [[True, True, True], [True, True, True], [True, False, True]]
    agent.act(obs.mask(ACT.way, after, given=ACT.tool), ACT)
    agent.game_over()


class Bot(ScriptedAgent):
    _takes_plain = False

    def choose(self, obs: Obs, *actions: Any) -> Act:  # noqa: ANN401
        return Act(Tool.CUP, Way.DROP)


tools = Game(play, entities=(Dot,), actions=(ACT,), name="tools")


@pytest.fixture(scope="module")
def turn() -> Turn:
    turns: list[Turn] = []
    tools.run(Bot(), watch=turns.append)
    shares = {name: np.array(rows) for name, rows in SHARES.items()}
    return replace(turns[0], thoughts=Thoughts(shares, 0.5))


class Thinker(Bot):
    """Has the thoughts of a turn."""

    def __init__(self, turn: Turn) -> None:
        self.turn = turn

    def think(self, observation: Observation) -> Thoughts | None:
        return self.turn.thoughts


def of_page(turn: Turn) -> dict[str, list[str]]:
    data = drawn(turn)._page_data()
    told: dict[str, list[str]] = {}
    for title, bars, *_ in data["frames"][0]["b"]:
        told[data["words"][title]] = [
            f"{data['words'][label]} {NOT_ALLOWED if share < 0 else f'{share:.0%}'}"
            for label, share, *_ in bars
        ]
    return told


def of_picture(turn: Turn) -> dict[str, list[str]]:
    shown = drawn(turn).with_thoughts()
    texts = [s.text for s in shown.shapes_of(0) if s.kind == "text" and s.text not in ("x", "Dot")]
    return by_title(" ".join(texts))


def of_terminal(turn: Turn) -> dict[str, list[str]]:
    lines = list(thoughts_of(turn, tools.obs_space(), tools.action_space()))
    words = [re.sub("[█ ]+", " ", line.plain).strip() for line in lines]
    told: dict[str, list[str]] = {name: [] for name in LEGAL}
    for line in words[1:]:
        share, _, label = line.rpartition(" ")
        name = "Act.tool" if label in Tool.__members__ else "Act.way"
        told[name].append(f"{label} {share}")
    return told


def of_play(turn: Turn, *, has_chosen: bool = True) -> dict[str, list[str]]:
    """Legal choices alone."""
    seat = SeatView("tester", ShownGame(tools, Look(), ["tester"]))
    bars = seat.see(turn).bars(Thinker(turn), turn.actions if has_chosen else {}) or []
    return {
        title: [f"{label} {share:.0%}{chosen or ''}" for label, share, chosen in choices]
        for title, choices, _ in bars[1:]
    }


def drawn(turn: Turn) -> Animation:
    spaces = tools.obs_space(), tools.action_space()
    return Animation.of([turn], *spaces, look=Look(), title="tools")


def by_title(text: str) -> dict[str, list[str]]:
    found = re.findall(r"(Act\.\w+) (.*?)(?=Act\.|$)", text)
    pattern = rf"([A-Z]+) (\d+%|{NOT_ALLOWED})"
    return {name: [" ".join(each) for each in re.findall(pattern, rest)] for name, rest in found}


@pytest.mark.parametrize("tell", [of_page, of_picture, of_terminal])
def test_shares_of_legal_choices_and_which_are_forbidden(turn: Turn, tell: Any) -> None:  # noqa: ANN401
    told = tell(turn)
    for name, labels in LEGAL.items():
        shares = [f"{share:.0%}" for share in SHARES[name][0] if share]
        expected = {f"{label} {share}" for label, share in zip(labels, shares, strict=True)}
        assert {*told[name]} == {*expected, f"{FORBIDDEN[name]} {NOT_ALLOWED}"}


@pytest.mark.parametrize("has_chosen", [True, False])
def test_the_page_for_playing_has_the_legal_choices_after_those_made(
    turn: Turn, has_chosen: bool
) -> None:
    told = of_play(turn, has_chosen=has_chosen)
    assert told == {"Act.tool": ["AXE 25%", "CUP 75%1"], "Act.way": ["HIT 38%", "DROP 62%1"]}
