"""Contrast of texts and shapes, also in every look of the package."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given, strategies as st

from entity_env import Game
from entity_env.agents import RandomAgent
from entity_env.authoring.local_run import Turn
from entity_env.cli.load_game import load_game
from entity_env.games import GAMES
from entity_env.views import DECORATION, Look, Scene, find_look
from entity_env.views.animation import Animation
from entity_env.views.look import PALETTE
from entity_env.views.parts.contrast import (
    CELL,
    PAPER,
    contrast_failures,
    contrast_of,
    ink_on,
    outline_of,
)
from entity_env.views.scene import rgba
from tests import ROOT

NUM_TURNS = 25
DRAWN = [name for name in GAMES if name != "pixel"]
"""Games that need no file."""
SPOTTED = "data:image/png;base64,AAAA"


def scene(*, ground: str = PAPER) -> Scene:
    drawn = Scene(4, 4)
    drawn.rect(0, 0, 4, 4, ground)
    return drawn


def failures(drawn: Scene, *, dark: bool = False) -> list[str]:
    return contrast_failures((4, 4), drawn.shapes, dark=dark)


def test_ratios_are_those_of_the_standard() -> None:
    assert contrast_of((0, 0, 0), (255, 255, 255)) == pytest.approx(21)
    assert contrast_of((255, 255, 255), (119, 119, 119)) == pytest.approx(4.48, abs=0.01)


COLORS = st.from_regex(r"#[0-9a-f]{6}( #[0-9a-f]{6})?", fullmatch=True) | st.sampled_from(PALETTE)


@given(COLORS)
def test_ink_and_outlines_can_be_seen(fill: str) -> None:
    for dark in (False, True):
        ink, own = (rgba(color, dark=dark)[:3] for color in (ink_on(fill), fill))
        assert contrast_of(ink, own) >= 4.5
        outline = rgba(outline_of(fill), dark=dark)[:3]
        for ground in (PAPER, CELL):
            behind = rgba(ground, dark=dark)[:3]
            assert max(contrast_of(outline, behind), contrast_of(own, behind)) >= 3.0


@pytest.mark.parametrize(
    "draw",
    [
        lambda s: s.circle(2, 2, 0.4, "#dddddd"),
        lambda s: s.polygon([(1, 1), (2, 1), (2, 2)], "#e69f00"),
        lambda s: s.line([(1, 1), (2, 2)], "#cccccc", width=0.2),
        lambda s: s.rect(1, 1, 0.5, 0.5, stroke="#bbbbbb"),
        lambda s: s.text(2, 2, "pale", "#999999"),
        lambda s: (s.rect(1, 1, 2, 2, "#333333"), s.circle(2, 2, 0.4, "#222222")),
    ],
)
def test_what_is_hard_to_see_is_found(draw: Callable[[Scene], object]) -> None:
    drawn = scene()
    draw(drawn)
    assert len(failures(drawn)) == 1


@pytest.mark.parametrize(
    "draw",
    [
        lambda s: s.circle(2, 2, 0.4, "#222222"),
        lambda s: s.circle(2, 2, 0.4, "#dddddd", stroke="#333333"),
        lambda s: s.text(2, 2, "dark", "#333333"),
        lambda s: (s.rect(1, 1, 2, 2, "#333333"), s.text(2, 2, "pale", "#eeeeee")),
        lambda s: (s.rect(1, 1, 2, 2, "#333333", rotate=45), s.circle(2, 2.6, 0.2, "#eeeeee")),
        lambda s: s.circle(2, 2, 0.4, "#dddddd", of=DECORATION),
        lambda s: s.rect(1, 1, 1, 1, "#e0e0e0"),
        lambda s: s.circle(2, 2, 0.4, "#dddddd00"),
        lambda s: (s.image(1, 1, 2, 2, SPOTTED), s.text(2, 2, "pale", "#eeeeee")),
    ],
)
def test_what_can_be_seen_or_need_not_is_not(draw: Callable[[Scene], object]) -> None:
    drawn = scene()
    draw(drawn)
    assert failures(drawn) == []


def test_pages_differ() -> None:
    drawn = scene()
    drawn.circle(2, 2, 0.4, "#222222")
    assert failures(drawn) == []
    [found] = failures(drawn, dark=True)
    assert found.startswith("circle in #222222: 1.")
    assert found.endswith("to 1 on a dark page")


# ------------------------------------------------------------------ every look


def turns_of(game: Game) -> list[Turn]:
    """The first turns of an episode."""

    class Enough(Exception):
        pass

    turns: list[Turn] = []

    def watch(turn: Turn) -> None:
        turns.append(turn)
        if len(turns) >= NUM_TURNS:
            raise Enough

    agents = [RandomAgent(seed=i) for i in range(game.num_agents)]
    with suppress(Enough):
        game.run(*agents, seed=3, watch=watch)
    return turns


def failures_of(game: Game, look: Look) -> list[str]:
    animation = Animation.of(turns_of(game), game.obs_space(), game.action_space(), look)
    pictures = {len(animation) * i // 3 for i in range(3)} | {len(animation) - 1}
    found: dict[str, None] = {}
    for index in sorted(pictures):
        shapes = [*animation.ground, *animation.shapes_of(index)]
        for dark in (False, True):
            found |= dict.fromkeys(contrast_failures(animation.size, shapes, dark=dark))
    return [*found]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["skirmish", "my_game"])
def test_every_look_of_an_example_can_be_seen(name: str) -> None:
    game = load_game(str(ROOT / f"examples/{name}.py"))
    assert failures_of(game, find_look(game)) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", DRAWN)
def test_every_look_of_a_game_can_be_seen(name: str) -> None:
    assert failures_of(GAMES[name], find_look(GAMES[name])) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", DRAWN)
def test_every_game_can_be_seen_without_its_look(name: str) -> None:
    assert failures_of(GAMES[name], Look()) == []
