/* Plays an episode of a game of clients/c with an agent, and prints the final scores. */

#define main serve
#define ee_serve(game) ((game_to_play = *(game)), 0)
#include "entity_env.h"
static ee_game game_to_play;
#include GAME
#undef main

#define ENTITY_AGENT_IMPLEMENTATION
#include "entity_agent.h"

int main(int argc, char **argv) {
    char error[200];
    ea_agent *agent = argc > 2 ? ea_load_file(argv[1], error, sizeof error) : NULL;
    const ea_agent *agents[16];
    double scores[16];
    const char *problem;
    int i;
    if (!agent) return 1;
    serve();
    for (i = 0; i < 16; i++) agents[i] = agent;
    problem = ea_play(&game_to_play, agents, strtoull(argv[2], NULL, 10), NULL, scores, NULL);
    ea_free(agent);
    if (problem) {
        fprintf(stderr, "%s\n", problem);
        return 1;
    }
    for (i = 0; i < (game_to_play.num_agents ? game_to_play.num_agents : 1); i++) printf("%.6f\n", scores[i]);
    return 0;
}
