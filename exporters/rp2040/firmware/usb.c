/* See usb.h. Data sheet chapter 4.1; USB 2.0 chapter 9; CDC 1.2 and its PSTN subclass.
 *
 * Endpoint 0 for control, 1 in for notifications (never sent), 2 in and out for text. Buffers hold 64 bytes, one each. */
#include "usb.h"

#include "chip.h"
#include "kernels.h"
#include "usb_descriptors.h"
#include "usb_registers.h"

static struct {
    uint32_t configured, listening, opened, halted; /* halted: bit 0 in, bit 1 out of endpoint 2, bit 2 in of endpoint 1 */
    uint32_t address;                       /* to take after the status stage; 0 if none */
    const uint8_t *answer;                  /* in a control transfer, what is left of it */
    uint32_t answer_size, answer_open;      /* open: another packet, maybe empty, is to come */
    uint32_t answer_short, coding_expected; /* short: shorter than the host allows */
    uint32_t pid0, pid_in, pid_out;         /* DATA1 or 0 of the next packet */
    uint32_t sending, collected, full;      /* a packet is on its way; bytes of the next one; the last one was full */
    uint32_t received, taken;               /* bytes of the packet from the host */
    uint32_t boot;                          /* 1 once asked for the boot ROM, 2 once that was acknowledged */
    uint8_t next[PACKET];
} usb;
/* 7 bytes of line coding, 115,200 baud and 8N1 until the host sets it: it means nothing without a wire. */
static uint8_t coding[8] = {0x00, 0xc2, 0x01, 0, 0, 0, 8};
static uint8_t reply[2];

/* ---- Endpoint 0 ---- */

static void send0(const uint8_t *bytes, uint32_t size) {
    fill(BUFFER0, bytes, size);
    arm(0, 0, FULL | usb.pid0 | size);
    usb.pid0 ^= DATA1;
}

static void answer_more(void) {
    uint32_t size = usb.answer_size < PACKET ? usb.answer_size : PACKET;
    send0(usb.answer, size);
    usb.answer += size;
    usb.answer_size -= size;
    usb.answer_open = usb.answer_size || (size == PACKET && usb.answer_short);
}

static void accept(void) {
    send0(reply, 0);
}

/* Sends at most what the host asks for; a shorter answer ends with a packet below 64 bytes. */
static void answer(const uint8_t *bytes, uint32_t size, uint32_t asked) {
    if (!asked) {
        accept();
        return;
    }
    usb.answer = bytes;
    usb.answer_short = size < asked;
    usb.answer_size = size < asked ? size : asked;
    answer_more();
}

/* Drops what a control transfer left undone. */
static void end_transfer(void) {
    write_register(BUFFER_CONTROL(0, 0), 0);
    write_register(BUFFER_CONTROL(0, 1), 0);
    write_register(BUFF_STATUS, 3);
    usb.address = usb.answer_size = usb.answer_open = usb.coding_expected = 0;
    usb.answer = NULL;
}

static void refuse(void) {
    write_register(EP_STALL_ARM, 3);
    write_register(BUFFER_CONTROL(0, 0), STALL);
    write_register(BUFFER_CONTROL(0, 1), STALL);
}

/* ---- Endpoints 1 and 2 ---- */

static void listen(void) {
    arm(2, 1, usb.pid_out | PACKET);
    usb.pid_out ^= DATA1;
    usb.received = usb.taken = 0;
}

static volatile uint32_t frame_began; /* by the cycle counter */

TT_HOT static uint32_t microseconds_since(uint32_t start) {
    return tt_divide((start - cycle_counter()) & 0xffffff, CLOCK_HZ / 1000000);
}

TT_HOT void usb_interrupt(void) {
    (void)read_register(SOF_RD); /* which ends the interrupt */
    frame_began = cycle_counter();
}

/* Erratum RP2040-E15: a bad answer to a packet at the end of a frame can hang the controller, so none is offered then. */
static int is_late_in_frame(void) {
    uint32_t since = microseconds_since(frame_began);
    return since >= 800 && since < 1000;
}

/* A host may wait for more until a packet is not full: an empty packet follows when the last one was full. */
static void transmit(void) {
    if (is_late_in_frame() || usb.sending || !(usb.collected || usb.full) || !usb.configured || usb.halted & 1)
        return;
    fill(BUFFER_IN, usb.next, usb.collected);
    arm(2, 0, FULL | usb.pid_in | usb.collected);
    usb.pid_in ^= DATA1;
    usb.sending = 1;
    usb.full = usb.collected == PACKET;
    usb.collected = 0;
}

/* Drops what was under way on the data endpoints, and what came since the last poll. */
static void forget(void) {
    usb.sending = usb.collected = usb.full = usb.received = usb.taken = usb.halted = 0;
    usb.pid_in = usb.pid_out = 0;
    write_register(BUFF_STATUS, 0x3c);
    for (uint32_t number = 1; number <= 2; number++)
        for (uint32_t out = 0; out < 2; out++)
            write_register(BUFFER_CONTROL(number, out), 0);
}

static void configure(uint32_t on) {
    forget();
    usb.configured = on;
    usb.listening = usb.opened = 0;
    write_register(ENDPOINT_CONTROL(1, 0), on ? ENABLED | NOTIFYING << 26 | BUFFER_NOTIFY : 0);
    write_register(ENDPOINT_CONTROL(2, 0), on ? ENABLED | BULK << 26 | BUFFER_IN : 0);
    write_register(ENDPOINT_CONTROL(2, 1), on ? ENABLED | BULK << 26 | BUFFER_OUT : 0);
    if (on)
        listen();
}

/* The bit of `halted` for an endpoint's address; 0 for an unknown one, or before configuration. */
static uint32_t halt_bit(uint32_t address) {
    return !usb.configured ? 0 : address == 0x82 ? 1 : address == 0x02 ? 2 : address == 0x81 ? 4 : 0;
}

static void set_halt(uint32_t bit, uint32_t on) {
    static const uint8_t number[5] = {0, 2, 2, 0, 1};
    uint32_t out = bit == 2;
    write_register(BUFFER_CONTROL(number[bit], out), on ? STALL : 0);
    write_register(BUFF_STATUS, 1u << (2 * number[bit] + out));
    usb.halted = on ? usb.halted | bit : usb.halted & ~bit;
    if (bit == 1) {
        usb.pid_in = 0;
        usb.sending = 0;
    } else if (bit == 2) {
        usb.pid_out = 0;
        if (!on)
            listen();
    }
}

/* ---- Requests ---- */

struct setup {
    uint32_t type, request, value, index, length;
};

static void describe(const struct setup *s) {
    uint32_t size;
    const uint8_t *found = usb_descriptor(s->value >> 8, s->value & 0xff, &size);
    if (found)
        answer(found, size, s->length);
    else
        refuse();
}

static void standard(const struct setup *s) {
    uint32_t bit = halt_bit(s->index);
    reply[0] = reply[1] = 0;
    int known = 1;
    switch (s->type << 8 | s->request) {
    case 0x0005: /* SET_ADDRESS, which is taken after the status stage */
        usb.address = s->value & 0x7f;
        break;
    case 0x0009: /* SET_CONFIGURATION */
        known = s->value <= 1;
        if (known)
            configure(s->value);
        break;
    case 0x0201: /* CLEAR_FEATURE and SET_FEATURE: an endpoint's halt */
    case 0x0203:
        known = !s->value && bit;
        if (known)
            set_halt(bit, s->request == 3);
        break;
    case 0x010b: /* SET_INTERFACE: an interface has no alternate settings, but its endpoints are reset */
        known = !s->value && s->index <= 1 && usb.configured;
        if (known && s->index) {
            forget();
            listen();
        }
        break;
    case 0x8006: /* GET_DESCRIPTOR */
        describe(s);
        return;
    case 0x8008: /* GET_CONFIGURATION */
        reply[0] = (uint8_t)usb.configured;
        answer(reply, 1, s->length);
        return;
    case 0x810a: /* GET_INTERFACE */
        answer(reply, 1, s->length);
        return;
    case 0x8200: /* GET_STATUS of an endpoint, an interface, the device */
        if (!bit && s->index & 0x7f)
            break;
        reply[0] = (usb.halted & bit) != 0;
        /* fall through */
    case 0x8100:
    case 0x8000:
        answer(reply, 2, s->length);
        return;
    default:
        known = 0;
    }
    if (known && !(s->type & 0x80))
        accept();
    else
        refuse();
}

static void communication(const struct setup *s) {
    uint32_t inward = s->type >> 7;
    if (s->request == 0x20 && !inward && s->length == 7) { /* SET_LINE_CODING: 7 bytes follow */
        usb.coding_expected = 1;
        arm(0, 1, usb.pid0 | PACKET);
    } else if (s->request == 0x21 && inward) {
        answer(coding, 7, s->length);
    } else if (s->request == 0x22 && !inward) { /* SET_CONTROL_LINE_STATE; bit 0: a terminal is there */
        uint32_t listening = usb.configured && s->value & 1;
        usb.opened |= listening && !usb.listening;
        usb.listening = listening;
        usb.collected = listening ? usb.collected : 0;
        accept();
    } else if (s->request == 0x23 && !inward) { /* SEND_BREAK */
        accept();
    } else {
        refuse();
    }
}

static void setup(void) {
    struct setup s = {byte_at(0), byte_at(1), byte_at(2) | (uint32_t)byte_at(3) << 8,
                      byte_at(4) | (uint32_t)byte_at(5) << 8, byte_at(6) | (uint32_t)byte_at(7) << 8};
    end_transfer();
    usb.pid0 = DATA1;
    if ((s.type & 0x60) == 0)
        standard(&s);
    else if ((s.type & 0x60) == 0x20)
        communication(&s);
    else
        refuse();
}

/* ---- Events ---- */

static void control_sent(void) {
    usb.boot += usb.boot == 1;
    if (usb.address) {
        write_register(ADDR_ENDP, usb.address);
        usb.address = 0;
    } else if (usb.answer_open) {
        answer_more();
    } else if (usb.answer) {
        usb.answer = NULL;
        arm(0, 1, DATA1); /* the host's status stage */
    }
}

static void control_received(void) {
    uint32_t size = read_register(BUFFER_CONTROL(0, 1)) & LENGTH;
    if (!usb.coding_expected)
        return;
    usb.coding_expected = 0;
    if (size != 7) {
        refuse();
        return;
    }
    for (uint32_t i = 0; i < 7; i++)
        coding[i] = byte_at(BUFFER0 + i);
    usb.boot = (coding[0] | (uint32_t)coding[1] << 8 | (uint32_t)coding[2] << 16 | (uint32_t)coding[3] << 24) == 1200;
    usb.pid0 = DATA1;
    accept();
}

/* Erratum RP2040-E5 of the first two revisions: after a reset the controller waits for 800 us without traffic, which a hub
 * with other devices may never grant. Until it connects, it is fed an idle line through GPIO15's input. */
static void leave_reset(void) {
#ifndef RP2350
    uint32_t start = cycle_counter();
    if (read_register(CHIP_ID) >> 28 != 1)
        return;
    while (!(read_register(SIE_STATUS) & LINE_STATE)) /* the reset itself */
        if (microseconds_since(start) > 50000)
            return;
    uint32_t control = read_register(GPIO15_CTRL), pad = read_register(GPIO15_PAD);
    write_register(GPIO15_PAD + SET_BITS, 1u << 3 | 1u << 2); /* both pulls: the pin keeps its level */
    write_register(GPIO15_CTRL, 2u << 12 | 8);                /* no output; the controller's D+ */
    write_register(GPIO15_CTRL, 3u << 16 | 2u << 12 | 8);     /* read as high */
    write_register(PHY_DIRECT + SET_BITS, 1u << 1);           /* the pull-up stays */
    write_register(PHY_DIRECT_OVERRIDE + SET_BITS, 1u << 2);
    write_register(USB_MUXING, 1u << 3 | 1u << 2);
    start = cycle_counter();
    while (!(read_register(SIE_STATUS) & CONNECTED) && microseconds_since(start) < 2000)
        ;
    write_register(USB_MUXING, 1u << 3 | 1u << 0);
    write_register(PHY_DIRECT_OVERRIDE + CLEAR_BITS, 1u << 2);
    write_register(GPIO15_CTRL, control);
    write_register(GPIO15_PAD, pad);
#endif
}

static void unplugged(void) {
    usb.boot = 0;
    write_register(ADDR_ENDP, 0);
    end_transfer();
    configure(0);
}

void usb_start(const uint8_t *id) {
    usb_number(id);
    write_register(RESETS_RESET + SET_BITS, RESET_USB);
    write_register(RESETS_RESET + CLEAR_BITS, RESET_USB);
    while (!(read_register(RESETS_DONE) & RESET_USB))
        ;
    for (uint32_t place = 0; place < 4096; place += 4)
        write_register(DPRAM + place, 0);
    unplugged();
    write_register(USB_MUXING, 1u << 3 | 1u << 0); /* to the pins of the chip's own transceiver */
    write_register(USB_PWR, 1u << 3 | 1u << 2);    /* no pin detects VBUS: it counts as present */
    write_register(MAIN_CTRL, 1);
    write_register(INTE, FRAME_STARTS);
    write_register(SIE_CTRL, EP0_INTERRUPT);
    write_register(SIE_CTRL + SET_BITS, PULLUP);
}

void usb_poll(void) {
    uint32_t status = read_register(SIE_STATUS);
    if (status & BUS_RESET) {
        unplugged();
        write_register(BUFF_STATUS, 0xffffffff);
        write_register(SIE_STATUS, BUS_RESET);
        leave_reset();
        return;
    }
    if (status & SETUP_RECEIVED) {
        write_register(SIE_STATUS, SETUP_RECEIVED);
        setup();
    }
    uint32_t done = read_register(BUFF_STATUS) & 0x3f;
    write_register(BUFF_STATUS, done);
    if (done & 1u << 0)
        control_sent();
    if (done & 1u << 1)
        control_received();
    if (done & 1u << 4)
        usb.sending = 0;
    if (done & 1u << 5 && usb.configured && !(usb.halted & 2)) {
        usb.received = read_register(BUFFER_CONTROL(2, 1)) & LENGTH;
        usb.taken = 0;
        if (usb.received > PACKET)
            usb.received = PACKET;
        if (!usb.received)
            listen();
    }
    transmit();
}

int usb_get(void) {
    if (usb.taken == usb.received)
        return -1;
    uint8_t byte = byte_at(BUFFER_OUT + usb.taken++);
    if (usb.taken == usb.received)
        listen();
    return byte;
}

int usb_put(uint8_t byte) {
    if (!usb.listening)
        return 1;
    if (usb.collected == PACKET)
        transmit();
    if (usb.collected == PACKET)
        return 0;
    usb.next[usb.collected++] = byte;
    return 1;
}

int usb_boot_wanted(void) {
    return usb.boot == 2;
}

int usb_opened(void) {
    int was = (int)usb.opened;
    usb.opened = 0;
    return was;
}
