/* A libFuzzer target for usb.c: the input says what a host does, and this file plays the controller. It aborts where the
 * driver leaves its buffers or breaks a rule of the controller. */
#include <stdlib.h>
#include <string.h>

#include "chip.h"
#include "usb.h"

#define DPRAM 0x50100000u
#define REGISTERS 0x50110000u
#define RESETS 0x4000c000u
#define SIE_STATUS (REGISTERS + 0x50)
#define BUFF_STATUS (REGISTERS + 0x58)
#define SETUP (1u << 17)
#define RESET (1u << 19)
#define AVAILABLE (1u << 10)
#define FULL (1u << 15)
#define STALL (1u << 11)

#define CHIP_ID 0x40000000u

static uint32_t now, frame; /* microseconds */
static uint32_t dpram[1024], registers[0x4000 / 4];
static uint32_t status, buffers; /* registers whose bits a write clears */

uint32_t cycle_counter(void) {
    return -(now += 1) * (CLOCK_HZ / 1000000);
}

uint32_t tt_divide(uint32_t a, uint32_t b) {
    return a / b;
}

uint32_t read_register(uint32_t address) {
    if (address == CHIP_ID)
        return 1u << 28;
    if (address >= 0x40014000 && address < 0x40020000)
        return 0;
    if (address == REGISTERS + 0x48)
        return 0;
    if (address == RESETS + 8)
        return 0xffffffff; /* all is out of reset at once */
    if (address == SIE_STATUS)
        return status | 1u << 16 | 1u << 2; /* connected, the line idle */
    if (address == BUFF_STATUS)
        return buffers;
    if (address % 4 || address < DPRAM || address >= DPRAM + sizeof dpram)
        abort();
    return dpram[(address - DPRAM) / 4];
}

void write_register(uint32_t address, uint32_t value) {
    if (address == SIE_STATUS)
        status &= ~value;
    else if (address == BUFF_STATUS)
        buffers &= ~value;
    else if (address % 4)
        abort();
    else if (address >= 0x40014000 && address < 0x40020000)
        return;
    else if (address == DPRAM + 0x90 && value & AVAILABLE && now - frame > 801 && now - frame < 999)
        abort(); /* erratum RP2040-E15 */
    else if (address >= DPRAM && address < DPRAM + sizeof dpram)
        dpram[(address - DPRAM) / 4] = value;
    else if (address >= REGISTERS && address < REGISTERS + sizeof registers)
        registers[(address - REGISTERS) / 4] = value;
    else if (address < RESETS || address >= RESETS + 0x4000)
        abort();
}

/* The controller moves a packet of an armed buffer. */
static void transfer(uint32_t number, uint32_t out, const uint8_t *bytes, uint32_t size) {
    uint32_t *control = &dpram[0x80 / 4 + 2 * number + out];
    if (!(*control & AVAILABLE) || *control & STALL)
        return;
    uint32_t room = *control & 0x3ff, place = number == 0 ? 0x100 : dpram[2 * number + out] & 0xfff;
    if (room > 64 || place < 0x100 || place + 64 > sizeof dpram || (number && !(dpram[2 * number + out] >> 31)))
        abort();
    if (!out && !(*control & FULL))
        abort();
    if (out) {
        size = size > room ? room : size;
        memcpy((uint8_t *)dpram + place, bytes, size);
        *control = (*control & ~0x3ffu) | size;
    }
    *control &= ~AVAILABLE;
    buffers |= 1u << (2 * number + out);
}

static void request(const char *setup) {
    memcpy(dpram, setup, 8);
    status |= SETUP;
    usb_poll();
    transfer(0, 0, NULL, 0);
    usb_poll();
}

/* Whatever came before, after a reset the device can be set up, sends and receives. */
static void check_life(void) {
    now += 2000;
    frame = now;
    usb_interrupt();
    status |= RESET;
    usb_poll();
    usb_opened();
    frame = now;
    usb_interrupt();
    request("\0\5\7\0\0\0\0\0"); /* SET_ADDRESS */
    if (registers[0] != 7)
        abort();
    request("\0\11\1\0\0\0\0\0");    /* SET_CONFIGURATION */
    request("\41\42\1\0\0\0\0\0");   /* SET_CONTROL_LINE_STATE */
    if (!usb_opened() || !usb_put('x'))
        abort();
    usb_poll();
    transfer(2, 1, (const uint8_t *)"ab", 2);
    usb_poll();
    if ((dpram[0x90 / 4] & (AVAILABLE | FULL | 0x3ff)) != (AVAILABLE | FULL | 1) || dpram[0x1c0 / 4] != 'x')
        abort();
    if (usb_get() != 'a' || usb_get() != 'b' || usb_get() != -1)
        abort();
    memcpy(dpram, "\200\6\3\3\11\4\377\0", 8); /* GET_DESCRIPTOR of the serial number, "serialno" in hexadecimal */
    status |= SETUP;
    usb_poll();
    if (memcmp((uint8_t *)dpram + 0x100, "\42\0037\0003\0", 6))
        abort();
    memcpy(dpram, "\41\40\0\0\0\0\7\0", 8); /* SET_LINE_CODING: 1,200 baud */
    status |= SETUP;
    usb_poll();
    transfer(0, 1, (const uint8_t *)"\260\4\0\0\0\0\10", 7);
    usb_poll();
    if (usb_boot_wanted())
        abort(); /* not before the host knows that it was heard */
    transfer(0, 0, NULL, 0);
    usb_poll();
    if (!usb_boot_wanted())
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size) {
    memset(dpram, 0, sizeof dpram);
    memset(registers, 0, sizeof registers);
    status = buffers = 0;
    usb_start((const uint8_t *)"serialno");
    while (size >= 9) {
        uint8_t act = input[0];
        const uint8_t *data = input + 1;
        uint32_t length = act >> 3 == 31 ? 64 : act >> 3;
        if (length > size - 1)
            length = (uint32_t)size - 1;
        switch (act & 7) {
        case 0: /* a setup packet, whatever is under way */
            memcpy(dpram, data, 8);
            status |= SETUP;
            break;
        case 1:
            status |= RESET;
            break;
        case 2:
            transfer(0, 0, NULL, 0);
            break;
        case 3:
            transfer(0, 1, data, length);
            break;
        case 4:
            transfer(2, 1, data, length);
            break;
        case 5:
            transfer(2, 0, NULL, 0);
            break;
        case 6:
            for (uint32_t i = 0; i < length; i++)
                usb_put(data[i]);
            break;
        case 7:
            now += 37 * length;
            if (now - frame > 1000) {
                frame = now;
                usb_interrupt();
            }
            /* fall through */
        default:
            for (uint32_t i = 0; i < length && usb_get() >= 0; i++)
                ;
            usb_opened();
        }
        usb_poll();
        input += 9;
        size -= 9;
    }
    check_life();
    return 0;
}
