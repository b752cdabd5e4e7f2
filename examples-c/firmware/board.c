/* A Cortex-M without a C library: vector table, start, semihosting, and the few functions that compilers call. */
#include "board.h"

#include <stddef.h>

#define SYS_WRITE0 0x04
#define SYS_EXIT_EXTENDED 0x20
#define APPLICATION_EXIT 0x20026

#define SYSTICK ((volatile uint32_t *)0xE000E010) /* control, reload, value */
#define SYSTICK_ENABLE 7u /* counts cycles of the CPU, and interrupts */
#define COPROCESSORS ((volatile uint32_t *)0xE000ED88)

int main(void);
void reset(void);
_Noreturn void abort(void);

extern uint32_t data_begin[], data_end[], data_image[], bss_begin[], bss_end[];
extern uint32_t stack_top[];

#define UNUSED UINT32_C(0xA5A5A5A5) /* what words of the stack are before they are used */

/* ---- semihosting: the debugger does what the program asks for */

static uint32_t ask(uint32_t what, const void *with) {
  register uint32_t r0 __asm__("r0") = what;
  register const void *r1 __asm__("r1") = with;
  __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
  return r0;
}

void board_print(const char *text) { ask(SYS_WRITE0, text); }

void board_print_number(const char *what, uint64_t number) {
  char digits[21];
  char *at = digits + sizeof digits - 1;
  *at = 0;
  /* By subtraction: dividing 64 bits would want a function of the compiler's library. */
  static const uint64_t powers[] = {
    UINT64_C(10000000000000000000), UINT64_C(1000000000000000000), UINT64_C(100000000000000000),
    UINT64_C(10000000000000000), UINT64_C(1000000000000000), UINT64_C(100000000000000), UINT64_C(10000000000000),
    UINT64_C(1000000000000), UINT64_C(100000000000), UINT64_C(10000000000), UINT64_C(1000000000),
    UINT64_C(100000000), UINT64_C(10000000), UINT64_C(1000000), UINT64_C(100000), UINT64_C(10000), UINT64_C(1000),
    UINT64_C(100), UINT64_C(10), UINT64_C(1),
  };
  at = digits;
  for (size_t i = 0; i < sizeof powers / sizeof powers[0]; i++) {
    char digit = '0';
    for (; number >= powers[i]; number -= powers[i]) digit++;
    if (digit != '0' || at != digits || powers[i] == 1) *at++ = digit;
  }
  *at = 0;
  board_print(what);
  board_print(": ");
  board_print(digits);
  board_print("\n");
}

_Noreturn void board_exit(uint32_t status) {
  const uint32_t block[2] = { APPLICATION_EXIT, status };
  ask(SYS_EXIT_EXTENDED, block);
  for (;;) {}
}

/* The one function that slicepool wants of the program: called for a bug inside it, never for what a program does. */
_Noreturn void abort(void) {
  board_print("aborted\n");
  board_exit(134);
}

/* ---- time */

void board_tick_every(uint32_t cycles) {
  SYSTICK[0] = 0;
  if (cycles == 0) return;
  SYSTICK[1] = cycles - 1;
  SYSTICK[2] = 0;
  SYSTICK[0] = SYSTICK_ENABLE;
}

/* A program without interrupts need not have one. */
__attribute__((weak)) void board_tick(void) {}

/* ---- start */

uint32_t board_stack_used(void) {
  const uint32_t *lowest = bss_end;
  while (lowest < stack_top && *lowest == UNUSED) lowest++;
  return (uint32_t)(stack_top - lowest) * 4;
}

static void fault(void) {
  board_print("fault\n");
  board_exit(139);
}

void reset(void) {
#if defined(__ARM_FP)
  *COPROCESSORS |= 0xFu << 20;
  __asm__ volatile("dsb\n\tisb" : : : "memory");
#endif
  const uint32_t *from = data_image;
  for (uint32_t *to = data_begin; to != data_end;) *to++ = *from++;
  for (uint32_t *to = bss_begin; to != bss_end;) *to++ = 0;
  const uint32_t *top;
  __asm__ volatile("mov %0, sp" : "=r"(top));
  for (uint32_t *to = bss_end; to < top; to++) *(volatile uint32_t *)to = UNUSED;
  board_exit((uint32_t)main());
}

typedef union vector {
  const void *stack;
  void (*handler)(void);
} vector;

__attribute__((section(".vectors"), used)) static const vector vectors[16] = {
  { .stack = stack_top }, { .handler = reset }, { .handler = fault }, { .handler = fault },
  { .handler = fault },   { .handler = fault }, { .handler = fault }, { .handler = fault },
  { .handler = fault },   { .handler = fault }, { .handler = fault }, { .handler = fault },
  { .handler = fault },   { .handler = fault }, { .handler = fault }, { .handler = board_tick },
};

/* ---- what compilers call: programs with a C library have these */

void *memcpy(void *to, const void *from, size_t bytes);
void *memmove(void *to, const void *from, size_t bytes);
void *memset(void *to, int byte, size_t bytes);
int memcmp(const void *one, const void *other, size_t bytes);

void *memcpy(void *to, const void *from, size_t bytes) {
  char *t = (char *)to;
  for (const char *f = (const char *)from; bytes != 0; bytes--) *t++ = *f++;
  return to;
}

void *memmove(void *to, const void *from, size_t bytes) {
  char *t = (char *)to;
  const char *f = (const char *)from;
  if ((uintptr_t)t - (uintptr_t)f >= bytes) return memcpy(to, from, bytes);
  while (bytes-- != 0) t[bytes] = f[bytes];
  return to;
}

void *memset(void *to, int byte, size_t bytes) {
  for (char *t = (char *)to; bytes != 0; bytes--) *t++ = (char)byte;
  return to;
}

int memcmp(const void *one, const void *other, size_t bytes) {
  const unsigned char *a = (const unsigned char *)one, *b = (const unsigned char *)other;
  for (; bytes != 0; bytes--, a++, b++) {
    if (*a != *b) return *a < *b ? -1 : 1;
  }
  return 0;
}

/* The names that ARM's ABI has for some of them. The library brings its own, which are larger. */
void __aeabi_memcpy(void *to, const void *from, size_t bytes);
void __aeabi_memcpy4(void *to, const void *from, size_t bytes);
void __aeabi_memcpy8(void *to, const void *from, size_t bytes);
void __aeabi_memmove(void *to, const void *from, size_t bytes);
void __aeabi_memmove4(void *to, const void *from, size_t bytes);
void __aeabi_memmove8(void *to, const void *from, size_t bytes);
void __aeabi_memclr(void *to, size_t bytes);
void __aeabi_memclr4(void *to, size_t bytes);
void __aeabi_memclr8(void *to, size_t bytes);

void __aeabi_memcpy(void *to, const void *from, size_t bytes) { memcpy(to, from, bytes); }
void __aeabi_memcpy4(void *to, const void *from, size_t bytes) { memcpy(to, from, bytes); }
void __aeabi_memcpy8(void *to, const void *from, size_t bytes) { memcpy(to, from, bytes); }
void __aeabi_memmove(void *to, const void *from, size_t bytes) { memmove(to, from, bytes); }
void __aeabi_memmove4(void *to, const void *from, size_t bytes) { memmove(to, from, bytes); }
void __aeabi_memmove8(void *to, const void *from, size_t bytes) { memmove(to, from, bytes); }
void __aeabi_memclr(void *to, size_t bytes) { memset(to, 0, bytes); }
void __aeabi_memclr4(void *to, size_t bytes) { memset(to, 0, bytes); }
void __aeabi_memclr8(void *to, size_t bytes) { memset(to, 0, bytes); }
