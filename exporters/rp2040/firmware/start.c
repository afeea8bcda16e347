/* The vector table, and the code that runs before main. */
#include <stdint.h>

#include "chip.h"

#include "kernels.h"

#define VTOR 0xe000ed08u

extern uint32_t image_start[], data_load[], data_end[], image_end[], stack1_start[], stack_end[];
extern uint32_t startup_start[], startup_end[], startup_load[];

int main(void);
void reset(void);
void uart_interrupt(void);
void usb_interrupt(void);

void halt(void) {
    for (;;)
        __asm__ volatile("wfi");
}

/* The stacks are painted up to a few words below this function's own frame. */
void reset(void) {
#ifdef RP2350
    __asm__ volatile("msr msplim, %0" ::"r"(0)); /* whatever limit the boot ROM's stack had */
#endif
    uint32_t *top = (uint32_t *)__builtin_frame_address(0) - 16;
    for (volatile uint32_t *p = stack1_start; p < top; p++)
        *p = STACK_PAINT;
    const volatile uint32_t *from = data_load;
    for (volatile uint32_t *to = image_start; to < data_end; to++)
        *to = *from++;
    for (volatile uint32_t *to = data_end; to < image_end; to++)
        *to = 0;
    from = startup_load;
    for (volatile uint32_t *to = startup_start; to < startup_end; to++)
        *to = *from++;
    REGISTER(VTOR) = (uint32_t)(uintptr_t)image_start;
    main();
    halt();
}

typedef void (*handler)(void);

/* The boot uses the first table, in flash. Interrupts of UART and USB may come while flash cannot be read: they use the
 * second table, at the start of SRAM. */
#define EXCEPTIONS (handler)(uintptr_t)stack_end, reset, halt, halt, [11] = halt, [14] = halt, [15] = halt
__attribute__((section(".vectors"), used)) static const handler vectors[16 + INTERRUPTS] = {EXCEPTIONS};
__attribute__((section(".data.vectors"), used)) static handler vectors_in_sram[16 + UART_INTERRUPT + 1] = {
    EXCEPTIONS, [16 + USB_INTERRUPT] = usb_interrupt, [16 + UART_INTERRUPT] = uart_interrupt,
};

/* What picotool shows of the program: pico-sdk's binary_info, found within 256 bytes of the second stage. */
struct fact {
    uint16_t type, tag;
    uint32_t id;
    const char *text;
};
#define FACT(id, text) {6, 'R' | 'P' << 8, id, text}
static const struct fact name = FACT(0x02031c86, "Story teller");
static const struct fact version = FACT(0x11a9bc3a, "1.1");
static const struct fact description = FACT(0xb6a07c19, "a tiny transformer that tells stories over USB and UART");
#ifdef RP2350
static const struct fact *const facts[] = {&name, &version, &description};

/* What the boot ROM looks for in the first 4 kB: a loop of one block, which says that this is a program for an ARM in secure
 * mode on an RP2350. It begins with the vector table at the flash's start. Data sheet 5.9. */
__attribute__((section(".vectors.block"), used)) static const uint32_t block[] = {
    0xffffded3, 0x10210142, 0x000001ff, 0, 0xab123579,
};
#else
static const struct fact boot2_name = FACT(0x7f8882e1, "boot2_generic_03h");
static const struct fact *const facts[] = {&name, &version, &description, &boot2_name};
#endif
static const uint32_t no_copies[] = {0};
__attribute__((section(".vectors.info"), used)) static const struct {
    uint32_t start;
    const struct fact *const *first, *const *end;
    const uint32_t *copies;
    uint32_t stop;
} info = {0x7188ebf2, facts, facts + sizeof facts / sizeof *facts, no_copies, 0xe71aa390};
