"""Drawing of `tic_tac_toe`: agent 0 is X and agent 1 is O, whichever of them observes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from entity_env.games.tic_tac_toe import LINES, Square
from entity_env.views import Chosen, Look, Scene, SeenEntity, SeenObservation

if TYPE_CHECKING:
    from rich.text import Text

_PAPER, _GRID, _INK = "#ffffff #202124", "#868e96 #868e96", "#212529 #f1f3f5"
_CLEAR: Final = "#ffffff00"
_COLORS: Final = ("#0072b2 #56b4e9", "#c2410c #ffa94d")
_MARKS: Final = ("X", "O")
_STYLES: Final = ("bold bright_blue", "bold bright_red")
_LEFT, _TOP, _SIDE = 0.55, 0.15, 3.7
"""Corner of the squares, and size of the whole, including coordinates."""


def owners_of(seen: SeenObservation) -> Mapping[Square, tuple[int, SeenEntity]]:
    """Agent and entity on each taken square."""
    return {
        _square(entity): (agent, entity)
        for name, agent in (("Mine", seen.agent_id), ("Theirs", 1 - seen.agent_id))
        for entity in seen[name]
    }


def winning_line(seen: SeenObservation) -> tuple[Square, ...]:
    """The first row, column or diagonal that belongs to one agent, or ()."""
    owners = {square: agent for square, (agent, _) in owners_of(seen).items()}
    for line in LINES:
        if len({owners.get(square) for square in line}) == 1 and line[0] in owners:
            return line
    return ()


def _square(entity: SeenEntity) -> Square:
    x, y = entity.features[:2]
    return Square((int(x), int(y)))


def _words(entity: SeenEntity) -> str:
    name = _square(entity).name
    return f"{name}, free" if entity.type == "Empty" else f"{name}, {entity.type.lower()}"


# ------------------------------------------------------------------ picture


def _place(square: Square) -> tuple[float, float]:
    x, y = square.value
    return _LEFT + x + 0.5, _TOP + 2.5 - y


def _ground(scene: Scene) -> None:
    scene.rect(0, 0, scene.width, scene.height, _PAPER)
    for i in range(3):
        scene.text(_LEFT + i + 0.5, _SIDE - 0.25, "ABC"[i], _INK, size=0.32)
        scene.text(_LEFT / 2, _TOP + 2.5 - i, i + 1, _INK, size=0.32)
    for i in (1, 2):
        scene.line([(_LEFT + i, _TOP), (_LEFT + i, _TOP + 3)], _GRID, width=0.04)
        scene.line([(_LEFT, _TOP + i), (_LEFT + 3, _TOP + i)], _GRID, width=0.04)


def _draw(seen: SeenObservation, scene: Scene) -> None:
    for entity in seen.entities:  # invisible: for the pointer, and for marks of moves
        x, y = _place(_square(entity))
        scene.rect(x - 0.42, y - 0.42, 0.84, 0.84, _CLEAR, radius=0.08, of=entity)
    for square, (agent, entity) in owners_of(seen).items():
        _draw_mark(scene, agent, *_place(square), entity)
    if line := winning_line(seen):
        (x1, y1), (x2, y2) = _place(line[0]), _place(line[2])
        dx, dy = (x2 - x1) * 0.18, (y2 - y1) * 0.18
        scene.line([(x1 - dx, y1 - dy), (x2 + dx, y2 + dy)], _INK, width=0.08)


def _draw_mark(scene: Scene, agent: int, x: float, y: float, of: SeenEntity | None = None) -> None:
    r, color = 0.3, _COLORS[agent]
    if agent == 0:
        scene.line([(x - r, y - r), (x + r, y + r)], color, width=0.13, of=of)
        scene.line([(x - r, y + r), (x + r, y - r)], color, width=0.13, of=of)
    else:
        scene.circle(x, y, r, stroke=color, stroke_width=0.13, of=of)


# ------------------------------------------------------------------ text


def _draw_text(seen: SeenObservation, width: int) -> Text | None:
    from rich.text import Text  # late: a page has no rich

    if not seen.entities:
        return None
    owners, line = owners_of(seen), winning_line(seen)
    text = Text(no_wrap=True)
    for y in (2, 1, 0):
        text.append(f"{y + 1} ", "dim")
        for x in range(3):
            square = Square((x, y))
            agent = owners[square][0] if square in owners else None
            style = "dim" if agent is None else _STYLES[agent]
            text.append(" ")
            text.append(
                "." if agent is None else _MARKS[agent],
                f"{style} reverse" if square in line else style,
            )
        text.append("\n")
    text.append("   A B C\n", "dim")
    names = seen.agent_names or ("agent 0", "agent 1")
    for mark, style, name in zip(_MARKS, _STYLES, names, strict=False):
        text.append(f"\n{mark} ", style).append(name)
    return text


def _legend() -> dict[str, Scene]:
    found = {}
    for agent, mark in enumerate(_MARKS):
        found[f"{mark}, agent {agent}"] = scene = Scene(1, 1)
        _draw_mark(scene, agent, 0.5, 0.5)
    return found


def _spots(
    seen: SeenObservation, action: str, actor: SeenEntity | None, choice: Chosen
) -> list[tuple[float, float]]:
    return [_place(Square[str(choice)])]


look = Look(
    size=(_SIDE, _SIDE),
    draw=_draw,
    ground=_ground,
    draw_text=_draw_text,
    describe=_words,
    spots=_spots,
    legend=_legend,
    is_open=True,
)
