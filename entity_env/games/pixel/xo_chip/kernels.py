"""Warp kernels of the machines: opcodes, steps, screens, and resets from snapshots.

A thread runs one machine, whose state is a row of 32-bit words (`machine_layout`). Functions that
run an opcode return the address of the next instruction, plus `ENDS_FRAME` or `HALTS` if the frame
ends or the machine halts. The memory size is a power of two, so a mask wraps addresses.
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
    native,
    wp,
)
from entity_env.games.pixel.xo_chip.kernels_screen import (
    clear_planes,
    draw_planes,
    resize,
    scroll_down,
    scroll_sideways,
    scroll_up,
)
from entity_env.games.pixel.xo_chip.machine_layout import (
    ADDRESS,
    AWAITED,
    DELAY,
    DRAW_ENDS_FRAME,
    ENDS_FRAME,
    EXIT,
    FIRST_MEMORY_BYTE,
    FIRST_PLANE_BYTE,
    FLAG,
    HALT,
    HALTS,
    INDEX,
    JUMP_ADDS_X,
    KEY_ON_RELEASE,
    LOGIC_CLEARS_FLAG,
    MEMORY_MOVES_INDEX,
    NUM_PLANE_WORDS,
    NUM_REGISTERS,
    PATTERN,
    PC,
    PITCH,
    PLANE_WORDS,
    PREFETCHED_BYTES,
    RANDOM,
    ROW_WORDS,
    SAVED,
    SELECTED,
    SHADE_WORDS,
    SHIFT_IN_PLACE,
    SOUND,
    STACK,
    STACK_OVERFLOW,
    STACK_POINTER,
    STACK_UNDERFLOW,
    UNKNOWN_OPCODE,
)
from entity_env.games.pixel.xo_chip.quirks import (
    HEIGHT,
    LARGE_FONT,
    LARGE_FONT_BYTES,
    SMALL_FONT,
    SMALL_FONT_BYTES,
    STACK_DEPTH,
    WIDTH,
)


@func
def halt(registers: Ints1, at: int, why: int) -> int:
    """Halts at an instruction."""
    registers[HALT] = why
    return at | HALTS


@func
def wrapped(memory: Bytes1, address: int) -> int:
    """Address wrapped to the memory size."""
    # The second mask shows the compiler that the index is not negative: arrays count negative
    # indices from the end.
    return address & (memory.shape[0] - 1) & 0xFFFF


@func
def following(memory: Bytes1, address: int) -> int:
    """Address after a two-byte instruction."""
    return wrapped(memory, address + 2)


@func
def read_byte(memory: Bytes1, address: int) -> int:
    """Byte of memory."""
    return wp.int32(memory[wrapped(memory, address)])


@func
def read_word(memory: Bytes1, address: int) -> int:
    """Two bytes of memory, high byte first."""
    return (read_byte(memory, address) << 8) | read_byte(memory, address + 1)


@func
def write_byte(memory: Bytes1, address: int, value: int) -> None:
    """Writes a byte of memory."""
    memory[wrapped(memory, address)] = wp.uint8(value)


@func
def x_of(opcode: int) -> int:
    """Register number X."""
    return (opcode >> 8) & 15


@func
def y_of(opcode: int) -> int:
    """Register number Y."""
    return (opcode >> 4) & 15


@func
def skip(memory: Bytes1, after: int, condition: bool) -> int:
    """Skips the next instruction if a condition holds; F000 has four bytes."""
    if not condition:
        return after
    size = wp.where(read_word(memory, after) == 0xF000, 4, 2)
    return wrapped(memory, after + size)


@func
def skip_unequal(registers: Ints1, memory: Bytes1, at: int, after: int, opcode: int) -> int:
    """Runs 9XYN."""
    if opcode & 15 != 0:
        return halt(registers, at, UNKNOWN_OPCODE)
    return skip(memory, after, registers[x_of(opcode)] != registers[y_of(opcode)])


@func
def skip_by_key(
    registers: Ints1, memory: Bytes1, at: int, after: int, opcode: int, keys: int
) -> int:
    """Runs EXNN."""
    x, nn = x_of(opcode), opcode & 255
    if nn != 0x9E and nn != 0xA1:
        return halt(registers, at, UNKNOWN_OPCODE)
    is_held = ((keys >> (registers[x] & 15)) & 1) != 0
    return skip(memory, after, is_held == (nn == 0x9E))


@func
def call(registers: Ints1, at: int, after: int, target: int) -> int:
    """Pushes the return address and jumps."""
    depth = registers[STACK_POINTER]
    if depth == STACK_DEPTH:
        return halt(registers, at, STACK_OVERFLOW)
    registers[STACK + depth] = after
    registers[STACK_POINTER] = depth + 1
    return target


@func
def leave(registers: Ints1, at: int) -> int:
    """Returns from a call, and clears its return address: unused words of the stack are 0."""
    depth = registers[STACK_POINTER] - 1
    if depth < 0:
        return halt(registers, at, STACK_UNDERFLOW)
    target = registers[STACK + depth]
    registers[STACK + depth] = 0
    registers[STACK_POINTER] = depth
    return target


@func
def system(registers: Ints1, planes: Words1, at: int, after: int, opcode: int, quirks: int) -> int:
    """Runs 0NNN."""
    if opcode == 0x00E0:
        clear_planes(planes, registers[SELECTED])
        return after
    if opcode == 0x00EE:
        return leave(registers, at)
    if opcode == 0x00FB or opcode == 0x00FC:
        scroll_sideways(registers, planes, opcode & 1, quirks)
        return after
    if opcode == 0x00FD:
        return halt(registers, at, EXIT)
    if opcode == 0x00FE or opcode == 0x00FF:
        resize(registers, planes, opcode & 1)
        return after
    if opcode >> 4 == 0x00C:
        scroll_down(registers, planes, opcode & 15, quirks)
        return after
    if opcode >> 4 == 0x00D:
        scroll_up(registers, planes, opcode & 15, quirks)
        return after
    return halt(registers, at, UNKNOWN_OPCODE)


@func
def pair(registers: Ints1, memory: Bytes1, at: int, after: int, opcode: int) -> int:
    """Runs 5XYN: N = 0 compares two registers, 2 stores a range from VX to VY, and 3 loads it."""
    x, y, n = x_of(opcode), y_of(opcode), opcode & 15
    if n == 0:
        return skip(memory, after, registers[x] == registers[y])
    if n != 2 and n != 3:
        return halt(registers, at, UNKNOWN_OPCODE)
    step = wp.where(y >= x, 1, -1)
    for offset in range(wp.abs(y - x) + 1):
        register = x + step * offset
        if n == 2:
            write_byte(memory, registers[INDEX] + offset, registers[register])
        else:
            registers[register] = read_byte(memory, registers[INDEX] + offset)
    return after


@func
def put(registers: Ints1, x: int, value: int, flag: int) -> None:
    """Sets a register, then the flag, which wins if both are the same register."""
    registers[x] = value & 255
    registers[FLAG] = flag


@func
def logic(registers: Ints1, x: int, value: int, quirks: int) -> None:
    """Sets a register to the result of a logic operation."""
    registers[x] = value
    if quirks & LOGIC_CLEARS_FLAG:
        registers[FLAG] = 0


@func
def arithmetic(registers: Ints1, at: int, after: int, opcode: int, quirks: int) -> int:
    """Runs 8XYN."""
    x, n = (opcode >> 8) & 15, opcode & 15
    a, b = registers[x], registers[(opcode >> 4) & 15]
    shifted = wp.where((quirks & SHIFT_IN_PLACE) != 0, a, b)
    if n == 0x0:
        registers[x] = b
    elif n == 0x1:
        logic(registers, x, a | b, quirks)
    elif n == 0x2:
        logic(registers, x, a & b, quirks)
    elif n == 0x3:
        logic(registers, x, a ^ b, quirks)
    elif n == 0x4:
        put(registers, x, a + b, (a + b) >> 8)
    elif n == 0x5:
        put(registers, x, a - b, wp.where(a >= b, 1, 0))
    elif n == 0x6:
        put(registers, x, shifted >> 1, shifted & 1)
    elif n == 0x7:
        put(registers, x, b - a, wp.where(b >= a, 1, 0))
    elif n == 0xE:
        put(registers, x, shifted << 1, shifted >> 7)
    else:
        return halt(registers, at, UNKNOWN_OPCODE)
    return after


@func
def lowest_bit(bits: int) -> int:
    """Index of the lowest set bit."""
    return wp.bit_count((bits & -bits) - 1)


@func
def wait_for_key(registers: Ints1, at: int, after: int, x: int, keys: int, quirks: int) -> int:
    """Runs FX0A: reads a key, or waits by repeating this instruction."""
    if registers[AWAITED] == 0:
        if keys == 0:
            return at
        registers[AWAITED] = lowest_bit(keys) + 1
    key = registers[AWAITED] - 1
    if (quirks & KEY_ON_RELEASE) != 0 and ((keys >> key) & 1) != 0:
        return at
    registers[x] = key
    registers[AWAITED] = 0
    return after


@func
def draw_random(registers: Ints1) -> int:
    """Random byte: xorshift32 (Marsaglia 2003)."""
    word = Word(registers[RANDOM])
    word = word ^ (word << Word(13))
    word = word ^ (word >> Word(17))
    word = word ^ (word << Word(5))
    registers[RANDOM] = wp.int32(word)
    return wp.int32((word >> Word(16)) & Word(255))


@func
def read_pattern(registers: Ints1, memory: Bytes1) -> None:
    """Runs F002: loads sixteen bytes, four per word."""
    for number in range(4):
        word = wp.int32(0)
        for offset in range(4):
            address = registers[INDEX] + 4 * number + offset
            word |= read_byte(memory, address) << (8 * offset)
        registers[PATTERN + number] = word


@func
def write_decimal(registers: Ints1, memory: Bytes1, x: int) -> None:
    """Runs FX33: writes three decimal digits."""
    value, index = registers[x], registers[INDEX]
    write_byte(memory, index, value // 100)
    write_byte(memory, index + 1, value // 10 % 10)
    write_byte(memory, index + 2, value % 10)


@func
def move_registers(registers: Ints1, memory: Bytes1, x: int, nn: int, quirks: int) -> None:
    """Runs FX55 and FX65: stores or loads V0 to VX."""
    index = registers[INDEX]
    for register in range(x + 1):
        if nn == 0x55:
            write_byte(memory, index + register, registers[register])
        else:
            registers[register] = read_byte(memory, index + register)
    if quirks & MEMORY_MOVES_INDEX:
        registers[INDEX] = (index + x + 1) & 0xFFFF


@func
def save_registers(registers: Ints1, x: int, nn: int) -> None:
    """Runs FX75 and FX85: saves or restores V0 to VX."""
    for register in range(x + 1):
        if nn == 0x75:
            registers[SAVED + register] = registers[register]
        else:
            registers[register] = registers[SAVED + register]


@func
def set_up(registers: Ints1, memory: Bytes1, at: int, after: int, x: int, nn: int) -> int:
    """Runs F000, F002 and FN01 (N from 0 to 3); other opcodes halt."""
    if nn == 0x00 and x == 0:
        registers[INDEX] = read_word(memory, after)
        return following(memory, after)
    if nn == 0x01 and x < 4:
        registers[SELECTED] = x
        return after
    if nn == 0x02 and x == 0:
        read_pattern(registers, memory)
        return after
    return halt(registers, at, UNKNOWN_OPCODE)


@func
def misc(
    registers: Ints1,
    memory: Bytes1,
    at: int,
    after: int,
    opcode: int,
    keys: int,
    quirks: int,
) -> int:
    """Runs FXNN."""
    x, nn = (opcode >> 8) & 15, opcode & 255
    if nn == 0x07:
        registers[x] = registers[DELAY]
    elif nn == 0x0A:
        return wait_for_key(registers, at, after, x, keys, quirks)
    elif nn == 0x15:
        registers[DELAY] = registers[x]
    elif nn == 0x18:
        registers[SOUND] = registers[x]
    elif nn == 0x1E:
        registers[INDEX] = (registers[INDEX] + registers[x]) & 0xFFFF
    elif nn == 0x29:
        registers[INDEX] = SMALL_FONT + SMALL_FONT_BYTES * (registers[x] & 15)
    elif nn == 0x30:
        registers[INDEX] = LARGE_FONT + LARGE_FONT_BYTES * (registers[x] & 15)
    elif nn == 0x33:
        write_decimal(registers, memory, x)
    elif nn == 0x3A:
        registers[PITCH] = registers[x]
    elif nn == 0x55 or nn == 0x65:
        move_registers(registers, memory, x, nn, quirks)
    elif nn == 0x75 or nn == 0x85:
        save_registers(registers, x, nn)
    else:
        return set_up(registers, memory, at, after, x, nn)
    return after


@func
def draw_sprite(
    registers: Ints1,
    planes: Words1,
    memory: Bytes1,
    doubles: Words1,
    after: int,
    opcode: int,
    quirks: int,
) -> int:
    """Runs DXYN."""
    x, y = registers[x_of(opcode)], registers[y_of(opcode)]
    draw_planes(registers, planes, memory, doubles, x, y, opcode & 15, quirks)
    return after | wp.where((quirks & DRAW_ENDS_FRAME) != 0, ENDS_FRAME, 0)


@func
def execute(
    registers: Ints1,
    planes: Words1,
    memory: Bytes1,
    doubles: Words1,
    at: int,
    keys: int,
    quirks: int,
) -> int:
    """Runs the instruction at an address."""
    opcode = read_word(memory, at)
    group = opcode >> 12
    # Single comparisons let the compiler make a jump table. Each branch extracts its own operands,
    # so not all are computed for every instruction.
    if group == 0x0:
        return system(registers, planes, at, following(memory, at), opcode, quirks)
    if group == 0x1:
        return opcode & 4095
    if group == 0x2:
        return call(registers, at, following(memory, at), opcode & 4095)
    if group == 0x3:
        return skip(memory, following(memory, at), registers[x_of(opcode)] == opcode & 255)
    if group == 0x4:
        return skip(memory, following(memory, at), registers[x_of(opcode)] != opcode & 255)
    if group == 0x5:
        return pair(registers, memory, at, following(memory, at), opcode)
    if group == 0x6:
        registers[x_of(opcode)] = opcode & 255
        return following(memory, at)
    if group == 0x7:
        registers[x_of(opcode)] = (registers[x_of(opcode)] + opcode) & 255
        return following(memory, at)
    if group == 0x8:
        return arithmetic(registers, at, following(memory, at), opcode, quirks)
    if group == 0x9:
        return skip_unequal(registers, memory, at, following(memory, at), opcode)
    if group == 0xA:
        registers[INDEX] = opcode & 4095
        return following(memory, at)
    if group == 0xB:
        added = registers[wp.where((quirks & JUMP_ADDS_X) != 0, x_of(opcode), 0)]
        return wrapped(memory, (opcode & 4095) + added)
    if group == 0xC:
        registers[x_of(opcode)] = draw_random(registers) & opcode & 255
        return following(memory, at)
    if group == 0xD:
        return draw_sprite(
            registers, planes, memory, doubles, following(memory, at), opcode, quirks
        )
    if group == 0xE:
        return skip_by_key(registers, memory, at, following(memory, at), opcode, keys)
    return misc(registers, memory, at, following(memory, at), opcode, keys, quirks)


@func
def run_frame(
    registers: Ints1,
    planes: Words1,
    memory: Bytes1,
    doubles: Words1,
    start: int,
    instructions: int,
    keys: int,
    quirks: int,
) -> int:
    """Runs a frame from an address; the timers count down unless the machine halts."""
    pc = wp.int32(start)
    count = wp.int32(0)
    while count < instructions:
        pc = execute(registers, planes, memory, doubles, pc, keys, quirks)
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
    """Address of a machine's row."""
    return state.ptr + Long(env) * Long(state.shape[1]) * Long(8)


@native(
    """
#if !defined(__CUDA_ARCH__)
for (int place = 0; place < num_bytes; place += 64)
    __builtin_prefetch(reinterpret_cast<const char*>(address) + place, 1);
#endif
"""
)
def prefetch(address: Long, num_bytes: int) -> None:
    """Prefetches memory in the background on a CPU; no effect on a GPU."""
    ...


@kernel
def step_machines(
    actions: Ints1,
    held_keys: Ints1,
    doubles: Words1,
    state: Longs2,
    memory_size: int,
    frames: int,
    instructions: int,
    quirks: int,
) -> None:
    """Runs the frames of a step on a machine with the keys of its button held.

    `doubles` maps each byte to its bits, each doubled.
    """
    env = wp.tid()
    # Arrays with known strides: views of `state` would cost a fifth more.
    row = machine_at(state, env)
    registers = wp.array(ptr=row, shape=(NUM_REGISTERS,), dtype=wp.int32)
    planes = wp.array(ptr=row + Long(FIRST_PLANE_BYTE), shape=(NUM_PLANE_WORDS,), dtype=Word)
    memory = wp.array(ptr=row + Long(FIRST_MEMORY_BYTE), shape=(memory_size,), dtype=wp.uint8)
    # Prefetch the next machine; without it, drawing programs take a fifth longer.
    if env + 1 < state.shape[0]:
        prefetch(machine_at(state, env + 1), PREFETCHED_BYTES)
    doubled = wp.array(ptr=doubles.ptr, shape=(256,), dtype=Word)
    if registers[HALT] != 0:
        return
    keys = held_keys[wp.clamp(actions[env], 0, held_keys.shape[0] - 1)]
    pc = wp.int32(registers[PC])
    frame = wp.int32(0)
    while frame < frames and pc < HALTS:
        pc = run_frame(registers, planes, memory, doubled, pc, instructions, keys, quirks)
        frame += 1
    registers[PC] = pc & ADDRESS


@func
def spread_nibble(bits: Word) -> Word:
    """Lowest four bits as bytes 0 or 1, highest bit in the lowest byte."""
    return (((bits & Word(15)) * Word(0x08040201)) >> Word(3)) & Word(0x01010101)


@kernel
def render_machines(state: Longs2, pixels: Words3) -> None:
    """Writes the shades of a picture row, four bytes per word; launched over machines and rows."""
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
    """Copies snapshots into a mask of machines; launched over machines and lanes."""
    env, lane = wp.tid()
    if not mask[env]:
        return
    slot = wp.clamp(slots[env], 0, bank.shape[0] - 1)
    word = wp.int32(lane)
    while word < state.shape[1]:
        state[env, word] = bank[slot, word]
        word += num_lanes
