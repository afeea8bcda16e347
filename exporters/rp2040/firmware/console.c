/* See console.h. */
#include "console.h"

#include "chip.h"
#include "kernels.h"
#include "runtime.h"
#include "usb.h"

#define KEPT 512 /* bytes typed ahead, a power of two */
#define PATIENCE (1u << 16) /* polls for a host that does not read, tens of ms */

static uint8_t kept[KEPT];
static volatile uint32_t first, end; /* positions, modulo KEPT when used */
static volatile int interrupted;
static int host_reads = 1;

TT_HOT static void keep(uint8_t byte) {
    if (byte == CONSOLE_INTERRUPT) {
        interrupted = 1;
        first = end;
    } else if (end - first < KEPT) {
        kept[end++ % KEPT] = byte;
    }
}

TT_HOT static void drain_uart(void) {
    int byte;
    while ((byte = uart_get()) >= 0)
        keep((uint8_t)byte);
}

/* Up to 32 bytes arrive within 3 ms; a token takes longer. */
void uart_interrupt(void);
TT_HOT void uart_interrupt(void) {
    drain_uart();
}

void console_poll(void) {
    watchdog_feed();
    usb_poll();
    if (usb_boot_wanted())
        boot_drive();
    interrupts_off();
    drain_uart();
    int byte;
    while (end - first < KEPT && (byte = usb_get()) >= 0)
        keep((uint8_t)byte);
    interrupts_on();
}

int console_get(void) {
    int byte = -1;
    interrupts_off();
    if (first != end)
        byte = kept[first++ % KEPT];
    interrupts_on();
    return byte;
}

int console_interrupted(void) {
    int was = interrupted;
    interrupted = 0;
    return was;
}

void console_put(uint8_t byte) {
    while (!uart_put(byte))
        usb_poll();
    uint32_t polls = host_reads ? PATIENCE : 1;
    while (!usb_put(byte) && polls--)
        usb_poll();
    host_reads = polls + 1 != 0;
}

void put_bytes(const uint8_t *bytes, size_t size) {
    for (; size--; bytes++) {
        if (*bytes == '\n')
            console_put('\r');
        console_put(*bytes);
    }
}

void put(const char *text) {
    for (; *text; text++)
        put_bytes((const uint8_t *)text, 1);
}

void put_number(uint32_t number) {
    char digits[11], *digit = digits + 10;
    *digit = 0;
    do {
        uint32_t rest = tt_divide(number, 10);
        *--digit = (char)('0' + (number - 10 * rest));
        number = rest;
    } while (number);
    put(digit);
}

void put_named(const char *before, uint32_t number, const char *after) {
    put(before);
    put_number(number);
    put(after);
}

void put_hundredths(uint32_t number) {
    uint32_t whole = tt_divide(number, 100), rest = number - 100 * whole;
    put_number(whole);
    put(rest < 10 ? ".0" : ".");
    put_number(rest);
}
