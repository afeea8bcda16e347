/* A story teller as a library: a tiny transformer, its vocabulary and the code to run them. It needs no operating system, no C
 * library and no allocation; it is not reentrant. Compiled for a Cortex-M33 or M4, it uses their DSP instructions.
 *
 *     const char *reason = story_open();                              NULL, or why not
 *     story_tell("Once upon a time", NULL, print, NULL);              calls print for each token
 */
#ifndef STORY_H
#define STORY_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct story_settings {
    uint16_t temperature; /* in 256ths, 13 to 2560; 0 always takes the likeliest token */
    uint16_t top_k;       /* draw from this number of likeliest tokens; 0: from all */
    uint32_t tokens;      /* of a story, at most */
    uint32_t seed;        /* the same one tells the same story */
};

/* The settings of the run that the model comes from. */
extern const struct story_settings story_defaults;

/* Takes a token and its bytes, without a terminating 0; returns 0 to end the story here. */
typedef int story_put(uint32_t token, const uint8_t *bytes, size_t size, void *where);

/* Checks the model and puts its state, and its matrices if they fit, into STORY_ARENA bytes of memory. Call it once. */
const char *story_open(void);

/* Continues a prompt, of which it reads STORY_PROMPT bytes at most. Returns the number of tokens passed to `put`. */
uint32_t story_tell(const char *prompt, const struct story_settings *settings, story_put *put, void *where);

#define STORY_PROMPT 240

#ifdef __cplusplus
}
#endif

#endif
