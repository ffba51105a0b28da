/* entity_env.h: games in C or C++ that entity_env plays, trains and records.

   A program includes this header, in one of its source files after

       #define ENTITY_ENV_IMPLEMENTATION

   describes its game in an `ee_game`, and calls `ee_serve`. README.md has an example. The header
   needs C99 or C++11 and POSIX, and speaks version 1 of the protocol. It is not thread-safe, and
   needs the decimal point of the locale "C". Include it before the headers of the system.

   A game either owns its loop (`play`, each copy on its own stack) or is called for each step
   (`start` and `step`), which is faster. Both show observations with the functions below. */

#ifndef ENTITY_ENV_H
#define ENTITY_ENV_H

#if defined(ENTITY_ENV_IMPLEMENTATION) && !defined(_DEFAULT_SOURCE)
#define _DEFAULT_SOURCE 1 /* POSIX, also with -std=c99 */
#endif

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------ description of a game */

/* An entity type, or a relation; `features` ends with NULL. */
typedef struct ee_entity {
    const char *name;
    const char *const *features;
} ee_entity;

typedef enum ee_kind {
    EE_GLOBAL_CATEGORICAL, /* one label for the whole observation */
    EE_CATEGORICAL,        /* one label per actor */
    EE_SELECT_ENTITY,      /* one entity or relation of type `selects` per actor */
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

/* A setting; `value` is its default until the host has sent another one. The header refuses values
   of the wrong type: the value of an EE_INT is an int, that of an EE_BOOL 0 or 1. */
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
    const char *version; /* of the rules; may be NULL */
    const char *doc;     /* rules and goal for players; may be NULL */
    int num_agents;      /* 0 means 1 */
    const ee_entity *entities;
    int num_entities;
    const char *const *global_features;
    const ee_action *actions;
    int num_actions;
    ee_setting *settings;
    int num_settings;
    const char *const *metrics;
    size_t state_size; /* bytes of `ee_state`, set to 0 before the first episode */
    /* For decisions in several parts, by action: the number of actions directly before it whose
       choices it depends on. They are asked of the same actors. NULL = no action depends on others. */
    const int *num_given;
    /* The last `num_relations` entity types are relations: facts about pairs of entities, whose first
       two features are the numbers of these entities among those of their types. `references` has,
       for each relation, the types of both. */
    int num_relations;
    const int (*references)[2];
    /* Called when the settings are known; may change this struct. Returns an error, or NULL. */
    const char *(*configure)(struct ee_game *game);
    /* Plays an episode; returns when all agents have ended theirs, or when `ee_act` returns 0. */
    void (*play)(ee_copy *copy, uint64_t seed);
    /* Instead of `play`: begins an episode, and continues it with the answers of all agents that
       wait. Each call shows observations of agents that wait next, or ends episodes. */
    void (*start)(ee_copy *copy, uint64_t seed);
    void (*step)(ee_copy *copy);
} ee_game;

/* Serves the game until the host closes the connection, then returns 0, the exit status of the
   program. Exits with status 1 after a message that is invalid, or a call that is: the reason is
   sent to the host and printed to standard error. Ignores SIGPIPE. */
int ee_serve(ee_game *game);

/* ------------------------------------------------------------------ for games */

/* Memory of a copy, of `state_size` bytes; it is kept from one episode to the next. */
void *ee_state(ee_copy *copy);
const ee_game *ee_game_of(const ee_copy *copy);
ee_agent *ee_agent_of(ee_copy *copy, int agent);

/* Begins an observation; `score` is the agent's score so far in this episode. */
void ee_observe(ee_agent *agent, double score);
/* Adds an entity or relation with these features and returns its number among those of its type, from
   0. A relation may come before its entities. */
int ee_add(ee_agent *agent, int entity, const float *features);
/* Like `ee_add`, for an entity that the policy must not see. */
int ee_add_hidden(ee_agent *agent, int entity, const float *features);
/* Sets the global features, which are 0 otherwise. */
void ee_globals(ee_agent *agent, const float *features);
void ee_metric(ee_agent *agent, int metric, double value);
/* Asks for a global action. */
void ee_ask(ee_agent *agent, int action);
/* Asks an entity that was added for an action; in order of types and numbers. The answers have the
   same order. If the action selects relations, the actor can choose those whose first entity it is:
   ask only entities that have one. */
void ee_actor(ee_agent *agent, int action, int entity, int number);
/* Flags of the choices of the last actor, all 1 at first: set those that are not allowed to 0.
   There is one per label, or per entity of type `selects`: add those first. If these are relations,
   only the flags of those that start at the actor are 1 at first. At least one must stay 1. If the
   action depends on the one directly before it (`num_given`), and that one is not continuous, there
   is such a row of flags for each choice of that one, in order; rows of choices that are not allowed
   may be all 0. The pointer is valid until the next call. */
unsigned char *ee_mask(ee_agent *agent, int action);

/* The observation is complete: the agent waits for answers. */
void ee_wait(ee_agent *agent);
/* For `play`: waits until all waiting agents have answers; 0 if the game has to return now. */
int ee_yield(ee_copy *copy);
/* `ee_wait` and `ee_yield` in one. */
int ee_act(ee_agent *agent);
/* The observation is the agent's last: ends its episode. If `is_truncated`, first ask for the
   actions that would be asked for next; otherwise the last observation asks for nothing. */
void ee_end(ee_agent *agent, int is_truncated);
/* Ends the episode with an error, which the host reports. The text is copied. Return afterwards.
   In C++, an exception that leaves the game does the same. */
void ee_fail(ee_copy *copy, const char *message);

/* Number of answers to an action, one per actor; 0 if the agent did not wait. Answers can be read
   until the game waits again. */
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
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#ifndef EE_STACK_BYTES
#define EE_STACK_BYTES (256 * 1024) /* of each copy of a game that owns its loop */
#endif

/* Copies switch stacks with a few instructions where that is known to work, else with <ucontext.h>,
   which is much slower, because it also makes system calls. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define EE_UCONTEXT
#endif
#endif
#if !defined(__x86_64__) || !defined(__linux__) || defined(__ILP32__) || \
    defined(__SANITIZE_ADDRESS__)
#define EE_UCONTEXT
#endif
#ifdef EE_UCONTEXT
#include <ucontext.h>
#endif

#if defined(__cplusplus) && defined(__EXCEPTIONS)
#include <exception>
#endif

#define EE__MAX_BYTES (256u << 20) /* of a payload */
#define EE__MAX_JSON (1u << 20)
#define EE__MAX_ROWS (EE__MAX_BYTES / 16)
#define EE__PIECE (1u << 20) /* memory for a payload grows with the bytes that have arrived */
#define EE__MAX_ACTS 1000    /* calls of `ee_act` after it has returned 0 */
enum { EE__HELLO = 1, EE__START, EE__READY, EE__RESET, EE__ACT, EE__STEP, EE__ERROR, EE__CLOSE };
enum { EE__TERMINATED = 1, EE__TRUNCATED = 2, EE__FAILED = 4, EE__NEW = 8 };

#ifdef __GNUC__
#define EE__NORETURN __attribute__((noreturn))
#else
#define EE__NORETURN
#endif

EE__NORETURN static void ee__die(const char *reason) {
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
    if (size > bytes->capacity - bytes->size) {
        if (size > SIZE_MAX / 4 - bytes->size) ee__die("out of memory");
        bytes->capacity = 2 * (bytes->size + size) + 64;
        bytes->data = (unsigned char *)ee__resized(bytes->data, bytes->capacity);
    }
    bytes->size += size;
    return bytes->data + bytes->size - size;
}

static void ee__append(ee__bytes *bytes, const void *data, size_t size) {
    if (data && size) memcpy(ee__grow(bytes, size), data, size);
}

static void ee__fill(ee__bytes *bytes, int value, size_t size) {
    if (size) memset(ee__grow(bytes, size), value, size);
}

static void ee__pad(ee__bytes *bytes, int value) {
    ee__fill(bytes, value, (size_t)(-(int64_t)bytes->size & 7));
}

static void ee__text(ee__bytes *bytes, const char *text) { ee__append(bytes, text, strlen(text)); }

/* Number of bytes of the next character in UTF-8, or 0 if it is none. */
static size_t ee__num_utf8(const unsigned char *c) {
    size_t i, num = 0;
    if (*c < 0x80) return 1;
    if (*c >= 0xC2 && *c < 0xF5) num = *c < 0xE0 ? 2 : *c < 0xF0 ? 3 : 4;
    for (i = 1; i < num; i++) {
        if ((c[i] & 0xC0) != 0x80) return 0;
    }
    if ((*c == 0xE0 && c[1] < 0xA0) || (*c == 0xED && c[1] > 0x9F)) return 0; /* surrogates */
    if ((*c == 0xF0 && c[1] < 0x90) || (*c == 0xF4 && c[1] > 0x8F)) return 0;
    return num;
}

/* Appends a JSON string; bytes that are not UTF-8 become '?'. */
static void ee__quoted(ee__bytes *bytes, const char *text) {
    char escaped[16];
    ee__text(bytes, "\"");
    while (*text) {
        size_t size = ee__num_utf8((const unsigned char *)text);
        if (!size) {
            ee__text(bytes, "?");
        } else if (*text == '"' || *text == '\\') {
            ee__text(bytes, "\\");
            ee__append(bytes, text, 1);
        } else if (size == 1 && *text < 32) {
            snprintf(escaped, sizeof escaped, "\\u%04x", (unsigned)*text);
            ee__text(bytes, escaped);
        } else {
            ee__append(bytes, text, size);
        }
        text += size ? size : 1;
    }
    ee__text(bytes, "\"");
}

/* The decimal point of this process, which a locale may change: it is a comma in many. */
static const char *ee__point(char *text, size_t size) {
    snprintf(text, size, "%.1f", 0.5); /* LOCALE: the point is what lies between 0 and 5 */
    text[strlen(text) - 1] = 0;
    return text + 1;
}

/* Writes a number with `digits` digits, with "." in every locale. */
static const char *ee__decimal(char *text, size_t size, int digits, double value) {
    char buffer[24];
    const char *point = ee__point(buffer, sizeof buffer);
    char *found;
    snprintf(text, size, "%.*g", digits, value); /* LOCALE: replaced below */
    found = strstr(text, point);
    if (!found) return text;
    memmove(found + 1, found + strlen(point), strlen(found + strlen(point)) + 1);
    *found = '.';
    return text;
}

/* Reads a number with "." in every locale; `end` is the first character after it. */
static double ee__read_decimal(const char *json, const char **end) {
    char buffer[24], text[160];
    const char *point = ee__point(buffer, sizeof buffer);
    size_t length = strspn(json, "+-.0123456789eE"), at = 0, i;
    double found;
    char *stop;
    *end = json; /* nothing was read */
    if (length > 120) return 0;
    for (i = 0; i < length; i++) {
        if (json[i] == '.') {
            memcpy(text + at, point, strlen(point) + 1);
            at += strlen(point);
            if (memchr(json, '.', i)) return 0;
        } else {
            text[at++] = json[i];
        }
    }
    text[at] = 0;
    found = strtod(text, &stop); /* LOCALE: `text` has its point */
    if (!*stop) *end = json + length;
    return found;
}

/* ------------------------------------------------------------------ observations and copies */

typedef struct ee__asked {
    ee__bytes entity, number; /* int: type and number of each actor */
    ee__bytes mask;           /* flags of the actors up to the last one with a mask */
    size_t width;             /* flags per actor in the mask */
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
    int waits, is_playing, has_ended; /* has_ended: its last episode */
    int64_t **choices;                /* by action: answers in the message, if there are any */
    float **numbers;
    int *num_answers;
};

typedef struct ee__server ee__server;

struct ee_copy {
    ee__server *server;
    ee_agent *agents;
    void *state;
    int flags, is_new, is_playing, has_returned, is_leaving, num_acts;
    ee__bytes failure;
    char *stack;
#ifdef EE_UCONTEXT
    ucontext_t context;
#else
    void *context;
#endif
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
    int num_envs, hold, input, output, is_started, is_gone;
    int num_agents, num_types, num_lengths, num_slots, num_globals, num_metrics, has_global;
    int *widths, *num_labels; /* features by type, labels by action */
    ee__frame rows, lasts;
    ee__bytes payload, out, head, asks, scores, metrics, end_rows, end_flags, end_scores;
    ee__bytes end_metrics, failures;
    int num_ends;
    ee_copy *entered; /* the copy whose stack was used last */
#ifdef EE_UCONTEXT
    ucontext_t main;
#else
    void *main;
#endif
};

static ee__server *ee__running;

EE__NORETURN static void ee__send_error(ee__server *server, const char *message);

/* Ends the program because the game called a function wrongly. */
EE__NORETURN static void ee__misuse(const char *problem) {
    ee__send_error(ee__running, problem);
}

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
    for (i = 0; i < server->num_globals; i++) obs->globals[i] = 0;
    for (i = 0; i < server->num_metrics; i++) obs->metrics[i] = NAN;
    obs->score = score;
    obs->has_hidden = 0;
}

void *ee_state(ee_copy *copy) { return copy->state; }
const ee_game *ee_game_of(const ee_copy *copy) { return copy->server->game; }

ee_agent *ee_agent_of(ee_copy *copy, int agent) {
    if (agent < 0 || agent >= copy->server->num_agents) ee__misuse("ee_agent_of: no such agent");
    return &copy->agents[agent];
}

void ee_observe(ee_agent *agent, double score) {
    ee__clear_obs(agent->copy->server, &agent->obs, score);
}

static int ee__add(ee_agent *agent, int entity, const float *features, unsigned char visible) {
    ee__obs *obs = &agent->obs;
    const ee__server *server = agent->copy->server;
    if (entity < 0 || entity >= server->game->num_entities) {
        ee__misuse("ee_add: no such entity type");
    }
    if (!features && server->widths[entity]) ee__misuse("ee_add: features is NULL");
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
    if (count && !features) ee__misuse("ee_globals: features is NULL");
    if (count) memcpy(agent->obs.globals, features, sizeof(float) * count);
}

void ee_metric(ee_agent *agent, int metric, double value) {
    if (metric < 0 || metric >= agent->copy->server->num_metrics) {
        ee__misuse("ee_metric: no such metric");
    }
    agent->obs.metrics[metric] = value;
}

static void ee__require_action(const ee_agent *agent, int action) {
    if (action < 0 || action >= agent->copy->server->game->num_actions) {
        ee__misuse("the game named an action that does not exist");
    }
}

/* The types of both entities of a relation; NULL = not a relation. */
static const int *ee__references(const ee_game *game, int entity) {
    int first = game->num_entities - game->num_relations;
    return entity < first ? NULL : game->references[entity - first];
}

/* What an observation asks for; the action must be global, or must not be. */
static ee__asked *ee__asked_of(ee_agent *agent, int action, int is_global) {
    ee__require_action(agent, action);
    if ((agent->copy->server->game->actions[action].kind == EE_GLOBAL_CATEGORICAL) != is_global) {
        ee__misuse("call ee_ask for an action of the kind EE_GLOBAL_CATEGORICAL, else ee_actor");
    }
    return &agent->obs.asked[action];
}

void ee_ask(ee_agent *agent, int action) { ee__asked_of(agent, action, 1)->count = 1; }

void ee_actor(ee_agent *agent, int action, int entity, int number) {
    ee__asked *asked = ee__asked_of(agent, action, 0);
    if (entity < 0 || entity >= agent->copy->server->game->num_entities || number < 0 ||
        number >= agent->obs.counts[entity]) {
        ee__misuse("ee_actor: no such entity: add it first");
    }
    if (ee__references(agent->copy->server->game, entity)) ee__misuse("ee_actor: relations cannot act");
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

/* Rows of an actor's mask: one per choice of the action directly before, if it depends on that. */
static size_t ee__num_rows(const ee__server *server, const ee__obs *obs, int action) {
    const ee_game *game = server->game;
    if (!game->num_given || !game->num_given[action]) return 1;
    if (game->actions[action - 1].kind == EE_CONTINUOUS) return 1;
    return ee__num_choices(server, obs, action - 1);
}

/* Number of flags of an actor. */
static size_t ee__num_flags(const ee__server *server, const ee__obs *obs, int action) {
    return ee__num_rows(server, obs, action) * ee__num_choices(server, obs, action);
}

/* Adds the flags that are 1 at first, of all actors that have none. */
static void ee__complete_mask(const ee__server *server, const ee__obs *obs, int action) {
    const ee_action *kind = &server->game->actions[action];
    ee__asked *asked = &obs->asked[action];
    size_t width = ee__num_flags(server, obs, action), i, k;
    size_t first = width ? asked->mask.size / width : 0, count = (size_t)asked->count;
    const int *both = kind->kind == EE_SELECT_ENTITY ? ee__references(server->game, kind->selects) : NULL;
    const int *entity = (const int *)(const void *)asked->entity.data;
    const int *number = (const int *)(const void *)asked->number.data;
    unsigned char *flags;
    if (!width || first >= count) return;
    flags = ee__grow(&asked->mask, width * (count - first));
    memset(flags, 1, width * (count - first));
    for (i = first; both && i < count; i++) {
        size_t num = ee__num_choices(server, obs, action), size = (size_t)server->widths[kind->selects];
        const float *values = (const float *)(const void *)obs->values[kind->selects].data;
        if (entity[i] != both[0]) {
            ee__misuse("ee_actor: an actor that selects relations must be of the type of their first entity");
        }
        for (k = 0; k < width; k++, flags++) *flags = values[k % num * size] == (float)number[i];
    }
}

unsigned char *ee_mask(ee_agent *agent, int action) {
    ee__asked *asked;
    size_t width, wanted;
    ee__require_action(agent, action);
    asked = &agent->obs.asked[action];
    width = ee__num_flags(agent->copy->server, &agent->obs, action);
    wanted = width * (size_t)asked->count;
    if (!asked->count) ee__misuse("ee_mask: ask for the action first");
    if (agent->copy->server->game->actions[action].kind == EE_CONTINUOUS) {
        ee__misuse("ee_mask: an action of the kind EE_CONTINUOUS has no mask");
    }
    if (asked->has_mask && asked->width != width) {
        ee__misuse("ee_mask: add all entities that can be selected before the first mask");
    }
    asked->has_mask = 1;
    asked->width = width;
    ee__complete_mask(agent->copy->server, &agent->obs, action);
    return asked->mask.data + (wanted - width);
}

/* Actions that depend on others must have their actors. */
static void ee__require_same_actors(const ee_agent *agent) {
    const ee_game *game = agent->copy->server->game;
    int i;
    for (i = 1; game->num_given && i < game->num_actions; i++) {
        const ee__asked *asked = &agent->obs.asked[i], *other = &agent->obs.asked[i - 1];
        size_t size = asked->entity.size;
        if (!game->num_given[i] || !asked->count) continue;
        if (asked->count != other->count || size != other->entity.size ||
            (size && (memcmp(asked->entity.data, other->entity.data, size) ||
                      memcmp(asked->number.data, other->number.data, size)))) {
            ee__misuse("ee_wait: an action that depends on others must have the same actors");
        }
    }
}

/* Relations must refer to entities of the observation; actions that select them need a mask. */
static void ee__complete_relations(const ee_agent *agent) {
    const ee__server *server = agent->copy->server;
    const ee_game *game = server->game;
    const ee__obs *obs = &agent->obs;
    int i, j, k;
    for (i = game->num_entities - game->num_relations; i < game->num_entities; i++) {
        const float *values = (const float *)(const void *)obs->values[i].data;
        for (j = 0; j < obs->counts[i]; j++, values += server->widths[i]) {
            for (k = 0; k < 2; k++) {
                int other = ee__references(game, i)[k], count = obs->counts[other];
                char text[320], number[32];
                if (values[k] >= 0 && values[k] < (float)count && values[k] == floorf(values[k])) continue;
                snprintf(
                    text, sizeof text,
                    "relation %.60s: %.60s of row %d is %s, expected the number of a %.60s, of which the "
                    "observation has %d",
                    game->entities[i].name, game->entities[i].features[k], j,
                    ee__decimal(number, sizeof number, 6, (double)values[k]),
                    game->entities[other].name, count
                );
                ee__misuse(text);
            }
        }
    }
    for (i = 0; game->num_relations && i < game->num_actions; i++) {
        const ee_action *kind = &game->actions[i];
        ee__asked *asked = &obs->asked[i];
        if (kind->kind != EE_SELECT_ENTITY || !ee__references(game, kind->selects) || !asked->count) continue;
        if (asked->has_mask && asked->width != ee__num_flags(server, obs, i)) {
            ee__misuse("ee_mask: add all entities that can be selected before the first mask");
        }
        asked->width = ee__num_flags(server, obs, i);
        asked->has_mask = 1;
        ee__complete_mask(server, obs, i);
    }
}

void ee_wait(ee_agent *agent) {
    if (agent->copy->is_leaving) return;
    if (agent->has_ended) ee__misuse("ee_wait: the agent has ended its episode");
    ee__complete_relations(agent);
    ee__require_same_actors(agent);
    agent->waits = agent->is_playing = 1;
}

void ee_end(ee_agent *agent, int is_truncated) {
    ee__last *last;
    ee__obs shown;
    int i;
    if (agent->copy->is_leaving) return; /* the episode was abandoned */
    if (agent->has_ended) ee__misuse("ee_end: the agent has ended its episode already");
    ee__complete_relations(agent);
    shown = agent->obs;
    last = &agent->ends[agent->num_ends++];
    last->flags = (is_truncated ? EE__TRUNCATED : EE__TERMINATED) +
                  (agent->copy->is_new ? EE__NEW : 0);
    agent->obs = last->obs;
    last->obs = shown;
    for (i = 0; !is_truncated && i < agent->copy->server->game->num_actions; i++) {
        last->obs.asked[i].count = last->obs.asked[i].has_mask = 0;
    }
    agent->waits = agent->is_playing = 0;
    agent->has_ended = 1;
}

void ee_fail(ee_copy *copy, const char *message) {
    if (!message) message = "the game failed";
    copy->failure.size = 0;
    ee__append(&copy->failure, message, strlen(message) + 1);
}

int ee_num_answers(const ee_agent *agent, int action) {
    ee__require_action(agent, action);
    return agent->num_answers[action];
}

static void ee__require_answer(const ee_agent *agent, int action, int actor) {
    if (actor < 0 || actor >= ee_num_answers(agent, action)) {
        ee__misuse("ee_choice, ee_numbers: the agent was not asked, or has fewer actors");
    }
}

int ee_choice(const ee_agent *agent, int action, int actor) {
    ee__require_answer(agent, action, actor);
    return (int)agent->choices[action][actor];
}

const float *ee_numbers(const ee_agent *agent, int action, int actor) {
    ee__require_answer(agent, action, actor);
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

/* Starts an episode, or continues it in a game that is called for each step. */
static void ee__call_game(ee_copy *copy, void (*step)(ee_copy *copy)) {
    const ee_game *game = copy->server->game;
#if defined(__cplusplus) && defined(__EXCEPTIONS)
    try {
#endif
        if (step) {
            step(copy);
        } else if (game->play) {
            game->play(copy, copy->seed);
        } else {
            game->start(copy, copy->seed);
        }
#if defined(__cplusplus) && defined(__EXCEPTIONS)
    } catch (const std::exception &error) {
        ee_fail(copy, error.what());
    } catch (...) {
        ee_fail(copy, "the game threw something that is not a std::exception");
    }
#endif
}

static void ee__to_main(ee_copy *copy);

static void ee__enter(void) {
    ee_copy *copy = ee__running->entered;
    ee__call_game(copy, NULL);
    copy->has_returned = 1;
    ee__to_main(copy);
}

/* Memory for a stack; a page below it turns an overflow into a crash of the program. */
static char *ee__new_stack(void) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *found = mmap(
        NULL, page + EE_STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0
    );
    if (found == MAP_FAILED) ee__die("out of memory");
    mprotect(found, page, PROT_NONE); /* may fail with many copies, because mappings are limited */
    return (char *)found + page;
}

#ifdef EE_UCONTEXT

static void ee__prepare_stack(ee_copy *copy) {
    if (getcontext(&copy->context)) ee__die("getcontext failed");
    copy->context.uc_stack.ss_sp = copy->stack;
    copy->context.uc_stack.ss_size = EE_STACK_BYTES;
    copy->context.uc_link = &copy->server->main;
    makecontext(&copy->context, ee__enter, 0);
}

static void ee__to_copy(ee_copy *copy) { swapcontext(&copy->server->main, &copy->context); }
static void ee__to_main(ee_copy *copy) { swapcontext(&copy->context, &copy->server->main); }

#else

#ifdef __cplusplus
extern "C"
#endif
/* Keeps the registers that calls preserve on this stack, whose pointer it stores in `from`, and
   returns on the stack `to`. */
void ee__switch(void **from, void *to) __attribute__((visibility("hidden")));

__asm__(
    ".pushsection .text\n"
    ".p2align 4\n"
    ".globl ee__switch\n"
    ".hidden ee__switch\n"
    ".type ee__switch, @function\n"
    "ee__switch:\n"
    "    pushq %rbp\n"
    "    pushq %rbx\n"
    "    pushq %r12\n"
    "    pushq %r13\n"
    "    pushq %r14\n"
    "    pushq %r15\n"
    "    movq %rsp, (%rdi)\n"
    "    movq %rsi, %rsp\n"
    "    popq %r15\n"
    "    popq %r14\n"
    "    popq %r13\n"
    "    popq %r12\n"
    "    popq %rbx\n"
    "    popq %rbp\n"
    "    ret\n"
    ".size ee__switch, .-ee__switch\n"
    ".popsection\n"
);

/* The first switch to the stack pops six registers and returns to `ee__enter`. */
static void ee__prepare_stack(ee_copy *copy) {
    void (*enter)(void) = ee__enter;
    char *top = copy->stack + (EE_STACK_BYTES & ~15);
    memset(top - 64, 0, 64);
    memcpy(top - 16, &enter, sizeof enter);
    copy->context = top - 64;
}

static void ee__to_copy(ee_copy *copy) { ee__switch(&copy->server->main, copy->context); }
static void ee__to_main(ee_copy *copy) { ee__switch(&copy->context, copy->server->main); }

#endif

static void ee__resume(ee_copy *copy) {
    copy->server->entered = copy;
    ee__to_copy(copy);
}

int ee_yield(ee_copy *copy) {
    if (!copy->server->game->play || copy->server->entered != copy) {
        ee__misuse("ee_act, ee_yield: only the `play` of this copy can wait");
    }
    if (!copy->is_leaving) ee__to_main(copy);
    if (copy->is_leaving && copy->num_acts++ == EE__MAX_ACTS) {
        ee__misuse("the game does not return although ee_act returned 0");
    }
    return !copy->is_leaving;
}

int ee_act(ee_agent *agent) {
    ee_wait(agent);
    return ee_yield(agent->copy);
}

/* ------------------------------------------------------------------ episodes */

static void ee__after(ee_copy *copy) {
    int i, waits = 0, is_playing = 0;
    for (i = 0; i < copy->server->num_agents; i++) {
        waits |= copy->agents[i].waits;
        is_playing |= copy->agents[i].is_playing;
    }
    if (!copy->server->game->play) copy->has_returned = !waits;
    if (!copy->failure.size && copy->has_returned && is_playing) {
        ee_fail(copy, "the game returned, but an agent has not ended its episode: call ee_end");
    } else if (!copy->failure.size && !copy->has_returned && !waits) {
        ee_fail(copy, "ee_yield was called, but no agent waits: call ee_wait");
    }
    if (copy->failure.size || copy->has_returned) copy->is_playing = 0;
}

/* Abandons an episode: lets a game that owns its loop return. */
static void ee__leave(ee_copy *copy) {
    int i, k;
    for (i = 0; i < copy->server->num_agents; i++) {
        ee_agent *agent = &copy->agents[i];
        agent->waits = agent->is_playing = 0;
        for (k = 0; k < copy->server->game->num_actions; k++) agent->num_answers[k] = 0;
    }
    if (copy->server->game->play && !copy->has_returned) {
        copy->is_leaving = 1;
        copy->num_acts = 0;
        ee__resume(copy);
        copy->is_leaving = 0;
        copy->has_returned = 1;
    }
    copy->is_playing = 0;
    copy->failure.size = 0;
}

static void ee__start(ee_copy *copy, uint64_t seed) {
    ee__server *server = copy->server;
    int i;
    copy->flags |= 1;
    copy->is_new = copy->is_playing = 1;
    copy->seed = seed;
    for (i = 0; i < server->num_agents; i++) copy->agents[i].has_ended = 0;
    if (server->game->play) {
        copy->has_returned = 0;
        if (!copy->stack) copy->stack = ee__new_stack();
        ee__prepare_stack(copy);
        ee__resume(copy);
    } else {
        ee__call_game(copy, NULL);
    }
    ee__after(copy);
}

static void ee__add_failure(ee__server *server, int row, const char *message) {
    char text[32];
    snprintf(text, sizeof text, "{\"row\": %d, ", row);
    ee__text(&server->failures, server->failures.size ? ", " : "[");
    ee__text(&server->failures, text);
    ee__text(&server->failures, "\"message\": ");
    ee__quoted(&server->failures, message);
    ee__text(&server->failures, "}");
}

/* Reports the failure for all agents that have not ended the episode. If all have, there is no end
   left for it in the message, so it is only printed. */
static void ee__report(ee_copy *copy, int first_row) {
    ee__server *server = copy->server;
    const char *message = (const char *)copy->failure.data;
    int i, num_reported = 0;
    for (i = 0; i < server->num_agents; i++) {
        ee_agent *agent = &copy->agents[i];
        if (agent->has_ended) continue;
        ee__clear_obs(server, &agent->ends[agent->num_ends].obs, 0);
        agent->ends[agent->num_ends++].flags = EE__FAILED + (copy->is_new ? EE__NEW : 0);
        ee__add_failure(server, first_row + i, message);
        num_reported++;
    }
    if (!num_reported) fprintf(stderr, "entity_env.h: %s\n", message);
    ee__leave(copy);
}

/* Continues an episode with the answers of the agents that wait. */
static void ee__step(ee_copy *copy) {
    int i;
    for (i = 0; i < copy->server->num_agents; i++) copy->agents[i].waits = 0;
    if (copy->server->game->play) {
        ee__resume(copy);
    } else {
        ee__call_game(copy, copy->server->game->step);
    }
    ee__after(copy);
}

static void ee__continue(ee_copy *copy, uint64_t seed, int first_row) {
    if (!copy->is_playing) {
        ee__start(copy, seed);
    } else {
        ee__step(copy);
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
    size_t width = ee__num_flags(server, obs, action);
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
        if (asked->has_mask && asked->width != width) {
            ee__misuse("ee_mask: add all entities that can be selected before the first mask");
        }
        if (asked->has_mask) ee__complete_mask(server, obs, action);
        ee__add_flags(&slot[1], asked->has_mask ? asked->mask.data : NULL, wanted);
    }
    if (kind->kind == EE_SELECT_ENTITY) {
        int64_t first = ee__index(obs, kind->selects, 0), *actees;
        length[1] = asked->count ? obs->counts[kind->selects] : 0;
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
        const ee__bytes *visible = &obs->visible[i];
        int is_hidden = obs->has_hidden && visible->size && memchr(visible->data, 0, visible->size);
        lengths[i] = obs->counts[i];
        ee__append(&slot[0].bytes, obs->values[i].data, obs->values[i].size);
        ee__add_flags(&slot[1], is_hidden ? visible->data : NULL, visible->size);
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
    size_t line, row, num_lines = (size_t)server->num_lengths, width = (size_t)num_rows;
    int64_t *matrix;
    int i;
    for (i = 0; i < server->num_slots; i++) {
        *ee__grow(out, 1) = (unsigned char)frame->slots[i].is_present;
    }
    ee__pad(out, 0);
    matrix = (int64_t *)(void *)ee__grow(out, sizeof(int64_t) * num_lines * width);
    for (row = 0; row < width; row++) {
        for (line = 0; line < num_lines; line++) matrix[line * width + row] = *lengths++;
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
    while (size && !server->is_gone) {
        ssize_t count = write(server->output, next, size);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) {
            server->is_gone = 1;
        } else {
            next += count;
            size -= (size_t)count;
        }
    }
}

/* Returns 1, or 0 if the connection ended before the first byte, or -1 if later. */
static int ee__read(ee__server *server, void *data, size_t size) {
    char *next = (char *)data;
    while (size && !server->is_gone) {
        ssize_t count = read(server->input, next, size);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) {
            server->is_gone = 1;
        } else {
            next += count;
            size -= (size_t)count;
        }
    }
    if (!size) return 1;
    return next == (char *)data ? 0 : -1;
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

EE__NORETURN static void ee__fail_early(ee__server *server) {
    server->is_gone = 0; /* only for reading: the error may arrive */
    ee__send_error(server, "the connection ended within a message");
}

/* Receives a message, and returns its kind. A zero byte follows the payload. The end of the
   connection counts as CLOSE. */
static uint32_t ee__receive(ee__server *server) {
    ee__bytes *payload = &server->payload;
    unsigned char header[16];
    uint32_t kind;
    uint64_t size;
    int found;
    payload->size = 0;
    found = ee__read(server, header, sizeof header);
    if (!found) return EE__CLOSE;
    if (found < 0) ee__fail_early(server);
    memcpy(&kind, header + 4, 4);
    memcpy(&size, header + 8, 8);
    if (memcmp(header, "ENE1", 4)) ee__send_error(server, "a message does not start with ENE1");
    if (size % 8 || size > (server->is_started ? EE__MAX_BYTES : EE__MAX_JSON)) {
        ee__send_error(server, "the size of a message is not a multiple of 8, or too large");
    }
    while (size) {
        size_t piece = size < EE__PIECE ? (size_t)size : EE__PIECE;
        if (ee__read(server, ee__grow(payload, piece), piece) != 1) ee__fail_early(server);
        size -= piece;
    }
    *ee__grow(payload, 1) = 0;
    payload->size--;
    return kind;
}

static const char *ee__skip_space(const char *json) { return json + strspn(json, " \t\r\n"); }

/* The value of a key of a JSON object, or NULL. */
static const char *ee__find(const char *json, const char *key) {
    int depth = 0;
    size_t length = strlen(key);
    for (json = ee__skip_space(json); *json; json++) {
        if (*json == '{' || *json == '[') depth++;
        if (*json == '}' || *json == ']') depth--;
        if (depth <= 0) return NULL;
        if (*json != '"') continue;
        if (depth == 1 && !strncmp(json + 1, key, length) && json[length + 1] == '"') {
            const char *value = ee__skip_space(json + length + 2);
            if (*value == ':') return ee__skip_space(value + 1);
        }
        for (json++; *json && *json != '"'; json++) {
            if (*json == '\\' && json[1]) json++;
        }
        if (!*json) return NULL;
    }
    return NULL;
}

/* Reads a value; returns 0 if it does not have this type. */
static int ee__read_value(const char *json, ee_type type, double *value) {
    const char *end;
    double found;
    if (type == EE_BOOL) {
        *value = !strncmp(json, "true", 4);
        return *value != 0 || !strncmp(json, "false", 5);
    }
    if (*json != '-' && (*json < '0' || *json > '9')) return 0;
    found = ee__read_decimal(json, &end);
    if (end == json || !isfinite(found) || !*end || !strchr(",}] \t\r\n", *end)) return 0;
    if (type == EE_INT && (found < INT_MIN || found > INT_MAX || found != floor(found))) return 0;
    *value = found;
    return 1;
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
        if (i) ee__text(out, ", ");
        ee__text(out, ee__decimal(text, sizeof text, 9, (double)values[i]));
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
    if (game->doc) {
        ee__text(out, ", \"doc\": ");
        ee__quoted(out, game->doc);
    }
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
            strcpy(text, ": ");
            ee__decimal(text + 2, sizeof text - 2, 17, setting->value);
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
    int i, j;
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
        for (j = 0; ee__references(game, i) && j < 2; j++) {
            ee__text(out, j ? ", " : ", \"references\": [");
            ee__quoted(out, game->entities[ee__references(game, i)[j]].name);
            if (j) ee__text(out, "]");
        }
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
        for (j = game->num_given ? game->num_given[i] : 0; j > 0; j--) {
            ee__text(out, j == game->num_given[i] ? ", \"given\": [" : ", ");
            ee__quoted(out, game->actions[i - j].name);
            if (j == 1) ee__text(out, "]");
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

/* What is wrong with the description of a game, or NULL. */
static const char *ee__problem_of(const ee__server *server) {
    const ee_game *game = server->game;
    int i;
    if (game->num_actions < 1) return "ee_game: a game needs an action";
    if (game->num_relations < 0 || game->num_relations > game->num_entities) {
        return "ee_game: num_relations must be at least 0, and at most the number of entity types";
    }
    if (game->num_relations && !game->references) return "ee_game: relations need references";
    for (i = game->num_entities - game->num_relations; i < game->num_entities; i++) {
        const int *both = ee__references(game, i);
        int num_plain = game->num_entities - game->num_relations;
        if (both[0] < 0 || both[0] >= num_plain || both[1] < 0 || both[1] >= num_plain) {
            return "ee_game: references must be numbers of entity types that are not relations";
        }
        if (server->widths[i] < 2) return "ee_game: the first two features of a relation are its references";
    }
    for (i = 0; i < game->num_actions; i++) {
        const ee_action *action = &game->actions[i];
        if (action->kind == EE_SELECT_ENTITY) {
            if (action->selects < 0 || action->selects >= game->num_entities) {
                return "ee_action: selects must be the number of an entity type";
            }
        } else if (!server->num_labels[i]) {
            return "ee_action: an action needs labels";
        }
        if (action->kind == EE_CONTINUOUS && (!action->low || !action->high)) {
            return "ee_action: an action of the kind EE_CONTINUOUS needs low and high";
        }
        if (game->num_given && (game->num_given[i] < 0 || game->num_given[i] > i)) {
            return "ee_game: num_given must be at least 0, and at most the number of actions before";
        }
    }
    return server->num_envs > (int)EE__MAX_ROWS / server->num_agents
               ? "START: num_envs is too large"
               : NULL;
}

static void ee__read_settings(ee__server *server) {
    const char *json = (const char *)server->payload.data, *found, *settings;
    double value = 0;
    int i;
    found = ee__find(json, "protocol");
    if (!found || !ee__read_value(found, EE_INT, &value) || value != 1) {
        ee__send_error(server, "START: the version of the protocol must be 1");
    }
    found = ee__find(json, "num_envs");
    if (!found || !ee__read_value(found, EE_INT, &value) || value < 1) {
        ee__send_error(server, "START: num_envs must be at least 1");
    }
    server->num_envs = (int)value;
    value = 0;
    found = ee__find(json, "hold");
    if (found && !ee__read_value(found, EE_BOOL, &value)) {
        ee__send_error(server, "START: hold must be true or false");
    }
    server->hold = value != 0;
    settings = ee__find(json, "settings");
    for (i = 0; settings && i < server->game->num_settings; i++) {
        static const char *const types[] = {"an int", "a number", "true or false"};
        ee_setting *setting = &server->game->settings[i];
        found = ee__find(settings, setting->name);
        if (found && !ee__read_value(found, setting->type, &setting->value)) {
            char text[160];
            snprintf(
                text, sizeof text, "START: the setting %.99s must be %s", setting->name,
                types[setting->type]
            );
            ee__send_error(server, text);
        }
    }
}

/* Configures a game; returns what is wrong with it, or NULL. */
static const char *ee__prepare(ee__server *server) {
    ee_game *game = server->game;
    const char *problem = game->configure ? game->configure(game) : NULL;
    int i;
    if (problem) return problem;
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
    problem = ee__problem_of(server);
    if (problem) return problem;
    server->num_types = game->num_entities + server->has_global;
    server->num_lengths += server->num_types;
    server->num_slots = 2 * server->num_types + 3 * game->num_actions;
    ee__make_frame(server, &server->rows);
    ee__make_frame(server, &server->lasts);
    server->is_started = 1;
    return NULL;
}

static void ee__start_game(ee__server *server) {
    const char *problem;
    ee__read_settings(server);
    problem = ee__prepare(server);
    if (problem) ee__send_error(server, problem);
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
                if (size > (size_t)(end - first)) ee__send_error(server, "ACT: too few actions");
            }
        }
        next = first + size + (size_t)(-(int64_t)size & 7);
    }
    if (next != end) ee__send_error(server, "ACT: the size does not match the actors that wait");
}

/* What is wrong with the answers of an agent to an action, or NULL. */
static const char *ee__problem_of_answers(const ee__server *server, ee_agent *agent, int action) {
    const ee__asked *asked = &agent->obs.asked[action];
    size_t i, num = (size_t)agent->num_answers[action];
    size_t width = ee__num_choices(server, &agent->obs, action);
    size_t num_rows = ee__num_rows(server, &agent->obs, action);
    int is_dependent = server->game->num_given && server->game->num_given[action];
    if (server->game->actions[action].kind == EE_CONTINUOUS) {
        for (i = 0; i < num * width; i++) {
            if (!isfinite(agent->numbers[action][i])) return "ACT: a number is not finite";
        }
        return NULL;
    }
    for (i = 0; i < num; i++) {
        uint64_t choice = (uint64_t)agent->choices[action][i];
        if (choice >= width) return "ACT: a choice is out of range";
        if (asked->has_mask) { /* the choices before are in range: they were checked before */
            size_t before = is_dependent && num_rows > 1 ? (size_t)agent->choices[action - 1][i] : 0;
            if (!asked->mask.data[(i * num_rows + before) * width + (size_t)choice]) {
                return "ACT: a choice is not allowed";
            }
        }
    }
    return NULL;
}

static void ee__check_answers(ee__server *server) {
    int i, j, k;
    for (i = 0; i < server->num_envs; i++) {
        for (j = 0; j < server->num_agents; j++) {
            for (k = 0; k < server->game->num_actions; k++) {
                ee_agent *agent = &server->copies[i].agents[j];
                const char *problem = ee__problem_of_answers(server, agent, k);
                if (problem) ee__send_error(server, problem);
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
    size_t m, row, num = (size_t)server->num_metrics;
    for (m = 0; m < num; m++) {
        for (row = 0; row < (size_t)num_rows; row++) {
            ee__append(&server->out, &values[row * num + m], sizeof(double));
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
    int64_t last = -1;
    const unsigned char *ids = server->payload.data + 8, *seeds;
    if (server->payload.size >= 8) memcpy(&count, server->payload.data, 8);
    if (!count || count > (uint64_t)server->num_envs || server->payload.size != 8 + 16 * count) {
        ee__send_error(server, "RESET: the size does not match the number of copies");
    }
    seeds = ids + 8 * count;
    if (!server->copies) {
        /* Only now, because the host has sent as much as the copies need. */
        if (count != (uint64_t)server->num_envs) {
            ee__send_error(server, "RESET: the first one must be of all copies");
        }
        ee__make_copies(server);
    }
    ee__begin_answer(server);
    for (i = 0; i < count; i++) {
        int64_t id;
        uint64_t seed;
        ee_copy *copy;
        memcpy(&id, ids + 8 * i, 8);
        memcpy(&seed, seeds + 8 * i, 8);
        if (id <= last || id >= server->num_envs) {
            ee__send_error(server, "RESET: the numbers of copies must exist and increase");
        }
        last = id;
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

/* A program that the host has not started tries for a minute. */
static int ee__connect_socket(int family, const void *place, size_t size) {
    int tries = getenv("ENTITY_ENV_TOKEN") ? 1 : 600;
    for (;;) {
        int found = socket(family, SOCK_STREAM, 0);
        if (found >= 0 && !connect(found, (const struct sockaddr *)place, (socklen_t)size)) {
            return found;
        }
        if (!--tries) break;
        if (found >= 0) close(found);
        poll(NULL, 0, 100);
    }
    fprintf(stderr, "entity_env.h: %s\n", strerror(errno));
    ee__die("cannot connect to ENTITY_ENV_ADDRESS");
}

static void ee__connect_unix(ee__server *server, const char *path) {
    struct sockaddr_un place;
    memset(&place, 0, sizeof place);
    place.sun_family = AF_UNIX;
    if (strlen(path) >= sizeof place.sun_path) ee__die("ENTITY_ENV_ADDRESS is too long");
    memcpy(place.sun_path, path, strlen(path));
    server->input = server->output = ee__connect_socket(AF_UNIX, &place, sizeof place);
}

static void ee__connect_tcp(ee__server *server, const char *port) {
    struct sockaddr_in place;
    long number = strtol(port, NULL, 10);
    int one = 1;
    if (number < 1 || number > 65535) ee__die("ENTITY_ENV_ADDRESS has an invalid port");
    memset(&place, 0, sizeof place);
    place.sin_family = AF_INET;
    place.sin_port = htons((uint16_t)number);
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    server->input = server->output = ee__connect_socket(AF_INET, &place, sizeof place);
    setsockopt(server->input, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

/* The game may print and read: messages use copies of the descriptors. */
static void ee__connect_stdio(ee__server *server) {
    int nothing = open("/dev/null", O_RDONLY);
    server->input = dup(0);
    server->output = dup(1);
    if (nothing < 0 || server->input < 0 || server->output < 0 || dup2(nothing, 0) < 0 ||
        dup2(2, 1) < 0) {
        ee__die("cannot use standard input and output");
    }
    close(nothing);
}

static void ee__connect(ee__server *server) {
    const char *address = getenv("ENTITY_ENV_ADDRESS");
    if (!address) ee__die("ENTITY_ENV_ADDRESS is not set: start this program with entity_env");
    if (!strcmp(address, "stdio")) {
        ee__connect_stdio(server);
    } else if (!strncmp(address, "unix:", 5)) {
        ee__connect_unix(server, address + 5);
    } else if (!strncmp(address, "tcp:127.0.0.1:", 14)) {
        ee__connect_tcp(server, address + 14);
    } else {
        ee__die("ENTITY_ENV_ADDRESS has an unknown form");
    }
    fcntl(server->input, F_SETFD, FD_CLOEXEC);
    fcntl(server->output, F_SETFD, FD_CLOEXEC);
    signal(SIGPIPE, SIG_IGN);
}

int ee_serve(ee_game *game) {
    ee__server *server = (ee__server *)ee__zeros(1, sizeof(ee__server));
    int i;
    if (!game->play && !(game->start && game->step)) ee__die("ee_game: set play or start and step");
    server->game = game;
    ee__running = server;
    ee__connect(server);
    ee__say_hello(server);
    for (;;) {
        uint32_t kind = ee__receive(server);
        if (kind == EE__CLOSE) break;
        if (kind == EE__START && !server->is_started) {
            ee__start_game(server);
            ee__say_ready(server);
        } else if (kind == EE__RESET && server->is_started) {
            ee__reset(server);
        } else if (kind == EE__ACT && server->copies) {
            ee__act(server);
        } else {
            ee__send_error(server, "this message is not due now");
        }
    }
    for (i = 0; server->copies && i < server->num_envs; i++) ee__leave(&server->copies[i]);
    return 0;
}

#endif /* ENTITY_ENV_IMPLEMENTATION */
