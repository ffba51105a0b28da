"""The machines as kernels: running them, drawing their screens, restoring them from snapshots.

A thread runs one machine, whose whole state is a row of 32-bit words (`kernels_layout`). What an
opcode does is in `kernels_opcodes` and `kernels_screen`.
"""

from entity_env.games.pixel.warp_utils.typing import (
    Bytes1,
    Flags1,
    Ints1,
    Long,
    Longs2,
    Word,
    Words1,
    Words3,
    func,
    kernel,
    wp,
)
from entity_env.games.pixel.xo_chip.kernels_opcodes import (
    arithmetic,
    call,
    draw_random,
    draw_sprite,
    following,
    misc,
    pair,
    read_word,
    skip,
    skip_by_key,
    skip_unequal,
    system,
    wrapped,
)
from entity_env.games.pixel.xo_chip.machine_layout import (
    ADDRESS,
    DELAY,
    ENDS_FRAME,
    FIRST_MEMORY_BYTE,
    FIRST_PLANE_BYTE,
    HALT,
    HALTS,
    INDEX,
    JUMP_ADDS_X,
    NUM_PLANE_WORDS,
    NUM_REGISTERS,
    PC,
    PLANE_WORDS,
    ROW_WORDS,
    SHADE_WORDS,
    SOUND,
)
from entity_env.games.pixel.xo_chip.quirks import HEIGHT, WIDTH


@func
def execute(
    registers: Ints1, planes: Words1, memory: Bytes1, at: int, keys: int, quirks: int
) -> int:
    """Run the instruction at an address and return where the program goes on."""
    opcode = read_word(memory, at)
    after = following(memory, at)
    group, x, y = opcode >> 12, (opcode >> 8) & 15, (opcode >> 4) & 15
    nnn, nn, n = opcode & 4095, opcode & 255, opcode & 15
    # One comparison each, so that the compiler makes a table of them.
    if group == 0x0:
        return system(registers, planes, at, after, opcode, quirks)
    if group == 0x1:
        return nnn
    if group == 0x2:
        return call(registers, at, after, nnn)
    if group == 0x3:
        return skip(memory, after, registers[x] == nn)
    if group == 0x4:
        return skip(memory, after, registers[x] != nn)
    if group == 0x5:
        return pair(registers, memory, at, after, x, y, n)
    if group == 0x6:
        registers[x] = nn
        return after
    if group == 0x7:
        registers[x] = (registers[x] + nn) & 255
        return after
    if group == 0x8:
        return arithmetic(registers, at, after, opcode, quirks)
    if group == 0x9:
        return skip_unequal(registers, memory, at, after, x, y, n)
    if group == 0xA:
        registers[INDEX] = nnn
        return after
    if group == 0xB:
        added = registers[wp.where((quirks & JUMP_ADDS_X) != 0, x, 0)]
        return wrapped(memory, nnn + added)
    if group == 0xC:
        registers[x] = draw_random(registers) & nn
        return after
    if group == 0xD:
        return draw_sprite(registers, planes, memory, after, opcode, quirks)
    if group == 0xE:
        return skip_by_key(registers, memory, at, after, x, nn, keys)
    return misc(registers, memory, at, after, opcode, keys, quirks)


@func
def run_frame(
    registers: Ints1,
    planes: Words1,
    memory: Bytes1,
    start: int,
    instructions: int,
    keys: int,
    quirks: int,
) -> int:
    """Run a frame from an address, and count the timers down unless the machine halts."""
    pc = wp.int32(start)
    count = wp.int32(0)
    while count < instructions:
        pc = execute(registers, planes, memory, pc, keys, quirks)
        if pc >= ENDS_FRAME:
            break
        count += 1
    if pc < HALTS:
        registers[DELAY] = wp.max(registers[DELAY] - 1, 0)
        registers[SOUND] = wp.max(registers[SOUND] - 1, 0)
        pc = pc & ADDRESS
    return pc


@func
def machine_at(state: Longs2, env: int) -> Long:
    """Return the address of a machine's row."""
    return state.ptr + Long(env) * Long(state.shape[1]) * Long(8)


@kernel
def step_machines(
    actions: Ints1,
    held_keys: Ints1,
    state: Longs2,
    memory_size: int,
    frames: int,
    instructions: int,
    quirks: int,
) -> None:
    """Run frames of instructions on a machine with the keys of its button held."""
    env = wp.tid()
    # Arrays whose strides the compiler knows: views of `state` would cost a fifth more.
    row = machine_at(state, env)
    registers = wp.array(ptr=row, shape=(NUM_REGISTERS,), dtype=wp.int32)
    planes = wp.array(ptr=row + Long(FIRST_PLANE_BYTE), shape=(NUM_PLANE_WORDS,), dtype=Word)
    memory = wp.array(ptr=row + Long(FIRST_MEMORY_BYTE), shape=(memory_size,), dtype=wp.uint8)
    if registers[HALT] != 0:
        return
    keys = held_keys[wp.clamp(actions[env], 0, held_keys.shape[0] - 1)]
    pc = wp.int32(registers[PC])
    frame = wp.int32(0)
    while frame < frames and pc < HALTS:
        pc = run_frame(registers, planes, memory, pc, instructions, keys, quirks)
        frame += 1
    registers[PC] = pc & ADDRESS


@func
def spread_nibble(bits: Word) -> Word:
    """Return the lowest four bits as bytes of 0 or 1, the highest bit in the lowest byte."""
    return (((bits & Word(15)) * Word(0x08040201)) >> Word(3)) & Word(0x01010101)


@kernel
def render_machines(state: Longs2, pixels: Words3) -> None:
    """Write the shades of a picture row, four bytes a word; launched over machines and rows."""
    env, line = wp.tid()
    first_plane = machine_at(state, env) + Long(FIRST_PLANE_BYTE)
    planes = wp.array(ptr=first_plane, shape=(NUM_PLANE_WORDS,), dtype=Word)
    target = pixels.ptr + (Long(env) * Long(HEIGHT) + Long(line)) * Long(WIDTH)
    shades = wp.array(ptr=target, shape=(SHADE_WORDS,), dtype=Word)
    for part in range(ROW_WORDS):
        word = line * ROW_WORDS + part
        first, second = Word(planes[word]), Word(planes[PLANE_WORDS + word])
        for nibble in range(8):
            shift = Word(28 - 4 * nibble)
            light = spread_nibble(first >> shift) | (spread_nibble(second >> shift) << Word(1))
            shades[8 * part + nibble] = light


@kernel
def reset_machines(mask: Flags1, slots: Ints1, bank: Longs2, state: Longs2, num_lanes: int) -> None:
    """Copy the snapshots of the chosen machines; launched over machines and lanes."""
    env, lane = wp.tid()
    if not mask[env]:
        return
    slot = wp.clamp(slots[env], 0, bank.shape[0] - 1)
    word = wp.int32(lane)
    while word < state.shape[1]:
        state[env, word] = bank[slot, word]
        word += num_lanes
