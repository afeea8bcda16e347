/* Addresses and bits of the RP2040 that the firmware uses; names as in its data sheet. */
#ifndef RP2040_H
#define RP2040_H

#define CLK_REF_CTRL 0x40008030u
#define CLK_REF_SELECTED 0x40008038u
#define CLK_SYS_CTRL 0x4000803cu
#define CLK_SYS_SELECTED 0x40008044u
#define CLK_PERI_CTRL 0x40008048u
#define CLK_USB_CTRL 0x40008054u
#define CLK_SYS_RESUS_CTRL 0x40008078u
#define RESETS_RESET 0x4000c000u
#define RESETS_DONE 0x4000c008u
#define RESET_DMA (1u << 2)
#define RESET_PLLS (1u << 12 | 1u << 13)
#define RESET_IO_PADS_UART0 (1u << 5 | 1u << 8 | 1u << 22)
#define RESET_USB (1u << 24)
#define PSM_FRCE_OFF 0x40010004u
#define PSM_WDSEL 0x40010008u
#define PSM_PROC1 (1u << 16)
#define PSM_ALL_BUT_OSCILLATORS 0x1fffcu
#define IO_BANK0 0x40014000u
#define PADS_QSPI 0x40020000u
#define XOSC_CTRL 0x40024000u
#define XOSC_STATUS 0x40024004u
#define XOSC_STARTUP 0x4002400cu
#define PLL_SYS 0x40028000u
#define PLL_USB 0x4002c000u
#define UART0 0x40034000u
#define WATCHDOG 0x40058000u
#define WATCHDOG_TICK 0x4005802cu
#define WATCHDOG_SECOND 2000000u /* it counts twice a microsecond, erratum RP2040-E1 */
#define ROSC_RANDOMBIT 0x4006001cu
#define VREG 0x40064000u
#define SIO_GPIO_OUT_SET 0xd0000014u
#define SIO_GPIO_OUT_XOR 0xd000001cu
#define SIO_GPIO_OE_SET 0xd0000024u
#define SIO_DIV_UDIVIDEND 0xd0000060u
#define SIO_DIV_UDIVISOR 0xd0000064u
#define SIO_DIV_QUOTIENT 0xd0000070u

#define UART_INTERRUPT 20
#define USB_INTERRUPT 5
#define INTERRUPTS 32
#define VECTORS 0x10000100u
#define SUM_VECTOR 7 /* the first of two unused entries of the first vector table */

#endif
