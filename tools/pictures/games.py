"""Stills and films of the games of the gallery, played by trained agents, or random ones."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Final, NamedTuple

from PIL import Image

from entity_env.views import Animation
from entity_env.views.pictures import Painter, write_film
from tools.docs import gallery
from tools.docs.games import SCORES, replay_seed
from tools.golden_replays import GAMES_BY_NAME, slug


class Film(NamedTuple):
    """The part of an episode that is shown, and its speed.

    Args:
        fps: pictures per second.
        is_start: show the start of a long episode, not the end.
        side: pixels of the longer side.
        most: maximum number of pictures.
    """

    fps: float = 8
    is_start: bool = False
    side: int = 260
    most: int = 100


_FILMS: Final = {
    "cartpole": Film(25, is_start=True),
    "pendulum": Film(20, is_start=True),
    "mountain_car": Film(25),
    "meteors": Film(10, is_start=True, most=50),
    "cherry_pick": Film(2),
    "rock_paper_scissors": Film(1),
    "tic_tac_toe": Film(1),
    "azul": Film(1, side=320, most=14),
    "azul_by_id": Film(1, side=320, most=14),
    "pixel:grid": Film(3),
    "pixel:maze": Film(4),
    "pixel:catch": Film(4),
}
NAMES: Final = {f"{slug(name)}.{kind}": name for name in GAMES_BY_NAME for kind in ("gif", "png")}
"""The game of each picture."""


def draw(picture: str, folder: Path) -> bytes:
    """The content of a picture of `NAMES`."""
    name = NAMES[picture]
    film = _FILMS.get(name, Film())
    scores = json.loads(SCORES.read_text())[name]
    shown = gallery.replay(name, replay_seed(scores)).animation()
    indices = shown.film[: film.most] if film.is_start else shown.film[-film.most :]
    if picture.endswith(".png"):
        return png_of(
            _painter(shown, film, smooth=True).image(shown.shapes_of(indices[len(indices) // 2]))
        )
    path = folder / picture
    write_film(
        path,
        _painter(shown, film, smooth=False),
        lambda i: shown.shapes_of(indices[i]),
        len(indices),
        1 / film.fps,
        shown.end_s,
    )
    return path.read_bytes()


def _painter(shown: Animation, film: Film, *, smooth: bool) -> Painter:
    width, height = (round(film.side * each / max(shown.size)) for each in shown.size)
    return Painter(shown.size, shown.ground, smooth=smooth, pixels=(width, height))


def png_of(image: Image.Image, num_colors: int = 64) -> bytes:
    """An image as a small PNG with a palette."""
    content = io.BytesIO()
    palette = image.convert("RGB").quantize(num_colors, dither=Image.Dither.NONE)
    palette.save(content, "PNG", optimize=True)
    return content.getvalue()
