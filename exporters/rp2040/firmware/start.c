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

void halt(void) {
    for (;;)
        __asm__ volatile("wfi");
}

/* The stacks are painted up to a few words below this function's own frame. */
void reset(void) {
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

/* The boot goes through the first table, in flash. Of the interrupts only the UART's is on, at times when flash cannot be
 * read: its handler is found in SRAM, where the second table is the first thing. */
#define EXCEPTIONS (handler)(uintptr_t)stack_end, reset, halt, halt, [11] = halt, [14] = halt, [15] = halt
__attribute__((section(".vectors"), used)) static const handler vectors[16 + 32] = {EXCEPTIONS};
__attribute__((section(".data.vectors"), used)) static handler vectors_in_sram[16 + UART_INTERRUPT + 1] = {
    EXCEPTIONS, [16 + UART_INTERRUPT] = uart_interrupt,
};
