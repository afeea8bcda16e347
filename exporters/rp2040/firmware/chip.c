/* See chip.h. Names of registers as in the data sheet. */
#include "chip.h"

#include "kernels.h"
#include "runtime.h"

#define PLL_CS 0x0u
#define PLL_PWR 0x4u
#define PLL_FBDIV_INT 0x8u
#define PLL_PRIM 0xcu
#define GPIO_CTRL(pin) (IO_BANK0 + 4 + 8 * (pin))
#define UART0_DR (UART0 + 0x00)
#define UART0_FR (UART0 + 0x18)
#define UART0_IBRD (UART0 + 0x24)
#define UART0_FBRD (UART0 + 0x28)
#define UART0_LCR_H (UART0 + 0x2c)
#define UART0_CR (UART0 + 0x30)
#define UART0_IMSC (UART0 + 0x38)
#define WATCHDOG_CTRL (WATCHDOG + 0x00)
#define WATCHDOG_LOAD (WATCHDOG + 0x04)
#define WATCHDOG_REASON (WATCHDOG + 0x08)
#define WATCHDOG_SCRATCH4 (WATCHDOG + 0x1c)
#define ROM_TABLE 0x14u
#define ROM_LOOKUP 0x18u
#define SYST_CSR 0xe000e010u
#define SYST_RVR 0xe000e014u
#define SYST_CVR 0xe000e018u
#define NVIC_ISER 0xe000e100u

#define LED (1u << 25)
/* Marks a restart by our watchdog: the boot ROM uses it too, after it has taken a file, but leaves 0. As in pico-sdk. */
#define OURS 0x6ab73121u
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
#elif CLOCK_MHZ == 150
#define SYSTEM_PLL PLL_SYS, 125, 5, 2
#define BAUD_WHOLE 81 /* 150 MHz / 16 / (81 + 24 / 64) = 115207 baud */
#define BAUD_64THS 24
#else
#error "CLOCK_MHZ is 125 or 200, or 150 for the RP2350"
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
#if CLOCK_MHZ > 133 && !defined(RP2350)
    REGISTER(VREG) = 0xcu << 4 | 1; /* 1.15 V, which settles while the crystal does */
#endif
    REGISTER(CLK_SYS_RESUS_CTRL) = 0;
    REGISTER(XOSC_STARTUP) = CRYSTAL_DELAY;
    REGISTER(XOSC_CTRL) = 0xaa0;
    SET(XOSC_CTRL) = 0xfab000;
    wait_for(XOSC_STATUS, 1u << 31);

    /* Switches away from the PLLs, first by the system clock's own switch, which is free of glitches. */
    CLEAR(CLK_SYS_CTRL) = 1;
    wait_for(CLK_SYS_SELECTED, 1u << 0);
    CLEAR(CLK_REF_CTRL) = 3;
    wait_for(CLK_REF_SELECTED, 1u << 0);
    reset_parts(RESET_PLLS);
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
#ifdef RP2350
    /* The flash may be read at 1/12 of any clock; the boot ROM's divider was for a slow one. */
    REGISTER(QMI + 0x0c) = (REGISTER(QMI + 0x0c) & ~0xffu) | 12;
    REGISTER(CLK_REF_DIV) = REGISTER(CLK_SYS_DIV) = 1u << 16;
#endif
    start_clocks();

    /* IO, pads, UART0: 8 bits, FIFOs, an interrupt when bytes arrive. */
    reset_parts(RESET_IO_PADS_UART0);
    REGISTER(GPIO_CTRL(0)) = 2;
    REGISTER(GPIO_CTRL(1)) = 2;
    REGISTER(UART0_IBRD) = BAUD_WHOLE;
    REGISTER(UART0_FBRD) = BAUD_64THS;
    REGISTER(UART0_LCR_H) = 3u << 5 | 1u << 4;
    REGISTER(UART0_CR) = 1u << 9 | 1u << 8 | 1u << 0;
    REGISTER(UART0_IMSC) = 1u << 6 | 1u << 4;
#ifdef RP2350
    REGISTER(NVIC_ISER + 4) = 1u << (UART_INTERRUPT - 32);
    REGISTER(NVIC_ISER) = 1u << USB_INTERRUPT;
#else
    REGISTER(NVIC_ISER) = 1u << UART_INTERRUPT | 1u << USB_INTERRUPT;
#endif

    REGISTER(GPIO_CTRL(25)) = 5;
    REGISTER(SIO_GPIO_OE_SET) = LED;
    REGISTER(SIO_GPIO_OUT_SET) = LED;

#ifdef RP2350
    /* Pins start isolated. Now: input on, 4 mA; the receiver is pulled up. */
    REGISTER(PADS_BANK0 + 4) = 1u << 6 | 1u << 4 | 1u << 1;
    REGISTER(PADS_BANK0 + 4 + 4 * 1) = 1u << 6 | 1u << 4 | 1u << 3 | 1u << 1;
    REGISTER(PADS_BANK0 + 4 + 4 * 25) = 1u << 6 | 1u << 4 | 1u << 1;
#endif

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

static int barked;

void watchdog_start(void) {
    barked = REGISTER(WATCHDOG_REASON) & 1 && REGISTER(WATCHDOG_SCRATCH4) == OURS;
    REGISTER(WATCHDOG_SCRATCH4) = OURS;
#ifdef RP2350
    REGISTER(WATCHDOG_TICK_CYCLES) = 12; /* a microsecond of the crystal */
    REGISTER(WATCHDOG_TICK_CTRL) = 1;
#else
    REGISTER(WATCHDOG_TICK) = 1u << 9 | 12; /* a microsecond of the crystal */
#endif
    REGISTER(PSM_WDSEL) = PSM_ALL_BUT_OSCILLATORS;
    watchdog_feed();
    SET(WATCHDOG_CTRL) = 1u << 30;
}

void watchdog_feed(void) {
    REGISTER(WATCHDOG_LOAD) = WATCHDOG_SECOND;
}

int watchdog_barked(void) {
    return barked;
}

/* The boot ROM's functions are found by two letters, data sheet 2.8.3, or 5.4 of the RP2350. */
#ifdef RP2350
void boot_drive(void) {
    typedef int reboot_function(uint32_t kind, uint32_t milliseconds, uint32_t how, uint32_t led);
    typedef reboot_function *lookup_function(uint32_t code, uint32_t secure);
    uintptr_t table = ROM_TABLE;
    __asm__("" : "+r"(table)); /* a compiler holds so low an address for a mistake */
    const volatile uint16_t *rom = (const volatile uint16_t *)table;
    lookup_function *lookup = (lookup_function *)(uintptr_t)rom[1];
    lookup('R' | 'B' << 8, 4)(0x102, 10, 0x20, 25); /* to the drive, without return; a pin is given */
    halt();
}
#else
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
#endif

void led_on(void) {
    REGISTER(SIO_GPIO_OUT_SET) = LED;
}

void led_toggle(void) {
    REGISTER(SIO_GPIO_OUT_XOR) = LED;
}

/* The ring oscillator runs on beside the crystal; its bits are biased, so many are hashed into one number. */
uint32_t random_number(void) {
    uint32_t number = 0x811c9dc5;
    for (uint32_t i = 0; i < 1024; i++)
        number = (number ^ (REGISTER(ROSC_RANDOMBIT) & 1)) * 0x01000193;
    return number;
}

TT_HOT uint32_t cycle_counter(void) {
    return REGISTER(SYST_CVR);
}

TT_HOT uint32_t tt_divide(uint32_t a, uint32_t b) {
#ifdef RP2350
    return a / b;
#else
    /* The hardware divider has its result after 8 cycles. */
    REGISTER(SIO_DIV_UDIVIDEND) = a;
    REGISTER(SIO_DIV_UDIVISOR) = b;
    __asm__ volatile("b 1f\n1: b 1f\n1: b 1f\n1: b 1f\n1:");
    return REGISTER(SIO_DIV_QUOTIENT);
#endif
}
