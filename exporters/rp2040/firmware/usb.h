/* USB: the board as a serial port (CDC ACM). Polled; between polls the hardware answers on its own. */
#ifndef USB_H
#define USB_H

#include <stdint.h>

/* Starts the port; the 8 bytes of `id` become its serial number. */
void usb_start(const uint8_t *id);

/* Serves the bus: at least every 50 ms while a host sets the device up, and often for speed. */
void usb_poll(void);

/* Notes when a frame begins. */
void usb_interrupt(void);

/* The next byte from the host, or -1 if there is none. While none is taken, the host has to wait. */
int usb_get(void);

/* Returns 0 if the byte has to wait for the host to read. Without a host that listens bytes are dropped. */
int usb_put(uint8_t byte);

/* Whether the host asked for the boot ROM's drive, by a rate of 1,200 baud. */
int usb_boot_wanted(void);

/* True once after a terminal opened the port. */
int usb_opened(void);

#endif
