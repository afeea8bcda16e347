/* Second stage of the boot: the ROM copies these 256 bytes to 0x20041f00, checks the CRC in the last word and jumps
 * here with LR = 0. Makes the flash readable with the one command that every flash chip has, 03h, then goes through the
 * vector table at 0x10000100. Position-independent, without a stack. */
    .syntax unified
    .cpu cortex-m0plus
    .thumb
    .section .boot2, "ax"
    .global boot2
    .type boot2, %function
    .thumb_func
boot2:
    mov r2, lr
    ldr r3, =0x18000000                 /* XIP_SSI */
    movs r1, #0
    str r1, [r3, #0x08]                 /* SSIENR: off while it is set up */
    movs r1, #4
    str r1, [r3, #0x14]                 /* BAUDR: clk_sys / 4, 31 MHz at 125 MHz */
    ldr r1, =0x001f0300
    str r1, [r3, #0x00]                 /* CTRLR0: one line, 32-bit frames, EEPROM read */
    movs r1, #0
    str r1, [r3, #0x04]                 /* CTRLR1: one frame */
    ldr r1, =0x03000218
    ldr r0, =0x180000f4
    str r1, [r0]                        /* SPI_CTRLR0: command 03h of 8 bits, address of 24 bits */
    movs r1, #1
    str r1, [r3, #0x08]                 /* SSIENR: on */
    cmp r2, #0
    beq 1f
    bx r2                               /* called from the ROM's flash functions */
1:  ldr r0, =0x10000100
    ldr r1, =0xe000ed08                 /* VTOR */
    str r0, [r1]
    ldmia r0!, {r1, r2}
    msr msp, r1
    bx r2
    .ltorg
