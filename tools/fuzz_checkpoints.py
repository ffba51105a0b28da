"""Feeds damaged files to every reader, which may only raise its own error.

    python tools/fuzz_checkpoints.py [seconds]       (60 by default)

Needs atheris, which is in none of our extras (`pip install atheris`). Without it, the script prints
a message and exits with 0; `tests/attack/test_readers.py` mutates the same files without atheris.

Starts from the files of the tests and mutates them, guided by coverage. After a crash, a hang of
10 s, or any other error, it exits with a nonzero status, and atheris writes the input to a file.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[1]
SECONDS = 60
MAX_BYTES = 1 << 16


def reading_in(place: Path) -> Callable[[bytes], None]:
    """Function that reads bytes as a kind of file; the first byte is the kind's number.

    The other bytes are the content of the file.
    """
    readers = list(import_module("tests.helpers.readers").READERS.values())

    def read(data: bytes) -> None:
        reader = readers[data[0] % len(readers)] if data else readers[0]
        with contextlib.suppress(reader.error):
            reader.read(data[1:], place)

    return read


def seeds(folder: Path) -> None:
    """Writes the initial inputs: the files of the tests, and files that once broke a reader."""
    tested = import_module("tests.helpers.readers")
    for number, (name, reader) in enumerate(tested.READERS.items()):
        broken = sorted((tested.CORPUS / "broken" / name).glob("*"))
        contents = [*reader.seeds, *(path.read_bytes() for path in broken)]
        for i, content in enumerate(contents):
            (folder / f"{name}-{i}").write_bytes(bytes([number]) + content)


def main() -> int:
    if find_spec("atheris") is None:
        print("atheris is not installed: nothing fuzzed (pip install atheris)")
        return 0
    seconds = int(sys.argv[1]) if len(sys.argv) > 1 else SECONDS
    atheris = import_module("atheris")
    sys.path.insert(0, str(ROOT))
    with atheris.instrument_imports(include=["entity_env"]):
        import_module("tests.helpers.readers")
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as place:
        seeds(Path(folder))
        options = [f"-max_total_time={seconds}", f"-max_len={MAX_BYTES}", "-timeout=10"]
        atheris.Setup([sys.argv[0], *options, folder], reading_in(Path(place)))
        atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
