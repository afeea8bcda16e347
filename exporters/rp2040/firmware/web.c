/* The runtime for WebAssembly, of one model and one story at a time.
 *
 * The page puts the model, the vocabulary, an arena and the text behind __heap_base, and calls what is exported here. */
#include "runtime.h"

#define EXPORT(name) __attribute__((export_name(#name)))

static struct tt model;
static uint32_t state;       /* of the random numbers */
static size_t token_length;  /* bytes of the token last asked for */

EXPORT(arena_size) size_t web_arena_size(const uint8_t *file, size_t size) {
    return tt_arena_size(file, size);
}

/* Returns 0, or the reason for a refusal. */
EXPORT(open) const char *web_open(const uint8_t *file, size_t size, const uint8_t *vocabulary, size_t vocabulary_size,
                                  void *arena, size_t arena_size) {
    return tt_open(&model, file, size, vocabulary, vocabulary_size, arena, arena_size);
}

/* Begins a story with a text; `tokens` has room for one token per byte. Returns the number of tokens. */
EXPORT(begin) int web_begin(const uint8_t *text, size_t size, uint16_t *tokens, uint32_t seed) {
    int count = tt_encode(&model, text, size, tokens, size);
    state = tt_seed(seed);
    tt_start(&model);
    tt_step(&model, TT_END, count == 0);
    for (int i = 0; i < count; i++)
        tt_step(&model, tokens[i], i == count - 1);
    return count;
}

/* Chooses the next token, greedily at a temperature of 0, and runs its step; token 0 ends the story. */
EXPORT(next) uint32_t web_next(uint32_t temperature, uint32_t top_k) {
    uint32_t token = temperature ? tt_sample(&model, temperature, top_k, &state) : tt_greedy(&model);
    if (token != TT_END)
        tt_step(&model, token, 1);
    return token;
}

EXPORT(token_bytes) const uint8_t *web_token_bytes(uint32_t token) {
    return tt_token_bytes(&model, token, &token_length);
}

EXPORT(token_length) size_t web_token_length(void) {
    return token_length;
}
