/* Part of runtime.c: reads a model file and lays out the arena. */

struct sizes {
    uint32_t v, d, l, h, f, c;
    uint32_t layer_bytes, payload_bytes; /* in the file; the payload follows the header */
    uint32_t longest;                    /* length of the buffer of sums */
    uint32_t header, tables, memory_bytes;
    uint8_t bits[TT_MOST_TABLES];
    uint32_t entries, buckets, counts_bytes;
};

/* The last 8 bytes of a header of version 3: entries, bits of the bucket numbers. */
static const char *read_counts(struct sizes *s, const uint8_t *fields) {
    uint32_t bits = get32(fields + 4);
    s->entries = get32(fields);
    if (s->entries < 16 || s->entries > 1 << 18 || bits < 1 || bits > 16)
        return "the sizes of the model's counts are out of range";
    s->buckets = 1u << bits;
    s->counts_bytes = 4 * (s->buckets + 1 + s->entries);
    return NULL;
}

/* The 8 bytes that follow in version 2: post, bits of the row numbers of each table, zeros. */
static const char *read_tables(struct sizes *s, const uint8_t *fields) {
    for (uint32_t i = 0; i < 7; i++) {
        uint32_t bits = fields[1 + i];
        if (bits > 16 || (bits && (i >= TT_MOST_TABLES || s->tables != i)))
            return "the sizes of the model's memory are out of range";
        if (bits) {
            s->bits[s->tables++] = (uint8_t)bits;
            s->memory_bytes += (4 + s->d) << bits;
        }
    }
    if (!s->tables && (s->header == TT_MODEL_HEADER + 8 || fields[0]))
        return "the sizes of the model's memory are out of range";
    return s->header == TT_MODEL_HEADER + 8 ? NULL : read_counts(s, fields + 8);
}

/* The largest sizes give less than 2^24 bytes, 2^26 of memory and 2^21 of counts, so nothing here overflows. */
static const char *read_sizes(struct sizes *s, const uint8_t *model, size_t size) {
    if (size < TT_MODEL_HEADER || get32(model) != 0x314d5454) /* "TTM1" */
        return "there is no model: its file does not begin with TTM1";
    s->header = TT_MODEL_HEADER + 8 * (get16(model + 4) - 1);
    if (get16(model + 4) < 1 || get16(model + 4) > 3 || get16(model + 6) != s->header)
        return "the model file is of another version";
    if (size < s->header)
        return "the model file is cut short";
    s->v = get16(model + 16);
    s->d = get16(model + 18);
    s->l = get16(model + 20);
    s->h = get16(model + 22);
    s->f = get16(model + 24);
    s->c = get16(model + 26);
    if (s->v < 4 || s->v > 4096 || s->v % 2)
        return "the model's vocabulary size is not an even number from 4 to 4096";
    if (s->d < 4 || s->d > 128 || s->d % 4)
        return "the model's width is not a multiple of 4 from 4 to 128";
    if (s->l < 1 || s->l > 16)
        return "the model's number of layers is not 1 to 16";
    if (s->h < 1 || s->h > s->d || tt_divide(s->d, s->h) * s->h != s->d)
        return "the model's number of heads does not divide its width";
    if (s->f < 4 || s->f > 1024 || s->f % 4)
        return "the model's hidden width is not a multiple of 4 from 4 to 1024";
    if (s->c < 2 || s->c > 256 || s->c % 2)
        return "the model's context is not an even number from 2 to 256";
    uint32_t rows = 5 * s->d + s->f;
    s->layer_bytes = 12 + 6 * rows + 2 * s->h * s->c + 4 * s->d * s->d + 2 * s->d * s->f;
    s->payload_bytes = 2 * EXP_ENTRIES + 2 * GELU_ENTRIES + s->l * s->layer_bytes + s->v * (6 + s->d);
    s->longest = s->v > s->f ? s->v : s->f;
    if (s->longest < 3 * s->d + 2 * s->c)
        s->longest = 3 * s->d + 2 * s->c;
    s->tables = s->memory_bytes = s->counts_bytes = 0;
    return s->header == TT_MODEL_HEADER ? NULL : read_tables(s, model + TT_MODEL_HEADER);
}

/* In the arena, distance biases have 32 bits; the rest of the payload is as in the file. */
static size_t needed_bytes(const struct sizes *s) {
    return s->l * sizeof(struct tt_layer) + s->payload_bytes + s->l * (2 * s->h * s->c + 2 * s->c * s->d) +
           4 * (3 * s->d + s->longest) + 2 * s->v;
}

/* Bytes of a layer's biases and multipliers. */
static uint32_t head_bytes(const struct sizes *s) {
    return 6 * (5 * s->d + s->f);
}

/* The same where the matrices stay in the file, with their biases and multipliers. */
static size_t least_bytes(const struct sizes *s) {
    uint32_t head = head_bytes(s) > 6 * s->v ? head_bytes(s) : 6 * s->v;
    return needed_bytes(s) - s->l * (s->layer_bytes - 12 - 2 * s->h * s->c) - s->v * (6 + s->d) + head + 2 * TT_PORTION;
}

size_t tt_arena_size(const uint8_t *model, size_t model_size) {
    struct sizes s;
    return read_sizes(&s, model, model_size) ? 0 : needed_bytes(&s);
}

size_t tt_arena_least(const uint8_t *model, size_t model_size) {
    struct sizes s;
    return read_sizes(&s, model, model_size) ? 0 : least_bytes(&s);
}

/* The next free place in the arena and the next byte of the file. All parts are multiples of 4 bytes long, also the
 * weights, as D and F are multiples of 4. */
struct copy {
    uint8_t *to;
    const uint8_t *from;
    int streamed; /* matrices stay in the file */
};

static void *take(struct copy *c, size_t size) {
    void *taken = c->to;
    c->to += size;
    return taken;
}

static void *copied(struct copy *c, size_t size) {
    uint8_t *to = take(c, size);
    for (size_t i = 0; i < size; i++)
        to[i] = c->from[i];
    c->from += size;
    return to;
}

/* Data of matrices: copied to the arena, or left in the file if they are streamed. */
static const void *matrices(struct copy *c, size_t size) {
    const uint8_t *from = c->from;
    if (!c->streamed)
        return copied(c, size);
    c->from += size;
    return from;
}

static const char *check_weights(const uint8_t *weights, size_t size) {
    for (size_t i = 0; i < size; i++)
        if (!weights[i])
            return "a weight of the model is -128";
    return NULL;
}

static const char *check_multipliers(const uint16_t *multiplier, uint32_t rows) {
    for (uint32_t i = 0; i < rows; i++)
        if (multiplier[i] > 32767)
            return "a multiplier of the model is larger than 32767";
    return NULL;
}

/* If `reach` is not 0, it bounds the sums without their bias; with the bias they must fit 16 bits after the shift. */
static const char *check_bias(const int32_t *bias, uint32_t rows, uint32_t reach, uint32_t pre) {
    int32_t largest = 0;
    for (uint32_t i = 0; i < rows; i++) {
        if (bias[i] < -LARGEST_BIAS || bias[i] > LARGEST_BIAS)
            return "a bias of the model is out of range";
        int32_t size = bias[i] < 0 ? -bias[i] : bias[i];
        if (size > largest)
            largest = size;
    }
    if (pre > 24)
        return "a shift of the model is out of range";
    if (reach && (reach + (uint32_t)largest) >> pre > 32767)
        return "the model's sums may leave 16 bits";
    return NULL;
}

static const char *check_post(uint32_t post) {
    return post < 1 || post > 30 ? "a shift of the model is out of range" : NULL;
}

/* Biases and multipliers of a layer, as they lie in the file. */
static void place_head(struct tt_layer *layer, const int32_t *bias, const struct sizes *s) {
    uint32_t d = s->d, f = s->f;
    const uint16_t *multipliers = (const uint16_t *)(bias + 5 * d + f);
    layer->qkv.bias = bias;
    layer->out.bias = bias + 3 * d;
    layer->up.bias = bias + 4 * d;
    layer->down.bias = bias + 4 * d + f;
    layer->qkv.multiplier = multipliers;
    layer->out.multiplier = multipliers + 3 * d;
    layer->up.multiplier = multipliers + 4 * d;
    layer->down.multiplier = multipliers + 4 * d + f;
}

static const char *open_layer(struct tt_layer *layer, struct copy *c, const struct sizes *s) {
    static const uint8_t posts[6] = {1, 2, 3, 5, 7, 9};
    uint32_t d = s->d, f = s->f;
    layer->shifts = copied(c, 12);
    place_head(layer, matrices(c, head_bytes(s)), s);
    int32_t *distance = take(c, 4 * s->h * s->c);
    for (uint32_t i = 0; i < s->h * s->c; i++, c->from += 2)
        distance[i] = (int16_t)get16(c->from) * -1024;
    layer->distance = distance;
    const uint8_t *weights = matrices(c, 4 * d * d + 2 * d * f);
    layer->qkv.weights = weights;
    layer->out.weights = weights + 3 * d * d;
    layer->up.weights = weights + 4 * d * d;
    layer->down.weights = weights + 4 * d * d + d * f;

    const uint8_t *shifts = layer->shifts;
    const char *reason = NULL;
    if (shifts[10] || shifts[11])
        reason = "an unused byte of the model is not 0";
    for (uint32_t i = 0; i < 6 && !reason; i++)
        reason = check_post(shifts[posts[i]]);
    if (!reason)
        reason = check_bias(layer->qkv.bias, 3 * d, d << 17, shifts[0]);
    if (!reason)
        reason = check_bias(layer->out.bias, d, 0, shifts[4]);
    if (!reason)
        reason = check_bias(layer->up.bias, f, d << 17, shifts[6]);
    if (!reason)
        reason = check_bias(layer->down.bias, d, 0, shifts[8]);
    if (!reason)
        reason = check_multipliers(layer->qkv.multiplier, 5 * d + f);
    if (!reason)
        reason = check_weights(weights, 4 * d * d + 2 * d * f);
    return reason;
}

static uint32_t isqrt(uint32_t value);

INLINE void set_sizes(struct tt *t, const struct sizes *s, const uint8_t *model) {
    t->vocabulary = s->v;
    t->width = s->d;
    t->layers = s->l;
    t->heads = s->h;
    t->head_width = tt_divide(s->d, s->h);
    t->hidden = s->f;
    t->context = s->c;
    t->pre_logits = model[28];
    t->post_logits = model[29];
    t->post_embedding = model[30];
}

INLINE void place_activations(struct tt *t, struct copy *c, const struct sizes *s) {
    t->x = take(c, 4 * s->d);
    t->normed = take(c, 4 * s->d);
    t->query = take(c, 4 * s->d);
    t->sums = take(c, 4 * s->longest);
    t->candidates = take(c, 2 * s->v);
    for (uint32_t i = 0; i < s->l; i++) {
        t->layer[i].keys = take(c, s->c * s->d);
        t->layer[i].values = take(c, s->c * s->d);
    }
}

INLINE void place_stream(struct tt *t, struct copy *c, const struct sizes *s) {
    struct tt_stream *stream = &t->stream;
    stream->head_bytes = head_bytes(s);
    stream->gap = head_bytes(s) + 2 * s->h * s->c;
    stream->head = take(c, head_bytes(s) > 6 * s->v ? head_bytes(s) : 6 * s->v);
    stream->rows[0] = tt_divide(TT_PORTION, s->d) & ~3u;
    stream->rows[1] = tt_divide(TT_PORTION, s->f) & ~3u;
    for (uint32_t i = 0; i < 2; i++)
        stream->buffer[i] = take(c, TT_PORTION);
    for (uint32_t i = 0; i < s->l; i++)
        place_head(&t->layer[i], stream->head, s);
    t->embedding.multiplier = stream->head;
    t->embedding.bias = (const int32_t *)(t->embedding.multiplier + s->v);
}

static const char *open_memory(struct tt *t, const struct sizes *s, const uint8_t *rows) {
    t->tables = s->tables;
    for (uint32_t i = 0; i < s->tables; i++) {
        t->table[i].rows = rows;
        t->table[i].shift = 32 - s->bits[i];
        for (uint32_t row = 0; row < 1u << s->bits[i]; row++, rows += 4 + s->d) {
            if (rows[1])
                return "an unused byte of the model is not 0";
            if (rows[3] > 127)
                return "a multiplier of the model is larger than 32767";
            const char *reason = check_weights(rows + 4, s->d);
            if (reason)
                return reason;
        }
    }
    return NULL;
}

static const char *open_counts(struct tt *t, const struct sizes *s, const uint8_t *from) {
    t->buckets = s->counts_bytes ? from : NULL;
    if (!s->counts_bytes)
        return NULL;
    t->entries = from + 4 * (s->buckets + 1);
    t->bucket_shift = 1;
    while (s->buckets << t->bucket_shift)
        t->bucket_shift++;
    uint32_t before = get32(from);
    if (before)
        return "the model's counts are out of range";
    for (uint32_t i = 1; i <= s->buckets; i++) {
        uint32_t start = get32(from + 4 * i);
        if (start < before || start > before + TT_LONGEST_BUCKET || start > s->entries)
            return "the model's counts are out of range";
        before = start;
    }
    for (uint32_t i = 0; i < s->entries; i++)
        if ((get32(t->entries + 4 * i) & 4095) >= s->v)
            return "the model's counts have a token that is not in the vocabulary";
    return t->post_logits > 20 ? "a shift of the model is out of range" : NULL;
}

static const char *open_model(struct tt *t, const uint8_t *model, size_t size, void *arena, size_t available) {
    struct sizes s;
    const char *reason = read_sizes(&s, model, size);
    if (reason)
        return reason;
    if (get32(model + 8) != s.header + s.payload_bytes + s.memory_bytes + s.counts_bytes)
        return "the model file is not as long as its sizes say";
    if (get32(model + 8) > size)
        return "the model file is cut short";
    if (get32(model + 12) != tt_crc32(model + 16, get32(model + 8) - 16))
        return "the model file is damaged: its CRC differs";
    if (model[31])
        return "an unused byte of the model is not 0";
    t->streamed = needed_bytes(&s) > available;
    if (t->streamed && least_bytes(&s) > available)
        return "the model needs more memory than there is";
    set_sizes(t, &s, model);
    t->root_width = isqrt(s.d << 20) << 12;
    t->model_bytes = get32(model + 8);
    t->arena_bytes = (uint32_t)(t->streamed ? least_bytes(&s) : needed_bytes(&s));

    struct copy c = {arena, model + s.header, (int)t->streamed};
    t->layer = take(&c, s.l * sizeof *t->layer);
    t->exp = copied(&c, 2 * EXP_ENTRIES);
    t->gelu = copied(&c, 2 * GELU_ENTRIES);
    for (uint32_t i = 0; i < EXP_ENTRIES; i++)
        if (i == 0 ? t->exp[i] != 32768 : t->exp[i] > t->exp[i - 1])
            return "the model's table of exp is out of range";
    for (uint32_t i = 0; i < GELU_ENTRIES; i++)
        if (t->gelu[i] < -16383 || t->gelu[i] > 16383)
            return "the model's table of gelu is out of range";
    for (uint32_t i = 0; i < s.l; i++) {
        reason = open_layer(&t->layer[i], &c, &s);
        if (reason)
            return reason;
    }
    t->embedding.multiplier = matrices(&c, 2 * s.v);
    t->embedding.bias = matrices(&c, 4 * s.v);
    t->embedding.weights = matrices(&c, s.v * s.d);
    reason = check_post(t->post_logits);
    if (!reason)
        reason = check_post(t->post_embedding);
    if (!reason)
        reason = check_bias(t->embedding.bias, s.v, s.d << 17, t->pre_logits);
    if (!reason)
        reason = check_multipliers(t->embedding.multiplier, s.v);
    if (!reason)
        reason = check_weights(t->embedding.weights, s.v * s.d);

    if (!reason && s.tables)
        reason = check_post(model[TT_MODEL_HEADER]);
    if (!reason)
        reason = open_memory(t, &s, c.from);
    t->post_memory = s.tables ? model[TT_MODEL_HEADER] : 0;
    if (!reason)
        reason = open_counts(t, &s, c.from + s.memory_bytes);

    if (t->streamed)
        place_stream(t, &c, &s);
    place_activations(t, &c, &s);
    return reason;
}
