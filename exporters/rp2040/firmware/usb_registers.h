/* The USB controller's registers and its memory, DPRAM: data sheet chapter 4.1.4. */
#ifndef USB_REGISTERS_H
#define USB_REGISTERS_H

#include "chip.h"
#include "kernels.h"

#define DPRAM 0x50100000u
#define ENDPOINT_CONTROL(number, out) (DPRAM + 8 * (number) + 4 * (out))
#define BUFFER_CONTROL(number, out) (DPRAM + 0x80 + 8 * (number) + 4 * (out))
#define BUFFER0 0x100u /* offsets in DPRAM; endpoint 0 has one for both directions */
#define BUFFER_NOTIFY 0x180u
#define BUFFER_IN 0x1c0u
#define BUFFER_OUT 0x200u

#define ADDR_ENDP 0x50110000u
#define MAIN_CTRL 0x50110040u
#define SIE_CTRL 0x5011004cu
#define SIE_STATUS 0x50110050u
#define BUFF_STATUS 0x50110058u
#define SOF_RD 0x50110048u
#define EP_STALL_ARM 0x50110068u
#define USB_MUXING 0x50110074u
#define USB_PWR 0x50110078u
#define PHY_DIRECT 0x5011007cu
#define PHY_DIRECT_OVERRIDE 0x50110080u
#define INTE 0x50110090u
#define CHIP_ID 0x40000000u
#define GPIO15_CTRL 0x4001407cu
#define GPIO15_PAD 0x4001c040u

#define BUS_RESET (1u << 19)
#define SETUP_RECEIVED (1u << 17)
#define CONNECTED (1u << 16)
#define LINE_STATE (3u << 2)
#define FRAME_STARTS (1u << 17) /* an interrupt */
#define PULLUP (1u << 16)
#define EP0_INTERRUPT (1u << 29)
#define FULL (1u << 15)
#define DATA1 (1u << 13)
#define STALL (1u << 11)
#define AVAILABLE (1u << 10)
#define LENGTH 0x3ffu
#define ENABLED (1u << 31 | 1u << 29)
#define BULK 2u
#define NOTIFYING 3u
#define PACKET 64u

static inline uint8_t byte_at(uint32_t place) {
    return (uint8_t)(read_register(DPRAM + (place & ~3u)) >> 8 * (place & 3));
}

/* DPRAM is written in words. */
TT_APART static void fill(uint32_t buffer, const uint8_t *bytes, uint32_t size) {
    for (uint32_t i = 0; i < size; i += 4) {
        uint32_t word = 0;
        for (uint32_t j = 0; j < 4 && i + j < size; j++)
            word |= (uint32_t)bytes[i + j] << 8 * j;
        write_register(DPRAM + buffer + i, word);
    }
}

/* AVAILABLE follows once the rest has arrived at the controller, which runs on another clock (chapter 4.1.2.5.1). */
static inline void arm(uint32_t number, uint32_t out, uint32_t control) {
    write_register(BUFFER_CONTROL(number, out), control);
    for (volatile uint32_t i = 0; i < 3; i++) /* a dozen cycles or more */
        ;
    write_register(BUFFER_CONTROL(number, out), control | AVAILABLE);
}

#endif
