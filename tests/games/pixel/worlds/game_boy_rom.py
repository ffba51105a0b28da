"""Our own Game Boy program: the four directions move a dark square by one cell per press."""

_CODE_AT = 0x150
_SIZE = 32 * 1024


def square_rom() -> bytes:
    """Return a cartridge of 32 KiB without a mapper. The square starts in row 4, column 4."""
    rom = bytearray(_SIZE)
    rom[0x100:0x104] = (0x00, 0xC3, *_CODE_AT.to_bytes(2, "little"))  # nop; jp code
    rom[0x134:0x13A] = b"SQUARE"
    code = _code()
    rom[_CODE_AT : _CODE_AT + len(code)] = code
    rom[0x14D] = -sum(byte + 1 for byte in rom[0x134:0x14D]) & 0xFF  # the header's checksum
    return bytes(rom)


def _code() -> bytes:
    moves = b"".join(_if_pressed(bit, step) for bit, step in enumerate((1, -1, -32, 32)))
    prologue = bytes.fromhex(
        "F3 31 FE FF"  # di; ld sp,FFFE
        "F0 44 FE 90 20 FA"  # wait until line 144
        "AF E0 40"  # screen off
        "21 00 80 06 10 22 05 20 FC"  # tile 0: sixteen bytes of 0
        "3E FF 06 10 22 05 20 FC"  # tile 1: sixteen of FF, so shade 3
        "21 00 98 01 00 04 AF 22 0B 78 B1 20 F9"  # every cell shows tile 0
        "3E E4 E0 47"  # shades in order
        "21 84 98 36 01 0E 00"  # hl: the square's cell; c: buttons held before
        "3E 91 E0 40 3E 01 E0 FF"  # screen on; wake at every frame
    )
    loop = bytes.fromhex(
        "AF E0 0F 76 00"  # wait for the frame
        "3E 20 E0 00 F0 00 F0 00 F0 00 2F E6 0F"  # a: the held directions
        "47 A9 A0 48 36 00"  # a: newly held directions; the cell shows tile 0
    )
    body = loop + moves + bytes.fromhex("36 01 18")  # the cell shows tile 1; jr loop
    return prologue + body + bytes([256 - len(body) - 1])


def _if_pressed(bit: int, step: int) -> bytes:
    """bit n,a; jr z over the rest; ld de,step; add hl,de."""
    return bytes(
        [0xCB, 0x47 + 8 * bit, 0x28, 4, 0x11, *(step & 0xFFFF).to_bytes(2, "little"), 0x19]
    )
