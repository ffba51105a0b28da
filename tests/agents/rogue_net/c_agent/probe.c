/* Loads files from standard input, each after its length in 8 bytes, and lets those that load decide.
   Prints a line for each: "ok" or the reason, then the bytes allocated and the allocations during
   decisions. With a word, two threads decide with each agent, and must decide equally. */

#define _DEFAULT_SOURCE 1
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t num_bytes, num_calls;

static void *counted_calloc(size_t count, size_t size) {
    num_calls++;
    num_bytes += count * size;
    return calloc(count, size);
}

static void *counted_realloc(void *memory, size_t size) {
    num_calls++;
    num_bytes += size;
    return realloc(memory, size);
}

#define calloc counted_calloc
#define realloc counted_realloc
#define malloc(size) counted_calloc(1, size)
#define ENTITY_AGENT_IMPLEMENTATION
#include "entity_agent.h"
#undef calloc
#undef realloc
#undef malloc

enum { PER_TYPE = 2, ROUNDS = 6, KEPT = 64 };

static const float odd[] = {
    0.0f, -0.0f, 1e-45f, -1e-40f, 0.5f, 6.2831853f, 1e10f, 1e18f, -3e18f, 1e20f, -1e30f, 3e38f, 3.4028234e38f, -3.4028234e38f};

/* A number from -4 to 4, or any finite one. */
static float number(uint64_t *random) {
    uint64_t drawn = ea__draw(random);
    return drawn >> 32 & 1 ? odd[drawn % (sizeof odd / sizeof *odd)] : (float)(int)(drawn % 9) - 4;
}

static const ea_agent *shared;
static uint64_t results[2];

static void note(uint64_t *result, const void *data, size_t size) {
    const unsigned char *bytes = (const unsigned char *)data;
    while (size--) *result = (*result ^ *bytes++) * UINT64_C(0x100000001b3);
}

/* Copies up to KEPT probabilities of the last decision. */
static int keep(const ea_workspace *workspace, const ea_request *requests, int num_actions, float *kept) {
    int k, i, c, count = 0;
    for (k = 0; k < num_actions; k++) {
        for (i = 0; i < requests[k].num_actors; i++) {
            for (c = 0; c < ea_num_choices(workspace, k) && count < KEPT; c++) {
                kept[count++] = ea_probabilities(workspace, k, i)[c];
            }
        }
    }
    return count;
}

/* Fills an observation of two entities per type that asks for everything; a hash of the answers. */
static uint64_t decide(const ea_agent *agent) {
    const ea_spaces *spaces = ea_spaces_of(agent);
    size_t num_types = (size_t)spaces->num_entities, num_actions = (size_t)spaces->num_actions, t, k;
    int *counts = (int *)calloc(num_types + 1, sizeof(int)), rows[2] = {0, 1}, last[2] = {0, 0}, round, i, num_kept;
    float kept[KEPT], again[KEPT];
    float **features = (float **)calloc(num_types + 1, sizeof(float *));
    unsigned char **visible = (unsigned char **)calloc(num_types + 1, sizeof(char *));
    float *globals = (float *)calloc((size_t)spaces->num_globals + 1, sizeof(float)), *numbers;
    ea_request *requests = (ea_request *)calloc(num_actions + 1, sizeof(ea_request));
    int max_entities = PER_TYPE * spaces->num_entities;
    size_t size = ea_workspace_size(agent, max_entities), largest = 1, calls;
    void *memory = size && size < (64u << 20) ? malloc(size) : NULL;
    ea_workspace *workspace = ea_workspace_in(agent, max_entities, memory);
    uint64_t result = 1, random = 5, drawn;
    ea_obs obs;
    float *state = (float *)calloc((size_t)ea_state_size(agent) + 1, sizeof(float));
    unsigned char **masks = (unsigned char **)calloc(num_actions + 1, sizeof(char *));
    for (t = 0; t < num_types; t++) {
        size_t count = (size_t)PER_TYPE * (size_t)spaces->entities[t].num_features;
        features[t] = (float *)malloc(sizeof(float) * (count + 1));
        visible[t] = (unsigned char *)malloc(PER_TYPE);
        while (count--) features[t][count] = number(&random);
    }
    for (i = 0; i < spaces->num_globals; i++) globals[i] = number(&random);
    for (k = 0; k < num_actions; k++) {
        if ((size_t)spaces->actions[k].num_labels > largest) largest = (size_t)spaces->actions[k].num_labels;
    }
    numbers = (float *)malloc(sizeof(float) * largest);
    for (k = 0; k < num_actions; k++) { /* a row per choice of the action before, the first is allowed */
        const ea_action *action = &spaces->actions[k];
        const ea_action *before = action->num_given ? &spaces->actions[action->given[action->num_given - 1]] : NULL;
        size_t width = action->kind == EA_SELECT_ENTITY ? 2 : (size_t)action->num_labels;
        size_t num_rows = !before ? 0 : before->kind == EA_SELECT_ENTITY ? 2 : (size_t)before->num_labels;
        if (!before || before->kind == EA_CONTINUOUS || width * num_rows > 1 << 16) continue;
        masks[k] = (unsigned char *)malloc(2 * width * num_rows); /* exactly as large */
        for (t = 0; t < 2 * width * num_rows; t++) masks[k][t] = t % width == 0 || ea__draw(&random) % 2;
    }
    obs.counts = counts, obs.features = (const float *const *)features, obs.globals = globals;
    obs.visible = (const unsigned char *const *)visible, obs.requests = requests;
    obs.state = NULL;
    calls = num_calls;
    for (round = 0; workspace && round < ROUNDS; round++) {
        int total = 0;
        for (t = 0; t < num_types; t++) {
            total += counts[t] = agent->is_vector ? 1 : (int)(ea__draw(&random) % (PER_TYPE + 1));
            visible[t][0] = round % 2 == 0, visible[t][1] = 1;
        }
        for (t = 0; t < num_types; t++) { /* references to entities, unless there are none */
            const ea_entity *entity = &spaces->entities[t];
            for (i = 0; entity->references && i < 2 * counts[t]; i++) {
                int limit = counts[entity->references[i % 2]];
                float *to = features[t] + (size_t)(i / 2) * (size_t)entity->num_features + i % 2;
                *to = limit ? (float)(ea__draw(&random) % (uint64_t)limit) : (float)(round % 3);
            }
        }
        last[1] = total ? total - 1 : 0;
        for (k = 0; k < num_actions; k++) {
            int is_global = spaces->actions[k].kind == EA_GLOBAL_CATEGORICAL;
            requests[k].num_actors = is_global ? 1 : total < 2 ? total : 2;
            requests[k].num_actees = total < 2 ? total : 2;
            requests[k].actors = rows, requests[k].actees = last;
            requests[k].is_dependent = masks[k] != NULL;
            requests[k].mask = total < 2 && !is_global ? NULL : masks[k];
        }
        obs.state = round % 4 ? state : NULL;
        drawn = random;
        obs.random = round % 2 ? &drawn : NULL;
        if (ea_think(workspace, &obs, 1, 1)) continue;
        num_kept = keep(workspace, requests, (int)num_actions, kept);
        drawn = random;
        if (round % 3 && ea_think(workspace, &obs, 1, 0)) abort();
        if (keep(workspace, requests, (int)num_actions, again) != num_kept) abort();
        for (i = 0; i < num_kept; i++) { /* decisions without the value skip rows */
            if (fabsf(kept[i] - again[i]) > 1e-4f * (1 + fabsf(kept[i]))) abort();
        }
        memcpy(state, ea_state(workspace), (size_t)ea_state_size(agent) * sizeof(float));
        for (k = 0; k < num_actions; k++) {
            for (i = 0; i < requests[k].num_actors; i++) {
                int choice = 0;
                if (spaces->actions[k].kind == EA_CONTINUOUS) {
                    ea_choose_numbers(workspace, (int)k, i, &random, numbers);
                    note(&result, numbers, sizeof(float) * (size_t)spaces->actions[k].num_labels);
                } else {
                    choice = ea_choose(workspace, (int)k, i, round % 2 ? &random : NULL);
                    if (choice < 0 || choice >= ea_num_choices(workspace, (int)k)) abort();
                    note(&result, ea_probabilities(workspace, (int)k, i), sizeof(float));
                }
                note(&result, &choice, sizeof choice);
            }
        }
        if (ea_value(workspace)) note(&result, ea_value(workspace), sizeof(float));
    }
    if (num_calls != calls) abort();
    for (t = 0; t < num_types; t++) {
        free(features[t]);
        free(visible[t]);
    }
    for (k = 0; k < num_actions; k++) free(masks[k]);
    free(masks);
    free(memory), free(counts), free(features), free(visible), free(globals), free(requests), free(numbers), free(state);
    return result;
}

static void *decide_in_thread(void *place) {
    *(uint64_t *)place = decide(shared);
    return NULL;
}

int main(int argc, char **argv) {
    unsigned char head[8];
    char error[300];
    (void)argv;
    setvbuf(stdout, NULL, _IOLBF, 0);
    while (fread(head, 1, 8, stdin) == 8) {
        size_t size = (size_t)ea__little(head, 8);
        unsigned char *bytes = (unsigned char *)malloc(size); /* exactly as large: reads beyond it are found */
        ea_agent *agent;
        if (!bytes || fread(bytes, 1, size, stdin) != size) return 3;
        num_bytes = num_calls = 0;
        agent = ea_load(bytes, size, error, sizeof error);
        free(bytes);
        if (!agent && (!*error || strlen(error) > 290)) abort();
        printf("%zu %s\n", num_bytes, agent ? "ok" : error);
        shared = agent;
        if (agent && argc > 1) {
            pthread_t threads[2];
            int i;
            for (i = 0; i < 2; i++) pthread_create(&threads[i], NULL, decide_in_thread, &results[i]);
            for (i = 0; i < 2; i++) pthread_join(threads[i], NULL);
            if (!results[0] || results[0] != results[1]) abort();
        } else if (agent) {
            decide(agent);
        }
        ea_free(agent);
    }
    return 0;
}
