/* Part of runtime.c: one step of the transformer, from a token to logits. */

static inline int32_t scale(int32_t value, int32_t multiplier, uint32_t post) {
    return (value * multiplier + (1 << (post - 1))) >> post;
}

static inline int32_t sat(int32_t value, int32_t most) {
    return value > most ? most : value < -most ? -most : value;
}

TT_HOT static uint32_t isqrt(uint32_t value) {
    uint32_t root = 0, bit = 1u << 30;
    while (bit > value)
        bit >>= 2;
    for (; bit; bit >>= 2) {
        uint32_t next = root + bit;
        root >>= 1;
        if (value >= next) {
            value -= next;
            root += bit;
        }
    }
    return root;
}

TT_HOT static uint32_t bit_length(uint32_t value) {
    uint32_t bits = 0;
    for (uint32_t step = 16; step; step >>= 1)
        if (value >> step) {
            value >>= step;
            bits += step;
        }
    return bits + value;
}

/* Puts the norm of t->x into t->normed and returns its sum. */
TT_HOT TT_APART static int32_t norm(struct tt *t) {
    int32_t *out = t->normed;
    const int32_t *x = t->x;
    uint32_t width = t->width;
    int32_t sum = 0, bits = 0;
    for (uint32_t i = 0; i < width; i++)
        sum += x[i];
    for (uint32_t i = 0; i < width; i++) {
        int32_t deviation = (int32_t)width * x[i] - sum;
        out[i] = deviation;
        bits |= deviation ^ (deviation >> 31);
    }
    uint32_t length = bit_length((uint32_t)bits), squares = 0;
    if (length == 0) {
        for (uint32_t i = 0; i < width; i++)
            out[i] = 0;
        return 0;
    }
    uint32_t right = length >= 12 ? length - 12 : 0, left = length >= 12 ? 0 : 12 - length;
    for (uint32_t i = 0; i < width; i++) {
        int32_t scaled = (int32_t)((uint32_t)(out[i] >> right) << left);
        out[i] = scaled;
        squares += (uint32_t)(scaled * scaled);
    }
    int32_t ratio = (int32_t)tt_divide(t->root_width, isqrt(squares));
    sum = 0;
    for (uint32_t i = 0; i < width; i++) {
        out[i] = (out[i] * ratio + 2048) >> 12;
        sum += out[i];
    }
    return sum;
}

TT_HOT static void embed(struct tt *t, uint32_t token) {
    const uint8_t *weights = t->embedding.weights + (token & ~1u) * t->width + (token & 1);
    int32_t multiplier = t->embedding.multiplier[token];
    for (uint32_t i = 0; i < t->width; i++)
        t->x[i] = scale(weights[2 * i] - 128, multiplier, t->post_embedding);
}

/* In place: values[i] = sat(scale(values[i] >> pre, multiplier[i], post), most). */
TT_HOT TT_APART static void rescale(int32_t *values, const uint16_t *multiplier, uint32_t count, uint32_t pre,
                                    uint32_t post, int32_t most) {
    int32_t half = 1 << (post - 1);
    for (int32_t *end = values + count; values != end; values++)
        *values = sat(((*values >> pre) * *multiplier++ + half) >> post, most);
}

/* Puts the values of one position into a cache laid out by heads. */
TT_HOT TT_APART static void keep(uint8_t *cache, const int32_t *values, uint32_t width, uint32_t head_width,
                                 uint32_t stride) {
    for (const int32_t *end = values + width; values != end; cache += stride)
        for (uint32_t i = 0; i < head_width; i++)
            cache[i] = (uint8_t)(*values++ + 128);
}

/* Leaves queries, negated, in t->query and puts keys and values into the cache. */
TT_HOT TT_APART static void split_qkv(struct tt *t, const struct tt_layer *layer) {
    uint32_t width = t->width, d = t->head_width, stride = t->context * d, place = t->slot * d;
    const uint8_t *shifts = layer->shifts;
    const uint16_t *multiplier = layer->qkv.multiplier;
    int32_t *q = t->sums, *k = q + width, *v = k + width, *query = t->query;
    rescale(q, multiplier, width, shifts[0], shifts[1], 32767);
    rescale(k, multiplier + width, width, shifts[0], shifts[2], 127);
    rescale(v, multiplier + 2 * width, width, shifts[0], shifts[3], 127);
    while (q != k)
        *query++ = -*q++;
    keep(layer->keys + place, k, width, d, stride);
    keep(layer->values + place, v, width, d, stride);
}

/* Attention of the newest position. A score is kept as -1024 x itself, up to a constant, before its bits are rounded
 * off: u = -(sum of q (k + 128)) - 1024 bias, so the smallest u belongs to the largest score. With
 * N = sum of q k + 1024 bias = -(u + 128 sum of q), which is 1024 x the score before rounding,
 * max - score = max - (N >> 10) = (1024 max - N + 1023) >> 10 = (u + offset) >> 10.
 * The output goes to t->normed; returns its sum. */
TT_HOT TT_APART static int32_t attend(struct tt *t, const struct tt_layer *layer) {
    uint32_t d = t->head_width, context = t->context;
    const int32_t *query = t->query, *distance = layer->distance + context - t->filled;
    const uint8_t *keys = layer->keys, *values = layer->values;
    int32_t *out = t->normed, *scores = t->sums + 3 * t->width;
    tt_scores *score = tt_scores_any;
    tt_gather *gather = tt_gather_any;
#ifdef TT_FIRMWARE
    if (d <= 2) {
        score = d == 1 ? tt_scores_1 : tt_scores_2;
        gather = d == 1 ? tt_gather_1 : tt_gather_2;
    }
#endif
    int32_t total = 0;
    struct tt_attention a;
    a.exp = t->exp;
    a.width = d;
    a.recent = t->slot + 1;
    a.old = t->filled - a.recent;
    for (uint32_t head = 0; head < t->heads; head++) {
        a.query = query;
        score(&a, keys, distance, scores);
        uint32_t shift = 0;
        for (uint32_t i = 0; i < d; i++)
            shift -= 128 * (uint32_t)*query++;
        int32_t largest = -(int32_t)((uint32_t)a.lowest + shift) >> 10;
        a.offset = ((uint32_t)largest << 10) + shift + 1023;
        gather(&a, values, scores, (uint32_t *)out);
        int32_t reciprocal = (int32_t)tt_divide(1u << 31, a.total);
        for (uint32_t i = 0; i < d; i++, out++) {
            int32_t sum = (int32_t)((uint32_t)*out - 128 * a.total);
            *out = ((sum >> 7) * reciprocal) >> 16;
            total += *out;
        }
        keys += context * d;
        values += context * d;
        distance += context;
    }
    return total;
}

/* x += matrix times y, in the residual stream; `total` is the sum of y. */
TT_HOT TT_APART static void add(struct tt *t, const struct tt_matrix *matrix, const int32_t *y, uint32_t columns,
                                int32_t total, const uint8_t *shifts) {
    uint32_t pre = shifts[0], post = shifts[1];
    const int32_t *sum = t->query, half = 1 << (post - 1);
    const uint16_t *multiplier = matrix->multiplier;
    tt_matvec(t->query, matrix->weights, matrix->bias, y, t->width, columns, total);
    for (int32_t *x = t->x, *end = x + t->width; x != end; x++) {
        int32_t added = (sat(*sum++ >> pre, 32767) * *multiplier++ + half) >> post;
        *x = sat(*x + added, LARGEST_RESIDUAL);
    }
}

void tt_start(struct tt *t) {
    t->slot = t->filled = 0;
    t->best = 0;
}

TT_HOT void tt_step(struct tt *t, uint32_t token, int want_logits) {
    uint32_t width = t->width, hidden = t->hidden;
    if (t->filled < t->context)
        t->filled++;
    embed(t, token);
    for (uint32_t i = 0; i < t->layers; i++) {
        const struct tt_layer *layer = &t->layer[i];
        const uint8_t *shifts = layer->shifts;
        int32_t total = norm(t);
        tt_matvec(t->sums, layer->qkv.weights, layer->qkv.bias, t->normed, 3 * width, width, total);
        split_qkv(t, layer);
        total = attend(t, layer);
        add(t, &layer->out, t->normed, width, total, shifts + 4);
        total = norm(t);
        tt_matvec(t->sums, layer->up.weights, layer->up.bias, t->normed, hidden, width, total);
        total = tt_gelu(t->sums, layer->up.multiplier, hidden, shifts[6], shifts[7], t->gelu);
        add(t, &layer->down, t->sums, hidden, total, shifts + 8);
    }
    if (++t->slot == t->context)
        t->slot = 0;
    if (want_logits) {
        const struct tt_matrix *output = &t->embedding;
        int32_t total = norm(t);
        tt_matvec(t->sums, output->weights, output->bias, t->normed, t->vocabulary, width, total);
        t->best = tt_logits(t->sums, output->multiplier, t->vocabulary, t->pre_logits);
    }
}
