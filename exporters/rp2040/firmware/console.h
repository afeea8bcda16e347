/* The user's terminal: over the UART and over USB, both at once. */
#ifndef CONSOLE_H
#define CONSOLE_H

#include <stddef.h>
#include <stdint.h>

#define CONSOLE_INTERRUPT 3 /* Ctrl-C */

/* Collects input, keeping up to 512 bytes typed ahead, and feeds the watchdog; to be called often. */
void console_poll(void);

/* The next byte, or -1 if there is none. */
int console_get(void);

/* True once for each Ctrl-C, which also drops what was typed before it. */
int console_interrupted(void);

/* Waits for room on the UART, and for a limited time for a USB host to read. */
void console_put(uint8_t byte);

/* As text, with CR before LF. */
void put_bytes(const uint8_t *bytes, size_t size);
void put(const char *text);
void put_number(uint32_t number);
void put_named(const char *before, uint32_t number, const char *after);
void put_hundredths(uint32_t number);

#endif
