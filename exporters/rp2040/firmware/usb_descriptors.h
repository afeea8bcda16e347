/* What the board says about itself to a USB host: USB 2.0 chapter 9.6, CDC 1.2 chapter 5.2. */
#ifndef USB_DESCRIPTORS_H
#define USB_DESCRIPTORS_H

#include <stddef.h>
#include <stdint.h>

#define WORD(number) (number) & 0xff, (number) >> 8

static const uint8_t usb_device[18] = {
    18, 1, WORD(0x0200), 0xef, 2, 1, 64, /* functions by association; packets of 64 bytes */
    WORD(0x2e8a), WORD(0x000a),          /* Raspberry Pi; a serial port of an RP2040's own program */
    WORD(0x0100), 1, 2, 3, 1,
};

static const uint8_t usb_configuration[75] = {
    9, 2, WORD(75), 2, 1, 0, 0x80, 125,     /* two interfaces, 250 mA at most from the bus */
    8, 11, 0, 2, 2, 2, 0, 0,                /* they belong together: CDC ACM */
    9, 4, 0, 0, 1, 2, 2, 0, 0,              /* interface 0: control, without AT commands */
    5, 0x24, 0, WORD(0x0110),               /* CDC 1.1 */
    5, 0x24, 1, 0, 1,                       /* no call management */
    4, 0x24, 2, 2,                          /* line coding and line state */
    5, 0x24, 6, 0, 1,                       /* interface 0 controls interface 1 */
    7, 5, 0x81, 3, WORD(8), 16,             /* endpoint 1 in, interrupt */
    9, 4, 1, 0, 2, 10, 0, 0, 0,             /* interface 1: data */
    7, 5, 0x02, 2, WORD(64), 0,             /* endpoint 2 out, bulk */
    7, 5, 0x82, 2, WORD(64), 0,             /* endpoint 2 in, bulk */
};

static const uint8_t usb_languages[4] = {4, 3, WORD(0x0409)};
static const uint8_t usb_maker[] = {
    2 + 2 * 17, 3, 'T', 0, 'i', 0, 'n', 0, 'y', 0, ' ', 0, 't', 0, 'r', 0, 'a', 0, 'n', 0, 's', 0, 'f', 0, 'o', 0,
    'r', 0, 'm', 0, 'e', 0, 'r', 0, 's', 0,
};
static const uint8_t usb_product[] = {
    2 + 2 * 12, 3, 'S', 0, 't', 0, 'o', 0, 'r', 0, 'y', 0, ' ', 0, 't', 0, 'e', 0, 'l', 0, 'l', 0, 'e', 0, 'r', 0,
};

static uint8_t usb_serial[2 + 2 * 16] = {2 + 2 * 16, 3}; /* the flash's id, two digits a byte */

static void usb_number(const uint8_t *id) {
    for (uint32_t i = 0; i < 16; i++) {
        uint32_t digit = id[i >> 1] >> (i & 1 ? 0 : 4) & 15;
        usb_serial[2 + 2 * i] = (uint8_t)(digit < 10 ? '0' + digit : 'A' + digit - 10);
    }
}

/* The descriptor and its size; NULL if there is none of this type and number. */
static const uint8_t *usb_descriptor(uint32_t type, uint32_t number, uint32_t *size) {
    static const struct {
        uint8_t type, number, size;
        const uint8_t *bytes;
    } all[] = {
        {1, 0, sizeof usb_device, usb_device},       {2, 0, sizeof usb_configuration, usb_configuration},
        {3, 0, sizeof usb_languages, usb_languages}, {3, 1, sizeof usb_maker, usb_maker},
        {3, 2, sizeof usb_product, usb_product},     {3, 3, sizeof usb_serial, usb_serial},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].type == type && all[i].number == number) {
            *size = all[i].size;
            return all[i].bytes;
        }
    return NULL;
}

#endif
