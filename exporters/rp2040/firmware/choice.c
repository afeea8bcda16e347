/* Part of runtime.c: chooses a token by its logits, greedily or at random. */

TT_HOT uint32_t tt_greedy(const struct tt *t) {
    return t->best;
}

/* Returns true if candidate `a` would be dropped before candidate `b`. */
static inline int is_worse(const int32_t *logits, uint32_t a, uint32_t b) {
    return logits[a] < logits[b] || (logits[a] == logits[b] && a > b);
}

/* Sifts `token` down from `place` into heap[0 .. size - 1], which has the worst candidate on top. */
TT_HOT static void sift(const int32_t *logits, uint16_t *heap, uint32_t size, uint32_t place, uint32_t token) {
    for (uint32_t child; (child = 2 * place + 1) < size; place = child) {
        if (child + 1 < size && is_worse(logits, heap[child + 1], heap[child]))
            child++;
        if (!is_worse(logits, heap[child], token))
            break;
        heap[place] = heap[child];
    }
    heap[place] = (uint16_t)token;
}

/* The worst of the top_k candidates. */
TT_HOT static uint32_t worst_candidate(const int32_t *logits, uint32_t count, uint16_t *heap, uint32_t top_k) {
    for (uint32_t i = 0; i < top_k; i++)
        heap[i] = (uint16_t)i;
    for (uint32_t i = top_k / 2; i-- > 0;)
        sift(logits, heap, top_k, i, i);
    int32_t least = logits[heap[0]];
    for (uint32_t i = top_k; i < count; i++)
        if (logits[i] > least) {
            sift(logits, heap, top_k, 0, i);
            least = logits[heap[0]];
        }
    return heap[0];
}

/* a b >> 24 for a below 2^24 and b up to 2^27, without a 64-bit product. */
static inline uint32_t product_high(uint32_t a, uint32_t b) {
    uint32_t a_high = a >> 12, a_low = a & 0xfff, b_high = b >> 12, b_low = b & 0xfff;
    return a_high * b_high + ((a_high * b_low + a_low * b_high + (a_low * b_low >> 12)) >> 12);
}

/* Without the multiplication, the first draws of a small seed would all be near 0. */
uint32_t tt_seed(uint32_t seed) {
    uint32_t state = seed * 0x9e3779b1u;
    return state ? state : 1;
}

TT_HOT uint32_t tt_sample(struct tt *t, uint32_t temperature, uint32_t top_k, uint32_t *state) {
    uint32_t count = t->vocabulary, total = 0, post = t->post_logits, factor = tt_divide(65536, temperature);
    const int32_t *logits = t->sums;
    uint16_t *weights = t->candidates;
    uint32_t worst = 0, everything = top_k == 0 || top_k >= count;
    if (!everything)
        worst = worst_candidate(logits, count, t->candidates, top_k);
    uint32_t largest = (uint32_t)logits[t->best];
    for (uint32_t i = 0; i < count; i++) {
        uint32_t below = (largest - (uint32_t)logits[i]) >> post, weight = 0;
        if (below > 65535)
            below = 65535;
        below = below * factor >> 8;
        if (below < EXP_ENTRIES && (everything || !is_worse(logits, i, worst)))
            weight = t->exp[below];
        weights[i] = (uint16_t)weight;
        total += weight;
    }
    uint32_t s = *state;
    s ^= s << 13;
    s ^= s >> 17;
    s ^= s << 5;
    *state = s;
    uint32_t threshold = product_high(s >> 8, total), sum = 0, chosen = 0;
    while ((sum += weights[chosen]) <= threshold)
        chosen++;
    return chosen;
}
