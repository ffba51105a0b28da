/* Cherry pick: one actor selects an entity in every step, in a game that owns its loop. The rules
   are those of entity_env.games.cherry_pick. */

#define ENTITY_ENV_IMPLEMENTATION
#include "../entity_env.h"

#define MAX_CHERRIES 256

enum { PICKER, CHERRY };
enum { PICK };
enum { NUM_GOOD, NUM_BAD };

static const char *const nothing[] = {NULL};
static const char *const quality[] = {"quality", NULL};
static const ee_entity entities[] = {{"Picker", nothing}, {"Cherry", quality}};
static const ee_action actions[] = {{"SelectCherry", EE_SELECT_ENTITY, NULL, CHERRY, NULL, NULL}};
static ee_setting settings[] = {{"num_good", EE_INT, 8}, {"num_bad", EE_INT, 8}};

/* Fills in qualities that add up to `total`. */
static void grow(ee_random *random, double *qualities, int count, double total) {
    double sum = 0;
    int i;
    for (i = 0; i < count; i++) {
        qualities[i] = 0.1 + (1 - 0.1) * ee_uniform(random);
        sum += qualities[i];
    }
    for (i = 0; i < count; i++) qualities[i] = total * qualities[i] / sum;
}

static void show(ee_agent *agent, const double *cherries, int count, double score) {
    int i;
    ee_observe(agent, score);
    ee_add(agent, PICKER, NULL);
    for (i = 0; i < count; i++) {
        float feature = (float)cherries[i];
        ee_add(agent, CHERRY, &feature);
    }
}

static void play(ee_copy *copy, uint64_t seed) {
    int num_good = (int)settings[NUM_GOOD].value, num_bad = (int)settings[NUM_BAD].value;
    int count = num_good + num_bad, i, turn;
    ee_agent *agent = ee_agent_of(copy, 0);
    double cherries[MAX_CHERRIES], score = 0;
    ee_random random;
    random.state = seed;
    grow(&random, cherries, num_good, 1);
    grow(&random, cherries + num_good, num_bad, -1);
    for (i = count - 1; i > 0; i--) {
        int j = (int)ee_below(&random, (uint32_t)i + 1);
        double other = cherries[j];
        cherries[j] = cherries[i];
        cherries[i] = other;
    }
    for (turn = 0; turn < num_good; turn++) {
        show(agent, cherries, count, score);
        ee_actor(agent, PICK, PICKER, 0);
        if (!ee_act(agent)) return;
        i = ee_choice(agent, PICK, 0);
        score += cherries[i];
        count--;
        memmove(cherries + i, cherries + i + 1, sizeof(double) * (size_t)(count - i));
    }
    show(agent, cherries, count, score);
    ee_end(agent, 0);
}

static const char *configure(ee_game *game) {
    double good = game->settings[NUM_GOOD].value, bad = game->settings[NUM_BAD].value;
    return good < 1 || bad < 1 || good + bad > MAX_CHERRIES
               ? "cherry_pick: num_good and num_bad must be at least 1, and 256 together at most"
               : NULL;
}

static ee_game make_game(void) {
    ee_game game;
    memset(&game, 0, sizeof game);
    game.name = "cherry_pick";
    game.entities = entities;
    game.num_entities = 2;
    game.actions = actions;
    game.num_actions = 1;
    game.settings = settings;
    game.num_settings = 2;
    game.configure = configure;
    game.play = play;
    return game;
}

#ifndef NO_MAIN /* a program that includes this file has its own */
int main(void) {
    ee_game game = make_game();
    return ee_serve(&game);
}
#endif
