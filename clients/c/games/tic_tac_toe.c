/* Tic-tac-toe: two agents that take turns, and a game that owns its loop. The rules are those of
   entity_env.games.tic_tac_toe. */

#define ENTITY_ENV_IMPLEMENTATION
#include "../entity_env.h"

enum { EMPTY, MINE, THEIRS };
enum { SQUARE };

static const char *const xy[] = {"x", "y", NULL};
static const ee_entity entities[] = {{"Empty", xy}, {"Mine", xy}, {"Theirs", xy}};
static const char *const squares[] = {"A1", "B1", "C1", "A2", "B2", "C2", "A3", "B3", "C3", NULL};
static const ee_action actions[] = {{"Square", EE_GLOBAL_CATEGORICAL, squares, 0, NULL, NULL}};

typedef struct {
    int num_moves, moves[9]; /* squares in the order in which they were taken */
    int owners[9];           /* the agent, or -1 */
} board;

static int has_won(const board *b, int agent) {
    static const int lines[8][3] = {{0, 1, 2}, {3, 4, 5}, {6, 7, 8}, {0, 3, 6},
                                    {1, 4, 7}, {2, 5, 8}, {0, 4, 8}, {6, 4, 2}};
    int i;
    for (i = 0; i < 8; i++) {
        const int *line = lines[i];
        if (b->owners[line[0]] == agent && b->owners[line[1]] == agent &&
            b->owners[line[2]] == agent) {
            return 1;
        }
    }
    return 0;
}

static void add(ee_agent *agent, int entity, int square) {
    float features[2];
    features[0] = (float)(square % 3);
    features[1] = (float)(square / 3);
    ee_add(agent, entity, features);
}

static ee_agent *show(ee_copy *copy, const board *b, int player, int score) {
    ee_agent *agent = ee_agent_of(copy, player);
    int i;
    ee_observe(agent, score);
    for (i = 0; i < 9; i++) {
        if (b->owners[i] < 0) add(agent, EMPTY, i);
    }
    for (i = 0; i < b->num_moves; i++) {
        add(agent, b->owners[b->moves[i]] == player ? MINE : THEIRS, b->moves[i]);
    }
    return agent;
}

static void play(ee_copy *copy, uint64_t seed) {
    board b = {0, {0}, {-1, -1, -1, -1, -1, -1, -1, -1, -1}};
    ee_random random = {0};
    int i, turn;
    random.state = seed;
    turn = (int)ee_below(&random, 2);
    while (!has_won(&b, 1 - turn) && b.num_moves < 9) {
        ee_agent *agent = show(copy, &b, turn, 0);
        unsigned char *allowed;
        ee_ask(agent, SQUARE);
        allowed = ee_mask(agent, SQUARE);
        for (i = 0; i < 9; i++) allowed[i] = b.owners[i] < 0;
        if (!ee_act(agent)) return;
        b.moves[b.num_moves] = ee_choice(agent, SQUARE, 0);
        b.owners[b.moves[b.num_moves++]] = turn;
        turn = 1 - turn;
    }
    for (i = 0; i < 2; i++) {
        ee_end(show(copy, &b, i, has_won(&b, i) - has_won(&b, 1 - i)), 0);
    }
}

static ee_game make_game(void) {
    ee_game game;
    memset(&game, 0, sizeof game);
    game.name = "tic_tac_toe";
    game.num_agents = 2;
    game.entities = entities;
    game.num_entities = 3;
    game.actions = actions;
    game.num_actions = 1;
    game.play = play;
    return game;
}

#ifndef NO_MAIN /* a program that includes this file has its own */
int main(void) {
    ee_game game = make_game();
    return ee_serve(&game);
}
#endif
