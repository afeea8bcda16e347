/* Part of runtime.c: turns text into tokens. */

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

/* The first merge before `limit` that applies to a pair in tokens[from .. to]; `limit` if none does. */
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

/* Loop invariant: no merge before `merge` applies anywhere in the piece. */
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

/* Whether no capital letter has a token: the stories were in lower case, and prompts are read in it. */
static int knows_no_capitals(const struct tt *t) {
    for (uint32_t byte = 'A'; byte <= 'Z'; byte++)
        if (get16(t->byte_tokens + 2 * byte) != TT_UNKNOWN)
            return 0;
    return 1;
}

int tt_encode(const struct tt *t, const uint8_t *text, size_t size, uint16_t *tokens, size_t max_tokens) {
    size_t count = 0;
    int lower = knows_no_capitals(t);
    if (size > max_tokens)
        return -1;
    for (size_t start = 0, end; start < size; start = end) {
        end = piece_end(text, size, start);
        for (size_t i = start; i < end; i++) {
            uint32_t byte = text[i];
            if (lower && byte >= 'A' && byte <= 'Z')
                byte += 'a' - 'A';
            tokens[count + i - start] = (uint16_t)get16(t->byte_tokens + 2 * byte);
        }
        count += merge_piece(t, tokens + count, end - start);
    }
    return (int)count;
}
