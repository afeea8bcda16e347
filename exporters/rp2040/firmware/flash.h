/* The flash: reads by four lines at half of the clock, and copies by DMA while both cores compute. Data sheet chapters
 * 2.5 (DMA), 2.6.3 (XIP) and 4.10 (SSI). */
#ifndef FLASH_H
#define FLASH_H

#include <stdint.h>

enum flash_mode {
    FLASH_SERIAL, /* the one command that every flash chip has, as the second stage of the boot set it up */
    FLASH_QUAD,   /* EBh on four lines, without a command from the second read on */
    FLASH_STREAM, /* the same, with many words per address, taken by DMA, whose sniffer computes the CRC */
};

/* Reads the chip's unique id, then sets up the fastest mode that reads the same as the slowest one. To be called once,
 * before the arena is in use: this function lies there. */
void flash_start(void);

enum flash_mode flash_mode(void);

extern uint8_t flash_id[8];

#endif
