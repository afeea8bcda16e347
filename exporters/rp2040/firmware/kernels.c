/* See kernels.h. */
#include "kernels.h"

#define EXP_REACH (704u << 10)

#ifdef TT_DSP
/* Two products of 16 bits are one instruction. */
static inline uint32_t both_products(uint32_t a, uint32_t b, uint32_t sum) {
    __asm__("smlad %0, %1, %2, %3" : "=r"(sum) : "r"(a), "r"(b), "r"(sum));
    return sum;
}

/* Bytes 0 and 2 as 16 bits, and bytes 1 and 3. */
static inline uint32_t even_bytes(uint32_t word) {
    uint32_t bytes;
    __asm__("uxtb16 %0, %1" : "=r"(bytes) : "r"(word));
    return bytes;
}

static inline uint32_t odd_bytes(uint32_t word) {
    uint32_t bytes;
    __asm__("uxtb16 %0, %1, ror #8" : "=r"(bytes) : "r"(word));
    return bytes;
}

static inline uint32_t pack(int32_t low, int32_t high) {
    return (uint32_t)(uint16_t)low | (uint32_t)high << 16;
}

/* Two columns of a pair of rows: the bytes of a word alternate between the even row and the odd row. */
#define TWO_COLUMNS(word, x, even, odd) \
    "uxtb16 %[part], %[" word "]\n smlad %[" even "], %[part], %[" x "], %[" even "]\n" \
    "uxtb16 %[part], %[" word "], ror #8\n smlad %[" odd "], %[part], %[" x "], %[" odd "]\n"

/* Four columns of two pairs of rows. */
#define FOUR_COLUMNS \
    "ldrd %[w0], %[w1], [%[first]], #8\n ldrd %[x0], %[x1], [%[xs]], #8\n" \
    TWO_COLUMNS("w0", "x0", "sum0", "sum1") TWO_COLUMNS("w1", "x1", "sum0", "sum1") \
    "ldrd %[w0], %[w1], [%[second]], #8\n" \
    TWO_COLUMNS("w0", "x0", "sum2", "sum3") TWO_COLUMNS("w1", "x1", "sum2", "sum3")

/* In one asm statement, as a compiler runs out of registers otherwise. */
#define MULTIPLY(instructions) \
    __asm__(instructions \
            : [first] "+r"(first), [second] "+r"(second), [xs] "+r"(xs), [sum0] "+r"(sum0), [sum1] "+r"(sum1), \
              [sum2] "+r"(sum2), [sum3] "+r"(sum3), [w0] "=&r"(w0), [w1] "=&r"(w1), [x0] "=&r"(x0), [x1] "=&r"(x1), \
              [part] "=&r"(part) \
            : [end] "r"(end) \
            : "cc", "memory")

/* All inputs of matrices fit 16 bits: norms by the limits of FORMAT.md, attended values below 32,768 in size, hidden units
 * below 16,384. Two pairs of rows share each loaded x; a last single pair is computed twice. */
TT_HOT void tt_matvec(int32_t *out, const uint8_t *weights, const int32_t *bias, const int32_t *x, uint32_t rows,
                      uint32_t columns, int32_t sum) {
    TT_SCRATCH uint32_t packed[512];
    uint32_t bytes = 2 * columns, start = -128 * (uint32_t)sum, *to = packed, x0, x1, w0, w1;
    for (const int32_t *x_end = x + columns; x != x_end;)
        __asm__("ldm %[x]!, {r0, r1, r2, r3}\n pkhbt r0, r0, r1, lsl #16\n pkhbt r2, r2, r3, lsl #16\n stm %[to]!, {r0, r2}"
                : [x] "+r"(x), [to] "+r"(to)::"r0", "r1", "r2", "r3", "memory");
    const uint32_t *end = to;
    const uint8_t *first = weights;
    for (int32_t spare[4];; rows -= 4, bias += 4, out += 4) {
        const uint8_t *second = first + bytes;
        const int32_t *biases = bias;
        int32_t *sums = out;
        if (rows < 4) {
            if (!rows)
                return;
            spare[0] = spare[2] = bias[0];
            spare[1] = spare[3] = bias[1];
            second = first;
            biases = sums = spare;
        }
        const uint32_t *xs = packed;
        uint32_t part, sum0 = start + (uint32_t)biases[0], sum1 = start + (uint32_t)biases[1];
        uint32_t sum2 = start + (uint32_t)biases[2], sum3 = start + (uint32_t)biases[3];
        for (uint32_t left = bytes & 24; left; left -= 8)
            MULTIPLY(FOUR_COLUMNS);
        if (xs != end)
            MULTIPLY("1:\n" FOUR_COLUMNS FOUR_COLUMNS FOUR_COLUMNS FOUR_COLUMNS "cmp %[xs], %[end]\n bne 1b\n");
        sums[0] = (int32_t)sum0;
        sums[1] = (int32_t)sum1;
        sums[2] = (int32_t)sum2;
        sums[3] = (int32_t)sum3;
        first = second;
        if (rows < 4) {
            out[0] = (int32_t)sum0;
            out[1] = (int32_t)sum1;
            return;
        }
    }
}

/* Heads of a multiple of 4 channels. */
TT_HOT void tt_scores_4(struct tt_attention *a, const uint8_t *keys, const int32_t *distance, int32_t *scores) {
    uint32_t query[128 / 2], words = a->width >> 1;
    for (uint32_t i = 0; i < words; i += 2) {
        const int32_t *q = a->query + 2 * i;
        query[i] = pack(q[0], q[2]);
        query[i + 1] = pack(q[1], q[3]);
    }
    const uint32_t *key = (const uint32_t *)(const void *)(keys + a->recent * a->width), *query_end = query + words;
    int32_t *newer = scores + a->old, *end = newer + a->recent, lowest = INT32_MAX;
    for (; scores != end; scores++) {
        if (scores == newer)
            key = (const uint32_t *)(const void *)keys;
        uint32_t score = (uint32_t)*distance++;
        for (const uint32_t *q = query; q != query_end; q += 2) {
            uint32_t word = *key++;
            score = both_products(even_bytes(word), q[0], score);
            score = both_products(odd_bytes(word), q[1], score);
        }
        *scores = (int32_t)score;
        if ((int32_t)score < lowest)
            lowest = (int32_t)score;
    }
    a->lowest = lowest;
}

TT_HOT void tt_gather_4(struct tt_attention *a, const uint8_t *values, int32_t *scores, uint32_t *sums) {
    uint32_t words = a->width >> 2, total = 0;
    int32_t *newer = scores + a->old, *end = newer + a->recent;
    for (int32_t *score = scores; score != end; score++) {
        uint32_t below = (uint32_t)*score + a->offset, weight = below < EXP_REACH ? a->exp[below >> 10] : 0;
        *score = (int32_t)weight;
        total += weight;
    }
    a->total = total;
    for (uint32_t i = 0; i < words; i++, sums += 4) {
        const uint32_t *value = (const uint32_t *)(const void *)values + a->recent * words + i;
        uint32_t sum0 = 0, sum1 = 0, sum2 = 0, sum3 = 0;
        for (const int32_t *weight = scores; weight != end; weight++, value += words) {
            if (weight == newer)
                value = (const uint32_t *)(const void *)values + i;
            uint32_t word = *value, w = (uint32_t)*weight;
            sum0 += (word & 0xff) * w;
            sum1 += (word >> 8 & 0xff) * w;
            sum2 += (word >> 16 & 0xff) * w;
            sum3 += (word >> 24) * w;
        }
        sums[0] = sum0;
        sums[1] = sum1;
        sums[2] = sum2;
        sums[3] = sum3;
    }
}
#elif !defined(TT_ASSEMBLY)
void tt_matvec(int32_t *out, const uint8_t *weights, const int32_t *bias, const int32_t *x, uint32_t rows,
               uint32_t columns, int32_t sum) {
    for (uint32_t row = 0; row < rows; row += 2, weights += 2 * columns)
        for (uint32_t i = 0; i < 2; i++) {
            uint32_t product = (uint32_t)bias[row + i] - 128 * (uint32_t)sum;
            for (uint32_t j = 0; j < columns; j++)
                product += weights[2 * j + i] * (uint32_t)x[j];
            out[row + i] = (int32_t)product;
        }
}
#endif

TT_HOT void tt_scores_any(struct tt_attention *a, const uint8_t *keys, const int32_t *distance, int32_t *scores) {
    const uint8_t *key = keys + a->recent * a->width;
    const int32_t *newer = scores + a->old, *end = newer + a->recent, *query_end = a->query + a->width;
    int32_t lowest = INT32_MAX;
    for (; scores != end; scores++) {
        if (scores == newer)
            key = keys;
        int32_t score = *distance++;
        for (const int32_t *query = a->query; query != query_end;)
            score += *query++ * *key++;
        *scores = score;
        if (score < lowest)
            lowest = score;
    }
    a->lowest = lowest;
}

/* The sum of weights[u] values[u d]. */
TT_HOT static uint32_t weighted(const int32_t *weights, uint32_t count, const uint8_t *values, uint32_t stride) {
    uint32_t sum = 0;
    for (const int32_t *end = weights + count; weights != end; values += stride)
        sum += (uint32_t)*weights++ * *values;
    return sum;
}

TT_HOT void tt_gather_any(struct tt_attention *a, const uint8_t *values, int32_t *scores, uint32_t *sums) {
    uint32_t width = a->width, count = a->old + a->recent, total = 0;
    for (uint32_t u = 0; u < count; u++) {
        uint32_t below = (uint32_t)scores[u] + a->offset;
        uint32_t weight = below < EXP_REACH ? a->exp[below >> 10] : 0;
        scores[u] = (int32_t)weight;
        total += weight;
    }
    a->total = total;
    const uint8_t *older = values + a->recent * width;
    for (uint32_t i = 0; i < width; i++)
        sums[i] = weighted(scores, a->old, older + i, width) +
                  weighted(scores + a->old, a->recent, values + i, width);
}

#ifndef TT_ASSEMBLY
TT_HOT int32_t tt_gelu(int32_t *sums, const uint16_t *multiplier, uint32_t rows, uint32_t pre, uint32_t post,
                const int16_t *table) {
    int32_t half = 1 << (post - 1), total = 0;
    for (int32_t *end = sums + rows; sums != end; sums++) {
        int32_t place = (((*sums >> pre) * *multiplier++ + half) >> post) + 512;
        if ((uint32_t)place < 1024)
            *sums = table[place];
        else if (place < 0)
            *sums = 0;
        else
            *sums = (place - 512 > 2047 ? 2047 : place - 512) * 8;
        total += *sums;
    }
    return total;
}

TT_HOT uint32_t tt_logits(int32_t *sums, const uint16_t *multiplier, uint32_t rows, uint32_t pre) {
    int32_t largest = INT32_MIN, *best = sums, *start = sums;
    for (int32_t *end = sums + rows; sums != end; sums++) {
        int32_t logit = (*sums >> pre) * *multiplier++;
        *sums = logit;
        if (logit > largest) {
            largest = logit;
            best = sums;
        }
    }
    return (uint32_t)(best - start);
}

TT_HOT int32_t tt_chances(const int32_t *logits, uint16_t *weights, uint32_t count, int32_t largest, uint32_t reach,
                   uint32_t factor, uint32_t post, const uint16_t *exp) {
    int32_t total = 0;
    for (const int32_t *end = logits + count; logits != end; logits++) {
        uint32_t below = (uint32_t)(largest - *logits), weight = 0;
        if (below < reach)
            weight = exp[(below >> post) * factor >> 8];
        *weights++ = (uint16_t)weight;
        total += (int32_t)weight;
    }
    return total;
}
#endif
