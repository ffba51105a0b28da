"""Warp functions of the screen: drawing, clearing and scrolling planes of packed rows."""

from entity_env.games.pixel.warp_utils.typing import Bytes1, Ints1, Word, Words1, func, wp
from entity_env.games.pixel.xo_chip.machine_layout import (
    FLAG,
    HIGH,
    INDEX,
    NUM_PLANE_WORDS,
    PLANE_WORDS,
    ROW_WORDS,
    SCROLL_HALF_PIXELS,
    SELECTED,
    SPRITES_WRAP,
)
from entity_env.games.pixel.xo_chip.quirks import HEIGHT, WIDTH


@func
def scale_of(registers: Ints1) -> int:
    """Return the side of a pixel in pixels of the high resolution."""
    return 2 - registers[HIGH]


@func
def doubled(bits: Word) -> Word:
    """Return the upper half of a word, each bit written twice."""
    spread = bits >> Word(16)
    spread = (spread | (spread << Word(8))) & Word(0x00FF00FF)
    spread = (spread | (spread << Word(4))) & Word(0x0F0F0F0F)
    spread = (spread | (spread << Word(2))) & Word(0x33333333)
    spread = (spread | (spread << Word(1))) & Word(0x55555555)
    return spread | (spread << Word(1))


@func
def sprite_line(memory: Bytes1, address: int, wide: int) -> Word:
    """Return a sprite's row of one or, if wide, two bytes, the leftmost pixel highest."""
    last = (memory.shape[0] - 1) & 0xFFFF
    bits = Word(memory[address & last]) << Word(24)
    if wide != 0:
        return bits | (Word(memory[(address + 1) & last]) << Word(16))
    return bits


@func
def flip_word(planes: Words1, place: int, bits: Word) -> Word:
    """Flip pixels, and return those that were lit."""
    before = planes[place]
    planes[place] = before ^ bits
    return before & bits


@func
def flip_row(planes: Words1, first: int, left: int, bits: Word, wrap: int) -> Word:
    """Flip pixels of the row whose words begin at `first`, and return those that were lit."""
    word, shift = left >> 5, left & 31
    hit = flip_word(planes, first + word, bits >> Word(shift))
    # Two shifts, since a shift by 32 is undefined.
    beyond = (bits << Word(31 - shift)) << Word(1)
    if beyond != Word(0) and (wrap != 0 or word < ROW_WORDS - 1):
        hit |= flip_word(planes, first + ((word + 1) & (ROW_WORDS - 1)), beyond)
    return hit


@func
def flip_line(
    planes: Words1, plane: int, line: int, scale: int, left: int, bits: Word, wrap: int
) -> Word:
    """Flip pixels of a row, in low resolution of both that it covers."""
    hit = Word(0)
    if line >= HEIGHT and wrap == 0:
        return hit
    first = plane * PLANE_WORDS + (line & (HEIGHT - 1)) * ROW_WORDS
    hit = flip_row(planes, first, left, bits, wrap)
    if scale == 2:
        hit |= flip_row(planes, first + ROW_WORDS, left, bits, wrap)
    return hit


@func
def draw_planes(
    registers: Ints1, planes: Words1, memory: Bytes1, x: int, y: int, n: int, quirks: int
) -> None:
    """Draw a sprite 8 wide and n high, or 16 by 16 for n = 0, for each selected plane."""
    scale = scale_of(registers)
    left, top = (x * scale) & (WIDTH - 1), (y * scale) & (HEIGHT - 1)
    wrap = quirks & SPRITES_WRAP
    rows, wide = wp.where(n == 0, 16, n), wp.where(n == 0, 1, 0)
    address = wp.int32(registers[INDEX])
    hit = Word(0)
    for plane in range(2):
        if (registers[SELECTED] >> plane) & 1:
            for row in range(rows):
                bits = sprite_line(memory, address, wide)
                if scale == 2:
                    bits = doubled(bits)
                hit |= flip_line(planes, plane, top + scale * row, scale, left, bits, wrap)
                address += 1 + wide
    registers[FLAG] = wp.where(hit != Word(0), 1, 0)


@func
def clear_planes(planes: Words1, selected: int) -> None:
    """Clear the selected planes."""
    for word in range(NUM_PLANE_WORDS):
        if (selected >> (word // PLANE_WORDS)) & 1:
            planes[word] = Word(0)


@func
def resize(registers: Ints1, planes: Words1, high: int) -> None:
    """Set the resolution, and clear both planes."""
    registers[HIGH] = high
    clear_planes(planes, 3)


@func
def scroll_size(registers: Ints1, pixels: int, quirks: int) -> int:
    """Return the pixels of the high resolution that a scroll moves."""
    if quirks & SCROLL_HALF_PIXELS:
        return pixels
    return pixels * scale_of(registers)


@func
def scroll_right(planes: Words1, first: int, by: int) -> None:
    """Move a row; new pixels are dark."""
    carried = Word(0)
    for word in range(ROW_WORDS):
        bits = planes[first + word]
        planes[first + word] = (bits >> Word(by)) | carried
        carried = bits << Word(32 - by)


@func
def scroll_left(planes: Words1, first: int, by: int) -> None:
    """Move a row; new pixels are dark."""
    carried = Word(0)
    for step in range(ROW_WORDS):
        word = first + ROW_WORDS - 1 - step
        bits = planes[word]
        planes[word] = (bits << Word(by)) | carried
        carried = bits >> Word(32 - by)


@func
def scroll_sideways(registers: Ints1, planes: Words1, to_right: int, quirks: int) -> None:
    """Move the selected planes by 4 pixels."""
    by = scroll_size(registers, 4, quirks)
    for line in range(2 * HEIGHT):
        if (registers[SELECTED] >> (line // HEIGHT)) & 1:
            if to_right != 0:
                scroll_right(planes, line * ROW_WORDS, by)
            else:
                scroll_left(planes, line * ROW_WORDS, by)


@func
def scroll_down(registers: Ints1, planes: Words1, pixels: int, quirks: int) -> None:
    """Move the selected planes down, from the last word to the first."""
    by = ROW_WORDS * scroll_size(registers, pixels, quirks)
    for step in range(NUM_PLANE_WORDS):
        word = NUM_PLANE_WORDS - 1 - step
        if (registers[SELECTED] >> (word // PLANE_WORDS)) & 1:
            if word % PLANE_WORDS >= by:
                planes[word] = planes[word - by]
            else:
                planes[word] = Word(0)


@func
def scroll_up(registers: Ints1, planes: Words1, pixels: int, quirks: int) -> None:
    """Move the selected planes up, from the first word to the last."""
    by = ROW_WORDS * scroll_size(registers, pixels, quirks)
    for word in range(NUM_PLANE_WORDS):
        if (registers[SELECTED] >> (word // PLANE_WORDS)) & 1:
            if word % PLANE_WORDS + by < PLANE_WORDS:
                planes[word] = planes[word + by]
            else:
                planes[word] = Word(0)
