"""Warp kernels of observation, reward and reset, bit for bit equal to `torch_ops`.

A tile a of 8 x 8 pixels is two 64-bit words, a0 and a1, with the lower and upper bits of its
shades, so shades and distances are counted by tile. The distance of tiles a and b, the sum of
|a - b| over their pixels, is pop(x0) + 2·pop(x1) - 2·pop(x0 & x1 & (a0 ^ a1)) with x0 = a0 ^ b0,
x1 = a1 ^ b1, and pop the number of set bits; the sum of squares is similar.
"""

from entity_env.games.pixel.entities import NUM_TILE
from entity_env.games.pixel.warp_utils.typing import (
    Flags1,
    Floats1,
    Floats2,
    Ints1,
    Long,
    Longs2,
    Word,
    func,
    kernel,
    wp,
)

# Products and sums round separately, as in torch, even if a device could fuse them.
wp.set_module_options({"fuse_fp": False})

# Lower bit of every pair.
_PAIRS = 0x5555555555555555
# Feature indices of a tile, and of the screen.
_SHADES = 2
_DISTANCE = 6
_DIST = 0
_MATCH = 1
_TIME = 2


@func
def row_at(rows: Longs2, row: int) -> Long:
    """Address of a row."""
    return rows.ptr + Long(row) * Long(rows.shape[1]) * Long(8)


@func
def word_at(address: Long) -> Long:
    """Word at an address; cheaper than arrays, which have strides and bounds."""
    return wp.array(ptr=address, shape=(1,), dtype=Long)[0]


@func
def four_rows(address: Long, row_bytes: Long) -> Long:
    """Four rows of eight one-byte pixels, as the four bit pairs of every byte."""
    pairs = word_at(address)
    pairs |= word_at(address + row_bytes) << Long(2)
    pairs |= word_at(address + Long(2) * row_bytes) << Long(4)
    pairs |= word_at(address + Long(3) * row_bytes) << Long(6)
    return pairs


@func
def push(screen: Long, stack: Long, size: int, num_screens: int, lane: int) -> None:
    """Pushes a screen of `size` words on the stack."""
    for k in range(num_screens):
        target = stack + Long(8) * Long(size) * Long(k)
        source = target + Long(8) * Long(size)
        if k == num_screens - 1:
            source = screen
        given = wp.array(ptr=source, shape=(size,), dtype=Long)
        taken = wp.array(ptr=target, shape=(size,), dtype=Long)
        word = wp.int32(lane)
        while word < size:
            taken[word] = given[word]
            word += wp.block_dim()


@func
def count_set_bits(bits: Long) -> int:
    """Number of set bits."""
    return wp.int32(wp.bit_count(bits))


@func
def distance_of(low: Long, high: Long, goal_low: Long, goal_high: Long, squared: int) -> int:
    """Distance of a tile from the goal's tile, summed over pixels."""
    x0, x1 = low ^ goal_low, high ^ goal_high
    # If both bits differ, the shades are 1 and 2 or 0 and 3.
    near, far = x0 & x1 & (low ^ high), x0 & x1 & ~(low ^ high)
    if squared != 0:
        return (
            count_set_bits(x0)
            + 4 * count_set_bits(x1)
            - 4 * count_set_bits(near)
            + 4 * count_set_bits(far)
        )
    return count_set_bits(x0) + 2 * count_set_bits(x1) - 2 * count_set_bits(near)


@func
def write_tile(address: Long, low: Long, high: Long, distance: int) -> None:
    """Writes a tile's pixels of each shade, and its distance."""
    features = wp.array(ptr=address, shape=(NUM_TILE,), dtype=wp.float32)
    both = count_set_bits(low & high)
    ones, twos = count_set_bits(low) - both, count_set_bits(high) - both
    features[_SHADES] = wp.float32(64 - ones - twos - both)
    features[_SHADES + 1] = wp.float32(ones)
    features[_SHADES + 2] = wp.float32(twos)
    features[_SHADES + 3] = wp.float32(both)
    features[_DISTANCE] = wp.float32(distance)


@func
def measure_tile(
    tile: int, screen: Long, columns: int, goal: Long, squared: int, features: Long
) -> int:
    """Writes the features of a screen's tile; returns its distance."""
    row_bytes = Long(8) * Long(columns)
    line, column = Word(tile) // Word(columns), Word(tile) % Word(columns)
    corner = screen + Long(8) * (row_bytes * Long(line) + Long(column))
    upper = four_rows(corner, row_bytes)
    lower = four_rows(corner + Long(4) * row_bytes, row_bytes)
    low = (upper & Long(_PAIRS)) | ((lower & Long(_PAIRS)) << Long(1))
    high = ((upper >> Long(1)) & Long(_PAIRS)) | (lower & ~Long(_PAIRS))
    target = goal + Long(16) * Long(tile)
    distance = distance_of(low, high, word_at(target), word_at(target + Long(8)), squared)
    write_tile(features + Long(4 * NUM_TILE) * Long(tile), low, high, distance)
    return distance


@kernel
def observe_screens(
    screens: Longs2,
    columns: int,
    goal: Longs2,
    squared: int,
    stack: Longs2,
    tiles: Floats2,
    sums: Ints1,
) -> None:
    """Pushes and measures screens; launched over environments and the threads of a block.

    The threads of a block share a screen. Rows are flat, one per environment. The goal, with one
    row per environment or one for all, holds the two planes of each tile.
    """
    env, lane = wp.tid()
    size, num_screens = screens.shape[1], stack.shape[1] // screens.shape[1]
    screen, target = row_at(screens, env), row_at(goal, wp.min(env, goal.shape[0] - 1))
    features = tiles.ptr + Long(env) * Long(tiles.shape[1]) * Long(4)
    push(screen, row_at(stack, env), size, num_screens, lane)
    total = wp.int32(0)
    tile = wp.int32(lane)
    while 8 * tile < size:
        total += measure_tile(tile, screen, columns, target, squared, features)
        tile += wp.block_dim()
    wp.tile_store(sums, wp.tile_sum(wp.tile(total)), offset=(env,))


@kernel
def judge_steps(
    sums: Ints1,
    divisor: float,
    threshold: int,
    match_k: int,
    max_steps: int,
    step_cost: float,
    alpha: float,
    goal_bonus: float,
    prev_dist: Floats1,
    match_count: Ints1,
    episode_step: Ints1,
    dist: Floats1,
    reward: Floats1,
    terminated: Flags1,
    truncated: Flags1,
    ended: Flags1,
    screen: Floats2,
) -> None:
    """Computes counters, flags and rewards; launched over environments."""
    env = wp.tid()
    now = wp.float32(sums[env]) / divisor
    matches = wp.where(sums[env] < threshold, wp.min(match_count[env] + 1, match_k), 0)
    steps = wp.min(episode_step[env] + 1, max_steps)
    is_done, is_late = matches >= match_k, steps >= max_steps
    shaped = (prev_dist[env] - now) * alpha + step_cost
    reward[env] = shaped + wp.where(is_done, 1.0, 0.0) * goal_bonus
    dist[env] = now
    prev_dist[env] = now
    match_count[env] = matches
    episode_step[env] = steps
    terminated[env] = is_done
    truncated[env] = is_late
    ended[env] = is_done or is_late
    screen[env, _DIST] = now
    screen[env, _MATCH] = wp.float32(matches) / wp.float32(match_k)
    screen[env, _TIME] = wp.float32(steps) / wp.float32(max_steps)


@func
def show_start(
    env: int,
    start: int,
    own: int,
    screens: Longs2,
    start_tiles: Floats2,
    stack: Longs2,
    tiles: Floats2,
    lane: int,
    num_lanes: int,
) -> None:
    """Fills the stack with an initial screen and copies its tiles."""
    word = wp.int32(lane)
    while word < stack.shape[1]:
        stack[env, word] = screens[start, word % screens.shape[1]]
        word += num_lanes
    feature = wp.int32(lane)
    while feature < tiles.shape[1]:
        tiles[env, feature] = start_tiles[own, feature]
        feature += num_lanes


@kernel
def begin_episodes(
    mask: Flags1,
    screens: Longs2,
    start_tiles: Floats2,
    start_dist: Floats1,
    offset: Ints1,
    per_start: int,
    stack: Longs2,
    tiles: Floats2,
    screen: Floats2,
    prev_dist: Floats1,
    episode_step: Ints1,
    match_count: Ints1,
    slot: Ints1,
    arrived: Ints1,
    num_lanes: int,
) -> None:
    """Starts episodes in a mask and advances the slots; launched over environments and lanes."""
    env, lane = wp.tid()
    if not mask[env]:
        return
    start = wp.int32(slot[env])
    own = start * per_start + offset[env]
    show_start(env, start, own, screens, start_tiles, stack, tiles, lane, num_lanes)
    # Only the last lane continues: by then the others have read the slot.
    if wp.atomic_add(arrived, env, 1) < num_lanes - 1:
        return
    arrived[env] = 0
    slot[env] = (start + 1) % screens.shape[0]
    prev_dist[env] = start_dist[own]
    screen[env, _DIST] = start_dist[own]
    screen[env, _MATCH] = 0.0
    screen[env, _TIME] = 0.0
    episode_step[env] = 0
    match_count[env] = 0
