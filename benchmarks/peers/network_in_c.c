/* entity_agent.h as a shared library, with a loop that measures decisions. */

#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE 1
#endif
#define ENTITY_AGENT_IMPLEMENTATION
#include "entity_agent.h"
#include <time.h>

/* Microseconds per decision: `rounds` of a choice per observation. */
#ifdef __cplusplus
extern "C"
#endif
double ea_measure(ea_workspace *workspace, const ea_obs *obs, int count, int rounds, int needs_value) {
    struct timespec begin, end;
    uint64_t random = 1;
    int i, k, action, sum = 0;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (k = 0; k < rounds; k++) {
        for (i = 0; i < count; i++) {
            if (ea_think(workspace, &obs[i], 1, needs_value)) return -1;
            for (action = 0; action < workspace->agent->spaces.num_actions; action++) {
                if (obs[i].requests[action].num_actors) sum += ea_choose(workspace, action, 0, &random);
            }
        }
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    if (sum < 0) return -1; /* so that choices are computed */
    return ((double)(end.tv_sec - begin.tv_sec) * 1e6 + (double)(end.tv_nsec - begin.tv_nsec) / 1e3) /
           rounds / count;
}
