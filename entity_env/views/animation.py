"""`Animation`: one episode as pictures, one per turn, with the choices of the agents."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, Final

from entity_env.authoring.local_run import PastStep, Turn
from entity_env.core.spaces import ActionName, ActionSpace, ObsSpace
from entity_env.errors import UsageError
from entity_env.views.describe import describe_number, shown_names, words_of
from entity_env.views.drawing import Drawing
from entity_env.views.look import PALETTE, Look
from entity_env.views.page import as_iframe, page, shape_fields
from entity_env.views.parts.bars import (
    ActorBars,
    Bar,
    actors_of,
    past_fields,
    past_that_matters,
)
from entity_env.views.parts.contrast import CELL
from entity_env.views.parts.spots import Pointer, draw_mark
from entity_env.views.parts.styled import DIM
from entity_env.views.pictures import Painter, write_film
from entity_env.views.scene import DECORATION, INK, Point, Scene, Shape, clipped, faded, one_line
from entity_env.views.seen import SeenObservation
from entity_env.views.svg import animated_svg, still_svg

_FORMATS: Final = (".html", ".svg", ".png", ".gif", ".webp", ".mp4")
_MAX_NAMES: Final = 8
"""Maximum agents in a headline."""
_MAX_PANEL_ACTORS: Final = 2
_MAX_PANEL_BARS: Final = 5
_PANEL_LINE: Final = 0.045
"""Height of a panel line, in units of a picture's longer side."""
_PANEL_BAR: Final = 3.5
_PANEL_CHAR: Final = 0.38
"""Length of a bar of probability 1 (`_PANEL_BAR`), and approximate width of a character, in units
of the height of a line."""
_MAX_PANEL_CHARS: Final = 36
_PANEL_WORDS: Final = 12
"""How many more characters fit into a line without a bar."""
_PAGE: Final = "#ffffff #1a1b1e"
_ATTENTION: Final = "#cc0066 #ff66a3"
_MAX_ENTITIES: Final = 200
"""Maximum entities described in words."""
_NUMBER: Final = 2
"""In a page, 0 or 1 for a choice that is not chosen or chosen, 2 for a number."""


@dataclass(frozen=True)
class Still:
    """The picture and data of one turn.

    Args:
        agent_id, step, score: as in the turn.
        shapes: indices into `Animation.shapes`, in drawing order.
        words: text for each of the first 200 entities, in the order of the space.
        global_words: text for the global features, unless they are in the picture.
        actors: choices of the first 8 actors of each action.
        value: value predicted by a network.
        attention: `(num_entities,)` mean attention of the actors to each entity; empty = unknown.
        end: how the episode ended, or "".
        past: earlier steps that a network remembers.
    """

    agent_id: int
    step: int
    score: float
    shapes: Sequence[int]
    words: Sequence[str]
    global_words: str = ""
    actors: Sequence[ActorBars] = ()
    value: float | None = None
    attention: Sequence[float] = ()
    end: str = ""
    past: Sequence[PastStep] = ()


@dataclass(frozen=True)
class Animation:
    """One episode as pictures: a page, a video, or a still.

    Args:
        about: names and values of facts, such as the seed.
        size: width and height of the pictures, in units of the game.
        ground: shapes shared by all pictures.
        shapes: all other shapes, each once.
        is_open: as `Look.is_open`: if False, films show the observations of one agent.
        names: names of the agents.
        legend: what the boards show, with the shapes of a sample in a unit square.
        headline: game, agents and result; "" = the title.
    """

    title: str
    about: Sequence[tuple[str, str]]
    size: Point
    num_agents: int
    ground: Sequence[Shape]
    shapes: Sequence[Shape]
    stills: Sequence[Still]
    is_open: bool = False
    names: Sequence[str] = ()
    legend: Sequence[tuple[str, Sequence[Shape]]] = ()
    headline: str = ""

    @classmethod
    def of(
        cls,
        turns: Sequence[Turn],
        obs_space: ObsSpace,
        action_space: Mapping[ActionName, ActionSpace],
        look: Look | None = None,
        *,
        num_agents: int = 1,
        title: str = "",
        names: Sequence[str] = (),
        about: Iterable[tuple[str, object]] = (),
    ) -> Animation:
        """The animation of the turns of one episode, in order.

        Args:
            turns: turns of all agents; a blank observation, as at the end of some episodes, repeats
                the agent's previous picture.
            look: how they are drawn; None = the default.
            num_agents, about: as for `Animation`.
            title: name of the game.
            names: names of the agents; those without a name are numbered.

        Raises:
            SchemaError: the look does not match the space.
            UsageError: no turns, or a function of the look raises, as for an invalid shape, hangs,
                or returns something else.
        """
        if not turns:
            raise UsageError("an animation needs one turn or more, got none")
        look = look or Look()
        given = [*names, *[""] * num_agents][:num_agents]
        shown = shown_names([name or f"agent {i}" for i, name in enumerate(given)])
        drawing = Drawing(look, obs_space, shown)
        for turn in turns:
            drawing.include(SeenObservation(turn.observation, obs_space, turn.agent_id))
        pool: dict[Shape, int] = {}
        last: dict[int, Still] = {}
        stills = []
        for turn in turns:
            still = _still_of(turn, drawing, pool, action_space, shown if names else ())
            if turn.observation.is_blank and turn.agent_id in last:
                before = last[turn.agent_id]
                kept = {name: getattr(before, name) for name in ("shapes", "words", "global_words")}
                still = replace(still, **kept)
            last[turn.agent_id] = still
            stills.append(still)
        title = one_line(title) or "game"
        return cls(
            title,
            [(one_line(name), one_line(value)) for name, value in about],
            drawing.size,
            num_agents,
            drawing.ground().shapes,
            list(pool),
            stills,
            look.is_open,
            shown,
            drawing.legend(),
            _headline(title, shown, turns),
        )

    def __len__(self) -> int:
        return len(self.stills)

    @property
    def fps(self) -> float:
        """Pictures per second, 2 to 30, suited to the episode's length."""
        return min(max(math.sqrt(len(self.film) / 3), 2.0), 30.0)

    @property
    def viewer(self) -> int | None:
        """Id of the agent whose observations a film shows: the first with the most observations.

        None = all are shown: there is one agent, or observations are open to all.
        """
        ids = [still.agent_id for still in self.stills]
        return None if self.is_open or len({*ids}) < 2 else max(sorted({*ids}), key=ids.count)

    @property
    def film(self) -> list[int]:
        """Indices of a film's pictures: those of the `viewer`, or all if it is None."""
        viewer = self.viewer
        return [i for i, s in enumerate(self.stills) if viewer is None or s.agent_id == viewer]

    @property
    def end_s(self) -> float:
        """Additional seconds for the last picture."""
        return 1.5

    def shapes_of(self, index: int) -> list[Shape]:
        """The shapes of one picture, without the ground; negative indices count from the end.

        Raises:
            UsageError: there is no such picture.
        """
        if not -len(self) <= index < len(self):
            raise UsageError(f"{self.title} has {len(self)} pictures: there is no picture {index}")
        return [self.shapes[i] for i in self.stills[index].shapes]

    def with_thoughts(self) -> Animation:
        """The pictures with the chosen moves, attention, and a panel of the agents' thoughts.

        The panel has the value, and bars for the chosen and the most probable choices of at most
        two actors, of different actions if possible. Without known probabilities, the animation is
        returned unchanged. The page of `html` needs no panel: it always shows all of this.
        """
        panels = [list(_panel_lines(still)) for still in self.stills]
        if not any(bar.share is not None for lines in panels for bar in lines):
            return self
        width, height = self.size
        unit = _PANEL_LINE * max(self.size)
        long = unit * (max(map(len, panels)) + 0.5)
        chars = max(
            len(bar.label) - (_PANEL_WORDS if bar.share is None else 0)
            for lines in panels
            for bar in lines
        )
        num_chars = min(chars, _MAX_PANEL_CHARS)
        wide = unit * (num_chars * _PANEL_CHAR + _PANEL_BAR + 3.5)
        beside, below = (width + wide, max(height, long)), (max(width, wide), height + long)
        is_beside = max(beside) <= max(below)
        panel = Scene(*(beside if is_beside else below))
        corner = (width, 0.0) if is_beside else (0.0, height)
        panel.rect(0, 0, panel.width, panel.height, _PAGE)
        pool = {shape: i for i, shape in enumerate(self.shapes)}
        stills = []
        for index, (still, lines) in enumerate(zip(self.stills, panels, strict=True)):
            scene = Scene(panel.width, panel.height)
            _draw_attention(scene, self.shapes_of(index), still.attention)
            for bar in (bar for actor in still.actors for bar in actor.bars if bar.is_chosen):
                draw_mark(scene, bar.path, self.shapes_of(index))
            _draw_panel(scene, lines, corner, unit, num_chars)
            added = [pool.setdefault(shape, len(pool)) for shape in scene.shapes]
            stills.append(replace(still, shapes=[*still.shapes, *added]))
        return replace(
            self,
            size=(panel.width, panel.height),
            ground=[*panel.shapes, *self.ground],
            shapes=list(pool),
            stills=stills,
        )

    def svg(self, index: int | None = None) -> str:
        """One picture as SVG; without `index`, the `film`, which CSS animates, even in a README."""
        if index is not None:
            shapes = [*self.ground, *self.shapes_of(index)]
            return still_svg(self.size, shapes, self.headline or self.title)
        stills = [self.stills[i].shapes for i in self.film]
        return animated_svg(
            self.size,
            self.ground,
            self.shapes,
            stills,
            self.headline or self.title,
            fps=self.fps,
            end_s=self.end_s,
        )

    def html(self) -> str:
        """A self-contained page to play and step through; it loads nothing from other hosts."""
        return page(self.headline or self.title, self.svg(0), self._page_data())

    def _page_data(self) -> dict[str, Any]:
        words: dict[str, int] = {}
        marks: dict[tuple[Point, ...], int] = {}
        return {
            "frames": [_frame(still, words, marks) for still in self.stills],
            "title": self.headline or self.title,
            "about": self.about,
            "size": self.size,
            "fps": self.fps,
            "agents": self.num_agents,
            "names": self.names,
            "sides": [PALETTE[i % len(PALETTE)] for i in range(self.num_agents)],
            "viewer": self.viewer,
            "ground": list(map(shape_fields, self.ground)),
            "shapes": list(map(shape_fields, self.shapes)),
            "legend": [(name, list(map(shape_fields, shapes))) for name, shapes in self.legend],
            "words": list(words),
            "marks": list(marks),
        }

    def write(self, path: str | PathLike[str], index: int | None = None) -> None:
        """Writes a file in the format of its extension; replaces an existing file.

        Args:
            path: `.html`, `.svg`, `.png`, `.gif`, `.webp` or `.mp4`.
            index: the picture for a `.png` or a still `.svg`; None = the middle one for a `.png`,
                the `film` for an `.svg`.

        Raises:
            UsageError: another extension, no such picture, an `index` for a film, a file that
                cannot be written, or `.mp4` without ffmpeg.
            MissingExtraError: Pillow is not installed, which all but `.html` and `.svg` need.
        """
        file = Path(path)
        kind = file.suffix.lower()
        if kind not in _FORMATS:
            raise UsageError(f"{file}: expected a file with the ending {', '.join(_FORMATS)}")
        if index is not None and kind not in (".svg", ".png"):
            raise UsageError(f"{file}: one picture is a .png or an .svg; {kind} has all of them")
        part = file.with_name(f".{file.stem}.{os.getpid()}{kind}")
        try:
            if kind in (".html", ".svg"):
                text = self.html() if kind == ".html" else self.svg(index)
                part.write_text(text, encoding="utf-8")
            else:
                self._write_picture(part, kind, index)
            part.replace(file)
        except OSError as error:
            raise UsageError(f"{file}: cannot be written: {error.strerror or error}") from error
        finally:
            part.unlink(missing_ok=True)

    def _write_picture(self, file: Path, kind: str, index: int | None) -> None:
        painter = Painter(self.size, self.ground, smooth=kind != ".gif")
        if kind == ".png":
            shapes = self.shapes_of(len(self) // 2 if index is None else index)
            painter.image(shapes).save(file)
            return
        film = self.film
        write_film(
            file, painter, lambda i: self.shapes_of(film[i]), len(film), 1 / self.fps, self.end_s
        )

    def __repr__(self) -> str:  # a notebook stores it next to the page
        return f"Animation({self.title}, {len(self)} picture{'s' * (len(self) != 1)})"

    def _repr_html_(self) -> str:
        return as_iframe(self.html())


def _frame(
    still: Still, words: dict[str, int], marks: dict[tuple[Point, ...], int]
) -> dict[str, Any]:
    """A still for `player.html`; texts and paths are indices, empty fields are omitted."""

    def index(text: str) -> int:
        return words.setdefault(text, len(words))

    def bar_fields(bar: Bar) -> list[Any]:
        mark = marks.setdefault(tuple(bar.path), len(marks)) if bar.path else -1
        share = bar.share if bar.is_allowed else -1
        kind = _NUMBER if bar.is_number else int(bar.is_chosen)
        return [index(bar.label), share, kind, mark]

    bars = [
        [index(actor.title), [bar_fields(bar) for bar in actor.bars]]
        + ([actor.num_more] if actor.num_more else [])
        for actor in still.actors
    ]
    frame = {
        "g": still.agent_id,
        "t": still.step,
        "s": still.score,
        "d": still.shapes,
        "n": [index(text) for text in still.words],
        "u": still.global_words,
        "b": bars,
        "v": still.value,
        "w": still.attention,
        "e": still.end,
        "p": past_fields(still.past) if still.past else None,
    }
    return {key: value for key, value in frame.items() if value not in ("", None) and value != []}


def _panel_lines(still: Still) -> Iterator[Bar]:
    """Panel lines; plain text is a bar without a share."""
    actors = [each for each in still.actors if any(bar.share is not None for bar in each.bars)]
    if still.value is not None:
        yield Bar(f"value {describe_number(still.value)}", None, is_chosen=False)
    for actor in _first_of_each_action(actors, _MAX_PANEL_ACTORS):
        yield Bar(actor.title, None, is_chosen=False)
        # The chosen and the most probable, in space order.
        ranked = sorted(actor.bars, key=lambda bar: (not bar.is_chosen, -(bar.share or 0.0)))
        shown = [bar for bar in actor.bars if bar in ranked[:_MAX_PANEL_BARS]]
        yield from shown
        if left := len(actor.bars) - len(shown) + actor.num_more:
            yield Bar(f"and {left} more", None, is_chosen=False)
    for step in past_that_matters(still.past)[:1]:
        yield Bar("what would move", None, is_chosen=False)
        yield Bar(f"without {step.words}", step.change, is_chosen=False)
    if (left := len(actors) - _MAX_PANEL_ACTORS) > 0:
        yield Bar(f"and {left} more, all in a .html", None, is_chosen=False)


def _first_of_each_action(actors: Sequence[ActorBars], most: int) -> list[ActorBars]:
    """At most `most` actors in order, preferring the first of each action."""
    names = [actor.title.partition(":")[0] for actor in actors]
    ranked = sorted(range(len(actors)), key=lambda i: names[:i].count(names[i]))
    return [actors[i] for i in sorted(ranked[:most])]


def _draw_panel(
    scene: Scene, lines: Sequence[Bar], corner: Point, unit: float, num_chars: int
) -> None:
    left, size = corner[0] + unit / 2, 0.7 * unit
    bar_left, bar_width = left + (num_chars * _PANEL_CHAR + 0.5) * unit, _PANEL_BAR * unit
    for i, line in enumerate(lines):
        y = corner[1] + (i + 0.75) * unit
        if line.share is None:
            words = clipped(line.label, num_chars + _PANEL_WORDS)
            scene.text(left, y, words, DIM, size=size, anchor="start")
            continue
        color = PALETTE[1] if line.is_chosen else PALETTE[0]
        words, right = clipped(line.label, num_chars), bar_left + bar_width + 1.9 * unit
        if not line.is_allowed:
            scene.text(left, y, words, DIM, size=size, anchor="start")
            scene.text(right, y, line.share_text, DIM, size=size, anchor="end")
            continue
        scene.text(left, y, words, INK, size=size, anchor="start")
        scene.rect(bar_left, y - 0.35 * unit, bar_width, 0.7 * unit, CELL, of=DECORATION)
        share = min(max(line.share, 0.0), 1.0)
        scene.rect(bar_left, y - 0.35 * unit, share * bar_width, 0.7 * unit, color)
        scene.text(right, y, line.share_text, INK, size=size, anchor="end")


def _draw_attention(scene: Scene, shapes: Sequence[Shape], attention: Sequence[float]) -> None:
    most = max(attention, default=0.0)
    if most <= 0:
        return
    first = {shape.of: shape for shape in reversed(shapes)}
    for index, weight in enumerate(attention):
        shape = first.get(index)
        if shape is None or weight <= 0:
            continue
        (x, y), ring = shape.center, faded(_ATTENTION, weight / most)
        if shape.kind == "rect" and not shape.rotate:
            width, height = shape.size
            corner = (x - width / 2, y - height / 2)
            scene.rect(*corner, width, height, stroke=ring, stroke_width=0.1)
        else:
            radius = shape.size[0] if shape.kind == "circle" else 0.4
            scene.circle(x, y, radius + 0.1, stroke=ring, stroke_width=0.1)


def _headline(title: str, names: Sequence[str], turns: Sequence[Turn]) -> str:
    """`snake: ann, reward 3`, or `chess: ann 1, bob -1`; rewards of finished episodes."""
    rewards = {
        turn.agent_id: describe_number(turn.episode.reward)
        for turn in turns
        if turn.episode is not None
    }
    if len(names) == 1:
        parts = [*names, *(f"reward {reward}" for reward in rewards.values())]
    else:
        parts = [f"{name} {rewards.get(i, '')}".strip() for i, name in enumerate(names)]
    more = [f"and {len(parts) - _MAX_NAMES} more"] if len(parts) > _MAX_NAMES else []
    return f"{title}: {', '.join([*parts[:_MAX_NAMES], *more])}"


def _still_of(
    turn: Turn,
    drawing: Drawing,
    pool: dict[Shape, int],
    action_space: Mapping[ActionName, ActionSpace],
    names: Sequence[str],
) -> Still:
    seen = SeenObservation(turn.observation, drawing.obs_space, turn.agent_id, agent_names=names)
    shapes = drawing.draw(seen).shapes
    pointer = Pointer(drawing, seen, shapes)
    words = {entity.index: words_of(entity, drawing.look) for entity in seen.entities}
    return Still(
        turn.agent_id,
        turn.step,
        float(turn.score),
        [pool.setdefault(shape, len(pool)) for shape in shapes],
        [words.get(i, "") for i in range(min(max(words, default=-1) + 1, _MAX_ENTITIES))],
        words_of(seen.globals, drawing.look) if drawing.leaves_globals_out(seen) else "",
        list(actors_of(turn, action_space, pointer)),
        None if turn.thoughts is None else turn.thoughts.value,
        _attention_of(turn, seen),
        _end_of(turn),
        () if turn.thoughts is None else turn.thoughts.past,
    )


def _end_of(turn: Turn) -> str:
    episode = turn.episode
    if episode is None:
        return ""
    metrics = [f"{name} {describe_number(value)}" for name, value in episode.metrics.items()]
    ending = "truncated" if episode.truncated else "over"
    return one_line(", ".join([f"{ending}: reward {describe_number(episode.reward)}", *metrics]))


def _attention_of(turn: Turn, seen: SeenObservation) -> list[float]:
    """Attention of the acting entities in the last layer, averaged over heads and actors."""
    if turn.thoughts is None or turn.thoughts.attention is None:
        return []
    rows = turn.thoughts.attention[-1].mean(axis=0)
    names = [*turn.actions]
    actors = {
        int(i) for each in names for i in turn.observation.actor_indices(each, seen.obs_space)
    }
    acting = [i for i in sorted(actors) if i < len(rows)] or list(range(len(rows)))
    relations = seen.obs_space.relations  # a network does not attend to them
    shown = {entity.index for entity in seen.entities if entity.type not in relations}
    means = rows[acting].mean(axis=0)[: max(shown, default=-1) + 1]
    return [round(float(each), 3) if i in shown else 0.0 for i, each in enumerate(means)]
