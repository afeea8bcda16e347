/* See chip.h. Names of registers as in the data sheet. */
#include "chip.h"

#include "kernels.h"
#include "runtime.h"

#define CLK_REF_CTRL 0x40008030u
#define CLK_REF_SELECTED 0x40008038u
#define CLK_SYS_CTRL 0x4000803cu
#define CLK_SYS_SELECTED 0x40008044u
#define CLK_PERI_CTRL 0x40008048u
#define CLK_USB_CTRL 0x40008054u
#define CLK_SYS_RESUS_CTRL 0x40008078u
#define RESETS_RESET 0x4000c000u
#define RESETS_DONE 0x4000c008u
#define XOSC_CTRL 0x40024000u
#define XOSC_STATUS 0x40024004u
#define XOSC_STARTUP 0x4002400cu
#define PLL_SYS 0x40028000u
#define PLL_USB 0x4002c000u
#define VREG 0x40064000u
#define PLL_CS 0x0u
#define PLL_PWR 0x4u
#define PLL_FBDIV_INT 0x8u
#define PLL_PRIM 0xcu
#define IO_BANK0_GPIO0_CTRL 0x40014004u
#define IO_BANK0_GPIO1_CTRL 0x4001400cu
#define IO_BANK0_GPIO25_CTRL 0x400140ccu
#define UART0_DR 0x40034000u
#define UART0_FR 0x40034018u
#define UART0_IBRD 0x40034024u
#define UART0_FBRD 0x40034028u
#define UART0_LCR_H 0x4003402cu
#define UART0_CR 0x40034030u
#define UART0_IMSC 0x40034038u
#define SIO_GPIO_OUT_SET 0xd0000014u
#define SIO_GPIO_OUT_XOR 0xd000001cu
#define SIO_GPIO_OE_SET 0xd0000024u
#define SIO_DIV_UDIVIDEND 0xd0000060u
#define SIO_DIV_UDIVISOR 0xd0000064u
#define SIO_DIV_QUOTIENT 0xd0000070u
#define ROSC_RANDOMBIT 0x4006001cu
#define WATCHDOG_CTRL 0x40058000u
#define WATCHDOG_LOAD 0x40058004u
#define WATCHDOG_REASON 0x40058008u
#define WATCHDOG_TICK 0x4005802cu
#define WATCHDOG_SECOND 2000000u /* it counts twice a microsecond, erratum RP2040-E1 */
#define PSM_WDSEL 0x40010008u
#define ROM_TABLE 0x14u
#define ROM_LOOKUP 0x18u
#define SYST_CSR 0xe000e010u
#define SYST_RVR 0xe000e014u
#define SYST_CVR 0xe000e018u
#define NVIC_ISER 0xe000e100u

#define LED (1u << 25)
/* Some makers' crystals need 64 times the reference board's 1 ms, which is 47 x 256 periods of 12 MHz. */
#define CRYSTAL_DELAY (47u * 64u)

#if CLOCK_MHZ == 125
#define SYSTEM_PLL PLL_SYS, 125, 6, 2
#define BAUD_WHOLE 67 /* 125 MHz / 16 / (67 + 52 / 64) = 115207 baud */
#define BAUD_64THS 52
#elif CLOCK_MHZ == 200
#define SYSTEM_PLL PLL_SYS, 100, 6, 1
#define BAUD_WHOLE 108 /* 200 MHz / 16 / (108 + 32 / 64) = 115207 baud */
#define BAUD_64THS 32
#else
#error "CLOCK_MHZ is 125 or 200"
#endif

static void wait_for(uint32_t address, uint32_t bits) {
    while ((REGISTER(address) & bits) != bits)
        ;
}

/* Whatever ran before may have left these parts in any state. */
static void reset_parts(uint32_t bits) {
    SET(RESETS_RESET) = bits;
    CLEAR(RESETS_RESET) = bits;
    wait_for(RESETS_DONE, bits);
}

/* 12 MHz x feedback / divider1 / divider2. */
static void start_pll(uint32_t pll, uint32_t feedback, uint32_t divider1, uint32_t divider2) {
    REGISTER(pll + PLL_CS) = 1;
    REGISTER(pll + PLL_FBDIV_INT) = feedback;
    CLEAR(pll + PLL_PWR) = 1u << 0 | 1u << 5;
    wait_for(pll + PLL_CS, 1u << 31);
    REGISTER(pll + PLL_PRIM) = divider1 << 16 | divider2 << 12;
    CLEAR(pll + PLL_PWR) = 1u << 3;
}

static void start_clocks(void) {
#if CLOCK_MHZ > 133
    REGISTER(VREG) = 0xcu << 4 | 1; /* 1.15 V, which settle while the crystal does */
#endif
    REGISTER(CLK_SYS_RESUS_CTRL) = 0;
    REGISTER(XOSC_STARTUP) = CRYSTAL_DELAY;
    REGISTER(XOSC_CTRL) = 0xaa0;
    SET(XOSC_CTRL) = 0xfab000;
    wait_for(XOSC_STATUS, 1u << 31);

    /* Away from the PLLs, first the clock's own switch, which is free of glitches. */
    CLEAR(CLK_SYS_CTRL) = 1;
    wait_for(CLK_SYS_SELECTED, 1u << 0);
    CLEAR(CLK_REF_CTRL) = 3;
    wait_for(CLK_REF_SELECTED, 1u << 0);
    reset_parts(1u << 12 | 1u << 13);
    start_pll(SYSTEM_PLL);
    start_pll(PLL_USB, 120, 6, 5); /* 48 MHz */

    REGISTER(CLK_REF_CTRL) = 2; /* the crystal */
    wait_for(CLK_REF_SELECTED, 1u << 2);
    REGISTER(CLK_SYS_CTRL) = 0; /* auxiliary source: the system's PLL; then to that source */
    REGISTER(CLK_SYS_CTRL) = 1;
    wait_for(CLK_SYS_SELECTED, 1u << 1);
    REGISTER(CLK_PERI_CTRL) = 1u << 11;
    REGISTER(CLK_USB_CTRL) = 1u << 11;
}

void chip_start(void) {
    start_clocks();

    /* IO, pads, UART0: 8 bits, FIFOs, an interrupt when bytes arrive. */
    reset_parts(1u << 5 | 1u << 8 | 1u << 22);
    REGISTER(IO_BANK0_GPIO0_CTRL) = 2;
    REGISTER(IO_BANK0_GPIO1_CTRL) = 2;
    REGISTER(UART0_IBRD) = BAUD_WHOLE;
    REGISTER(UART0_FBRD) = BAUD_64THS;
    REGISTER(UART0_LCR_H) = 3u << 5 | 1u << 4;
    REGISTER(UART0_CR) = 1u << 9 | 1u << 8 | 1u << 0;
    REGISTER(UART0_IMSC) = 1u << 6 | 1u << 4;
    REGISTER(NVIC_ISER) = 1u << UART_INTERRUPT | 1u << USB_INTERRUPT;

    REGISTER(IO_BANK0_GPIO25_CTRL) = 5;
    REGISTER(SIO_GPIO_OE_SET) = LED;
    REGISTER(SIO_GPIO_OUT_SET) = LED;

    REGISTER(SYST_RVR) = 0xffffff;
    REGISTER(SYST_CVR) = 0;
    REGISTER(SYST_CSR) = 5;
}

TT_HOT int uart_get(void) {
    if (REGISTER(UART0_FR) & 1u << 4) /* receive FIFO empty */
        return -1;
    return REGISTER(UART0_DR) & 0xff;
}

int uart_put(uint8_t byte) {
    if (REGISTER(UART0_FR) & 1u << 5) /* transmit FIFO full */
        return 0;
    REGISTER(UART0_DR) = byte;
    return 1;
}

void watchdog_start(void) {
    REGISTER(WATCHDOG_TICK) = 1u << 9 | 12; /* a microsecond of the crystal */
    REGISTER(PSM_WDSEL) = 0x1fffc;          /* all but the oscillators */
    watchdog_feed();
    SET(WATCHDOG_CTRL) = 1u << 30;
}

void watchdog_feed(void) {
    REGISTER(WATCHDOG_LOAD) = WATCHDOG_SECOND;
}

int watchdog_barked(void) {
    return REGISTER(WATCHDOG_REASON) & 1;
}

/* The boot ROM's functions are found by two letters, data sheet 2.8.3. */
void boot_drive(void) {
    typedef void boot_function(uint32_t led, uint32_t disabled);
    typedef boot_function *lookup_function(uint32_t table, uint32_t code);
    uintptr_t table = ROM_TABLE;
    __asm__("" : "+r"(table)); /* a compiler holds so low an address for a mistake */
    const volatile uint16_t *rom = (const volatile uint16_t *)table;
    lookup_function *lookup = (lookup_function *)(uintptr_t)rom[(ROM_LOOKUP - ROM_TABLE) / 2];
    boot_function *boot = lookup(rom[0], 'U' | 'B' << 8);
    boot(LED, 0);
    halt();
}

void led_on(void) {
    REGISTER(SIO_GPIO_OUT_SET) = LED;
}

void led_toggle(void) {
    REGISTER(SIO_GPIO_OUT_XOR) = LED;
}

/* The ring oscillator runs on beside the crystal; its bits are not even, and many make one number. */
uint32_t random_number(void) {
    uint32_t number = 0x811c9dc5;
    for (uint32_t i = 0; i < 1024; i++)
        number = (number ^ (REGISTER(ROSC_RANDOMBIT) & 1)) * 0x01000193;
    return number;
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
