/* The parts of an RP2040 that the firmware uses: clocks, UART0 on GPIO 0 and 1, a cycle counter. */
#ifndef CHIP_H
#define CHIP_H

#include <stdint.h>

#define CLOCK_HZ 125000000u
#define STACK_PAINT 0x57acc0deu

void chip_start(void);
void halt(void);

/* The next byte, or -1 if none has arrived. */
int uart_poll(void);
uint8_t uart_get(void);
void uart_put(uint8_t byte);

/* Counts down, 24 bits. */
uint32_t cycle_counter(void);

#endif
