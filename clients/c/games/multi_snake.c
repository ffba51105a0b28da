/* Multi-snake: several snakes share a board, and each head is an actor; called for each step. The
   rules are those of entity_env.games.multi_snake. */

#define ENTITY_ENV_IMPLEMENTATION
#include "../entity_env.h"

#define MAX_SIZE 64
#define MAX_CELLS (MAX_SIZE * MAX_SIZE)
#define MAX_SNAKES (MAX_CELLS / 3) /* each has two cells or more, and food */

enum { HEAD, SEGMENT, FOOD };
enum { MOVE };
enum { BOARD_SIZE, NUM_SNAKES, MAX_SNAKE_LENGTH, MAX_STEP };
enum { FREE = -2, BLOCKED = -1 }; /* content of a cell; otherwise the color of its food */

static const char *const features[] = {"x", "y", "color", NULL};
static const ee_entity entities[] = {{"Head", features}, {"Segment", features}, {"Food", features}};
static const char *const global_features[] = {"step", NULL};
static const char *const moves[] = {"UP", "DOWN", "LEFT", "RIGHT", NULL};
static const ee_action actions[] = {{"Move", EE_CATEGORICAL, moves, 0, NULL, NULL}};
static ee_setting settings[] = {
    {"board_size", EE_INT, 10},
    {"num_snakes", EE_INT, 2},
    {"max_snake_length", EE_INT, 11},
    {"max_step", EE_INT, 180},
};

typedef struct {
    short cell, color;
    short next; /* the segment that follows toward the head */
} segment;

typedef struct {
    short head, food; /* cells */
    short length, tail, neck; /* length with the head; first and last segment of the body */
} snake;

typedef struct {
    ee_random random;
    int size, num_snakes, max_length, max_step, step, num_eaten, num_segments;
    short cells[MAX_CELLS];
    snake snakes[MAX_SNAKES];
    segment segments[MAX_CELLS]; /* of all bodies, in the order in which they grew */
} board;

static short free_cell(board *b) {
    uint32_t cell;
    do cell = ee_below(&b->random, (uint32_t)(b->size * b->size));
    while (b->cells[cell] != FREE);
    return (short)cell;
}

static void place_food(board *b, int color) {
    b->snakes[color].food = free_cell(b);
    b->cells[b->snakes[color].food] = (short)color;
}

static void add(ee_agent *agent, int entity, const board *b, int cell, int color) {
    float values[3];
    values[0] = (float)(cell / b->size);
    values[1] = (float)(cell % b->size);
    values[2] = (float)color;
    ee_add(agent, entity, values);
}

static ee_agent *show(ee_copy *copy, const board *b) {
    ee_agent *agent = ee_agent_of(copy, 0);
    float step = (float)b->step;
    int i;
    ee_observe(agent, (double)b->num_eaten / ((b->max_length - 1) * b->num_snakes));
    ee_globals(agent, &step);
    for (i = 0; i < b->num_snakes; i++) add(agent, HEAD, b, b->snakes[i].head, i);
    for (i = 0; i < b->num_segments; i++) {
        add(agent, SEGMENT, b, b->segments[i].cell, b->segments[i].color);
    }
    for (i = 0; i < b->num_snakes; i++) add(agent, FOOD, b, b->snakes[i].food, i);
    for (i = 0; i < b->num_snakes; i++) ee_actor(agent, MOVE, HEAD, i);
    return agent;
}

static void start(ee_copy *copy, uint64_t seed) {
    board *b = (board *)ee_state(copy);
    int i;
    b->random.state = seed;
    b->size = (int)settings[BOARD_SIZE].value;
    b->num_snakes = (int)settings[NUM_SNAKES].value;
    b->max_length = (int)settings[MAX_SNAKE_LENGTH].value;
    b->max_step = (int)settings[MAX_STEP].value;
    b->step = b->num_eaten = b->num_segments = 0;
    for (i = 0; i < b->size * b->size; i++) b->cells[i] = FREE;
    for (i = 0; i < b->num_snakes; i++) {
        b->snakes[i].length = 1;
        b->snakes[i].head = free_cell(b);
        b->cells[b->snakes[i].head] = BLOCKED;
    }
    for (i = 0; i < b->num_snakes; i++) place_food(b, i);
    ee_wait(show(copy, b));
}

/* Adds a segment where the head is. */
static void grow(board *b, int color) {
    snake *s = &b->snakes[color];
    short added = (short)b->num_segments++;
    b->segments[added].cell = s->head;
    b->segments[added].color = (short)color;
    if (s->length++ == 1) {
        s->tail = added;
    } else {
        b->segments[s->neck].next = added;
    }
    s->neck = added;
    b->num_eaten++;
}

/* Moves the tail to where the head is, and frees its cell. */
static void follow(board *b, snake *s) {
    short moved = s->tail;
    if (s->length == 1) {
        b->cells[s->head] = FREE;
        return;
    }
    b->cells[b->segments[moved].cell] = FREE;
    b->segments[moved].cell = s->head;
    b->segments[s->neck].next = moved;
    s->tail = b->segments[moved].next; /* itself if the body has one segment */
    s->neck = moved;
}

/* Moves a snake; returns 0 if its move ends the game, 1 if it moved and 2 if it ate. */
static int move(board *b, int color, int direction) {
    static const int dx[] = {0, 0, -1, 1}, dy[] = {1, -1, 0, 0};
    snake *s = &b->snakes[color];
    int x = s->head / b->size + dx[direction], y = s->head % b->size + dy[direction];
    int cell = x * b->size + y, ate;
    if (x < 0 || x >= b->size || y < 0 || y >= b->size) return 0;
    ate = b->cells[cell] == color;
    if (!ate && b->cells[cell] != FREE) return 0;
    if (ate && s->length < b->max_length) {
        grow(b, color);
    } else {
        follow(b, s);
    }
    b->cells[cell] = BLOCKED;
    s->head = (short)cell;
    return 1 + ate;
}

static void step(ee_copy *copy) {
    board *b = (board *)ee_state(copy);
    ee_agent *agent = ee_agent_of(copy, 0);
    unsigned char has_eaten[MAX_SNAKES];
    int i, is_over = 0;
    b->step++;
    for (i = 0; i < b->num_snakes; i++) {
        int result = move(b, i, ee_choice(agent, MOVE, i));
        is_over |= !result;
        has_eaten[i] = result == 2;
    }
    /* After all moves, so no snake runs into new food in this step. */
    for (i = 0; i < b->num_snakes; i++) {
        if (has_eaten[i]) place_food(b, i);
    }
    is_over |= b->num_eaten == (b->max_length - 1) * b->num_snakes;
    show(copy, b);
    if (is_over || b->step == b->max_step) {
        ee_end(agent, !is_over);
    } else {
        ee_wait(agent);
    }
}

static const char *configure(ee_game *game) {
    double size = game->settings[BOARD_SIZE].value, snakes = game->settings[NUM_SNAKES].value;
    double length = game->settings[MAX_SNAKE_LENGTH].value;
    if (size < 1 || size > MAX_SIZE) return "multi_snake: board_size must be from 1 to 64";
    if (snakes < 1 || length < 2 || game->settings[MAX_STEP].value < 1) {
        return "multi_snake: num_snakes and max_step must be at least 1, max_snake_length 2";
    }
    if (size * size < snakes * (length + 1)) {
        return "multi_snake: board_size is too small for the snakes and their food";
    }
    return NULL;
}

static ee_game make_game(void) {
    ee_game game;
    memset(&game, 0, sizeof game);
    game.name = "multi_snake";
    game.entities = entities;
    game.num_entities = 3;
    game.global_features = global_features;
    game.actions = actions;
    game.num_actions = 1;
    game.settings = settings;
    game.num_settings = 4;
    game.state_size = sizeof(board);
    game.configure = configure;
    game.start = start;
    game.step = step;
    return game;
}

#ifndef NO_MAIN /* a program that includes this file has its own */
int main(void) {
    ee_game game = make_game();
    return ee_serve(&game);
}
#endif
