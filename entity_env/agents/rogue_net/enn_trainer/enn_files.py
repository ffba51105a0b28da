"""What the files of an enn-trainer checkpoint are called; `enn_checkpoint` says what they hold."""

from __future__ import annotations

from pathlib import Path
from typing import Final

CONFIG: Final = "config.ron"
STATE: Final = "state.ron"
AGENT: Final = "state.agent.msgpack"
FILES: Final = (CONFIG, STATE, AGENT)
SUFFIX: Final = ".roguenet"
"""Of an archive of these files."""
LATEST: Final = "latest-step*"
"""The checkpoint in the folder of a training run; there is only ever one."""


def is_enn_checkpoint(path: Path) -> bool:
    """Whether `path` is a folder with such a checkpoint, or looks like an archive of one."""
    return (path / CONFIG).is_file() or (path.suffix == SUFFIX and path.is_file())


def find_enn_checkpoint(path: Path) -> Path | None:
    """`path` itself, or the newest checkpoint of the training run in it; None if there is none."""
    newest_first = sorted(path.glob(LATEST), reverse=True)
    return next((place for place in (path, *newest_first) if is_enn_checkpoint(place)), None)
