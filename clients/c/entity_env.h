/* entity_env.h: games in C or C++ that entity_env plays, trains and records.

   A program includes this header, in one of its source files after

       #define ENTITY_ENV_IMPLEMENTATION

   describes its game in an `ee_game`, and calls `ee_serve`. README.md has an example. The header
   needs C99 or C++11 and POSIX, and speaks version 1 of the protocol. It is not thread-safe.

   A game either owns its loop (`play`, each copy on its own stack) or is called for each step
   (`start` and `step`), which is faster. Both show observations with the functions below. */

#ifndef ENTITY_ENV_H
#define ENTITY_ENV_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------ description of a game */

/* An entity type; `features` ends with NULL. */
typedef struct ee_entity {
    const char *name;
    const char *const *features;
} ee_entity;

typedef enum ee_kind {
    EE_GLOBAL_CATEGORICAL, /* one label for the whole observation */
    EE_CATEGORICAL,        /* one label per actor */
    EE_SELECT_ENTITY,      /* one entity of type `selects` per actor */
    EE_CONTINUOUS          /* one number per label and actor, from `low` to `high` */
} ee_kind;

/* An action; `labels` ends with NULL. */
typedef struct ee_action {
    const char *name;
    ee_kind kind;
    const char *const *labels;
    int selects;
    const float *low, *high;
} ee_action;

typedef enum ee_type { EE_INT, EE_FLOAT, EE_BOOL } ee_type;

/* A setting; `value` is its default, and after START its value. */
typedef struct ee_setting {
    const char *name;
    ee_type type;
    double value;
} ee_setting;

typedef struct ee_copy ee_copy;
typedef struct ee_agent ee_agent;

/* A game. Lists of names end with NULL, and may be NULL. */
typedef struct ee_game {
    const char *name;
    const char *version;
    int num_agents; /* 0 means 1 */
    const ee_entity *entities;
    int num_entities;
    const char *const *global_features;
    const ee_action *actions;
    int num_actions;
    ee_setting *settings;
    int num_settings;
    const char *const *metrics;
    size_t state_size; /* bytes of `ee_state`, set to 0 before the first episode */
    /* Called when the settings are known; may change this struct. Returns an error, or NULL. */
    const char *(*configure)(struct ee_game *game);
    /* Plays an episode; returns when all agents have ended theirs, or when `ee_act` returns 0. */
    void (*play)(ee_copy *copy, uint64_t seed);
    /* Instead of `play`: begins an episode, and continues it with the answers of all agents that
       wait. Each call shows observations of agents that wait next, or ends episodes. */
    void (*start)(ee_copy *copy, uint64_t seed);
    void (*step)(ee_copy *copy);
} ee_game;

/* Serves the game until the host closes the connection. Returns the exit status of the program. */
int ee_serve(ee_game *game);

/* ------------------------------------------------------------------ for games */

/* Memory of a copy, of `state_size` bytes; it is kept from one episode to the next. */
void *ee_state(ee_copy *copy);
const ee_game *ee_game_of(const ee_copy *copy);
ee_agent *ee_agent_of(ee_copy *copy, int agent);

/* Begins an observation; `score` is the agent's score so far in this episode. */
void ee_observe(ee_agent *agent, double score);
/* Adds an entity with these features and returns its number among those of its type, from 0. */
int ee_add(ee_agent *agent, int entity, const float *features);
/* Like `ee_add`, for an entity that the policy must not see. */
int ee_add_hidden(ee_agent *agent, int entity, const float *features);
void ee_globals(ee_agent *agent, const float *features);
void ee_metric(ee_agent *agent, int metric, double value);
/* Asks for a global action. */
void ee_ask(ee_agent *agent, int action);
/* Asks an entity for an action; in order of types and numbers. Its answers have the same order. */
void ee_actor(ee_agent *agent, int action, int entity, int number);
/* Flags of the choices of the last actor, all 1 at first: set those that are not allowed to 0.
   There is one per label, or per entity of type `selects`: add those first. At least one must stay
   1. The pointer is valid until the next call. */
unsigned char *ee_mask(ee_agent *agent, int action);

/* The observation is complete: the agent waits for answers. */
void ee_wait(ee_agent *agent);
/* For `play`: waits until all waiting agents have answers; 0 if the game has to return now. */
int ee_yield(ee_copy *copy);
/* `ee_wait` and `ee_yield` in one. */
int ee_act(ee_agent *agent);
/* The observation is the agent's last: ends its episode. If `is_truncated`, ask the actions that
   would be asked next. */
void ee_end(ee_agent *agent, int is_truncated);
/* Ends the episode with an error, which the host reports. The text is copied. Return afterwards. */
void ee_fail(ee_copy *copy, const char *message);

/* Number of answers to an action, one per actor. */
int ee_num_answers(const ee_agent *agent, int action);
/* Answer of an actor: index of a label, or number of an entity of type `selects`. */
int ee_choice(const ee_agent *agent, int action, int actor);
/* Answer of an actor to a continuous action: one number per label. */
const float *ee_numbers(const ee_agent *agent, int action, int actor);

/* ------------------------------------------------------------------ random numbers */

/* SplitMix64: equal seeds give equal numbers in every language. */
typedef struct ee_random {
    uint64_t state;
} ee_random;

uint64_t ee_draw(ee_random *random);
/* An integer from 0 to `limit` - 1. */
uint32_t ee_below(ee_random *random, uint32_t limit);
/* A number from 0 to 1, exclusive. */
double ee_uniform(ee_random *random);

#ifdef __cplusplus
}
#endif
#endif /* ENTITY_ENV_H */

#ifdef ENTITY_ENV_IMPLEMENTATION
#undef ENTITY_ENV_IMPLEMENTATION

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <ucontext.h>
#include <unistd.h>

#define EE__STACK_BYTES (256 * 1024)
#define EE__MAX_BYTES (256u << 20)
enum { EE__HELLO = 1, EE__START, EE__READY, EE__RESET, EE__ACT, EE__STEP, EE__ERROR, EE__CLOSE };
enum { EE__TERMINATED = 1, EE__TRUNCATED = 2, EE__FAILED = 4, EE__NEW = 8 };

static void ee__die(const char *reason) {
    fprintf(stderr, "entity_env.h: %s\n", reason);
    exit(1);
}

/* ------------------------------------------------------------------ growing arrays */

typedef struct ee__bytes {
    unsigned char *data;
    size_t size, capacity;
} ee__bytes;

static void *ee__resized(void *memory, size_t size) {
    void *found = realloc(memory, size ? size : 1);
    if (!found) ee__die("out of memory");
    return found;
}

static void *ee__zeros(size_t count, size_t size) {
    void *found = calloc(count ? count : 1, size ? size : 1);
    if (!found) ee__die("out of memory");
    return found;
}

/* Makes room for `size` more bytes and returns the first of them. */
static unsigned char *ee__grow(ee__bytes *bytes, size_t size) {
    size_t wanted = bytes->size + size;
    if (wanted > bytes->capacity) {
        bytes->capacity = 2 * wanted + 64;
        bytes->data = (unsigned char *)ee__resized(bytes->data, bytes->capacity);
    }
    bytes->size = wanted;
    return bytes->data + wanted - size;
}

static void ee__append(ee__bytes *bytes, const void *data, size_t size) {
    if (size) memcpy(ee__grow(bytes, size), data, size);
}

static void ee__fill(ee__bytes *bytes, int value, size_t size) {
    if (size) memset(ee__grow(bytes, size), value, size);
}

static void ee__pad(ee__bytes *bytes, int value) {
    ee__fill(bytes, value, (size_t)(-(int64_t)bytes->size & 7));
}

static void ee__text(ee__bytes *bytes, const char *text) { ee__append(bytes, text, strlen(text)); }

/* Appends a JSON string. */
static void ee__quoted(ee__bytes *bytes, const char *text) {
    char escaped[8];
    ee__text(bytes, "\"");
    for (; *text; text++) {
        if (*text == '"' || *text == '\\') {
            escaped[0] = '\\', escaped[1] = *text, escaped[2] = 0;
        } else if ((unsigned char)*text < 32) {
            snprintf(escaped, sizeof escaped, "\\u%04x", *text);
        } else {
            escaped[0] = *text, escaped[1] = 0;
        }
        ee__text(bytes, escaped);
    }
    ee__text(bytes, "\"");
}

/* ------------------------------------------------------------------ observations and copies */

typedef struct ee__asked {
    ee__bytes entity, number; /* int: type and number of each actor */
    ee__bytes mask;           /* flags of the actors up to the last one with a mask */
    int count, has_mask;
} ee__asked;

typedef struct ee__obs {
    ee__bytes *values;  /* by entity type, floats */
    ee__bytes *visible; /* by entity type, flags */
    int *counts;        /* by entity type */
    ee__asked *asked;   /* by action */
    float *globals;
    double *metrics;
    double score;
    int has_hidden;
} ee__obs;

typedef struct ee__last {
    ee__obs obs;
    int64_t flags;
} ee__last;

struct ee_agent {
    ee_copy *copy;
    ee__obs obs;
    ee__last ends[2]; /* at most: of an episode, and of one that started in the same step */
    int num_ends;
    int waits, is_playing;
    int64_t **choices; /* by action: answers in the message, or NULL */
    float **numbers;
    int *num_answers;
};

typedef struct ee__server ee__server;

struct ee_copy {
    ee__server *server;
    ee_agent *agents;
    void *state;
    int flags, is_new, is_playing, has_returned, is_leaving;
    ee__bytes failure;
    ucontext_t context;
    char *stack;
    uint64_t seed;
};

typedef struct ee__slot {
    ee__bytes bytes;
    size_t implied; /* flags that are 1 in earlier rows */
    int is_present, is_flags;
} ee__slot;

typedef struct ee__frame {
    ee__slot *slots;
    ee__bytes lengths; /* int64, row by row */
} ee__frame;

struct ee__server {
    ee_game *game;
    ee_copy *copies;
    int num_envs, hold, input, output;
    int num_agents, num_types, num_lengths, num_slots, num_globals, num_metrics, has_global;
    int *widths, *num_labels; /* features by type, labels by action */
    ee__frame rows, lasts;
    ee__bytes payload, out, head, asks, scores, metrics, end_rows, end_flags, end_scores;
    ee__bytes end_metrics, failures;
    int num_ends;
    ucontext_t main;
    ee_copy *entering;
};

static int ee__num_names(const char *const *names) {
    int count = 0;
    while (names && names[count]) count++;
    return count;
}

static void ee__make_obs(const ee__server *server, ee__obs *obs) {
    const ee_game *game = server->game;
    obs->values = (ee__bytes *)ee__zeros((size_t)game->num_entities, sizeof(ee__bytes));
    obs->visible = (ee__bytes *)ee__zeros((size_t)game->num_entities, sizeof(ee__bytes));
    obs->counts = (int *)ee__zeros((size_t)game->num_entities, sizeof(int));
    obs->asked = (ee__asked *)ee__zeros((size_t)game->num_actions, sizeof(ee__asked));
    obs->globals = (float *)ee__zeros((size_t)server->num_globals, sizeof(float));
    obs->metrics = (double *)ee__zeros((size_t)server->num_metrics, sizeof(double));
}

static void ee__clear_obs(const ee__server *server, ee__obs *obs, double score) {
    int i;
    for (i = 0; i < server->game->num_entities; i++) {
        obs->values[i].size = obs->visible[i].size = 0;
        obs->counts[i] = 0;
    }
    for (i = 0; i < server->game->num_actions; i++) {
        ee__asked *asked = &obs->asked[i];
        asked->entity.size = asked->number.size = asked->mask.size = 0;
        asked->count = asked->has_mask = 0;
    }
    for (i = 0; i < server->num_metrics; i++) obs->metrics[i] = NAN;
    obs->score = score;
    obs->has_hidden = 0;
}

void *ee_state(ee_copy *copy) { return copy->state; }
const ee_game *ee_game_of(const ee_copy *copy) { return copy->server->game; }
ee_agent *ee_agent_of(ee_copy *copy, int agent) { return &copy->agents[agent]; }

void ee_observe(ee_agent *agent, double score) {
    ee__clear_obs(agent->copy->server, &agent->obs, score);
}

static int ee__add(ee_agent *agent, int entity, const float *features, unsigned char visible) {
    ee__obs *obs = &agent->obs;
    const ee__server *server = agent->copy->server;
    if (entity < 0 || entity >= server->game->num_entities) ee__die("ee_add: no such entity type");
    ee__append(&obs->values[entity], features, sizeof(float) * (size_t)server->widths[entity]);
    *ee__grow(&obs->visible[entity], 1) = visible;
    obs->has_hidden |= !visible;
    return obs->counts[entity]++;
}

int ee_add(ee_agent *agent, int entity, const float *features) {
    return ee__add(agent, entity, features, 1);
}

int ee_add_hidden(ee_agent *agent, int entity, const float *features) {
    return ee__add(agent, entity, features, 0);
}

void ee_globals(ee_agent *agent, const float *features) {
    size_t count = (size_t)agent->copy->server->num_globals;
    if (count) memcpy(agent->obs.globals, features, sizeof(float) * count);
}

void ee_metric(ee_agent *agent, int metric, double value) { agent->obs.metrics[metric] = value; }

static ee__asked *ee__asked_of(ee_agent *agent, int action) {
    if (action < 0 || action >= agent->copy->server->game->num_actions) {
        ee__die("no such action");
    }
    return &agent->obs.asked[action];
}

void ee_ask(ee_agent *agent, int action) { ee__asked_of(agent, action)->count = 1; }

void ee_actor(ee_agent *agent, int action, int entity, int number) {
    ee__asked *asked = ee__asked_of(agent, action);
    ee__append(&asked->entity, &entity, sizeof entity);
    ee__append(&asked->number, &number, sizeof number);
    asked->count++;
}

/* Number of choices of an actor. */
static size_t ee__num_choices(const ee__server *server, const ee__obs *obs, int action) {
    const ee_action *kind = &server->game->actions[action];
    return kind->kind == EE_SELECT_ENTITY ? (size_t)obs->counts[kind->selects]
                                          : (size_t)server->num_labels[action];
}

unsigned char *ee_mask(ee_agent *agent, int action) {
    ee__asked *asked = ee__asked_of(agent, action);
    size_t width = ee__num_choices(agent->copy->server, &agent->obs, action);
    size_t wanted = width * (size_t)asked->count;
    if (!asked->count) ee__die("ee_mask: ask for the action first");
    asked->has_mask = 1;
    if (asked->mask.size < wanted) ee__fill(&asked->mask, 1, wanted - asked->mask.size);
    return asked->mask.data + (wanted - width);
}

void ee_wait(ee_agent *agent) { agent->waits = agent->is_playing = 1; }

void ee_end(ee_agent *agent, int is_truncated) {
    ee__last *last;
    ee__obs shown = agent->obs;
    if (agent->num_ends == 2) ee__die("ee_end: the agent has ended its episode already");
    last = &agent->ends[agent->num_ends++];
    last->flags = (is_truncated ? EE__TRUNCATED : EE__TERMINATED) +
                  (agent->copy->is_new ? EE__NEW : 0);
    agent->obs = last->obs;
    last->obs = shown;
    agent->waits = agent->is_playing = 0;
}

void ee_fail(ee_copy *copy, const char *message) {
    copy->failure.size = 0;
    ee__append(&copy->failure, message, strlen(message) + 1);
}

int ee_num_answers(const ee_agent *agent, int action) { return agent->num_answers[action]; }

int ee_choice(const ee_agent *agent, int action, int actor) {
    return (int)agent->choices[action][actor];
}

const float *ee_numbers(const ee_agent *agent, int action, int actor) {
    return agent->numbers[action] + (size_t)actor * (size_t)agent->copy->server->num_labels[action];
}

uint64_t ee_draw(ee_random *random) {
    uint64_t z = random->state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

uint32_t ee_below(ee_random *random, uint32_t limit) {
    return (uint32_t)(((ee_draw(random) >> 32) * limit) >> 32);
}

double ee_uniform(ee_random *random) { return (double)(ee_draw(random) >> 11) / 9007199254740992.0; }

/* ------------------------------------------------------------------ a copy's own stack */

static ee__server *ee__running;

static void ee__enter(void) {
    ee_copy *copy = ee__running->entering;
    copy->server->game->play(copy, copy->seed);
    copy->has_returned = 1;
    setcontext(&copy->server->main);
}

int ee_yield(ee_copy *copy) {
    if (!copy->is_leaving) swapcontext(&copy->context, &copy->server->main);
    return !copy->is_leaving;
}

int ee_act(ee_agent *agent) {
    ee_wait(agent);
    return ee_yield(agent->copy);
}

static void ee__resume(ee_copy *copy) { swapcontext(&copy->server->main, &copy->context); }

/* ------------------------------------------------------------------ episodes */

static void ee__after(ee_copy *copy) {
    int i, waits = 0, is_playing = 0;
    for (i = 0; i < copy->server->num_agents; i++) {
        waits |= copy->agents[i].waits;
        is_playing |= copy->agents[i].is_playing;
    }
    if (!copy->server->game->play) copy->has_returned = !waits;
    if (!copy->failure.size && copy->has_returned && is_playing) {
        ee_fail(copy, "play returned, but an agent has not ended its episode: call ee_end");
    } else if (!copy->failure.size && !copy->has_returned && !waits) {
        ee_fail(copy, "ee_yield was called, but no agent waits: call ee_wait");
    }
    if (copy->failure.size || copy->has_returned) copy->is_playing = 0;
}

/* Lets a game that owns its loop return. */
static void ee__leave(ee_copy *copy) {
    int i;
    if (copy->server->game->play && !copy->has_returned) {
        copy->is_leaving = 1;
        ee__resume(copy);
        copy->is_leaving = 0;
        copy->has_returned = 1;
    }
    for (i = 0; i < copy->server->num_agents; i++) {
        copy->agents[i].waits = copy->agents[i].is_playing = 0;
    }
    copy->is_playing = 0;
}

static void ee__start(ee_copy *copy, uint64_t seed) {
    ee__server *server = copy->server;
    copy->flags |= 1;
    copy->is_new = copy->is_playing = 1;
    copy->seed = seed;
    if (server->game->play) {
        copy->has_returned = 0;
        if (!copy->stack) copy->stack = (char *)ee__resized(NULL, EE__STACK_BYTES);
        if (getcontext(&copy->context)) ee__die("getcontext failed");
        copy->context.uc_stack.ss_sp = copy->stack;
        copy->context.uc_stack.ss_size = EE__STACK_BYTES;
        copy->context.uc_link = &server->main;
        makecontext(&copy->context, ee__enter, 0);
        server->entering = copy;
        ee__resume(copy);
    } else {
        server->game->start(copy, seed);
    }
    ee__after(copy);
}

/* Reports a failure of every agent that has not ended its episode. */
static void ee__report(ee_copy *copy, int first_row) {
    ee__server *server = copy->server;
    char row[32];
    int i, has_any = 0;
    for (i = 0; i < server->num_agents; i++) {
        ee_agent *agent = &copy->agents[i];
        ee__last *last = &agent->ends[agent->num_ends];
        if (agent->num_ends == 2 || (!agent->is_playing && (has_any || i + 1 < server->num_agents))) {
            continue;
        }
        has_any = 1;
        agent->num_ends++;
        ee__clear_obs(server, &last->obs, 0);
        last->flags = EE__FAILED + (copy->is_new ? EE__NEW : 0);
        snprintf(row, sizeof row, "{\"row\": %d, ", first_row + i);
        ee__text(&server->failures, server->failures.size ? ", " : "[");
        ee__text(&server->failures, row);
        ee__text(&server->failures, "\"message\": ");
        ee__quoted(&server->failures, (const char *)copy->failure.data);
        ee__text(&server->failures, "}");
    }
    copy->failure.size = 0;
    ee__leave(copy);
}

static void ee__continue(ee_copy *copy, uint64_t seed, int first_row) {
    int i;
    if (!copy->is_playing) {
        ee__start(copy, seed);
    } else {
        for (i = 0; i < copy->server->num_agents; i++) copy->agents[i].waits = 0;
        if (copy->server->game->play) {
            ee__resume(copy);
        } else {
            copy->server->game->step(copy);
        }
        ee__after(copy);
        if (copy->failure.size) ee__report(copy, first_row);
        if (!copy->is_playing && !copy->server->hold) ee__start(copy, seed);
    }
    if (copy->failure.size) ee__report(copy, first_row);
}

/* ------------------------------------------------------------------ frames */

static void ee__add_flags(ee__slot *slot, const unsigned char *flags, size_t count) {
    if (!flags && !slot->is_present) {
        slot->implied += count;
        return;
    }
    if (!slot->is_present) {
        slot->is_present = 1;
        ee__fill(&slot->bytes, 1, slot->implied);
    }
    if (flags) {
        ee__append(&slot->bytes, flags, count);
    } else {
        ee__fill(&slot->bytes, 1, count);
    }
}

static void ee__clear_frame(const ee__server *server, ee__frame *frame) {
    int i;
    frame->lengths.size = 0;
    for (i = 0; i < server->num_slots; i++) {
        frame->slots[i].bytes.size = frame->slots[i].implied = 0;
        if (frame->slots[i].is_flags) frame->slots[i].is_present = 0;
    }
}

/* Index of an actor in its observation. */
static int64_t ee__index(const ee__obs *obs, int entity, int number) {
    int64_t index = number;
    while (entity-- > 0) index += obs->counts[entity];
    return index;
}

static void ee__add_asked(
    ee__server *server, const ee__obs *obs, int action, int64_t *length, ee__slot *slot
) {
    const ee_action *kind = &server->game->actions[action];
    ee__asked *asked = &obs->asked[action];
    size_t width = ee__num_choices(server, obs, action);
    int i;
    *length = asked->count;
    if (kind->kind != EE_GLOBAL_CATEGORICAL) {
        int64_t *indices =
            (int64_t *)(void *)ee__grow(&slot->bytes, sizeof(int64_t) * (size_t)asked->count);
        const int *entity = (const int *)(const void *)asked->entity.data;
        const int *number = (const int *)(const void *)asked->number.data;
        for (i = 0; i < asked->count; i++) indices[i] = ee__index(obs, entity[i], number[i]);
    }
    if (kind->kind != EE_CONTINUOUS) {
        size_t wanted = width * (size_t)asked->count;
        if (asked->has_mask && asked->mask.size < wanted) {
            ee__fill(&asked->mask, 1, wanted - asked->mask.size);
        }
        ee__add_flags(&slot[1], asked->has_mask ? asked->mask.data : NULL, wanted);
    }
    if (kind->kind == EE_SELECT_ENTITY) {
        int64_t first = ee__index(obs, kind->selects, 0), *actees;
        length[1] = asked->count ? (int64_t)width : 0;
        actees = (int64_t *)(void *)ee__grow(&slot[2].bytes, sizeof(int64_t) * (size_t)length[1]);
        for (i = 0; i < (int)length[1]; i++) actees[i] = first + i;
    }
}

/* Adds an observation to a frame; NULL = an empty row. */
static void ee__add_row(ee__server *server, ee__frame *frame, const ee__obs *obs) {
    size_t size = sizeof(int64_t) * (size_t)server->num_lengths;
    int64_t *lengths = (int64_t *)(void *)ee__grow(&frame->lengths, size);
    ee__slot *slot = frame->slots;
    int i, num_entities = server->game->num_entities;
    memset(lengths, 0, size);
    if (!obs) return;
    for (i = 0; i < num_entities; i++, slot += 2) {
        lengths[i] = obs->counts[i];
        ee__append(&slot[0].bytes, obs->values[i].data, obs->values[i].size);
        ee__add_flags(&slot[1], obs->has_hidden ? obs->visible[i].data : NULL, obs->visible[i].size);
    }
    lengths += num_entities;
    if (server->has_global) {
        *lengths++ = 1;
        ee__append(&slot[0].bytes, obs->globals, sizeof(float) * (size_t)server->num_globals);
        slot += 2;
    }
    for (i = 0; i < server->game->num_actions; i++, slot += 3) {
        ee__add_asked(server, obs, i, lengths, slot);
        lengths += server->game->actions[i].kind == EE_SELECT_ENTITY ? 2 : 1;
    }
}

static void ee__write_frame(ee__server *server, ee__frame *frame, int num_rows) {
    ee__bytes *out = &server->out;
    const int64_t *lengths = (const int64_t *)(const void *)frame->lengths.data;
    int64_t *matrix;
    int i, row, num = server->num_lengths;
    for (i = 0; i < server->num_slots; i++) {
        *ee__grow(out, 1) = (unsigned char)frame->slots[i].is_present;
    }
    ee__pad(out, 0);
    matrix = (int64_t *)(void *)ee__grow(out, sizeof(int64_t) * (size_t)(num * num_rows));
    for (row = 0; row < num_rows; row++) {
        for (i = 0; i < num; i++) matrix[i * num_rows + row] = *lengths++;
    }
    for (i = 0; i < server->num_slots; i++) {
        if (!frame->slots[i].is_present) continue;
        ee__append(out, frame->slots[i].bytes.data, frame->slots[i].bytes.size);
        ee__pad(out, 0);
    }
}

/* ------------------------------------------------------------------ messages */

static void ee__write(ee__server *server, const void *data, size_t size) {
    const char *next = (const char *)data;
    while (size) {
        ssize_t count = write(server->output, next, size);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) exit(0); /* the host is gone */
        next += count;
        size -= (size_t)count;
    }
}

static void ee__read(ee__server *server, void *data, size_t size) {
    char *next = (char *)data;
    while (size) {
        ssize_t count = read(server->input, next, size);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) exit(0); /* the host is gone */
        next += count;
        size -= (size_t)count;
    }
}

static void ee__begin(ee__bytes *out) {
    out->size = 0;
    ee__fill(out, 0, 16);
}

/* Completes the header of the message in `out`, and sends it. */
static void ee__send(ee__server *server, uint32_t kind) {
    uint64_t size = server->out.size - 16;
    memcpy(server->out.data, "ENE1", 4);
    memcpy(server->out.data + 4, &kind, 4);
    memcpy(server->out.data + 8, &size, 8);
    ee__write(server, server->out.data, server->out.size);
}

static void ee__send_error(ee__server *server, const char *message) {
    ee__begin(&server->out);
    ee__text(&server->out, "{\"message\": ");
    ee__quoted(&server->out, message);
    ee__text(&server->out, "}");
    ee__pad(&server->out, ' ');
    ee__send(server, EE__ERROR);
    ee__die(message);
}

/* Receives a message; the payload ends with a zero byte that does not count. */
static uint32_t ee__receive(ee__server *server) {
    unsigned char header[16];
    uint32_t kind;
    uint64_t size;
    ee__read(server, header, sizeof header);
    memcpy(&kind, header + 4, 4);
    memcpy(&size, header + 8, 8);
    if (memcmp(header, "ENE1", 4)) ee__die("the host sent something else than a message");
    if (size > EE__MAX_BYTES || size % 8) ee__die("the host sent a message of an invalid size");
    server->payload.size = 0;
    *(ee__grow(&server->payload, (size_t)size + 1) + size) = 0;
    server->payload.size--;
    ee__read(server, server->payload.data, (size_t)size);
    return kind;
}

/* The value of a key of a JSON object, or NULL; only for objects as the host writes them. */
static const char *ee__find(const char *json, const char *key) {
    int depth = 0;
    size_t length = strlen(key);
    for (; json && *json; json++) {
        if (*json == '{' || *json == '[') depth++;
        if (*json == '}' || *json == ']') depth--;
        if (depth == 0) return NULL;
        if (*json != '"') continue;
        if (depth == 1 && !strncmp(json + 1, key, length) && json[length + 1] == '"') {
            const char *value = json + length + 2;
            while (*value == ' ') value++;
            if (*value == ':') {
                do value++;
                while (*value == ' ');
                return value;
            }
        }
        for (json++; *json && *json != '"'; json++) {
            if (*json == '\\' && json[1]) json++;
        }
        if (!*json) return NULL;
    }
    return NULL;
}

static double ee__value(const char *json) {
    if (!strncmp(json, "true", 4)) return 1;
    return !strncmp(json, "false", 5) ? 0 : strtod(json, NULL);
}

static void ee__names(ee__bytes *out, const char *key, const char *const *names) {
    int i;
    ee__quoted(out, key);
    ee__text(out, ": [");
    for (i = 0; names && names[i]; i++) {
        if (i) ee__text(out, ", ");
        ee__quoted(out, names[i]);
    }
    ee__text(out, "]");
}

static void ee__bounds(ee__bytes *out, const char *key, const float *values, int count) {
    char text[32];
    int i;
    ee__text(out, ", ");
    ee__quoted(out, key);
    ee__text(out, ": [");
    for (i = 0; i < count; i++) {
        snprintf(text, sizeof text, "%s%.9g", i ? ", " : "", (double)values[i]);
        ee__text(out, text);
    }
    ee__text(out, "]");
}

static void ee__say_hello(ee__server *server) {
    ee_game *game = server->game;
    const char *token = getenv("ENTITY_ENV_TOKEN");
    ee__bytes *out = &server->out;
    char text[64];
    int i;
    ee__begin(out);
    ee__text(out, "{\"protocol\": 1, \"name\": ");
    ee__quoted(out, game->name);
    if (game->version) {
        ee__text(out, ", \"version\": ");
        ee__quoted(out, game->version);
    }
    ee__text(out, ", \"token\": ");
    ee__quoted(out, token ? token : "");
    ee__text(out, ", \"settings\": {");
    for (i = 0; i < game->num_settings; i++) {
        ee_setting *setting = &game->settings[i];
        if (i) ee__text(out, ", ");
        ee__quoted(out, setting->name);
        if (setting->type == EE_BOOL) {
            snprintf(text, sizeof text, ": %s", setting->value != 0 ? "true" : "false");
        } else if (setting->type == EE_INT) {
            snprintf(text, sizeof text, ": %.0f", setting->value);
        } else {
            snprintf(text, sizeof text, ": %.17g", setting->value);
            if (!strpbrk(text, ".eE")) strcat(text, ".0");
        }
        ee__text(out, text);
    }
    ee__text(out, "}}");
    ee__pad(out, ' ');
    ee__send(server, EE__HELLO);
}

static void ee__say_ready(ee__server *server) {
    static const char *const kinds[] = {
        "global_categorical", "categorical", "select_entity", "continuous"};
    ee_game *game = server->game;
    ee__bytes *out = &server->out;
    char text[48];
    int i;
    ee__begin(out);
    snprintf(text, sizeof text, "{\"num_agents\": %d, \"spaces\": {", server->num_agents);
    ee__text(out, text);
    ee__names(out, "global_features", game->global_features);
    ee__text(out, ", \"entities\": [");
    for (i = 0; i < game->num_entities; i++) {
        ee__text(out, i ? ", {\"name\": " : "{\"name\": ");
        ee__quoted(out, game->entities[i].name);
        ee__text(out, ", ");
        ee__names(out, "features", game->entities[i].features);
        ee__text(out, "}");
    }
    ee__text(out, "], \"actions\": [");
    for (i = 0; i < game->num_actions; i++) {
        const ee_action *action = &game->actions[i];
        ee__text(out, i ? ", {\"name\": " : "{\"name\": ");
        ee__quoted(out, action->name);
        ee__text(out, ", \"kind\": ");
        ee__quoted(out, kinds[action->kind]);
        ee__text(out, ", ");
        if (action->kind == EE_SELECT_ENTITY) {
            ee__text(out, "\"selects\": ");
            ee__quoted(out, game->entities[action->selects].name);
        } else {
            ee__names(out, "labels", action->labels);
        }
        if (action->kind == EE_CONTINUOUS) {
            ee__bounds(out, "low", action->low, server->num_labels[i]);
            ee__bounds(out, "high", action->high, server->num_labels[i]);
        }
        ee__text(out, "}");
    }
    ee__text(out, "]}, ");
    ee__names(out, "metrics", game->metrics);
    ee__text(out, "}");
    ee__pad(out, ' ');
    ee__send(server, EE__READY);
}

/* ------------------------------------------------------------------ requests */

static void ee__make_frame(ee__server *server, ee__frame *frame) {
    const ee_game *game = server->game;
    ee__slot *slot;
    int i;
    frame->slots = (ee__slot *)ee__zeros((size_t)server->num_slots, sizeof(ee__slot));
    slot = frame->slots;
    for (i = 0; i < game->num_entities; i++, slot += 2) {
        slot[0].is_present = server->widths[i] > 0;
        slot[1].is_flags = 1;
    }
    if (server->has_global) {
        slot[0].is_present = server->num_globals > 0;
        slot += 2;
    }
    for (i = 0; i < game->num_actions; i++, slot += 3) {
        slot[0].is_present = game->actions[i].kind != EE_GLOBAL_CATEGORICAL;
        slot[1].is_flags = 1;
        slot[2].is_present = game->actions[i].kind == EE_SELECT_ENTITY;
    }
}

static void ee__make_copies(ee__server *server) {
    ee_game *game = server->game;
    size_t num_actions = (size_t)game->num_actions;
    int i, j;
    server->copies = (ee_copy *)ee__zeros((size_t)server->num_envs, sizeof(ee_copy));
    for (i = 0; i < server->num_envs; i++) {
        ee_copy *copy = &server->copies[i];
        copy->server = server;
        copy->has_returned = 1;
        copy->state = ee__zeros(1, game->state_size);
        copy->agents = (ee_agent *)ee__zeros((size_t)server->num_agents, sizeof(ee_agent));
        for (j = 0; j < server->num_agents; j++) {
            ee_agent *agent = &copy->agents[j];
            agent->copy = copy;
            ee__make_obs(server, &agent->obs);
            ee__make_obs(server, &agent->ends[0].obs);
            ee__make_obs(server, &agent->ends[1].obs);
            agent->choices = (int64_t **)ee__zeros(num_actions, sizeof(int64_t *));
            agent->numbers = (float **)ee__zeros(num_actions, sizeof(float *));
            agent->num_answers = (int *)ee__zeros(num_actions, sizeof(int));
        }
    }
}

static void ee__start_game(ee__server *server) {
    ee_game *game = server->game;
    const char *json = (const char *)server->payload.data, *found, *settings, *problem = NULL;
    int i;
    found = ee__find(json, "num_envs");
    server->num_envs = found ? (int)ee__value(found) : 0;
    found = ee__find(json, "hold");
    server->hold = found ? ee__value(found) != 0 : 0;
    settings = ee__find(json, "settings");
    if (server->num_envs < 1) ee__send_error(server, "START: num_envs must be at least 1");
    for (i = 0; settings && i < game->num_settings; i++) {
        found = ee__find(settings, game->settings[i].name);
        if (found) game->settings[i].value = ee__value(found);
    }
    if (game->configure) problem = game->configure(game);
    if (problem) ee__send_error(server, problem);
    server->num_agents = game->num_agents > 0 ? game->num_agents : 1;
    server->num_globals = ee__num_names(game->global_features);
    server->num_metrics = ee__num_names(game->metrics);
    server->has_global = server->num_globals > 0;
    server->widths = (int *)ee__zeros((size_t)game->num_entities, sizeof(int));
    server->num_labels = (int *)ee__zeros((size_t)game->num_actions, sizeof(int));
    for (i = 0; i < game->num_entities; i++) {
        server->widths[i] = ee__num_names(game->entities[i].features);
    }
    for (i = 0; i < game->num_actions; i++) {
        server->num_labels[i] = ee__num_names(game->actions[i].labels);
        server->has_global |= game->actions[i].kind == EE_GLOBAL_CATEGORICAL;
        server->num_lengths += game->actions[i].kind == EE_SELECT_ENTITY ? 2 : 1;
    }
    server->num_types = game->num_entities + server->has_global;
    server->num_lengths += server->num_types;
    server->num_slots = 2 * server->num_types + 3 * game->num_actions;
    ee__make_frame(server, &server->rows);
    ee__make_frame(server, &server->lasts);
    ee__make_copies(server);
}

/* Points the agents that waited to their answers in an ACT. */
static void ee__read_answers(ee__server *server) {
    const ee_game *game = server->game;
    unsigned char *next = server->payload.data + 8 * (size_t)server->num_envs;
    unsigned char *end = server->payload.data + server->payload.size;
    int i, j, k;
    for (k = 0; k < game->num_actions; k++) {
        int is_continuous = game->actions[k].kind == EE_CONTINUOUS;
        size_t width = is_continuous ? 4 * (size_t)server->num_labels[k] : 8, size = 0;
        unsigned char *first = next;
        for (i = 0; i < server->num_envs; i++) {
            for (j = 0; j < server->num_agents; j++) {
                ee_agent *agent = &server->copies[i].agents[j];
                int count = agent->waits ? agent->obs.asked[k].count : 0;
                agent->num_answers[k] = count;
                agent->choices[k] = (int64_t *)(void *)(first + size);
                agent->numbers[k] = (float *)(void *)(first + size);
                size += width * (size_t)count;
            }
        }
        if (size > (size_t)(end - first)) ee__send_error(server, "ACT: too few actions");
        next = first + size + (size_t)(-(int64_t)size & 7);
    }
    if (next != end) ee__send_error(server, "ACT: the size does not match the actors that wait");
}

static void ee__check_answers(ee__server *server) {
    const ee_game *game = server->game;
    int i, j, k, n;
    for (i = 0; i < server->num_envs; i++) {
        for (j = 0; j < server->num_agents; j++) {
            ee_agent *agent = &server->copies[i].agents[j];
            for (k = 0; k < game->num_actions; k++) {
                int64_t limit = (int64_t)ee__num_choices(server, &agent->obs, k);
                if (game->actions[k].kind == EE_CONTINUOUS) continue;
                for (n = 0; n < agent->num_answers[k]; n++) {
                    int64_t choice = agent->choices[k][n];
                    if (choice < 0 || choice >= limit) {
                        ee__send_error(server, "ACT: a choice is out of range");
                    }
                }
            }
        }
    }
}

/* Adds the rows and ends of a copy to the answer. */
static void ee__add_copy(ee__server *server, ee_copy *copy, int first_row) {
    int i, k, m;
    *ee__grow(&server->head, 1) = (unsigned char)(copy->flags + (copy->is_playing ? 0 : 2));
    for (i = 0; i < server->num_agents; i++) {
        ee_agent *agent = &copy->agents[i];
        const ee__obs *obs = agent->waits ? &agent->obs : NULL;
        double score = obs ? obs->score : 0;
        *ee__grow(&server->asks, 1) = (unsigned char)(obs != NULL);
        ee__append(&server->scores, &score, sizeof score);
        for (m = 0; m < server->num_metrics; m++) {
            double value = obs ? obs->metrics[m] : NAN;
            ee__append(&server->metrics, &value, sizeof value);
        }
        ee__add_row(server, &server->rows, obs);
        for (k = 0; k < agent->num_ends; k++) {
            ee__last *last = &agent->ends[k];
            int64_t row = first_row + i;
            ee__append(&server->end_rows, &row, sizeof row);
            ee__append(&server->end_flags, &last->flags, sizeof last->flags);
            ee__append(&server->end_scores, &last->obs.score, sizeof(double));
            ee__append(
                &server->end_metrics, last->obs.metrics,
                sizeof(double) * (size_t)server->num_metrics
            );
            ee__add_row(
                server, &server->lasts, last->flags & EE__FAILED ? NULL : &last->obs
            );
            server->num_ends++;
        }
    }
}

/* Writes metrics, which were gathered row by row, metric by metric. */
static void ee__write_metrics(ee__server *server, const ee__bytes *gathered, int num_rows) {
    const double *values = (const double *)(const void *)gathered->data;
    int m, row;
    for (m = 0; m < server->num_metrics; m++) {
        for (row = 0; row < num_rows; row++) {
            ee__append(&server->out, &values[row * server->num_metrics + m], sizeof(double));
        }
    }
}

static void ee__answer(ee__server *server, int num_copies) {
    ee__bytes *out = &server->out;
    uint64_t counts[2];
    int num_rows = num_copies * server->num_agents;
    if (server->failures.size) {
        ee__text(&server->failures, "]");
        ee__pad(&server->failures, ' ');
    }
    ee__begin(out);
    counts[0] = (uint64_t)server->num_ends;
    counts[1] = server->failures.size;
    ee__append(out, counts, sizeof counts);
    ee__append(out, server->head.data, server->head.size);
    ee__pad(out, 0);
    ee__append(out, server->asks.data, server->asks.size);
    ee__pad(out, 0);
    ee__append(out, server->scores.data, server->scores.size);
    ee__write_metrics(server, &server->metrics, num_rows);
    ee__write_frame(server, &server->rows, num_rows);
    if (server->num_ends) {
        ee__append(out, server->end_rows.data, server->end_rows.size);
        ee__append(out, server->end_flags.data, server->end_flags.size);
        ee__append(out, server->end_scores.data, server->end_scores.size);
        ee__write_metrics(server, &server->end_metrics, server->num_ends);
        ee__write_frame(server, &server->lasts, server->num_ends);
    }
    ee__append(out, server->failures.data, server->failures.size);
    ee__send(server, EE__STEP);
}

static void ee__begin_copy(ee__server *server, ee_copy *copy) {
    int j;
    copy->flags = copy->is_new = 0;
    for (j = 0; j < server->num_agents; j++) copy->agents[j].num_ends = 0;
}

static void ee__begin_answer(ee__server *server) {
    server->head.size = server->asks.size = server->scores.size = server->metrics.size = 0;
    server->end_rows.size = server->end_flags.size = server->end_scores.size = 0;
    server->end_metrics.size = server->failures.size = 0;
    server->num_ends = 0;
    ee__clear_frame(server, &server->rows);
    ee__clear_frame(server, &server->lasts);
}

static void ee__reset(ee__server *server) {
    uint64_t count = 0, i;
    const unsigned char *ids = server->payload.data + 8, *seeds;
    if (server->payload.size >= 8) memcpy(&count, server->payload.data, 8);
    if (!count || count > (uint64_t)server->num_envs || server->payload.size != 8 + 16 * count) {
        ee__send_error(server, "RESET: the size does not match the number of copies");
    }
    seeds = ids + 8 * count;
    ee__begin_answer(server);
    for (i = 0; i < count; i++) {
        int64_t id;
        uint64_t seed;
        ee_copy *copy;
        memcpy(&id, ids + 8 * i, 8);
        memcpy(&seed, seeds + 8 * i, 8);
        if (id < 0 || id >= server->num_envs) ee__send_error(server, "RESET: no such copy");
        copy = &server->copies[id];
        ee__begin_copy(server, copy);
        ee__leave(copy);
        ee__start(copy, seed);
        if (copy->failure.size) ee__report(copy, (int)i * server->num_agents);
        ee__add_copy(server, copy, (int)i * server->num_agents);
    }
    ee__answer(server, (int)count);
}

static void ee__act(ee__server *server) {
    int i;
    if (server->payload.size < 8 * (size_t)server->num_envs) {
        ee__send_error(server, "ACT: too few seeds");
    }
    ee__read_answers(server);
    ee__check_answers(server);
    ee__begin_answer(server);
    for (i = 0; i < server->num_envs; i++) {
        ee_copy *copy = &server->copies[i];
        uint64_t seed;
        memcpy(&seed, server->payload.data + 8 * (size_t)i, 8);
        ee__begin_copy(server, copy);
        ee__continue(copy, seed, i * server->num_agents);
        ee__add_copy(server, copy, i * server->num_agents);
    }
    ee__answer(server, server->num_envs);
}

static void ee__connect(ee__server *server) {
    const char *address = getenv("ENTITY_ENV_ADDRESS");
    int one = 1;
    if (!address) ee__die("ENTITY_ENV_ADDRESS is not set: entity_env starts this program");
    if (!strcmp(address, "stdio")) {
        server->input = dup(0);
        server->output = dup(1);
        dup2(2, 1); /* the game may print */
    } else if (!strncmp(address, "unix:", 5)) {
        struct sockaddr_un place;
        memset(&place, 0, sizeof place);
        place.sun_family = AF_UNIX;
        strncpy(place.sun_path, address + 5, sizeof place.sun_path - 1);
        server->input = server->output = socket(AF_UNIX, SOCK_STREAM, 0);
        if (connect(server->input, (struct sockaddr *)&place, sizeof place)) {
            ee__die("cannot connect to ENTITY_ENV_ADDRESS");
        }
    } else if (!strncmp(address, "tcp:127.0.0.1:", 14)) {
        struct sockaddr_in place;
        memset(&place, 0, sizeof place);
        place.sin_family = AF_INET;
        place.sin_port = htons((uint16_t)atoi(address + 14));
        place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        server->input = server->output = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(server->input, (struct sockaddr *)&place, sizeof place)) {
            ee__die("cannot connect to ENTITY_ENV_ADDRESS");
        }
        setsockopt(server->input, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    } else {
        ee__die("ENTITY_ENV_ADDRESS has an unknown form");
    }
}

int ee_serve(ee_game *game) {
    ee__server *server = (ee__server *)ee__zeros(1, sizeof(ee__server));
    int is_reset = 0;
    server->game = game;
    ee__running = server;
    ee__connect(server);
    ee__say_hello(server);
    for (;;) {
        uint32_t kind = ee__receive(server);
        if (kind == EE__CLOSE) return 0;
        if (kind == EE__START && !server->copies) {
            ee__start_game(server);
            ee__say_ready(server);
        } else if (kind == EE__RESET && server->copies) {
            ee__reset(server);
            is_reset = 1;
        } else if (kind == EE__ACT && is_reset) {
            ee__act(server);
        } else {
            ee__send_error(server, "this message is not due now");
        }
    }
}

#endif /* ENTITY_ENV_IMPLEMENTATION */
