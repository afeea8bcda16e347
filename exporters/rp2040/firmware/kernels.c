/* See kernels.h. */
#include "kernels.h"

#define EXP_REACH (704u << 10)

#ifndef TT_FIRMWARE
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

#ifndef TT_FIRMWARE
int32_t tt_gelu(int32_t *sums, const uint16_t *multiplier, uint32_t rows, uint32_t pre, uint32_t post,
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

uint32_t tt_logits(int32_t *sums, const uint16_t *multiplier, uint32_t rows, uint32_t pre) {
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

int32_t tt_chances(const int32_t *logits, uint16_t *weights, uint32_t count, int32_t largest, uint32_t reach,
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
