/* See runtime.h. Names of sizes: V, D, L, H, F, C and d as in FORMAT.md. Sums that may wrap are unsigned.
 *
 * All parts are one translation unit, so that the compiler can inline across them. */
#include "runtime.h"

#include "kernels.h"

#define EXP_ENTRIES 704
#define GELU_ENTRIES 1024
#define LARGEST_RESIDUAL (1 << 22)
#define LARGEST_BIAS ((1 << 24) - 1)
#define LARGEST_SHARPENED ((1 << 30) - 1)
#define LARGEST_ADDED (1 << 17)
#define ONE 665 /* the logarithm of 32768, in 64ths */
#define INLINE static inline __attribute__((always_inline)) /* parts of a function, with no cost of their own */

static uint32_t get16(const uint8_t *p) {
    return p[0] | (uint32_t)p[1] << 8;
}

static uint32_t get32(const uint8_t *p) {
    return get16(p) | get16(p + 2) << 16;
}

uint32_t tt_crc32_of(uint32_t crc, const uint8_t *p, size_t size) {
    static const uint32_t table[16] = {
        0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4, 0x4db26158, 0x5005713c,
        0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c, 0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c,
    };
    while (size--) {
        crc ^= *p++;
        crc = crc >> 4 ^ table[crc & 15];
        crc = crc >> 4 ^ table[crc & 15];
    }
    return crc;
}

#include "model_file.c"

#include "vocabulary_file.c"

const char *tt_open(struct tt *t, const uint8_t *model, size_t model_size, const uint8_t *vocabulary,
                    size_t vocabulary_size, void *arena, size_t arena_size) {
    const char *reason = open_model(t, model, model_size, arena, arena_size);
    if (!reason)
        reason = open_vocabulary(t, vocabulary, vocabulary_size, get32(model + 32), get32(model + 36));
    if (!reason)
        tt_start(t);
    return reason;
}

#include "text.c"

#include "inference.c"

#include "choice.c"

#ifndef TT_FIRMWARE
void tt_both(struct tt_work *work, uint32_t count, uint32_t unit) {
    (void)unit;
    work->first = work->share(work, work->start, work->start + count);
    work->second = 0;
}

void tt_fetch(void *to, const uint8_t *from, uint32_t size) {
    for (uint32_t i = 0; i < size >> 2; i++)
        ((uint32_t *)to)[i] = ((const uint32_t *)(const void *)from)[i];
}

void tt_fetched(void) {
}

void tt_fetch_end(void) {
}

uint32_t tt_crc32(const uint8_t *bytes, size_t size) {
    return ~tt_crc32_of(0xffffffff, bytes, size);
}

uint32_t tt_divide(uint32_t a, uint32_t b) {
    return a / b;
}
#endif
