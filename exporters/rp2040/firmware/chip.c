/* See chip.h. Names of registers as in the data sheet. */
#include "chip.h"

#include "kernels.h"
#include "runtime.h"

#define REGISTER(address) (*(volatile uint32_t *)(address))
#define SET(address) REGISTER((address) + 0x2000)
#define CLEAR(address) REGISTER((address) + 0x3000)

#define CLK_REF_CTRL 0x40008030u
#define CLK_REF_SELECTED 0x40008038u
#define CLK_SYS_CTRL 0x4000803cu
#define CLK_SYS_SELECTED 0x40008044u
#define CLK_PERI_CTRL 0x40008048u
#define RESETS_RESET 0x4000c000u
#define RESETS_DONE 0x4000c008u
#define XOSC_CTRL 0x40024000u
#define XOSC_STATUS 0x40024004u
#define XOSC_STARTUP 0x4002400cu
#define PLL_SYS_CS 0x40028000u
#define PLL_SYS_PWR 0x40028004u
#define PLL_SYS_FBDIV_INT 0x40028008u
#define PLL_SYS_PRIM 0x4002800cu
#define IO_BANK0_GPIO0_CTRL 0x40014004u
#define IO_BANK0_GPIO1_CTRL 0x4001400cu
#define UART0_DR 0x40034000u
#define UART0_FR 0x40034018u
#define UART0_IBRD 0x40034024u
#define UART0_FBRD 0x40034028u
#define UART0_LCR_H 0x4003402cu
#define UART0_CR 0x40034030u
#define SIO_DIV_UDIVIDEND 0xd0000060u
#define SIO_DIV_UDIVISOR 0xd0000064u
#define SIO_DIV_QUOTIENT 0xd0000070u
#define SYST_CSR 0xe000e010u
#define SYST_RVR 0xe000e014u
#define SYST_CVR 0xe000e018u

static void wait_for(uint32_t address, uint32_t bits) {
    while ((REGISTER(address) & bits) != bits)
        ;
}

static void release(uint32_t bits) {
    CLEAR(RESETS_RESET) = bits;
    wait_for(RESETS_DONE, bits);
}

void chip_start(void) {
    /* The crystal of 12 MHz, with 1 ms (47 x 256 periods) to settle, becomes the reference. */
    REGISTER(XOSC_STARTUP) = 47;
    REGISTER(XOSC_CTRL) = 0xaa0;
    SET(XOSC_CTRL) = 0xfab000;
    wait_for(XOSC_STATUS, 1u << 31);
    REGISTER(CLK_REF_CTRL) = 2;
    wait_for(CLK_REF_SELECTED, 1u << 2);
    REGISTER(CLK_SYS_CTRL) = 0;
    wait_for(CLK_SYS_SELECTED, 1u << 0);

    /* 12 MHz x 125 / 6 / 2 = 125 MHz. */
    SET(RESETS_RESET) = 1u << 12;
    release(1u << 12);
    REGISTER(PLL_SYS_CS) = 1;
    REGISTER(PLL_SYS_FBDIV_INT) = 125;
    CLEAR(PLL_SYS_PWR) = 1u << 0 | 1u << 5;
    wait_for(PLL_SYS_CS, 1u << 31);
    REGISTER(PLL_SYS_PRIM) = 6u << 16 | 2u << 12;
    CLEAR(PLL_SYS_PWR) = 1u << 3;
    REGISTER(CLK_SYS_CTRL) = 1;
    wait_for(CLK_SYS_SELECTED, 1u << 1);
    REGISTER(CLK_PERI_CTRL) = 1u << 11;

    /* IO, pads, UART0: 125 MHz / 16 / (67 + 52 / 64) = 115207 baud, 8 bits, FIFOs. */
    release(1u << 5 | 1u << 8 | 1u << 22);
    REGISTER(IO_BANK0_GPIO0_CTRL) = 2;
    REGISTER(IO_BANK0_GPIO1_CTRL) = 2;
    REGISTER(UART0_IBRD) = 67;
    REGISTER(UART0_FBRD) = 52;
    REGISTER(UART0_LCR_H) = 3u << 5 | 1u << 4;
    REGISTER(UART0_CR) = 1u << 9 | 1u << 8 | 1u << 0;

    REGISTER(SYST_RVR) = 0xffffff;
    REGISTER(SYST_CVR) = 0;
    REGISTER(SYST_CSR) = 5;
}

int uart_poll(void) {
    if (REGISTER(UART0_FR) & 1u << 4) /* receive FIFO empty */
        return -1;
    return REGISTER(UART0_DR) & 0xff;
}

uint8_t uart_get(void) {
    int byte;
    while ((byte = uart_poll()) < 0)
        ;
    return (uint8_t)byte;
}

void uart_put(uint8_t byte) {
    while (REGISTER(UART0_FR) & 1u << 5) /* transmit FIFO full */
        ;
    REGISTER(UART0_DR) = byte;
}

TT_HOT uint32_t cycle_counter(void) {
    return REGISTER(SYST_CVR);
}

/* The hardware divider has its result after 8 cycles. */
TT_HOT uint32_t tt_divide(uint32_t a, uint32_t b) {
    REGISTER(SIO_DIV_UDIVIDEND) = a;
    REGISTER(SIO_DIV_UDIVISOR) = b;
    __asm__ volatile("b 1f\n1: b 1f\n1: b 1f\n1: b 1f\n1:");
    return REGISTER(SIO_DIV_QUOTIENT);
}
