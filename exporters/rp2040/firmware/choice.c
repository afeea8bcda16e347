/* Part of runtime.c: chooses a token by its logits, greedily or at random. */

TT_HOT uint32_t tt_greedy(const struct tt *t) {
    return t->best;
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

/* Where a share of the vocabulary is cut: from `place` on, equal logits count as worse. */
static inline uint32_t clamp(uint32_t place, uint32_t from, uint32_t to) {
    return place < from ? from : place > to ? to : place;
}

/* Writes the weights to t->candidates and returns their sum. */
static int32_t share_chances(const struct tt_work *w, uint32_t from, uint32_t to) {
    const struct tt *t = w->t;
    const struct tt_field *f = w->field;
    int32_t largest = t->sums[t->best], total = 0;
    uint32_t cut = clamp(f->place, from, to);
    if (from != cut)
        total = tt_chances(t->sums + from, t->candidates + from, cut - from, largest, f->reach + 1, f->factor,
                           t->post_logits, t->exp);
    if (cut != to)
        total += tt_chances(t->sums + cut, t->candidates + cut, to - cut, largest, f->reach, f->factor, t->post_logits,
                            t->exp);
    return total;
}

/* How many logits are better than the one at w->field->place. */
TT_HOT static int32_t share_better(const struct tt_work *w, uint32_t from, uint32_t to) {
    const struct tt_field *f = w->field;
    int32_t logit = w->t->sums[f->place];
    const int32_t *other = w->t->sums + from;
    const int32_t *cut = w->t->sums + clamp(f->place, from, to), *end = w->t->sums + to;
    uint32_t worse = 0; /* the sign of a difference that fits, as logits have 31 bits */
    for (; other != cut; other++)
        worse += (uint32_t)(*other - logit) >> 31;
    for (; other != end; other++)
        worse += (uint32_t)(*other - 1 - logit) >> 31;
    return (int32_t)(to - from - worse);
}

/* Whether fewer than top_k logits are better than that of `token`. Better ones weigh no less, so that is certain if top_k
 * times its weight reaches the total. */
static int is_among(struct tt_work *w, uint32_t top_k, uint32_t token, uint32_t total) {
    struct tt *t = w->t;
    if (top_k == 0 || token == t->best || t->candidates[token] * top_k >= total)
        return 1;
    w->share = share_better;
    tt_both(w, t->vocabulary, PAIRS);
    return (uint32_t)(w->first + w->second) < top_k;
}

/* Draws from all tokens; rejects one outside the top_k and draws again, from the tokens better than it only, until one of
 * the top_k comes. Their probabilities are the same as if only the top_k were drawn from, and nothing is sorted. */
uint32_t tt_sample(struct tt *t, uint32_t temperature, uint32_t top_k, uint32_t *state) {
    struct tt_field f;
    struct tt_work w;
    uint32_t count = t->vocabulary, s = *state, chosen;
    if (top_k >= count)
        top_k = 0;
    f.factor = tt_divide(65536, temperature);
    f.place = 0;
    f.reach = tt_divide((EXP_ENTRIES << 8) + f.factor - 1, f.factor);
    f.reach = f.reach >> (31 - t->post_logits) ? 1u << 31 : f.reach << t->post_logits;
    w.t = t;
    w.start = 0;
    w.field = &f;
    for (;;) {
        w.share = share_chances;
        tt_both(&w, count, PAIRS);
        uint32_t total = (uint32_t)(w.first + w.second), sum = 0;
        s ^= s << 13;
        s ^= s >> 17;
        s ^= s << 5;
        uint32_t threshold = product_high(s >> 8, total);
        const uint16_t *weight = t->candidates;
        if (w.second && threshold >= (uint32_t)w.first) {
            sum = (uint32_t)w.first;
            weight += w.middle;
        }
        while ((sum += *weight++) <= threshold)
            ;
        chosen = (uint32_t)(weight - t->candidates) - 1;
        f.place = chosen;
        f.reach = (uint32_t)(t->sums[t->best] - t->sums[chosen]);
        if (is_among(&w, top_k, chosen, total))
            break;
    }
    *state = s;
    return chosen;
}
