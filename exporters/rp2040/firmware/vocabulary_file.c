/* Part of runtime.c: checks a vocabulary file, which is used in place. */

INLINE const char *check_merges(const struct tt *t, uint32_t v) {
    for (uint32_t i = 0; i < t->num_merges; i++) {
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
    if (crc != tt_crc32(file + 16, bytes - 16))
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
    return check_merges(t, v);
}
