/* Plays an episode of a game of clients/c with an agent, and prints the final scores. */

#define NO_MAIN
#include GAME

#define ENTITY_AGENT_IMPLEMENTATION
#include "entity_agent.h"

int main(int argc, char **argv) {
    char error[200];
    ea_agent *agent = argc > 2 ? ea_load_file(argv[1], error, sizeof error) : NULL;
    const ea_agent *agents[16];
    double scores[16];
    ee_game game = make_game();
    const char *problem;
    int i;
    if (!agent) return 1;
    for (i = 0; i < 16; i++) agents[i] = agent;
    problem = ea_play(&game, agents, strtoull(argv[2], NULL, 10), NULL, scores, NULL);
    ea_free(agent);
    if (problem) {
        fprintf(stderr, "%s\n", problem);
        return 1;
    }
    for (i = 0; i < (game.num_agents ? game.num_agents : 1); i++) printf("%.6f\n", scores[i]);
    return 0;
}
