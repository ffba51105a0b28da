/* Fuzzes the client for C with messages of a host: `fuzz_messages FORM SEED FRAMES`, where FORM is
   `play` or `step`. Each conversation is valid up to a message that may be damaged. The client must
   answer with messages of the right form, end with an ERROR or at the end of the connection, and
   allocate in proportion to the bytes that arrived. Sanitizers find the rest. */

#define _DEFAULT_SOURCE 1
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* ------------------------------------------------------------------ memory that is counted */

typedef struct block {
    struct block *next, *last;
    size_t size, unused; /* the size of this struct is a multiple of 16 */
} block;

static block blocks = {&blocks, &blocks, 0, 0};
static size_t allocated, received; /* received: bytes from the host */
static void *stacks[4096];
static size_t stack_bytes[4096];
static int num_stacks;

static void require(int is_right, const char *what);

/* A message that is not complete takes 1 MiB, doubled; a copy takes at most 16 kB for 16 bytes. */
static void *fuzz_realloc(void *memory, size_t size) {
    block *old = memory ? (block *)memory - 1 : NULL, *made;
    if (old) {
        allocated -= old->size;
        old->last->next = old->next;
        old->next->last = old->last;
    }
    allocated += size;
    require(allocated <= (4u << 20) + 1024 * received, "memory in proportion to what arrived");
    made = (block *)realloc(old, sizeof(block) + size);
    if (!made) abort();
    made->size = size;
    made->next = &blocks;
    made->last = blocks.last;
    blocks.last->next = made;
    blocks.last = made;
    return made + 1;
}

static void *fuzz_calloc(size_t count, size_t size) {
    return memset(fuzz_realloc(NULL, count * size), 0, count * size);
}

static void *fuzz_mmap(void *at, size_t size, int may, int how, int file, off_t offset) {
    require(num_stacks < 4096 && (size_t)num_stacks < received / 16, "a stack per copy");
    stack_bytes[num_stacks] = size;
    return stacks[num_stacks++] = mmap(at, size, may, how, file, offset);
}

static void free_all(void) {
    while (blocks.next != &blocks) {
        block *next = blocks.next;
        blocks.next = next->next;
        free(next);
    }
    blocks.last = &blocks;
    while (num_stacks) {
        num_stacks--;
        munmap(stacks[num_stacks], stack_bytes[num_stacks]);
    }
    allocated = 0;
}

static ssize_t fuzz_read(int file, void *data, size_t size);
static ssize_t fuzz_write(int file, const void *data, size_t size);
static void fuzz_exit(int status) __attribute__((noreturn));

#define realloc fuzz_realloc
#define calloc fuzz_calloc
#define mmap fuzz_mmap
#define read fuzz_read
#define write fuzz_write
#define exit fuzz_exit
#undef stderr
#define stderr silent
#define dup(file) (file)
#define dup2(from, to) (to)
#define open(path, how) 9
#define close(file) ((void)(file))
#define fcntl(file, what, how) ((void)(file))
static FILE *silent;
#define ENTITY_ENV_IMPLEMENTATION
#include "entity_env.h"
#undef realloc
#undef calloc
#undef mmap
#undef read
#undef write
#undef exit
#undef stderr
#undef dup
#undef dup2
#undef open
#undef close
#undef fcntl

/* ------------------------------------------------------------------ a game */

enum { CAR, ROCK };

static const char *const x[] = {"x", NULL}, *const nothing[] = {NULL};
static const ee_entity entities[] = {{"Car", x}, {"Rock", nothing}};
static const char *const flags[] = {"LOW", "MID", "HIGH", NULL}, *const turns[] = {"L", "R", NULL};
static const char *const wheels[] = {"wheel", "gas", NULL};
static const float low[] = {-1, 0}, high[] = {1, 2};
static const ee_action actions[] = {
    {"Flag", EE_GLOBAL_CATEGORICAL, flags, 0, NULL, NULL},
    {"Turn", EE_CATEGORICAL, turns, 0, NULL, NULL},
    {"Steer", EE_CONTINUOUS, wheels, 0, low, high},
    {"Pick", EE_SELECT_ENTITY, NULL, ROCK, NULL, NULL},
};
static ee_setting settings[] = {
    {"size", EE_INT, 3}, {"wind", EE_FLOAT, 0.5}, {"is_night", EE_BOOL, 0}};

typedef struct {
    ee_random random;
    int left;
} state;

/* Reads all answers, which must be allowed. */
static void use(ee_agent *agent) {
    int i, j, k;
    for (k = 0; k < 4; k++) {
        const ee__asked *asked = &agent->obs.asked[k];
        size_t width = ee__num_choices(ee__running, &agent->obs, k);
        for (i = 0; i < ee_num_answers(agent, k); i++) {
            if (actions[k].kind == EE_CONTINUOUS) {
                for (j = 0; j < 2; j++) {
                    require(isfinite(ee_numbers(agent, k, i)[j]), "a number is finite");
                }
                continue;
            }
            j = ee_choice(agent, k, i);
            require(j >= 0 && (size_t)j < width, "a choice is in range");
            if (asked->has_mask) {
                require(asked->mask.data[(size_t)i * width + (size_t)j], "a choice is allowed");
            }
        }
    }
}

static void show(ee_agent *agent, ee_random *random) {
    int i, num_cars = 1 + (int)ee_below(random, 2), num_rocks = 1 + (int)ee_below(random, 3);
    float value = 1;
    ee_observe(agent, 1);
    for (i = 0; i < num_cars; i++) ee_add(agent, CAR, &value);
    for (i = 0; i < num_rocks; i++) (i ? ee_add_hidden : ee_add)(agent, ROCK, NULL);
    if (ee_below(random, 2)) {
        ee_ask(agent, 0);
        if (ee_below(random, 2)) ee_mask(agent, 0)[ee_below(random, 3)] = 0;
    }
    for (i = 0; i < num_cars; i++) {
        ee_actor(agent, 1, CAR, i);
        ee_actor(agent, 2, CAR, i);
        if (ee_below(random, 2)) ee_mask(agent, 1)[ee_below(random, 2)] = 0;
        ee_actor(agent, 3, CAR, i);
        if (num_rocks > 1 && ee_below(random, 2)) ee_mask(agent, 3)[0] = 0;
    }
}

/* Shows the next turn; returns 0 if the episode is over. */
static int turn(ee_copy *copy, state *s) {
    int i;
    if (ee_below(&s->random, 16) == 0) {
        ee_fail(copy, "a \"fault\"");
        return 0;
    }
    for (i = 0; i < 2; i++) {
        show(ee_agent_of(copy, i), &s->random);
        if (!s->left) {
            ee_end(ee_agent_of(copy, i), (int)ee_below(&s->random, 2));
        } else {
            ee_wait(ee_agent_of(copy, i));
        }
    }
    if (!s->left && ee_below(&s->random, 4) == 0) ee_fail(copy, "after the end");
    return s->left-- > 0;
}

static void play(ee_copy *copy, uint64_t seed) {
    state s;
    s.random.state = seed;
    s.left = (int)ee_below(&s.random, 4);
    while (turn(copy, &s)) {
        if (!ee_yield(copy)) return;
        use(ee_agent_of(copy, 0));
        use(ee_agent_of(copy, 1));
    }
}

static void start(ee_copy *copy, uint64_t seed) {
    state *s = (state *)ee_state(copy);
    s->random.state = seed;
    s->left = (int)ee_below(&s->random, 4);
    turn(copy, s);
}

static void step(ee_copy *copy) {
    use(ee_agent_of(copy, 0));
    use(ee_agent_of(copy, 1));
    turn(copy, (state *)ee_state(copy));
}

/* ------------------------------------------------------------------ a host */

static ee_random random_of_host;
static ee__bytes message; /* what the host sends next */
static size_t at;
static int is_damaged, is_odd, num_left, num_in_conversation, num_copies;
static uint32_t last_kind;
static long num_frames, num_errors, num_steps;
static jmp_buf end;
static uint64_t seed_of_fuzz;

static void require(int is_right, const char *what) {
    if (is_right) return;
    fprintf(
        stderr, "frame %ld, seed %llu: %s\n", num_frames, (unsigned long long)seed_of_fuzz, what
    );
    abort();
}

static uint32_t draw(uint32_t limit) { return ee_below(&random_of_host, limit); }

static void put(uint64_t value, size_t size) {
    if (message.size + size > message.capacity) {
        message.capacity = 2 * (message.size + size);
        message.data = (unsigned char *)realloc(message.data, message.capacity);
        if (!message.data) abort();
    }
    memcpy(message.data + message.size, &value, size);
    message.size += size;
}

static void put_start(void) {
    static const char *const values[] = {
        "3", "0.25", "true", "-7", "1e999", "\"a\\\"}\"", "{}", "null", "9007199254740993", ""};
    char text[512];
    int i, length;
    is_odd = draw(4) == 0;
    num_copies = 1 + (int)draw(6);
    length = snprintf(
        text, sizeof text,
        "{\"protocol\": %s, \"num_envs\": %s%d, \"first_env\": 0, \"hold\": %s, \"settings\": "
        "{\"size\": %s, \"wind\": %s, \"is_night\": %s}}",
        is_odd && draw(8) == 0 ? values[draw(10)] : "1", is_odd && draw(2) ? "99999" : "",
        num_copies, draw(2) ? "true" : "false", is_odd && draw(4) == 0 ? values[draw(10)] : "4",
        is_odd && draw(4) == 0 ? values[draw(10)] : "1.5",
        is_odd && draw(4) == 0 ? values[draw(10)] : "true"
    );
    for (i = 0; i < length; i++) put((unsigned char)text[i], 1);
    while (message.size % 8) put(' ', 1);
}

static void put_reset(int is_first) {
    int i, chosen[8], count = 0;
    for (i = 0; i < num_copies; i++) {
        if (is_first || draw(3) == 0) chosen[count++] = i;
    }
    if (!count) chosen[count++] = 0;
    put((uint64_t)count, 8);
    for (i = 0; i < count; i++) put((uint64_t)chosen[i], 8);
    for (i = 0; i < count; i++) put(ee_draw(&random_of_host), 8);
}

static void put_answer(ee_agent *agent, int action, size_t actor) {
    const ee__asked *asked = &agent->obs.asked[action];
    size_t num = ee__num_choices(ee__running, &agent->obs, action), i;
    if (actions[action].kind == EE_CONTINUOUS) {
        float value = (float)draw(3) - 1;
        uint32_t bits;
        memcpy(&bits, &value, 4);
        for (i = 0; i < num; i++) put(bits, 4);
        return;
    }
    do i = draw((uint32_t)num);
    while (asked->has_mask && !asked->mask.data[actor * num + i]);
    put(i, 8);
}

static void put_act(void) {
    int i, j, k, n;
    for (i = 0; i < num_copies; i++) put(ee_draw(&random_of_host), 8);
    for (k = 0; k < 4; k++) {
        for (i = 0; i < num_copies; i++) {
            for (j = 0; j < 2; j++) {
                ee_agent *agent = &ee__running->copies[i].agents[j];
                for (n = 0; agent->waits && n < agent->obs.asked[k].count; n++) {
                    put_answer(agent, k, (size_t)n);
                }
            }
        }
        while (message.size % 8) put(0, 1);
    }
}

/* Changes bytes or numbers of the message, its size, or how much of it is sent. */
static void damage(void) {
    static const uint64_t numbers[] = {
        0, 1, 7, 8, UINT64_MAX, INT64_MAX, (uint64_t)INT64_MIN, 1u << 20, 1u << 28, (1u << 28) + 8,
        UINT64_C(0x7FF8000000000000), UINT64_C(0x7F8000007FC00000), UINT64_C(1) << 32, 65535};
    uint64_t value = numbers[draw(sizeof numbers / sizeof *numbers)];
    uint32_t place, i, how = draw(10);
    is_damaged = 1;
    place = draw((uint32_t)message.size);
    if (how == 0) message.data[place] ^= (unsigned char)(1 << draw(8));
    if (how == 1) message.data[place] = (unsigned char)draw(256);
    if (how == 2) memcpy(message.data + place / 8 * 8, &value, 8);
    if (how == 9 && message.size >= 24) {
        value = draw(4); /* a choice, often one that is not allowed */
        memcpy(message.data + 16 + place % ((uint32_t)message.size - 16) / 8 * 8, &value, 8);
    }
    if (how == 3) memcpy(message.data + 8, &value, 8);
    if (how == 4) message.data[4] = (unsigned char)draw(10);
    if (how == 5) message.size = place; /* what follows is the end of the connection */
    if (how == 7) message.size -= 8 * draw((uint32_t)message.size / 8 - 1);
    if (how == 8) put(value, 8);
    value = message.size - 16;
    if (how == 7 || how == 8) memcpy(message.data + 8, &value, 8);
    if (how == 6) {
        for (i = 16; i < message.size; i++) message.data[i] = (unsigned char)draw(256);
    }
}

/* Writes the next message of a host; none if the conversation is over. */
static void write_message(void) {
    int num = num_in_conversation++;
    uint64_t size;
    uint32_t kind = num == 0 ? EE__START : num == 1 || draw(6) == 0 ? EE__RESET : EE__ACT;
    message.size = at = 0;
    if (num_left-- == 0 || is_damaged) return;
    memcpy(&size, "ENE1\0\0\0", 8);
    put(size | (uint64_t)kind << 32, 8);
    put(0, 8);
    if (kind == EE__START) put_start();
    if (kind == EE__RESET) put_reset(num == 1);
    if (kind == EE__ACT) put_act();
    size = message.size - 16;
    memcpy(message.data + 8, &size, 8);
    if (draw(8) == 0) damage();
    num_frames++;
}

/* Sends the message in pieces. */
static ssize_t fuzz_read(int file, void *data, size_t size) {
    (void)file;
    if (at == message.size) write_message();
    if (!size || at == message.size) return 0;
    if (draw(2)) size = 1 + draw((uint32_t)(size < 4096 ? size : 4096));
    if (size > message.size - at) size = message.size - at;
    memcpy(data, message.data + at, size);
    at += size;
    received += size;
    return (ssize_t)size;
}

static ssize_t fuzz_write(int file, const void *data, size_t size) {
    const unsigned char *sent = (const unsigned char *)data;
    uint64_t num_bytes;
    (void)file;
    require(size >= 16 && !memcmp(sent, "ENE1", 4), "start of an answer");
    memcpy(&last_kind, sent + 4, 4);
    memcpy(&num_bytes, sent + 8, 8);
    require(num_bytes == size - 16 && num_bytes % 8 == 0, "size of an answer");
    require(last_kind == EE__HELLO || last_kind == EE__READY || last_kind == EE__STEP ||
            last_kind == EE__ERROR, "kind of an answer");
    if (last_kind == EE__STEP) {
        uint64_t num_ends;
        memcpy(&num_ends, sent + 16, 8);
        require(num_ends <= 4 * (uint64_t)num_copies, "number of ends");
        num_steps++;
    }
    return (ssize_t)size;
}

static void fuzz_exit(int status) {
    require(status == 1 && last_kind == EE__ERROR, "the last message is an ERROR");
    require(is_damaged || is_odd, "a valid message is not refused");
    num_errors++;
    longjmp(end, 1);
}

static void converse(ee_game *game) {
    game->settings[0].value = 3;
    is_damaged = is_odd = num_in_conversation = 0;
    last_kind = 0;
    num_left = 2 + (int)draw(30);
    received = at = message.size = 0;
    if (!setjmp(end)) ee_serve(game);
    free_all();
}

int main(int num_words, char **words) {
    ee_game game;
    long wanted;
    if (num_words != 4) return 2;
    silent = fopen("/dev/null", "w");
    if (!silent) return 2;
    setenv("ENTITY_ENV_ADDRESS", "stdio", 1);
    memset(&game, 0, sizeof game);
    game.name = "fuzz";
    game.num_agents = 2;
    game.entities = entities, game.num_entities = 2;
    game.actions = actions, game.num_actions = 4;
    game.settings = settings, game.num_settings = 3;
    game.state_size = sizeof(state);
    if (!strcmp(words[1], "play")) {
        game.play = play;
    } else {
        game.start = start, game.step = step;
    }
    seed_of_fuzz = random_of_host.state = strtoull(words[2], NULL, 10);
    wanted = strtol(words[3], NULL, 10);
    while (num_frames < wanted) converse(&game);
    printf("%ld frames, %ld answers, %ld errors\n", num_frames, num_steps, num_errors);
    return 0;
}
