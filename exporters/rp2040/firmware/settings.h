/* Settings that a user can change; the export's defaults are in a page of flash. */
#ifndef SETTINGS_H
#define SETTINGS_H

#include <stdint.h>

#define LARGEST_SEED 99999999u
#define PROMPT_BYTES 232 /* of the export's prompt, at most */

struct settings {
    uint32_t temperature, top_k, seed, tokens, ids; /* seed: 0 for a new one in each story */
    uint32_t prompt_size;
    const uint8_t *prompt; /* continued when a line is empty */
};

/* Reads FORMAT.md's page of settings; NULL, or the reason for a refusal. */
const char *settings_read(struct settings *settings, const uint8_t *page);

void settings_show(const struct settings *settings);

/* Obeys a line that changes a setting, such as /seed 7. Returns 0 if there is no such setting. */
int settings_change(struct settings *settings, const uint8_t *line);

/* Whether the line is this command and nothing else. */
int is_command(const uint8_t *line, const char *name);

#endif
