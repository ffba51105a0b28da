"""How skirmish is drawn: knights as squares, archers as triangles, and pips for health."""

import math

from entity_env.views import Board, Chosen, Look, Scene, SeenEntity, SeenObservation

# Two colors each: for light and for dark pages.
PAPER, CELL, INK = "#f8f9fa #1a1b1e", "#e9ecef #25262b", "#ffffff #16181a"
SIDES = ("#0072b2 #56b4e9", "#c2410c #ffa94d")  # of agent 0 and agent 1, for every observer
LOST = "#6c757d #868e96"
HEALTH = {"KNIGHT": 6, "ARCHER": 3}
REACH = {"KNIGHT": 1, "ARCHER": 3}
STEPS = {"STAY": (0, 0), "UP": (0, 1), "DOWN": (0, -1), "LEFT": (-1, 0), "RIGHT": (1, 0)}


def ground(scene: Scene) -> None:
    scene.rect(0, 0, scene.width, scene.height, PAPER)
    scene.cells(0, 0, scene.width, scene.height, CELL)


def draw(seen: SeenObservation, scene: Scene) -> None:
    sides = {"Unit": SIDES[seen.agent_id], "Foe": SIDES[1 - seen.agent_id]}
    cells: dict[tuple[float, float], list[SeenEntity]] = {}
    for unit in seen.entities:
        cells.setdefault((unit.features[-3], unit.features[-2]), []).append(unit)
    for (x, y), units in cells.items():  # those in one cell share it
        number = math.ceil(math.sqrt(len(units)))
        above = (number - math.ceil(len(units) / number)) / 2
        for i, unit in enumerate(units):
            row, column = divmod(i, number)
            place = x + (column + 0.5) / number, scene.height - y - 1 + (row + above + 0.5) / number
            draw_unit(scene, *place, 1 / number, unit, sides[unit.type])


def draw_unit(scene: Scene, x: float, y: float, size: float, unit: SeenEntity, color: str) -> None:
    kind, health = str(unit["kind"]), float(unit.features[-1])
    draw_token(scene, x, y - 0.08 * size, size, kind, color, unit)
    left, top, width = x - 0.36 * size, y + 0.35 * size, 0.72 * size / HEALTH[kind]
    for i in range(HEALTH[kind]):
        pip = (left + i * width + 0.01, top, width - 0.02, 0.1 * size)
        if i < health:
            scene.rect(*pip, color)
        else:
            scene.rect(*pip, stroke=LOST, stroke_width=0.02)


def draw_token(
    scene: Scene,
    x: float,
    y: float,
    size: float,
    kind: str,
    color: str,
    of: SeenEntity | None = None,
) -> None:
    half = 0.36 * size
    if kind == "KNIGHT":
        scene.rect(x - half, y - half, 2 * half, 2 * half, color, radius=half / 4, of=of)
    else:
        scene.polygon([(x, y - half), (x + half, y + half), (x - half, y + half)], color, of=of)
    scene.text(x, y + 0.1 * size, kind[0], INK, size=0.4 * size)


def spots(
    seen: SeenObservation, action: str, actor: SeenEntity | None, choice: Chosen
) -> list[SeenEntity | tuple[float, float]]:
    """An arrow along a step, or to a foe in reach after a step; else a ring around the foe."""
    if actor is None:
        return []
    x, y = actor.features[-3:-1]
    if isinstance(choice, str):
        dx, dy = STEPS[choice]
        return [actor, (x + dx, y + dy) if dx or dy else actor]
    if not isinstance(choice, SeenEntity):
        return []
    foe_x, foe_y = choice.features[-3:-1]
    is_near = max(abs(x - foe_x), abs(y - foe_y)) <= REACH[str(actor["kind"])] + 1
    return [actor, choice] if is_near else [choice]


def legend() -> dict[str, Scene]:
    found = {}
    for agent, color in enumerate(SIDES):
        for kind in HEALTH:
            found[f"{kind.lower()}, agent {agent}"] = scene = Scene(1, 1)
            draw_token(scene, 0.5, 0.5, 1, kind, color)
    return found


def describe(entity: SeenEntity) -> str:
    x, y, health = entity.features[-3:]
    return f"{str(entity['kind']).lower()} at {x:g}, {y:g}, health {health:g}"


look = Look(
    board=Board(7, 7),
    draw=draw,
    ground=ground,
    describe=describe,
    legend=legend,
    spots=spots,
    is_open=True,
)
