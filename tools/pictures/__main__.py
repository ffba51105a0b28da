"""Draws all pictures, or those that are named: `python -m tools.pictures [NAME ...]`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tools.golden_replays import ROOT
from tools.pictures import games
from tools.pictures.scenes import SCENES, prepare
from tools.pictures.workshop import Workshop

OUT: Final = ROOT / "docs" / "pictures"
MAX_BYTES: Final = 60_000
MAX_TOTAL_BYTES: Final = 1_000_000
PICTURES: Final = (*games.NAMES, *SCENES)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"any of {', '.join(PICTURES)}")
    names = parser.parse_args().names or PICTURES
    if unknown := {*names} - {*PICTURES}:
        parser.error(f"no such picture: {', '.join(sorted(unknown))}")
    OUT.mkdir(exist_ok=True)
    with TemporaryDirectory() as folder:
        shop = Workshop(Path(folder))
        prepare(shop)
        for name in names:
            is_game = name in games.NAMES
            content = games.draw(name, shop.folder) if is_game else SCENES[name].draw(shop)
            if len(content) > MAX_BYTES:
                sys.exit(f"{name} has {len(content):,} bytes, more than {MAX_BYTES:,}: show less")
            (OUT / name).write_bytes(content)
            sys.stdout.write(f"{name}: {len(content):,} bytes\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
