/* The loops that take most of the time: in kernels.c in C, some of them also for a Cortex-M33's products of 16 bits, and in
 * matvec.S, attention.S, activation.S and sampling.S for a Cortex-M0+. */
#ifndef TT_KERNELS_H
#define TT_KERNELS_H

#include <stdint.h>

#ifdef TT_FIRMWARE
#define TT_HOT __attribute__((section(".time_critical"))) /* runs from SRAM */
#define TT_SCRATCH /* on the stack of either core */
#else
#define TT_HOT
#define TT_SCRATCH static
#endif
#ifdef __ARM_FEATURE_DSP
#define TT_DSP
#elif defined(TT_FIRMWARE)
#define TT_ASSEMBLY
#endif
#define TT_APART __attribute__((noinline)) /* its loops need all of the few registers, or one copy saves space */

/* State of one head's attention, shared by its loops; attention.S relies on the offsets. In order of time, the ring of
 * positions holds `old` ones, stored after the newest one, then `recent` ones, stored from its start to the newest. */
struct tt_attention {
    const uint16_t *exp;
    const int32_t *query; /* [d], negated */
    int32_t lowest;       /* score */
    uint32_t offset;      /* (score + offset) >> 10 is the index into the table of exp */
    uint32_t total;       /* weight */
    uint32_t width;       /* d */
    uint32_t old, recent;
};

/* out[i] = bias[i] + sum of (weights[i][j] - 128) x[j]; rows are even and interleaved in pairs, columns a multiple of
 * 4; `sum` is the sum of x, which the caller knows. */
void tt_matvec(int32_t *out, const uint8_t *weights, const int32_t *bias, const int32_t *x, uint32_t rows,
               uint32_t columns, int32_t sum);

/* scores[u] = distance[u] + sum of query[i] keys[u][i], in order of time; the lowest goes to a->lowest. */
typedef void tt_scores(struct tt_attention *a, const uint8_t *keys, const int32_t *distance, int32_t *scores);

/* sums[i] = sum of weight[u] values[u][i]; the weights' sum goes to a->total. The scores may be overwritten. */
typedef void tt_gather(struct tt_attention *a, const uint8_t *values, int32_t *scores, uint32_t *sums);

tt_scores tt_scores_any;
tt_gather tt_gather_any;
#ifdef TT_DSP
tt_scores tt_scores_4;
tt_gather tt_gather_4;
#elif defined(TT_ASSEMBLY)
tt_scores tt_scores_1, tt_scores_2;
tt_gather tt_gather_1, tt_gather_2;
#endif

/* Units in which rows of a matrix are shared, as powers of two: interleaved pairs, or the fours that tt_gelu takes. */
#define PAIRS 1
#define FOURS 2
#define SINGLY 0 /* heads */

/* Work on a step that two cores can share. A share reads nothing that the other share writes, and begins by overwriting
 * its own output, so that it can be redone. */
struct tt;
struct tt_layer;
struct tt_matrix;

/* The candidates to draw from: logits less than `reach` below the largest and, at places before `place`, also those at
 * exactly this distance. */
struct tt_field {
    uint32_t reach, place, factor; /* factor: of a distance, in 256ths */
};

struct tt_work {
    int32_t (*share)(const struct tt_work *work, uint32_t from, uint32_t to);
    struct tt *t;
    const struct tt_layer *layer;
    const struct tt_matrix *matrix;
    const uint8_t *weights; /* of the matrix, from row `start` on */
    uint32_t start;
    const int32_t *x; /* what the matrix multiplies */
    const uint8_t *shifts;
    const struct tt_field *field;
    uint32_t columns;
    int32_t total;         /* of x */
    uint32_t middle, end;  /* of the second core's share */
    int32_t first, second; /* what the shares return; 0 if there is no second one */
};

/* Runs the work on start .. start + count - 1, in shares of multiples of 1 << unit. */
void tt_both(struct tt_work *work, uint32_t count, uint32_t unit);

/* Begins to copy a part of the model file, of whole words. Until tt_fetch_end nothing else of the file can be read. */
void tt_fetch(void *to, const uint8_t *from, uint32_t size);

/* Waits until the copy is complete. */
void tt_fetched(void);

void tt_fetch_end(void);

/* In place: sums[i] = gelu of the scaled sums[i]. Returns the sum of all. */
int32_t tt_gelu(int32_t *sums, const uint16_t *multiplier, uint32_t rows, uint32_t pre, uint32_t post,
                const int16_t *table);

/* In place: sums[i] = (sums[i] >> pre) multiplier[i]. Returns the index of the largest, the first of equal ones. */
uint32_t tt_logits(int32_t *sums, const uint16_t *multiplier, uint32_t rows, uint32_t pre);

/* Writes the logits' weights, by their distance below `largest` and 0 from `reach` on, and returns their sum. */
int32_t tt_chances(const int32_t *logits, uint16_t *weights, uint32_t count, int32_t largest, uint32_t reach,
                   uint32_t factor, uint32_t post, const uint16_t *exp);

#endif
