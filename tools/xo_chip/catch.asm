; catch: drops fall, one after the other; catch three in the bucket.
;
; The bucket moves left and right by its own width. With every caught drop the water rises by a
; quarter of the screen; a missed one is gone. After the third the water stands at the top, a face
; smiles, and nothing moves any more.

const KEY_LEFT = 7
const KEY_RIGHT = 9
const WIDTH = 16            ; of a column, the bucket and a drop
const LAST_COLUMN = 112
const FALL = 8              ; how far a drop falls at a time
const BUCKET_Y = 48
const QUARTER = 16          ; of the screen
const THIRD_DROP = 16       ; the water's y after it
const FRAMES = 24           ; from one move to the next

; va: the bucket's x    vb, vc: the drop's x and y    vd: the water's y

        high
        va = 64
        vd = 64
        call draw_bucket
        call new_drop

wait:
        v0 = delay
        skip v0 == 0
        jump wait
        v0 = FRAMES
        delay = v0
        call draw_bucket
        v0 = KEY_LEFT
        skip nokey v0
        call go_left
        v0 = KEY_RIGHT
        skip nokey v0
        call go_right
        call draw_bucket
        call draw_drop
        vc += FALL
        skip vc != BUCKET_Y
        jump landed
        call draw_drop
        jump wait

go_left:
        skip va == 0
        va += -WIDTH
        return

go_right:
        skip va == LAST_COLUMN
        va += WIDTH
        return

landed:
        skip va != vb
        call caught
        skip vd != THIRD_DROP
        jump won
        call new_drop
        jump wait

caught:
        vd += -QUARTER
        jump fill           ; which returns

won:
        plane 1
        clear
        vd = 0
        call fill
        plane 1
        v1 = 16
        i = face
        v2 = 32             ; bytes of a quarter of the face
        v3 = 48
        v4 = 64
        v5 = 32
        draw v3, v1, 0
        i += v2
        draw v4, v1, 0
        i += v2
        draw v3, v5, 0
        i += v2
        draw v4, v5, 0
end:
        jump end

fill:                       ; the quarter of the screen below the water's y
        plane 2
        i = full
        v0 = 0
fill_on:
        draw v0, vd, 0
        v0 += WIDTH
        skip v0 == 128
        jump fill_on
        return

new_drop:
        vb = random 0x70    ; one of eight columns
        vc = 0
draw_drop:
        plane 1
        i = drop
        draw vb, vc, 0
        return

draw_bucket:
        plane 1
        i = bucket
        v0 = BUCKET_Y
        draw va, v0, 0
        return

drop:
        pixels ................
        pixels .......##.......
        pixels .......##.......
        pixels ......####......
        pixels ......####......
        pixels .....##.###.....
        pixels .....#..###.....
        pixels ....##.#####....
        pixels ....#..#####....
        pixels ....#.######....
        pixels ....#.######....
        pixels ....########....
        pixels .....######.....
        pixels ......####......
        pixels ................
        pixels ................

bucket:
        pixels ................
        pixels ................
        pixels ################
        pixels #..............#
        pixels ################
        pixels .##############.
        pixels .##..########.#.
        pixels .##..########.#.
        pixels ..##.#######.#..
        pixels ..##.#######.#..
        pixels ..##.#######.#..
        pixels ...#########.#..
        pixels ...##########...
        pixels ...##########...
        pixels ....########....
        pixels ................

full:
        bytes 255, 255, 255, 255, 255, 255, 255, 255
        bytes 255, 255, 255, 255, 255, 255, 255, 255
        bytes 255, 255, 255, 255, 255, 255, 255, 255
        bytes 255, 255, 255, 255, 255, 255, 255, 255

face:                       ; its quarters: upper left, upper right, lower left, lower right
        pixels ............####
        pixels .........#######
        pixels .......#########
        pixels ......##########
        pixels .....###########
        pixels ....############
        pixels ...#############
        pixels ..##############
        pixels ..######...#####
        pixels .######.....####
        pixels .######.....####
        pixels .######.....####
        pixels ########...#####
        pixels ################
        pixels ################
        pixels ################

        pixels ####............
        pixels #######.........
        pixels #########.......
        pixels ##########......
        pixels ###########.....
        pixels ############....
        pixels #############...
        pixels ##############..
        pixels #####...######..
        pixels ####.....######.
        pixels ####.....######.
        pixels ####.....######.
        pixels #####...########
        pixels ################
        pixels ################
        pixels ################

        pixels ################
        pixels ################
        pixels #####.##########
        pixels #####..#########
        pixels .#####..########
        pixels .######..#######
        pixels .#######...#####
        pixels ..########......
        pixels ..##########....
        pixels ...#############
        pixels ....############
        pixels .....###########
        pixels ......##########
        pixels .......#########
        pixels .........#######
        pixels ............####

        pixels ################
        pixels ################
        pixels ##########.#####
        pixels #########..#####
        pixels ########..#####.
        pixels #######..######.
        pixels #####...#######.
        pixels ......########..
        pixels ....##########..
        pixels #############...
        pixels ############....
        pixels ###########.....
        pixels ##########......
        pixels #########.......
        pixels #######.........
        pixels ####............
