/* See flash.h: the same for the RP2350, whose flash interface is called QMI. Data sheet chapters 4.4 (XIP), 12.6 (DMA) and 12.14
 * (QMI). A stream brings words of flash, one after the other, to a FIFO from which DMA takes them; the flash stays readable. */
#include "flash.h"

#include "chip.h"
#include "kernels.h"
#include "runtime.h"

#define DIRECT_CSR (QMI + 0x00)
#define DIRECT_TX (QMI + 0x04)
#define DIRECT_RX (QMI + 0x08)
#define TIMING (QMI + 0x0c)
#define READ_FORMAT (QMI + 0x10)
#define READ_COMMAND (QMI + 0x14)
#define BUSY (1u << 1)
#define DIRECT (30u << 22 | 1u << 0) /* 5 MHz */
#define SELECTED (1u << 2)

#define READ_ADDR 0x50000000u
#define WRITE_ADDR 0x50000004u
#define TRANS_COUNT 0x50000008u
#define CTRL_TRIG 0x5000000cu
#define SNIFF_CTRL 0x50000454u
#define SNIFF_DATA 0x50000458u
#define DMA_BUSY (1u << 26)
/* Enabled, high priority, words, paced by the stream, chained to itself, that is to nothing. */
#define TAKE (49u << 17 | 2u << 2 | 1u << 1 | 1u << 0)
#define ONWARD (1u << 6)
#define SNIFFED (1u << 25)
#define CRC32_REFLECTED (1u << 11 | 1u << 10 | 1u << 5 | 1u << 0) /* of channel 0, read reversed and inverted */

#define FLASH 0x10000000u
#define UNCACHED 0x04000000u /* the same flash, past the cache */
#define PROBE 64u            /* words */

/* Runs once, where the arena will lie. */
#define STARTUP __attribute__((section(".startup")))

uint8_t flash_id[8];
static enum flash_mode mode;

enum flash_mode flash_mode(void) {
    return mode;
}

/* ---- Copies ---- */

TT_HOT TT_APART static void transfer(uint32_t to, uint32_t from, uint32_t words, uint32_t control) {
    REGISTER(READ_ADDR) = XIP_AUX_STREAM;
    REGISTER(WRITE_ADDR) = to;
    REGISTER(TRANS_COUNT) = words;
    REGISTER(CTRL_TRIG) = TAKE | control;
    REGISTER(XIP_STREAM_ADDR) = from;
    REGISTER(XIP_STREAM_CTR) = words;
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
}

/* The CRC-32 of whole words of flash, by the DMA's sniffer. */
TT_HOT static uint32_t sniffed(uint32_t from, uint32_t words) {
    static uint32_t nowhere;
    REGISTER(SNIFF_DATA) = 0xffffffff;
    REGISTER(SNIFF_CTRL) = CRC32_REFLECTED;
    transfer((uint32_t)&nowhere, from, words, SNIFFED);
    tt_fetched();
    return REGISTER(SNIFF_DATA);
}

uint32_t tt_crc32(const uint8_t *bytes, size_t size) {
    size_t whole = mode == FLASH_STREAM && !((uint32_t)bytes & 3) ? size & ~(size_t)3 : 0;
    uint32_t crc = whole ? ~sniffed((uint32_t)bytes, (uint32_t)whole >> 2) : 0xffffffff;
    return ~tt_crc32_of(crc, bytes + whole, size - whole);
}

/* ---- Once ---- */

/* Sends bytes and overwrites them with the reply. */
STARTUP static void exchange(uint8_t *bytes, uint32_t count) {
    REGISTER(DIRECT_CSR) = DIRECT | SELECTED;
    for (uint32_t i = 0; i < count; i++) {
        REGISTER(DIRECT_TX) = bytes[i];
        while (REGISTER(DIRECT_CSR) & BUSY)
            ;
        bytes[i] = (uint8_t)REGISTER(DIRECT_RX);
    }
    REGISTER(DIRECT_CSR) = DIRECT;
}

STARTUP static uint8_t status(uint8_t command) {
    uint8_t bytes[2] = {command, 0};
    exchange(bytes, 2);
    return bytes[1];
}

/* Reads the unique id, and sets the chip's non-volatile bit QE, which enables four lines. Returns 0 if it stays unset. */
STARTUP __attribute__((noinline)) static int prepare_chip(void) {
    volatile uint8_t bytes[16];
    REGISTER(DIRECT_CSR) = DIRECT; /* from here on nothing can be read from flash, */
    while (REGISTER(DIRECT_CSR) & BUSY)
        ;
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
    second = status(0x35);
    REGISTER(DIRECT_CSR) = DIRECT & ~1u; /* to here */
    return second & 2;
}

/* Whether words read now equal those read before. */
STARTUP static int matches(const volatile uint32_t *found, const uint32_t *expected) {
    for (uint32_t i = 0; i < PROBE; i++)
        if (found[i] != expected[i])
            return 0;
    return 1;
}

/* EBh on four lines at half of the clock: address and the mode A0h, by which the next read has no command, 4 dummy cycles. */
STARTUP __attribute__((noinline)) static int start_quad(const uint32_t *expected) {
    REGISTER(PADS_QSPI + 0x04) = 0x21; /* the clock's line: 8 mA, fast */
    for (uint32_t line = 0x08; line <= 0x14; line += 4)
        CLEAR(PADS_QSPI + line) = 1u << 1; /* no Schmitt trigger, which delays */
    REGISTER(TIMING) = 1u << 30 | 2u << 8 | 2;
    REGISTER(READ_COMMAND) = 0xa0eb;
    REGISTER(READ_FORMAT) = 0x000492a8;
    (void)*(const volatile uint32_t *)(FLASH + UNCACHED);
    REGISTER(READ_FORMAT) = 0x000482a8;
    return matches((const volatile uint32_t *)(FLASH + UNCACHED), expected);
}

STARTUP void flash_start(void) {
    uint32_t expected[PROBE], copied[PROBE];
    uint32_t timing = REGISTER(TIMING), format = REGISTER(READ_FORMAT), command = REGISTER(READ_COMMAND);
    SET(RESETS_RESET) = RESET_DMA;
    CLEAR(RESETS_RESET) = RESET_DMA;
    while (!(REGISTER(RESETS_DONE) & RESET_DMA))
        ;
    for (uint32_t i = 0; i < PROBE; i++)
        expected[i] = ((const volatile uint32_t *)(FLASH + UNCACHED))[i];
    mode = FLASH_SERIAL;
    if (prepare_chip()) {
        if (start_quad(expected)) {
            mode = FLASH_STREAM;
            tt_fetch(copied, (const uint8_t *)FLASH, sizeof copied);
            tt_fetched();
            mode = matches(copied, expected) ? FLASH_STREAM : FLASH_QUAD;
        } else {
            REGISTER(READ_COMMAND) = 0xffeb; /* the mode FFh: the next read has a command */
            (void)*(const volatile uint32_t *)(FLASH + UNCACHED);
        }
    }
    if (mode == FLASH_SERIAL) {
        REGISTER(TIMING) = timing;
        REGISTER(READ_COMMAND) = command;
        REGISTER(READ_FORMAT) = format;
    }
    /* A sniffer with another sum than the one computed here would refuse a good model. */
    if (mode == FLASH_STREAM && sniffed(FLASH, PROBE) != ~tt_crc32_of(0xffffffff, (const uint8_t *)expected, sizeof expected))
        mode = FLASH_QUAD;
}
