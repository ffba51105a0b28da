; maze: walk from @@, the upper left, to the flag at the lower right.
;
; Every place that was walked on stays lit. At the flag the whole way from the start glows, all else
; goes dark, and nothing moves any more.

const KEY_UP = 5
const KEY_DOWN = 8
const KEY_LEFT = 7
const KEY_RIGHT = 9
const NORTH = 1             ; which sides of a place have a wall
const EAST = 2
const SOUTH = 4
const WEST = 8
const FLAG_X = 112
const FLAG_Y = 48
const FLAG = 31             ; the number of its place
const FRAMES = 24           ; from one move to the next

; vc, vd: the figure's x and y    ve: the number of its place

        high
        call draw_walls
        vc = FLAG_X
        vd = FLAG_Y
        plane 2
        i = flag
        draw vc, vd, 0
        vc = 0
        vd = 0
        ve = 0
        call leave_light
        call draw_figure

wait:
        v0 = delay
        skip v0 == 0
        jump wait
        i = walls
        i += ve
        load v0
        v1 = KEY_UP
        skip nokey v1
        jump north
        v1 = KEY_DOWN
        skip nokey v1
        jump south
        v1 = KEY_LEFT
        skip nokey v1
        jump west
        v1 = KEY_RIGHT
        skip nokey v1
        jump east
        jump wait

north:
        v1 = NORTH
        v2 = 0
        v3 = -16
        v4 = -8
        jump move
east:
        v1 = EAST
        v2 = 16
        v3 = 0
        v4 = 1
        jump move
south:
        v1 = SOUTH
        v2 = 0
        v3 = 16
        v4 = 8
        jump move
west:
        v1 = WEST
        v2 = -16
        v3 = 0
        v4 = -1

move:                       ; v0: the walls here    v1: the side    v2, v3, v4: how far
        v0 &= v1
        skip v0 == 0
        jump wait
        v0 = FRAMES
        delay = v0
        call draw_figure
        vc += v2
        vd += v3
        ve += v4
        skip ve != FLAG
        jump won
        call leave_light
        call draw_figure
        jump wait

won:
        plane 2
        clear
        call light_way
        plane 1
        call light_way
        plane 2
        call flip_figure
end:
        jump end

draw_figure:
        plane 1
flip_figure:
        i = figure
        draw vc, vd, 0
        return

leave_light:                ; drawing twice leaves what was lit as it was
        plane 2
        i = floor
        draw vc, vd, 0
        skip vf == 0
        draw vc, vd, 0
        return

light_way:
        v5 = 0
light_on:
        i = way
        i += v5
        load v1
        i = floor
        draw v0, v1, 0
        v5 += 2
        skip v5 == way_end - way
        jump light_on
        return

draw_walls:
        v2 = 0              ; the number of the place
        v3 = 0              ; its x and y
        v4 = 0
        v5 = 32             ; bytes of a sprite
draw_place:
        i = walls
        i += v2
        load v0
        i = corners
        draw v3, v4, 0
        i += v5
        v0 = v0 >> 1
        skip vf == 0
        draw v3, v4, 0      ; north
        i += v5
        v0 = v0 >> 1
        skip vf == 0
        draw v3, v4, 0      ; east
        i += v5
        v0 = v0 >> 1
        skip vf == 0
        draw v3, v4, 0      ; south
        i += v5
        v0 = v0 >> 1
        skip vf == 0
        draw v3, v4, 0      ; west
        v2 += 1
        v3 += 16
        skip v3 == 128
        jump draw_place
        v3 = 0
        v4 += 16
        skip v4 == 64
        jump draw_place
        return

;  +--+--+--+--+--+--+--+--+
;  |@@|   ** ** **|        |
;  +  +--+  +--+  +  +--+--+
;  |** ** **|  |**|  |     |
;  +--+--+--+  +  +  +  +  +
;  |  |     |** **|     |  |
;  +  +  +  +  +--+--+--+  +
;  |     |   ** ** ** ** **
;  +--+--+--+--+--+--+--+--+
walls:
        bytes 0xB, 0xD, 0x1, 0x5, 0x3, 0x9, 0x5, 0x7
        bytes 0xC, 0x5, 0x6, 0xB, 0xA, 0xA, 0x9, 0x3
        bytes 0xB, 0x9, 0x3, 0x8, 0x6, 0xC, 0x6, 0xA
        bytes 0xC, 0x6, 0xC, 0x4, 0x5, 0x5, 0x5, 0x4

way:                        ; x and y of each place from the start to the flag
        bytes 0, 0, 0, 16, 16, 16, 32, 16, 32, 0, 48, 0, 64, 0, 64, 16
        bytes 64, 32, 48, 32, 48, 48, 64, 48, 80, 48, 96, 48, 112, 48
way_end:

figure:
        pixels ................
        pixels ......####......
        pixels .....######.....
        pixels .....######.....
        pixels .....######.....
        pixels ......####......
        pixels ...##########...
        pixels ..############..
        pixels ..##.######.##..
        pixels ..##.######.##..
        pixels .....######.....
        pixels .....##..##.....
        pixels .....##..##.....
        pixels .....##..##.....
        pixels ....###..###....
        pixels ................

flag:
        pixels ................
        pixels ...##...........
        pixels ...#####........
        pixels ...########.....
        pixels ...###########..
        pixels ...###########..
        pixels ...########.....
        pixels ...#####........
        pixels ...##...........
        pixels ...##...........
        pixels ...##...........
        pixels ...##...........
        pixels ...##...........
        pixels ...##...........
        pixels .######.........
        pixels ................

floor:
        pixels ................
        pixels .##############.
        pixels .##############.
        pixels .##############.
        pixels .##############.
        pixels .##############.
        pixels .##############.
        pixels .##############.
        pixels .##############.
        pixels .##############.
        pixels .##############.
        pixels .##############.
        pixels .##############.
        pixels .##############.
        pixels .##############.
        pixels ................

corners:
        pixels #..............#
        bytes 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
        bytes 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
        pixels #..............#
        ; north
        pixels .##############.
        bytes 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
        bytes 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
        pixels ................
        ; east
        pixels ................
        bytes 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1
        bytes 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1
        pixels ................
        ; south
        pixels ................
        bytes 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
        bytes 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
        pixels .##############.
        ; west
        pixels ................
        bytes 128, 0, 128, 0, 128, 0, 128, 0, 128, 0, 128, 0, 128, 0
        bytes 128, 0, 128, 0, 128, 0, 128, 0, 128, 0, 128, 0, 128, 0
        pixels ................
