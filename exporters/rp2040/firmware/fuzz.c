/* A libFuzzer target. An input is 4 bytes of the model's length, 1 byte of repairs, the model, the vocabulary. Bit 0 of
 * the repairs corrects the size and CRC fields, so that inputs pass those checks; bit 1 makes the vocabulary the one
 * that belongs to the model; bit 2 leaves the matrices in the file. Models that open are also run. */
#include <stdlib.h>
#include <string.h>

#include "runtime.h"

#define LARGEST_ARENA (1 << 20)

static void put32(uint8_t *p, uint32_t value) {
    for (int i = 0; i < 4; i++)
        p[i] = (uint8_t)(value >> 8 * i);
}

static uint32_t crc32(const uint8_t *p, size_t size) {
    uint32_t crc = 0xffffffff;
    while (size--) {
        crc ^= *p++;
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? crc >> 1 ^ 0xedb88320 : crc >> 1;
    }
    return ~crc;
}

/* A copy of exactly this size, so that the sanitizer notices every read past its end. */
static uint8_t *copy(const uint8_t *bytes, size_t size) {
    uint8_t *copied = malloc(size ? size : 1);
    if (!copied)
        abort();
    if (size)
        memcpy(copied, bytes, size);
    return copied;
}

static void run(struct tt *t, const uint8_t *text, size_t size) {
    uint16_t tokens[64];
    uint32_t state = 1;
    size = size > 64 ? 64 : size;
    int count = tt_encode(t, text, size, tokens, 64);
    if (count < 0 || (size_t)count > size)
        abort();
    tt_start(t);
    tt_step(t, TT_END, count == 0);
    for (int i = 0; i < count; i++)
        tt_step(t, tokens[i], i == count - 1);
    for (int i = 0; i < 6; i++) {
        size_t length;
        uint32_t token = i & 1 ? tt_sample(t, 256, (uint32_t)i, &state) : tt_greedy(t);
        if (token >= t->vocabulary)
            abort();
        tt_token_bytes(t, token, &length);
        tt_step(t, token, 1);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size) {
    if (size < 5)
        return 0;
    size_t model_size = input[0] | (size_t)input[1] << 8 | (size_t)input[2] << 16 | (size_t)input[3] << 24;
    uint8_t repairs = input[4];
    input += 5;
    size -= 5;
    if (model_size > size)
        model_size = size;
    size_t vocabulary_size = size - model_size;
    uint8_t *model = copy(input, model_size), *vocabulary = copy(input + model_size, vocabulary_size);
    if (repairs & 1 && vocabulary_size >= TT_VOCABULARY_HEADER) {
        put32(vocabulary + 8, (uint32_t)vocabulary_size);
        put32(vocabulary + 12, crc32(vocabulary + 16, vocabulary_size - 16));
    }
    if (repairs & 2 && model_size >= TT_MODEL_HEADER && vocabulary_size >= TT_VOCABULARY_HEADER)
        memcpy(model + 32, vocabulary + 8, 8);
    if (repairs & 1 && model_size >= TT_MODEL_HEADER) {
        put32(model + 8, (uint32_t)model_size);
        put32(model + 12, crc32(model + 16, model_size - 16));
    }
    size_t arena_size = repairs & 4 ? tt_arena_least(model, model_size) : tt_arena_size(model, model_size);
    if (arena_size <= LARGEST_ARENA) {
        void *arena = malloc(arena_size + 1);
        struct tt t;
        if (!arena)
            abort();
        if (!tt_open(&t, model, model_size, vocabulary, vocabulary_size, arena, arena_size))
            run(&t, vocabulary, vocabulary_size);
        free(arena);
    }
    free(model);
    free(vocabulary);
    return 0;
}
