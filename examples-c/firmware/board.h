/* What the programs here want of a board: text, numbers, an end, and interrupts off and on again. */
#ifndef BOARD_H
#define BOARD_H

#include <stdint.h>

/* Writes text to the debugger's console. */
void board_print(const char *text);
/* Writes a line "what: number". */
void board_print_number(const char *what, uint64_t number);
/* Ends the program; the debugger, or qemu, ends with this status. */
_Noreturn void board_exit(uint32_t status);

/* The most bytes of stack that have been used since the start. */
uint32_t board_stack_used(void);

/* Starts an interrupt every so many cycles of the CPU, at most 2^24; 0: none any more. */
void board_tick_every(uint32_t cycles);
/* The program's own, called by that interrupt. */
void board_tick(void);

/* Turns interrupts off and says whether they were off before. */
static inline uint32_t board_interrupts_off(void) {
  uint32_t before;
  __asm__ volatile("mrs %0, primask\n\tcpsid i" : "=r"(before) : : "memory");
  return before;
}

/* Back to what board_interrupts_off() found. */
static inline void board_interrupts_restore(uint32_t before) {
  __asm__ volatile("msr primask, %0" : : "r"(before) : "memory");
}

#endif
