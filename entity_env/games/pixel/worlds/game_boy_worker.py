"""Worker process of several Game Boys: handles requests from stdin until it closes.

It runs as a file and imports PyBoy but nothing else from this package. A request is a letter, the
payload length in four bytes, and the payload. A reply has the same form, with "!" and a traceback
if the request failed.

    I  JSON line, ROM, state    -> empty; the first request
    S  a button per machine     -> empty, after the step
    P                           -> the pixels, a byte each
    G  machine                  -> its whole state
    B  slot and a state         -> empty; puts the state into the bank
    R  pairs of machine, slot   -> empty; restores the machines
"""

import contextlib
import io
import json
import os
import sys
import traceback
import warnings
from collections.abc import Mapping
from typing import IO, TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from pyboy import PyBoy

BUTTONS = ("a", "b", "start", "up", "down", "left", "right")
# With these, the lowest byte of a pixel's color is its shade.
_SHADES = (0, 0x010101, 0x020202, 0x030303)


class Machines:
    """Game Boys with one cartridge, initially in the same state.

    Args:
        start: a state saved by PyBoy; empty = power-on.
        settings: `machines`, the number of machines, and `boot_frames`, `frames`, `hold_frames` and
            `shrink` as for `PyBoyWorld`.
    """

    def __init__(self, rom: bytes, start: bytes, settings: Mapping[str, int]) -> None:
        from pyboy import PyBoy

        self._frames, self._hold = settings["frames"], settings["hold_frames"]
        self._shrink = settings["shrink"]
        self._bank: dict[int, bytes] = {}
        self._boys = [
            PyBoy(
                io.BytesIO(rom),
                window="null",
                sound_emulated=False,
                cgb=False,
                color_palette=_SHADES,
                log_level="ERROR",
            )
            for _ in range(settings["machines"])
        ]
        for boy in self._boys:
            boy.set_emulation_speed(0)
            if start:
                _load(boy, start)
            boy.tick(settings["boot_frames"], True)

    def step(self, buttons: bytes) -> None:
        """Runs a step, holding one button per machine for its first frames."""
        for boy, button in zip(self._boys, buttons, strict=True):
            boy.button_press(BUTTONS[button])
            boy.tick(self._hold, self._hold == self._frames)
            boy.button_release(BUTTONS[button])
            boy.tick(self._frames - self._hold, True)

    def pixels(self) -> NDArray[np.uint8]:
        """The screens, (machines, height, width) in 0..3."""
        every = slice(None, None, self._shrink)
        return np.stack([boy.screen.ndarray[every, every, 0] for boy in self._boys])

    def state(self, machine: int) -> bytes:
        file = io.BytesIO()
        self._boys[machine].save_state(file)
        return file.getvalue()

    def keep(self, slot: int, state: bytes) -> None:
        self._bank[slot] = state

    def restore(self, machine: int, slot: int) -> None:
        self._boys[machine].load_state(io.BytesIO(self._bank[slot]))


def _load(boy: "PyBoy", start: bytes) -> None:
    file = io.BytesIO(start)
    boy.load_state(file)
    left = len(start) - file.tell()
    if left:
        raise ValueError(f"the state is of another cartridge: it has {left} bytes too many")


def answer(machines: Machines, letter: bytes, payload: bytes) -> bytes:
    """Handles one request; returns the payload of the reply."""
    if letter == b"S":
        machines.step(payload)
    elif letter == b"P":
        return machines.pixels().tobytes()
    elif letter == b"G":
        return machines.state(int.from_bytes(payload, "little"))
    elif letter == b"B":
        machines.keep(int.from_bytes(payload[:4], "little"), payload[4:])
    elif letter == b"R":
        for machine, slot in np.frombuffer(payload, np.int32).reshape(-1, 2).tolist():
            machines.restore(machine, slot)
    else:
        raise ValueError(f"no such request: {letter!r}")
    return b""


def serve(requests: IO[bytes], replies: IO[bytes]) -> None:
    """Handles requests until the stream ends."""
    machines: Machines | None = None
    while (message := read_message(requests)) is not None:
        letter, payload = message
        try:
            if machines is None:
                machines, reply = _machines(payload), b""
            else:
                reply = answer(machines, letter, payload)
        except Exception:
            letter, reply = b"!", traceback.format_exc().encode()
        write_message(replies, letter, reply)


def _machines(payload: bytes) -> Machines:
    line, _, rest = payload.partition(b"\n")
    settings = json.loads(line)
    rom_bytes = settings.pop("rom_bytes")
    return Machines(rest[:rom_bytes], rest[rom_bytes:], settings)


def read_message(stream: IO[bytes]) -> tuple[bytes, bytes] | None:
    """Letter and payload of the next message; None at the end."""
    head = stream.read(5)
    if len(head) < 5:
        return None
    size = int.from_bytes(head[1:], "little")
    payload = stream.read(size)
    return (head[:1], payload) if len(payload) == size else None


def write_message(stream: IO[bytes], letter: bytes, payload: bytes) -> None:
    """Writes and flushes a message."""
    stream.write(letter + len(payload).to_bytes(4, "little"))
    stream.write(payload)
    stream.flush()


def main() -> None:
    """Handles requests from stdin and replies on stdout; PyBoy's output goes to stderr."""
    warnings.simplefilter("ignore")  # SDL's Python package warns about where its library came from
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    # The parent may exit before the reply or be interrupted, which closes the request stream.
    with contextlib.suppress(BrokenPipeError, KeyboardInterrupt):
        serve(sys.stdin.buffer, replies)


if __name__ == "__main__":
    main()
