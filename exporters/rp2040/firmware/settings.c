/* See settings.h. */
#include "settings.h"

#include "console.h"
#include "runtime.h"

static uint32_t get(const uint8_t *p, uint32_t bytes) {
    uint32_t number = 0;
    while (bytes--)
        number = number << 8 | p[bytes];
    return number;
}

const char *settings_read(struct settings *settings, const uint8_t *page) {
    if (get(page, 4) != 0x31535454) /* "TTS1" */
        return "there are no settings where they should be";
    if (get(page + 4, 4) != tt_crc32(page + 8, 256 - 8))
        return "the settings are damaged: their CRC differs";
    settings->temperature = get(page + 8, 2);
    settings->top_k = get(page + 10, 2);
    settings->tokens = get(page + 12, 4);
    settings->seed = get(page + 16, 4);
    settings->prompt_size = page[20];
    settings->prompt = page + 24;
    if ((settings->temperature && settings->temperature < 13) || settings->temperature > 2560 ||
        settings->top_k > 4096 || settings->tokens < 1 || settings->tokens > 99999 || settings->seed > LARGEST_SEED ||
        settings->prompt_size > PROMPT_BYTES)
        return "a setting is out of range";
    return NULL;
}

/* The text after `name` and spaces in the line, maybe empty; NULL if the line does not begin with `name`. */
static const uint8_t *argument_of(const uint8_t *line, const char *name) {
    while (*name)
        if (*line++ != (uint8_t)*name++)
            return NULL;
    if (*line && *line != ' ')
        return NULL;
    while (*line == ' ')
        line++;
    return line;
}

static int is_text(const uint8_t *p, const char *text) {
    for (; *text; text++)
        if (*p++ != (uint8_t)*text)
            return 0;
    while (*p == ' ')
        p++;
    return !*p;
}

int is_command(const uint8_t *line, const char *name) {
    return is_text(line, name);
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
    while (*p == ' ')
        p++;
    for (; decimals; decimals--)
        number *= 10;
    return *p || !seen_digit || number > most ? -1 : (int32_t)number;
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

static void show_temperature(uint32_t temperature) {
    put("temperature: ");
    put_hundredths((temperature * 100 + 128) >> 8);
    put("\n");
}

static void set_temperature(struct settings *settings, const uint8_t *argument) {
    int32_t hundredths = parse(argument, 2, 1000);
    if (hundredths < 0 || (hundredths > 0 && hundredths < 5)) {
        put("temperature: 0 or 0.05 to 10 is allowed\n");
        return;
    }
    settings->temperature = tt_divide((uint32_t)hundredths * 256 + 50, 100);
    show_temperature(settings->temperature);
}

static void set_ids(struct settings *settings, const uint8_t *argument) {
    int on = is_text(argument, "on");
    if (!on && !is_text(argument, "off")) {
        put("ids: on or off is allowed\n");
        return;
    }
    settings->ids = (uint32_t)on;
    put(on ? "ids: on\n" : "ids: off\n");
}

void settings_show(const struct settings *settings) {
    show_temperature(settings->temperature);
    put_named("top_k: ", settings->top_k, "\n");
    put_named("seed: ", settings->seed, settings->seed ? "\n" : ", a new story each time\n");
    put_named("tokens: ", settings->tokens, "\n");
    if (settings->prompt_size) {
        put("an empty line tells: ");
        put_bytes(settings->prompt, settings->prompt_size);
        put("\n");
    }
}

int settings_change(struct settings *settings, const uint8_t *line) {
    const uint8_t *argument;
    if ((argument = argument_of(line, "/temperature")))
        set_temperature(settings, argument);
    else if ((argument = argument_of(line, "/top_k")))
        set_number("top_k: ", &settings->top_k, argument, 0, 4096);
    else if ((argument = argument_of(line, "/seed")))
        set_number("seed: ", &settings->seed, argument, 0, LARGEST_SEED);
    else if ((argument = argument_of(line, "/tokens")))
        set_number("tokens: ", &settings->tokens, argument, 1, 99999);
    else if ((argument = argument_of(line, "/ids")))
        set_ids(settings, argument);
    else
        return 0;
    return 1;
}
