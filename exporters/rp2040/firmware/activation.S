/* tt_gelu and tt_logits of kernels.h for a Cortex-M0+. */
    .syntax unified
    .cpu cortex-m0plus
    .thumb
    .section .time_critical, "ax"

/* r0 sums, r1 multipliers, r2 pre, r3 post, r4 half, r5 table, r6 value, r7 other, r8 end, r9 512, r12 total */
.macro gelu place
    ldr r6, [r0]
    asrs r6, r6, r2
    ldrh r7, [r1, #2 * \place]
    muls r6, r7, r6
    adds r6, r6, r4
    asrs r6, r6, r3
    add r6, r9
    lsrs r7, r6, #10
    bne 11f                             /* outside of the table */
    lsls r6, r6, #1
    ldrsh r6, [r5, r6]
12: add r12, r6
    stmia r0!, {r6}
    .subsection 1
11: bl gelu_outside
    b 12b
    .previous
.endm

    .global tt_gelu
    .type tt_gelu, %function
    .thumb_func
tt_gelu:                                /* r0 sums, r1 multipliers, r2 rows, r3 pre, then post, table */
    push {r4-r7, lr}
    mov r6, r8
    mov r7, r9
    push {r6, r7}
    lsls r2, r2, #2
    adds r2, r2, r0
    mov r8, r2
    mov r2, r3
    ldr r3, [sp, #28]
    ldr r5, [sp, #32]
    movs r4, #1
    lsls r4, r4, r3
    lsrs r4, r4, #1
    movs r7, #1
    lsls r7, r7, #9
    mov r9, r7
    movs r7, #0
    mov r12, r7
1:  gelu 0
    gelu 1
    gelu 2
    gelu 3
    adds r1, #8
    cmp r0, r8
    bne 1b
    mov r0, r12
    pop {r6, r7}
    mov r8, r6
    mov r9, r7
    pop {r4-r7, pc}

gelu_outside:                           /* r6 is its place, less than 0 or 1024 and more */
    cmp r6, #0
    bge 2f
    movs r6, #0
    bx lr
2:  mov r7, r9
    subs r6, r6, r7
    lsls r7, r7, #2
    subs r7, #1                         /* 2047 */
    cmp r6, r7
    ble 3f
    mov r6, r7
3:  lsls r6, r6, #3
    bx lr

/* r0 sums, r1 multipliers, r2 pre, r3 best, r4 largest, r5 and r6 logits, r7 multiplier, r8 end, r12 start */
.macro two_logits place
    ldr r5, [r0]
    ldr r6, [r0, #4]
    asrs r5, r5, r2
    asrs r6, r6, r2
    ldrh r7, [r1, #2 * \place]
    muls r5, r7, r5
    ldrh r7, [r1, #2 * \place + 2]
    muls r6, r7, r6
    cmp r5, r4
    bgt 13f
12: cmp r6, r4
    bgt 14f
15: stmia r0!, {r5, r6}
    .subsection 1
13: mov r4, r5
    mov r3, r0
    b 12b
14: mov r4, r6
    adds r3, r0, #4
    b 15b
    .previous
.endm

    .global tt_logits
    .type tt_logits, %function
    .thumb_func
tt_logits:                              /* r0 sums, r1 multipliers, r2 rows, r3 pre */
    push {r4-r7, lr}
    mov r7, r8
    push {r7}
    mov r12, r0
    lsls r7, r2, #30                    /* rows are even; are they twice an odd number? */
    lsls r2, r2, #2
    adds r2, r2, r0
    mov r8, r2
    mov r2, r3
    mov r3, r0
    movs r4, #1
    lsls r4, r4, #31
    cmp r7, #0
    beq 1f
    two_logits 0
    adds r1, #4
1:  two_logits 0
    two_logits 2
    adds r1, #8
    cmp r0, r8
    bne 1b
    mov r0, r12
    subs r0, r3, r0
    lsrs r0, r0, #2
    pop {r7}
    mov r8, r7
    pop {r4-r7, pc}
