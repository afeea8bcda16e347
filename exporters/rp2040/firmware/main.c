/* A story teller on the UART: a line is a prompt, or a setting if it begins with a slash. */
#include "chip.h"
#include "kernels.h"
#include "runtime.h"

#define MODEL 0x10010000u
#define FLASH_END 0x10200000u
#define LINE_BYTES 240
#define INTERRUPT 3 /* Ctrl-C */

extern uint8_t image_start[], image_end[], arena_end[];
extern uint32_t stack_start[], stack_end[];

static struct tt t;
static struct {
    uint32_t temperature, top_k, seed, tokens, ids;
} settings = {.seed = 1, .tokens = 256};
static uint8_t line[LINE_BYTES + 1];
static uint16_t prompt[LINE_BYTES];

/* ---- Output ---- */

static void put_bytes(const uint8_t *bytes, size_t size) {
    for (; size--; bytes++) {
        if (*bytes == '\n')
            uart_put('\r');
        uart_put(*bytes);
    }
}

static void put(const char *text) {
    for (; *text; text++)
        put_bytes((const uint8_t *)text, 1);
}

static void put_number(uint32_t number) {
    char digits[11], *digit = digits + 10;
    *digit = 0;
    do {
        uint32_t rest = tt_divide(number, 10);
        *--digit = (char)('0' + (number - 10 * rest));
        number = rest;
    } while (number);
    put(digit);
}

static void put_named(const char *before, uint32_t number, const char *after) {
    put(before);
    put_number(number);
    put(after);
}

static void put_hundredths(uint32_t number) {
    uint32_t whole = tt_divide(number, 100), rest = number - 100 * whole;
    put_number(whole);
    put(rest < 10 ? ".0" : ".");
    put_number(rest);
}

/* ---- SRAM ---- */

static uint32_t stack_used(void) {
    const uint32_t *p = stack_start;
    while (p < stack_end && *p == STACK_PAINT)
        p++;
    return 4 * (uint32_t)(stack_end - p);
}

static void put_sram(void) {
    uint32_t image = (uint32_t)(image_end - image_start), stack = stack_used();
    put_named("SRAM: image ", image, ", ");
    put_named("arena ", t.arena_bytes, ", ");
    put_named("stack ", stack, ", ");
    put_named("total ", image + t.arena_bytes + stack, " bytes\n");
}

/* ---- Settings ---- */

/* The text after `name` and spaces in the line, maybe empty; NULL if the line does not begin with `name`. */
static const uint8_t *argument_of(const char *name) {
    const uint8_t *p = line;
    while (*name)
        if (*p++ != (uint8_t)*name++)
            return NULL;
    if (*p && *p != ' ')
        return NULL;
    while (*p == ' ')
        p++;
    return p;
}

/* A number with at most `decimals` decimals, times 10^decimals; -1 for anything else and for more than `most`. */
static int32_t parse(const uint8_t *p, uint32_t decimals, uint32_t most) {
    uint32_t number = 0, seen_point = 0, seen_digit = 0;
    for (; *p && *p != ' '; p++) {
        if (*p == '.' && decimals && !seen_point) {
            seen_point = 1;
            continue;
        }
        if (*p < '0' || *p > '9' || (seen_point && !decimals))
            return -1;
        number = 10 * number + (*p - '0');
        seen_digit = 1;
        decimals -= seen_point;
        if (number > most)
            return -1;
    }
    for (; decimals; decimals--)
        number *= 10;
    return !seen_digit || number > most ? -1 : (int32_t)number;
}

static void help(void) {
    put("A line is a prompt; Ctrl-C ends the story. Settings:\n"
        "/temperature 0.8   0 (greedy) or 0.05 to 10\n"
        "/top_k 40          draw from the 40 likeliest only; 0: from all\n"
        "/seed 7            of the random numbers of a story\n"
        "/tokens 200        length of a story at most\n"
        "/ids on            token numbers instead of text, or off\n"
        "/sram              memory in use\n"
        "/help              this\n");
}

static void set_number(const char *what, uint32_t *setting, const uint8_t *argument, uint32_t least, uint32_t most) {
    int32_t number = parse(argument, 0, most);
    if (number < (int32_t)least) {
        put_named(what, least, " to ");
        put_number(most);
        put(" is allowed\n");
        return;
    }
    *setting = (uint32_t)number;
    put_named(what, *setting, "\n");
}

static void set(void) {
    const uint8_t *argument;
    if ((argument = argument_of("/temperature"))) {
        int32_t hundredths = parse(argument, 2, 1000);
        if (hundredths < 0 || (hundredths > 0 && hundredths < 5)) {
            put("temperature: 0 or 0.05 to 10 is allowed\n");
            return;
        }
        settings.temperature = tt_divide((uint32_t)hundredths * 256 + 50, 100);
        put("temperature: ");
        put_hundredths((uint32_t)hundredths);
        put("\n");
    } else if ((argument = argument_of("/top_k"))) {
        set_number("top_k: ", &settings.top_k, argument, 0, 4096);
    } else if ((argument = argument_of("/seed"))) {
        set_number("seed: ", &settings.seed, argument, 0, 99999999);
    } else if ((argument = argument_of("/tokens"))) {
        set_number("tokens: ", &settings.tokens, argument, 1, 99999);
    } else if ((argument = argument_of("/ids"))) {
        settings.ids = argument[0] == 'o' && argument[1] == 'n';
        put(settings.ids ? "ids: on\n" : "ids: off\n");
    } else if (argument_of("/sram")) {
        put_sram();
    } else if (argument_of("/help")) {
        help();
    } else {
        put("There are /temperature, /top_k, /seed, /tokens, /ids, /sram and /help.\n");
    }
}

/* ---- Stories ---- */

static uint32_t state; /* of the random generator */

TT_HOT static uint32_t choose(void) {
    return settings.temperature ? tt_sample(&t, settings.temperature, settings.top_k, &state)
                                : tt_greedy(&t);
}

/* Runs one more step, chooses the next token and counts the cycles. In SRAM, like the functions it calls. */
TT_HOT TT_APART static uint32_t advance(uint32_t token, uint32_t *cycles) {
    uint32_t start = cycle_counter();
    tt_step(&t, token, 1);
    uint32_t next = choose();
    *cycles = (start - cycle_counter()) & 0xffffff;
    return next;
}

static void put_speed(uint32_t tokens, uint64_t cycles) {
    uint32_t counted = tokens;
    for (; cycles >> 32; cycles >>= 1)
        counted >>= 1;
    put_named("\n[", tokens, " tokens");
    if (counted && cycles) { /* an emulator without a clock counts none */
        uint32_t each = tt_divide((uint32_t)cycles, counted);
        put_named(", ", tt_divide(CLOCK_HZ, each), " tokens/s");
        put_named(", ", each, " cycles/token");
    }
    put("]\n");
}

static void tell(size_t size) {
    int count = tt_encode(&t, line, size, prompt, LINE_BYTES);
    uint64_t cycles = 0;
    uint32_t tokens = 0;
    state = tt_seed(settings.seed);
    tt_start(&t);
    tt_step(&t, TT_END, count == 0);
    for (int i = 0; i < count; i++)
        tt_step(&t, prompt[i], i == count - 1);
    uint32_t token = choose();
    while (token != TT_END && tokens < settings.tokens && uart_poll() != INTERRUPT) {
        if (settings.ids) {
            put_named(tokens ? " " : "", token, "");
        } else {
            size_t length;
            const uint8_t *bytes = tt_token_bytes(&t, token, &length);
            put_bytes(bytes, length);
        }
        tokens++;
        uint32_t passed;
        token = advance(token, &passed);
        cycles += passed;
    }
    put_speed(tokens, cycles);
}

/* Reads a line into `line` and echoes it; backspace erases all bytes of a character. */
static size_t get_line(void) {
    static uint8_t last; /* the byte before: CR LF is one end of a line */
    size_t size = 0;
    for (;;) {
        uint8_t byte = uart_get(), before = last;
        last = byte;
        if (byte == '\n' && before == '\r')
            continue;
        if (byte == '\n' || byte == '\r') {
            put("\n");
            line[size] = 0;
            return size;
        }
        if (byte == 8 || byte == 127) {
            if (!size)
                continue;
            while (--size && (line[size] & 0xc0) == 0x80)
                ;
            put("\b \b");
        } else if (byte == INTERRUPT) {
            size = 0;
            put("^C\n> ");
        } else if (byte < 32 && byte != '\t') {
            continue;
        } else if (size < LINE_BYTES) {
            line[size++] = byte;
            uart_put(byte);
        } else {
            uart_put(7);
        }
    }
}

static void open_files(void) {
    const uint8_t *model = (const uint8_t *)MODEL, *vocabulary = (const uint8_t *)FLASH_END;
    uint32_t size = ((const volatile uint32_t *)MODEL)[2];
    if (size < FLASH_END - MODEL)
        vocabulary = model + ((size + 255) & ~255u);
    const char *reason = tt_open(&t, model, FLASH_END - MODEL, vocabulary, FLASH_END - (uint32_t)vocabulary, image_end,
                                 (size_t)(arena_end - image_end));
    if (reason) {
        put("\nCannot start: ");
        put(reason);
        put(".\nExport the model again and copy its story.uf2 to this board.\n");
        halt();
    }
}

int main(void) {
    chip_start();
    open_files();
    put_named("\nTiny transformer: vocabulary ", t.vocabulary, "");
    put_named(", width ", t.width, "");
    put_named(", layers ", t.layers, "");
    put_named(", heads ", t.heads, "");
    put_named(", hidden ", t.hidden, "");
    put_named(", context ", t.context, "\n");
    put_named("Model ", t.model_bytes, " bytes, ");
    put_named("vocabulary ", t.vocabulary_bytes, " bytes\n");
    put_sram();
    put("/help lists the settings\n");
    for (;;) {
        put("> ");
        size_t size = get_line();
        if (line[0] == '/')
            set();
        else
            tell(size);
    }
}
