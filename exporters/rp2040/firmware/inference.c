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
    if (t->streamed)
        multiplier = (int32_t)get16(t->embedding.weights - 6 * t->vocabulary + 2 * token);
    for (uint32_t i = 0; i < t->width; i++)
        t->x[i] = scale(weights[2 * i] - 128, multiplier, t->post_embedding);
}

/* Adds to t->x the memory's rows of the contexts that end with the newest token. */
TT_APART static void remember(struct tt *t) {
    /* Not constant, so that it lies in SRAM. */
    static uint32_t factor[1 + TT_MOST_TABLES] = {0x9e3779b1, 0x85ebca6b, 0xc2b2ae35, 0x27d4eb2f, 0x165667b1};
    uint32_t hash = t->recent[0] * factor[0], width = t->width, post = t->post_memory;
    int32_t *x = t->x;
    for (uint32_t i = 0; i < t->tables; i++) {
        hash += t->recent[1 + i] * factor[1 + i];
        const uint8_t *row = t->table[i].rows + (hash >> t->table[i].shift) * (4 + width);
        if (row[0] != (hash & 0xff))
            continue;
        int32_t multiplier = row[2] | row[3] << 8;
        for (uint32_t j = 0; j < width; j++)
            x[j] += scale(row[4 + j] - 128, multiplier, post);
    }
    for (uint32_t j = 0; j < width; j++)
        x[j] = sat(x[j], LARGEST_RESIDUAL);
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

/* ---- Shares of a step: what one core or two do ---- */

/* Rows of queries, keys and values, rescaled, into t->sums. */
TT_HOT static int32_t share_qkv(const struct tt_work *w, uint32_t from, uint32_t to) {
    const struct tt_matrix *matrix = w->matrix;
    uint32_t width = w->t->width;
    tt_matvec(w->t->sums + from, w->weights + (from - w->start) * width, matrix->bias + from, w->x, to - from, width,
              w->total);
    for (uint32_t part = 0; part < 3; part++) {
        uint32_t start = part * width, end = start + width;
        start = start < from ? from : start;
        end = end > to ? to : end;
        if (start < end)
            rescale(w->t->sums + start, matrix->multiplier + start, end - start, w->shifts[0], w->shifts[1 + part],
                    part ? 127 : 32767);
    }
    return 0;
}

/* Attention of the newest position, by heads. A score is kept as -1024 x itself, up to a constant, before its bits are
 * rounded off: u = -(sum of q (k + 128)) - 1024 bias, so the smallest u belongs to the largest score. With
 * N = sum of q k + 1024 bias = -(u + 128 sum of q), which is 1024 x the score before rounding,
 * max - score = max - (N >> 10) = (1024 max - N + 1023) >> 10 = (u + offset) >> 10.
 * The output goes to t->normed; returns its sum. */
TT_HOT static int32_t share_heads(const struct tt_work *w, uint32_t from, uint32_t to) {
    const struct tt *t = w->t;
    uint32_t d = t->head_width, context = t->context;
    const int32_t *query = t->query + from * d;
    const int32_t *distance = w->layer->distance + from * context + context - t->filled;
    const uint8_t *keys = w->layer->keys + from * context * d, *values = w->layer->values + from * context * d;
    int32_t *out = t->normed + from * d, *scores = t->sums + 3 * t->width + (from ? context : 0);
    tt_scores *score = tt_scores_any;
    tt_gather *gather = tt_gather_any;
#ifdef TT_DSP
    if (!(d & 3)) {
        score = tt_scores_4;
        gather = tt_gather_4;
    }
#elif defined(TT_ASSEMBLY)
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
    for (uint32_t head = from; head < to; head++) {
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

/* Rows of a matrix times w->x into t->query. They are added to the residual stream later, so that a share can be redone. */
TT_HOT static int32_t share_sums(const struct tt_work *w, uint32_t from, uint32_t to) {
    const struct tt_matrix *matrix = w->matrix;
    tt_matvec(w->t->query + from, w->weights + (from - w->start) * w->columns, matrix->bias + from, w->x, to - from,
              w->columns, w->total);
    return 0;
}

/* Hidden units into t->sums; returns their sum. */
TT_HOT static int32_t share_hidden(const struct tt_work *w, uint32_t from, uint32_t to) {
    const struct tt_matrix *matrix = w->matrix;
    int32_t *out = w->t->sums + from;
    uint32_t width = w->t->width;
    tt_matvec(out, w->weights + (from - w->start) * width, matrix->bias + from, w->x, to - from, width, w->total);
    return tt_gelu(out, matrix->multiplier + from, to - from, w->shifts[6], w->shifts[7], w->t->gelu);
}

/* Logits into t->sums; returns the token of the largest. */
TT_HOT static int32_t share_logits(const struct tt_work *w, uint32_t from, uint32_t to) {
    const struct tt_matrix *matrix = w->matrix;
    int32_t *out = w->t->sums + from;
    uint32_t width = w->t->width;
    tt_matvec(out, w->weights + (from - w->start) * width, matrix->bias + from, w->x, to - from, width, w->total);
    return (int32_t)(from + tt_logits(out, matrix->multiplier + from, to - from, w->t->pre_logits));
}

/* The sum of the weights of logits at temperature 1. */
TT_HOT static int32_t share_weights(const struct tt_work *w, uint32_t from, uint32_t to) {
    const int32_t *logit = w->t->sums + from, *end = w->t->sums + to;
    const uint16_t *exp = w->t->exp;
    int32_t largest = w->t->sums[w->t->best], total = 0;
    uint32_t post = w->t->post_logits;
    for (; logit != end; logit++) {
        uint32_t below = (uint32_t)(largest - *logit) >> post;
        if (below < EXP_ENTRIES)
            total += exp[below];
    }
    return total;
}

/* ---- Matrices, in the arena or on their way from the file ---- */

/* Begins to fetch the next portion, if there is one, into the buffer whose turn it is. */
TT_HOT TT_APART static void fetch_ahead(struct tt *t) {
    struct tt_stream *s = &t->stream;
    if (!s->next)
        return;
    uint32_t down = s->part == 3, count = s->rows[down], columns = down ? t->hidden : t->width;
    uint32_t rows = s->part == 0 ? 3 * t->width : s->part == 2 ? t->hidden : s->part == 4 ? t->vocabulary : t->width;
    if (count > rows - s->row)
        count = rows - s->row;
    tt_fetch(s->buffer[s->turn], s->next->weights + s->row * columns, count * columns);
    s->turn ^= 1;
    s->row += count;
    if (s->row < rows)
        return;
    s->row = 0;
    s->next = s->part < 3 ? s->next + 1 : NULL;
    s->part++;
}

/* Fetches biases and multipliers, then begins with the matrices: a layer's four, parts 0 to 3, or the embedding, part 4. */
TT_HOT TT_APART static void begin_stream(struct tt *t, const struct tt_matrix *first, uint32_t part) {
    struct tt_stream *s = &t->stream;
    uint32_t size = part ? 6 * t->vocabulary : s->head_bytes;
    tt_fetch(s->head, first->weights - (part ? size : s->gap), size);
    tt_fetched();
    s->next = first;
    s->part = part;
    s->row = 0;
    fetch_ahead(t);
}

/* Multiplies portion by portion, with the same result as all rows at once. */
TT_HOT TT_APART static int32_t multiply_streamed(struct tt *t, struct tt_work *w, uint32_t count, uint32_t columns,
                                                 uint32_t unit) {
    uint32_t most = t->stream.rows[columns != t->width];
    int32_t total = 0, best = 0;
    while (w->start < count) {
        uint32_t left = count - w->start, rows = left < most ? left : most;
        tt_fetched();
        w->weights = t->stream.buffer[t->stream.turn ^ 1];
        fetch_ahead(t);
        tt_both(w, rows, unit);
        total += w->first + w->second;
        if (w->share == share_logits) { /* whose results are tokens, not sums */
            best = t->sums[w->first] > t->sums[best] ? w->first : best;
            best = t->sums[w->second] > t->sums[best] ? w->second : best;
        }
        w->start += rows;
    }
    w->start = 0;
    w->first = w->second = best;
    return total;
}

/* Runs w->share over the rows of a matrix; returns the sum of its results. */
INLINE int32_t multiply(struct tt *t, struct tt_work *w, const struct tt_matrix *matrix, uint32_t count, uint32_t columns,
                        uint32_t unit) {
    w->matrix = matrix;
    w->weights = matrix->weights;
    if (t->streamed)
        return multiply_streamed(t, w, count, columns, unit);
    tt_both(w, count, unit);
    return w->first + w->second;
}

/* ---- A step ---- */

/* 64 times the natural logarithm of a value from 1 to 2^28 - 1, within one. */
TT_APART static int32_t logarithm(uint32_t value) {
    uint32_t bits = bit_length(value) - 1;
    uint32_t part = (bits >= 15 ? value >> (bits - 15) : value << (15 - bits)) - 32768;
    uint32_t power = (bits << 15) + part + ((part * (32768 - part) >> 15) * 11272 >> 15);
    return (int32_t)((power >> 4) * 2839 >> 17);
}

/* Mixes the counts of the newest tokens' contexts into the logits, whose weights sum to `total`. */
TT_APART static void sharpen(struct tt *t, uint32_t total) {
    int32_t *logits = t->sums, largest = logits[t->best], whole = logarithm(total) - ONE;
    uint32_t post = t->post_logits, code = 0;
    const uint16_t *exp = t->exp;
    for (uint32_t order = 0; order < TT_COUNTED; order++) {
        code = (code + t->recent[order] + 1) * 0x1b873593;
        const uint8_t *bucket = t->buckets + 4 * (code >> t->bucket_shift);
        const uint8_t *entry = t->entries + 4 * get32(bucket), *end = t->entries + 4 * get32(bucket + 4);
        uint32_t tag = code >> 6 & 1023, added = 0;
        for (; entry != end; entry += 4) {
            uint32_t packed = get32(entry), token = packed & 4095, level = packed >> 22;
            if ((packed >> 12 & 1023) != tag)
                continue;
            added += level < EXP_ENTRIES ? exp[level] : 0;
            int32_t more = whole - (int32_t)level + ((largest - logits[token]) >> post);
            int32_t far = more < 0 ? -more : more, change = more < 0 ? 0 : more;
            if (far < EXP_ENTRIES)
                change += logarithm(32768u + exp[far]) - ONE;
            int32_t raised = (int32_t)((uint32_t)logits[token] + ((uint32_t)change << post));
            logits[token] = raised = raised > LARGEST_SHARPENED ? LARGEST_SHARPENED : raised;
            if (raised > logits[t->best] || (raised == logits[t->best] && token < t->best))
                t->best = token;
        }
        whole += logarithm(32768 + (added > LARGEST_ADDED ? LARGEST_ADDED : added)) - ONE;
        if (t->recent[order] == TT_END)
            return;
    }
}

/* Puts the queries, negated, into t->query, and keys and values into the cache. */
TT_HOT TT_APART static void split_qkv(struct tt *t, const struct tt_layer *layer) {
    uint32_t width = t->width, d = t->head_width, stride = t->context * d, place = t->slot * d;
    const int32_t *q = t->sums, *k = q + width;
    int32_t *query = t->query;
    while (q != k)
        *query++ = -*q++;
    keep(layer->keys + place, k, width, d, stride);
    keep(layer->values + place, k + width, width, d, stride);
}

/* x += matrix times y, in the residual stream; `w` has the sum of y. */
TT_HOT TT_APART static void add(struct tt *t, struct tt_work *w, const struct tt_matrix *matrix, const int32_t *y,
                                uint32_t columns, const uint8_t *shifts) {
    uint32_t pre = shifts[0], post = shifts[1];
    const int32_t *sum = t->query, half = 1 << (post - 1);
    const uint16_t *multiplier = matrix->multiplier;
    w->x = y;
    w->columns = columns;
    w->share = share_sums;
    multiply(t, w, matrix, t->width, columns, PAIRS);
    for (int32_t *x = t->x, *end = x + t->width; x != end; x++) {
        int32_t added = (sat(*sum++ >> pre, 32767) * *multiplier++ + half) >> post;
        *x = sat(*x + added, LARGEST_RESIDUAL);
    }
}

void tt_start(struct tt *t) {
    t->slot = t->filled = 0;
    t->best = 0;
    for (uint32_t i = 0; i <= TT_MOST_TABLES; i++)
        t->recent[i] = TT_END;
}

TT_HOT void tt_step(struct tt *t, uint32_t token, int want_logits) {
    struct tt_work w; /* what a share reads is set before it runs */
    uint32_t width = t->width;
    w.t = t;
    w.start = 0;
    if (t->filled < t->context)
        t->filled++;
    for (uint32_t i = TT_MOST_TABLES; i; i--)
        t->recent[i] = t->recent[i - 1];
    t->recent[0] = token;
    embed(t, token);
    if (t->tables)
        remember(t);
    for (uint32_t i = 0; i < t->layers; i++) {
        const struct tt_layer *layer = w.layer = &t->layer[i];
        const uint8_t *shifts = w.shifts = layer->shifts;
        if (t->streamed)
            begin_stream(t, &layer->qkv, 0);
        w.x = t->normed;
        w.total = norm(t);
        w.share = share_qkv;
        multiply(t, &w, &layer->qkv, 3 * width, width, PAIRS);
        split_qkv(t, layer);
        w.share = share_heads;
        tt_both(&w, t->heads, SINGLY);
        w.total = w.first + w.second;
        add(t, &w, &layer->out, t->normed, width, shifts + 4);
        w.x = t->normed;
        w.total = norm(t);
        w.share = share_hidden;
        w.total = multiply(t, &w, &layer->up, t->hidden, width, FOURS);
        add(t, &w, &layer->down, t->sums, t->hidden, shifts + 8);
    }
    if (++t->slot == t->context)
        t->slot = 0;
    if (want_logits) {
        w.x = t->normed;
        w.total = norm(t);
        if (t->streamed)
            begin_stream(t, &t->embedding, 4);
        w.share = share_logits;
        multiply(t, &w, &t->embedding, t->vocabulary, width, PAIRS);
        t->best = (uint32_t)(t->sums[w.second] > t->sums[w.first] ? w.second : w.first);
        if (t->streamed)
            tt_fetch_end();
        if (t->buckets) {
            w.share = share_weights;
            tt_both(&w, t->vocabulary, PAIRS);
            sharpen(t, (uint32_t)(w.first + w.second));
        }
    } else if (t->streamed) {
        tt_fetch_end();
    }
}
