/* tt_scores_1, _2 and tt_gather_1, _2 of kernels.h, for heads of width 1 and 2 on a Cortex-M0+. The ring is walked in
 * two straight runs; in each, positions go one at a time until a multiple of four is left. The scores are not
 * overwritten, which is allowed. */
    .syntax unified
    .cpu cortex-m0plus
    .thumb

    .equ EXP, 0                         /* struct tt_attention */
    .equ QUERY, 4
    .equ LOWEST, 8
    .equ OFFSET, 12
    .equ TOTAL, 16
    .equ OLD, 24
    .equ RECENT, 28

.macro save_registers
    push {r4-r7, lr}
    mov r4, r8
    mov r5, r9
    mov r6, r10
    mov r7, r11
    push {r4-r7}
.endm

.macro restore_registers_and_return
    pop {r4-r7}
    mov r8, r4
    mov r9, r5
    mov r10, r6
    mov r11, r7
    pop {r4-r7, pc}
.endm

/* r0 keys, r1 distance, r2 scores, r3 and r4 query, r5 a product, r6 and r7 sums, r8 end of this run's scores,
 * r9 lowest, r10 the attention, r11 keys of the second run, r12 end of scores */
.macro score width, position, sum
    ldrb r5, [r0, #\position * \width]
    muls r5, r3, r5
    adds \sum, \sum, r5
.if \width == 2
    ldrb r5, [r0, #\position * 2 + 1]
    muls r5, r4, r5
    adds \sum, \sum, r5
.endif
    cmp \sum, r9
    blt 11f
12:
    .subsection 1                       /* rare, and out of line so that the usual case takes no branch */
11: mov r9, \sum
    b 12b
    .previous
.endm

.macro scores width                     /* r0 attention, r1 keys, r2 distance, r3 scores */
    save_registers
    mov r10, r0
    mov r11, r1
    ldr r4, [r0, #OLD]
    ldr r5, [r0, #RECENT]
    ldr r7, [r0, #QUERY]
.if \width == 2
    lsls r0, r5, #1
    adds r0, r0, r1
.else
    adds r0, r5, r1
.endif
    mov r1, r2
    mov r2, r3
    lsls r4, r4, #2
    adds r4, r4, r2
    mov r8, r4
    lsls r5, r5, #2
    adds r5, r5, r4
    mov r12, r5
    ldr r3, [r7]
.if \width == 2
    ldr r4, [r7, #4]
.endif
    movs r6, #1
    lsls r6, r6, #31
    subs r6, #1
    mov r9, r6
    b 2f
1:  ldmia r1!, {r6}
    score \width, 0, r6
    stmia r2!, {r6}
    adds r0, #\width
2:  mov r6, r8
    subs r6, r6, r2
    beq 4f
    lsls r6, r6, #28
    bne 1b
3:  ldmia r1!, {r6, r7}
    score \width, 0, r6
    score \width, 1, r7
    stmia r2!, {r6, r7}
    ldmia r1!, {r6, r7}
    score \width, 2, r6
    score \width, 3, r7
    stmia r2!, {r6, r7}
    adds r0, #4 * \width
    cmp r2, r8
    bne 3b
4:  mov r0, r11
    mov r8, r12
    cmp r2, r12
    bne 2b
    mov r0, r10
    mov r1, r9
    str r1, [r0, #LOWEST]
    restore_registers_and_return
.endm

/* r0 scores, r1 values, r2 exp, r3 and r4 sums, r5 and r6 weights, r7 a value, r8 offset, r9 reach of exp, r10 total,
 * r11 end of this run's scores, r12 end of scores, lr values of the second run */
.macro gather width, position, weight
    add \weight, r8
    cmp \weight, r9
    bhs 13f
    lsrs \weight, \weight, #10
    lsls \weight, \weight, #1
    ldrh \weight, [r2, \weight]
    add r10, \weight
    ldrb r7, [r1, #\position * \width]
    muls r7, \weight, r7
    adds r3, r3, r7
.if \width == 2
    ldrb r7, [r1, #\position * 2 + 1]
    muls r7, \weight, r7
    adds r4, r4, r7
.endif
13:
.endm

.macro gathers width                    /* r0 attention, r1 values, r2 scores, r3 sums */
    save_registers
    push {r0, r3}
    mov lr, r1
    ldr r4, [r0, #OLD]
    ldr r5, [r0, #RECENT]
    ldr r6, [r0, #OFFSET]
    ldr r7, [r0, #EXP]
    mov r8, r6
    mov r0, r2
    mov r2, r7
.if \width == 2
    lsls r6, r5, #1
    adds r1, r1, r6
.else
    adds r1, r1, r5
.endif
    lsls r4, r4, #2
    adds r4, r4, r0
    mov r11, r4
    lsls r5, r5, #2
    adds r5, r5, r4
    mov r12, r5
    movs r4, #704 / 64
    lsls r4, r4, #16                    /* 704 << 10 */
    mov r9, r4
    movs r3, #0
    movs r4, #0
    mov r10, r3
    b 2f
1:  ldmia r0!, {r5}
    gather \width, 0, r5
    adds r1, #\width
2:  mov r7, r11
    subs r7, r7, r0
    beq 4f
    lsls r7, r7, #28
    bne 1b
3:  ldmia r0!, {r5, r6}
    gather \width, 0, r5
    gather \width, 1, r6
    ldmia r0!, {r5, r6}
    gather \width, 2, r5
    gather \width, 3, r6
    adds r1, #4 * \width
    cmp r0, r11
    bne 3b
4:  mov r1, lr
    mov r11, r12
    cmp r0, r12
    bne 2b
    pop {r0, r5}
    mov r6, r10
    str r6, [r0, #TOTAL]
    str r3, [r5]
.if \width == 2
    str r4, [r5, #4]
.endif
    restore_registers_and_return
.endm

.macro function name, body, width
    .section .time_critical.\name, "ax" /* of its own, so that branches reach what is out of line */
    .global \name
    .type \name, %function
    .thumb_func
\name:
    \body \width
.endm

    function tt_scores_1, scores, 1
    function tt_scores_2, scores, 2
    function tt_gather_1, gathers, 1
    function tt_gather_2, gathers, 2
