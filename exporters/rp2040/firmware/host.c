/* The runtime as a command line program, for tests:
 *
 *     host MODEL VOCABULARY [--tokens N] [--temperature T256] [--top-k K] [--seed S] [--ids] [--logits] [--check] [--stream]
 *
 * Each line of standard input is a prompt, with the escapes \n \t \r \\ and \xHH. Each gives one line of output: the
 * generated text, escaped in the same way; with --ids the generated tokens; with --logits the logits after the prompt.
 * With --stream the matrices stay in the file.
 * Exits with 2 and the reason if a file is refused; with --check it only checks the files. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime.h"

struct options {
    long tokens, temperature, top_k, seed;
    int ids, logits, check, stream;
};

static void fail(const char *what, const char *detail) {
    fprintf(stderr, "host: %s%s\n", what, detail);
    exit(2);
}

static uint8_t *read_file(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END))
        fail("cannot read ", path);
    *size = (size_t)ftell(file);
    rewind(file);
    uint8_t *bytes = malloc(*size + 1);
    if (!bytes || fread(bytes, 1, *size, file) != *size)
        fail("cannot read ", path);
    fclose(file);
    return bytes;
}

static size_t unescape(char *line) {
    static const char names[] = "ntr\\", stands_for[] = "\n\t\r\\";
    char *out = line, *in = line;
    while (*in) {
        const char *name = in[0] == '\\' && in[1] ? strchr(names, in[1]) : NULL;
        unsigned byte;
        if (name) {
            *out++ = stands_for[name - names];
            in += 2;
        } else if (in[0] == '\\' && in[1] == 'x' && sscanf(in + 2, "%2x", &byte) == 1) {
            *out++ = (char)byte;
            in += in[3] ? 4 : 3;
        } else {
            *out++ = *in++;
        }
    }
    return (size_t)(out - line);
}

static void print_escaped(const uint8_t *bytes, size_t size) {
    for (size_t i = 0; i < size; i++)
        if (bytes[i] == '\\')
            printf("\\\\");
        else if (bytes[i] == '\n')
            printf("\\n");
        else if (bytes[i] < 32 || bytes[i] > 126)
            printf("\\x%02x", bytes[i]);
        else
            putchar(bytes[i]);
}

static void tell(struct tt *t, const uint8_t *text, size_t size, const struct options *o) {
    uint16_t *prompt = malloc(2 * size + 2);
    int count = tt_encode(t, text, size, prompt, size);
    uint32_t state = tt_seed((uint32_t)o->seed);
    tt_start(t);
    tt_step(t, TT_END, count == 0);
    for (int i = 0; i < count; i++)
        tt_step(t, prompt[i], i == count - 1);
    free(prompt);
    if (o->logits) {
        for (uint32_t i = 0; i < t->vocabulary; i++)
            printf("%s%d", i ? " " : "", (int)t->sums[i]);
    } else {
        for (long n = 0; n < o->tokens; n++) {
            uint32_t token = o->temperature ? tt_sample(t, (uint32_t)o->temperature, (uint32_t)o->top_k, &state)
                                            : tt_greedy(t);
            if (token == TT_END)
                break;
            size_t length;
            const uint8_t *bytes = tt_token_bytes(t, token, &length);
            if (o->ids)
                printf("%s%u", n ? " " : "", (unsigned)token);
            else
                print_escaped(bytes, length);
            tt_step(t, token, 1);
        }
    }
    putchar('\n');
}

static struct options parse(int argc, char **argv) {
    struct options o = {.tokens = 256, .seed = 1};
    for (int i = 3; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        long *number = !strcmp(argv[i], "--tokens") ? &o.tokens
                       : !strcmp(argv[i], "--temperature") ? &o.temperature
                       : !strcmp(argv[i], "--top-k") ? &o.top_k
                       : !strcmp(argv[i], "--seed") ? &o.seed : NULL;
        int *flag = !strcmp(argv[i], "--ids") ? &o.ids
                    : !strcmp(argv[i], "--logits") ? &o.logits
                    : !strcmp(argv[i], "--check") ? &o.check
                    : !strcmp(argv[i], "--stream") ? &o.stream : NULL;
        char *end = NULL;
        if (flag)
            *flag = 1;
        else if (!number)
            fail("there is no option ", argv[i]);
        else if ((*number = strtol(value, &end, 10)) < 0 || *end || !*value)
            fail("a number of 0 or more has to follow ", argv[i]);
        else
            i++;
    }
    if (o.temperature && (o.temperature < 13 || o.temperature > 2560))
        fail("--temperature is 0 or 13 to 2560, in 256ths", "");
    return o;
}

int main(int argc, char **argv) {
    if (argc < 3)
        fail("usage: host MODEL VOCABULARY [options]; see host.c", "");
    struct options options = parse(argc, argv);
    size_t model_size, vocabulary_size;
    uint8_t *model = read_file(argv[1], &model_size), *vocabulary = read_file(argv[2], &vocabulary_size);
    size_t size = options.stream ? tt_arena_least(model, model_size) : tt_arena_size(model, model_size);
    void *arena = malloc(size + 1);
    struct tt t;
    const char *reason = tt_open(&t, model, model_size, vocabulary, vocabulary_size, arena, size);
    if (reason)
        fail(reason, "");
    char *line = NULL;
    size_t room = 0;
    ssize_t length;
    while (!options.check && (length = getline(&line, &room, stdin)) >= 0) {
        if (length && line[length - 1] == '\n')
            line[length - 1] = 0;
        tell(&t, (const uint8_t *)line, unescape(line), &options);
    }
    free(line);
    free(arena);
    free(model);
    free(vocabulary);
    return 0;
}
