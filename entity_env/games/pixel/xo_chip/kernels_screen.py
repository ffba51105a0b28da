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
    """Side of a pixel in high-resolution pixels."""
    return 2 - registers[HIGH]


@func
def flip_pair(words: Words1, near: int, far: int, bits: Long) -> Long:
    """Flips pixels of two words, the near word by the low half; returns the previous value."""
    before = Long(words[near]) | (Long(words[far]) << Long(32))
    after = before ^ bits
    words[near] = Word(after)
    words[far] = Word(after >> Long(32))
    return before


@func
def draw_rows(
    words: Words1,
    near: int,
    far: int,
    memory: Bytes1,
    doubles: Words1,
    address: int,
    stride: int,
    top: int,
    rows: int,
    scale: int,
    shift: int,
    kept: Long,
) -> Long:
    """Draws a column of bytes to two words of rows; returns the pixels that it turned off.

    It does not check whether both words are touched, because that branch is hard to predict.
    """
    last = (memory.shape[0] - 1) & 0xFFFF
    # The two shifts are a rotation; the compiler recognizes it if both shift the same number.
    forth, back = Long(shift & 63), Long(-shift & 63)
    hit, place = Long(0), wp.int32(top) * ROW_WORDS
    source, end = wp.int32(address), address + rows * stride
    if scale == 2:
        while source < end:
            bits = Long(doubles[memory[source & last]])
            bits = ((bits << forth) | (bits >> back)) & kept
            place = place & (PLANE_WORDS - 2 * ROW_WORDS)
            before = flip_pair(words, place + near, place + far, bits)
            before |= flip_pair(words, place + ROW_WORDS + near, place + ROW_WORDS + far, bits)
            hit |= before & bits
            place += 2 * ROW_WORDS
            source += stride
    else:
        while source < end:
            bits = Long(memory[source & last])
            bits = ((bits << forth) | (bits >> back)) & kept
            place = place & (PLANE_WORDS - ROW_WORDS)
            hit |= flip_pair(words, place + near, place + far, bits) & bits
            place += ROW_WORDS
            source += stride
    return hit


@func
def words_from(planes: Words1, first: int) -> Words1:
    """As many words as a plane has, starting at `first`."""
    return wp.array(ptr=planes.ptr + Long(4 * first), shape=(PLANE_WORDS,), dtype=Word)


@func
def draw_column(
    planes: Words1,
    memory: Bytes1,
    doubles: Words1,
    plane: int,
    address: int,
    stride: int,
    left: int,
    top: int,
    rows: int,
    scale: int,
    wrap: int,
) -> Long:
    """Draws a column of bytes to a plane; returns the pixels that it turned off.

    On the screen the column lies in two adjacent words. If their distance is a constant, the
    compiler reads and writes them as one.
    """
    # The leftmost pixel of the first word is bit 31.
    first, shift, kept = plane * PLANE_WORDS, 96 - 8 * scale - left, Long(0xFFFFFFFFFFFFFFFF)
    if left + 8 * scale <= WIDTH:
        word = wp.min(left >> 5, ROW_WORDS - 2)
        words = words_from(planes, first + word)
        shift += 32 * word
        return draw_rows(
            words, 0, 1, memory, doubles, address, stride, top, rows, scale, shift, kept
        )
    if wrap == 0:
        kept = Long(0xFFFFFFFF)
    word = ROW_WORDS - 1
    words = words_from(planes, first)
    shift += 32 * word
    return draw_rows(
        words, word, 0, memory, doubles, address, stride, top, rows, scale, shift, kept
    )


@func
def draw_plane(
    planes: Words1,
    memory: Bytes1,
    doubles: Words1,
    plane: int,
    address: int,
    wide: int,
    left: int,
    top: int,
    rows: int,
    scale: int,
    wrap: int,
) -> Long:
    """Draws a sprite of one or, if wide, two columns of bytes; returns the pixels turned off.

    It has two calls, because a loop would add the cost of two rows to each draw.
    """
    if wide == 0:
        return draw_column(planes, memory, doubles, plane, address, 1, left, top, rows, scale, wrap)
    hit = draw_column(planes, memory, doubles, plane, address, 2, left, top, rows, scale, wrap)
    right = left + 8 * scale
    if right < WIDTH or wrap != 0:
        right = right & (WIDTH - 1)
        hit |= draw_column(
            planes, memory, doubles, plane, address + 1, 2, right, top, rows, scale, wrap
        )
    return hit


@func
def draw_planes(
    registers: Ints1,
    planes: Words1,
    memory: Bytes1,
    doubles: Words1,
    x: int,
    y: int,
    n: int,
    quirks: int,
) -> None:
    """Draws a sprite 8 wide and n high, or 16 by 16 for n = 0, in each selected plane."""
    scale = scale_of(registers)
    left, top = (x * scale) & (WIDTH - 1), (y * scale) & (HEIGHT - 1)
    wrap = quirks & SPRITES_WRAP
    height, wide = wp.where(n == 0, 16, n), wp.where(n == 0, 1, 0)
    rows = wp.int32(height)
    if wrap == 0:
        rows = wp.min(rows, (HEIGHT - top) >> (scale - 1))
    address = wp.int32(registers[INDEX])
    selected, hit = registers[SELECTED], Long(0)
    for plane in range(2):
        if (selected >> plane) & 1:
            hit |= draw_plane(
                planes, memory, doubles, plane, address, wide, left, top, rows, scale, wrap
            )
            address += height * (1 + wide)
    registers[FLAG] = wp.where(hit != Long(0), 1, 0)


@func
def clear_planes(planes: Words1, selected: int) -> None:
    """Clears the selected planes."""
    for word in range(NUM_PLANE_WORDS):
        if (selected >> (word // PLANE_WORDS)) & 1:
            planes[word] = Word(0)


@func
def resize(registers: Ints1, planes: Words1, high: int) -> None:
    """Sets the resolution, and clears both planes."""
    registers[HIGH] = high
    clear_planes(planes, 3)


@func
def scroll_size(registers: Ints1, pixels: int, quirks: int) -> int:
    """High-resolution pixels moved by a scroll."""
    if quirks & SCROLL_HALF_PIXELS:
        return pixels
    return pixels * scale_of(registers)


@func
def scroll_right(planes: Words1, first: int, by: int) -> None:
    """Moves a row right; new pixels are dark."""
    carried = Word(0)
    for word in range(ROW_WORDS):
        bits = planes[first + word]
        planes[first + word] = (bits >> Word(by)) | carried
        carried = bits << Word(32 - by)


@func
def scroll_left(planes: Words1, first: int, by: int) -> None:
    """Moves a row left; new pixels are dark."""
    carried = Word(0)
    for step in range(ROW_WORDS):
        word = first + ROW_WORDS - 1 - step
        bits = planes[word]
        planes[word] = (bits << Word(by)) | carried
        carried = bits >> Word(32 - by)


@func
def scroll_sideways(registers: Ints1, planes: Words1, to_right: int, quirks: int) -> None:
    """Moves the selected planes left or right by 4 pixels."""
    by = scroll_size(registers, 4, quirks)
    for line in range(2 * HEIGHT):
        if (registers[SELECTED] >> (line // HEIGHT)) & 1:
            if to_right != 0:
                scroll_right(planes, line * ROW_WORDS, by)
            else:
                scroll_left(planes, line * ROW_WORDS, by)


@func
def scroll_down(registers: Ints1, planes: Words1, pixels: int, quirks: int) -> None:
    """Moves the selected planes down, from the last word to the first."""
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
    """Moves the selected planes up, from the first word to the last."""
    by = ROW_WORDS * scroll_size(registers, pixels, quirks)
    for word in range(NUM_PLANE_WORDS):
        if (registers[SELECTED] >> (word // PLANE_WORDS)) & 1:
            if word % PLANE_WORDS + by < PLANE_WORDS:
                planes[word] = planes[word + by]
            else:
                planes[word] = Word(0)
