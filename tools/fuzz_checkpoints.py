"""Feeds damaged checkpoints to whatever reads them, and asks for nothing but `CheckpointError`.

    python tools/fuzz_checkpoints.py [seconds]       (60 by default)

Needs atheris, which is in none of our extras (`pip install atheris`); without it the script says so
and ends well. Begins with the checkpoints of the tests, and mutates them guided by coverage. A
crash, a hang of 10 s, or another error than ours ends it with a status that is not 0, and atheris
writes the input that did it.
"""

from __future__ import annotations

import sys
import tempfile
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

DATA = Path(__file__).parents[1] / "tests" / "data" / "roguenet"
SECONDS = 60
MAX_BYTES = 1 << 16


def read(data: bytes) -> None:
    """Reads the bytes behind the first as the kind of file that the first byte names."""
    from entity_env.agents.rogue_net.enn_checkpoint import parse_enn_checkpoint
    from entity_env.agents.rogue_net.enn_files import FILES
    from entity_env.agents.rogue_net.ron import parse_ron
    from entity_env.agents.rogue_net.safetensors_file import read_safetensors
    from entity_env.agents.rogue_net.tar_archive import read_tar
    from entity_env.agents.rogue_net.tensor_blob import read_blob
    from entity_env.errors import CheckpointError

    kind, content = data[:1], data[1:]
    readers = {b"r": parse_ron, b"b": read_blob, b"s": read_safetensors, b"t": read_tar}
    try:
        if kind in readers:
            readers[kind](content, "input")
        else:  # the three files of a checkpoint, one behind the other
            parts = content.split(b"\0\0SPLIT\0\0", 2) + [b""] * 3
            parse_enn_checkpoint(dict(zip(FILES, parts, strict=False)), "input")
    except CheckpointError:
        pass


def seeds(folder: Path) -> None:
    """Writes the checkpoints of the tests as inputs to begin with."""
    for checkpoint in sorted(DATA.glob("*/")):
        files = [checkpoint / name for name in ("config.ron", "state.ron", "state.agent.msgpack")]
        contents = [file.read_bytes() for file in files]
        for kind, content in zip(b"rrb", contents, strict=True):
            (folder / f"{checkpoint.name}-{len(content)}").write_bytes(bytes([kind]) + content)
        joined = b"\0\0SPLIT\0\0".join(contents)
        (folder / checkpoint.name).write_bytes(b"c" + joined)
    for archive in DATA.glob("*.roguenet"):
        (folder / archive.name).write_bytes(b"t" + archive.read_bytes())


def main() -> int:
    if find_spec("atheris") is None:
        print("atheris is not installed: nothing fuzzed (pip install atheris)")
        return 0
    seconds = int(sys.argv[1]) if len(sys.argv) > 1 else SECONDS
    atheris = import_module("atheris")
    with atheris.instrument_imports(include=["entity_env.agents.rogue_net"]):
        import_module("entity_env.agents.rogue_net.enn_checkpoint")
        import_module("entity_env.agents.rogue_net.safetensors_file")
    with tempfile.TemporaryDirectory() as folder:
        seeds(Path(folder))
        options = [f"-max_total_time={seconds}", f"-max_len={MAX_BYTES}", "-timeout=10"]
        atheris.Setup([sys.argv[0], *options, folder], read)
        atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
