"""Terminal styles of entities: a color and, where possible, a unique glyph for each type with
coordinates, and for each member of its first Enum field."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Final

from rich.text import Text

from entity_env.core.spaces import GLOBAL_ENTITY, EntityName, ObsSpace
from entity_env.views.describe import describe_number
from entity_env.views.look import GROUND, Look, Style, member_colors
from entity_env.views.scene import one_line
from entity_env.views.seen import SeenEntity, first_enum, member_of

_GLYPHS: Final = "●■◆▲★○□◇△☆"
_HOLLOW_GLYPHS: Final = "○□◇△☆"
_SHAPES: Final = {"square": "■□", "diamond": "◆◇", "triangle": "▲△"}
EMPTY: Final = "·"
_COLORS: Final = (
    "bright_green",
    "bright_red",
    "bright_yellow",
    "bright_blue",
    "bright_magenta",
    "bright_cyan",
)
_HOLLOW: Final = ("hole", "gap", "slot", "spot", "plot")
"""Entity types drawn hollow."""
_LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_SPARE: Final = "0123456789&%$+=~^!?"
"""Signs for types and Enum members when all letters are taken."""
FLAGGED: Final = "*"


@dataclass(frozen=True)
class EntityStyle:
    """Style of one entity type; `x`, `y`, `digit` and `tints` are feature columns."""

    label: str
    glyph: str
    color: str
    x: int | None
    y: int | None
    tints: Sequence[int] = ()
    """Column of a number, or columns of a one-hot group, whose value selects from `colors`."""
    members: Mapping[int, str] = field(default_factory=dict)
    """Letter of each one-hot member by column; replaces the glyph."""
    digit: int | None = None
    """Column of a number that replaces the glyph if it has one digit."""
    colors: Sequence[str] = _COLORS
    """Colors that `tints` selects from."""
    flags: Sequence[int] = ()
    """Columns of features that mark an entity if not 0."""
    names: Sequence[str] = ()

    @property
    def has_place(self) -> bool:
        return self.x is not None and self.y is not None

    def place(self, entity: SeenEntity) -> tuple[float, float]:
        return float(entity.features[self.x or 0]), float(entity.features[self.y or 0])

    def symbol(self, entity: SeenEntity) -> Text:
        """One character in the entity's color, dim if hidden."""
        features = entity.features
        letters = [letter for i, letter in self.members.items() if features[i]]
        if self.digit is not None and features[self.digit] in range(10):
            letters = [describe_number(features[self.digit])]
        color = self.color
        if self.tints and (len(self.tints) == 1 or features[self.tints].any()):
            tint = (
                features[self.tints[0]] if len(self.tints) == 1 else features[self.tints].argmax()
            )
            color = self.colors[round(tint) % len(self.colors) if isfinite(tint) else 0]
        weight = "bold" if entity.is_visible else "dim"
        return Text(letters[0] if letters else self.glyph, style=f"{weight} {color}")

    def is_flagged(self, entity: SeenEntity) -> bool:
        return any(entity.features[column] for column in self.flags)

    def legend(self, count: str) -> Text:
        """Name and count, after the glyph if there are no members; then members with their letters,
        and flags."""
        line = Text.assemble(self.label, (f" {count}", "dim"))
        if not self.members:
            line = Text.assemble((self.glyph, f"bold {self.color}"), " ", line)
        for i, (column, letter) in enumerate(self.members.items()):
            color = self.colors[i % len(self.colors)] if column in self.tints else self.color
            member = one_line(member_of(self.names[column])[1])
            line.append(f"  {letter} ", f"bold {color}").append(member)
        for column in self.flags:
            line.append(f"  {FLAGGED} ", "bold").append(one_line(self.names[column]))
        return line


def entity_styles(
    obs_space: ObsSpace, look: Look | None = None, *, ascii_only: bool = False
) -> dict[EntityName, EntityStyle]:
    """The style of every type, from its look or its feature names.

    Every type with coordinates, and every Enum member with a letter, has its own glyph. Three kinds
    of glyph may repeat: that of ground, those of the look, and "?", when no sign is left. The
    glyphs depend only on the space, the look and `ascii_only`.
    """
    look = look or Look()
    kinds = {name: tuple(entity.features) for name, entity in obs_space.entities.items()}
    if obs_space.global_features:
        kinds = {GLOBAL_ENTITY: tuple(obs_space.global_features), **kinds}
    places: dict[EntityName, tuple[int | None, int | None]] = {
        key: look.coordinates(features) or (None, None) for key, features in kinds.items()
    }
    styles = {key: look.style(key) or Style() for key in kinds}
    glyphs = _Glyphs((style.glyph[:1] for style in styles.values()), ascii_only=ascii_only)
    placed = {key: features for key, features in kinds.items() if places[key][0] is not None}
    own = {key: glyphs.of_type(_label(key, look), styles[key]) for key in placed}
    colors = _default_colors(placed, look)
    found = {}
    for key, features in kinds.items():
        style = styles[key]
        color, palette = colors.get(key, (_COLORS[0], None))
        enum, members = first_enum(features)
        letters = glyphs.letters(members.values()) if key in placed and not style.glyph else []
        tint = "" if style.color.startswith("#") else style.color or "color"
        found[key] = EntityStyle(
            one_line(_label(key, look)),
            own.get(key, "?"),
            style.color.partition(" ")[0] if style.color.startswith("#") else color,
            *places[key],
            _columns(features, tint if palette is None else enum),
            dict(zip(members, letters, strict=False)),
            features.index(style.label) if style.label in features else None,
            palette or _COLORS,
            [features.index(name) for name in look.flags.get(key, ()) if name in features],
            features,
        )
    return found


def _label(key: EntityName, look: Look) -> str:
    return look.global_name if key == GLOBAL_ENTITY else key


def _is_ground(key: EntityName, look: Look) -> bool:
    style = look.style(key)
    return (style is not None and style.shape == "ground") or _label(key, look).lower() in GROUND


def _default_colors(
    placed: Mapping[EntityName, Sequence[str]], look: Look
) -> dict[EntityName, tuple[str, Sequence[str] | None]]:
    """The color of each type and, if its first Enum selects the color, one color per member."""
    tinted = look.tinted(placed)
    own: dict[EntityName, int] = {}
    num_colored = 0
    for key in placed:
        style = look.style(key)
        is_dim = _is_ground(key, look) and not (style and style.color)
        own[key] = -1 if is_dim else num_colored % len(_COLORS)
        num_colored += not _is_ground(key, look)
    plain = {own[key] for key in placed if key not in tinted}
    words = [color.removeprefix("bright_") for color in _COLORS]
    members = member_colors(tinted, plain, words)
    palettes = {key: [_COLORS[i] for i in indices] for key, indices in members.items()}
    return {
        key: ("bright_black" if index < 0 else _COLORS[index], palettes.get(key))
        for key, index in own.items()
    }


def _columns(features: Sequence[str], name: str) -> list[int]:
    if name in features:
        return [features.index(name)]
    return [i for i, each in enumerate(features) if name and member_of(each)[0] == name]


class _Glyphs:
    """Assigns glyphs, unique as `entity_styles` says; `taken` has the glyphs of the look."""

    def __init__(self, taken: Iterable[str], *, ascii_only: bool) -> None:
        self._taken = {EMPTY, ".", *taken}
        self._ascii_only = ascii_only
        self._letters: dict[str, str] = {}

    def of_type(self, name: str, style: Style) -> str:
        """A glyph for a type with coordinates.

        The glyph of its style, if ASCII allows it; else "·" (in ASCII ".") for ground; else a free
        shape (not in ASCII); else a free letter, preferably of its name, or sign.
        """
        if style.glyph and (style.glyph[0].isascii() or not self._ascii_only):
            return style.glyph[0]
        if style.shape == "ground" or name.lower() in GROUND:
            return "." if self._ascii_only else EMPTY
        shapes = _HOLLOW_GLYPHS if name.lower() in _HOLLOW else ""
        shapes += _SHAPES.get(style.shape, "") + _GLYPHS
        return self._first([*("" if self._ascii_only else shapes), *_signs_for(name)])

    def letters(self, names: Iterable[str]) -> list[str]:
        """A sign for each name: its first letter that is still free, else any free letter or sign.

        If another type has a member of the same name, the second one gets that letter in lowercase,
        if it is free, like the pieces of White and Black in chess diagrams.
        """
        chosen = {}
        for name in names:
            before = self._letters.get(name, "").lower()
            chosen[name] = self._first([*before, *_signs_for(name)])
        for name, letter in chosen.items():
            self._letters.setdefault(name, letter)
        return list(chosen.values())

    def _first(self, wanted: Iterable[str]) -> str:
        glyph = next((char for char in wanted if char not in self._taken), "?")
        self._taken.add(glyph)
        return glyph


def _signs_for(name: str) -> list[str]:
    own = [char for char in name.upper() if char.isalnum() and char.isascii()]
    return [*own, *_LETTERS, *map(str.lower, own), *_LETTERS.lower(), *_SPARE]
