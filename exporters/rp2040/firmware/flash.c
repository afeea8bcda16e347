/* See flash.h. While a copy runs, flash cannot be read: all code that runs then, interrupts included, lies in SRAM. */
#include "flash.h"

#include "chip.h"
#include "kernels.h"
#include "runtime.h"

#define SSI 0x18000000u
#define CTRLR0 (SSI + 0x00)
#define CTRLR1 (SSI + 0x04)
#define SSIENR (SSI + 0x08)
#define BAUDR (SSI + 0x14)
#define SR (SSI + 0x28)
#define DMACR (SSI + 0x4c)
#define DR0 (SSI + 0x60)
#define RX_SAMPLE_DLY (SSI + 0xf0)
#define SPI_CTRLR0 (SSI + 0xf4)
#define BUSY (1u << 0)
#define RECEIVED (1u << 3)

#define READ_ADDR 0x50000000u
#define WRITE_ADDR 0x50000004u
#define TRANS_COUNT 0x50000008u
#define CTRL_TRIG 0x5000000cu
#define SNIFF_CTRL 0x50000434u
#define SNIFF_DATA 0x50000438u
#define DMA_BUSY (1u << 24)
/* Enabled, high priority, words, paced by the SSI's receiver, chained to itself, that is to nothing. Bytes swapped: the
 * first one of the flash is the highest of a frame. */
#define TAKE (1u << 22 | 39u << 15 | 2u << 2 | 1u << 1 | 1u << 0)
#define ONWARD (1u << 5)
#define SNIFFED (1u << 23)
#define CRC32_REFLECTED (1u << 11 | 1u << 10 | 1u << 5 | 1u << 0) /* of channel 0, read reversed and inverted */

#define FLASH 0x10000000u
#define UNCACHED 0x03000000u /* the same flash, past the cache */
#define LONGEST 65536u       /* frames of a transfer */
#define PROBE 64u            /* words */

/* Runs once, where the arena will lie. */
#define STARTUP __attribute__((section(".startup")))

uint8_t flash_id[8];
static enum flash_mode mode;

enum flash_mode flash_mode(void) {
    return mode;
}

/* ---- Copies ---- */

TT_HOT TT_APART static void set_up_transfer(uint32_t frames, uint32_t dma) {
    REGISTER(SSIENR) = 0;
    REGISTER(CTRLR1) = frames - 1;
    REGISTER(DMACR) = dma;
    REGISTER(SSIENR) = 1;
}

TT_HOT TT_APART static void transfer(uint32_t to, uint32_t from, uint32_t words, uint32_t control) {
    set_up_transfer(words, 3);
    REGISTER(READ_ADDR) = DR0;
    REGISTER(WRITE_ADDR) = to;
    REGISTER(TRANS_COUNT) = words;
    REGISTER(CTRL_TRIG) = TAKE | control;
    REGISTER(DR0) = from << 8 | 0xa0; /* 24 bits of address; the next read has no command either */
}

TT_HOT void tt_fetch(void *to, const uint8_t *from, uint32_t size) {
    if (mode == FLASH_STREAM) {
        transfer((uint32_t)to, (uint32_t)from, size >> 2, ONWARD);
        return;
    }
    for (uint32_t i = 0; i < size >> 2; i++)
        ((uint32_t *)to)[i] = ((const volatile uint32_t *)from)[i];
}

TT_HOT void tt_fetched(void) {
    while (REGISTER(CTRL_TRIG) & DMA_BUSY)
        ;
    __asm__ volatile("dmb" ::: "memory");
}

TT_HOT void tt_fetch_end(void) {
    if (mode == FLASH_STREAM)
        set_up_transfer(1, 0);
}

/* The CRC-32 of whole words of flash, by the DMA's sniffer. */
TT_HOT static uint32_t sniffed(uint32_t from, uint32_t words) {
    static uint32_t nowhere;
    REGISTER(SNIFF_DATA) = 0xffffffff;
    REGISTER(SNIFF_CTRL) = CRC32_REFLECTED;
    for (uint32_t count; words; words -= count, from += 4 * count) {
        count = words < LONGEST ? words : LONGEST;
        transfer((uint32_t)&nowhere, from, count, SNIFFED);
        tt_fetched();
    }
    set_up_transfer(1, 0);
    return REGISTER(SNIFF_DATA);
}

uint32_t tt_crc32(const uint8_t *bytes, size_t size) {
    size_t whole = mode == FLASH_STREAM && !((uint32_t)bytes & 3) ? size & ~(size_t)3 : 0;
    uint32_t crc = whole ? ~sniffed((uint32_t)bytes, (uint32_t)whole >> 2) : 0xffffffff;
    return ~tt_crc32_of(crc, bytes + whole, size - whole);
}

/* ---- Once ---- */

STARTUP static void configure(uint32_t baud, uint32_t control, uint32_t spi) {
    while (REGISTER(SR) & BUSY)
        ;
    REGISTER(SSIENR) = 0;
    REGISTER(BAUDR) = baud;
    REGISTER(CTRLR0) = control;
    REGISTER(SPI_CTRLR0) = spi;
    REGISTER(SSIENR) = 1;
}

/* Sends bytes and overwrites them with the reply. They fit the FIFO, which is filled faster than it empties: the chip
 * stays selected. */
STARTUP static void exchange(uint8_t *bytes, uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        REGISTER(DR0) = bytes[i];
    for (uint32_t i = 0; i < count; i++) {
        while (!(REGISTER(SR) & RECEIVED))
            ;
        bytes[i] = (uint8_t)REGISTER(DR0);
    }
    while (REGISTER(SR) & BUSY)
        ;
}

STARTUP static uint8_t status(uint8_t command) {
    uint8_t bytes[2] = {command, 0};
    exchange(bytes, 2);
    return bytes[1];
}

/* Reads the unique id, and sets the chip's non-volatile bit QE, which enables four lines. Returns 0 if it stays unset. */
STARTUP static int prepare_chip(void) {
    volatile uint8_t bytes[16];
    for (uint32_t i = 0; i < 16; i++)
        bytes[i] = 0;
    bytes[0] = 0x4b;
    exchange((uint8_t *)bytes, 13);
    for (uint32_t i = 0; i < 8; i++)
        flash_id[i] = bytes[5 + i];
    uint8_t first = status(0x05), second = status(0x35);
    if (!(second & 2)) {
        bytes[0] = 0x06;
        exchange((uint8_t *)bytes, 1);
        bytes[0] = 0x01;
        bytes[1] = first;
        bytes[2] = second | 2;
        exchange((uint8_t *)bytes, 3);
        for (uint32_t polls = 1u << 16; polls && status(0x05) & 1; polls--)
            ;
    }
    return status(0x35) & 2;
}

/* Whether words read now equal those of serial reads. */
STARTUP static int matches(const volatile uint32_t *found, const uint32_t *expected) {
    for (uint32_t i = 0; i < PROBE; i++)
        if (found[i] != expected[i])
            return 0;
    return 1;
}

STARTUP __attribute__((noinline)) static int start_quad(const uint32_t *expected) {
    REGISTER(PADS_QSPI + 0x04) = 0x21; /* the clock's line: 8 mA, fast */
    for (uint32_t line = 0x08; line <= 0x14; line += 4)
        CLEAR(PADS_QSPI + line) = 1u << 1; /* no Schmitt trigger, which delays */
    REGISTER(SSIENR) = 0;
    REGISTER(RX_SAMPLE_DLY) = 1;
    /* Words, quad; a read by EBh: address and the mode A0h, by which the next read has no command, and 4 dummy cycles. */
    configure(2, 0x005f0300, 0x00002221);
    REGISTER(DR0) = 0xeb;
    REGISTER(DR0) = 0xa0;
    while (!(REGISTER(SR) & RECEIVED))
        ;
    (void)REGISTER(DR0);
    configure(2, 0x005f0300, 0xa0002022);
    return matches((const volatile uint32_t *)(FLASH + UNCACHED), expected);
}

STARTUP void flash_start(void) {
    uint32_t expected[PROBE], copied[PROBE];
    uint32_t control = REGISTER(CTRLR0), spi = REGISTER(SPI_CTRLR0);
    SET(RESETS_RESET) = RESET_DMA;
    CLEAR(RESETS_RESET) = RESET_DMA;
    while (!(REGISTER(RESETS_DONE) & RESET_DMA))
        ;
    for (uint32_t i = 0; i < PROBE; i++)
        expected[i] = ((const volatile uint32_t *)FLASH)[i];
    configure(4, 0x00070000, 0);
    mode = FLASH_SERIAL;
    if (prepare_chip()) {
        if (start_quad(expected)) {
            mode = FLASH_STREAM;
            tt_fetch(copied, (const uint8_t *)FLASH, sizeof copied);
            tt_fetched();
            tt_fetch_end();
            mode = matches(copied, expected) ? FLASH_STREAM : FLASH_QUAD;
        } else {
            REGISTER(DR0) = 0xffffffff; /* the mode FFh: the next read has a command */
            while (!(REGISTER(SR) & RECEIVED))
                ;
            (void)REGISTER(DR0);
        }
    }
    if (mode == FLASH_SERIAL)
        configure(4, control, spi);
    /* A sniffer with another sum than the one computed here would refuse a good model. */
    if (mode == FLASH_STREAM && sniffed(FLASH, PROBE) != ~tt_crc32_of(0xffffffff, (const uint8_t *)expected, sizeof expected))
        mode = FLASH_QUAD;
}
