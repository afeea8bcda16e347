/* The parts of an RP2040 or RP2350 that the firmware uses: clocks, UART0 on GPIO 0 and 1, the LED on GPIO 25, a cycle counter. */
#ifndef CHIP_H
#define CHIP_H

#include <stdint.h>

#ifdef RP2350
#include "rp2350.h"
#else
#include "rp2040.h"
#endif

#define REGISTER(address) (*(volatile uint32_t *)(address))
#define SET_BITS 0x2000u /* offset of a register's alias that sets bits atomically, */
#define CLEAR_BITS 0x3000u /* and of the one that clears them */
#define SET(address) REGISTER((address) + SET_BITS)
#define CLEAR(address) REGISTER((address) + CLEAR_BITS)

/* Tests run some of the code without a chip, on registers of their own. */
#ifdef TT_FIRMWARE
static inline uint32_t read_register(uint32_t address) {
    return REGISTER(address);
}

static inline void write_register(uint32_t address, uint32_t value) {
    REGISTER(address) = value;
}
#else
uint32_t read_register(uint32_t address);
void write_register(uint32_t address, uint32_t value);
#endif

#ifndef CLOCK_MHZ
#define CLOCK_MHZ 125 /* or 200, which Raspberry Pi certifies at 1.15 V; never tried on a board */
#endif
#define CLOCK_HZ (CLOCK_MHZ * 1000000u)
#define STACK_PAINT 0x57acc0deu

void chip_start(void);
__attribute__((noreturn)) void halt(void);

/* The next byte, or -1 if none has arrived. */
int uart_get(void);

/* Returns 0 if there is no room for the byte now. */
int uart_put(uint8_t byte);

void led_on(void);
void led_toggle(void);

#ifdef TT_FIRMWARE
static inline void interrupts_off(void) {
    __asm__ volatile("cpsid i" ::: "memory");
}

static inline void interrupts_on(void) {
    __asm__ volatile("cpsie i" ::: "memory");
}
#endif

/* Differs after each power cycle. */
uint32_t random_number(void);

/* Restarts the chip unless it is fed again within a second. */
void watchdog_start(void);
void watchdog_feed(void);

/* Whether the chip was restarted because nothing had fed the watchdog for a second. */
int watchdog_barked(void);

/* Restarts into the boot ROM's drive, as with BOOTSEL held. */
__attribute__((noreturn)) void boot_drive(void);

/* a / b, rounded down. */
uint32_t tt_divide(uint32_t a, uint32_t b);

/* Counts down, 24 bits. */
uint32_t cycle_counter(void);

#endif
