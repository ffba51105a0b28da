"""Draws the pictures of the docs from the replays of the tests, after these were verified.

    python tools/pictures.py

Writes docs/pictures/GAME.png, a still, and docs/pictures/snake.gif. A replay that its game no
longer plays the same is refused, so that no picture shows what the games do not do.
"""

import sys
from pathlib import Path

from entity_env.replay import Replay

ROOT = Path(__file__).parents[1]
REPLAYS = ROOT / "tests" / "data" / "replays"
OUT = ROOT / "docs" / "pictures"
MAX_BYTES = 60_000
MOVING = ("snake",)


def draw(path: Path) -> None:
    replay = Replay.load(path)
    found = replay.verify()
    if found is not None:
        sys.exit(f"{path} diverged: {found}: see tools/golden_replays.py")
    animation = replay.animation()
    for kind in ("png", "gif") if path.stem in MOVING else ("png",):
        picture = OUT / f"{path.stem}.{kind}"
        animation.write(picture)
        size = picture.stat().st_size
        sys.stdout.write(f"{picture.relative_to(ROOT)}: {size} bytes\n")
        if size > MAX_BYTES:
            sys.exit(f"{picture} is larger than {MAX_BYTES} bytes: record a shorter episode")


def main() -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    for path in sorted(REPLAYS.glob("*.replay")):
        draw(path)


if __name__ == "__main__":
    main()
