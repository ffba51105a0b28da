/* Games for tests of the client for C: `odd_games kinds` has actions of all kinds, and the other
   words are faults. */

#define ENTITY_ENV_IMPLEMENTATION
#include "entity_env.h"

/* ------------------------------------------------------------------ actions of all kinds */

enum { CAR, ROCK };
enum { FLAG, TURN, STEER, PICK };

static const char *const x[] = {"x", NULL}, *const size[] = {"size", NULL};
static const char *const wind[] = {"wind", NULL}, *const metrics[] = {"rocks", NULL};
static const ee_entity entities[] = {{"Car", x}, {"Rock", size}};
static const char *const flags[] = {"LOW", "MID", "HIGH", NULL}, *const turns[] = {"BACK", "ON", NULL};
static const char *const wheels[] = {"wheel", "gas", NULL};
static const float low[] = {-1, 0}, high[] = {1, 2};
static const ee_action actions[] = {
    {"Flag", EE_GLOBAL_CATEGORICAL, flags, 0, NULL, NULL},
    {"Turn", EE_CATEGORICAL, turns, 0, NULL, NULL},
    {"Steer", EE_CONTINUOUS, wheels, 0, low, high},
    {"SelectRock", EE_SELECT_ENTITY, NULL, ROCK, NULL, NULL},
};
#ifndef WORD
#define WORD "parts"
#endif
static const char *word = WORD; /* of a program that has its own `main` */

static int is(const char *name) { return !strcmp(word, name); }

static void draw_mask(ee_random *random, unsigned char *allowed, uint32_t count) {
    uint32_t i;
    for (i = 0; i < count; i++) allowed[i] = (unsigned char)ee_below(random, 2);
    allowed[ee_below(random, count)] = 1;
}

static void look(ee_agent *agent, ee_random *random, double score) {
    float sizes[3], value;
    int is_shown[3] = {1, 1, 1}, i, num_cars, num_rocks, hides, counts, masks[3];
    ee_observe(agent, score);
    value = (float)ee_uniform(random);
    ee_globals(agent, &value);
    num_cars = 1 + (int)ee_below(random, 3);
    for (i = 0; i < num_cars; i++) {
        value = (float)ee_uniform(random);
        ee_add(agent, CAR, &value);
    }
    num_rocks = 1 + (int)ee_below(random, 3);
    for (i = 0; i < num_rocks; i++) sizes[i] = (float)ee_uniform(random);
    hides = (int)ee_below(random, 2);
    for (i = 0; hides && i < num_rocks; i++) is_shown[i] = (int)ee_below(random, 2);
    for (i = 0; i < num_rocks; i++) (is_shown[i] ? ee_add : ee_add_hidden)(agent, ROCK, &sizes[i]);
    counts = (int)ee_below(random, 2);
    if (counts) ee_metric(agent, 0, num_rocks);
    for (i = 0; i < 3; i++) masks[i] = (int)ee_below(random, 2);
    ee_ask(agent, FLAG);
    if (masks[0]) draw_mask(random, ee_mask(agent, FLAG), 3);
    for (i = 0; i < num_cars; i++) {
        ee_actor(agent, TURN, CAR, i);
        if (masks[1]) draw_mask(random, ee_mask(agent, TURN), 2);
    }
    for (i = 0; i < num_rocks; i++) ee_actor(agent, STEER, ROCK, i);
    for (i = 0; i < num_cars; i++) {
        ee_actor(agent, PICK, CAR, i);
        if (masks[2]) draw_mask(random, ee_mask(agent, PICK), (uint32_t)num_rocks);
    }
}

static double worth(const ee_agent *agent) {
    double found = ee_choice(agent, FLAG, 0);
    int i, num = ee_num_answers(agent, TURN);
    for (i = 0; i < num; i++) found += (i + 1) * (ee_choice(agent, TURN, i) + 1);
    for (i = 0; i < num; i++) found += 8 * (i + 1) * ee_choice(agent, PICK, i);
    for (i = 0; i < ee_num_answers(agent, STEER); i++) {
        const float *numbers = ee_numbers(agent, STEER, i);
        found += floor(16 * (double)numbers[0]) / 16 + floor(16 * (double)numbers[1]) / 8;
    }
    return found;
}

static void play_kinds(ee_copy *copy, uint64_t seed) {
    ee_random random;
    double scores[2] = {0, 0};
    int left[2], i, turn;
    random.state = seed;
    for (i = 0; i < 2; i++) left[i] = 1 + (int)ee_below(&random, 4);
    for (turn = 0; left[0] >= turn || left[1] >= turn; turn++) {
        for (i = 0; i < 2; i++) {
            if (left[i] < turn) continue;
            look(ee_agent_of(copy, i), &random, scores[i]);
            if (left[i] == turn) {
                ee_end(ee_agent_of(copy, i), (int)ee_below(&random, 2));
            } else {
                ee_wait(ee_agent_of(copy, i));
            }
        }
        if (left[0] <= turn && left[1] <= turn) return;
        if (!ee_yield(copy)) return;
        for (i = 0; i < 2; i++) {
            if (left[i] > turn) scores[i] += worth(ee_agent_of(copy, i));
        }
    }
}

/* ------------------------------------------------------------------ decisions in several parts */

enum { SIGNAL_TURN, SIGNAL_FLAG, HAUL_ROCK, HAUL_LOAD, HAUL_IS_FAST, HAUL_WEIGHT };

static const char *const bools[] = {"False", "True", NULL}, *const weight[] = {"weight", NULL};
static const float lightest[] = {0}, heaviest[] = {2};
static const ee_action parts[] = {
    {"Signal.turn", EE_GLOBAL_CATEGORICAL, turns, 0, NULL, NULL},
    {"Signal.flag", EE_GLOBAL_CATEGORICAL, flags, 0, NULL, NULL},
    {"Haul.rock", EE_SELECT_ENTITY, NULL, ROCK, NULL, NULL},
    {"Haul.load", EE_CATEGORICAL, flags, 0, NULL, NULL},
    {"Haul.is_fast", EE_CATEGORICAL, bools, 0, NULL, NULL},
    {"Haul.weight", EE_CONTINUOUS, weight, 0, lightest, heaviest},
};
static const int num_given[] = {0, 1, 0, 1, 2, 3};

static void play_parts(ee_copy *copy, uint64_t seed) {
    ee_agent *agent = ee_agent_of(copy, 0);
    ee_random random;
    double score = 0;
    float half = 0.5f;
    int turn, i, j, k, part, num_cars, num_rocks, is_near, asked[3];
    random.state = seed;
    for (turn = 0; turn < 4; turn++) {
        unsigned char near[9], load[27], row[3];
        memset(near, 1, sizeof near);
        ee_observe(agent, score);
        num_cars = 1 + (int)ee_below(&random, 3);
        for (i = 0; i < num_cars; i++) {
            float value = (float)ee_uniform(&random);
            ee_add(agent, CAR, &value);
        }
        num_rocks = 1 + (int)ee_below(&random, 3);
        for (i = 0; i < num_rocks; i++) {
            float value = (float)ee_uniform(&random);
            ee_add(agent, ROCK, &value);
        }
        is_near = (int)ee_below(&random, 2);
        if (is_near) {
            draw_mask(&random, near, (uint32_t)num_rocks);
            for (i = num_rocks; i < num_cars * num_rocks; i++) near[i] = (unsigned char)ee_below(&random, 2);
        }
        for (i = 0; i < num_cars * num_rocks; i++) draw_mask(&random, load + 3 * i, 3);
        ee_ask(agent, SIGNAL_TURN);
        ee_ask(agent, SIGNAL_FLAG);
        if (ee_below(&random, 2)) {
            unsigned char *allowed = ee_mask(agent, SIGNAL_FLAG);
            for (i = 0; i < 2; i++) draw_mask(&random, row, 3), memcpy(allowed + 3 * i, row, 3);
        }
        for (i = k = 0; i < num_cars; i++) { /* cars without a rock are left out */
            if (!memchr(near + i * num_rocks, 1, (size_t)num_rocks)) continue;
            for (part = HAUL_ROCK; part <= HAUL_WEIGHT; part++) ee_actor(agent, part, CAR, i);
            if (is_near) memcpy(ee_mask(agent, HAUL_ROCK), near + i * num_rocks, (size_t)num_rocks);
            memcpy(ee_mask(agent, HAUL_LOAD), load + 3 * i * num_rocks, 3 * (size_t)num_rocks);
            asked[k++] = i;
        }
        if (is("other_actors")) ee_actor(agent, HAUL_ROCK, ROCK, 0);
        if (!ee_act(agent)) return;
        score += 3 * ee_choice(agent, SIGNAL_TURN, 0) + ee_choice(agent, SIGNAL_FLAG, 0);
        for (j = 0; j < k; j++) {
            int number = 8 * ee_choice(agent, HAUL_ROCK, j) + 100 * ee_choice(agent, HAUL_LOAD, j);
            number += 1000 * ee_choice(agent, HAUL_IS_FAST, j);
            score += (asked[j] + 1) * number + floor(16 * (double)*ee_numbers(agent, HAUL_WEIGHT, j)) / 16;
        }
    }
    ee_observe(agent, score);
    ee_add(agent, ROCK, &half);
    ee_end(agent, 0);
}

/* ------------------------------------------------------------------ relations */

enum { GAP = 2, ROAD };
enum { GO, TRIP_FLAG, TRIP_ROAD, TRIP_SPEED };

static const char *const one_other[] = {"one", "other", NULL}, *const hours[] = {"start", "end", "hours", NULL};
static const ee_entity road_entities[] = {{"Car", x}, {"Rock", size}, {"Gap", one_other}, {"Road", hours}};
static const int ends[][2] = {{ROCK, ROCK}, {CAR, ROCK}};
static const ee_action road_actions[] = {
    {"SelectRoad", EE_SELECT_ENTITY, NULL, ROAD, NULL, NULL},
    {"Trip.flag", EE_CATEGORICAL, flags, 0, NULL, NULL},
    {"Trip.road", EE_SELECT_ENTITY, NULL, ROAD, NULL, NULL},
    {"Trip.speed", EE_CATEGORICAL, flags, 0, NULL, NULL},
};
static const int num_given_roads[] = {0, 0, 1, 2};

enum { MAX_ROADS = 19 };

static void draw_open(ee_random *random, unsigned char *open, int count) {
    int i;
    for (i = 0; i < count; i++) open[i] = ee_below(random, 4) > 0 || !i;
}

/* Asks the cars that can choose; `cars` gets their numbers for Go, then for Trip. */
static void look_at_roads(ee_agent *agent, ee_random *random, double score, int *cars) {
    unsigned char open[3][MAX_ROADS], legal[9][MAX_ROADS], speed[3][3 * MAX_ROADS], visible[MAX_ROADS], *allowed;
    float road[MAX_ROADS][3], rocks[3], gap[2], value;
    int i, j, k, c, num_cars, num_rocks, num_roads = 1, has_legal, has_speed;
    ee_observe(agent, score);
    num_cars = 1 + (int)ee_below(random, 3);
    for (i = 0; i < num_cars; i++) {
        value = (float)ee_uniform(random);
        ee_add(agent, CAR, &value);
    }
    num_rocks = 1 + (int)ee_below(random, 3);
    for (i = 0; i < num_rocks; i++) rocks[i] = (float)ee_uniform(random);
    road[0][0] = road[0][1] = 0, road[0][2] = (float)ee_uniform(random);
    for (i = 0; i < num_rocks; i++) {
        for (c = 0; c < num_cars; c++) {
            for (k = (int)ee_below(random, 3); k > 0; k--, num_roads++) {
                road[num_roads][0] = (float)c, road[num_roads][1] = (float)i;
                road[num_roads][2] = (float)ee_uniform(random);
            }
        }
    }
    for (i = 0; i < num_rocks; i++) {
        for (j = 0; j < num_rocks; j++) {
            gap[0] = (float)i, gap[1] = (float)j;
            if (ee_below(random, 2)) ee_add(agent, GAP, gap);
        }
    }
    for (i = 0; i < num_rocks; i++) ee_add(agent, ROCK, &rocks[i]); /* after what refers to them */
    memset(open, 1, sizeof open);
    if (ee_below(random, 2)) {
        for (c = 0; c < num_cars; c++) draw_open(random, open[c], num_roads);
    } else if (ee_below(random, 2)) {
        draw_open(random, open[0], num_roads);
        for (c = 1; c < num_cars; c++) memcpy(open[c], open[0], MAX_ROADS);
    }
    has_legal = (int)ee_below(random, 2);
    for (i = 0; has_legal && i < 3 * num_cars; i++) draw_open(random, legal[i], num_roads);
    has_speed = (int)ee_below(random, 2);
    for (i = 0; has_speed && i < num_cars * num_roads; i++) {
        draw_mask(random, speed[i / num_roads] + i % num_roads * 3, 3);
    }
    draw_open(random, visible, num_roads);
    for (i = 0; i < num_roads; i++) (visible[i] ? ee_add : ee_add_hidden)(agent, ROAD, road[i]);
    for (c = j = 0; c < num_cars; c++) { /* Go */
        for (i = 0; i < num_roads && !(open[c][i] && road[i][0] == (float)c); i++) {
        }
        if (i == num_roads) continue;
        ee_actor(agent, GO, CAR, c);
        cars[j++] = c;
        allowed = ee_mask(agent, GO);
        for (i = 0; i < num_roads; i++) allowed[i] &= open[c][i];
    }
    for (c = 0; c < num_cars; c++) { /* Trip */
        for (i = 0; i < num_roads && road[i][0] != (float)c; i++) {
        }
        if (i == num_roads) continue;
        for (k = TRIP_FLAG; k <= TRIP_SPEED; k++) ee_actor(agent, k, CAR, c);
        cars[j++] = c;
        if (has_speed) memcpy(ee_mask(agent, TRIP_SPEED), speed[c], 3 * (size_t)num_roads);
        if (!has_legal) continue; /* its flags remain those of its own roads */
        allowed = ee_mask(agent, TRIP_ROAD);
        for (i = 0; i < 3 * num_roads; i++) allowed[i] &= legal[3 * c + i / num_roads][i % num_roads] || allowed[i];
    }
}

static void play_roads(ee_copy *copy, uint64_t seed) {
    ee_agent *agent = ee_agent_of(copy, 0);
    ee_random random;
    double score = 0;
    int turn, i, cars[6], num;
    random.state = seed;
    for (turn = 0; turn < 4; turn++) {
        look_at_roads(agent, &random, score, cars);
        if (!ee_act(agent)) return;
        num = ee_num_answers(agent, GO);
        for (i = 0; i < num; i++) score += (cars[i] + 1) * (1 + ee_choice(agent, GO, i));
        for (i = 0; i < ee_num_answers(agent, TRIP_ROAD); i++) {
            int number = 40 * ee_choice(agent, TRIP_FLAG, i) + 200 * ee_choice(agent, TRIP_SPEED, i);
            score += (cars[num + i] + 1) * (number + 1000 * ee_choice(agent, TRIP_ROAD, i));
        }
    }
    look_at_roads(agent, &random, score, cars);
    ee_end(agent, (int)ee_below(&random, 2));
}

/* Shows two roads from the first car to a rock, and asks both cars for a road; with a fault. */
static void play_wrong_roads(ee_copy *copy, uint64_t seed) {
    static const float roads[2][3] = {{0, 0, 1}, {1, 0, 1}};
    ee_agent *agent = ee_agent_of(copy, 0);
    float road[3] = {0, 0, 1}, zero = 0;
    int i;
    (void)seed;
    ee_observe(agent, 0);
    for (i = 0; i < 2; i++) ee_add(agent, CAR, &zero), ee_add(agent, ROAD, roads[i]);
    ee_add(agent, ROCK, &zero);
    if (is("road_start")) road[0] = 2;
    if (is("road_end")) road[1] = -1;
    if (is("road_half")) road[0] = 0.5f;
    if (is("road_nan")) road[1] = NAN;
    ee_add(agent, ROAD, road);
    if (is("road_acts")) ee_actor(agent, GO, ROAD, 0);
    for (i = 0; i < 2; i++) ee_actor(agent, GO, CAR, i);
    if (is("road_of_rock")) ee_actor(agent, GO, ROCK, 0);
    if (is("road_foreign")) memset(ee_mask(agent, GO), 1, 3);
    if (is("road_none")) memset(ee_mask(agent, GO), 0, 3);
    if (is("road_late")) ee_mask(agent, GO), ee_add(agent, ROAD, road);
    if (is("road_last")) road[0] = 7, ee_add(agent, ROAD, road), ee_end(agent, 0);
    if (!ee_act(agent)) return;
    ee_observe(agent, 1);
    ee_end(agent, 0);
}

/* ------------------------------------------------------------------ faults */

enum { DOT };
enum { MOVE };

static const ee_entity dots[] = {{"Dot", x}};
static const char *const moves[] = {"LEFT", "RIGHT", NULL};
static const ee_action move_only[] = {{"Move", EE_CATEGORICAL, moves, 0, NULL, NULL}};

static void show(ee_agent *agent, double score) {
    float zero = 0;
    ee_observe(agent, score);
    ee_add(agent, DOT, &zero);
    ee_actor(agent, MOVE, DOT, 0);
}

static void call_wrongly(ee_copy *copy, ee_agent *agent) {
    float zero = 0;
    if (is("agent_of")) ee_agent_of(copy, 2);
    if (is("add")) ee_add(agent, 1, &zero);
    if (is("add_null")) ee_add(agent, DOT, NULL);
    if (is("actor")) ee_actor(agent, MOVE, DOT, 7);
    if (is("actor_type")) ee_actor(agent, MOVE, 7, 0);
    if (is("ask")) ee_ask(agent, MOVE);
    if (is("action")) ee_actor(agent, 7, DOT, 0);
    if (is("mask")) ee_observe(agent, 0), ee_mask(agent, MOVE);
    if (is("metric")) ee_metric(agent, 0, 0);
    if (is("choice")) ee_choice(agent, MOVE, 1);
    if (is("numbers")) ee_numbers(agent, 1, 0);
    if (is("other_copy")) ee_yield(copy + 1);
    if (is("end")) ee_end(agent, 0), ee_end(agent, 0);
    if (is("wait")) ee_end(agent, 0), ee_wait(agent);
}

/* Each agent acts twice in turn, then the episode ends. */
static void play_faults(ee_copy *copy, uint64_t seed) {
    int turn;
    (void)seed;
    if (is("fails_at_once")) {
        ee_fail(copy, "no wheels");
        return;
    }
    for (turn = 0; turn < 4; turn++) {
        ee_agent *agent = ee_agent_of(copy, turn % 2);
        if (is("prints")) printf("Is this a message? %d\n", getchar()), fflush(stdout);
        show(agent, turn);
        if (!ee_act(agent) && !is("deaf")) {
            if (is("late")) ee_end(agent, 0), ee_fail(copy, "too late"), ee_act(agent);
            return;
        }
        while (is("deaf") && turn == 1) show(agent, 0), ee_act(agent);
        if (turn == 2) call_wrongly(copy, agent);
        if (is("fails") && turn == 2) {
            ee_end(ee_agent_of(copy, 1), 0);
            ee_fail(copy, "a \"wheel\"\n\tcame off: \xff \xc3\xa9 \xed\xa0\x80");
            return;
        }
        if (is("returns") && turn == 2) return;
        if (is("yields") && turn == 2) ee_yield(copy);
#ifdef __cplusplus
        if (is("throws") && turn == 2) throw std::exception();
#endif
    }
    for (turn = 0; turn < 2; turn++) {
        show(ee_agent_of(copy, turn), 4);
        ee_end(ee_agent_of(copy, turn), 0);
    }
}

static void start(ee_copy *copy, uint64_t seed) {
    (void)seed;
    show(ee_agent_of(copy, 0), 0);
    ee_act(ee_agent_of(copy, 0)); /* only `play` may */
}

static void step(ee_copy *copy) { (void)copy; }

static ee_game make_game(void) {
    ee_game game;
    memset(&game, 0, sizeof game);
    game.num_agents = 2;
    game.name = "odd";
    game.version = "2";
    game.doc = "Rules with \"quotes\" and \xc3\xa9.";
    if (is("kinds")) {
        game.entities = entities, game.num_entities = 2;
        game.global_features = wind;
        game.actions = actions, game.num_actions = 4;
        game.metrics = metrics;
        game.play = play_kinds;
    } else if (is("parts") || is("too_many_given") || is("other_actors")) {
        static const int too_many[] = {1, 0, 0, 0, 0, 0};
        game.num_agents = 1;
        game.entities = entities, game.num_entities = 2;
        game.actions = parts, game.num_actions = 6;
        game.num_given = is("too_many_given") ? too_many : num_given;
        game.play = play_parts;
    } else if (is("roads") || !strncmp(word, "road_", 5)) {
        static const int to_roads[][2] = {{ROCK, ROCK}, {CAR, ROAD}};
        static const ee_entity bare[] = {{"Car", x}, {"Rock", size}, {"Gap", x}, {"Road", hours}};
        game.num_agents = 1;
        game.entities = is("road_bare") ? bare : road_entities, game.num_entities = 4;
        game.num_relations = is("road_many") ? 5 : 2;
        game.references = is("road_to_road") ? to_roads : is("road_missing") ? NULL : ends;
        game.actions = road_actions, game.num_actions = 4;
        game.num_given = num_given_roads;
        game.play = is("roads") ? play_roads : play_wrong_roads;
    } else {
        game.entities = dots, game.num_entities = 1;
        game.actions = move_only, game.num_actions = is("no_action") ? 0 : 1;
        game.play = play_faults;
    }
    if (is("callback")) game.play = NULL, game.start = start, game.step = step;
    return game;
}

#ifndef NO_MAIN
int main(int num_words, char **words) {
    ee_game game;
    word = num_words > 1 ? words[1] : "";
    game = make_game();
    return ee_serve(&game);
}
#endif
