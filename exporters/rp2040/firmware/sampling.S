/* tt_chances of kernels.h for a Cortex-M0+, four logits at a time. */
    .syntax unified
    .cpu cortex-m0plus
    .thumb
    .section .time_critical, "ax"

/* r0 logits, r1 weights, r2 a distance or weight, r3 largest, r4 post, r5 factor, r6 exp, r7 total, r8 reach, r9 end */
.macro chance place
    ldr r2, [r0, #4 * \place]
    subs r2, r3, r2
    cmp r2, r8
    bhs 11f
    lsrs r2, r2, r4
    muls r2, r5, r2
    lsrs r2, r2, #8
    lsls r2, r2, #1
    ldrh r2, [r6, r2]
    adds r7, r7, r2
12: strh r2, [r1, #2 * \place]
    .subsection 1
11: movs r2, #0
    b 12b
    .previous
.endm

    .global tt_chances
    .type tt_chances, %function
    .thumb_func
tt_chances:                             /* r0 logits, r1 weights, r2 count, r3 largest, then reach, factor, post, exp */
    push {r4-r7, lr}
    mov r4, r8
    mov r5, r9
    push {r4, r5}
    ldr r4, [sp, #28]
    mov r8, r4
    ldr r5, [sp, #32]
    ldr r4, [sp, #36]
    ldr r6, [sp, #40]
    movs r7, #3
    ands r7, r2                         /* the remainder of fours goes first, one at a time */
    subs r2, r2, r7
    lsls r2, r2, #2
    lsls r7, r7, #2
    adds r7, r7, r0
    mov r9, r7
    adds r2, r2, r7
    push {r2}
    movs r7, #0
    b 2f
1:  chance 0
    adds r0, #4
    adds r1, #2
2:  cmp r0, r9
    bne 1b
    pop {r2}
    mov r9, r2
    b 4f
3:  chance 0
    chance 1
    chance 2
    chance 3
    adds r0, #16
    adds r1, #8
4:  cmp r0, r9
    bne 3b
    movs r0, r7
    pop {r4, r5}
    mov r8, r4
    mov r9, r5
    pop {r4-r7, pc}
    .size tt_chances, . - tt_chances
