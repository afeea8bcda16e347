/* See cores.h; data sheet chapters 2.3.1 (SIO) and 2.8.2 (launching code on processor core 1).
 *
 * The two FIFOs between the cores carry the address of the work one way and its result the other, so nobody polls
 * shared memory. SRAM has no caches and an M0+ makes its accesses in order; the barriers mark where this matters. */
#include "cores.h"

#include "chip.h"
#include "kernels.h"
#include "runtime.h"

#define FIFO_ST 0xd0000050u
#define FIFO_WR 0xd0000054u
#define FIFO_RD 0xd0000058u
#define VALID (1u << 0) /* something to read */
#define VTOR 0xe000ed08u
#define PATIENCE (1u << 20)     /* polls for a result: 50 ms or more, where no share takes longer than 20 */
#define BOOT_PATIENCE (1u << 16) /* polls for the boot ROM, which answers within microseconds */

extern uint32_t stack1_end[];

static unsigned running = 1;

TT_HOT static void barrier(void) {
    __asm__ volatile("dmb" ::: "memory");
}

TT_HOT static int arrives(uint32_t polls) {
    for (; polls; polls--)
        if (REGISTER(FIFO_ST) & VALID)
            return 1;
    return 0;
}

/* The FIFO has room for 8 words and never holds more than one. */
TT_HOT static void send(uint32_t word) {
    barrier();
    REGISTER(FIFO_WR) = word;
    __asm__ volatile("sev");
}

TT_HOT static uint32_t receive(void) {
    uint32_t word = REGISTER(FIFO_RD);
    barrier();
    return word;
}

/* The second core's loop. It sleeps while the FIFO is empty; SEV wakes it. */
TT_HOT __attribute__((noreturn)) static void serve(void) {
    for (;;) {
        while (!(REGISTER(FIFO_ST) & VALID))
            __asm__ volatile("wfe");
        const struct tt_work *work = (const struct tt_work *)receive();
        send((uint32_t)work->share(work, work->middle, work->end));
    }
}

/* Held in reset, the second core cannot write anything. */
TT_HOT static void stop_second(void) {
    SET(PSM_FRCE_OFF) = PSM_PROC1;
    running = 1;
}

static void drain(void) {
    while (REGISTER(FIFO_ST) & VALID)
        (void)REGISTER(FIFO_RD);
}

/* The boot ROM of core 1 echoes each word of this sequence and begins anew at one that does not belong there. */
static int launch(void) {
    const uint32_t sequence[] = {0, 0, 1, REGISTER(VTOR), (uint32_t)(uintptr_t)stack1_end, (uint32_t)(uintptr_t)serve | 1};
    for (uint32_t tries = 0; tries < 4; tries++) {
        uint32_t step = 0;
        for (; step < 6; step++) {
            if (!sequence[step]) {
                drain();
                __asm__ volatile("sev");
            }
            send(sequence[step]);
            if (!arrives(BOOT_PATIENCE))
                return 0;
            if (receive() != sequence[step])
                break;
        }
        if (step == 6)
            return 1;
    }
    return 0;
}

void cores_start(void) {
    /* Resets core 1 into its boot ROM, wherever a debugger or an earlier program left it; the ROM then sends 0. */
    SET(PSM_FRCE_OFF) = PSM_PROC1;
    for (uint32_t polls = BOOT_PATIENCE; polls && !(REGISTER(PSM_FRCE_OFF) & PSM_PROC1); polls--)
        ;
    drain();
    CLEAR(PSM_FRCE_OFF) = PSM_PROC1;
    if (arrives(BOOT_PATIENCE) && receive() == 0 && launch())
        running = 2;
    else
        stop_second();
}

unsigned cores_running(void) {
    return running;
}

TT_HOT void tt_both(struct tt_work *work, uint32_t count, uint32_t unit) {
    uint32_t middle = unit ? count >> (unit + 1) << unit : (count + 1) >> 1;
    uint32_t start = work->start, end = start + count;
    work->second = 0;
    if (running == 1 || middle == 0 || middle == count) {
        work->first = work->share(work, start, end);
        return;
    }
    middle += start;
    work->middle = middle;
    work->end = end;
    send((uint32_t)work);
    work->first = work->share(work, start, middle);
    if (arrives(PATIENCE)) {
        work->second = (int32_t)receive();
        return;
    }
    stop_second();
    work->second = work->share(work, middle, end);
}
