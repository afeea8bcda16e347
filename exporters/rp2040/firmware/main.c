/* A story teller on UART and USB: a line is a prompt, or a setting if it begins with a slash. */
#include "chip.h"
#include "console.h"
#include "cores.h"
#include "flash.h"
#include "kernels.h"
#include "runtime.h"
#include "settings.h"
#include "usb.h"

#define SETTINGS 0x1000ff00u
#define MODEL 0x10010000u
#define RUNTIME_BYTES (VECTORS + 4 * SUM_VECTOR) /* in two unused entries of the vector table; see checksum.py */
#define RUNTIME_SUM (RUNTIME_BYTES + 4)
#define RUNTIME_SUMMED (RUNTIME_BYTES + 8)
#define FLASH_END 0x11000000u /* of the largest flash that can be read directly, 16 MB */
#define LINE_BYTES 240
#define BLINK_POLLS (1u << 17)
#define INSIDE 28 /* stands for a byte within an escape sequence */

extern uint8_t image_start[], image_end[], arena_end[];
extern uint32_t stack1_start[], stack_start[], stack_end[];

static struct tt t;
static struct settings settings;
static uint8_t line[LINE_BYTES + 1];
static uint16_t prompt[LINE_BYTES];

/* ---- What the board says about itself ---- */

static uint32_t used(const uint32_t *p, const uint32_t *end) {
    while (p < end && *p == STACK_PAINT)
        p++;
    return 4 * (uint32_t)(end - p);
}

static void put_sram(void) {
    uint32_t image = (uint32_t)(image_end - image_start);
    uint32_t stack = used(stack1_start, stack_start) + used(stack_start, stack_end);
    put_named("SRAM: image ", image, ", ");
    put_named("arena ", t.arena_bytes, ", ");
    put_named("stacks ", stack, ", ");
    put_named("total ", image + t.arena_bytes + stack, " bytes\n");
}

static void put_cores(void) {
    static unsigned before = 2;
    unsigned now = cores_running();
    if (now < before)
        put("The second core does not answer: one core does everything, at half the speed.\n");
    before = now;
}

static void put_refusal(const char *reason) {
    put("\nCannot start: ");
    put(reason);
    put(".\nExport the model again and copy its story.uf2 to this board.\n");
}

static void greet(void) {
    put_named("\nTiny transformer: vocabulary ", t.vocabulary, "");
    put_named(", width ", t.width, "");
    put_named(", layers ", t.layers, "");
    put_named(", heads ", t.heads, "");
    put_named(", hidden ", t.hidden, "");
    put_named(", context ", t.context, "\n");
    put_named("Model ", t.model_bytes, " bytes, ");
    put_named("vocabulary ", t.vocabulary_bytes, " bytes\n");
    put_sram();
    put_named("Cores: ", cores_running(), "\n");
    if (flash_mode() != FLASH_STREAM)
        put("The flash is read slowly: it did not prove itself at four lines.\n");
    if (watchdog_barked())
        put("The chip hung and was restarted by its watchdog.\n");
    settings_show(&settings);
    put("/help lists the settings\n> ");
}

static void help(void) {
    put("A line is a prompt; Ctrl-C ends the story. Settings:\n"
        "/temperature 0.8   0 (greedy) or 0.05 to 10\n"
        "/top_k 40          draw from the 40 likeliest only; 0: from all\n"
        "/seed 7            repeats a story, whose last line has its seed; 0: a new story each time\n"
        "/tokens 200        length of a story at most\n"
        "/ids on            token numbers instead of text, or off\n"
        "/settings          all of these\n"
        "/sram              memory in use\n"
        "/bootsel           restart as a drive that takes another story.uf2\n"
        "/help              this\n");
}

static void obey(void) {
    if (is_command(line, "/settings"))
        settings_show(&settings);
    else if (is_command(line, "/sram"))
        put_sram();
    else if (is_command(line, "/bootsel"))
        boot_drive();
    else if (is_command(line, "/help"))
        help();
    else if (!settings_change(&settings, line))
        put("There are /temperature, /top_k, /seed, /tokens, /ids, /settings, /sram, /bootsel and /help.\n");
}

/* ---- Stories ---- */

static uint32_t state; /* of the random generator */
static uint32_t noise; /* from which new stories get their seeds */

/* The seed that is set, or a new one from the ring oscillator and the time at which the line was typed. */
static uint32_t choose_seed(void) {
    if (settings.seed)
        return settings.seed;
    noise = tt_seed((noise ^ cycle_counter()) + 1);
    uint32_t number = noise >> 4;
    return 1 + number - tt_divide(number, LARGEST_SEED) * LARGEST_SEED;
}

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

static void put_speed(uint32_t tokens, uint64_t cycles, uint32_t seed) {
    uint32_t counted = tokens;
    for (; cycles >> 32; cycles >>= 1)
        counted >>= 1;
    put_named("\n[", tokens, " tokens");
    if (counted && cycles) { /* an emulator without a clock counts none */
        uint32_t each = tt_divide((uint32_t)cycles, counted);
        put_named(", ", tt_divide(CLOCK_HZ, each), " tokens/s");
        put_named(", ", each, " cycles/token");
    }
    if (settings.temperature)
        put_named(", seed ", seed, "");
    put("]\n");
}

static void tell(const uint8_t *text, size_t size) {
    int count = tt_encode(&t, text, size, prompt, LINE_BYTES);
    uint64_t cycles = 0;
    uint32_t tokens = 0, ended = 0, seed = choose_seed();
    state = tt_seed(seed);
    tt_start(&t);
    tt_step(&t, TT_END, count == 0);
    for (int i = 0; i < count; i++) {
        tt_step(&t, prompt[i], i == count - 1);
        console_poll();
    }
    uint32_t token = choose();
    while (token != TT_END && tokens < settings.tokens && !ended) {
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
        led_toggle();
        console_poll();
        ended = (uint32_t)console_interrupted();
    }
    put_speed(tokens, cycles, seed);
    put_cores();
    led_on();
}

/* ---- Lines ---- */

/* The next typed byte, or Ctrl-C. Greets a terminal that was just opened. */
static uint8_t next_byte(void) {
    for (;;) {
        if (console_interrupted())
            return CONSOLE_INTERRUPT;
        int byte = console_get();
        if (byte >= 0)
            return (uint8_t)byte;
        if (usb_opened())
            greet();
        console_poll();
    }
}

/* Reads a line into `line` and echoes it; backspace erases all bytes of a character. Escape sequences of keys such as
 * arrows are skipped: ESC, [, then up to a byte from 64 on. */
static size_t get_line(void) {
    static uint8_t last; /* the previous byte, as CR LF is one end of a line; INSIDE within an escape sequence */
    size_t size = 0;
    for (;;) {
        uint8_t byte = next_byte(), before = last;
        last = byte;
        if (byte >= 32 && (before == INSIDE || (before == 27 && byte == '['))) {
            if (before == 27 || byte < 64)
                last = INSIDE;
            continue;
        }
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
        } else if (byte == CONSOLE_INTERRUPT) {
            size = 0;
            put("^C\n> ");
        } else if (byte < 32 && byte != '\t') {
            continue;
        } else if (size < LINE_BYTES) {
            line[size++] = byte;
            console_put(byte);
        } else {
            console_put(7);
        }
    }
}

static const char *open_files(void) {
    const uint8_t *model = (const uint8_t *)MODEL, *vocabulary = (const uint8_t *)FLASH_END;
    uint32_t summed = REGISTER(RUNTIME_BYTES);
    if (summed > SETTINGS - RUNTIME_SUMMED || tt_crc32((const uint8_t *)RUNTIME_SUMMED, summed) != REGISTER(RUNTIME_SUM))
        return "the firmware is damaged: its CRC differs";
    const char *reason = settings_read(&settings, (const uint8_t *)SETTINGS);
    if (reason)
        return reason;
    uint32_t size = ((const volatile uint32_t *)MODEL)[2];
    if (size < FLASH_END - MODEL)
        vocabulary = model + ((size + 255) & ~255u);
    return tt_open(&t, model, FLASH_END - MODEL, vocabulary, FLASH_END - (uint32_t)vocabulary, image_end,
                   (size_t)(arena_end - image_end));
}

/* Blinks, and prints the reason: now, to every terminal that opens, and at every key. */
__attribute__((noreturn)) static void lament(const char *reason) {
    put_refusal(reason);
    for (uint32_t polls = 0;; polls++) {
        console_poll();
        if (usb_opened() || console_get() >= 0)
            put_refusal(reason);
        if (polls % BLINK_POLLS == 0)
            led_toggle();
    }
}

int main(void) {
    chip_start();
    flash_start();
    noise = random_number();
    const char *reason = open_files();
    usb_start(flash_id);
    watchdog_start();
    if (reason)
        lament(reason);
    cores_start();
    put_cores();
    greet();
    for (;;) {
        size_t size = get_line();
        if (line[0] == '/') {
            obey();
        } else if (size) {
            tell(line, size);
        } else {
            if (!settings.ids)
                put_bytes(settings.prompt, settings.prompt_size); /* the story's beginning, which nobody has typed */
            tell(settings.prompt, settings.prompt_size);
        }
        put("> ");
    }
}
