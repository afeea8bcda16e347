/* See runtime.h. Names of sizes: V, D, L, H, F, C and d as in FORMAT.md. Sums that may wrap are unsigned. */
#include "runtime.h"

#include "kernels.h"

#define EXP_ENTRIES 704
#define GELU_ENTRIES 1024
#define LARGEST_RESIDUAL (1 << 22)
#define LARGEST_BIAS ((1 << 24) - 1)

/* ---- Reading files ---- */

struct sizes {
    uint32_t v, d, l, h, f, c;
    uint32_t layer_bytes, payload_bytes; /* in the file; the payload is what follows the header */
    uint32_t longest;                    /* of the buffer of sums */
};

static uint32_t get16(const uint8_t *p) {
    return p[0] | (uint32_t)p[1] << 8;
}

static uint32_t get32(const uint8_t *p) {
    return get16(p) | get16(p + 2) << 16;
}

static uint32_t crc32(const uint8_t *p, size_t size) {
    static const uint32_t table[16] = {
        0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4, 0x4db26158, 0x5005713c,
        0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c, 0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c,
    };
    uint32_t crc = 0xffffffff;
    while (size--) {
        crc ^= *p++;
        crc = crc >> 4 ^ table[crc & 15];
        crc = crc >> 4 ^ table[crc & 15];
    }
    return ~crc;
}

/* The largest sizes give less than 2^24 bytes, so nothing here overflows. */
static const char *read_sizes(struct sizes *s, const uint8_t *model, size_t size) {
    if (size < TT_MODEL_HEADER || get32(model) != 0x314d5454) /* "TTM1" */
        return "there is no model: its file does not begin with TTM1";
    if (get16(model + 4) != 1 || get16(model + 6) != TT_MODEL_HEADER)
        return "the model file is of another version";
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
    if (s->longest < 3 * s->d + s->c)
        s->longest = 3 * s->d + s->c;
    return NULL;
}

/* The distance biases stand in the arena as 32 bits, the rest of the payload as in the file. */
static size_t needed_bytes(const struct sizes *s) {
    return s->l * sizeof(struct tt_layer) + s->payload_bytes + s->l * (2 * s->h * s->c + 2 * s->c * s->d) +
           4 * (3 * s->d + s->longest) + 2 * s->v;
}

size_t tt_arena_size(const uint8_t *model, size_t model_size) {
    struct sizes s;
    return read_sizes(&s, model, model_size) ? 0 : needed_bytes(&s);
}

/* The arena as it is filled, and the file as it is copied. All parts but the weights have multiples of 4 bytes, and so
 * have the weights, as D and F are multiples of 4. */
struct copy {
    uint8_t *to;
    const uint8_t *from;
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

/* `reach`, if it is not 0, bounds the sums without their bias, and has to fit 16 bits with it after the shift. */
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

static const char *open_layer(struct tt_layer *layer, struct copy *c, const struct sizes *s) {
    static const uint8_t posts[6] = {1, 2, 3, 5, 7, 9};
    uint32_t d = s->d, f = s->f;
    layer->shifts = copied(c, 12);
    layer->qkv.bias = copied(c, 12 * d);
    layer->out.bias = copied(c, 4 * d);
    layer->up.bias = copied(c, 4 * f);
    layer->down.bias = copied(c, 4 * d);
    uint16_t *multipliers = copied(c, 2 * (5 * d + f));
    layer->qkv.multiplier = multipliers;
    layer->out.multiplier = multipliers + 3 * d;
    layer->up.multiplier = multipliers + 4 * d;
    layer->down.multiplier = multipliers + 4 * d + f;
    int32_t *distance = take(c, 4 * s->h * s->c);
    for (uint32_t i = 0; i < s->h * s->c; i++, c->from += 2)
        distance[i] = (int16_t)get16(c->from) * -1024;
    layer->distance = distance;
    uint8_t *weights = copied(c, 4 * d * d + 2 * d * f);
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
        reason = check_multipliers(multipliers, 5 * d + f);
    if (!reason)
        reason = check_weights(weights, 4 * d * d + 2 * d * f);
    return reason;
}

static uint32_t isqrt(uint32_t value);

static const char *open_model(struct tt *t, const uint8_t *model, size_t size, void *arena, size_t available) {
    struct sizes s;
    const char *reason = read_sizes(&s, model, size);
    if (reason)
        return reason;
    if (get32(model + 8) != TT_MODEL_HEADER + s.payload_bytes)
        return "the model file is not as long as its sizes say";
    if (get32(model + 8) > size)
        return "the model file is cut short";
    if (get32(model + 12) != crc32(model + 16, get32(model + 8) - 16))
        return "the model file is damaged: its CRC differs";
    if (model[31])
        return "an unused byte of the model is not 0";
    if (needed_bytes(&s) > available)
        return "the model needs more memory than there is";
    t->vocabulary = s.v;
    t->width = s.d;
    t->layers = s.l;
    t->heads = s.h;
    t->head_width = tt_divide(s.d, s.h);
    t->hidden = s.f;
    t->context = s.c;
    t->pre_logits = model[28];
    t->post_logits = model[29];
    t->post_embedding = model[30];
    t->root_width = isqrt(s.d << 20) << 12;
    t->model_bytes = TT_MODEL_HEADER + s.payload_bytes;
    t->arena_bytes = (uint32_t)needed_bytes(&s);

    struct copy c = {arena, model + TT_MODEL_HEADER};
    t->layer = take(&c, s.l * sizeof *t->layer);
    t->exp = copied(&c, 2 * EXP_ENTRIES);
    t->gelu = copied(&c, 2 * GELU_ENTRIES);
    for (uint32_t i = 0; i < EXP_ENTRIES; i++)
        if (i == 0 ? t->exp[i] != 32768 : t->exp[i] > 32768)
            return "the model's table of exp is out of range";
    for (uint32_t i = 0; i < GELU_ENTRIES; i++)
        if (t->gelu[i] < -16383 || t->gelu[i] > 16383)
            return "the model's table of gelu is out of range";
    for (uint32_t i = 0; i < s.l; i++) {
        reason = open_layer(&t->layer[i], &c, &s);
        if (reason)
            return reason;
    }
    t->embedding.multiplier = copied(&c, 2 * s.v);
    t->embedding.bias = copied(&c, 4 * s.v);
    t->embedding.weights = copied(&c, s.v * s.d);
    reason = check_post(t->post_logits);
    if (!reason)
        reason = check_post(t->post_embedding);
    if (!reason)
        reason = check_bias(t->embedding.bias, s.v, s.d << 17, t->pre_logits);
    if (!reason)
        reason = check_multipliers(t->embedding.multiplier, s.v);
    if (!reason)
        reason = check_weights(t->embedding.weights, s.v * s.d);

    t->x = take(&c, 4 * s.d);
    t->normed = take(&c, 4 * s.d);
    t->query = take(&c, 4 * s.d);
    t->sums = take(&c, 4 * s.longest);
    t->candidates = take(&c, 2 * s.v);
    for (uint32_t i = 0; i < s.l; i++) {
        t->layer[i].keys = take(&c, s.c * s.d);
        t->layer[i].values = take(&c, s.c * s.d);
    }
    return reason;
}

static const char *open_vocabulary(struct tt *t, const uint8_t *file, size_t size, uint32_t bytes, uint32_t crc) {
    if (size < TT_VOCABULARY_HEADER || get32(file) != 0x31565454) /* "TTV1" */
        return "there is no vocabulary: its file does not begin with TTV1";
    if (get16(file + 4) != 1 || get16(file + 6) != TT_VOCABULARY_HEADER)
        return "the vocabulary file is of another version";
    uint32_t v = get16(file + 16), num_merges = get16(file + 18), num_bytes = get32(file + 20);
    if (v != t->vocabulary || get32(file + 8) != bytes || get32(file + 12) != crc)
        return "the vocabulary belongs to another model";
    if (num_merges > 8192 || num_bytes > 65535)
        return "the vocabulary is too large";
    uint32_t used = TT_VOCABULARY_HEADER + 512 + 6 * num_merges + 2 * (v + 1) + num_bytes;
    if (bytes != ((used + 3) & ~3u))
        return "the vocabulary file is not as long as its sizes say";
    if (bytes > size)
        return "the vocabulary file is cut short";
    if (crc != crc32(file + 16, bytes - 16))
        return "the vocabulary file is damaged: its CRC differs";
    for (uint32_t i = used; i < bytes; i++)
        if (file[i])
            return "an unused byte of the vocabulary is not 0";
    t->vocabulary_bytes = bytes;
    t->num_merges = num_merges;
    t->byte_tokens = file + TT_VOCABULARY_HEADER;
    t->merges = t->byte_tokens + 512;
    t->token_starts = t->merges + 6 * num_merges;
    t->token_bytes = t->token_starts + 2 * (v + 1);

    const uint8_t *starts = t->token_starts;
    if (get16(starts) != 0 || get16(starts + 2 * v) != num_bytes)
        return "the vocabulary's tokens do not fill its bytes";
    for (uint32_t i = 0; i < v; i++)
        if (get16(starts + 2 * i) > get16(starts + 2 * i + 2))
            return "the vocabulary's tokens are not in order";
    if (get16(starts + 4) != 0)
        return "the vocabulary's tokens 0 and 1 have bytes";
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t token = get16(t->byte_tokens + 2 * i);
        size_t length;
        if (token == TT_UNKNOWN)
            continue;
        if (token < 2 || token >= v)
            return "a byte's token is out of range";
        const uint8_t *content = tt_token_bytes(t, token, &length);
        if (length != 1 || content[0] != i)
            return "a byte's token is not that byte";
    }
    for (uint32_t i = 0; i < num_merges; i++) {
        const uint8_t *merge = t->merges + 6 * i, *part[3];
        size_t length[3];
        for (uint32_t j = 0; j < 3; j++) {
            uint32_t token = get16(merge + 2 * j);
            if (token < 2 || token >= v)
                return "a merge's token is out of range";
            part[j] = tt_token_bytes(t, token, &length[j]);
        }
        if (length[2] != length[0] + length[1])
            return "a merge's result is not its parts";
        for (size_t j = 0; j < length[2]; j++)
            if (part[2][j] != (j < length[0] ? part[0][j] : part[1][j - length[0]]))
                return "a merge's result is not its parts";
    }
    return NULL;
}

const char *tt_open(struct tt *t, const uint8_t *model, size_t model_size, const uint8_t *vocabulary,
                    size_t vocabulary_size, void *arena, size_t arena_size) {
    const char *reason = open_model(t, model, model_size, arena, arena_size);
    if (!reason)
        reason = open_vocabulary(t, vocabulary, vocabulary_size, get32(model + 32), get32(model + 36));
    if (!reason)
        tt_start(t);
    return reason;
}

/* ---- Text ---- */

const uint8_t *tt_token_bytes(const struct tt *t, uint32_t token, size_t *size) {
    uint32_t start = get16(t->token_starts + 2 * token);
    *size = get16(t->token_starts + 2 * token + 2) - start;
    return t->token_bytes + start;
}

enum byte_class { LETTER, DIGIT, SPACE, OTHER };

static enum byte_class class_of(uint8_t byte) {
    if (byte >= 128 || (byte >= 'A' && byte <= 'Z') || (byte >= 'a' && byte <= 'z'))
        return LETTER;
    if (byte >= '0' && byte <= '9')
        return DIGIT;
    return byte == 32 || byte == 9 || byte == 10 || byte == 13 ? SPACE : OTHER;
}

static size_t piece_end(const uint8_t *text, size_t size, size_t start) {
    size_t i = text[start] == 32 ? start + 1 : start;
    if (i == size || class_of(text[i]) == SPACE)
        return start + 1;
    enum byte_class class = class_of(text[i]);
    while (i < size && class_of(text[i]) == class)
        i++;
    return i;
}

/* The first merge before `limit` of one of the pairs in tokens[from .. to], or `limit`. */
static uint32_t earlier_merge(const struct tt *t, const uint16_t *tokens, size_t from, size_t to, uint32_t limit) {
    for (uint32_t merge = 0; merge < limit; merge++) {
        const uint8_t *entry = t->merges + 6 * merge;
        uint32_t left = get16(entry), right = get16(entry + 2);
        for (size_t i = from; i < to; i++)
            if (tokens[i] == left && tokens[i + 1] == right)
                return merge;
    }
    return limit;
}

/* Whenever `merge` is looked at, no merge before it applies anywhere in the piece. */
static size_t merge_piece(const struct tt *t, uint16_t *tokens, size_t size) {
    uint32_t merge = 0;
    while (merge < t->num_merges && size > 1) {
        const uint8_t *entry = t->merges + 6 * merge;
        uint32_t left = get16(entry), right = get16(entry + 2);
        size_t i = 0;
        while (i + 1 < size && !(tokens[i] == left && tokens[i + 1] == right))
            i++;
        if (i + 1 == size) {
            merge++;
            continue;
        }
        tokens[i] = (uint16_t)get16(entry + 4);
        size--;
        for (size_t j = i + 1; j < size; j++)
            tokens[j] = tokens[j + 1];
        merge = earlier_merge(t, tokens, i ? i - 1 : 0, i + 1 < size ? i + 1 : i, merge);
    }
    return size;
}

int tt_encode(const struct tt *t, const uint8_t *text, size_t size, uint16_t *tokens, size_t max_tokens) {
    size_t count = 0;
    if (size > max_tokens)
        return -1;
    for (size_t start = 0, end; start < size; start = end) {
        end = piece_end(text, size, start);
        for (size_t i = start; i < end; i++)
            tokens[count + i - start] = (uint16_t)get16(t->byte_tokens + 2 * text[i]);
        count += merge_piece(t, tokens + count, end - start);
    }
    return (int)count;
}

/* ---- Inference ---- */

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

/* Returns the sum of what it puts into t->normed. */
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

/* Values of one position go into a cache laid out by heads. */
TT_HOT TT_APART static void keep(uint8_t *cache, const int32_t *values, uint32_t width, uint32_t head_width,
                                 uint32_t stride) {
    for (const int32_t *end = values + width; values != end; cache += stride)
        for (uint32_t i = 0; i < head_width; i++)
            cache[i] = (uint8_t)(*values++ + 128);
}

/* Queries are left negated in t->query; keys and values go into the cache. */
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

/* Attention of the newest position. A score is kept as -1024 x itself, up to a constant, with the bits that are still
 * to be rounded off: u = -(sum of q (k + 128)) - 1024 bias, so the smallest u belongs to the largest score. With
 * N = sum of q k + 1024 bias = -(u + 128 sum of q), which is 1024 x the score before rounding,
 * max - score = max - (N >> 10) = (1024 max - N + 1023) >> 10 = (u + offset) >> 10.
 * Returns the sum of what it puts into t->normed. */
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

/* ---- Choice ---- */

TT_HOT uint32_t tt_greedy(const struct tt *t) {
    return t->best;
}

/* Of two candidates, whether the first would be dropped before the second. */
static inline int is_worse(const int32_t *logits, uint32_t a, uint32_t b) {
    return logits[a] < logits[b] || (logits[a] == logits[b] && a > b);
}

/* Puts `token` into heap[0 .. size - 1], the worst candidate on top, from the top downwards. */
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

/* The last of the top_k candidates. */
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

/* a b >> 24 for a below 2^24 and b up to 2^27, without a product of 64 bits. */
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

#ifndef TT_FIRMWARE
uint32_t tt_divide(uint32_t a, uint32_t b) {
    return a / b;
}
#endif
