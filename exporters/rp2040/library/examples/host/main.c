/* For a computer: cc -I../../src main.c ../../src/?*.c && ./a.out "Once upon a time" [TEMPERATURE TOP_K TOKENS SEED] [--ids] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "story.h"

static int print(uint32_t token, const uint8_t *bytes, size_t size, void *ids) {
    if (ids)
        printf("%u ", (unsigned)token);
    else
        fwrite(bytes, 1, size, stdout);
    return 1;
}

int main(int count, char **words) {
    const char *reason = story_open();
    if (reason) {
        fprintf(stderr, "%s\n", reason);
        return 2;
    }
    struct story_settings settings = story_defaults;
    if (count > 5) {
        settings.temperature = (uint16_t)atoi(words[2]);
        settings.top_k = (uint16_t)atoi(words[3]);
        settings.tokens = (uint32_t)atoi(words[4]);
        settings.seed = (uint32_t)atoi(words[5]);
    }
    int ids = count > 6 && !strcmp(words[6], "--ids");
    story_tell(count > 1 ? words[1] : "Once upon a time", &settings, print, ids ? &ids : NULL);
    putchar('\n');
    return 0;
}
