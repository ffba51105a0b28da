/* entity_agent.h: plays with the networks of `.agent` files, without Python.

   A program includes this header, in one of its source files after

       #define ENTITY_AGENT_IMPLEMENTATION

   loads an agent, and asks it for decisions. README.md has an example. The header needs C99 or
   C++11 and nothing else. With GCC and Clang it computes with vectors, and on x86-64 with AVX2 if
   the processor has it. It includes itself, so it must keep its name. */

#ifndef ENTITY_AGENT_H
#define ENTITY_AGENT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------ agents */

/* A network. Threads may share it: nothing changes it after loading. */
typedef struct ea_agent ea_agent;

typedef enum ea_kind {
    EA_GLOBAL_CATEGORICAL, /* one label for the whole observation */
    EA_CATEGORICAL,        /* one label per actor */
    EA_SELECT_ENTITY,      /* one entity per actor */
    EA_CONTINUOUS          /* one number per label and actor, from `low` to `high` */
} ea_kind;

/* An entity type. Lists of names end with NULL. */
typedef struct ea_entity {
    const char *name;
    int num_features;
    const char *const *features;
    const int *references; /* of a relation, the types of the two entities that its first two features
                              refer to, by their places among those of their types; else NULL */
} ea_entity;

typedef struct ea_action {
    const char *name;
    ea_kind kind;
    int num_labels;
    const char *const *labels;
    const float *low, *high; /* NULL unless the action is continuous */
    int num_given;           /* it depends on the choices of these earlier actions of the same actors */
    const int *given;
} ea_action;

/* What the agent sees and does, in the order of the arrays in an observation. */
typedef struct ea_spaces {
    int num_entities, num_actions, num_globals;
    int has_value; /* 0 if the network predicts no value */
    const ea_entity *entities;
    const ea_action *actions;
    const char *const *global_features;
} ea_spaces;

/* Reads the content of an `.agent` file, which may be freed afterwards. Returns NULL if it cannot
   be used, with the reason, one line, in `error`. Any content is safe: memory and time are
   proportional to `size`. */
ea_agent *ea_load(const void *data, size_t size, char *error, size_t error_size);
ea_agent *ea_load_file(const char *path, char *error, size_t error_size);
/* Frees an agent, or NULL. No workspace of it may be used afterwards. */
void ea_free(ea_agent *agent);
const ea_spaces *ea_spaces_of(const ea_agent *agent);
/* 1 if the agent plays better by its most probable choices, as measured at the end of its training
   and stored in the file; 0 if it plays better, or as well, by sampling, or if that is unknown. */
int ea_plays_greedily(const ea_agent *agent);

/* ------------------------------------------------------------------ decisions */

/* Memory of one thread for decisions of one agent. It holds the last decision. */
typedef struct ea_workspace ea_workspace;

/* Bytes of a workspace for observations of up to `max_entities` entities; 0 if that is below 0 or
   takes more than 4 GiB. */
size_t ea_workspace_size(const ea_agent *agent, int max_entities);
/* Makes a workspace in memory of that size, which the caller owns. Returns NULL if `memory` is NULL
   or the size is 0. */
ea_workspace *ea_workspace_in(const ea_agent *agent, int max_entities, void *memory);

/* A requested action. Indices count all entities and relations of the observation, in the order of the
   types. Relations cannot act. */
typedef struct ea_request {
    int num_actors; /* 0 = not requested; 1 for a global action */
    const int *actors; /* not read for a global action */
    int num_actees; /* these two only for EA_SELECT_ENTITY */
    const int *actees;
    const unsigned char *mask; /* 1 = allowed, a row of choices per actor; NULL = all are */
    int is_dependent; /* only for actions with `given`: 1 = `mask` has, per actor, a row per choice of
                         the last of these */
} ea_request;

typedef struct ea_obs {
    const int *counts;                   /* by entity type */
    const float *const *features;        /* by entity type, a row of features per entity */
    const float *globals;                /* global features; may be NULL if there are none */
    const unsigned char *const *visible; /* by entity type, 0 = hidden from the policy; may be NULL,
                                            as may each of its items: all are visible */
    const ea_request *requests;          /* by action */
    const float *state;                  /* what the agent remembers, see `ea_state`; NULL = nothing */
    uint64_t *random; /* as for `ea_choose`; only for actions on which others depend, which are chosen
                         in `ea_think` */
} ea_obs;

/* Computes a decision. Returns NULL, or what is wrong with the observation, one line that is valid
   until the next call. Allocates nothing. Above a temperature of 1, the choices are more random.
   Decisions without the value take less time. */
const char *ea_think(ea_workspace *workspace, const ea_obs *obs, double temperature, int needs_value);

/* The following read the last decision. `action` must have been requested, and `actor` counts its
   actors. They do not check this. */

/* Number of choices: of labels or actees. */
int ea_num_choices(const ea_workspace *workspace, int action);
/* The probability of each choice. */
const float *ea_probabilities(const ea_workspace *workspace, int action, int actor);
/* A choice: the index of a label or an actee. `random` is the state of a SplitMix64 generator,
   which begins with any seed; NULL = the most probable choice. If other actions depend on this one,
   returns the choice of `ea_think`, from which their probabilities follow. */
int ea_choose(const ea_workspace *workspace, int action, int actor, uint64_t *random);
/* Writes the answer to a continuous action, one number per label. NULL = the means. The same holds
   if others depend on it. */
void ea_choose_numbers(
    const ea_workspace *workspace, int action, int actor, uint64_t *random, float *numbers
);
/* The predicted value; NULL if it was not needed or the network predicts none. */
const float *ea_value(const ea_workspace *workspace);
/* How many numbers an agent remembers from one decision of an episode to the next; 0 = none. */
int ea_state_size(const ea_agent *agent);
/* These numbers after the last decision, for the `state` of the next observation of the same agent
   and episode, which may be this array itself. Keep a copy for each agent that plays. */
const float *ea_state(const ea_workspace *workspace);

/* ------------------------------------------------------------------ games of entity_env.h */

#ifdef ENTITY_ENV_H
/* Plays an episode of a game in this program, with the settings in `game->settings`. `agents` has an
   agent for each of the game's. `random` is as for `ea_choose`; agents of which `ea_plays_greedily`
   is 1 always take their most probable choices. `scores`, unless it is NULL,
   receives the final score of each. `watch`, unless it is NULL, is called before each decision.
   Returns NULL, or what went wrong, valid until the next call. Include entity_env.h with its
   implementation before this header. Not thread-safe. */
const char *ea_play(
    ee_game *game, const ea_agent *const *agents, uint64_t seed, uint64_t *random, double *scores,
    void (*watch)(ee_copy *copy)
);
#endif

#ifdef __cplusplus
}
#endif
#endif /* ENTITY_AGENT_H */

/* ================================================================== kernels */

/* Included once per instruction set, see below. A panel has EA__W columns of a matrix: the numbers of
   a row of a panel are neighbors in memory. A vector EA__V has EA__N numbers. */
#ifdef EA__TARGET

/* Two vectors of columns, from `panel` on, of four rows; one vector if there is no other panel. */
EA__TARGET static void EA__OF(ea__multiply_four)(const ea__product *p, int panel, int row) {
    const float *EA__RESTRICT w = p->weight + (size_t)panel * p->panel;
    const float *x[4];
    float *y[4];
    size_t inner = (size_t)p->inner, i;
    EA__V a, b, c, d;
    int k;
    for (k = 0; k < 4; k++) { /* missing rows repeat the last one */
        int at = row + k < p->num_rows ? row + k : p->num_rows - 1;
        x[k] = p->x + p->x_stride * (size_t)(p->rows ? p->rows[at] : at);
        y[k] = p->y + p->y_stride * (size_t)at + (size_t)panel * EA__W;
    }
    a = b = c = d = p->bias ? EA__LOAD(p->bias + (size_t)panel * EA__W) : EA__ZERO;
#if EA__W > 1
    if (EA__N < EA__W || panel + 1 < p->num_panels) {
        const float *EA__RESTRICT w2 = w + (EA__N < EA__W ? EA__N : p->panel);
        EA__V e, f, g, h;
        e = f = g = h = p->bias ? EA__LOAD(p->bias + (size_t)panel * EA__W + EA__N) : EA__ZERO;
        for (i = 0; i < inner; i++, w += p->step, w2 += p->step) {
            EA__V one = EA__LOAD(w), two = EA__LOAD(w2);
            a = EA__MADD(x[0][i], one, a), e = EA__MADD(x[0][i], two, e);
            b = EA__MADD(x[1][i], one, b), f = EA__MADD(x[1][i], two, f);
            c = EA__MADD(x[2][i], one, c), g = EA__MADD(x[2][i], two, g);
            d = EA__MADD(x[3][i], one, d), h = EA__MADD(x[3][i], two, h);
        }
        EA__STORE(y[0] + EA__N, e), EA__STORE(y[1] + EA__N, f);
        EA__STORE(y[2] + EA__N, g), EA__STORE(y[3] + EA__N, h);
    } else
#endif
        for (i = 0; i < inner; i++, w += p->step) {
            EA__V one = EA__LOAD(w);
            a = EA__MADD(x[0][i], one, a);
            b = EA__MADD(x[1][i], one, b);
            c = EA__MADD(x[2][i], one, c);
            d = EA__MADD(x[3][i], one, d);
        }
    EA__STORE(y[0], a), EA__STORE(y[1], b), EA__STORE(y[2], c), EA__STORE(y[3], d);
}

EA__TARGET static void EA__OF(ea__multiply_row)(const ea__product *p, int row) {
    const float *x = p->x + p->x_stride * (size_t)(p->rows ? p->rows[row] : row);
    float *y = p->y + p->y_stride * (size_t)row;
    size_t inner = (size_t)p->inner, i;
    int vector = 0, num_vectors = p->num_panels * (EA__W / EA__N);
    for (; vector < num_vectors; vector += 4) {
        const float *w[4];
        EA__V sum[4];
        int k, count = num_vectors - vector < 4 ? num_vectors - vector : 4;
        for (k = 0; k < 4; k++) { /* missing vectors repeat the last one */
            size_t at = (size_t)(vector + (k < count ? k : count - 1)) * EA__N;
            w[k] = p->weight + at / EA__W * p->panel + at % EA__W;
            sum[k] = p->bias ? EA__LOAD(p->bias + at) : EA__ZERO;
        }
        if (count == 1) {
            for (i = 0; i < inner; i++) sum[0] = EA__MADD(x[i], EA__LOAD(w[0] + i * p->step), sum[0]);
        } else {
            EA__V a = sum[0], b = sum[1], c = sum[2], d = sum[3];
            for (i = 0; i < inner; i++) {
                size_t at = i * p->step;
                a = EA__MADD(x[i], EA__LOAD(w[0] + at), a);
                b = EA__MADD(x[i], EA__LOAD(w[1] + at), b);
                c = EA__MADD(x[i], EA__LOAD(w[2] + at), c);
                d = EA__MADD(x[i], EA__LOAD(w[3] + at), d);
            }
            sum[0] = a, sum[1] = b, sum[2] = c, sum[3] = d;
        }
        for (k = 0; k < count; k++) EA__STORE(y + (size_t)(vector + k) * EA__N, sum[k]);
    }
}

/* y = x @ weight + bias */
EA__TARGET static void EA__OF(ea__multiply)(const ea__product *p) {
    int row, panel, last = p->num_rows % 4 == 1 ? p->num_rows - 1 : p->num_rows;
    for (panel = 0; last && panel < p->num_panels; panel += EA__W > 1 && EA__N == EA__W ? 2 : 1) {
        for (row = 0; row < last; row += 4) EA__OF(ea__multiply_four)(p, panel, row);
    }
    if (last < p->num_rows) EA__OF(ea__multiply_row)(p, last);
}

/* Replaces numbers with powers of 2, relative error 2e-7; 0 below -125, and 2 ** 127 above 127. NaN
   stays, and is converted to no integer. */
#define EA__POWER(x)                                                         \
    do {                                                                     \
        EA__V rest, found, given = EA__MIN(EA__ZERO + 127.0f, x);            \
        EA__I whole, is_large = EA__IS_LESS(EA__ZERO - 125.0f, given);       \
        x = EA__FROM_BITS(EA__BITS(given) & is_large);                       \
        whole = EA__TO_INT(x + 128.5f) - 128; /* rounded */                  \
        rest = x - EA__TO_FLOAT(whole);                                      \
        found = EA__MADD(1.535336188e-4f, rest, EA__ZERO + 1.339887440e-3f);         \
        found = EA__FMA(found, rest, 9.618437358e-3f);                   \
        found = EA__FMA(found, rest, 5.550332471e-2f);                   \
        found = EA__FMA(found, rest, 2.402264791e-1f);                   \
        found = EA__FMA(found, rest, 6.931472029e-1f);                   \
        found = EA__FMA(found, rest, 1.0f);                              \
        x = EA__FROM_BITS(((EA__BITS(found) + whole * (1 << 23)) & is_large) | \
                          (EA__BITS(given) & EA__IS_NAN(given)));            \
    } while (0)
#define EA__LOG2_E 1.44269504f

/* Replaces `count` logits with numbers in proportion to the probabilities of logits times `scale`;
   returns 1 / their sum. The array has room for a multiple of EA__W numbers. */
EA__TARGET static float EA__OF(ea__exponents)(float *x, int count, float scale) {
    float parts[EA__N], top = -EA__NO_LOGIT, sum = 0;
    EA__V highest = EA__ZERO - EA__NO_LOGIT, total = EA__ZERO;
    int i, padded = (count + EA__W - 1) / EA__W * EA__W;
    for (i = count; i < padded; i++) x[i] = -EA__NO_LOGIT;
    for (i = 0; i < padded; i += EA__N) {
        EA__V each = EA__LOAD(x + i);
        highest = EA__MAX(highest, each);
    }
    EA__STORE(parts, highest);
    for (i = 0; i < EA__N; i++) top = parts[i] > top ? parts[i] : top;
    scale *= EA__LOG2_E;
    for (i = 0; i < padded; i += EA__N) {
        EA__V each = (EA__LOAD(x + i) - top) * scale;
        EA__POWER(each);
        total += each;
        EA__STORE(x + i, each);
    }
    EA__STORE(parts, total);
    for (i = 0; i < EA__N; i++) sum += parts[i];
    return 1.0f / sum;
}

/* `count` is a multiple of EA__W. Of two numbers, EA__MIN and EA__MAX return the second if one is NaN,
   so NaN stays. */
EA__TARGET static void EA__OF(ea__activate)(int activation, float *y, size_t count) {
    size_t i;
    for (i = 0; i < count; i += EA__N) {
        EA__V x = EA__LOAD(y + i), e, square, p, q;
        switch (activation) {
            case EA__RELU: x = EA__MAX(EA__ZERO, x); break;
            case EA__TANH:
                e = x * (2 * EA__LOG2_E);
                EA__POWER(e);
                x = 1.0f - 2.0f / (e + 1.0f);
                break;
            case EA__SIGMOID:
                e = x * -EA__LOG2_E;
                EA__POWER(e);
                x = 1.0f / (e + 1.0f);
                break;
            default: /* GELU, with the error function e as a rational function */
                e = EA__MIN(EA__MAX(x * 0.70710678f, EA__ZERO - 4.0f), EA__ZERO + 4.0f);
                square = e * e;
                p = EA__MADD(-2.72614225801306e-10f, square, EA__ZERO + 2.77068142495902e-08f);
                p = EA__FMA(p, square, -2.10102402082508e-06f);
                p = EA__FMA(p, square, -5.69250639462346e-05f);
                p = EA__FMA(p, square, -7.34990630326855e-04f);
                p = EA__FMA(p, square, -2.95459980854025e-03f);
                p = EA__FMA(p, square, -1.60960333262415e-02f);
                q = EA__MADD(-1.45660718464996e-05f, square, EA__ZERO + -2.13374055278905e-04f);
                q = EA__FMA(q, square, -1.68282697438203e-03f);
                q = EA__FMA(q, square, -7.37332916720468e-03f);
                q = EA__FMA(q, square, -1.42647390514189e-02f);
                e = x * 0.5f * (e * p / q + 1.0f);
                x = EA__FROM_BITS(
                    (EA__BITS(e) & EA__IS_LESS(EA__ZERO - 5.65685f, x)) | (EA__BITS(x) & EA__IS_NAN(x))
                );
        }
        EA__STORE(y + i, x);
    }
}

EA__TARGET static void EA__OF(ea__add)(float *x, const float *y, size_t count) {
    size_t i;
    for (i = 0; i < count; i += EA__N) EA__STORE(x + i, EA__LOAD(x + i) + EA__LOAD(y + i));
}

EA__TARGET static void EA__OF(ea__layer_norm)(
    const float *x, int width, const float *weight, const float *bias, float *y
) {
    float parts[EA__N], mean = 0, variance = 0, scale;
    EA__V sum = EA__ZERO;
    int i, k, whole = width / EA__N * EA__N;
    for (i = 0; i < whole; i += EA__N) sum += EA__LOAD(x + i);
    EA__STORE(parts, sum);
    for (k = 0; k < EA__N; k++) mean += parts[k];
    for (i = whole; i < width; i++) mean += x[i];
    mean /= (float)width;
    sum = EA__ZERO;
    for (i = 0; i < whole; i += EA__N) {
        EA__V each = EA__LOAD(x + i) - mean;
        sum += each * each;
    }
    EA__STORE(parts, sum);
    for (k = 0; k < EA__N; k++) variance += parts[k];
    for (i = whole; i < width; i++) variance += (x[i] - mean) * (x[i] - mean);
    scale = variance - variance; /* NaN, not 0, if the sum of squares overflows */
    scale += 1.0f / sqrtf(variance / (float)width + 1e-5f);
    for (i = 0; i < width; i += EA__N) {
        EA__STORE(y + i, (EA__LOAD(x + i) - mean) * scale * EA__LOAD(weight + i) + EA__LOAD(bias + i));
    }
}

static const ea__kernels EA__OF(ea__kernels) = {
    EA__OF(ea__multiply), EA__OF(ea__exponents), EA__OF(ea__activate), EA__OF(ea__add),
    EA__OF(ea__layer_norm)};

#undef EA__POWER
#undef EA__LOG2_E
#undef EA__FMA
#undef EA__MADD
#undef EA__MAX
#undef EA__MIN
#undef EA__TARGET
#undef EA__OF
#undef EA__N
#undef EA__V
#undef EA__I
#undef EA__ZERO
#elif defined(ENTITY_AGENT_IMPLEMENTATION)
#undef ENTITY_AGENT_IMPLEMENTATION

/* ================================================================== implementation */

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__GNUC__) || defined(_MSC_VER)
#define EA__RESTRICT __restrict
#else
#define EA__RESTRICT
#endif
#ifdef __GNUC__
#define EA__FORMAT(text, values) __attribute__((format(printf, text, values)))
#else
#define EA__FORMAT(text, values)
#endif

enum { EA__NO_ACTIVATION, EA__RELU, EA__TANH, EA__SIGMOID, EA__GELU };

#define EA__NO_LOGIT 3.4e38f /* its negative is a logit with a probability of 0 */

/* Row `i` of x is the one that `rows[i]` names, unless `rows` is NULL. */
typedef struct ea__product {
    const float *x;
    size_t x_stride;
    const int *rows;
    const float *weight;
    size_t panel, step; /* numbers from a panel to the next, and from a row of a panel to the next */
    const float *bias;  /* may be NULL */
    float *y;
    size_t y_stride;
    int num_rows, inner, num_panels;
} ea__product;

typedef struct ea__kernels {
    void (*multiply)(const ea__product *product);
    float (*exponents)(float *x, int count, float scale);
    void (*activate)(int activation, float *y, size_t count);
    void (*add)(float *x, const float *y, size_t count);
    void (*layer_norm)(
        const float *x, int width, const float *weight, const float *bias, float *y
    );
} ea__kernels;

#if (defined(__clang__) || (defined(__GNUC__) && __GNUC__ >= 9)) && !defined(EA_NO_VECTORS)
#define EA__W 8
typedef float ea__v4 __attribute__((vector_size(16), aligned(4), may_alias));
typedef int32_t ea__i4 __attribute__((vector_size(16), aligned(4), may_alias));
static const ea__v4 ea__zero4 = {0, 0, 0, 0};
#define EA__LOAD(at) (*(const EA__V *)(const void *)(at))
#define EA__STORE(at, values) (*(EA__V *)(void *)(at) = (values))
#define EA__BITS(x) ((EA__I)(x))
#define EA__FROM_BITS(x) ((EA__V)(x))
#define EA__IS_LESS(x, y) ((EA__I)((x) < (y)))
#define EA__IS_NAN(x) ((EA__I)((EA__BITS(x) & 0x7fffffff) > 0x7f800000)) /* also with -ffast-math */
#define EA__TO_INT(x) __builtin_convertvector((x), EA__I)
#define EA__TO_FLOAT(x) __builtin_convertvector((x), EA__V)
#else
#define EA__W 1
static int32_t ea__bits_of(float x) {
    int32_t bits;
    memcpy(&bits, &x, 4);
    return bits;
}
static float ea__of_bits(int32_t bits) {
    float x;
    memcpy(&x, &bits, 4);
    return x;
}
#define EA__LOAD(at) (*(at))
#define EA__STORE(at, values) (*(at) = (values))
#define EA__BITS(x) ea__bits_of(x)
#define EA__FROM_BITS(x) ea__of_bits(x)
#define EA__IS_LESS(x, y) (-(int32_t)((x) < (y)))
#define EA__IS_NAN(x) (-(int32_t)((EA__BITS(x) & 0x7fffffff) > 0x7f800000))
#define EA__TO_INT(x) ((int32_t)(x))
#define EA__TO_FLOAT(x) ((float)(x))
#endif

#define EA__TARGET
#define EA__OF(name) name##_plain
#if EA__W > 1
#define EA__N 4
#define EA__V ea__v4
#define EA__I ea__i4
#define EA__ZERO ea__zero4
#else
#define EA__N 1
#define EA__V float
#define EA__I int32_t
#define EA__ZERO 0.0f
#endif
#define EA__FMA(x, y, number) ((x) * (y) + (number))
#define EA__MADD(number, x, y) ((number) * (x) + (y))
#define EA__MIN(x, y) \
    EA__FROM_BITS((EA__BITS(x) & EA__IS_LESS(x, y)) | (EA__BITS(y) & ~EA__IS_LESS(x, y)))
#define EA__MAX(x, y) \
    EA__FROM_BITS((EA__BITS(x) & EA__IS_LESS(y, x)) | (EA__BITS(y) & ~EA__IS_LESS(y, x)))
#include "entity_agent.h"

#if defined(__x86_64__) && EA__W > 1 && !defined(EA_NO_AVX2)
#define EA__HAS_AVX2
#include <immintrin.h>
typedef float ea__v8 __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32_t ea__i8 __attribute__((vector_size(32), aligned(4), may_alias));
static const ea__v8 ea__zero8 = {0, 0, 0, 0, 0, 0, 0, 0};
#define EA__TARGET __attribute__((target("avx2,fma")))
#define EA__OF(name) name##_avx2
#define EA__N 8
#define EA__V ea__v8
#define EA__I ea__i8
#define EA__ZERO ea__zero8
#define EA__FMA(x, y, number) \
    ((EA__V)_mm256_fmadd_ps((__m256)(x), (__m256)(y), _mm256_set1_ps(number)))
#define EA__MADD(number, x, y) \
    ((EA__V)_mm256_fmadd_ps(_mm256_set1_ps(number), (__m256)(x), (__m256)(y)))
#define EA__MIN(x, y) ((EA__V)_mm256_min_ps((__m256)(x), (__m256)(y)))
#define EA__MAX(x, y) ((EA__V)_mm256_max_ps((__m256)(x), (__m256)(y)))
#include "entity_agent.h"
#endif

static const ea__kernels *ea__best_kernels(void) {
#ifdef EA__HAS_AVX2
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return &ea__kernels_avx2;
#endif
    return &ea__kernels_plain;
}

/* ------------------------------------------------------------------ structures */

#define EA__MAX_DEPTH 64       /* of JSON */
#define EA__MAX_JSON (16u << 20)
#define EA__MAX_TENSORS (1 << 17)
#define EA__MAX_COLUMNS (1 << 20) /* features of all entity types, global features once per type */
#define EA__MAX_WORK (1u << 31)   /* multiplications of a convolution */
#define EA__MAX_WORKSPACE ((uint64_t)4 << 30)
#define EA__MAX_ENTITIES (1 << 20)
#define EA__MAX_AXES 16
#define EA__BLOCK 16 /* queries or windows at once */
#define EA__HIDDEN -1e30f
#define EA__LARGEST_INPUT 1e18f /* larger features count as this, so no distance is infinite */
#define EA__LARGEST_PARAMETER 1e18f
#define EA__LARGEST_OUTPUT 1e30f /* larger results are refused */
#define EA__MOST_LOG 60.0f /* of a deviation, which is then far beyond all bounds */
#define EA__TIE 1e-5f /* greedy agents take the first of equally probable choices */
#define EA__PADDED(n) (((n) + EA__W - 1) / EA__W * EA__W)

/* A value of JSON; `next` is the first value after it and its content. The values in an object are
   keys and values in turn. */
typedef struct ea__node {
    uint32_t start, size, next;
    char type; /* its first character; '0' for a number */
} ea__node;

typedef struct ea__json {
    char *text;
    ea__node *nodes;
    size_t size, at, count, capacity;
} ea__json;

typedef struct ea__tensor {
    const char *name;
    const float *data; /* padded with zeros; NULL unless the type is F32 */
    float *panels;     /* as the weight of a product, once it is needed */
    size_t size;       /* in numbers */
    int rows;          /* first length of the shape; 1 for a single number */
} ea__tensor;

typedef enum ea__rows {
    EA__ONE,
    EA__OF_TYPE, /* entities of a type */
    EA__ALL,     /* entities */
    EA__PIXELS,
    EA__ACTORS,
    EA__ACTEES,
    EA__PAIRS, /* relative positions */
    EA__LINKS, /* relations, without numbers: see `links` of the workspace */
    EA__RELATIONS,
    EA__EVERYTHING /* entities, then relations */
} ea__rows;

/* What is known of a buffer before an observation. A new one for every operation that does not
   work in place. */
typedef struct ea__matrix {
    ea__rows rows;
    int index;         /* of the type or action; for all entities, the number of their types */
    int width, stride; /* width -1: number of actees */
    int sides[2];      /* of a picture */
    int made, used;    /* the first and the last operation that needs it */
    int slot;
} ea__matrix;

/* Memory in a workspace: numbers, numbers per row, and numbers per pair of rows. */
typedef struct ea__slot {
    size_t base, per_row, per_pair;
} ea__slot;

typedef struct ea__standard {
    const float *mean;
    float *deviation;
    int is_used;
} ea__standard;

/* Relative positions. By type: columns of the position, and of the direction. */
typedef struct ea__positions {
    int num_types, num_axes, num_sizes, num_buckets, num_parts, width;
    int extent[EA__MAX_AXES];
    int *columns, *direction; /* direction: of x and y, or of the angle and -1, or -1 and -1 */
    int is_radial, is_distance, is_interpolated, is_extrapolated, is_per_type, has_projection;
    float per_scale;
    const float *keys, *values; /* tables */
    const float **projections;  /* weight and bias of each, first those of keys */
    int num_key_projections, num_value_projections, is_per_entity;
    ea__standard standard;
} ea__positions;

typedef enum ea__code {
    EA__NORMALIZE,
    EA__LINEAR,
    EA__LAYER_NORM,
    EA__ADD,
    EA__REPEAT,
    EA__CONCATENATE,
    EA__JOIN,
    EA__POSITIONS,
    EA__ATTEND,
    EA__POOL,
    EA__MEAN,
    EA__SPREAD,
    EA__CONVOLVE,
    EA__FLATTEN,
    EA__TAKE_ACTORS,
    EA__TAKE_ACTEES,
    EA__COMPARE,
    EA__CATEGORICAL,
    EA__GAUSSIAN,
    EA__SCALE,
    EA__RECUR,
    EA__CHOICE,
    EA__FIND_LINKS,
    EA__RELATE,
    EA__ENDS
} ea__code;

typedef struct ea__op {
    ea__code code;
    int num_inputs, y, action, activation;
    int *x;
    int heads, kernel, stride, is_mean, is_max, start;
    int is_policy;  /* decisions without a value need it */
    int only_wanted; /* a query: only wanted rows are read, in decisions without a value */
    const float *weight, *bias;
    ea__standard standard;
    ea__positions *positions;
} ea__op;

typedef struct ea__translation {
    int is_used, reference, num_axes, has_distance;
    int *moved;   /* by type */
    int *columns; /* by type, of the position */
    int vector[2], angle;
} ea__translation;

typedef struct ea__block {
    struct ea__block *next;
    double align;
} ea__block;

struct ea_agent {
    ea_spaces spaces;
    const ea__kernels *kernels;
    ea__block *blocks; /* all memory */
    ea__tensor *tensors;
    int num_tensors;
    int is_vector, num_types; /* types: with that of the global action, which is last */
    int num_relations;        /* types before it that are relations */
    int num_shared;           /* global features of each entity */
    int *widths;              /* by type, without global features */
    ea__translation translation;
    ea__matrix *matrices;
    ea__slot *slots;
    ea__op *ops;
    int num_matrices, num_slots, num_ops;
    int *inputs, vector, picture; /* matrices: by type, and of an MLP or CNN */
    int *answers;                 /* matrices, by action */
    float **deviations;           /* by action */
    unsigned char *is_read;       /* by action: others depend on its choices */
    int value, is_greedy;
    int state_size;
    int last_mix; /* the last operation of the policy in which entities read others, or -1 */
    int *kept;    /* matrices of entities that are read after it, but made before */
    int num_kept;
    ea__slot scratch;
};

typedef struct ea__sorted {
    const char *name;
    int index;
} ea__sorted;

typedef struct ea__loader {
    ea_agent *agent;
    char *error;
    size_t error_size;
    ea__json json;
    ea__sorted *types, *actions, *buffers;
    int num_actions, num_buffers;
    int *matrix_of; /* by buffer, -1 at first */
    int op;         /* that is being made, or -1 */
    int num_types;  /* whose entities were concatenated last */
    const char *layer;
    uint64_t work, allowed; /* numbers that operations read */
} ea__loader;

/* ------------------------------------------------------------------ errors and memory */

/* Writes a reason on one line, and returns 0. */
EA__FORMAT(2, 3) static int ea__fail(ea__loader *loader, const char *format, ...) {
    va_list values;
    size_t i;
    if (!loader->error || !loader->error_size) return 0;
    va_start(values, format);
    vsnprintf(loader->error, loader->error_size, format, values);
    va_end(values);
    for (i = 0; loader->error[i]; i++) {
        if ((unsigned char)loader->error[i] < 32 || loader->error[i] == 127) loader->error[i] = '?';
    }
    return 0;
}

static int ea__damaged(ea__loader *loader, const char *what, const char *name) {
    return ea__fail(
        loader, "the agent file is damaged: %s%s%.60s; copy it or export it again", what,
        *name ? " " : "", name
    );
}

static int ea__unknown(ea__loader *loader, const char *what, const char *name) {
    return ea__fail(
        loader, "the agent file has the unknown %s %.60s: use the entity_agent.h of the release that "
        "exported it", what, name
    );
}

/* Zeros that are freed with the agent, or NULL with an error. */
static void *ea__take(ea__loader *loader, size_t count, size_t size) {
    ea__block *block = NULL;
    if (!size || count <= (SIZE_MAX / 2 - sizeof *block) / size) {
        block = (ea__block *)calloc(1, sizeof *block + count * size + 1);
    }
    if (!block) {
        ea__fail(loader, "out of memory");
        return NULL;
    }
    block->next = loader->agent->blocks;
    loader->agent->blocks = block;
    return block + 1;
}

static int ea__by_name(const void *a, const void *b) {
    return strcmp(((const ea__sorted *)a)->name, ((const ea__sorted *)b)->name);
}

/* The index of a name, or -1. */
static int ea__index_of(const ea__sorted *sorted, int count, const char *name) {
    int low = 0, high = count;
    while (low < high) {
        int middle = low + (high - low) / 2, order = strcmp(sorted[middle].name, name);
        if (!order) return sorted[middle].index;
        if (order < 0) low = middle + 1;
        else high = middle;
    }
    return -1;
}

/* Sorts names; returns one that occurs twice, or NULL. */
static const char *ea__sort(ea__sorted *sorted, int count) {
    int i;
    if (count) qsort(sorted, (size_t)count, sizeof *sorted, ea__by_name);
    for (i = 1; i < count; i++) {
        if (!strcmp(sorted[i - 1].name, sorted[i].name)) return sorted[i].name;
    }
    return NULL;
}

/* ------------------------------------------------------------------ JSON */

static int ea__parse_value(ea__json *json, int depth);

static void ea__skip(ea__json *json) {
    while (json->at < json->size && strchr(" \t\r\n", json->text[json->at]) &&
           json->text[json->at]) {
        json->at++;
    }
}

/* Skips a character that is expected. */
static int ea__has(ea__json *json, char expected) {
    ea__skip(json);
    if (json->at >= json->size || json->text[json->at] != expected) return 0;
    json->at++;
    return 1;
}

static int ea__hex(const char *text, unsigned *code) {
    int i;
    *code = 0;
    for (i = 0; i < 4; i++) {
        char c = text[i];
        int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10
                  : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
        if (digit < 0) return 0;
        *code = *code * 16 + (unsigned)digit;
    }
    return 1;
}

static size_t ea__write_utf8(char *to, unsigned code) {
    if (code < 0x80) {
        to[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        to[0] = (char)(0xC0 | code >> 6);
        to[1] = (char)(0x80 | (code & 63));
        return 2;
    }
    if (code < 0x10000) {
        to[0] = (char)(0xE0 | code >> 12);
        to[1] = (char)(0x80 | (code >> 6 & 63));
        to[2] = (char)(0x80 | (code & 63));
        return 3;
    }
    to[0] = (char)(0xF0 | code >> 18);
    to[1] = (char)(0x80 | (code >> 12 & 63));
    to[2] = (char)(0x80 | (code >> 6 & 63));
    to[3] = (char)(0x80 | (code & 63));
    return 4;
}

/* Bytes of the next character in UTF-8, or 0 if it is none. The text ends with a zero. */
static size_t ea__utf8(const unsigned char *c) {
    size_t i, count = *c < 0x80 ? 1 : *c < 0xC2 || *c > 0xF4 ? 0 : *c < 0xE0 ? 2 : *c < 0xF0 ? 3 : 4;
    for (i = 1; i < count; i++) {
        if ((c[i] & 0xC0) != 0x80) return 0;
    }
    if ((*c == 0xE0 && c[1] < 0xA0) || (*c == 0xED && c[1] > 0x9F)) return 0; /* surrogates */
    if ((*c == 0xF0 && c[1] < 0x90) || (*c == 0xF4 && c[1] > 0x8F)) return 0;
    return count;
}

/* Replaces an escape, after its backslash, in a string; returns 0 if it is invalid. */
static int ea__unescape(ea__json *json, size_t *to) {
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    const char *found;
    unsigned code, second;
    char c = json->text[json->at];
    if (c != 'u') {
        found = c ? strchr(names, c) : NULL;
        if (!found) return 0;
        json->at++;
        json->text[(*to)++] = values[found - names];
        return 1;
    }
    if (json->size - json->at < 5 || !ea__hex(json->text + json->at + 1, &code) || !code) return 0;
    json->at += 5;
    if (code >= 0xDC00 && code < 0xE000) return 0;
    if (code >= 0xD800 && code < 0xDC00) {
        if (json->size - json->at < 6 || json->text[json->at] != '\\' ||
            json->text[json->at + 1] != 'u' || !ea__hex(json->text + json->at + 2, &second) ||
            second < 0xDC00 || second > 0xDFFF) {
            return 0;
        }
        json->at += 6;
        code = 0x10000 + ((code - 0xD800) << 10) + (second - 0xDC00);
    }
    *to += ea__write_utf8(json->text + *to, code);
    return 1;
}

/* Unescapes a string in place, and ends it with a zero. */
static int ea__parse_string(ea__json *json, ea__node *node) {
    size_t to = ++json->at;
    node->start = (uint32_t)to;
    for (;;) {
        size_t count;
        unsigned char c = (unsigned char)json->text[json->at];
        if (json->at >= json->size || c < 32) return 0;
        if (c == '"') break;
        if (c == '\\') {
            json->at++;
            if (!ea__unescape(json, &to)) return 0;
            continue;
        }
        count = ea__utf8((const unsigned char *)json->text + json->at);
        if (!count || count > json->size - json->at) return 0;
        while (count--) json->text[to++] = json->text[json->at++];
    }
    json->at++;
    json->text[to] = 0;
    node->size = (uint32_t)(to - node->start);
    return 1;
}

static int ea__parse_items(ea__json *json, int depth, int is_object) {
    char end = is_object ? '}' : ']';
    json->at++;
    if (ea__has(json, end)) return 1;
    do {
        if (is_object) {
            ea__skip(json);
            if (json->at >= json->size || json->text[json->at] != '"') return 0;
            if (!ea__parse_value(json, depth + 1) || !ea__has(json, ':')) return 0;
        }
        if (!ea__parse_value(json, depth + 1)) return 0;
    } while (ea__has(json, ','));
    return ea__has(json, end);
}

static int ea__parse_value(ea__json *json, int depth) {
    static const char *const words[] = {"true", "false", "null"};
    ea__node node;
    size_t index = json->count, k;
    char c;
    ea__skip(json);
    if (json->at >= json->size || depth > EA__MAX_DEPTH) return 0;
    if (json->count == json->capacity) {
        size_t wanted = json->capacity ? 2 * json->capacity : 64;
        void *grown = realloc(json->nodes, wanted * sizeof(ea__node));
        if (!grown) return 0;
        json->nodes = (ea__node *)grown;
        json->capacity = wanted;
    }
    json->count++;
    c = json->text[json->at];
    memset(&node, 0, sizeof node);
    node.type = c;
    node.start = (uint32_t)json->at;
    if (c == '"') {
        if (!ea__parse_string(json, &node)) return 0;
    } else if (c == '{' || c == '[') {
        if (!ea__parse_items(json, depth, c == '{')) return 0;
    } else if (c == '-' || (c >= '0' && c <= '9')) {
        node.type = '0';
        while (json->at < json->size && json->text[json->at] &&
               strchr("+-.eE0123456789", json->text[json->at])) {
            json->at++;
        }
        node.size = (uint32_t)(json->at - node.start);
    } else {
        for (k = 0; k < 3 && c != *words[k]; k++) {}
        if (k == 3 || json->size - json->at < strlen(words[k]) ||
            memcmp(json->text + json->at, words[k], strlen(words[k]))) {
            return 0;
        }
        json->at += strlen(words[k]);
    }
    node.next = (uint32_t)json->count;
    json->nodes[index] = node;
    return 1;
}

/* Reads a text into `json`, which keeps a copy. */
static int ea__parse(ea__loader *loader, ea__json *json, const unsigned char *text, size_t size) {
    char *copy;
    if (size > EA__MAX_JSON) return ea__damaged(loader, "a description is too long", "");
    copy = (char *)ea__take(loader, size + 8, 1);
    if (!copy) return 0;
    if (size) memcpy(copy, text, size);
    memset(json, 0, sizeof *json);
    json->text = copy;
    json->size = size;
    if (ea__parse_value(json, 0)) {
        ea__skip(json);
        if (json->at == size && json->nodes[0].type == '{') return 1;
    }
    return ea__damaged(loader, "a description is not a JSON object", "");
}

/* The value of a key, or NULL if it is missing or null. */
static const ea__node *ea__get(const ea__json *json, const ea__node *object, const char *key) {
    size_t at = (size_t)(object - json->nodes) + 1;
    if (object->type != '{') return NULL;
    while (at < object->next) {
        const ea__node *name = &json->nodes[at], *value = &json->nodes[name->next];
        if (!strcmp(json->text + name->start, key)) return value->type == 'n' ? NULL : value;
        at = value->next;
    }
    return NULL;
}

/* The first item of a list or object, and the one after another; NULL at the end. */
static const ea__node *ea__next(const ea__json *json, const ea__node *list, const ea__node *item) {
    size_t at = item ? item->next : (size_t)(list - json->nodes) + 1;
    return at < list->next ? &json->nodes[at] : NULL;
}

/* Length of a list; -1 if it is not a list. */
static int ea__length(const ea__json *json, const ea__node *list) {
    const ea__node *item = NULL;
    int count = 0;
    if (!list || list->type != '[') return -1;
    while ((item = ea__next(json, list, item))) count++;
    return count;
}

/* A text, or NULL. */
static const char *ea__text(const ea__json *json, const ea__node *node) {
    return node && node->type == '"' ? json->text + node->start : NULL;
}

static int ea__is_true(const ea__node *node) { return node && node->type == 't'; }

/* Powers of 10 up to 22 are exact, so the result is rounded correctly for up to 15 digits. */
static int ea__number(const ea__json *json, const ea__node *node, double *number) {
    const char *at, *end;
    double value = 0, power = 1;
    int exponent = 0, given = 0, sign = 1, is_negative, num_digits = 0, is_fraction = 0;
    if (!node || node->type != '0') return 0;
    at = json->text + node->start;
    end = at + node->size;
    is_negative = *at == '-';
    for (at += is_negative; at < end && (*at == '.' || (*at >= '0' && *at <= '9')); at++) {
        if (*at == '.') {
            if (is_fraction++) return 0;
        } else if (value < 9e14) {
            value = 10 * value + (*at - '0');
            exponent -= is_fraction;
            num_digits++;
        } else {
            exponent += !is_fraction; /* more digits than a double has */
        }
    }
    if (!num_digits) return 0;
    if (at < end && (*at == 'e' || *at == 'E')) {
        if (++at < end && (*at == '-' || *at == '+')) sign = *at++ == '-' ? -1 : 1;
        if (at == end) return 0;
        for (; at < end && *at >= '0' && *at <= '9'; at++) {
            if (given < 10000) given = 10 * given + (*at - '0');
        }
    }
    if (at != end) return 0;
    exponent += sign * given;
    if (exponent > 400 || exponent < -400) exponent = exponent < 0 ? -400 : 400;
    for (given = exponent < 0 ? -exponent : exponent; given > 22; given -= 22) {
        value = exponent < 0 ? value / 1e22 : value * 1e22;
    }
    while (given--) power *= 10;
    value = exponent < 0 ? value / power : value * power;
    *number = is_negative ? -value : value;
    return value <= 1.7976931348623157e308;
}

/* An integer from `low` to `high`. */
static int ea__integer(const ea__json *json, const ea__node *node, int low, int high, int *found) {
    double number;
    if (!ea__number(json, node, &number) || !(number >= low && number <= high)) return 0;
    *found = (int)number;
    return number == *found;
}

/* Refuses keys that are not among the words of `known`, which are separated by spaces. */
static int ea__require_known(
    ea__loader *loader, const ea__node *object, const char *known, const char *where
) {
    const ea__json *json = &loader->json;
    const ea__node *name = NULL;
    if (object->type != '{') return ea__damaged(loader, "no options of", where);
    while ((name = ea__next(json, object, name))) {
        const char *key = json->text + name->start, *at;
        size_t size = strlen(key);
        at = size && !strchr(key, ' ') ? strstr(known, key) : NULL;
        while (at && ((at != known && at[-1] != ' ') || (at[size] && at[size] != ' '))) {
            at = strstr(at + 1, key);
        }
        if (!at) {
            char text[100];
            snprintf(text, sizeof text, "%.60s of %.30s", key, where);
            return ea__unknown(loader, "option", text);
        }
        name = &json->nodes[name->next];
    }
    return 1;
}

/* ------------------------------------------------------------------ the file */

static uint64_t ea__little(const unsigned char *bytes, int count) {
    uint64_t value = 0;
    while (count--) value = value << 8 | bytes[count];
    return value;
}

#define EA__TURN(x, n) ((x) >> (n) | (x) << (32 - (n)))

static void ea__hash_block(uint32_t *hash, const unsigned char *block) {
    static const uint32_t constants[64] = {
        0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4,
        0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe,
        0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f,
        0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7,
        0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc,
        0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
        0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116,
        0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
        0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
        0xc67178f2};
    uint32_t w[64], s[8];
    int i;
    for (i = 0; i < 16; i++, block += 4) {
        w[i] = (uint32_t)block[0] << 24 | (uint32_t)block[1] << 16 | (uint32_t)block[2] << 8 | block[3];
    }
    for (; i < 64; i++) {
        uint32_t x = w[i - 15], y = w[i - 2];
        w[i] = w[i - 16] + w[i - 7] + (EA__TURN(x, 7) ^ EA__TURN(x, 18) ^ x >> 3) +
               (EA__TURN(y, 17) ^ EA__TURN(y, 19) ^ y >> 10);
    }
    memcpy(s, hash, sizeof s);
    for (i = 0; i < 64; i++) {
        uint32_t a = s[0], e = s[4];
        uint32_t one = s[7] + (EA__TURN(e, 6) ^ EA__TURN(e, 11) ^ EA__TURN(e, 25)) +
                       ((e & s[5]) ^ (~e & s[6])) + constants[i] + w[i];
        uint32_t two = (EA__TURN(a, 2) ^ EA__TURN(a, 13) ^ EA__TURN(a, 22)) +
                       ((a & s[1]) ^ (a & s[2]) ^ (s[1] & s[2]));
        memmove(s + 1, s, 7 * sizeof *s);
        s[4] += one;
        s[0] = one + two;
    }
    for (i = 0; i < 8; i++) hash[i] += s[i];
}

/* Whether the SHA-256 of `bytes` is `expected`. */
static int ea__has_checksum(
    const unsigned char *bytes, size_t size, const unsigned char *expected
) {
    uint32_t hash[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                        0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    unsigned char rest[128];
    uint64_t bits = (uint64_t)size * 8;
    size_t left = size % 64, padded = left < 56 ? 64 : 128, i;
    for (i = 0; i + 64 <= size; i += 64) ea__hash_block(hash, bytes + i);
    memset(rest, 0, sizeof rest);
    memcpy(rest, bytes + (size - left), left);
    rest[left] = 128;
    for (i = 0; i < 8; i++) rest[padded - 1 - i] = (unsigned char)(bits >> 8 * i);
    for (i = 0; i < padded; i += 64) ea__hash_block(hash, rest + i);
    for (i = 0; i < 32; i++) {
        if (expected[i] != (unsigned char)(hash[i / 4] >> (24 - i % 4 * 8))) return 0;
    }
    return 1;
}

/* Reads JSON after its length in 8 bytes; moves `bytes` behind it. */
static int ea__read_json(
    ea__loader *loader, ea__json *json, const unsigned char **bytes, size_t *size
) {
    uint64_t length = *size < 8 ? 0 : ea__little(*bytes, 8);
    if (*size < 8 || length > *size - 8) {
        return ea__damaged(loader, "a description reaches beyond its end", "");
    }
    if (!ea__parse(loader, json, *bytes + 8, (size_t)length)) return 0;
    *bytes += 8 + length;
    *size -= 8 + (size_t)length;
    return 1;
}

/* A tensor's shape, type and place in the data; the data are copied later. */
static int ea__read_entry(
    ea__loader *loader, const ea__json *json, const ea__node *entry, ea__tensor *tensor,
    size_t *start, size_t size
) {
    const ea__node *shape = ea__get(json, entry, "shape"), *item = NULL;
    const ea__node *offsets = ea__get(json, entry, "data_offsets");
    const char *type = ea__text(json, ea__get(json, entry, "dtype"));
    double bounds[2], product = 1, length;
    int i = 0;
    if (!type || ea__length(json, offsets) != 2 || ea__length(json, shape) < 0) {
        return ea__damaged(loader, "no description of the tensor", tensor->name);
    }
    while ((item = ea__next(json, offsets, item))) {
        if (!ea__number(json, item, &bounds[i]) || !(bounds[i] >= 0 && bounds[i] <= (double)size) ||
            bounds[i] != floor(bounds[i])) {
            return ea__damaged(loader, "no data for the tensor", tensor->name);
        }
        i++;
    }
    tensor->rows = 1;
    for (i = 0; (item = ea__next(json, shape, item)); i++) {
        if (!ea__number(json, item, &length) || !(length >= 0 && length <= 1e9)) {
            return ea__damaged(loader, "no shape of the tensor", tensor->name);
        }
        if (!i) tensor->rows = (int)length;
        product *= length;
    }
    if (strcmp(type, "F32")) return 1;
    if (bounds[1] - bounds[0] != 4 * product) {
        return ea__damaged(loader, "another size of the tensor", tensor->name);
    }
    tensor->size = (size_t)product;
    *start = (size_t)bounds[0];
    return 2;
}

/* Copies the data of a tensor as numbers; 0 if one is not finite, or a parameter is too large: the
   sums of a single one overflow. */
static int ea__copy_numbers(ea__tensor *tensor, float *to, const unsigned char *from) {
    static const char *const statistics[] = {"count", "mean", "squares_sum", "std"};
    const char *end = strrchr(tensor->name, '.');
    size_t i;
    float most = EA__LARGEST_PARAMETER;
    for (i = 0; i < 4; i++) {
        if (!strcmp(end ? end + 1 : tensor->name, statistics[i])) most = 3.4028234663852886e38f;
    }
    for (i = 0; i < tensor->size; i++, from += 4) {
        uint32_t bits = (uint32_t)ea__little(from, 4);
        memcpy(to + i, &bits, 4);
        if ((bits & 0x7f800000) == 0x7f800000 || to[i] > most || to[i] < -most) return 0;
    }
    return 1;
}

static int ea__read_tensors(ea__loader *loader, const unsigned char *bytes, size_t size) {
    ea_agent *agent = loader->agent;
    ea__json json;
    const ea__node *name = NULL;
    ea__sorted *sorted;
    ea__tensor *tensors;
    const char *twice;
    size_t left;
    int count = 0, is_ok;
    memset(&json, 0, sizeof json);
    is_ok = ea__read_json(loader, &json, &bytes, &size);
    left = size; /* of memory: tensors could overlap */
    if (is_ok) {
        while ((name = ea__next(&json, json.nodes, name))) {
            name = &json.nodes[name->next];
            count++;
        }
        is_ok = count <= EA__MAX_TENSORS || ea__damaged(loader, "too many tensors", "");
    }
    sorted = is_ok ? (ea__sorted *)ea__take(loader, (size_t)count, sizeof *sorted) : NULL;
    tensors = sorted ? (ea__tensor *)ea__take(loader, (size_t)count, sizeof *tensors) : NULL;
    agent->tensors = is_ok && tensors ? (ea__tensor *)ea__take(loader, (size_t)count, sizeof *tensors)
                                      : NULL;
    is_ok = agent->tensors != NULL;
    for (count = 0, name = NULL; is_ok && (name = ea__next(&json, json.nodes, name)); count++) {
        ea__tensor *tensor = &tensors[count];
        size_t start = 0;
        int kind;
        tensor->name = sorted[count].name = json.text + name->start;
        sorted[count].index = count;
        name = &json.nodes[name->next];
        if (!strcmp(tensor->name, "__metadata__")) continue;
        kind = ea__read_entry(loader, &json, name, tensor, &start, size);
        if (kind == 2 && tensor->size > left / 4) {
            kind = ea__damaged(loader, "no room for the tensor", tensor->name);
        }
        is_ok = kind != 0;
        if (kind < 2) continue;
        left -= 4 * tensor->size;
        loader->allowed += tensor->size;
        tensor->data = (float *)ea__take(loader, EA__PADDED(tensor->size) + EA__W, sizeof(float));
        is_ok = tensor->data != NULL;
        if (is_ok && !ea__copy_numbers(tensor, (float *)tensor->data, bytes + start)) {
            is_ok = ea__damaged(loader, "numbers that are not finite, or too large, in", tensor->name);
        }
    }
    if (is_ok && (twice = ea__sort(sorted, count))) {
        is_ok = ea__damaged(loader, "two tensors have the name", twice);
    }
    for (agent->num_tensors = 0; is_ok && agent->num_tensors < count; agent->num_tensors++) {
        agent->tensors[agent->num_tensors] = tensors[sorted[agent->num_tensors].index];
    }
    free(json.nodes);
    return is_ok;
}

/* ------------------------------------------------------------------ spaces */

/* The texts of a list, ending with NULL; NULL after an error. */
static const char **ea__names(ea__loader *loader, const ea__node *list, int *count, const char *what) {
    const ea__node *item = NULL;
    const char **names;
    int i = 0;
    *count = ea__length(&loader->json, list);
    if (*count < 0) {
        ea__damaged(loader, "no list of", what);
        return NULL;
    }
    names = (const char **)ea__take(loader, (size_t)*count + 1, sizeof *names);
    for (; names && (item = ea__next(&loader->json, list, item)); i++) {
        names[i] = ea__text(&loader->json, item);
        if (!names[i]) {
            ea__damaged(loader, "an invalid name in", what);
            return NULL;
        }
    }
    return names;
}

static int ea__read_entities(ea__loader *loader, const ea__node *list) {
    ea_agent *agent = loader->agent;
    const ea__node *item = NULL;
    int i, count = ea__length(&loader->json, list), num_columns = 0;
    ea_entity *entities;
    if (count < 0) return ea__damaged(loader, "no list of", "entities");
    entities = (ea_entity *)ea__take(loader, (size_t)count + 1, sizeof *entities);
    loader->types = (ea__sorted *)ea__take(loader, (size_t)count + 1, sizeof(ea__sorted));
    agent->widths = (int *)ea__take(loader, (size_t)count + 1, sizeof(int));
    if (!entities || !loader->types || !agent->widths) return 0;
    agent->spaces.entities = entities;
    agent->spaces.num_entities = agent->num_types = count;
    for (i = 0; (item = ea__next(&loader->json, list, item)); i++) {
        ea_entity *entity = &entities[i];
        entity->name = ea__text(&loader->json, ea__get(&loader->json, item, "name"));
        if (!entity->name) return ea__damaged(loader, "no name of", "an entity");
        entity->features = ea__names(
            loader, ea__get(&loader->json, item, "features"), &entity->num_features, "features"
        );
        if (!entity->features) return 0;
        agent->widths[i] = entity->num_features;
        if (ea__get(&loader->json, item, "references")) agent->num_relations++;
        else if (agent->num_relations) return ea__damaged(loader, "a relation before", entity->name);
        num_columns += entity->num_features + agent->spaces.num_globals;
        if (num_columns > EA__MAX_COLUMNS) return ea__damaged(loader, "too many features", "");
        loader->types[i].name = entity->name;
        loader->types[i].index = i;
    }
    return 1;
}

static int ea__read_bounds(
    ea__loader *loader, const ea__node *list, int count, const float **bounds
) {
    const ea__node *item = NULL;
    float *found;
    double number;
    int i;
    if (ea__length(&loader->json, list) != count) return ea__damaged(loader, "no bounds of", "an action");
    found = (float *)ea__take(loader, (size_t)count, sizeof(float));
    if (!found) return 0;
    for (i = 0; (item = ea__next(&loader->json, list, item)); i++) {
        if (!ea__number(&loader->json, item, &number) ||
            !(number >= -3.4028234663852886e38 && number <= 3.4028234663852886e38)) {
            return ea__damaged(loader, "no bounds of", "an action");
        }
        found[i] = (float)number;
    }
    *bounds = found;
    return 1;
}

static int ea__read_actions(ea__loader *loader, const ea__node *list) {
    static const char *const kinds[] = {
        "global_categorical", "categorical", "select_entity", "continuous"};
    const ea__json *json = &loader->json;
    const ea__node *item = NULL;
    int i, count = ea__length(json, list);
    ea_action *actions;
    if (count < 0) return ea__damaged(loader, "no list of", "actions");
    actions = (ea_action *)ea__take(loader, (size_t)count, sizeof *actions);
    loader->actions = (ea__sorted *)ea__take(loader, (size_t)count, sizeof(ea__sorted));
    if (!actions || !loader->actions) return 0;
    loader->agent->spaces.actions = actions;
    loader->agent->spaces.num_actions = loader->num_actions = count;
    for (i = 0; (item = ea__next(json, list, item)); i++) {
        const char *kind = ea__text(json, ea__get(json, item, "kind"));
        const ea__node *labels = ea__get(json, item, "labels");
        ea_action *action = &actions[i];
        int k = 0;
        action->name = ea__text(json, ea__get(json, item, "name"));
        while (kind && k < 4 && strcmp(kind, kinds[k])) k++;
        if (!action->name || !kind) return ea__damaged(loader, "no name or kind of", "an action");
        if (k == 4) return ea__unknown(loader, "kind of action", kind);
        action->kind = (ea_kind)k;
        loader->actions[i].name = action->name;
        loader->actions[i].index = i;
        if (action->kind == EA_SELECT_ENTITY) continue;
        action->labels = ea__names(loader, labels, &action->num_labels, "labels");
        if (!action->labels) return 0;
        if (!action->num_labels) return ea__damaged(loader, "no labels of", action->name);
        if (action->kind == EA_CONTINUOUS &&
            (!ea__read_bounds(loader, ea__get(json, item, "low"), action->num_labels, &action->low) ||
             !ea__read_bounds(loader, ea__get(json, item, "high"), action->num_labels, &action->high))) {
            return 0;
        }
        for (k = 0; action->low && k < action->num_labels; k++) { /* as float */
            if (action->low[k] > action->high[k]) return ea__damaged(loader, "no bounds of", action->name);
        }
    }
    return 1;
}

/* On which earlier actions each depends; `list` has all actions, whose names are sorted. */
static int ea__read_given(ea__loader *loader, const ea__node *list) {
    const ea__json *json = &loader->json;
    const ea__node *item = NULL;
    int i;
    for (i = 0; (item = ea__next(json, list, item)); i++) {
        const ea__node *given = ea__get(json, item, "given"), *name = NULL;
        ea_action *action = (ea_action *)&loader->agent->spaces.actions[i];
        int k, count = given ? ea__length(json, given) : 0, *found;
        if (count < 0) return ea__damaged(loader, "no list of the actions before", action->name);
        found = (int *)ea__take(loader, (size_t)count, sizeof(int));
        if (!found) return 0;
        for (k = 0; (name = count ? ea__next(json, given, name) : NULL); k++) {
            const char *text = ea__text(json, name);
            found[k] = text ? ea__index_of(loader->actions, loader->num_actions, text) : -1;
            if (found[k] < 0 || found[k] >= i ||
                (loader->agent->spaces.actions[found[k]].kind == EA_GLOBAL_CATEGORICAL) !=
                    (action->kind == EA_GLOBAL_CATEGORICAL)) {
                return ea__damaged(loader, "not after actions of the same actors:", action->name);
            }
        }
        action->given = found;
        action->num_given = count;
    }
    return 1;
}

/* The types of both entities of each relation; names of types are sorted. */
static int ea__read_references(ea__loader *loader, const ea__node *list) {
    ea_agent *agent = loader->agent;
    const ea__node *item = NULL;
    int i, k, num_plain = agent->spaces.num_entities - agent->num_relations;
    for (i = 0; (item = ea__next(&loader->json, list, item)); i++) {
        ea_entity *entity = (ea_entity *)&agent->spaces.entities[i];
        const ea__node *both = ea__get(&loader->json, item, "references"), *name = NULL;
        int *found;
        if (!both) continue;
        found = (int *)ea__take(loader, 2, sizeof(int));
        if (!found) return 0;
        if (ea__length(&loader->json, both) != 2 || entity->num_features < 2 || agent->is_vector) {
            return ea__damaged(loader, "not two references of", entity->name);
        }
        for (k = 0; (name = ea__next(&loader->json, both, name)); k++) {
            const char *text = ea__text(&loader->json, name);
            found[k] = text ? ea__index_of(loader->types, agent->num_types, text) : -1;
            if (found[k] < 0 || found[k] >= num_plain) {
                return ea__damaged(loader, "no entities for references of", entity->name);
            }
        }
        entity->references = found;
    }
    return 1;
}

static int ea__read_spaces(ea__loader *loader, const ea__node *spaces) {
    static const char *const global = "__global__";
    ea_agent *agent = loader->agent;
    const char *twice;
    int i, has_global = 0;
    if (!spaces) return ea__damaged(loader, "no spaces", "");
    agent->spaces.global_features = ea__names(
        loader, ea__get(&loader->json, spaces, "global_features"), &agent->spaces.num_globals,
        "global features"
    );
    if (!agent->spaces.global_features ||
        !ea__read_entities(loader, ea__get(&loader->json, spaces, "entities")) ||
        !ea__read_actions(loader, ea__get(&loader->json, spaces, "actions"))) {
        return 0;
    }
    for (i = 0; i < agent->spaces.num_actions; i++) {
        has_global |= agent->spaces.actions[i].kind == EA_GLOBAL_CATEGORICAL;
    }
    agent->num_shared = agent->is_vector ? 0 : agent->spaces.num_globals;
    if (has_global && !agent->is_vector) {
        loader->types[agent->num_types].name = global;
        loader->types[agent->num_types].index = agent->num_types;
        agent->num_types++;
    }
    twice = ea__sort(loader->types, agent->num_types);
    if (!twice) twice = ea__sort(loader->actions, loader->num_actions);
    if (twice) return ea__damaged(loader, "two entities or actions have the name", twice);
    if (!ea__read_references(loader, ea__get(&loader->json, spaces, "entities"))) return 0;
    return ea__read_given(loader, ea__get(&loader->json, spaces, "actions"));
}

/* How many types the entities have: with that of the global action, without relations. */
static int ea__num_shown(const ea_agent *agent) { return agent->num_types - agent->num_relations; }

/* The type at a place among them. */
static int ea__shown_type(const ea_agent *agent, int place) {
    return place < agent->spaces.num_entities - agent->num_relations ? place : agent->spaces.num_entities;
}

static int ea__is_relation(const ea_agent *agent, int type) {
    return type < agent->spaces.num_entities && type >= agent->spaces.num_entities - agent->num_relations;
}

/* ------------------------------------------------------------------ features */

/* Column of a feature of a type, which may be global; -1 if it has none. */
static int ea__column(const ea_agent *agent, int type, const char *feature) {
    const ea_spaces *spaces = &agent->spaces;
    int i;
    for (i = 0; i < agent->widths[type]; i++) {
        if (!strcmp(spaces->entities[type].features[i], feature)) return i;
    }
    for (i = 0; i < agent->num_shared; i++) {
        if (!strcmp(spaces->global_features[i], feature)) return agent->widths[type] + i;
    }
    return -1;
}

/* Columns of the features in a list; -1 for each that is missing. Returns 0 unless it names from
   `low` to `high` features. */
static int ea__columns(
    ea__loader *loader, const ea__node *list, int type, int low, int high, int *columns
) {
    const ea__node *item = NULL;
    int i, count = ea__length(&loader->json, list);
    if (count < low || count > high) return 0;
    for (i = 0; (item = ea__next(&loader->json, list, item)); i++) {
        const char *name = ea__text(&loader->json, item);
        if (!name) return 0;
        columns[i] = ea__column(loader->agent, type, name);
    }
    return 1;
}

static int ea__read_translation(ea__loader *loader, const ea__node *options) {
    static const char *const what = "translation";
    ea_agent *agent = loader->agent;
    ea__translation *t = &agent->translation;
    const ea__json *json = &loader->json;
    const ea__node *positions, *vector;
    const char *name, *angle;
    int type, axis;
    if (!ea__require_known(
            loader, options, "reference_entity position_features rotation_vec_features "
            "rotation_angle_feature add_dist_feature", what)) {
        return 0;
    }
    name = ea__text(json, ea__get(json, options, "reference_entity"));
    positions = ea__get(json, options, "position_features");
    vector = ea__get(json, options, "rotation_vec_features");
    angle = ea__text(json, ea__get(json, options, "rotation_angle_feature"));
    t->num_axes = ea__length(json, positions);
    t->reference = name ? ea__index_of(loader->types, agent->num_types, name) : -1;
    t->vector[0] = t->vector[1] = t->angle = -1;
    if (t->reference < 0 || ea__is_relation(agent, t->reference) || t->num_axes < 1 || t->num_axes > EA__MAX_AXES) {
        return ea__damaged(loader, "invalid options of", what);
    }
    if ((vector && !ea__columns(loader, vector, t->reference, 2, 2, t->vector)) ||
        (vector && (t->vector[0] < 0 || t->vector[1] < 0))) {
        return ea__damaged(loader, "invalid rotation of", what);
    }
    if (angle) {
        t->angle = ea__column(agent, t->reference, angle);
        if (t->angle < 0) return ea__damaged(loader, "invalid rotation of", what);
    }
    t->has_distance = ea__is_true(ea__get(json, options, "add_dist_feature"));
    t->moved = (int *)ea__take(loader, (size_t)agent->num_types, sizeof(int));
    t->columns = (int *)ea__take(loader, (size_t)agent->num_types * EA__MAX_AXES, sizeof(int));
    if (!t->moved || !t->columns) return 0;
    for (type = 0; type < agent->num_types; type++) {
        int *columns = t->columns + type * EA__MAX_AXES;
        if (!ea__columns(loader, positions, type, 1, EA__MAX_AXES, columns)) {
            return ea__damaged(loader, "invalid positions of", what);
        }
        t->moved[type] = type != t->reference && !ea__is_relation(agent, type);
        for (axis = 0; axis < t->num_axes; axis++) {
            if (columns[axis] < 0) t->moved[type] = 0;
            if (columns[axis] < 0 && type == t->reference) {
                return ea__damaged(loader, "invalid positions of", what);
            }
        }
    }
    t->is_used = 1;
    return 1;
}

/* ------------------------------------------------------------------ operations */

/* A new matrix, or -1 with an error. The number of operations bounds that of matrices. */
static int ea__matrix_of(ea__loader *loader, ea__rows rows, int index, int width) {
    ea_agent *agent = loader->agent;
    ea__matrix *matrix = &agent->matrices[agent->num_matrices];
    memset(matrix, 0, sizeof *matrix);
    matrix->rows = rows;
    matrix->index = index;
    matrix->width = width;
    matrix->stride = width < 0 ? 0 : EA__PADDED(width);
    matrix->made = matrix->used = loader->op;
    matrix->slot = -1;
    return agent->num_matrices++;
}

static const ea__matrix *ea__input(const ea__loader *loader, const ea__op *op, int i) {
    return &loader->agent->matrices[op->x[i]];
}

/* Inputs of an operation do not fit together. */
static int ea__misfit(ea__loader *loader) {
    return ea__fail(
        loader, "the agent file is damaged: the inputs of operation %d do not fit; copy it or export "
        "it again", loader->op
    );
}

/* The tensor of an operation, which must have `size` numbers, unless that is below 0; or NULL. */
static ea__tensor *ea__find_tensor(ea__loader *loader, const char *part, double size) {
    ea_agent *agent = loader->agent;
    char name[1100];
    int low = 0, high = agent->num_tensors;
    if (strlen(loader->layer) + strlen(part) < sizeof name) {
        strcpy(name, loader->layer);
        strcat(name, part);
        while (low < high) {
            int middle = low + (high - low) / 2, order = strcmp(agent->tensors[middle].name, name);
            ea__tensor *found = &agent->tensors[middle];
            if (!order && found->data && (size < 0 || size == (double)found->size)) {
                loader->work += found->size;
                return found;
            }
            if (!order) break;
            if (order < 0) low = middle + 1;
            else high = middle;
        }
        if (size < 0) {
            ea__damaged(loader, "expected F32 in", name);
        } else {
            ea__fail(
                loader, "the agent file is damaged: expected %.100s of %.0f F32; copy it or export it "
                "again", name, size
            );
        }
    } else {
        ea__damaged(loader, "a name is too long", "");
    }
    return NULL;
}

/* Numbers of a tensor; `size` as above. */
static const float *ea__numbers(ea__loader *loader, const char *part, double size) {
    const ea__tensor *tensor = ea__find_tensor(loader, part, size);
    return tensor ? tensor->data : NULL;
}

/* The weight of a product with `inner` inputs and `outputs` outputs, as panels. */
static const float *ea__panels(ea__loader *loader, double inner, int outputs) {
    ea__tensor *tensor = ea__find_tensor(loader, "weight", inner * outputs);
    size_t i, column, num_columns = (size_t)outputs, num_inner = (size_t)inner;
    if (!tensor) return NULL;
    if (tensor->rows != outputs) {
        ea__misfit(loader);
        return NULL;
    }
    if (tensor->panels) return tensor->panels;
    tensor->panels = (float *)ea__take(loader, EA__PADDED(num_columns), num_inner * sizeof(float));
    if (!tensor->panels) return NULL;
    for (column = 0; column < num_columns; column++) {
        float *to = tensor->panels + column / EA__W * EA__W * num_inner + column % EA__W;
        for (i = 0; i < num_inner; i++) to[i * EA__W] = tensor->data[column * num_inner + i];
    }
    return tensor->panels;
}

/* The tensors count, mean and squares_sum of `layer`. */
static int ea__standard_of(ea__loader *loader, ea__standard *standard, const char *layer, int width) {
    char name[64];
    const float *count, *sums;
    int i;
    snprintf(name, sizeof name, "%.40scount", layer);
    count = ea__numbers(loader, name, 1);
    snprintf(name, sizeof name, "%.40smean", layer);
    standard->mean = count ? ea__numbers(loader, name, width) : NULL;
    snprintf(name, sizeof name, "%.40ssquares_sum", layer);
    sums = standard->mean ? ea__numbers(loader, name, width) : NULL;
    if (!sums) return 0;
    standard->is_used = *count > 1;
    standard->deviation = (float *)ea__take(loader, (size_t)width, sizeof(float));
    if (!standard->deviation) return 0;
    for (i = 0; i < width; i++) {
        float found = sums[i] > 0 ? sqrtf(sums[i] / (*count - 1)) : 0;
        standard->deviation[i] = found > 0 ? found : 1;
    }
    return 1;
}

static int ea__read_activation(ea__loader *loader, ea__op *op, const ea__node *options) {
    static const char *const names[] = {"", "relu", "tanh", "sigmoid", "gelu"};
    const ea__node *node = ea__get(&loader->json, options, "activation");
    const char *name = ea__text(&loader->json, node);
    if (!node) return 1;
    while (name && op->activation < 5 && strcmp(name, names[op->activation])) op->activation++;
    if (!name || op->activation == 5) {
        return ea__unknown(loader, "activation", name ? name : "(not a text)");
    }
    return 1;
}

/* Weight and bias of a product, and its activation; returns the number of outputs, or 0. */
static int ea__make_product(ea__loader *loader, ea__op *op, const ea__node *options, double inner) {
    const ea__tensor *bias = ea__find_tensor(loader, "bias", -1);
    int outputs = bias ? (int)bias->size : 0;
    if (!bias || !ea__read_activation(loader, op, options)) return 0;
    if (!outputs) return ea__misfit(loader);
    op->bias = bias->data;
    op->weight = ea__panels(loader, inner, outputs);
    return op->weight ? outputs : 0;
}

static int ea__make_linear(ea__loader *loader, ea__op *op, const ea__node *options) {
    const ea__matrix *x = ea__input(loader, op, 0);
    const char *end = strstr(loader->layer, "heads.value.");
    ea__rows rows = x->rows;
    int i, k, outputs, index = x->index, width = x->width;
    if (width < 0 || rows == EA__PAIRS || rows == EA__LINKS) return ea__misfit(loader);
    outputs = ea__make_product(loader, op, options, width);
    if (!outputs) return 0;
    if (end && !strcmp(end, "heads.value.")) { /* zeros are an untrained value */
        loader->agent->spaces.has_value = 0;
        for (k = 0; k < outputs; k++) {
            for (i = 0; i < width; i++) {
                if (op->weight[(k / EA__W * width + i) * EA__W + k % EA__W] != 0) {
                    loader->agent->spaces.has_value = 1;
                }
            }
            if (op->bias[k] != 0) loader->agent->spaces.has_value = 1;
        }
    }
    if (rows == EA__PIXELS) return ea__misfit(loader);
    op->y = ea__matrix_of(loader, rows, index, outputs);
    return 1;
}

static int ea__make_normalize(ea__loader *loader, ea__op *op, const ea__node *options) {
    const ea__matrix x = *ea__input(loader, op, 0);
    const ea__node *start = ea__get(&loader->json, options, "start");
    if (x.width < 0 || x.rows == EA__PAIRS || x.rows == EA__LINKS) return ea__misfit(loader);
    if (start && (!ea__integer(&loader->json, start, 0, x.width, &op->start) || x.rows == EA__PIXELS)) {
        return ea__misfit(loader);
    }
    if (!ea__standard_of(loader, &op->standard, "", x.width - op->start)) return 0;
    op->y = ea__matrix_of(loader, x.rows, x.index, x.width - op->start);
    memcpy(loader->agent->matrices[op->y].sides, x.sides, sizeof x.sides);
    return 1;
}

static int ea__make_layer_norm(ea__loader *loader, ea__op *op) {
    const ea__matrix x = *ea__input(loader, op, 0);
    if (x.width < 1 || x.rows == EA__PAIRS || x.rows == EA__PIXELS || x.rows == EA__LINKS) return ea__misfit(loader);
    op->weight = ea__numbers(loader, "weight", x.width);
    op->bias = op->weight ? ea__numbers(loader, "bias", x.width) : NULL;
    op->y = ea__matrix_of(loader, x.rows, x.index, x.width);
    return op->bias != NULL;
}

static int ea__make_add(ea__loader *loader, ea__op *op) {
    const ea__matrix *x = ea__input(loader, op, 0), *y = ea__input(loader, op, 1);
    if (x->rows != y->rows || (x->index != y->index && x->rows != EA__ACTORS) || x->width != y->width ||
        x->width < 0 || x->rows == EA__PAIRS || x->rows == EA__PIXELS || x->rows == EA__LINKS) {
        return ea__misfit(loader);
    }
    op->y = op->x[0];
    return 1;
}

static int ea__make_repeat(ea__loader *loader, ea__op *op) {
    const ea__matrix x = *ea__input(loader, op, 0);
    const ea__tensor *embedding = ea__find_tensor(loader, "embedding", -1);
    if (!embedding) return 0;
    if (x.rows == EA__PAIRS || x.rows == EA__PIXELS || x.rows == EA__LINKS || !embedding->size) return ea__misfit(loader);
    op->weight = embedding->data;
    op->y = ea__matrix_of(loader, x.rows, x.index, (int)embedding->size);
    return 1;
}

/* Whether the inputs are the types from `first` to `last`, in order; `is_raw`: their features. */
static int ea__are_from(const ea__loader *loader, const ea__op *op, int first, int last, int is_raw) {
    int i;
    if (op->num_inputs != last - first + 1) return 0;
    for (i = 0; i < op->num_inputs; i++) {
        const ea__matrix *x = ea__input(loader, op, i);
        int type = first ? first + i : ea__shown_type(loader->agent, i);
        if (x->rows != EA__OF_TYPE || x->index != type) return 0;
        if (is_raw ? op->x[i] != loader->agent->inputs[type] : x->width != ea__input(loader, op, 0)->width) {
            return 0;
        }
    }
    return op->num_inputs > 0;
}

/* As above, all types of entities. A separate value network leaves out the entity of global actions,
   which is last. */
static int ea__are_types(const ea__loader *loader, const ea__op *op, int is_raw) {
    const ea_agent *agent = loader->agent;
    return ea__are_from(loader, op, 0, ea__num_shown(agent) - 1, is_raw) ||
           ea__are_from(loader, op, 0, agent->spaces.num_entities - agent->num_relations - 1, is_raw);
}

/* All types of relations. */
static int ea__are_relations(const ea__loader *loader, const ea__op *op, int is_raw) {
    int last = loader->agent->spaces.num_entities - 1, first = last + 1 - loader->agent->num_relations;
    return loader->agent->num_relations && first > 0 && ea__are_from(loader, op, first, last, is_raw);
}

/* Rows of all relations, or of entities and relations. */
static int ea__make_stack(ea__loader *loader, ea__op *op) {
    const ea__matrix *x = ea__input(loader, op, 0), *last = ea__input(loader, op, op->num_inputs - 1);
    if (ea__are_relations(loader, op, 0)) {
        op->y = ea__matrix_of(loader, EA__RELATIONS, 0, x->width);
        return 1;
    }
    if (op->num_inputs != 2 || x->rows != EA__ALL || x->index != ea__num_shown(loader->agent) ||
        last->rows != EA__RELATIONS || x->width != last->width) {
        return ea__misfit(loader);
    }
    op->y = ea__matrix_of(loader, EA__EVERYTHING, 0, x->width);
    return 1;
}

static int ea__make_concatenate(ea__loader *loader, ea__op *op, const ea__node *options) {
    const ea__node *list = ea__get(&loader->json, options, "entities"), *item = NULL;
    int i = 0;
    if (!list) return ea__make_stack(loader, op);
    if (!ea__are_types(loader, op, 0) || ea__length(&loader->json, list) != op->num_inputs) {
        return ea__misfit(loader);
    }
    for (; (item = ea__next(&loader->json, list, item)); i++) {
        const char *name = ea__text(&loader->json, item);
        if (!name || ea__index_of(loader->types, loader->agent->num_types, name) !=
                         ea__shown_type(loader->agent, i)) {
            return ea__misfit(loader);
        }
    }
    loader->num_types = op->num_inputs;
    op->y = ea__matrix_of(loader, EA__ALL, op->num_inputs, ea__input(loader, op, 0)->width);
    return 1;
}

/* The features of all relations, and the names of their types and of those of both entities. */
static int ea__make_links(ea__loader *loader, ea__op *op, const ea__node *options) {
    const ea_agent *agent = loader->agent;
    const ea__node *list = ea__get(&loader->json, options, "references"), *item = NULL, *name;
    int i, k;
    if (!ea__are_relations(loader, op, 1) || ea__length(&loader->json, list) != op->num_inputs) {
        return ea__misfit(loader);
    }
    for (i = 0; (item = ea__next(&loader->json, list, item)); i++) {
        int type = agent->spaces.num_entities - agent->num_relations + i;
        if (ea__length(&loader->json, item) != 3) return ea__misfit(loader);
        for (name = NULL, k = 0; (name = ea__next(&loader->json, item, name)); k++) {
            const char *text = ea__text(&loader->json, name);
            int expected = k ? agent->spaces.entities[type].references[k - 1] : type;
            if (!text || ea__index_of(loader->types, agent->num_types, text) != expected) {
                return ea__misfit(loader);
            }
        }
    }
    op->y = ea__matrix_of(loader, EA__LINKS, 0, -1);
    return 1;
}

/* Attention to messages: query, key and value of entities; keys and values of relations, first for
   messages to the source, then to the target; links. */
static int ea__make_relate(ea__loader *loader, ea__op *op, const ea__node *options) {
    const ea__matrix *q = ea__input(loader, op, 0);
    int i, width = q->width;
    if (!ea__integer(&loader->json, ea__get(&loader->json, options, "n_head"), 1, 1 << 20, &op->heads) ||
        width < 1 || width > 1 << 28 || width % op->heads) {
        return ea__misfit(loader);
    }
    for (i = 0; i < 6; i++) {
        const ea__matrix *x = ea__input(loader, op, i);
        int is_entity = i < 3, is_links = i == 5;
        if (x->rows != (is_entity ? EA__ALL : is_links ? EA__LINKS : EA__RELATIONS)) return ea__misfit(loader);
        if (is_entity ? x->width != width || x->index != q->index : !is_links && x->width != 2 * width) {
            return ea__misfit(loader);
        }
    }
    op->y = ea__matrix_of(loader, EA__ALL, q->index, width);
    return 1;
}

static int ea__make_ends(ea__loader *loader, ea__op *op) {
    const ea__matrix *x = ea__input(loader, op, 0);
    if (x->rows != EA__ALL || ea__input(loader, op, 1)->rows != EA__LINKS || x->width > 1 << 28) {
        return ea__misfit(loader);
    }
    op->y = ea__matrix_of(loader, EA__RELATIONS, 0, 2 * x->width);
    return 1;
}

static int ea__make_join(ea__loader *loader, ea__op *op) {
    const ea__matrix first = *ea__input(loader, op, 0);
    double width = 0;
    int i;
    if (first.rows != EA__ONE && first.rows != EA__ACTORS && first.rows != EA__RELATIONS) {
        return ea__misfit(loader);
    }
    for (i = 0; i < op->num_inputs; i++) {
        const ea__matrix *x = ea__input(loader, op, i);
        if (x->rows != first.rows || x->width < 0) return ea__misfit(loader);
        width += x->width;
    }
    if (width > 1e9) return ea__misfit(loader);
    op->y = ea__matrix_of(loader, first.rows, first.index, (int)width);
    return 1;
}

static int ea__make_attend(ea__loader *loader, ea__op *op, const ea__node *options) {
    const ea__matrix *q = ea__input(loader, op, 0), *gate;
    const ea__matrix *positions = op->num_inputs > 3 ? ea__input(loader, op, 3) : NULL;
    int i, width = q->width, size;
    if (op->num_inputs < 3 || op->num_inputs > 5 ||
        !ea__integer(&loader->json, ea__get(&loader->json, options, "n_head"), 1, 1 << 20, &op->heads) ||
        width < 1 || width % op->heads) {
        return ea__misfit(loader);
    }
    for (i = 0; i < 3; i++) {
        const ea__matrix *x = ea__input(loader, op, i);
        if (x->rows != EA__ALL || x->width != width || x->index != q->index) return ea__misfit(loader);
    }
    size = width / op->heads;
    if (positions && (positions->rows != EA__PAIRS || positions->index != q->index ||
                      loader->agent->ops[positions->made].positions->width != size)) {
        return ea__misfit(loader);
    }
    gate = op->num_inputs > 4 ? ea__input(loader, op, 4) : NULL;
    if (gate && (gate->rows != EA__ALL || gate->width != size || gate->index != q->index)) return ea__misfit(loader);
    if (positions) op->positions = loader->agent->ops[positions->made].positions;
    op->y = ea__matrix_of(loader, EA__ALL, q->index, width);
    return 1;
}

static int ea__make_pool(ea__loader *loader, ea__op *op, const ea__node *options) {
    const ea__matrix *x = ea__input(loader, op, 0);
    const char *of = ea__text(&loader->json, ea__get(&loader->json, options, "of"));
    if (x->rows != EA__ALL || x->width > 1 << 28) return ea__misfit(loader);
    op->is_mean = of && (!strcmp(of, "mean") || !strcmp(of, "meanmax"));
    op->is_max = of && (!strcmp(of, "max") || !strcmp(of, "meanmax"));
    if (!op->is_mean && !op->is_max) return ea__unknown(loader, "pooling", of ? of : "(not a text)");
    op->y = ea__matrix_of(loader, EA__ONE, 0, x->width * (op->is_mean + op->is_max));
    return 1;
}

/* Kinds with one input that must have rows of this kind. */
static int ea__make_simple(ea__loader *loader, ea__op *op, ea__rows from, ea__rows to) {
    const ea__matrix *x = ea__input(loader, op, 0);
    if (x->rows != from || !loader->num_types) return ea__misfit(loader);
    op->y = ea__matrix_of(loader, to, to == EA__ALL ? loader->num_types : 0, x->width);
    return 1;
}

static int ea__make_convolve(ea__loader *loader, ea__op *op, const ea__node *options) {
    const ea__matrix x = *ea__input(loader, op, 0);
    const ea__tensor *bias = ea__find_tensor(loader, "bias", -1);
    const ea__tensor *weight = bias ? ea__find_tensor(loader, "weight", -1) : NULL;
    ea__matrix *y;
    double area;
    int i, outputs, side = 1;
    if (!weight) return 0;
    if (x.rows != EA__PIXELS || x.width < 1 || !bias->size ||
        !ea__integer(&loader->json, ea__get(&loader->json, options, "stride"), 1, 1 << 20, &op->stride)) {
        return ea__misfit(loader);
    }
    area = (double)weight->size / (double)bias->size / x.width;
    while (side < 2000 && side * side < area) side++;
    if (side * side != area || side > x.sides[0] || side > x.sides[1]) return ea__misfit(loader);
    op->kernel = side;
    outputs = ea__make_product(loader, op, options, area * x.width);
    if (!outputs) return 0;
    op->y = ea__matrix_of(loader, EA__PIXELS, 0, outputs);
    y = &loader->agent->matrices[op->y];
    for (i = 0; i < 2; i++) y->sides[i] = (x.sides[i] - side) / op->stride + 1;
    if ((double)y->sides[0] * y->sides[1] * (double)weight->size > EA__MAX_WORK ||
        (double)y->sides[0] * y->sides[1] * outputs > EA__MAX_WORK) {
        return ea__damaged(loader, "a convolution is too large", "");
    }
    return 1;
}

static int ea__make_flatten(ea__loader *loader, ea__op *op) {
    const ea__matrix *x = ea__input(loader, op, 0);
    double size = (double)x->sides[0] * x->sides[1] * x->width;
    if (x->rows != EA__PIXELS || size > EA__MAX_WORK / 4) return ea__misfit(loader);
    op->y = ea__matrix_of(loader, EA__ONE, 0, (int)size);
    return 1;
}

static int ea__find_action(ea__loader *loader, ea__op *op, const ea__node *options) {
    const char *name = ea__text(&loader->json, ea__get(&loader->json, options, "action"));
    op->action = name ? ea__index_of(loader->actions, loader->num_actions, name) : -1;
    return op->action >= 0 || ea__damaged(loader, "no such action as", name ? name : "null");
}

/* Whether a matrix has a row per entity, or the one of an MLP or CNN. */
static int ea__has_entities(const ea__loader *loader, const ea__matrix *x) {
    return (x->rows == EA__ALL && x->index == ea__num_shown(loader->agent)) ||
           (x->rows == EA__ONE && loader->agent->is_vector);
}

/* As above, and with relations, if the game has these and they can be chosen. */
static int ea__has_choices(const ea__loader *loader, const ea__matrix *x, int can_be_chosen) {
    if (!can_be_chosen || !loader->agent->num_relations) return ea__has_entities(loader, x);
    return x->rows == EA__EVERYTHING;
}

static int ea__make_take(ea__loader *loader, ea__op *op, const ea__node *options, ea__rows rows) {
    const ea__matrix *x = ea__input(loader, op, 0);
    if (!ea__find_action(loader, op, options)) return 0;
    if (!ea__has_choices(loader, x, rows == EA__ACTEES)) return ea__misfit(loader);
    if (rows == EA__ACTEES && loader->agent->spaces.actions[op->action].kind != EA_SELECT_ENTITY) {
        return ea__misfit(loader);
    }
    op->y = ea__matrix_of(loader, rows, op->action, x->width);
    return 1;
}

static int ea__make_compare(ea__loader *loader, ea__op *op, const ea__node *options) {
    const ea__matrix *actors = ea__input(loader, op, 0), *actees = ea__input(loader, op, 1);
    if (!ea__find_action(loader, op, options)) return 0;
    if (actors->rows != EA__ACTORS || actees->rows != EA__ACTEES || actors->index != op->action ||
        actees->index != op->action || actors->width != actees->width || actors->width < 1) {
        return ea__misfit(loader);
    }
    op->y = ea__matrix_of(loader, EA__ACTORS, op->action, -1);
    return 1;
}

static int ea__make_answer(ea__loader *loader, ea__op *op, const ea__node *options) {
    ea_agent *agent = loader->agent;
    const ea__matrix *x = ea__input(loader, op, 0);
    const ea_action *action;
    const float *logs;
    int i;
    if (!ea__find_action(loader, op, options)) return 0;
    action = &agent->spaces.actions[op->action];
    if (x->rows != EA__ACTORS || x->index != op->action ||
        (action->kind == EA_SELECT_ENTITY) != (x->width < 0) ||
        (x->width >= 0 && x->width != action->num_labels) ||
        (op->code == EA__GAUSSIAN) != (action->kind == EA_CONTINUOUS) || agent->answers[op->action] >= 0 ||
        (action->num_given && !agent->is_read[action->given[action->num_given - 1]])) {
        return ea__misfit(loader);
    }
    op->y = op->x[0];
    agent->answers[op->action] = op->y;
    if (op->code == EA__CATEGORICAL) return 1;
    logs = ea__numbers(loader, "log_std", x->width);
    agent->deviations[op->action] = (float *)ea__take(loader, (size_t)x->width, sizeof(float));
    if (!logs || !agent->deviations[op->action]) return 0;
    for (i = 0; i < x->width; i++) {
        float half = action->high[i] / 2 - action->low[i] / 2;
        agent->deviations[op->action][i] = half * expf(logs[i] > EA__MOST_LOG ? EA__MOST_LOG : logs[i]);
    }
    return 1;
}

/* What the actors of an action have chosen: a one-hot vector, numbers, or the chosen entity. */
static int ea__make_choice(ea__loader *loader, ea__op *op, const ea__node *options) {
    const ea__matrix *x = ea__input(loader, op, 1);
    const ea_action *action;
    int is_select;
    if (!ea__find_action(loader, op, options)) return 0;
    action = &loader->agent->spaces.actions[op->action];
    is_select = action->kind == EA_SELECT_ENTITY;
    if (op->x[0] != loader->agent->answers[op->action] ||
        (!ea__has_choices(loader, x, 1) && (is_select || !ea__has_entities(loader, x)))) {
        return ea__misfit(loader);
    }
    loader->agent->is_read[op->action] = 1;
    op->y = ea__matrix_of(
        loader, EA__ACTORS, op->action, is_select ? x->width : action->num_labels
    );
    return 1;
}

/* A GRU: its gates reset, write and candidate, and the product of the state with `weight`. */
static int ea__make_recur(ea__loader *loader, ea__op *op, const ea__node *options) {
    const ea__matrix *x = ea__input(loader, op, 0);
    int width = x->width / 3;
    if (x->rows != EA__ONE || width < 1 || x->width != 3 * width ||
        !ea__integer(&loader->json, ea__get(&loader->json, options, "start"), 0, 1 << 20, &op->start) ||
        op->start != loader->agent->state_size) {
        return ea__misfit(loader);
    }
    op->weight = ea__panels(loader, width, 3 * width);
    if (!op->weight) return 0;
    loader->agent->state_size += width;
    op->y = ea__matrix_of(loader, EA__ONE, 0, width);
    return 1;
}

static int ea__make_scale(ea__loader *loader, ea__op *op) {
    const ea__matrix *x = ea__input(loader, op, 0);
    if (x->rows != EA__ONE || x->width != 1) return ea__misfit(loader);
    op->weight = ea__numbers(loader, "std", 1);
    op->bias = op->weight ? ea__numbers(loader, "mean", 1) : NULL;
    op->y = ea__matrix_of(loader, EA__ONE, 0, 1);
    return op->bias != NULL;
}

/* The projections of keys or values: a weight and a bias each. */
static int ea__read_projections(
    ea__loader *loader, ea__positions *p, const char *part, int is_used, int *count
) {
    const ea_agent *agent = loader->agent;
    int i, num = !is_used ? 0 : p->is_per_entity ? p->num_types : 1;
    for (i = 0; i < num; i++) {
        const float **to = p->projections + 2 * (p->num_key_projections + p->num_value_projections);
        int index = ea__shown_type(agent, i);
        const char *type = index < agent->spaces.num_entities ? agent->spaces.entities[index].name : "__global__";
        char name[700];
        if (strlen(type) > 600) return ea__damaged(loader, "a name is too long", "");
        snprintf(name, sizeof name, "%s%s%s.weight", part, p->is_per_entity ? "." : "",
                 p->is_per_entity ? type : "");
        to[0] = ea__numbers(loader, name, 3.0 * p->width);
        strcpy(strrchr(name, '.'), ".bias");
        to[1] = to[0] ? ea__numbers(loader, name, p->width) : NULL;
        if (!to[1]) return 0;
        ++*count;
    }
    return 1;
}

static int ea__read_extent(ea__loader *loader, ea__positions *p, const ea__node *list) {
    const ea__node *item = NULL;
    double num_buckets = 1;
    int is_grid = !p->is_radial && !p->is_distance;
    p->num_sizes = ea__length(&loader->json, list);
    if (p->num_sizes != (is_grid ? p->num_axes : p->is_radial + p->is_distance)) return 0;
    for (p->num_sizes = 0; (item = ea__next(&loader->json, list, item)); p->num_sizes++) {
        int *extent = &p->extent[p->num_sizes];
        if (!ea__integer(&loader->json, item, !is_grid, 1000000, extent)) return 0;
        num_buckets *= is_grid ? 2.0 * *extent + 1 : *extent;
    }
    p->num_buckets = num_buckets <= 1e6 ? (int)num_buckets : 0;
    return p->num_buckets > 0;
}

/* The columns of a type. Its names must be those of the options. */
static int ea__read_position_columns(
    ea__loader *loader, ea__positions *p, const ea__node *options, int place
) {
    int type = ea__shown_type(loader->agent, place);
    const ea__json *json = &loader->json;
    const ea__node *vector = ea__get(json, options, "rotation_vec_features");
    const char *angle = ea__text(json, ea__get(json, options, "rotation_angle_feature"));
    int i, *columns = p->columns + place * EA__MAX_AXES, *direction = p->direction + 2 * place;
    if (!ea__columns(loader, ea__get(json, options, "position_features"), type, p->num_axes,
                     p->num_axes, columns)) {
        return 0;
    }
    for (i = 0; i < p->num_axes; i++) {
        if (columns[i] < 0) return 0;
    }
    direction[0] = direction[1] = -1;
    if (vector && !ea__columns(loader, vector, type, 2, 2, direction)) return 0;
    if (direction[0] < 0 || direction[1] < 0) {
        direction[0] = angle ? ea__column(loader->agent, type, angle) : -1;
        direction[1] = -1;
    }
    return 1;
}

/* Options that must have a known value, or none. */
static int ea__read_position_options(ea__loader *loader, ea__positions *p, const ea__node *options) {
    const ea__json *json = &loader->json;
    double scale;
    if (!ea__require_known(
            loader, options, "extent position_features scale radial distance interpolate "
            "rotation_vec_features rotation_angle_feature per_entity_values per_entity_projections "
            "value_relpos_projection key_relpos_projection value_gate "
            "enable_negative_distance_weight_bug exclude_entities", "positions")) {
        return 0;
    }
    p->is_radial = ea__is_true(ea__get(json, options, "radial"));
    p->is_distance = ea__is_true(ea__get(json, options, "distance"));
    p->is_interpolated = ea__is_true(ea__get(json, options, "interpolate")) &&
                         (p->is_radial || p->is_distance);
    p->is_extrapolated = ea__is_true(ea__get(json, options, "enable_negative_distance_weight_bug"));
    p->is_per_type = ea__is_true(ea__get(json, options, "per_entity_values"));
    p->is_per_entity = ea__is_true(ea__get(json, options, "per_entity_projections"));
    p->num_axes = ea__length(json, ea__get(json, options, "position_features"));
    p->num_parts = !p->is_interpolated ? 1 : p->is_radial && p->is_distance ? 4 : 2;
    if (!ea__number(json, ea__get(json, options, "scale"), &scale) || !(scale >= 1e-30) ||
        p->num_axes < 1 || p->num_axes > EA__MAX_AXES || (p->is_radial && p->num_axes < 2) ||
        !ea__read_extent(loader, p, ea__get(json, options, "extent"))) {
        return ea__damaged(loader, "invalid options of", "positions");
    }
    p->per_scale = (float)(1 / scale);
    return 1;
}

static int ea__make_positions(ea__loader *loader, ea__op *op, const ea__node *options) {
    ea_agent *agent = loader->agent;
    const ea__json *json = &loader->json;
    const ea__tensor *keys;
    ea__positions *p = (ea__positions *)ea__take(loader, 1, sizeof *p);
    int type, has_keys, has_values;
    if (!p) return 0;
    op->positions = p;
    p->num_types = op->num_inputs;
    options = ea__get(json, options, "options");
    if (!options || !ea__are_types(loader, op, 1)) return ea__misfit(loader);
    if (!ea__read_position_options(loader, p, options)) return 0;
    p->columns = (int *)ea__take(loader, (size_t)agent->num_types * EA__MAX_AXES, sizeof(int));
    p->direction = (int *)ea__take(loader, (size_t)agent->num_types * 2, sizeof(int));
    p->projections = (const float **)ea__take(loader, (size_t)agent->num_types * 4 + 4, sizeof(float *));
    if (!p->columns || !p->direction || !p->projections) return 0;
    for (type = 0; type < p->num_types; type++) {
        if (!ea__read_position_columns(loader, p, options, type)) {
            return ea__damaged(loader, "invalid features of", "positions");
        }
    }
    keys = ea__find_tensor(loader, "keys.weight", -1);
    if (!keys) return 0;
    p->width = (int)(keys->size / (size_t)p->num_buckets);
    if (!p->width || keys->size % (size_t)p->num_buckets) return ea__misfit(loader);
    p->keys = keys->data;
    p->values = ea__numbers(
        loader, "values.weight", (double)keys->size * (p->is_per_type ? p->num_types : 1)
    );
    if (!p->values) return 0;
    has_keys = ea__is_true(ea__get(json, options, "key_relpos_projection"));
    has_values = ea__is_true(ea__get(json, options, "value_relpos_projection"));
    p->has_projection = has_keys || has_values;
    if (p->has_projection && p->num_axes != 2) return ea__misfit(loader);
    if (p->has_projection && !ea__standard_of(loader, &p->standard, "relpos_norm.", 3)) return 0;
    if (!ea__read_projections(loader, p, "kproj", has_keys, &p->num_key_projections) ||
        !ea__read_projections(loader, p, "vproj", has_values, &p->num_value_projections)) {
        return 0;
    }
    op->y = ea__matrix_of(loader, EA__PAIRS, p->num_types, p->width);
    return 1;
}

/* Name, number of inputs (0 = any) and options, by code. */
static const struct {
    const char *name;
    int num_inputs;
    const char *options;
} ea__kinds[] = {
    {"normalize", 1, "start"}, {"linear", 1, "activation"}, {"layer_norm", 1, ""}, {"add", 2, ""},
    {"repeat", 1, ""}, {"concatenate", 0, "entities"}, {"join", 0, ""},
    {"positions", 0, "options features"}, {"attend", 0, "n_head"}, {"pool", 1, "of"}, {"mean", 1, ""},
    {"spread", 1, ""}, {"convolve", 1, "stride activation"}, {"flatten", 1, ""}, {"actors", 1, "action"},
    {"actees", 1, "action"}, {"compare", 2, "action"}, {"categorical", 1, "action"},
    {"gaussian", 1, "action low high"}, {"scale", 1, ""}, {"recur", 1, "start"},
    {"choice", 2, "action"}, {"pairs", 0, "references"}, {"relate", 6, "n_head"}, {"ends", 2, ""}};
enum { EA__NUM_KINDS = sizeof ea__kinds / sizeof *ea__kinds };

static int ea__make(ea__loader *loader, ea__op *op, const ea__node *options) {
    switch (op->code) {
        case EA__NORMALIZE: return ea__make_normalize(loader, op, options);
        case EA__LINEAR: return ea__make_linear(loader, op, options);
        case EA__LAYER_NORM: return ea__make_layer_norm(loader, op);
        case EA__ADD: return ea__make_add(loader, op);
        case EA__REPEAT: return ea__make_repeat(loader, op);
        case EA__CONCATENATE: return ea__make_concatenate(loader, op, options);
        case EA__JOIN: return ea__make_join(loader, op);
        case EA__POSITIONS: return ea__make_positions(loader, op, options);
        case EA__ATTEND: return ea__make_attend(loader, op, options);
        case EA__POOL: return ea__make_pool(loader, op, options);
        case EA__MEAN: return ea__make_simple(loader, op, EA__ALL, EA__ONE);
        case EA__SPREAD: return ea__make_simple(loader, op, EA__ONE, EA__ALL);
        case EA__CONVOLVE: return ea__make_convolve(loader, op, options);
        case EA__FLATTEN: return ea__make_flatten(loader, op);
        case EA__TAKE_ACTORS: return ea__make_take(loader, op, options, EA__ACTORS);
        case EA__TAKE_ACTEES: return ea__make_take(loader, op, options, EA__ACTEES);
        case EA__COMPARE: return ea__make_compare(loader, op, options);
        case EA__CATEGORICAL:
        case EA__GAUSSIAN: return ea__make_answer(loader, op, options);
        case EA__SCALE: return ea__make_scale(loader, op);
        case EA__RECUR: return ea__make_recur(loader, op, options);
        case EA__CHOICE: return ea__make_choice(loader, op, options);
        case EA__FIND_LINKS: return ea__make_links(loader, op, options);
        case EA__RELATE: return ea__make_relate(loader, op, options);
        case EA__ENDS: return ea__make_ends(loader, op);
    }
    return 0;
}

/* Sets the matrix that a name stands for, from now on. */
static int ea__bind(ea__loader *loader, const char *name, int matrix) {
    int at = ea__index_of(loader->buffers, loader->num_buffers, name);
    if (at >= 0) loader->matrix_of[at] = matrix;
    return matrix;
}

/* The matrix that a name stands for, or -1 with an error. */
static int ea__bound(ea__loader *loader, const char *name) {
    int at = name ? ea__index_of(loader->buffers, loader->num_buffers, name) : -1;
    if (at < 0 || loader->matrix_of[at] < 0) {
        ea__damaged(loader, "nothing computes", name ? name : "a buffer");
        return -1;
    }
    return loader->matrix_of[at];
}

/* Makes `[kind, inputs, output, layer, options]`. */
static int ea__make_operation(ea__loader *loader, ea__op *op, const ea__node *list) {
    const ea__json *json = &loader->json;
    const ea__node *kind = ea__next(json, list, NULL), *inputs = ea__next(json, list, kind);
    const ea__node *output = ea__next(json, list, inputs), *layer = ea__next(json, list, output);
    const ea__node *options = ea__next(json, list, layer), *item = NULL;
    const char *name = ea__text(json, kind);
    int i, code = 0;
    loader->layer = ea__text(json, layer);
    while (name && code < EA__NUM_KINDS && strcmp(name, ea__kinds[code].name)) code++;
    if (!name || !loader->layer) return ea__damaged(loader, "an operation has another form", "");
    if (code == EA__NUM_KINDS) return ea__unknown(loader, "operation", name);
    op->code = (ea__code)code;
    op->num_inputs = ea__length(json, inputs);
    if (!ea__require_known(loader, options, ea__kinds[code].options, name)) return 0;
    if (op->num_inputs < 1 || (ea__kinds[code].num_inputs && op->num_inputs != ea__kinds[code].num_inputs)) {
        return ea__misfit(loader);
    }
    op->x = (int *)ea__take(loader, (size_t)op->num_inputs, sizeof(int));
    if (!op->x) return 0;
    for (i = 0; (item = ea__next(json, inputs, item)); i++) {
        op->x[i] = ea__bound(loader, ea__text(json, item));
        if (op->x[i] < 0) return 0;
        loader->agent->matrices[op->x[i]].used = loader->op;
        loader->work += (uint64_t)loader->agent->matrices[op->x[i]].stride;
    }
    if (!ea__make(loader, op, options)) return 0;
    loader->agent->matrices[op->y].used = loader->op;
    loader->work += (uint64_t)loader->agent->matrices[op->y].stride;
    ea__bind(loader, ea__text(json, output), op->y);
    return loader->work <= 8 * loader->allowed + (1 << 20) ||
           ea__damaged(loader, "operations share tensors", "");
}

/* The names of all buffers. */
static int ea__collect_buffers(ea__loader *loader, const ea__node *list) {
    const ea__json *json = &loader->json;
    const ea__node *item = NULL;
    int i, count = 0, num_ops = ea__length(json, list);
    ea__sorted *names = (ea__sorted *)ea__take(
        loader, (size_t)num_ops + (size_t)loader->agent->num_types + 2, sizeof *names
    );
    loader->buffers = names;
    if (!names) return 0;
    while ((item = ea__next(json, list, item))) {
        const ea__node *node = NULL;
        if (ea__length(json, item) != 5) return ea__damaged(loader, "an operation has another form", "");
        for (i = 0; i < 3; i++) node = ea__next(json, item, node);
        names[count].name = ea__text(json, node);
        if (!names[count++].name) return ea__damaged(loader, "an operation has another form", "");
    }
    for (i = 0; i < loader->agent->num_types; i++) {
        size_t size = strlen(loader->types[i].name) + 10;
        char *name = (char *)ea__take(loader, size, 1);
        if (!name) return 0;
        snprintf(name, size, "features/%s", loader->types[i].name);
        names[count++].name = name;
    }
    names[count++].name = "features";
    names[count++].name = "picture";
    ea__sort(names, count);
    for (i = 0; i < count; i++) { /* equal names are one buffer */
        if (!i || strcmp(names[i].name, names[loader->num_buffers - 1].name)) {
            names[loader->num_buffers] = names[i];
            names[loader->num_buffers].index = loader->num_buffers;
            loader->num_buffers++;
        }
    }
    loader->matrix_of = (int *)ea__take(loader, (size_t)loader->num_buffers, sizeof(int));
    for (i = 0; loader->matrix_of && i < loader->num_buffers; i++) loader->matrix_of[i] = -1;
    return loader->matrix_of != NULL;
}

/* The first matrices of a RogueNet: a row per entity of each type. */
static int ea__make_inputs(ea__loader *loader) {
    ea_agent *agent = loader->agent;
    int i;
    for (i = 0; i < agent->num_types; i++) {
        const char *type = loader->types[i].name;
        int index = loader->types[i].index, width = agent->widths[index] + agent->num_shared;
        size_t size = strlen(type) + 10;
        char *name = (char *)ea__take(loader, size, 1);
        if (!name) return 0;
        snprintf(name, size, "features/%s", type);
        if (agent->translation.is_used && agent->translation.has_distance) {
            width += agent->translation.moved[index];
        }
        agent->inputs[index] = ea__bind(loader, name, ea__matrix_of(loader, EA__OF_TYPE, index, width));
    }
    return 1;
}

/* The first matrices of an MLP or CNN: a vector, and a picture. */
static int ea__make_vector(ea__loader *loader, const ea__node *entities, int is_cnn) {
    ea_agent *agent = loader->agent;
    const ea__json *json = &loader->json;
    const ea__node *item = NULL;
    int i, width = agent->spaces.num_globals;
    for (i = 0; (item = ea__next(json, entities, item)); i++) {
        const ea__node *shape = ea__get(json, item, "shape"), *length = NULL;
        int k, sizes[3];
        if (!is_cnn || !shape) {
            width += agent->widths[i];
            continue;
        }
        if (ea__length(json, shape) != 3 || agent->picture >= 0) {
            return ea__damaged(loader, "not one picture", "");
        }
        for (k = 0; (length = ea__next(json, shape, length)); k++) {
            if (!ea__integer(json, length, 1, EA__MAX_COLUMNS, &sizes[k])) {
                return ea__damaged(loader, "no shape of", "a picture");
            }
        }
        if ((double)sizes[0] * sizes[1] * sizes[2] != agent->widths[i]) {
            return ea__damaged(loader, "another shape of", "a picture");
        }
        agent->picture = ea__matrix_of(loader, EA__PIXELS, i, sizes[2]);
        memcpy(agent->matrices[agent->picture].sides, sizes, 2 * sizeof(int));
        ea__bind(loader, "picture", agent->picture);
    }
    agent->vector = ea__bind(loader, "features", ea__matrix_of(loader, EA__ONE, 0, width));
    return 1;
}

/* Marks the operations that decisions without a value need, which include the whole state and all choices; finds the
   last one in which entities read others. After it, only the rows of actors and actees are computed. */
static int ea__plan_policy(ea__loader *loader) {
    ea_agent *agent = loader->agent;
    char *is_live = (char *)ea__take(loader, (size_t)agent->num_matrices, 1);
    int i, k;
    if (!is_live) return 0;
    for (i = 0; i < agent->spaces.num_actions; i++) is_live[agent->answers[i]] = 1;
    agent->last_mix = -1;
    for (i = agent->num_ops - 1; i >= 0; i--) {
        ea__op *op = &agent->ops[i];
        op->is_policy = is_live[op->y] || op->code == EA__RECUR || op->code == EA__CHOICE;
        for (k = 0; op->is_policy && k < op->num_inputs; k++) is_live[op->x[k]] = 1;
        if (op->is_policy && agent->last_mix < 0 && (op->code == EA__ATTEND || op->code == EA__SPREAD)) {
            agent->last_mix = i;
        }
    }
    for (i = agent->last_mix + 1; agent->last_mix >= 0 && i < agent->num_ops; i++) {
        ea__code code = agent->ops[i].code;
        if (agent->ops[i].is_policy && (code == EA__POOL || code == EA__MEAN || code == EA__CONCATENATE ||
                                        code == EA__POSITIONS || code == EA__RELATE || code == EA__ENDS)) {
            agent->last_mix = -1;
        }
    }
    if (agent->last_mix >= 0 &&
        agent->matrices[agent->ops[agent->last_mix].y].index != ea__num_shown(agent)) {
        agent->last_mix = -1;
    }
    if (agent->last_mix < 0) return 1;
    agent->kept = (int *)ea__take(loader, (size_t)agent->num_matrices, sizeof(int));
    if (!agent->kept) return 0;
    memset(is_live, 0, (size_t)agent->num_matrices);
    for (i = agent->last_mix + 1; i < agent->num_ops; i++) {
        const ea__op *op = &agent->ops[i];
        for (k = 0; op->is_policy && k < op->num_inputs; k++) {
            const ea__matrix *x = &agent->matrices[op->x[k]];
            if (x->rows != EA__ALL || x->made >= agent->last_mix || is_live[op->x[k]]) continue;
            is_live[op->x[k]] = 1;
            agent->kept[agent->num_kept++] = op->x[k];
        }
    }
    if (agent->ops[agent->last_mix].code != EA__ATTEND) return 1;
    k = agent->ops[agent->last_mix].x[0];
    i = agent->matrices[k].made;
    if (i >= 0 && agent->ops[i].code == EA__LINEAR) {
        int readers = 0, at, j;
        for (at = 0; at < agent->num_ops; at++) {
            for (j = 0; agent->ops[at].is_policy && j < agent->ops[at].num_inputs; j++) {
                readers += agent->ops[at].x[j] == k;
            }
        }
        agent->ops[i].only_wanted = readers == 1;
    }
    return 1;
}

static void ea__grow_slot(ea__slot *slot, size_t base, size_t per_row, size_t per_pair) {
    if (slot->base < base) slot->base = base;
    if (slot->per_row < per_row) slot->per_row = per_row;
    if (slot->per_pair < per_pair) slot->per_pair = per_pair;
}

/* Gives a matrix the memory of one that is not needed any longer. */
static void ea__place(ea_agent *agent, ea__matrix *matrix, int *unused, int *num_unused) {
    size_t stride = (size_t)matrix->stride;
    ea__slot *slot;
    matrix->slot = *num_unused ? unused[--*num_unused] : agent->num_slots++;
    slot = &agent->slots[matrix->slot];
    switch (matrix->rows) {
        case EA__ONE: ea__grow_slot(slot, stride, 0, 0); break;
        case EA__PIXELS:
            ea__grow_slot(slot, stride * (size_t)matrix->sides[0] * (size_t)matrix->sides[1], 0, 0);
            break;
        case EA__LINKS: break;
        case EA__PAIRS: {
            const ea__positions *p = agent->ops[matrix->made].positions;
            size_t per_pair = (size_t)p->num_parts * (p->num_parts > 1 ? 2 : 1);
            ea__grow_slot(
                slot, 0, (size_t)p->num_axes + 1, per_pair + (p->has_projection ? 3 : 0)
            );
            break;
        }
        default: ea__grow_slot(slot, 0, stride, matrix->width < 0);
    }
}

/* Memory of an operation while it runs. */
static void ea__grow_scratch(ea_agent *agent, const ea__op *op) {
    const ea__matrix *x = &agent->matrices[op->x[0]];
    size_t size, padded;
    switch (op->code) {
        case EA__ATTEND:
            size = (size_t)(x->width / op->heads);
            padded = EA__PADDED(size);
            ea__grow_slot(
                &agent->scratch, EA__BLOCK * padded,
                (size_t)x->width + (size_t)op->heads * padded + EA__BLOCK + size + padded, 0
            );
            break;
        case EA__COMPARE: ea__grow_slot(&agent->scratch, 0, (size_t)x->width, 0); break;
        case EA__RELATE: ea__grow_slot(&agent->scratch, 0, 4 * (size_t)op->heads, 0); break;
        case EA__RECUR: ea__grow_slot(&agent->scratch, 2 * EA__PADDED((size_t)x->width) + EA__W, 0, 0); break;
        case EA__CONVOLVE:
            ea__grow_slot(
                &agent->scratch, EA__BLOCK * (size_t)x->width * (size_t)op->kernel * (size_t)op->kernel, 0, 0
            );
            break;
        default: break;
    }
}

/* Plans the memory of a workspace. */
static int ea__plan_memory(ea__loader *loader) {
    ea_agent *agent = loader->agent;
    int *unused = (int *)ea__take(loader, (size_t)agent->num_matrices, sizeof(int));
    int *first = (int *)ea__take(loader, (size_t)agent->num_ops + 1, sizeof(int));
    int *next = (int *)ea__take(loader, (size_t)agent->num_matrices, sizeof(int));
    int i, num_unused = 0, num_made = 0;
    agent->slots = (ea__slot *)ea__take(loader, (size_t)agent->num_matrices, sizeof(ea__slot));
    if (!unused || !first || !next || !agent->slots) return 0;
    for (i = 0; i < agent->spaces.num_actions; i++) {
        agent->matrices[agent->answers[i]].used = agent->num_ops;
    }
    agent->matrices[agent->value].used = agent->num_ops;
    /* Lists of the matrices that are last used in an operation. */
    for (i = 0; i <= agent->num_ops; i++) first[i] = -1;
    for (i = 0; i < agent->num_matrices; i++) {
        int used = agent->matrices[i].used < 0 ? 0 : agent->matrices[i].used;
        next[i] = first[used];
        first[used] = i;
    }
    for (i = -1; i < agent->num_ops; i++) {
        int at;
        while (num_made < agent->num_matrices && agent->matrices[num_made].made <= i) {
            ea__place(agent, &agent->matrices[num_made++], unused, &num_unused);
        }
        if (i < 0) continue;
        for (at = first[i]; at >= 0; at = next[at]) unused[num_unused++] = agent->matrices[at].slot;
        ea__grow_scratch(agent, &agent->ops[i]);
    }
    return 1;
}

static int ea__make_operations(ea__loader *loader, const ea__node *list, int is_cnn) {
    ea_agent *agent = loader->agent;
    const ea__node *item = NULL;
    int i, num_ops = ea__length(&loader->json, list), num_actions = agent->spaces.num_actions;
    size_t num_matrices = (size_t)(num_ops > 0 ? num_ops : 0) + (size_t)agent->num_types + 2;
    if (num_ops < 0) {
        return ea__fail(
            loader, "the agent file lists no operations: export it again with \"entity-env export\""
        );
    }
    agent->ops = (ea__op *)ea__take(loader, (size_t)num_ops, sizeof(ea__op));
    agent->matrices = (ea__matrix *)ea__take(loader, num_matrices, sizeof(ea__matrix));
    agent->inputs = (int *)ea__take(loader, (size_t)agent->num_types, sizeof(int));
    agent->answers = (int *)ea__take(loader, (size_t)num_actions, sizeof(int));
    agent->deviations = (float **)ea__take(loader, (size_t)num_actions, sizeof(float *));
    agent->is_read = (unsigned char *)ea__take(loader, (size_t)num_actions, 1);
    if (!agent->ops || !agent->matrices || !agent->inputs || !agent->answers || !agent->deviations ||
        !agent->is_read ||
        !ea__collect_buffers(loader, list)) {
        return 0;
    }
    for (i = 0; i < num_actions; i++) agent->answers[i] = -1;
    agent->vector = agent->picture = loader->op = -1;
    if (agent->is_vector) {
        const ea__node *spaces = ea__get(&loader->json, loader->json.nodes, "spaces");
        if (!ea__make_vector(loader, ea__get(&loader->json, spaces, "entities"), is_cnn)) return 0;
    } else if (!ea__make_inputs(loader)) {
        return 0;
    }
    agent->spaces.has_value = 1;
    for (i = 0; (item = ea__next(&loader->json, list, item)); i++) {
        loader->op = i;
        if (!ea__make_operation(loader, &agent->ops[i], item)) return 0;
        agent->num_ops++;
    }
    agent->value = ea__bound(loader, "value");
    if (agent->value < 0) return 0;
    if (agent->matrices[agent->value].rows != EA__ONE || agent->matrices[agent->value].width != 1) {
        return ea__damaged(loader, "another form of", "value");
    }
    for (i = 0; i < num_actions; i++) {
        if (agent->answers[i] < 0) {
            return ea__damaged(loader, "nothing computes the action", agent->spaces.actions[i].name);
        }
    }
    return ea__plan_policy(loader) && ea__plan_memory(loader);
}

/* ------------------------------------------------------------------ loading */

static int ea__read(ea__loader *loader, const unsigned char *bytes, size_t size) {
    ea_agent *agent = loader->agent;
    const ea__json *json = &loader->json;
    const ea__node *root, *net, *translation;
    if (!bytes || size < 16 || memcmp(bytes, "entity_env agent", 16)) {
        return ea__fail(loader, "expected an agent file: create one with \"entity-env export\"");
    }
    if (size < 60) return ea__damaged(loader, "it ends early", "");
    if (ea__little(bytes + 16, 4) != 1) {
        return ea__fail(
            loader, "expected version 1 of the agent file, got %u: use the entity_agent.h of the "
            "release that exported it", (unsigned)ea__little(bytes + 16, 4)
        );
    }
    if (!ea__has_checksum(bytes + 52, size - 52, bytes + 20)) {
        return ea__damaged(loader, "its checksum does not match", "");
    }
    bytes += 52;
    size -= 52;
    if (!ea__read_json(loader, &loader->json, &bytes, &size) || !ea__read_tensors(loader, bytes, size)) {
        return 0;
    }
    root = json->nodes;
    agent->is_greedy = ea__is_true(ea__get(json, root, "greedy"));
    net = ea__get(json, root, "net");
    if (!net || net->type != '{') return ea__damaged(loader, "no sizes of the network", "");
    for (agent->is_vector = 0, translation = NULL; (translation = ea__next(json, net, translation));) {
        if (!strcmp(json->text + translation->start, "hidden")) agent->is_vector = 1;
        if (!strcmp(json->text + translation->start, "layers")) agent->picture = 1;
        translation = &json->nodes[translation->next];
    }
    if (!ea__read_spaces(loader, ea__get(json, root, "spaces"))) return 0;
    translation = ea__get(json, net, "translation");
    if (translation && !agent->is_vector && !ea__read_translation(loader, translation)) return 0;
    return ea__make_operations(loader, ea__get(json, root, "operations"), agent->picture);
}

ea_agent *ea_load(const void *data, size_t size, char *error, size_t error_size) {
    ea__loader loader;
    int is_ok;
    memset(&loader, 0, sizeof loader);
    if (error && error_size) *error = 0;
    loader.error = error;
    loader.error_size = error_size;
    loader.op = -1;
    loader.agent = (ea_agent *)calloc(1, sizeof(ea_agent));
    if (!loader.agent) {
        ea__fail(&loader, "out of memory");
        return NULL;
    }
    loader.agent->kernels = ea__best_kernels();
    is_ok = ea__read(&loader, (const unsigned char *)data, size);
    free(loader.json.nodes);
    if (is_ok) return loader.agent;
    if (error && error_size && !*error) ea__fail(&loader, "out of memory");
    ea_free(loader.agent);
    return NULL;
}

ea_agent *ea_load_file(const char *path, char *error, size_t error_size) {
    ea__loader loader;
    ea_agent *agent = NULL;
    unsigned char *bytes = NULL;
    size_t size = 0, capacity = 0, count = 1;
    FILE *file = fopen(path, "rb");
    memset(&loader, 0, sizeof loader);
    loader.error = error;
    loader.error_size = error_size;
    if (!file) {
        ea__fail(&loader, "cannot open %.200s", path);
        return NULL;
    }
    while (count) {
        if (size == capacity) {
            void *grown = realloc(bytes, capacity = capacity ? 2 * capacity : 1 << 16);
            if (!grown) break;
            bytes = (unsigned char *)grown;
        }
        count = fread(bytes + size, 1, capacity - size, file);
        size += count;
    }
    if (count) {
        ea__fail(&loader, "out of memory");
    } else if (ferror(file)) {
        ea__fail(&loader, "cannot read %.200s", path);
    } else {
        agent = ea_load(bytes, size, error, error_size);
    }
    fclose(file);
    free(bytes);
    return agent;
}

void ea_free(ea_agent *agent) {
    while (agent && agent->blocks) {
        ea__block *block = agent->blocks;
        agent->blocks = block->next;
        free(block);
    }
    free(agent);
}

const ea_spaces *ea_spaces_of(const ea_agent *agent) { return &agent->spaces; }

/* ------------------------------------------------------------------ workspaces */

typedef struct ea__answer {
    int num_actors, num_choices, stride;
    const float *numbers; /* probabilities or means, a row per actor */
    int is_chosen;        /* `ea_think` has chosen, since others depend on it */
    int *choices;         /* then, one per actor */
    float *values;        /* or of a continuous action, a row of labels per actor */
} ea__answer;

struct ea_workspace {
    const ea_agent *agent;
    const ea_obs *obs;
    int max_rows;                  /* entities, with the one of global actions */
    int num_rows, num_all;         /* rows of this observation, and those still computed */
    int num_wanted, is_restricted; /* restricted: to rows of actors and actees after the last mix */
    int has_hidden, has_value;
    float temperature, value;
    float **slots;
    float *scratch;
    int *counts, *starts;  /* by type; relations count on their own */
    int num_relations, *links; /* rows of both entities of each relation */
    int *wanted, *place;   /* rows of actors and actees in order, and the place of a row among them */
    unsigned char *visible; /* by row, then by relation */
    float *state;           /* after the last decision */
    ea__answer *answers;
    const char *problem; /* with the running decision, or NULL */
    char error[200];
};

/* Numbers in a slot, for up to `rows` rows. */
static uint64_t ea__slot_size(const ea__slot *slot, uint64_t rows) {
    uint64_t padded = rows + EA__W;
    return slot->base + slot->per_row * padded + slot->per_pair * padded * padded + EA__W;
}

/* Assigns parts of the memory at `memory`, unless it is NULL; returns the bytes needed, or 0. */
static uint64_t ea__divide(
    const ea_agent *agent, int max_entities, unsigned char *memory, ea_workspace *w
) {
    uint64_t rows = (uint64_t)max_entities + 1, at = sizeof(ea_workspace);
    uint64_t types = (uint64_t)agent->num_types + 1, actions = (uint64_t)agent->spaces.num_actions;
    int i;
#define EA__PART(type, count, to)                              \
    do {                                                       \
        at = (at + 31) / 32 * 32;                              \
        if (memory) to = (type *)(void *)(memory + at);        \
        at += (uint64_t)(count) * sizeof(type);                \
        if (at > EA__MAX_WORKSPACE || at > SIZE_MAX) return 0; \
    } while (0)
    if (max_entities < 0 || max_entities > EA__MAX_ENTITIES) return 0;
    EA__PART(float *, agent->num_slots + 1, w->slots);
    EA__PART(int, types, w->counts);
    EA__PART(int, types, w->starts);
    EA__PART(int, agent->num_relations ? 2 * rows : 0, w->links);
    EA__PART(int, rows, w->wanted);
    EA__PART(int, rows, w->place);
    EA__PART(unsigned char, rows, w->visible);
    EA__PART(float, agent->state_size + 1, w->state);
    EA__PART(ea__answer, actions + 1, w->answers);
    for (i = 0; i < agent->spaces.num_actions; i++) {
        const ea_action *action = &agent->spaces.actions[i];
        uint64_t count = agent->is_read[i] ? rows : 0;
        EA__PART(int, count, w->answers[i].choices);
        if (action->kind != EA_CONTINUOUS) continue;
        EA__PART(float, count * (uint64_t)action->num_labels, w->answers[i].values);
    }
    for (i = 0; i < agent->num_slots; i++) {
        EA__PART(float, ea__slot_size(&agent->slots[i], rows), w->slots[i]);
    }
    EA__PART(float, ea__slot_size(&agent->scratch, rows), w->scratch);
#undef EA__PART
    return at;
}

size_t ea_workspace_size(const ea_agent *agent, int max_entities) {
    uint64_t size = ea__divide(agent, max_entities, NULL, NULL);
    return size ? (size_t)size + 32 : 0; /* to begin at a multiple of 32 */
}

ea_workspace *ea_workspace_in(const ea_agent *agent, int max_entities, void *memory) {
    unsigned char *begin = (unsigned char *)memory;
    ea_workspace *w;
    if (!memory || !ea_workspace_size(agent, max_entities)) return NULL;
    begin += (32 - (uintptr_t)begin % 32) % 32;
    w = (ea_workspace *)(void *)begin;
    memset(w, 0, sizeof *w);
    ea__divide(agent, max_entities, begin, w);
    w->agent = agent;
    w->max_rows = max_entities + 1;
    return w;
}

/* Writes a number with "." in every locale. */
static const char *ea__shown(char *text, size_t size, double value) {
    char point[24];
    size_t length;
    char *found;
    snprintf(point, sizeof point, "%.1f", 0.5); /* LOCALE: the point is what lies between 0 and 5 */
    snprintf(text, size, "%g", value);          /* LOCALE: replaced below */
    length = strlen(point) - 2;
    point[length + 1] = 0;
    found = strstr(text, point + 1);
    if (!found) return text;
    memmove(found + 1, found + length, strlen(found + length) + 1);
    *found = '.';
    return text;
}

static const char *ea__refuse(ea_workspace *w, const char *format, ...) EA__FORMAT(2, 3);
static const char *ea__refuse(ea_workspace *w, const char *format, ...) {
    va_list values;
    size_t i;
    va_start(values, format);
    vsnprintf(w->error, sizeof w->error, format, values);
    va_end(values);
    for (i = 0; w->error[i]; i++) {
        if ((unsigned char)w->error[i] < 32 || w->error[i] == 127) w->error[i] = '?';
    }
    return w->error;
}

static float *ea__data(const ea_workspace *w, int matrix) {
    return w->slots[w->agent->matrices[matrix].slot];
}

static int ea__num_rows(const ea_workspace *w, const ea__matrix *matrix) {
    switch (matrix->rows) {
        case EA__ONE: return 1;
        case EA__OF_TYPE: return w->counts[matrix->index];
        case EA__ALL: /* the entity of global actions is last */
            return matrix->index == ea__num_shown(w->agent) ? w->num_all : w->num_rows - 1;
        case EA__RELATIONS: return w->num_relations;
        case EA__EVERYTHING: return w->num_rows + w->num_relations;
        case EA__LINKS: break;
        case EA__PIXELS: return matrix->sides[0] * matrix->sides[1];
        case EA__ACTORS: return w->answers[matrix->index].num_actors;
        case EA__ACTEES:
            return w->answers[matrix->index].num_actors ? w->obs->requests[matrix->index].num_actees : 0;
        case EA__PAIRS: break;
    }
    return 0;
}

/* Whether a number is finite, also with -ffast-math. */
static int ea__is_finite(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return (bits & 0x7f800000) != 0x7f800000;
}

static float ea__limited(float x, float most) { return x > most ? most : x < -most ? -most : x; }

/* Whether a result can be used: it is not NaN, and its magnitude is below EA__LARGEST_OUTPUT. */
static int ea__is_usable(float x) {
    return ea__is_finite(x) && x < EA__LARGEST_OUTPUT && x > -EA__LARGEST_OUTPUT;
}

/* ------------------------------------------------------------------ reading observations */

/* Copies numbers, limited to EA__LARGEST_INPUT; returns 0 if one is not finite. */
static int ea__copy(float *to, const float *from, int count) {
    int i, is_ok = 1;
    for (i = 0; i < count; i++) {
        to[i] = ea__limited(from[i], EA__LARGEST_INPUT);
        is_ok &= ea__is_finite(from[i]);
    }
    return is_ok;
}

/* Copies the features of a type to rows of `width` numbers. */
static const char *ea__copy_type(ea_workspace *w, const ea_obs *obs, int type, float *to, int stride) {
    const ea_agent *agent = w->agent;
    int row, width = agent->widths[type], num_shared = agent->num_shared;
    const float *from = width && w->counts[type] ? obs->features[type] : NULL;
    for (row = 0; row < w->counts[type]; row++, to += stride) {
        if (from && !ea__copy(to, from + (size_t)row * (size_t)width, width)) {
            return ea__refuse(
                w, "expected finite features, got others of %.60s %d",
                agent->spaces.entities[type].name, row
            );
        }
        if (num_shared) ea__copy(to + width, obs->globals, num_shared);
    }
    return NULL;
}

/* The product or sum in double precision is exact enough to be rounded once, to float. */
#define EA__TIMES(x, y) ((float)((double)(x) * (double)(y)))
#define EA__PLUS(x, y) ((float)((double)(x) + (double)(y)))
#define EA__MINUS(x, y) ((float)((double)(x) - (double)(y)))

static float ea__norm(const float *x, int count) {
    float sum = 0;
    int i;
    for (i = 0; i < count; i++) sum = EA__PLUS(sum, EA__TIMES(x[i], x[i]));
    return sqrtf(sum);
}

/* Moves positions so that the reference entity is at the origin. */
static const char *ea__translate(ea_workspace *w) {
    const ea_agent *agent = w->agent;
    const ea__translation *t = &agent->translation;
    const float *reference = ea__data(w, agent->inputs[t->reference]);
    const int *origin = t->columns + t->reference * EA__MAX_AXES;
    int type, row, axis, is_turned = t->angle >= 0 || t->vector[0] >= 0;
    for (type = 0; type < agent->num_types; type++) {
        const ea__matrix *matrix = &agent->matrices[agent->inputs[type]];
        const int *columns = t->columns + type * EA__MAX_AXES;
        float *x = ea__data(w, agent->inputs[type]);
        if (!t->moved[type] || !w->counts[type]) continue;
        if (w->counts[t->reference] != 1) {
            const char *name = t->reference < agent->spaces.num_entities
                                   ? agent->spaces.entities[t->reference].name : "__global__";
            return ea__refuse(
                w, "expected exactly one %.60s, got %d", name, w->counts[t->reference]
            );
        }
        for (row = 0; row < w->counts[type]; row++, x += matrix->stride) {
            float place[EA__MAX_AXES];
            for (axis = 0; axis < t->num_axes; axis++) {
                place[axis] = EA__MINUS(x[columns[axis]], reference[origin[axis]]);
            }
            if (is_turned && t->num_axes == 2) {
                float a = place[0], b = place[1];
                float cosine = t->angle >= 0 ? (float)cos((double)reference[t->angle]) : reference[t->vector[0]];
                float sine = t->angle >= 0 ? (float)sin((double)reference[t->angle]) : reference[t->vector[1]];
                place[0] = EA__PLUS(EA__TIMES(a, cosine), EA__TIMES(b, sine));
                place[1] = EA__MINUS(EA__TIMES(b, cosine), EA__TIMES(a, sine));
            }
            for (axis = 0; axis < t->num_axes; axis++) {
                x[columns[axis]] = place[axis] = ea__limited(place[axis], EA__LARGEST_INPUT);
            }
            if (t->has_distance) x[matrix->width - 1] = ea__norm(place, t->num_axes);
        }
    }
    return NULL;
}

/* Copies the features of all types into one vector, and a picture. */
static const char *ea__read_vector(ea_workspace *w, const ea_obs *obs) {
    const ea_agent *agent = w->agent;
    float *to = ea__data(w, agent->vector), *picture;
    const char *problem;
    int type;
    size_t size;
    for (type = 0; type < agent->num_types; type++) {
        int is_picture = agent->picture >= 0 && agent->matrices[agent->picture].index == type;
        size = (size_t)agent->widths[type];
        if (w->counts[type] > 1) {
            return ea__refuse(
                w, "expected at most one %.60s, got %d", agent->spaces.entities[type].name, w->counts[type]
            );
        }
        picture = is_picture ? ea__data(w, agent->picture) : to;
        memset(picture, 0, size * sizeof(float));
        if (is_picture) { /* rows of a matrix are padded */
            const ea__matrix *m = &agent->matrices[agent->picture];
            int row;
            for (row = 0; w->counts[type] && row < m->sides[0] * m->sides[1]; row++) {
                if (!ea__copy(picture + (size_t)row * (size_t)m->stride,
                              obs->features[type] + (size_t)row * (size_t)m->width, m->width)) {
                    return ea__refuse(
                        w, "expected finite features, got others of %.60s", agent->spaces.entities[type].name
                    );
                }
            }
            if (!w->counts[type]) {
                memset(picture, 0, (size_t)m->sides[0] * (size_t)m->sides[1] * (size_t)m->stride * 4);
            }
            continue;
        }
        problem = ea__copy_type(w, obs, type, to, 0);
        if (problem) return problem;
        to += size;
    }
    if (agent->spaces.num_globals) ea__copy(to, obs->globals, agent->spaces.num_globals);
    return NULL;
}

/* Reads which entities are hidden. */
static void ea__read_visible(ea_workspace *w, const ea_obs *obs) {
    int type, row;
    w->has_hidden = 0;
    for (type = 0; obs->visible && type < w->agent->spaces.num_entities; type++) {
        for (row = 0; obs->visible[type] && row < w->counts[type]; row++) {
            w->has_hidden |= !obs->visible[type][row];
        }
    }
    if (!w->has_hidden) return;
    memset(w->visible, 1, (size_t)w->num_rows + (size_t)w->num_relations);
    for (type = 0; type < w->agent->spaces.num_entities; type++) {
        if (obs->visible[type] && w->counts[type]) {
            unsigned char *to = w->visible + (ea__is_relation(w->agent, type) ? w->num_rows : 0);
            memcpy(to + w->starts[type], obs->visible[type], (size_t)w->counts[type]);
        }
    }
}

/* Reads the references of a type of relations. */
static const char *ea__read_links(ea_workspace *w, const ea_obs *obs, int type) {
    const ea_entity *entity = &w->agent->spaces.entities[type];
    int row, k, *to = w->links + 2 * w->starts[type];
    for (row = 0; row < w->counts[type]; row++) {
        const float *from = obs->features[type] + (size_t)row * (size_t)entity->num_features;
        for (k = 0; k < 2; k++) {
            int other = entity->references[k], count = w->counts[other];
            int index = from[k] >= 0 && from[k] < (float)count ? (int)from[k] : -1;
            if (index < 0 || index >= count || (float)index != from[k]) {
                char text[32];
                return ea__refuse(
                    w, "expected %.60s %d of one of %d %.60s, got %s", entity->name, row, count,
                    w->agent->spaces.entities[other].name, ea__shown(text, sizeof text, (double)from[k])
                );
            }
            *to++ = w->starts[other] + index;
        }
    }
    return NULL;
}

static const char *ea__read_features(ea_workspace *w, const ea_obs *obs) {
    const ea_agent *agent = w->agent;
    const char *problem = NULL;
    int type, i, max_entities = w->max_rows - 1;
    w->num_rows = w->num_relations = 0;
    for (type = 0; type < agent->num_types; type++) {
        int is_global = type == agent->spaces.num_entities, count = is_global ? 1 : obs->counts[type];
        int *total = ea__is_relation(agent, type) ? &w->num_relations : &w->num_rows;
        if (count < 0 || count > max_entities - w->num_rows - w->num_relations + is_global) {
            return ea__refuse(
                w, "expected at most %d entities, got more: %d of %.60s", max_entities, count,
                agent->spaces.entities[type].name
            );
        }
        w->counts[type] = count;
        w->starts[type] = *total;
        *total += count;
    }
    w->num_all = w->num_rows;
    for (i = 0; i < agent->spaces.num_globals; i++) {
        if (!obs->globals || !ea__is_finite(obs->globals[i])) {
            return ea__refuse(
                w, "expected finite global features, got another %.60s",
                agent->spaces.global_features[i]
            );
        }
    }
    if (agent->is_vector) return ea__read_vector(w, obs);
    for (type = 0; type < agent->num_types && !problem; type++) {
        float *to = ea__data(w, agent->inputs[type]);
        int stride = agent->matrices[agent->inputs[type]].stride;
        if (type < agent->spaces.num_entities) {
            problem = ea__copy_type(w, obs, type, to, stride);
            if (!problem && ea__is_relation(agent, type)) problem = ea__read_links(w, obs, type);
        } else if (agent->num_shared) {
            ea__copy(to, obs->globals, agent->num_shared);
        }
    }
    if (!problem && agent->translation.is_used) problem = ea__translate(w);
    ea__read_visible(w, obs);
    return problem;
}

/* Row of an entity or relation, given its index in the observation. */
static int ea__row_of(const ea_workspace *w, int index) {
    int num_entities = w->num_rows - (w->agent->num_types - w->agent->spaces.num_entities);
    if (!w->num_relations || index < num_entities) return index;
    index -= num_entities; /* the entity of global actions, which is the last row of entities, follows the relations */
    return index < w->num_relations ? w->num_rows + index : num_entities + index - w->num_relations;
}

/* Marks rows as wanted. */
static const char *ea__want(
    ea_workspace *w, const char *action, const char *what, const int *rows, int count, int is_actor
) {
    int i, is_vector = w->agent->is_vector, last = w->num_rows + w->num_relations - 1;
    if (count < 0 || count > w->max_rows || (count && !rows)) {
        return ea__refuse(w, "expected 0 to %d %s of %.60s, got %d", w->max_rows, what, action, count);
    }
    for (i = 0; i < count; i++) {
        int row = rows[i] < 0 || is_vector ? rows[i] : ea__row_of(w, rows[i]);
        if (row < 0 || (row > last && !is_vector)) {
            return ea__refuse(
                w, "expected %s of %.60s from 0 to %d, got %d", what, action, last, rows[i]
            );
        }
        if (is_vector) continue;
        if (row < w->num_rows) w->place[row] = 0;
        else if (is_actor) return ea__refuse(w, "expected actors of %.60s, got the relation %d", action, rows[i]);
    }
    return NULL;
}

/* Whether an actor has an allowed choice; after this choice of the action before, unless it is -1. */
static int ea__may_choose(const ea_workspace *w, const ea_obs *obs, int action, int actor, int before) {
    const ea_request *request = &obs->requests[action];
    const unsigned char *mask = request->mask;
    const ea__answer *answer = &w->answers[action];
    size_t i, count = (size_t)answer->num_choices, row = (size_t)actor;
    if (mask && before >= 0) {
        const ea_action *space = &w->agent->spaces.actions[action];
        row = row * (size_t)w->answers[space->given[space->num_given - 1]].num_choices + (size_t)before;
    }
    if (!mask) return count > 0;
    for (i = 0; i < count; i++) {
        if (mask[row * count + i]) return 1;
    }
    return 0;
}

/* Whether an actor may make a choice, after some choice of the action before. */
static int ea__is_allowed(const ea_workspace *w, const ea_obs *obs, int action, int actor, int choice) {
    const ea_action *space = &w->agent->spaces.actions[action];
    const ea_request *request = &obs->requests[action];
    size_t count = (size_t)w->answers[action].num_choices, num_rows = 1, row;
    if (!request->mask) return 1;
    if (space->num_given && request->is_dependent) {
        num_rows = (size_t)w->answers[space->given[space->num_given - 1]].num_choices;
    }
    for (row = 0; row < num_rows; row++) {
        if (request->mask[((size_t)actor * num_rows + row) * count + (size_t)choice]) return 1;
    }
    return 0;
}

/* Checks a request that depends on others, whose requests were checked before. */
static const char *ea__read_dependent(ea_workspace *w, const ea_obs *obs, int action) {
    const ea_action *space = &w->agent->spaces.actions[action], *last;
    const ea_request *request = &obs->requests[action];
    int i, actor, choice, before = space->given[space->num_given - 1];
    for (i = 0; i < space->num_given; i++) {
        int count = obs->requests[space->given[i]].num_actors;
        if (count != request->num_actors) {
            return ea__refuse(
                w, "expected %d actors of %.60s, on which %.60s depends, got %d", request->num_actors,
                w->agent->spaces.actions[space->given[i]].name, space->name, count
            );
        }
    }
    last = &w->agent->spaces.actions[before];
    if (!request->mask || !request->is_dependent) return NULL;
    if (last->kind == EA_CONTINUOUS) {
        return ea__refuse(
            w, "expected a mask of %.60s that does not depend on the numbers of %.60s", space->name, last->name
        );
    }
    for (actor = 0; actor < request->num_actors; actor++) {
        for (choice = 0; choice < w->answers[before].num_choices; choice++) {
            if (ea__may_choose(w, obs, action, actor, choice)) continue;
            if (!ea__is_allowed(w, obs, before, actor, choice)) continue;
            return ea__refuse(
                w, "expected an allowed choice of %.60s for actor %d after choice %d of %.60s, got none",
                space->name, actor, choice, last->name
            );
        }
    }
    return NULL;
}

static const char *ea__read_requests(ea_workspace *w, const ea_obs *obs) {
    const ea_agent *agent = w->agent;
    const char *problem;
    int i, k, actor;
    for (i = 0; i < w->num_rows; i++) w->place[i] = -1;
    for (k = 0; k < agent->spaces.num_actions; k++) {
        const ea_action *action = &agent->spaces.actions[k];
        const ea_request *request = &obs->requests[k];
        ea__answer *answer = &w->answers[k];
        answer->num_actors = request->num_actors;
        answer->num_choices = action->kind == EA_SELECT_ENTITY ? request->num_actees : action->num_labels;
        answer->stride = EA__PADDED(answer->num_choices);
        if (!request->num_actors) continue;
        if (action->kind == EA_GLOBAL_CATEGORICAL) {
            int last = w->num_rows - 1;
            problem = request->num_actors == 1 ? NULL : ea__refuse(
                w, "expected 1 actor of %.60s, got %d", action->name, request->num_actors
            );
            if (!agent->is_vector) w->place[last] = 0;
        } else {
            problem = ea__want(w, action->name, "actors", request->actors, request->num_actors, 1);
        }
        if (!problem && action->kind == EA_SELECT_ENTITY) {
            problem = ea__want(w, action->name, "actees", request->actees, request->num_actees, 0);
        }
        if (!problem && action->num_given) problem = ea__read_dependent(w, obs, k);
        if (problem) return problem;
        if (action->kind == EA_CONTINUOUS) continue;
        for (actor = 0; actor < request->num_actors; actor++) {
            if (action->num_given && request->is_dependent && answer->num_choices) continue; /* checked */
            if (!ea__may_choose(w, obs, k, actor, -1)) {
                return ea__refuse(
                    w, "expected an allowed choice of %.60s for actor %d, got none", action->name, actor
                );
            }
        }
    }
    w->num_wanted = 0;
    for (i = 0; i < w->num_rows; i++) {
        if (w->place[i] < 0) continue;
        w->place[i] = w->num_wanted;
        w->wanted[w->num_wanted++] = i;
    }
    return NULL;
}

/* ------------------------------------------------------------------ running operations */

static void ea__standardize(const ea__standard *standard, const float *x, int width, float *y) {
    int i;
    for (i = 0; i < width; i++) {
        float each = standard->is_used ? (x[i] - standard->mean[i]) / standard->deviation[i] : x[i];
        y[i] = each < -5 ? -5 : each > 5 ? 5 : each;
    }
}

static void ea__run_linear(ea_workspace *w, const ea__op *op) {
    const ea_agent *agent = w->agent;
    const ea__matrix *x = &agent->matrices[op->x[0]], *y = &agent->matrices[op->y];
    ea__product product;
    int is_wanted = op->only_wanted && w->is_restricted;
    memset(&product, 0, sizeof product);
    product.x = ea__data(w, op->x[0]);
    product.x_stride = (size_t)x->stride;
    product.rows = is_wanted ? w->wanted : NULL;
    product.weight = op->weight;
    product.panel = (size_t)x->width * EA__W;
    product.step = EA__W;
    product.bias = op->bias;
    product.y = ea__data(w, op->y);
    product.y_stride = (size_t)y->stride;
    product.num_rows = is_wanted ? w->num_wanted : ea__num_rows(w, x);
    product.inner = x->width;
    product.num_panels = y->stride / EA__W;
    agent->kernels->multiply(&product);
    if (op->activation) {
        agent->kernels->activate(
            op->activation, product.y, product.y_stride * (size_t)product.num_rows
        );
    }
}

/* Copies `rows` rows of `width` numbers, transposed, to panels. */
static void ea__pack(const float *from, size_t stride, const int *rows, int count, int width, float *to) {
    int row, i;
    for (row = 0; row < count; row++) {
        const float *x = from + stride * (size_t)(rows ? rows[row] : row);
        float *panel = to + row / EA__W * EA__W * width + row % EA__W;
        for (i = 0; i < width; i++) panel[i * EA__W] = x[i];
    }
    for (; row % EA__W; row++) {
        float *panel = to + row / EA__W * EA__W * width + row % EA__W;
        for (i = 0; i < width; i++) panel[i * EA__W] = 0;
    }
}

/* Keys or values of the positions of all entities relative to entity `row`: as panels, or in rows. */
static void ea__look_up(
    const ea_workspace *w, const ea__positions *p, const float *pairs, int row, int is_key,
    const float *gate, size_t gate_stride, float *to
) {
    const float *table = is_key ? p->keys : p->values;
    int num_rows = p->num_types == ea__num_shown(w->agent) ? w->num_rows : w->num_rows - 1;
    size_t n = (size_t)num_rows, parts = (size_t)p->num_parts, padded = EA__PADDED((size_t)p->width);
    const float *weights = parts > 1 ? pairs + n * n * parts : NULL;
    const float *triples = pairs + n * n * parts * (parts > 1 ? 2 : 1);
    int num = is_key ? p->num_key_projections : p->num_value_projections, j, c, k;
    int type = 0, index = ea__shown_type(w->agent, 0); /* its place among all */
    const float *const *projections = p->projections + (is_key ? 0 : 2 * p->num_key_projections);
    if (p->is_per_entity && row >= w->counts[0]) num = 0; /* queries of the first type */
    for (j = 0; j < num_rows; j++) {
        size_t pair = (size_t)row * n + (size_t)j, step = is_key ? EA__W : 1;
        float *y = is_key ? to + (size_t)j / EA__W * EA__W * (size_t)p->width + (size_t)j % EA__W
                          : to + (size_t)j * padded;
        for (; j >= w->starts[index] + w->counts[index]; index = ea__shown_type(w->agent, type)) type++;
        for (k = 0; k < p->num_parts; k++) {
            int32_t bucket;
            const float *from;
            float weight = weights ? weights[pair * parts + (size_t)k] : 1;
            memcpy(&bucket, &pairs[pair * parts + (size_t)k], 4);
            if (p->is_per_type && !is_key) bucket += type * p->num_buckets;
            from = table + (size_t)bucket * (size_t)p->width;
            for (c = 0; c < p->width; c++) {
                y[(size_t)c * step] = k ? y[(size_t)c * step] + weight * from[c] : weight * from[c];
            }
        }
        for (k = 0; k < num; k++) {
            const float *weight = projections[2 * k], *bias = projections[2 * k + 1];
            const float *x = triples + 3 * pair;
            for (c = 0; c < p->width; c++, weight += 3) {
                y[(size_t)c * step] += x[0] * weight[0] + x[1] * weight[1] + x[2] * weight[2] + bias[c];
            }
        }
        for (c = 0; gate && c < p->width; c++) y[c] *= gate[(size_t)j * gate_stride + (size_t)c];
        for (c = p->width; !is_key && c < (int)padded; c++) y[c] = 0;
    }
    for (; is_key && j % EA__W; j++) {
        float *y = to + j / EA__W * EA__W * p->width + j % EA__W;
        for (c = 0; c < p->width; c++) y[c * EA__W] = 0;
    }
}

/* Hides entities from those that are not hidden. */
static void ea__hide(const ea_workspace *w, int row, float *logits, int count) {
    int j;
    if (!w->has_hidden || !w->visible[row]) return;
    for (j = 0; j < count; j++) {
        if (!w->visible[j]) logits[j] = EA__HIDDEN;
    }
}

/* Attention of the queries in `rows` in a head. `added` has keys, as panels, and values, in rows, that
   positions add for a single query; NULL without positions. */
static void ea__attend_head(
    ea_workspace *w, const ea__op *op, int head, const int *rows, const int *seen, int first, int count,
    const float *added
) {
    const ea_agent *agent = w->agent;
    const ea__matrix *m = &agent->matrices[op->x[0]];
    int n = ea__num_rows(w, m), size = m->width / op->heads, is_wide = size % EA__W == 0, i, k;
    float factors[EA__BLOCK];
    size_t stride = (size_t)m->stride, padded = EA__PADDED((size_t)n), wide = EA__PADDED((size_t)size);
    size_t offset = (size_t)head * (size_t)size;
    float *keys = w->scratch + padded * offset;
    float *values = w->scratch + padded * (size_t)m->width + padded * wide * (size_t)head;
    float *logits = w->scratch + padded * ((size_t)m->width + wide * (size_t)op->heads);
    float *more = logits + padded, *found = logits + EA__BLOCK * padded, *y = ea__data(w, op->y);
    ea__product product;
    memset(&product, 0, sizeof product);
    product.x = ea__data(w, op->x[0]) + offset, product.x_stride = stride, product.rows = rows;
    product.weight = keys, product.panel = (size_t)size * EA__W, product.step = EA__W;
    product.inner = size, product.num_rows = count, product.num_panels = (int)(padded / EA__W);
    product.y = logits, product.y_stride = padded;
    agent->kernels->multiply(&product);
    if (added) {
        product.weight = added, product.bias = logits, product.y = more;
        agent->kernels->multiply(&product);
        logits = more;
    }
    for (k = 0; k < count; k++) {
        ea__hide(w, seen[k], logits + (size_t)k * padded, n);
        factors[k] = agent->kernels->exponents(logits + (size_t)k * padded, n, 1.0f / sqrtf((float)size));
    }
    product.x = logits, product.x_stride = padded, product.rows = NULL, product.bias = NULL;
    product.weight = is_wide ? ea__data(w, op->x[2]) + offset : values;
    product.panel = EA__W, product.step = is_wide ? stride : wide;
    product.inner = n, product.num_panels = (int)(wide / EA__W);
    product.y = found, product.y_stride = wide;
    agent->kernels->multiply(&product);
    if (added) {
        product.weight = added + padded * (size_t)size, product.step = wide;
        product.bias = found, product.y = found + wide;
        agent->kernels->multiply(&product);
    }
    for (k = 0; k < count; k++) {
        float *to = y + (size_t)(first + k) * stride + offset;
        for (i = 0; i < size; i++) to[i] = product.y[(size_t)k * wide + (size_t)i] * factors[k];
    }
}

static void ea__run_attend(ea_workspace *w, const ea__op *op) {
    const ea_agent *agent = w->agent;
    const ea__positions *p = op->positions;
    const ea__matrix *m = &agent->matrices[op->x[0]];
    int n = ea__num_rows(w, m), size = m->width / op->heads, head, i, k;
    int is_restricted = w->is_restricted && op == &agent->ops[agent->last_mix];
    int num_queries = is_restricted ? w->num_wanted : n, block = p ? 1 : EA__BLOCK;
    int is_packed = is_restricted && m->made >= 0 && agent->ops[m->made].only_wanted;
    size_t stride = (size_t)m->stride, padded = EA__PADDED((size_t)n), wide = EA__PADDED((size_t)size);
    const float *v = ea__data(w, op->x[2]);
    const float *pairs = p ? ea__data(w, op->x[3]) + (size_t)w->max_rows * (size_t)(p->num_axes + 1) : NULL;
    const float *gate = op->num_inputs > 4 ? ea__data(w, op->x[4]) : NULL;
    size_t gate_stride = gate ? (size_t)agent->matrices[op->x[4]].stride : 0;
    float *values = w->scratch + padded * (size_t)m->width;
    float *added = values + padded * wide * (size_t)op->heads + EA__BLOCK * (padded + wide);
    for (head = 0; head < op->heads; head++) {
        size_t offset = (size_t)head * (size_t)size;
        ea__pack(ea__data(w, op->x[1]) + offset, stride, NULL, n, size, w->scratch + padded * offset);
        for (i = 0; size % EA__W && i < n; i++, values += wide) {
            memcpy(values, v + (size_t)i * stride + offset, (size_t)size * sizeof(float));
        }
        values += size % EA__W ? (padded - (size_t)n) * wide : 0;
    }
    for (i = 0; i < num_queries; i += block) {
        int rows[EA__BLOCK], seen[EA__BLOCK], count = num_queries - i < block ? num_queries - i : block;
        for (k = 0; k < count; k++) {
            seen[k] = is_restricted ? w->wanted[i + k] : i + k;
            rows[k] = is_packed ? i + k : seen[k];
        }
        if (p) {
            ea__look_up(w, p, pairs, *seen, 1, NULL, 0, added);
            ea__look_up(w, p, pairs, *seen, 0, gate, gate_stride, added + padded * (size_t)size);
        }
        for (head = 0; head < op->heads; head++) {
            ea__attend_head(w, op, head, rows, seen, i, count, p ? added : NULL);
        }
    }
}

/* ------------------------------------------------------------------ relative positions */

static float ea__remainder(float x, float by) {
    float found = fmodf(x, by);
    return found < 0 ? EA__PLUS(found, by) : found;
}

/* Buckets and weights of rings: one, or two that are interpolated. */
static int ea__rings(const ea__positions *p, float distance, int *bucket, float *weight) {
    int last = p->extent[p->num_sizes - 1] - 1;
    float place = ea__limited(EA__TIMES(distance, p->per_scale), EA__LARGEST_INPUT);
    bucket[0] = place < (float)last ? (int)place : last;
    weight[0] = 1;
    if (!p->is_interpolated) return 1;
    bucket[1] = bucket[0] < last ? bucket[0] + 1 : last;
    weight[0] = EA__MINUS(bucket[1], place);
    if (!p->is_extrapolated && weight[0] < 0) weight[0] = 0;
    weight[1] = EA__MINUS(1, weight[0]);
    return 2;
}

/* As above, of angles. */
static int ea__angles(
    const ea__positions *p, const float *relative, float direction, int *bucket, float *weight
) {
    const float turn = 6.28318530717958647692f;
    int count = p->extent[0];
    float angle = (float)atan2((double)relative[1], (double)relative[0]), place;
    angle = EA__PLUS(EA__MINUS(angle, direction), turn);
    place = ea__remainder(EA__TIMES((float)((double)angle / (double)turn), count), (float)count);
    bucket[0] = place >= 0 && place < (float)count ? (int)place : 0; /* rounding may reach `count` */
    weight[0] = 1;
    if (!p->is_interpolated) return 1;
    bucket[1] = (bucket[0] + 1) % count;
    weight[0] = ea__remainder(EA__MINUS(bucket[1], place), 1);
    weight[1] = EA__MINUS(1, weight[0]);
    return 2;
}

static int ea__cell(const ea__positions *p, const float *relative) {
    float cell = 0;
    int axis, stride = 1, found;
    for (axis = 0; axis < p->num_axes; axis++) {
        float most = (float)p->extent[axis];
        float place = ea__limited(EA__TIMES(relative[axis], p->per_scale), most);
        cell = EA__PLUS(cell, EA__TIMES(EA__PLUS(place, most), stride));
        stride *= 2 * p->extent[axis] + 1;
    }
    if (!(cell > 0)) return 0;
    if (!(cell < (float)p->num_buckets)) return p->num_buckets - 1;
    found = (int)cell;
    if (cell - (float)found > 0.5f || (cell - (float)found == 0.5f && found % 2)) found++;
    return found < p->num_buckets ? found : p->num_buckets - 1;
}

/* Buckets of a pair, their weights if there are several, and its relative position. */
static void ea__run_pair(
    const ea__positions *p, const float *relative, float direction, float *buckets, float *weights,
    float *triple
) {
    int bucket[2] = {0, 0}, ring[2] = {0, 0}, num = 1, num_rings = 1, i, k;
    float weight[2] = {1, 1}, of_ring[2] = {1, 1}, distance = 0;
    if (p->is_distance || p->has_projection) distance = ea__norm(relative, p->num_axes);
    if (p->is_radial) num = ea__angles(p, relative, direction, bucket, weight);
    if (p->is_distance) num_rings = ea__rings(p, distance, ring, of_ring);
    if (!p->is_radial && !p->is_distance) bucket[0] = ea__cell(p, relative);
    for (i = 0; i < num_rings; i++) {
        for (k = 0; k < num; k++) {
            int32_t found = bucket[k] + ring[i] * (p->is_radial ? p->extent[0] : 1);
            memcpy(buckets + i * num + k, &found, 4);
            if (p->num_parts > 1) weights[i * num + k] = EA__TIMES(weight[k], of_ring[i]);
        }
    }
    if (p->has_projection) {
        float given[3];
        given[0] = relative[0], given[1] = relative[1], given[2] = distance;
        ea__standardize(&p->standard, given, 3, triple);
    }
}

static void ea__run_positions(ea_workspace *w, const ea__op *op) {
    const ea_agent *agent = w->agent;
    const ea__positions *p = op->positions;
    int n = p->num_types == ea__num_shown(agent) ? w->num_rows : w->num_rows - 1;
    int num_axes = p->num_axes, type, i, j, axis;
    size_t parts = (size_t)p->num_parts, num_pairs = (size_t)n * (size_t)n, pair = 0;
    float *places = ea__data(w, op->y), *to = places;
    float *buckets = places + (size_t)w->max_rows * (size_t)(num_axes + 1);
    float *weights = buckets + num_pairs * parts;
    float *triples = weights + (parts > 1 ? num_pairs * parts : 0);
    for (type = 0; type < p->num_types; type++) {
        const int *columns = p->columns + type * EA__MAX_AXES, *direction = p->direction + 2 * type;
        const float *x = ea__data(w, op->x[type]);
        int count = w->counts[ea__shown_type(agent, type)];
        for (i = 0; i < count; i++, x += agent->matrices[op->x[type]].stride) {
            for (axis = 0; axis < num_axes; axis++) *to++ = x[columns[axis]];
            *to++ = direction[0] < 0 ? 0 : direction[1] < 0 ? x[direction[0]]
                  : (float)atan2((double)x[direction[1]], (double)x[direction[0]]);
        }
    }
    for (i = 0; i < n; i++) {
        for (j = 0; j < n; j++, pair++) {
            const float *one = places + i * (num_axes + 1), *two = places + j * (num_axes + 1);
            float relative[EA__MAX_AXES];
            for (axis = 0; axis < num_axes; axis++) relative[axis] = EA__MINUS(one[axis], two[axis]);
            ea__run_pair(
                p, relative, one[num_axes], buckets + pair * parts, weights + pair * parts, triples + 3 * pair
            );
        }
    }
}

/* ------------------------------------------------------------------ other operations */

static void ea__run_layer_norm(ea_workspace *w, const ea__op *op) {
    const ea__matrix *m = &w->agent->matrices[op->x[0]];
    const float *x = ea__data(w, op->x[0]);
    float *y = ea__data(w, op->y);
    int row, num_rows = ea__num_rows(w, m);
    for (row = 0; row < num_rows; row++, x += m->stride, y += m->stride) {
        w->agent->kernels->layer_norm(x, m->width, op->weight, op->bias, y);
    }
}

static void ea__run_normalize(ea_workspace *w, const ea__op *op) {
    const ea__matrix *m = &w->agent->matrices[op->x[0]];
    const float *x = ea__data(w, op->x[0]);
    float *y = ea__data(w, op->y);
    size_t stride = (size_t)w->agent->matrices[op->y].stride;
    int row, num_rows = ea__num_rows(w, m);
    for (row = 0; row < num_rows; row++, x += m->stride, y += stride) {
        ea__standardize(&op->standard, x + op->start, m->width - op->start, y);
    }
}

/* Repeats a row. */
static void ea__fill_rows(ea_workspace *w, const ea__op *op, const float *from) {
    const ea__matrix *m = &w->agent->matrices[op->y];
    float *y = ea__data(w, op->y);
    int row, num_rows = ea__num_rows(w, m);
    for (row = 0; row < num_rows; row++, y += m->stride) memcpy(y, from, (size_t)m->width * sizeof(float));
}

/* Copies all rows of the inputs, one below the other. */
static void ea__run_concatenate(ea_workspace *w, const ea__op *op) {
    size_t stride = (size_t)w->agent->matrices[op->y].stride;
    float *y = ea__data(w, op->y);
    int i;
    for (i = 0; i < op->num_inputs; i++) {
        size_t size = stride * (size_t)ea__num_rows(w, &w->agent->matrices[op->x[i]]);
        if (size) memcpy(y, ea__data(w, op->x[i]), size * sizeof(float));
        y += size;
    }
}

/* Whether an entity receives the message from the other one of a relation. */
static int ea__is_sent(const ea_workspace *w, int to, int from, int relation) {
    return !w->has_hidden || !w->visible[to] || (w->visible[from] && w->visible[w->num_rows + relation]);
}

/* Softmax over the messages of each entity in each head: largest logits, then sums, by entity. */
static void ea__run_relate(ea_workspace *w, const ea__op *op) {
    const ea_agent *agent = w->agent;
    const ea__matrix *m = &agent->matrices[op->x[0]], *k = &agent->matrices[op->x[3]];
    int n = ea__num_rows(w, m), heads = op->heads, size = m->width / heads, i, c, head;
    size_t stride = (size_t)m->stride;
    const float *query = ea__data(w, op->x[0]), *key = ea__data(w, op->x[1]), *value = ea__data(w, op->x[2]);
    const float *keys = ea__data(w, op->x[3]), *values = ea__data(w, op->x[4]);
    float *y = ea__data(w, op->y), *tops = w->scratch, *sums = tops + (size_t)n * (size_t)heads;
    float *logits = sums + (size_t)n * (size_t)heads, scale = 1.0f / sqrtf((float)size);
    for (i = 0; i < n * heads; i++) tops[i] = -3e38f, sums[i] = 0;
    memset(y, 0, (size_t)n * stride * sizeof(float));
    for (i = 0; i < 2 * w->num_relations; i++) {
        int to = w->links[i], from = w->links[i ^ 1];
        const float *more = keys + (size_t)(i / 2) * (size_t)k->stride + (i % 2) * m->width;
        for (head = 0; head < heads && ea__is_sent(w, to, from, i / 2); head++) {
            float sum = 0;
            for (c = head * size; c < (head + 1) * size; c++) {
                sum += query[(size_t)to * stride + (size_t)c] * (key[(size_t)from * stride + (size_t)c] + more[c]);
            }
            logits[i * heads + head] = sum *= scale;
            if (sum > tops[to * heads + head]) tops[to * heads + head] = sum;
        }
    }
    for (i = 0; i < 2 * w->num_relations; i++) {
        int to = w->links[i], from = w->links[i ^ 1];
        const float *more = values + (size_t)(i / 2) * (size_t)k->stride + (i % 2) * m->width;
        for (head = 0; head < heads && ea__is_sent(w, to, from, i / 2); head++) {
            float weight = expf(logits[i * heads + head] - tops[to * heads + head]);
            sums[to * heads + head] += weight;
            for (c = head * size; c < (head + 1) * size; c++) {
                y[(size_t)to * stride + (size_t)c] += weight * (value[(size_t)from * stride + (size_t)c] + more[c]);
            }
        }
    }
    for (i = 0; i < n; i++) {
        for (c = 0; c < m->width; c++) {
            float sum = sums[i * heads + c / size];
            if (sum > 0) y[(size_t)i * stride + (size_t)c] /= sum;
        }
    }
}

static void ea__run_ends(ea_workspace *w, const ea__op *op) {
    const ea__matrix *x = &w->agent->matrices[op->x[0]], *m = &w->agent->matrices[op->y];
    size_t width = (size_t)x->width;
    int i;
    for (i = 0; i < 2 * w->num_relations; i++) {
        float *y = ea__data(w, op->y) + (size_t)(i / 2) * (size_t)m->stride + (size_t)(i % 2) * width;
        memcpy(y, ea__data(w, op->x[0]) + (size_t)w->links[i] * (size_t)x->stride, width * sizeof(float));
    }
}

static void ea__run_join(ea_workspace *w, const ea__op *op) {
    const ea__matrix *m = &w->agent->matrices[op->y];
    int i, row, num_rows = ea__num_rows(w, m);
    for (row = 0; row < num_rows; row++) {
        float *y = ea__data(w, op->y) + (size_t)row * (size_t)m->stride;
        for (i = 0; i < op->num_inputs; i++) {
            const ea__matrix *x = &w->agent->matrices[op->x[i]];
            size_t width = (size_t)x->width;
            const float *from = ea__data(w, op->x[i]) + (size_t)row * (size_t)x->stride;
            if (width && row < ea__num_rows(w, x)) memcpy(y, from, width * sizeof(float));
            else if (width) memset(y, 0, width * sizeof(float));
            y += width;
        }
    }
}

/* The mean and the largest of each column; of visible entities, or of all. */
static void ea__run_pool(ea_workspace *w, const ea__op *op, int is_mean, int is_max, int is_all) {
    const ea__matrix *m = &w->agent->matrices[op->x[0]];
    float *y = ea__data(w, op->y), *top = y + (is_mean ? m->width : 0);
    int i, row, count = 0, num_rows = ea__num_rows(w, m);
    for (i = 0; i < m->width * (is_mean + is_max); i++) y[i] = 0;
    for (row = 0; row < num_rows; row++) {
        const float *x = ea__data(w, op->x[0]) + (size_t)row * (size_t)m->stride;
        if (!is_all && w->has_hidden && !w->visible[row]) continue;
        for (i = 0; is_mean && i < m->width; i++) y[i] += x[i];
        for (i = 0; is_max && i < m->width; i++) top[i] = !count || !(x[i] <= top[i] || top[i] != top[i]) ? x[i] : top[i];
        count++;
    }
    for (i = 0; is_mean && count && i < m->width; i++) y[i] /= (float)count;
}

static void ea__run_recur(ea_workspace *w, const ea__op *op) {
    const ea__kernels *kernels = w->agent->kernels;
    int i, width = w->agent->matrices[op->y].width;
    const float *gates = ea__data(w, op->x[0]);
    float *y = ea__data(w, op->y), *state = w->state + op->start;
    float *products = w->scratch, *opened = products + EA__PADDED(3 * width);
    float *candidate = opened + EA__PADDED(2 * width);
    ea__product product;
    memset(&product, 0, sizeof product);
    product.x = state;
    product.weight = op->weight, product.panel = (size_t)width * EA__W, product.step = EA__W;
    product.y = products, product.y_stride = EA__PADDED((size_t)width * 3);
    product.num_rows = 1, product.inner = width, product.num_panels = EA__PADDED(3 * width) / EA__W;
    kernels->multiply(&product);
    for (i = 0; i < EA__PADDED(2 * width); i++) opened[i] = i < 2 * width ? gates[i] + products[i] : 0;
    kernels->activate(EA__SIGMOID, opened, (size_t)EA__PADDED(2 * width));
    for (i = 0; i < EA__PADDED(width); i++) {
        candidate[i] = i < width ? gates[2 * width + i] + opened[i] * products[2 * width + i] : 0;
    }
    kernels->activate(EA__TANH, candidate, (size_t)EA__PADDED(width));
    for (i = 0; i < width; i++) {
        state[i] += opened[width + i] * (candidate[i] - state[i]);
        y[i] = state[i];
    }
}

static void ea__run_convolve(ea_workspace *w, const ea__op *op) {
    const ea_agent *agent = w->agent;
    const ea__matrix *x = &agent->matrices[op->x[0]], *y = &agent->matrices[op->y];
    int kernel = op->kernel, num_windows = y->sides[0] * y->sides[1], first, k, channel, row, column;
    ea__product product;
    memset(&product, 0, sizeof product);
    product.inner = x->width * kernel * kernel;
    product.x = w->scratch, product.x_stride = (size_t)product.inner;
    product.weight = op->weight, product.panel = (size_t)product.inner * EA__W, product.step = EA__W;
    product.bias = op->bias, product.y_stride = (size_t)y->stride;
    product.num_panels = y->stride / EA__W;
    for (first = 0; first < num_windows; first += EA__BLOCK) {
        float *to = w->scratch;
        product.num_rows = num_windows - first < EA__BLOCK ? num_windows - first : EA__BLOCK;
        for (k = first; k < first + product.num_rows; k++) {
            int top = k / y->sides[1] * op->stride, left = k % y->sides[1] * op->stride;
            const float *from = ea__data(w, op->x[0]) +
                                ((size_t)top * (size_t)x->sides[1] + (size_t)left) * (size_t)x->stride;
            for (channel = 0; channel < x->width; channel++) {
                for (row = 0; row < kernel; row++) {
                    const float *pixel = from + (size_t)row * (size_t)x->sides[1] * (size_t)x->stride;
                    for (column = 0; column < kernel; column++) {
                        *to++ = pixel[(size_t)column * (size_t)x->stride + (size_t)channel];
                    }
                }
            }
        }
        product.y = ea__data(w, op->y) + (size_t)first * (size_t)y->stride;
        agent->kernels->multiply(&product);
    }
    if (op->activation) {
        agent->kernels->activate(
            op->activation, ea__data(w, op->y), (size_t)num_windows * (size_t)y->stride
        );
    }
}

static void ea__run_flatten(ea_workspace *w, const ea__op *op) {
    const ea__matrix *x = &w->agent->matrices[op->x[0]];
    int channel, pixel, area = x->sides[0] * x->sides[1];
    float *y = ea__data(w, op->y);
    for (channel = 0; channel < x->width; channel++) {
        const float *from = ea__data(w, op->x[0]) + channel;
        for (pixel = 0; pixel < area; pixel++) *y++ = from[(size_t)pixel * (size_t)x->stride];
    }
}

static void ea__run_take(ea_workspace *w, const ea__op *op) {
    const ea__matrix *x = &w->agent->matrices[op->x[0]];
    const ea_request *request = &w->obs->requests[op->action];
    int is_actors = op->code == EA__TAKE_ACTORS, count = request->num_actors, i;
    const int *rows = is_actors ? request->actors : request->actees;
    float *y = ea__data(w, op->y);
    if (!count) return;
    if (w->agent->spaces.actions[op->action].kind == EA_GLOBAL_CATEGORICAL) rows = NULL;
    for (i = 0; i < (is_actors ? count : request->num_actees); i++, y += x->stride) {
        int row = w->agent->is_vector ? 0 : rows ? ea__row_of(w, rows[i]) : w->num_rows - 1;
        if (w->num_all != w->num_rows && x->rows == EA__ALL) row = w->place[row];
        memcpy(y, ea__data(w, op->x[0]) + (size_t)row * (size_t)x->stride, (size_t)x->width * sizeof(float));
    }
}

static void ea__run_compare(ea_workspace *w, const ea__op *op) {
    const ea__matrix *x = &w->agent->matrices[op->x[0]];
    ea__answer *answer = &w->answers[op->action];
    ea__product product;
    if (!answer->num_actors) return;
    ea__pack(ea__data(w, op->x[1]), (size_t)x->stride, NULL, answer->num_choices, x->width, w->scratch);
    memset(&product, 0, sizeof product);
    product.x = ea__data(w, op->x[0]), product.x_stride = (size_t)x->stride;
    product.weight = w->scratch, product.panel = (size_t)x->width * EA__W, product.step = EA__W;
    product.y = ea__data(w, op->y), product.y_stride = (size_t)answer->stride;
    product.num_rows = answer->num_actors, product.inner = x->width;
    product.num_panels = answer->stride / EA__W;
    w->agent->kernels->multiply(&product);
}

/* Chooses for the actors of an action on which others depend, once. */
static void ea__decide(ea_workspace *w, int action) {
    ea__answer *answer = &w->answers[action];
    size_t num_labels = (size_t)w->agent->spaces.actions[action].num_labels;
    int actor;
    if (answer->is_chosen) return;
    for (actor = 0; actor < answer->num_actors; actor++) {
        if (w->agent->spaces.actions[action].kind == EA_CONTINUOUS) {
            ea_choose_numbers(w, action, actor, w->obs->random, answer->values + num_labels * (size_t)actor);
        } else {
            answer->choices[actor] = ea_choose(w, action, actor, w->obs->random);
        }
    }
    answer->is_chosen = 1;
}

static void ea__run_choice(ea_workspace *w, const ea__op *op) {
    const ea_action *action = &w->agent->spaces.actions[op->action];
    const ea__matrix *x = &w->agent->matrices[op->x[1]], *m = &w->agent->matrices[op->y];
    const ea__answer *answer = &w->answers[op->action];
    float *y = ea__data(w, op->y);
    int actor, i;
    ea__decide(w, op->action);
    for (actor = 0; actor < answer->num_actors; actor++, y += m->stride) {
        const float *values = answer->values + (size_t)actor * (size_t)action->num_labels;
        if (action->kind == EA_SELECT_ENTITY) {
            int chosen = w->obs->requests[op->action].actees[answer->choices[actor]];
            int row = w->agent->is_vector ? 0 : ea__row_of(w, chosen);
            if (w->num_all != w->num_rows && x->rows == EA__ALL) row = w->place[row];
            memcpy(y, ea__data(w, op->x[1]) + (size_t)row * (size_t)x->stride, (size_t)x->width * sizeof(float));
            continue;
        }
        for (i = 0; i < action->num_labels; i++) {
            if (action->kind == EA_CONTINUOUS) {
                float low = action->low[i], high = action->high[i], half = high / 2 - low / 2;
                y[i] = half > 0 ? ea__limited((values[i] - low) / half - 1, 1) : 0;
            } else {
                y[i] = i == answer->choices[actor];
            }
        }
    }
}

static const char *ea__refuse_result(ea_workspace *w, const char *what, float found) {
    char text[32];
    return ea__refuse(
        w, "the network computes %s for %.60s: its parameters are too large for this observation, train it "
        "again", ea__shown(text, sizeof text, (double)found), what
    );
}

/* Replaces logits with probabilities, or means with numbers in units of the action. */
static void ea__run_answer(ea_workspace *w, const ea__op *op) {
    const ea_action *action = &w->agent->spaces.actions[op->action];
    ea__answer *answer = &w->answers[op->action];
    const unsigned char *mask = w->obs->requests[op->action].mask;
    float *x = ea__data(w, op->x[0]), root = 1, factor;
    int i, actor;
    const ea__answer *before = NULL;
    if (mask && action->num_given && answer->num_actors && w->obs->requests[op->action].is_dependent) {
        before = &w->answers[action->given[action->num_given - 1]];
        ea__decide(w, action->given[action->num_given - 1]);
    }
    answer->numbers = x;
    if (w->agent->matrices[op->x[0]].width < 0 && answer->num_actors) {
        const ea__op *compare = &w->agent->ops[w->agent->matrices[op->x[0]].made];
        root = sqrtf((float)w->agent->matrices[compare->x[0]].width);
    }
    for (actor = 0; actor < answer->num_actors; actor++, x += answer->stride) {
        for (i = 0; i < answer->num_choices; i++) {
            if (ea__is_usable(x[i] / root)) continue;
            w->problem = ea__refuse_result(w, action->name, x[i] / root);
            return;
        }
        if (op->code == EA__CATEGORICAL) {
            size_t row = (size_t)actor;
            if (before) row = row * (size_t)before->num_choices + (size_t)before->choices[actor];
            for (i = 0; mask && i < answer->num_choices; i++) {
                if (!mask[row * (size_t)answer->num_choices + (size_t)i]) x[i] = EA__HIDDEN;
            }
            factor = w->agent->kernels->exponents(x, answer->num_choices, 1.0f / w->temperature / root);
            for (i = 0; i < answer->num_choices; i++) x[i] *= factor;
            continue;
        }
        for (i = 0; i < answer->num_choices; i++) {
            float low = action->low[i] / 2, high = action->high[i] / 2;
            x[i] = low + high + (high - low) * x[i]; /* no sum of bounds overflows */
        }
    }
}

/* Keeps the wanted rows of the matrices that later operations read. */
static void ea__restrict(ea_workspace *w) {
    const ea_agent *agent = w->agent;
    int i, k;
    for (k = 0; k < agent->num_kept; k++) {
        size_t stride = (size_t)agent->matrices[agent->kept[k]].stride;
        float *x = ea__data(w, agent->kept[k]);
        for (i = 0; i < w->num_wanted; i++) {
            if (w->wanted[i] == i) continue;
            memcpy(x + stride * (size_t)i, x + stride * (size_t)w->wanted[i], stride * sizeof(float));
        }
    }
    w->num_all = w->num_wanted;
}

static void ea__run(ea_workspace *w, const ea__op *op) {
    const ea__matrix *y = &w->agent->matrices[op->y];
    switch (op->code) {
        case EA__NORMALIZE: ea__run_normalize(w, op); break;
        case EA__LINEAR: ea__run_linear(w, op); break;
        case EA__LAYER_NORM: ea__run_layer_norm(w, op); break;
        case EA__ADD: {
            int rows = ea__num_rows(w, y), others = ea__num_rows(w, &w->agent->matrices[op->x[1]]);
            w->agent->kernels->add(
                ea__data(w, op->y), ea__data(w, op->x[1]),
                (size_t)y->stride * (size_t)(rows < others ? rows : others)
            );
            break;
        }
        case EA__REPEAT: ea__fill_rows(w, op, op->weight); break;
        case EA__CONCATENATE: ea__run_concatenate(w, op); break;
        case EA__JOIN: ea__run_join(w, op); break;
        case EA__POSITIONS: ea__run_positions(w, op); break;
        case EA__ATTEND: ea__run_attend(w, op); break;
        case EA__POOL: ea__run_pool(w, op, op->is_mean, op->is_max, 0); break;
        case EA__MEAN: ea__run_pool(w, op, 1, 0, 1); break;
        case EA__SPREAD: ea__fill_rows(w, op, ea__data(w, op->x[0])); break;
        case EA__CONVOLVE: ea__run_convolve(w, op); break;
        case EA__FLATTEN: ea__run_flatten(w, op); break;
        case EA__TAKE_ACTORS:
        case EA__TAKE_ACTEES: ea__run_take(w, op); break;
        case EA__COMPARE: ea__run_compare(w, op); break;
        case EA__CATEGORICAL:
        case EA__GAUSSIAN: ea__run_answer(w, op); break;
        case EA__SCALE: *ea__data(w, op->y) = *ea__data(w, op->x[0]) * *op->weight + *op->bias; break;
        case EA__RECUR: ea__run_recur(w, op); break;
        case EA__CHOICE: ea__run_choice(w, op); break;
        case EA__FIND_LINKS: break; /* when the observation was read */
        case EA__RELATE: ea__run_relate(w, op); break;
        case EA__ENDS: ea__run_ends(w, op); break;
    }
}

const char *ea_think(ea_workspace *w, const ea_obs *obs, double temperature, int needs_value) {
    const ea_agent *agent = w->agent;
    const char *problem;
    int i;
    w->has_value = 0;
    w->problem = NULL;
    if (!(temperature >= 1e-6 && temperature <= 1e6)) {
        char text[32];
        return ea__refuse(
            w, "expected a temperature from 1e-6 to 1e6, got %s", ea__shown(text, sizeof text, temperature)
        );
    }
    w->temperature = (float)temperature;
    w->obs = obs;
    for (i = 0; i < agent->spaces.num_actions; i++) w->answers[i].num_actors = w->answers[i].is_chosen = 0;
    problem = ea__read_features(w, obs);
    if (!problem) problem = ea__read_requests(w, obs);
    for (i = 0; !problem && obs->state && i < agent->state_size; i++) {
        if (!ea__is_finite(obs->state[i])) problem = ea__refuse(w, "expected a finite state, got another");
    }
    if (problem) {
        for (i = 0; i < agent->spaces.num_actions; i++) w->answers[i].num_actors = 0;
        return problem;
    }
    if (!obs->state) memset(w->state, 0, (size_t)agent->state_size * sizeof(float));
    else if (agent->state_size) memmove(w->state, obs->state, (size_t)agent->state_size * sizeof(float));
    for (i = 0; i < agent->state_size; i++) w->state[i] = ea__limited(w->state[i], EA__LARGEST_INPUT);
    w->is_restricted = !needs_value && agent->last_mix >= 0 && w->num_wanted < w->num_rows;
    for (i = 0; i < agent->num_ops && !w->problem; i++) {
        const ea__op *op = &agent->ops[i];
        if (!needs_value && !op->is_policy) continue;
        if (w->is_restricted && i == agent->last_mix && op->code == EA__SPREAD) ea__restrict(w);
        ea__run(w, op);
        if (w->is_restricted && i == agent->last_mix && op->code == EA__ATTEND) ea__restrict(w);
    }
    w->obs = NULL;
    if (needs_value && agent->spaces.has_value) w->value = *ea__data(w, agent->value);
    if (!w->problem && needs_value && agent->spaces.has_value && !ea__is_usable(w->value)) {
        w->problem = ea__refuse_result(w, "the value", w->value);
    }
    for (i = 0; !w->problem && i < agent->state_size; i++) {
        if (!ea__is_usable(w->state[i])) w->problem = ea__refuse_result(w, "its memory", w->state[i]);
    }
    w->has_value = !w->problem && needs_value && agent->spaces.has_value;
    for (i = 0; w->problem && i < agent->spaces.num_actions; i++) w->answers[i].num_actors = 0;
    return w->problem;
}

/* ------------------------------------------------------------------ choices */

static uint64_t ea__draw(uint64_t *random) {
    uint64_t z = *random += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

static double ea__uniform(uint64_t *random) { return (double)(ea__draw(random) >> 11) / 9007199254740992.0; }

int ea_num_choices(const ea_workspace *w, int action) { return w->answers[action].num_choices; }

const float *ea_probabilities(const ea_workspace *w, int action, int actor) {
    const ea__answer *answer = &w->answers[action];
    return answer->numbers + (size_t)actor * (size_t)answer->stride;
}

int ea_choose(const ea_workspace *w, int action, int actor, uint64_t *random) {
    const float *each = ea_probabilities(w, action, actor);
    int i, count = w->answers[action].num_choices;
    float top = 0;
    if (w->answers[action].is_chosen) return w->answers[action].choices[actor];
    if (random) {
        double rest = ea__uniform(random);
        for (i = 0; i < count; i++) {
            rest -= each[i];
            if (rest < 0) return i;
        }
    }
    for (i = 0; i < count; i++) top = each[i] > top ? each[i] : top;
    for (i = 0; i < count - 1 && each[i] < top - EA__TIE; i++) {}
    return i;
}

void ea_choose_numbers(const ea_workspace *w, int action, int actor, uint64_t *random, float *numbers) {
    const ea_action *space = &w->agent->spaces.actions[action];
    const float *mean = ea_probabilities(w, action, actor);
    int i;
    if (w->answers[action].is_chosen) {
        size_t count = (size_t)space->num_labels;
        memcpy(numbers, w->answers[action].values + count * (size_t)actor, count * sizeof(float));
        return;
    }
    for (i = 0; i < space->num_labels; i++) {
        double found = mean[i];
        if (random) {
            double length = sqrt(-2 * log(1 - ea__uniform(random)));
            double normal = length * cos(6.28318530717958647692 * ea__uniform(random));
            found += w->agent->deviations[action][i] * sqrt((double)w->temperature) * normal;
        }
        numbers[i] = !(found > space->low[i]) ? space->low[i]
                   : found < space->high[i] ? (float)found : space->high[i];
    }
}

int ea_plays_greedily(const ea_agent *agent) { return agent->is_greedy; }

const float *ea_value(const ea_workspace *w) { return w->has_value ? &w->value : NULL; }

int ea_state_size(const ea_agent *agent) { return agent->state_size; }

const float *ea_state(const ea_workspace *w) { return w->state; }

/* ------------------------------------------------------------------ games of entity_env.h */

#if defined(ENTITY_ENV_H) && defined(EE__MAX_BYTES)

/* An agent that plays a game, with arrays for its observations and answers. */
typedef struct ea__seat {
    const ea_agent *agent;
    void *memory;
    ea_workspace *workspace;
    int max_entities;
    float *state; /* of the running episode */
    const float **features;
    const unsigned char **visible;
    ea_request *requests;
    ee__bytes *rows, *answers; /* by action */
} ea__seat;

static char ea__problem[256];

static const char *ea__differ(const char *what, const char *expected, const char *got) {
    snprintf(
        ea__problem, sizeof ea__problem, "the agent expects %s %.70s, but the game has %.70s: train it "
        "with this game", what, expected, got
    );
    return ea__problem;
}

static const char *ea__compare_names(
    const char *what, const char *const *expected, const char *const *got
) {
    int i = 0;
    for (; expected[i] && got && got[i]; i++) {
        if (strcmp(expected[i], got[i])) return ea__differ(what, expected[i], got[i]);
    }
    if (!expected[i] && (!got || !got[i])) return NULL;
    return ea__differ(what, expected[i] ? expected[i] : "none", got && got[i] ? got[i] : "none");
}

/* Whether an action of an agent depends on that many actions directly before it; else an error. */
static const char *ea__compare_given(const ea_action *action, int number, int num_given) {
    int i;
    char expected[24], got[24];
    for (i = 0; i < action->num_given && action->given[i] == number - action->num_given + i; i++) {
    }
    if (i == action->num_given && i == num_given) return NULL;
    snprintf(expected, sizeof expected, "%d actions before it", action->num_given);
    snprintf(got, sizeof got, "%d directly before it", num_given);
    return ea__differ(action->name, expected, got);
}

/* How a type differs from that of a game in whether it is a relation, or in its entities; or NULL. */
static const char *ea__compare_references(
    const ea_entity *entity, int number, const ea_spaces *spaces, const ee_game *game
) {
    const int *expected = entity->references, *got = ee__references(game, number);
    int i;
    if (!expected != !got) {
        return ea__differ(entity->name, expected ? "as a relation" : "as entities", got ? "a relation" : "entities");
    }
    for (i = 0; expected && i < 2; i++) {
        if (expected[i] == got[i]) continue;
        return ea__differ("a reference to", spaces->entities[expected[i]].name, game->entities[got[i]].name);
    }
    return NULL;
}

/* How the spaces of an agent differ from those of a game, or NULL. */
static const char *ea__compare_spaces(const ea_spaces *spaces, const ee_game *game) {
    static const char *const kinds[] = {"global choices", "choices", "selections", "numbers"};
    const char *problem = ea__compare_names(
        "the global feature", spaces->global_features, game->global_features
    );
    int i;
    if (!problem && (spaces->num_entities != game->num_entities || spaces->num_actions != game->num_actions)) {
        return ea__differ("another number of", "entity types or actions", "others");
    }
    for (i = 0; !problem && i < game->num_entities; i++) {
        const ea_entity *entity = &spaces->entities[i];
        if (strcmp(entity->name, game->entities[i].name)) {
            return ea__differ("the entity", entity->name, game->entities[i].name);
        }
        problem = ea__compare_names("the feature", entity->features, game->entities[i].features);
        if (!problem) problem = ea__compare_references(entity, i, spaces, game);
    }
    for (i = 0; !problem && i < game->num_actions; i++) {
        const ea_action *action = &spaces->actions[i];
        const ee_action *got = &game->actions[i];
        if (strcmp(action->name, got->name)) return ea__differ("the action", action->name, got->name);
        if ((int)action->kind != (int)got->kind) {
            return ea__differ(action->name, kinds[action->kind], kinds[got->kind]);
        }
        if (action->labels) problem = ea__compare_names("the label", action->labels, got->labels);
        if (!problem) problem = ea__compare_given(action, i, game->num_given ? game->num_given[i] : 0);
    }
    return problem;
}

static void ea__open_seat(ea__seat *seat, const ea_agent *agent) {
    size_t num_entities = (size_t)agent->spaces.num_entities, num_actions = (size_t)agent->spaces.num_actions;
    seat->agent = agent;
    seat->max_entities = -1;
    seat->state = (float *)ee__zeros((size_t)agent->state_size + 1, sizeof(float));
    seat->features = (const float **)ee__zeros(num_entities, sizeof(float *));
    seat->visible = (const unsigned char **)ee__zeros(num_entities, sizeof(char *));
    seat->requests = (ea_request *)ee__zeros(num_actions, sizeof(ea_request));
    seat->rows = (ee__bytes *)ee__zeros(num_actions, sizeof(ee__bytes));
    seat->answers = (ee__bytes *)ee__zeros(num_actions, sizeof(ee__bytes));
}

static void ea__close_seat(ea__seat *seat) {
    int i;
    for (i = 0; seat->agent && i < seat->agent->spaces.num_actions; i++) {
        free(seat->rows[i].data);
        free(seat->answers[i].data);
    }
    free(seat->memory);
    free(seat->state);
    free(seat->features);
    free(seat->visible);
    free(seat->requests);
    free(seat->rows);
    free(seat->answers);
}

/* What an observation asks for: rows of actors, then of actees. */
static void ea__request_of(ea__seat *seat, ee_agent *agent, int action) {
    ee__server *server = agent->copy->server;
    const ee_action *kind = &server->game->actions[action];
    ee__asked *asked = &agent->obs.asked[action];
    const int *entity = (const int *)(const void *)asked->entity.data;
    const int *number = (const int *)(const void *)asked->number.data;
    ea_request *request = &seat->requests[action];
    size_t width = ee__num_flags(server, &agent->obs, action);
    int i, *rows;
    memset(request, 0, sizeof *request);
    request->num_actors = asked->count;
    if (kind->kind == EE_SELECT_ENTITY) request->num_actees = agent->obs.counts[kind->selects];
    seat->rows[action].size = 0;
    rows = (int *)(void *)ee__grow(
        &seat->rows[action], sizeof(int) * ((size_t)request->num_actors + (size_t)request->num_actees)
    );
    request->actors = rows;
    request->actees = rows ? rows + request->num_actors : NULL;
    for (i = 0; i < asked->count && kind->kind != EE_GLOBAL_CATEGORICAL; i++) {
        rows[i] = (int)ee__index(&agent->obs, entity[i], number[i]);
    }
    for (i = 0; i < request->num_actees; i++) {
        rows[request->num_actors + i] = (int)ee__index(&agent->obs, kind->selects, i);
    }
    if (!asked->has_mask || kind->kind == EE_CONTINUOUS) return;
    if (asked->width != width) {
        ee__misuse("ee_mask: add all entities that can be selected before the first mask");
    }
    ee__complete_mask(server, &agent->obs, action);
    request->mask = asked->mask.data;
    request->is_dependent = server->game->num_given && server->game->num_given[action] &&
                            server->game->actions[action - 1].kind != EE_CONTINUOUS;
}

/* Makes room for the entities of an observation. */
static const char *ea__make_room(ea__seat *seat, const ee_agent *agent) {
    int i, count = 0;
    for (i = 0; i < seat->agent->spaces.num_entities; i++) {
        if (agent->obs.counts[i] > EA__MAX_ENTITIES - count) return "an observation has too many entities";
        count += agent->obs.counts[i];
    }
    if (count <= seat->max_entities) return NULL;
    seat->max_entities = count < EA__MAX_ENTITIES / 2 ? 2 * count : count;
    free(seat->memory);
    seat->memory = malloc(ea_workspace_size(seat->agent, seat->max_entities) + 1);
    seat->workspace = ea_workspace_in(seat->agent, seat->max_entities, seat->memory);
    return seat->workspace ? NULL : "an observation has too many entities for the agent";
}

/* Answers an observation. */
static const char *ea__answer_obs(ea__seat *seat, ee_agent *agent, uint64_t *random) {
    ee__server *server = agent->copy->server;
    const char *problem = ea__make_room(seat, agent);
    ea_obs obs;
    int i, k, num_asked = 0;
    if (problem) return problem;
    for (i = 0; i < server->game->num_entities; i++) {
        seat->features[i] = (const float *)(const void *)agent->obs.values[i].data;
        seat->visible[i] = agent->obs.visible[i].data;
    }
    for (k = 0; k < server->game->num_actions; k++) ea__request_of(seat, agent, k);
    obs.counts = agent->obs.counts;
    obs.features = seat->features;
    obs.globals = agent->obs.globals;
    obs.visible = agent->obs.has_hidden ? seat->visible : NULL;
    obs.requests = seat->requests;
    obs.state = seat->state;
    if (seat->agent->is_greedy) random = NULL;
    obs.random = random;
    problem = ea_think(seat->workspace, &obs, 1, 0);
    for (k = 0; k < server->game->num_actions; k++) num_asked += seat->requests[k].num_actors > 0;
    if (!problem && num_asked && seat->agent->state_size) { /* as in training, only decisions */
        memcpy(seat->state, seat->workspace->state, (size_t)seat->agent->state_size * sizeof(float));
    }
    for (k = 0; !problem && k < server->game->num_actions; k++) {
        int is_continuous = server->game->actions[k].kind == EE_CONTINUOUS;
        int count = seat->requests[k].num_actors;
        size_t width = is_continuous ? (size_t)server->num_labels[k] : 2; /* in numbers */
        unsigned char *data;
        seat->answers[k].size = 0;
        data = ee__grow(&seat->answers[k], sizeof(float) * width * (size_t)count);
        agent->num_answers[k] = count;
        agent->choices[k] = (int64_t *)(void *)data;
        agent->numbers[k] = (float *)(void *)data;
        for (i = 0; i < count; i++) {
            if (is_continuous) {
                ea_choose_numbers(seat->workspace, k, i, random, agent->numbers[k] + (size_t)i * width);
            } else {
                agent->choices[k][i] = ea_choose(seat->workspace, k, i, random);
            }
        }
    }
    return problem;
}

static void ea__free_obs(const ee_game *game, ee__obs *obs) {
    int i;
    for (i = 0; i < game->num_entities; i++) {
        free(obs->values[i].data);
        free(obs->visible[i].data);
    }
    for (i = 0; i < game->num_actions; i++) {
        free(obs->asked[i].entity.data);
        free(obs->asked[i].number.data);
        free(obs->asked[i].mask.data);
    }
    free(obs->values);
    free(obs->visible);
    free(obs->counts);
    free(obs->asked);
    free(obs->globals);
    free(obs->metrics);
}

/* Frees what `ee__prepare` and `ee__make_copies` have allocated. */
static void ea__free_server(ee__server *server) {
    int i;
    ee_copy *copy = server->copies;
    for (i = 0; copy && i < server->num_agents; i++) {
        ee_agent *agent = &copy->agents[i];
        ea__free_obs(server->game, &agent->obs);
        ea__free_obs(server->game, &agent->ends[0].obs);
        ea__free_obs(server->game, &agent->ends[1].obs);
        free(agent->choices);
        free(agent->numbers);
        free(agent->num_answers);
    }
    if (copy) {
        size_t page = (size_t)sysconf(_SC_PAGESIZE);
        if (copy->stack) munmap(copy->stack - page, page + EE_STACK_BYTES);
        free(copy->agents);
        free(copy->state);
        free(copy->failure.data);
    }
    free(copy);
    free(server->widths);
    free(server->num_labels);
    free(server->rows.slots);
    free(server->lasts.slots);
    free(server);
}

/* Plays the episode of the only copy. */
static const char *ea__play_copy(
    ee_copy *copy, ea__seat *seats, uint64_t seed, uint64_t *random, double *scores,
    void (*watch)(ee_copy *copy)
) {
    ee__server *server = copy->server;
    const char *problem = NULL;
    int i;
    ee__begin_copy(server, copy);
    ee__start(copy, seed);
    for (;;) {
        for (i = 0; scores && i < server->num_agents; i++) {
            if (copy->agents[i].num_ends) scores[i] = copy->agents[i].ends[0].obs.score;
        }
        if (copy->failure.size) {
            snprintf(ea__problem, sizeof ea__problem, "%.250s", (const char *)copy->failure.data);
            return ea__problem;
        }
        if (!copy->is_playing) return NULL;
        if (watch) watch(copy);
        for (i = 0; !problem && i < server->num_agents; i++) {
            if (copy->agents[i].waits) problem = ea__answer_obs(&seats[i], &copy->agents[i], random);
        }
        if (problem) {
            snprintf(ea__problem, sizeof ea__problem, "%.250s", problem);
            return ea__problem;
        }
        ee__begin_copy(server, copy);
        ee__step(copy);
    }
}

const char *ea_play(
    ee_game *game, const ea_agent *const *agents, uint64_t seed, uint64_t *random, double *scores,
    void (*watch)(ee_copy *copy)
) {
    ee__server *server = (ee__server *)ee__zeros(1, sizeof(ee__server)), *before = ee__running;
    ea__seat *seats = NULL;
    const char *problem = NULL;
    int i, num_seats = 0;
    if (!game->play && !(game->start && game->step)) problem = "ee_game: set play or start and step";
    server->game = game;
    server->num_envs = server->hold = server->is_gone = 1; /* gone: errors are only printed */
    ee__running = server;
    if (!problem) problem = ee__prepare(server);
    if (!problem) {
        num_seats = server->num_agents;
        seats = (ea__seat *)ee__zeros((size_t)num_seats, sizeof(ea__seat));
    }
    for (i = 0; !problem && i < num_seats; i++) {
        if (scores) scores[i] = 0;
        problem = ea__compare_spaces(&agents[i]->spaces, game);
        if (!problem) ea__open_seat(&seats[i], agents[i]);
    }
    if (!problem) {
        ee__make_copies(server);
        problem = ea__play_copy(server->copies, seats, seed, random, scores, watch);
        ee__leave(server->copies);
    }
    for (i = 0; i < num_seats; i++) ea__close_seat(&seats[i]);
    free(seats);
    ea__free_server(server);
    ee__running = before;
    return problem;
}

#endif /* ENTITY_ENV_H */

#endif /* ENTITY_AGENT_IMPLEMENTATION */
