/* tt_matvec of kernels.h for a Cortex-M0+.
 *
 * Weights are stored + 128, as only unsigned bytes load with an immediate offset, so every row starts at -128 x the sum of
 * x. Two rows go together: their weights are interleaved, so one pointer and one loaded x serve both. A weight costs
 * 4 cycles (load 2, multiply 1, add 1) and half of loading an x.
 *
 *     r0 weights   r2, r3 sums of the two rows   r4 a weight   r5 .. r7 x
 */
    .syntax unified
    .cpu cortex-m0plus
    .thumb
    .section .time_critical, "ax"

.macro column offset, x
    ldrb r4, [r0, #\offset]
    muls r4, \x, r4
    adds r2, r2, r4
    ldrb r4, [r0, #\offset + 1]
    muls r4, \x, r4
    adds r3, r3, r4
.endm

.macro column_in_high offset, x
    mov r5, \x
    column \offset, r5
.endm

.macro column_on_stack offset, place
    ldr r5, [sp, #\place]
    column \offset, r5
.endm

.macro loaded_columns offset            /* two of them, r1 points to their x */
    ldmia r1!, {r5, r6}
    column \offset, r5
    column \offset + 2, r6
.endm

.macro start_pair
    mov r5, r8
    ldmia r5!, {r2, r3}
    mov r8, r5
    add r2, r10
    add r3, r10
    mov r1, r9
.endm

    .global tt_matvec
    .type tt_matvec, %function
    .thumb_func
tt_matvec:                              /* r0 out, r1 weights, r2 bias, r3 x, then rows, columns, sum on the stack */
    push {r4-r7, lr}
    mov r4, r8
    mov r5, r9
    mov r6, r10
    mov r7, r11
    push {r4-r7}
    ldr r4, [sp, #36]                   /* rows */
    lsls r4, r4, #2
    adds r4, r4, r0
    mov r12, r4                         /* end of out */
    mov r8, r2                          /* bias */
    mov r9, r3                          /* x */
    mov r7, r0                          /* out */
    mov r0, r1                          /* weights */
    ldr r1, [sp, #40]                   /* columns */
    lsls r4, r1, #2
    adds r4, r4, r3
    mov r11, r4                         /* end of x */
    ldr r2, [sp, #44]                   /* the sum of x */
    lsls r2, r2, #7
    rsbs r2, r2, #0
    mov r10, r2
    cmp r1, #8
    bne 1f
    b columns_8
1:  cmp r1, #12
    bne 1f
    b columns_12
1:  lsls r4, r1, #28                    /* a multiple of 16? */
    beq columns_16

/* Any multiple of 4. r1 x, r7 out, r8 bias, r9 start of x, r10 -128 x the sum of x, r11 end of x, r12 end of out. */
2:  start_pair
3:  loaded_columns 0
    loaded_columns 4
    adds r0, #8
    cmp r1, r11
    bne 3b
    stmia r7!, {r2, r3}
    cmp r7, r12
    bne 2b
    b finish

columns_16:
4:  start_pair
5:  loaded_columns 0
    loaded_columns 4
    loaded_columns 8
    loaded_columns 12
    loaded_columns 16
    loaded_columns 20
    loaded_columns 24
    loaded_columns 28
    adds r0, #32
    cmp r1, r11
    bne 5b
    stmia r7!, {r2, r3}
    cmp r7, r12
    bne 4b

finish:
    pop {r4-r7}
    mov r8, r4
    mov r9, r5
    mov r10, r6
    mov r11, r7
    pop {r4-r7, pc}

/* Narrow rows: x stays where it is over all rows, the first two in r6 and r7, four in r8 .. r11, the rest on the stack.
 * r1 out, r12 bias, lr -128 x the sum of x; the end of out is on the stack as well. */
.macro narrow_start columns
    sub sp, #(4 * (\columns - 6) + 4)
    mov r4, r12
    str r4, [sp, #(4 * (\columns - 6))] /* end of out */
    mov r12, r8
    mov lr, r10
    mov r1, r7
    mov r2, r9
    ldmia r2!, {r6, r7}
    ldmia r2!, {r3-r5}
    mov r8, r3
    mov r9, r4
    mov r10, r5
    ldmia r2!, {r3}
    mov r11, r3
    mov r5, sp
.rept \columns - 6
    ldmia r2!, {r3}
    stmia r5!, {r3}
.endr
.endm

.macro narrow_pair offset, columns
    mov r5, r12
    ldmia r5!, {r2, r3}
    mov r12, r5
    add r2, lr
    add r3, lr
    column \offset, r6
    column \offset + 2, r7
    column_in_high \offset + 4, r8
    column_in_high \offset + 6, r9
    column_in_high \offset + 8, r10
    column_in_high \offset + 10, r11
    column_on_stack \offset + 12, 0
    column_on_stack \offset + 14, 4
.if \columns == 12
    column_on_stack \offset + 16, 8
    column_on_stack \offset + 18, 12
    column_on_stack \offset + 20, 16
    column_on_stack \offset + 22, 20
.endif
    stmia r1!, {r2, r3}
.endm

columns_8:
    narrow_start 8
    ldr r4, [sp, #48]                   /* rows; an odd pair is the second one of a first round */
    lsls r4, r4, #30
    beq 6f
    subs r0, #16
    b 7f
6:  narrow_pair 0, 8
7:  narrow_pair 16, 8
    adds r0, #32
    ldr r4, [sp, #8]
    cmp r1, r4
    bne 6b
    add sp, #12
    b finish

columns_12:
    narrow_start 12
8:  narrow_pair 0, 12
    adds r0, #24
    ldr r4, [sp, #24]
    cmp r1, r4
    bne 8b
    add sp, #28
    b finish
    .size tt_matvec, . - tt_matvec
