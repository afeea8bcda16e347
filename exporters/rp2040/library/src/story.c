/* See story.h. */
#include "story.h"

#include "model.h"
#include "runtime.h"

/* A layer has 16 pointers, which are longer on a computer of 64 bits. */
static uint64_t arena[(STORY_ARENA + 16 * STORY_LAYERS * (sizeof(void *) - 4) + 7) / 8];
static uint16_t tokens[STORY_PROMPT];
static struct tt t;

const struct story_settings story_defaults = {STORY_TEMPERATURE, STORY_TOP_K, STORY_TOKENS, STORY_SEED};

const char *story_open(void) {
    return tt_open(&t, (const uint8_t *)story_model, sizeof story_model, (const uint8_t *)story_vocabulary,
                   sizeof story_vocabulary, arena, sizeof arena);
}

/* Chooses the next token. */
static uint32_t choose(const struct story_settings *s, uint32_t *state) {
    return s->temperature ? tt_sample(&t, s->temperature, s->top_k, state) : tt_greedy(&t);
}

uint32_t story_tell(const char *prompt, const struct story_settings *settings, story_put *put, void *where) {
    const struct story_settings *s = settings ? settings : &story_defaults;
    uint32_t state = tt_seed(s->seed), told = 0;
    size_t size = 0;
    while (size < STORY_PROMPT && prompt[size])
        size++;
    int count = tt_encode(&t, (const uint8_t *)prompt, size, tokens, STORY_PROMPT);
    tt_start(&t);
    tt_step(&t, TT_END, count == 0);
    for (int i = 0; i < count; i++)
        tt_step(&t, tokens[i], i == count - 1);
    while (told < s->tokens) {
        uint32_t token = choose(s, &state);
        if (token == TT_END)
            break;
        const uint8_t *bytes = tt_token_bytes(&t, token, &size);
        told++;
        if (!put(token, bytes, size, where))
            break;
        tt_step(&t, token, 1);
    }
    return told;
}
