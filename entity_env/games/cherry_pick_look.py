"""Drawing of `cherry_pick`: a tray of cherries, with stems and leaves if they are good."""

from __future__ import annotations

from typing import Final

from entity_env.views import Look, Scene, SeenEntity, SeenObservation

_TRAY, _EDGE, _INK = "#fbf5ea #2a2622", "#8a6d45 #b39468", "#212529 #f1f3f5"
_GOOD, _BAD = "#c2255c #f783ac", "#5f5a4a #a8a18c"
_STEM, _LEAF = "#5c7f2a #94c158", "#2b7a3d #69c97e"
_COLUMNS: Final = 4
_CELL: Final = (2.1, 2.5)


def _size(seen: SeenObservation) -> tuple[float, float]:
    rows = -(-max(len(seen["Cherry"]), 1) // _COLUMNS)
    return _COLUMNS * _CELL[0] + 0.4, rows * _CELL[1] + 0.4


def _ground(scene: Scene) -> None:
    size = (scene.width - 0.1, scene.height - 0.1)
    scene.rect(0.05, 0.05, *size, _TRAY, stroke=_EDGE, stroke_width=0.1, radius=0.3)


def _draw(seen: SeenObservation, scene: Scene) -> None:
    for i, cherry in enumerate(seen["Cherry"]):
        row, column = divmod(i, _COLUMNS)
        x, y = 0.2 + (column + 0.5) * _CELL[0], 0.2 + (row + 0.54) * _CELL[1]
        quality = _quality(cherry)
        _draw_cherry(scene, x, y, min(0.28 + 1.6 * abs(quality), 0.7), quality > 0, cherry)
        scene.text(x, y + 0.95, f"{quality:+.2f}", _INK, size=0.38, of=cherry)


def _draw_cherry(
    scene: Scene, x: float, y: float, r: float, is_good: bool, of: SeenEntity | None = None
) -> None:
    """Good cherries have a stem and a leaf, bad ones a cross; a larger one counts more."""
    scene.circle(x, y, r, _GOOD if is_good else _BAD, of=of)
    if is_good:
        top = (x + 0.3, y - r - 0.45)
        scene.line([(x, y - r), (x + 0.08, y - r - 0.25), top], _STEM, width=0.09, of=of)
        leaf = [top, (x + 0.05, y - r - 0.62), (x - 0.3, y - r - 0.42), (x, y - r - 0.3)]
        scene.polygon(leaf, _LEAF, of=of)
    else:
        d = 0.4 * r
        for side in (-1, 1):
            ends = [(x - d, y - side * d), (x + d, y + side * d)]
            scene.line(ends, _TRAY, width=0.12, of=of)


def _quality(cherry: SeenEntity) -> float:
    return float(cherry.features[0])


def _words(entity: SeenEntity) -> str:
    return f"{_quality(entity):+.3f}" if entity.type == "Cherry" else "Picker"


def _legend() -> dict[str, Scene]:
    found = {"good": Scene(1, 1), "bad": Scene(1, 1)}
    _draw_cherry(found["good"], 0.5, 0.72, 0.26, True)
    _draw_cherry(found["bad"], 0.5, 0.6, 0.32, False)
    return found


look = Look(size=_size, draw=_draw, ground=_ground, describe=_words, legend=_legend)
