/* Addresses and bits of the RP2350 that the firmware uses; names as in its data sheet. */
#ifndef RP2350_H
#define RP2350_H

#define CLK_REF_CTRL 0x40010030u
#define CLK_REF_DIV 0x40010034u
#define CLK_REF_SELECTED 0x40010038u
#define CLK_SYS_CTRL 0x4001003cu
#define CLK_SYS_DIV 0x40010040u
#define CLK_SYS_SELECTED 0x40010044u
#define CLK_PERI_CTRL 0x40010048u
#define CLK_USB_CTRL 0x40010060u
#define CLK_SYS_RESUS_CTRL 0x40010084u
#define PSM_FRCE_OFF 0x40018004u
#define PSM_WDSEL 0x40018008u
#define PSM_PROC1 (1u << 24)
#define PSM_ALL_BUT_OSCILLATORS 0x1fffff3u
#define RESETS_RESET 0x40020000u
#define RESETS_DONE 0x40020008u
#define RESET_DMA (1u << 2)
#define RESET_PLLS (1u << 14 | 1u << 15)
#define RESET_IO_PADS_UART0 (1u << 6 | 1u << 9 | 1u << 26)
#define RESET_USB (1u << 28)
#define IO_BANK0 0x40028000u
#define PADS_BANK0 0x40038000u
#define PADS_QSPI 0x40040000u
#define XOSC_CTRL 0x40048000u
#define XOSC_STATUS 0x40048004u
#define XOSC_STARTUP 0x4004800cu
#define PLL_SYS 0x40050000u
#define PLL_USB 0x40058000u
#define UART0 0x40070000u
#define XIP_STREAM_ADDR 0x400c8014u
#define XIP_STREAM_CTR 0x400c8018u
#define QMI 0x400d0000u
#define WATCHDOG 0x400d8000u
#define WATCHDOG_TICK_CTRL 0x40108030u
#define WATCHDOG_TICK_CYCLES 0x40108034u
#define WATCHDOG_SECOND 1000000u
#define ROSC_RANDOMBIT 0x400e8020u
#define XIP_AUX_STREAM 0x50500000u
#define SIO_GPIO_OUT_SET 0xd0000018u
#define SIO_GPIO_OUT_XOR 0xd0000028u
#define SIO_GPIO_OE_SET 0xd0000038u

#define UART_INTERRUPT 33
#define USB_INTERRUPT 14
#define INTERRUPTS 52
#define VECTORS 0x10000000u
#define SUM_VECTOR 8 /* the first of two unused entries of the first vector table */

#endif
