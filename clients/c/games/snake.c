/* Snake: one snake on a board, called for each step. The rules are those of entity_env.games.snake. */

#define ENTITY_ENV_IMPLEMENTATION
#include "../entity_env.h"

#define MAX_SIZE 64

enum { HEAD, SEGMENT, FOOD };
enum { MOVE };
enum { BOARD_SIZE };

static const char *const xy[] = {"x", "y", NULL};
static const ee_entity entities[] = {{"Head", xy}, {"Segment", xy}, {"Food", xy}};
static const char *const moves[] = {"UP", "DOWN", "LEFT", "RIGHT", NULL};
static const ee_action actions[] = {{"Move", EE_GLOBAL_CATEGORICAL, moves, 0, NULL, NULL}};
static ee_setting settings[] = {{"board_size", EE_INT, 10}};

typedef struct {
    ee_random random;
    int size, length, food, since_food; /* food: its cell, or -1 */
    short body[MAX_SIZE * MAX_SIZE];    /* cells, a ring; the tail is at `tail`, the head last */
    int tail;
    unsigned char taken[MAX_SIZE * MAX_SIZE];
} snake;

static int cell_at(const snake *s, int i) { return s->body[(s->tail + i) % (MAX_SIZE * MAX_SIZE)]; }

static void place_food(snake *s) {
    int cell, free = s->size * s->size - s->length, chosen;
    s->food = -1;
    s->since_food = 0;
    if (!free) return;
    chosen = (int)ee_below(&s->random, (uint32_t)free);
    for (cell = 0; s->food < 0; cell++) {
        if (!s->taken[cell] && chosen-- == 0) s->food = cell;
    }
}

static void add(ee_agent *agent, int entity, const snake *s, int cell) {
    float features[2];
    features[0] = (float)(cell / s->size);
    features[1] = (float)(cell % s->size);
    ee_add(agent, entity, features);
}

static void show(ee_copy *copy, const snake *s) {
    ee_agent *agent = ee_agent_of(copy, 0);
    int i;
    ee_observe(agent, s->length - 1);
    add(agent, HEAD, s, cell_at(s, s->length - 1));
    for (i = 0; i < s->length - 1; i++) add(agent, SEGMENT, s, cell_at(s, i));
    if (s->food >= 0) add(agent, FOOD, s, s->food);
}

static void show_and_ask(ee_copy *copy, const snake *s) {
    ee_agent *agent = ee_agent_of(copy, 0);
    int is_over = s->food < 0 || s->since_food == s->size * s->size;
    show(copy, s);
    if (is_over && s->food < 0) {
        ee_end(agent, 0);
        return;
    }
    ee_ask(agent, MOVE);
    if (is_over) {
        ee_end(agent, 1);
    } else {
        ee_wait(agent);
    }
}

static void start(ee_copy *copy, uint64_t seed) {
    snake *s = (snake *)ee_state(copy);
    s->random.state = seed;
    s->size = (int)settings[BOARD_SIZE].value;
    s->length = 1;
    s->tail = 0;
    memset(s->taken, 0, sizeof s->taken);
    s->body[0] = (short)ee_below(&s->random, (uint32_t)(s->size * s->size));
    s->taken[s->body[0]] = 1;
    place_food(s);
    show_and_ask(copy, s);
}

static void step(ee_copy *copy) {
    static const int dx[] = {0, 0, -1, 1}, dy[] = {1, -1, 0, 0};
    snake *s = (snake *)ee_state(copy);
    int move = ee_choice(ee_agent_of(copy, 0), MOVE, 0), head = cell_at(s, s->length - 1);
    int x = head / s->size + dx[move], y = head % s->size + dy[move], cell = x * s->size + y;
    int is_inside = x >= 0 && x < s->size && y >= 0 && y < s->size;
    /* The cell that the tail leaves in this step is free; so is the head's own, if it is alone. */
    if (!is_inside || (s->taken[cell] && !(s->length > 1 && cell == cell_at(s, 0)))) {
        show(copy, s);
        ee_end(ee_agent_of(copy, 0), 0);
        return;
    }
    if (cell != s->food) {
        s->taken[cell_at(s, 0)] = 0;
        s->tail++;
        s->length--;
        s->since_food++;
    }
    s->length++;
    s->body[(s->tail + s->length - 1) % (MAX_SIZE * MAX_SIZE)] = (short)cell;
    s->taken[cell] = 1;
    if (cell == s->food) place_food(s);
    show_and_ask(copy, s);
}

static const char *configure(ee_game *game) {
    double size = game->settings[BOARD_SIZE].value;
    return size < 2 || size > MAX_SIZE ? "snake: board_size must be from 2 to 64" : NULL;
}

static ee_game make_game(void) {
    ee_game game;
    memset(&game, 0, sizeof game);
    game.name = "snake";
    game.entities = entities;
    game.num_entities = 3;
    game.actions = actions;
    game.num_actions = 1;
    game.settings = settings;
    game.num_settings = 1;
    game.state_size = sizeof(snake);
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
