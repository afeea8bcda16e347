/* Type a line: the story continues it. An empty line begins with "Once upon a time". Over USB and UART. */
#include <stdio.h>

#include "pico/stdlib.h"
#include "story.h"

static int print(uint32_t token, const uint8_t *bytes, size_t size, void *where) {
    (void)token;
    (void)where;
    while (size--)
        putchar_raw(*bytes++);
    return getchar_timeout_us(0) < 0; /* a key ends the story */
}

int main(void) {
    static char line[STORY_PROMPT + 1];
    stdio_init_all();
    while (!stdio_usb_connected())
        sleep_ms(100);
    const char *reason = story_open();
    struct story_settings settings = story_defaults;
    for (unsigned size = 0;;) {
        int key = getchar();
        if (reason)
            puts(reason);
        if (key != '\r' && key != '\n') {
            if (size < STORY_PROMPT)
                line[size++] = (char)key;
            continue;
        }
        line[size] = 0;
        settings.seed = time_us_32(); /* another story for each line */
        const char *prompt = size ? line : "Once upon a time";
        printf("%s", prompt);
        if (!reason)
            story_tell(prompt, &settings, print, NULL);
        printf("\n");
        size = 0;
    }
}
