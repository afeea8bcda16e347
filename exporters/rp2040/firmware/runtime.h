/* A tiny transformer in integers: reads the files of FORMAT.md from memory and runs them. Freestanding, no allocation.
 *
 *     size_t needed = tt_arena_size(model, model_size);
 *     const char *reason = tt_open(&t, model, model_size, vocabulary, vocabulary_size, arena, arena_size);
 *     tt_start(&t);
 *     tt_step(&t, 0, 0);                     a story starts with token 0
 *     tt_step(&t, token, 1);                 ... then the prompt, its last token with logits
 *     token = tt_greedy(&t);
 */
#ifndef TT_RUNTIME_H
#define TT_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

#define TT_MODEL_HEADER 40 /* of version 1; 8 bytes more in version 2, 16 in version 3 */
#define TT_MOST_TABLES 4
#define TT_LONGEST_BUCKET 64 /* of counts */
#define TT_COUNTED 4         /* tokens of the longest context with counts */
#define TT_VOCABULARY_HEADER 24
#define TT_END 0     /* the boundary of stories */
#define TT_UNKNOWN 1 /* stands for a byte without a token */

struct tt_matrix {
    const uint8_t *weights;
    const int32_t *bias;
    const uint16_t *multiplier;
};

struct tt_layer {
    const uint8_t *shifts; /* in the order of the file */
    struct tt_matrix qkv, out, up, down;
    const int32_t *distance; /* -1024 x the distance bias */
    uint8_t *keys, *values;  /* [H][C][d], each + 128 */
};

/* Matrices that stay in the file come in portions of rows, through two buffers: one is filled while the other is used. */
#define TT_PORTION 4096 /* bytes */
struct tt_stream {
    uint8_t *buffer[2];
    void *head;                    /* biases and multipliers of the layer at work, or those of the embedding */
    uint32_t head_bytes;           /* of a layer */
    uint32_t gap;                  /* bytes of the file from the start of these to the layer's weights */
    uint32_t rows[2];              /* of a portion, for matrices of `width` columns and of `hidden` columns */
    const struct tt_matrix *next;  /* the matrix of the next portion, ... */
    uint32_t part, row, turn;      /* ... its number in the layer, the portion's first row and its buffer */
};

/* Rows of the memory, which stay in the file: a fingerprint, 0, u16 multiplier, D weights + 128. */
struct tt_table {
    const uint8_t *rows;
    uint32_t shift; /* of a context's hash to its row */
};

struct tt {
    uint32_t vocabulary, width, layers, heads, head_width, hidden, context;
    uint32_t pre_logits, post_logits, post_embedding;
    uint32_t root_width; /* isqrt(D 2^20) 2^12 */
    const uint16_t *exp;
    const int16_t *gelu;
    struct tt_matrix embedding;
    struct tt_layer *layer;
    uint32_t streamed; /* the matrices stay in the file */
    struct tt_stream stream;
    int32_t *x, *normed, *query, *sums; /* D, D, D, and the largest of V, F, 3D + 2C */
    uint16_t *candidates;               /* V, for sampling */
    uint32_t slot, filled;              /* ring of C positions: place of the next one, number of those present */
    uint32_t best;                      /* the greedy choice */
    uint32_t tables, post_memory;
    struct tt_table table[TT_MOST_TABLES];
    uint32_t recent[1 + TT_MOST_TABLES]; /* tokens, the newest first */
    const uint8_t *buckets, *entries;    /* of the counts, in the file: u32 each; NULL if there are none */
    uint32_t bucket_shift;               /* of a context's hash to its bucket */

    const uint8_t *byte_tokens, *merges, *token_starts, *token_bytes; /* in the vocabulary file */
    uint32_t num_merges;
    uint32_t model_bytes, vocabulary_bytes, arena_bytes;
};

/* Bytes of arena that the model with this header needs; 0 if the header is invalid. The vocabulary is not copied. */
size_t tt_arena_size(const uint8_t *model, size_t model_size);

/* The same for a model whose matrices stay in the file, from which each step copies them portion by portion. */
size_t tt_arena_least(const uint8_t *model, size_t model_size);

/* Checks both files and copies the model without its memory and counts into the arena, which must be aligned like a pointer;
 * its matrices only if they fit there. The sizes are the bytes that may be read. Returns NULL, or one line that says why the
 * files are refused. Both files have to stay in place. */
const char *tt_open(struct tt *t, const uint8_t *model, size_t model_size, const uint8_t *vocabulary,
                    size_t vocabulary_size, void *arena, size_t arena_size);

/* Writes the tokens of a text, at most one per byte. Returns how many; -1 if `max_tokens` is less than `size`. */
int tt_encode(const struct tt *t, const uint8_t *text, size_t size, uint16_t *tokens, size_t max_tokens);

/* The bytes of a token. */
const uint8_t *tt_token_bytes(const struct tt *t, uint32_t token, size_t *size);

/* Empties the cache: the next step is the first position. */
void tt_start(struct tt *t);

/* Runs one more position. Leaves the logits in t->sums[0 .. V - 1] if they are wanted. */
void tt_step(struct tt *t, uint32_t token, int want_logits);

/* The token with the largest logit, the first of equal ones. */
uint32_t tt_greedy(const struct tt *t);

/* The random generator's first state for a seed. */
uint32_t tt_seed(uint32_t seed);

/* Draws a token. `temperature` is 13 to 2560, in 256ths; a `top_k` of 0 keeps all; the generator's `state` is not 0. */
uint32_t tt_sample(struct tt *t, uint32_t temperature, uint32_t top_k, uint32_t *state);

/* The CRC-32 of zlib and Ethernet. */
uint32_t tt_crc32(const uint8_t *bytes, size_t size);

/* The CRC's state after more bytes; 0xffffffff before the first, and inverted after the last. */
uint32_t tt_crc32_of(uint32_t state, const uint8_t *bytes, size_t size);

/* a / b, rounded down. */
uint32_t tt_divide(uint32_t a, uint32_t b);

#endif
