"""Some Game Boys in a process of their own, which does what arrives on stdin until that closes.

Run as a file, so that it imports PyBoy and nothing else of this package. A request is a letter, the
length of what follows in four bytes, and that; a reply is the same, with "!" and a traceback when
the request failed.

    I  a line of JSON, a ROM   -> nothing; the first request
    S  a button a machine      -> nothing, once the step is done
    P                          -> the pixels, a byte each
    G  machine                 -> its whole state
    B  slot and a state        -> nothing; the state now lies in the bank
    R  pairs of machine, slot  -> nothing, once they are restored
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
# With these the lowest byte of a pixel's colour is its shade.
_SHADES = (0, 0x010101, 0x020202, 0x030303)


class Machines:
    """Game Boys that run the same cartridge, all in the same state.

    Args:
        rom: the cartridge.
        start: a state as PyBoy saves it, or nothing to begin where a Game Boy does.
        settings: the numbers `machines`, `boot_frames`, `frames`, `hold_frames` and `shrink`, which
            are those of `PyBoyWorld`.
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
        """Hold a button of each machine for some frames and release it for the others of a step."""
        for boy, button in zip(self._boys, buttons, strict=True):
            boy.button_press(BUTTONS[button])
            boy.tick(self._hold, self._hold == self._frames)
            boy.button_release(BUTTONS[button])
            boy.tick(self._frames - self._hold, True)

    def pixels(self) -> NDArray[np.uint8]:
        """Return what the screens show, (machines, height, width) in 0..3."""
        every = slice(None, None, self._shrink)
        return np.stack([boy.screen.ndarray[every, every, 0] for boy in self._boys])

    def state(self, machine: int) -> bytes:
        """Return everything that makes a machine go on as it does."""
        file = io.BytesIO()
        self._boys[machine].save_state(file)
        return file.getvalue()

    def keep(self, slot: int, state: bytes) -> None:
        """Put a state into the bank."""
        self._bank[slot] = state

    def restore(self, machine: int, slot: int) -> None:
        """Make a machine what the bank has."""
        self._boys[machine].load_state(io.BytesIO(self._bank[slot]))


def _load(boy: "PyBoy", start: bytes) -> None:
    file = io.BytesIO(start)
    boy.load_state(file)
    left = len(start) - file.tell()
    if left:
        raise ValueError(f"the state is of another cartridge: it has {left} bytes too many")


def answer(machines: Machines, letter: bytes, payload: bytes) -> bytes:
    """Do one request and return what it asks for."""
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
    """Answer until the requests end."""
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
    """Return letter and payload of the next message, or None at the end."""
    head = stream.read(5)
    if len(head) < 5:
        return None
    size = int.from_bytes(head[1:], "little")
    payload = stream.read(size)
    return (head[:1], payload) if len(payload) == size else None


def write_message(stream: IO[bytes], letter: bytes, payload: bytes) -> None:
    """Write one message and send it on its way."""
    stream.write(letter + len(payload).to_bytes(4, "little"))
    stream.write(payload)
    stream.flush()


def main() -> None:
    """Talk over stdin and stdout; what PyBoy prints goes to stderr."""
    warnings.simplefilter("ignore")  # SDL's Python package says where its library came from
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    # Whoever asked may be gone before the answer, or press Ctrl-C: it closes the requests then.
    with contextlib.suppress(BrokenPipeError, KeyboardInterrupt):
        serve(sys.stdin.buffer, replies)


if __name__ == "__main__":
    main()
