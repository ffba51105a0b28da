"""Effect of every opcode on a machine, quirk by quirk."""

import numpy as np
import pytest

from entity_env.games.pixel.xo_chip import CHIP8, SUPERCHIP, XOCHIP, Halt, Quirks
from entity_env.games.pixel.xo_chip.quirks import font
from tests.games.pixel.xo_chip.plain_machine import PlainMachine
from tests.games.pixel.xo_chip.reference_machines import DIALECTS, after, ran
from tools.assemble import assemble

V = {f"v{number:x}": number for number in range(16)}


def registers(machine: PlainMachine, names: str) -> list[int]:
    return [machine.v[V[name]] for name in names.split()]


@pytest.mark.parametrize("quirks", DIALECTS)
@pytest.mark.parametrize(
    ("statement", "v0", "v1"),
    [
        ("v0 = 0xF0", 0xF0, 0x3C),
        ("v0 += 0xF0", 0x98, 0x3C),
        ("v0 = v1", 0x3C, 0x3C),
        ("v0 |= v1", 0xBC, 0x3C),
        ("v0 &= v1", 0x28, 0x3C),
        ("v0 ^= v1", 0x94, 0x3C),
        ("v0 += v1", 0xE4, 0x3C),
        ("v0 -= v1", 0x6C, 0x3C),
        ("v0 = v1 - v0", 0x94, 0x3C),
        ("v1 -= v0", 0xA8, 0x94),
    ],
)
def test_arithmetic(quirks: Quirks, statement: str, v0: int, v1: int) -> None:
    machine = ran(f"v0 = 0xA8\nv1 = 0x3C\n{statement}\nexit", quirks)
    assert registers(machine, "v0 v1") == [v0, v1]


@pytest.mark.parametrize(
    ("statement", "a", "b", "result", "flag"),
    [
        ("v0 += v1", 200, 55, 255, 0),
        ("v0 += v1", 200, 56, 0, 1),
        ("v0 -= v1", 7, 7, 0, 1),
        ("v0 -= v1", 7, 8, 255, 0),
        ("v0 = v1 - v0", 7, 7, 0, 1),
        ("v0 = v1 - v0", 8, 7, 255, 0),
        ("v0 = v1 >> 1", 0, 0x81, 0x40, 1),
        ("v0 = v1 >> 1", 0, 0x80, 0x40, 0),
        ("v0 = v1 << 1", 0, 0x81, 0x02, 1),
        ("v0 = v1 << 1", 0, 0x7F, 0xFE, 0),
    ],
)
def test_the_flag_of_arithmetic(statement: str, a: int, b: int, result: int, flag: int) -> None:
    machine = ran(f"vf = 9\nv0 = {a}\nv1 = {b}\n{statement}\nexit")
    assert registers(machine, "v0 vf") == [result, flag]


@pytest.mark.parametrize(
    ("statement", "flag"),
    [("vf += v1", 1), ("vf -= v1", 1), ("vf = v1 - vf", 0), ("vf = v1 >> 1", 0)],
)
def test_the_flag_wins_where_it_is_the_result(statement: str, flag: int) -> None:
    assert ran(f"vf = 250\nv1 = 16\n{statement}\nexit").v[15] == flag


def test_the_flag_may_be_the_second_operand() -> None:
    assert registers(ran("v0 = 250\nvf = 16\nv0 += vf\nexit"), "v0 vf") == [10, 1]


def test_adding_a_number_keeps_the_flag() -> None:
    assert registers(ran("vf = 9\nv0 = 255\nv0 += 2\nexit"), "v0 vf") == [1, 9]


@pytest.mark.parametrize("operator", ["|=", "&=", "^="])
@pytest.mark.parametrize(("clears", "flag"), [(True, 0), (False, 9)])
def test_quirk_logic_clears_flag(operator: str, clears: bool, flag: int) -> None:
    quirks = Quirks(logic_clears_flag=clears)
    assert ran(f"vf = 9\nv0 {operator} v1\nexit", quirks).v[15] == flag


@pytest.mark.parametrize(
    ("in_place", "statement", "result", "flag"),
    [
        (False, "v0 = v1 >> 1", 0x20, 1),
        (True, "v0 = v1 >> 1", 0x41, 0),
        (False, "v0 = v1 << 1", 0x82, 0),
        (True, "v0 = v1 << 1", 0x04, 1),
    ],
)
def test_quirk_shift_in_place(in_place: bool, statement: str, result: int, flag: int) -> None:
    quirks = Quirks(shift_in_place=in_place)
    machine = ran(f"v0 = 0x82\nv1 = 0x41\n{statement}\nexit", quirks)
    assert registers(machine, "v0 vf") == [result, flag]


@pytest.mark.parametrize(
    ("condition", "is_true"),
    [
        ("v0 == 7", True),
        ("v0 == 8", False),
        ("v0 != 8", True),
        ("v0 != 7", False),
        ("v0 == v1", True),
        ("v0 == v2", False),
        ("v0 != v2", True),
        ("v0 != v1", False),
        ("key v0", True),
        ("key v2", False),
        ("nokey v2", True),
        ("nokey v0", False),
        ("key v3", True),  # only the low four bits select the key
    ],
)
@pytest.mark.parametrize("skipped", ["v5 = 1", "i = long 0x6501"])  # 6501 is v5 = 1
def test_skips_a_whole_instruction(condition: str, is_true: bool, skipped: str) -> None:
    machine = ran(
        f"v0 = 7\nv1 = 7\nv2 = 8\nv3 = 0x17\nskip {condition}\n{skipped}\nv4 = 1\nexit",
        keys=1 << 7,
    )
    was_run = machine.v[5] == 1 or machine.index == 0x6501
    assert was_run is not is_true
    assert machine.v[4] == 1


def test_jump_call_and_return() -> None:
    machine = ran(
        """
            call first
            v2 = 1
            jump end
        first:
            v0 = 1
            call second
            v3 = 1
            return
        second:
            v1 = 1
            return
        end:
            exit
        """
    )
    assert registers(machine, "v0 v1 v2 v3") == [1, 1, 1, 1]
    assert machine.stack == []


@pytest.mark.parametrize(("adds_x", "landed"), [(False, 1), (True, 2)])
def test_quirk_jump_adds_x(adds_x: bool, landed: int) -> None:
    text = """
        v0 = 4
        v2 = 8
        jump v0 + there
    there:
        exit
        exit
        v5 = 1
        exit
        v5 = 2
        exit
    """
    assert ran(text, Quirks(jump_adds_x=adds_x)).v[5] == landed


def test_a_jump_past_the_end_wraps() -> None:
    text = "v0 = 255\njump v0 + 0xFFF"
    assert after(text, CHIP8, instructions=2).pc == 0x0FE
    assert after(text, XOCHIP, instructions=2).pc == 0x10FE


@pytest.mark.parametrize(
    ("statement", "index"),
    [("i = 0xABC", 0xABC), ("i = long 0xABCD", 0xABCD), ("i += v0", 0xABD)],
)
def test_the_index(statement: str, index: int) -> None:
    assert ran(f"v0 = 5\ni = 0xAB8\n{statement}\nexit").index == index


def test_the_index_wraps_and_leaves_the_flag() -> None:
    machine = ran("vf = 9\nv0 = 3\ni = long 0xFFFE\ni += v0\nexit", SUPERCHIP)
    assert machine.index == 1
    assert machine.v[15] == 9


def test_fonts_show_the_low_digit() -> None:
    small, large = ran("v0 = 0x1A\ni = digit v0\nexit"), ran("v0 = 0x1A\ni = bigdigit v0\nexit")
    assert small.memory[small.index : small.index + 5].hex() == "f090f09090"
    assert large.memory[large.index : large.index + 4].hex() == "ffffc3c3"
    assert large.memory[: len(font())] == font()


@pytest.mark.parametrize(("number", "digits"), [(0, [0, 0, 0]), (207, [2, 0, 7]), (65, [0, 6, 5])])
def test_decimal_digits(number: int, digits: list[int]) -> None:
    machine = ran(f"i = 0x400\nv3 = {number}\nbcd v3\nexit")
    assert list(machine.memory[0x400:0x403]) == digits
    assert machine.index == 0x400


@pytest.mark.parametrize(("moves", "index"), [(True, 0x403), (False, 0x400)])
def test_quirk_memory_moves_index(moves: bool, index: int) -> None:
    quirks = Quirks(memory_moves_index=moves)
    saved = ran("v0 = 5\nv1 = 6\nv2 = 7\nv3 = 8\ni = 0x400\nsave v2\nexit", quirks)
    assert list(saved.memory[0x400:0x404]) == [5, 6, 7, 0]
    loaded = ran(
        "v3 = 8\ni = 0x400\nload v2\nexit\n" + "bytes 0\n" * 504 + "bytes 5, 6, 7, 9", quirks
    )
    assert registers(loaded, "v0 v1 v2 v3") == [5, 6, 7, 8]
    assert saved.index == loaded.index == index


def test_ranges_of_registers_run_in_their_order_and_keep_the_index() -> None:
    machine = ran(
        """
        v3 = 30
        v4 = 40
        v5 = 50
        i = 0x400
        save v3 .. v5
        load v5 .. v3
        i = 0x410
        save v5 .. v3
        load v7 .. v7
        exit
        """
    )
    assert list(machine.memory[0x400:0x404]) == [30, 40, 50, 0]
    assert list(machine.memory[0x410:0x414]) == [30, 40, 50, 0]
    assert registers(machine, "v3 v4 v5 v6 v7") == [50, 40, 30, 0, 30]
    assert machine.index == 0x410


@pytest.mark.parametrize("quirks", [CHIP8, XOCHIP])
def test_memory_wraps(quirks: Quirks) -> None:
    machine = ran(
        "v0 = 1\nv1 = 2\nv2 = 3\ni = long 0xFFFE\nsave v0 .. v2\nload v3 .. v5\nexit", quirks
    )
    assert machine.memory[-2:] + machine.memory[:1] == b"\1\2\3"
    assert registers(machine, "v3 v4 v5") == [1, 2, 3]
    assert len(machine.memory) == quirks.memory_size


def test_a_sprite_may_lie_around_the_end_of_memory() -> None:
    machine = ran(
        "v0 = 0x80\nv1 = 0x40\ni = long 0xFFFF\nsave v0 .. v1\nv2 = 0\nhigh\ndraw v2, v2, 2\nexit"
    )
    assert np.argwhere(machine.pixels()).tolist() == [[0, 0], [1, 1]]


def test_an_instruction_may_lie_around_the_end_of_memory() -> None:
    text = "v0 = 0x65\nv1 = 0x77\ni = 0xFFF\nsave v0 .. v1\nv0 = 0\njump 0xFFF"
    machine = after(text, CHIP8, instructions=7)
    assert machine.v[5] == 0x77
    assert machine.pc == 1


def test_saved_registers() -> None:
    machine = ran("v0 = 1\nvf = 2\nkeep vf\nv0 = 3\nvf = 4\nrecall v0\nexit")
    assert registers(machine, "v0 vf") == [1, 4]
    assert machine.saved == [1, *14 * [0], 2]


def test_random_numbers_are_masked_and_those_of_xorshift() -> None:
    text = "v0 = random 0xFF\nv1 = random 0xFF\nv2 = random 0x0F\nexit"
    state, expected = 12345, []
    for mask in (0xFF, 0xFF, 0x0F):
        state ^= (state << 13) % 2**32
        state ^= state >> 17
        state ^= (state << 5) % 2**32
        expected.append(state >> 16 & mask)
    machine = PlainMachine(assemble(text), seed=12345)
    machine.step(0, frames=1, instructions=4)
    assert registers(machine, "v0 v1 v2") == expected
    assert machine.random == state


def test_sound_is_state_alone() -> None:
    machine = ran(
        "i = tone\naudio\nv0 = 70\npitch = v0\nsound = v0\nexit\ntone:\n" + "bytes 1, 2, 3, 4\n" * 4
    )
    assert machine.pattern == b"\1\2\3\4" * 4
    assert machine.pitch == 70
    assert machine.sound == 70


def test_timers_count_down_once_a_frame_to_zero() -> None:
    machine = after("v0 = 3\ndelay = v0\nsound = v0\nend: jump end", frames=2, instructions=9)
    assert (machine.delay, machine.sound) == (1, 1)
    machine.step(0, frames=5, instructions=9)
    assert (machine.delay, machine.sound) == (0, 0)


def test_reading_the_timer() -> None:
    assert after("v0 = 9\ndelay = v0\nv1 = delay", instructions=3).v[1] == 9
    assert after("v0 = 9\ndelay = v0\nv1 = delay", frames=3, instructions=1).v[1] == 8


def test_a_key_that_is_held_is_taken_at_once_without_waiting_for_release() -> None:
    quirks = Quirks(key_on_release=False)
    machine = after("v3 = key\nexit", quirks, frames=9, instructions=9)
    assert (machine.pc, machine.halt) == (0x200, Halt.RUNNING)
    machine.step(0b1010_0000, frames=1, instructions=2)
    assert machine.v[3] == 5
    assert machine.halt is Halt.EXIT


def test_quirk_key_on_release() -> None:
    machine = after("v3 = key\nexit", Quirks(key_on_release=True), frames=9, instructions=9)
    for keys in (0b1010_0000, 0b1010_0000, 0b0010_0001):
        machine.step(keys, frames=2, instructions=9)
        assert (machine.pc, machine.v[3], machine.awaited) == (0x200, 0, 5)
    machine.step(0b0000_0001, frames=1, instructions=2)
    assert (machine.v[3], machine.awaited, machine.halt) == (5, None, Halt.EXIT)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_dialect_waits_for_the_release_of_a_key(dialect: Quirks) -> None:
    machine = after("v3 = key\nexit", dialect, frames=9, instructions=9)
    machine.step(0b10_0000, frames=2, instructions=9)
    assert (machine.v[3], machine.awaited) == (0, 5)
    machine.step(0, frames=1, instructions=2)
    assert (machine.v[3], machine.halt) == (5, Halt.EXIT)


def test_timers_run_while_waiting_for_a_key() -> None:
    assert after("v0 = 9\ndelay = v0\nv0 = key", frames=4, instructions=5).delay == 5


@pytest.mark.parametrize(("ends", "drawn"), [(True, 3), (False, 5)])
def test_quirk_draw_ends_frame(ends: bool, drawn: int) -> None:
    text = "loop:\ndraw v0, v0, 1\nv1 += 1\njump loop"
    machine = after(text, Quirks(draw_ends_frame=ends), frames=4, instructions=4)
    assert machine.v[1] == drawn
