// Snake, played by a trained agent in the same program, without Python:
//
//     c++ -O2 ship.cpp -o ship && ./ship ../../examples/ship/snake.agent 5

#define NO_MAIN
#include "games/snake.c"

#define ENTITY_AGENT_IMPLEMENTATION
#include "entity_agent.h"

#include <cstdio>
#include <cstdlib>

int main(int argc, char **argv) {
    char error[200];
    if (argc < 2) {
        std::fprintf(stderr, "usage: ship AGENT [SEED]\n");
        return 2;
    }
    ea_agent *agent = ea_load_file(argv[1], error, sizeof error);
    if (!agent) {
        std::fprintf(stderr, "%s: %s\n", argv[1], error);
        return 1;
    }
    ee_game game = make_game();
    double score = 0;
    const char *problem =
        ea_play(&game, &agent, argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 0, nullptr, &score, nullptr);
    ea_free(agent);
    if (problem) {
        std::fprintf(stderr, "%s\n", problem);
        return 1;
    }
    std::printf("The snake ate %.0f times.\n", score);
}
