"""Warp functions of the screen: drawing, clearing and scrolling planes of packed rows."""

from entity_env.games.pixel.warp_utils.typing import Bytes1, Ints1, Long, Word, Words1, func, wp
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
def doubled(byte: Word) -> Word:
    """Return the bits of a byte, each written twice, as the lowest half of a word."""
    # Bit k of the byte goes to bit 49 + 2 k (Anderson, Bit Twiddling Hacks, interleaving).
    copies = (Long(byte) * Long(0x0101010101010101)) & Long(0x8040201008040201)
    spread = Word((copies * Long(0x0102040810204081)) >> Long(49)) & Word(0x5555)
    return spread | (spread << Word(1))


@func
def flip_word(planes: Words1, place: int, bits: Word) -> Word:
    """Flip pixels, and return those that were lit."""
    before = planes[place]
    planes[place] = before ^ bits
    return before & bits


@func
def flip_row(planes: Words1, first: int, word: int, following: int, bits: Long) -> Word:
    """Flip pixels of two words of the row that begins at `first`; return those that were lit.

    Both are written, without a look whether both are touched: where sprites are is hard to predict.
    """
    near, far = Word(bits >> Long(32)), Word(bits & Long(0xFFFFFFFF))
    return flip_word(planes, first + word, near) | flip_word(planes, first + following, far)


@func
def flips_of(place: int, word: int, following: int, bits: Long) -> Word:
    """Return what is flipped in a word of a row."""
    near = wp.where(word == place, Word(bits >> Long(32)), Word(0))
    return near | wp.where(following == place, Word(bits & Long(0xFFFFFFFF)), Word(0))


@func
def flip_whole_row(planes: Words1, first: int, word: int, following: int, bits: Long) -> Word:
    """Do the same as `flip_row`, by all words of a row.

    The compiler makes vectors of the words, and in low resolution of two rows at once: that takes
    two thirds of the time. Of single rows it makes none, and they would take half as long again.
    """
    flips_0 = flips_of(0, word, following, bits)
    flips_1 = flips_of(1, word, following, bits)
    flips_2 = flips_of(2, word, following, bits)
    flips_3 = flips_of(3, word, following, bits)
    before_0, before_1 = Word(planes[first]), Word(planes[first + 1])
    before_2, before_3 = Word(planes[first + 2]), Word(planes[first + 3])
    planes[first] = before_0 ^ flips_0
    planes[first + 1] = before_1 ^ flips_1
    planes[first + 2] = before_2 ^ flips_2
    planes[first + 3] = before_3 ^ flips_3
    hit = (before_0 & flips_0) | (before_1 & flips_1)
    return hit | (before_2 & flips_2) | (before_3 & flips_3)


@func
def draw_column(
    planes: Words1,
    memory: Bytes1,
    plane: int,
    address: int,
    stride: int,
    left: int,
    top: int,
    rows: int,
    scale: int,
    wrap: int,
) -> Word:
    """Draw a column of bytes to a plane, and return the pixels that were lit."""
    last, shift = (memory.shape[0] - 1) & 0xFFFF, Long(64 - 8 * scale - (left & 31))
    word, following = left >> 5, ((left >> 5) + 1) & (ROW_WORDS - 1)
    kept = Long(0xFFFFFFFFFFFFFFFF)
    if wrap == 0 and following == 0:
        kept = Long(0xFFFFFFFF00000000)
    hit, line = Word(0), wp.int32(top)
    source, end = wp.int32(address), address + rows * stride
    if scale == 2:
        while source < end:
            bits = (Long(doubled(Word(memory[source & last]))) << shift) & kept
            first = plane * PLANE_WORDS + (line & (HEIGHT - 2)) * ROW_WORDS
            hit |= flip_whole_row(planes, first, word, following, bits)
            hit |= flip_whole_row(planes, first + ROW_WORDS, word, following, bits)
            line += 2
            source += stride
    else:
        while source < end:
            bits = (Long(memory[source & last]) << shift) & kept
            first = plane * PLANE_WORDS + (line & (HEIGHT - 1)) * ROW_WORDS
            hit |= flip_row(planes, first, word, following, bits)
            line += 1
            source += stride
    return hit


@func
def draw_plane(
    planes: Words1,
    memory: Bytes1,
    plane: int,
    address: int,
    wide: int,
    left: int,
    top: int,
    rows: int,
    scale: int,
    wrap: int,
) -> Word:
    """Draw a sprite of one or, if wide, two columns of bytes; return pixels that were lit.

    Two calls rather than a loop, which would cost each draw as much as two rows.
    """
    if wide == 0:
        return draw_column(planes, memory, plane, address, 1, left, top, rows, scale, wrap)
    hit = draw_column(planes, memory, plane, address, 2, left, top, rows, scale, wrap)
    right = left + 8 * scale
    if right < WIDTH or wrap != 0:
        right = right & (WIDTH - 1)
        hit |= draw_column(planes, memory, plane, address + 1, 2, right, top, rows, scale, wrap)
    return hit


@func
def draw_planes(
    registers: Ints1, planes: Words1, memory: Bytes1, x: int, y: int, n: int, quirks: int
) -> None:
    """Draw a sprite 8 wide and n high, or 16 by 16 for n = 0, for each selected plane."""
    scale = scale_of(registers)
    left, top = (x * scale) & (WIDTH - 1), (y * scale) & (HEIGHT - 1)
    wrap = quirks & SPRITES_WRAP
    height, wide = wp.where(n == 0, 16, n), wp.where(n == 0, 1, 0)
    rows = wp.int32(height)
    if wrap == 0:
        rows = wp.min(rows, (HEIGHT - top) >> (scale - 1))
    address = wp.int32(registers[INDEX])
    selected, hit = registers[SELECTED], Word(0)
    for plane in range(2):
        if (selected >> plane) & 1:
            hit |= draw_plane(planes, memory, plane, address, wide, left, top, rows, scale, wrap)
            address += height * (1 + wide)
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
