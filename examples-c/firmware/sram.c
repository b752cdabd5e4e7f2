/* A device that hands out parts of a static array, and lock hooks that turn interrupts off. */
#include "sram.h"

#include "board.h"

static _Alignas(SRAM_ALIGNMENT) unsigned char pages[SRAM_PAGES][SRAM_PAGE_BYTES];
static uint32_t out; /* bit i: page i is out */

/* Callbacks run without the lock, and an interrupt may want a page too. */
static slicepool_result take_page(void *user_data, const slicepool_page_request *request,
                                  slicepool_device_memory *memory) {
  (void)user_data;
  slicepool_result result = SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY;
  const uint32_t before = board_interrupts_off();
  for (uint32_t i = 0; i < SRAM_PAGES && request->size <= SRAM_PAGE_BYTES; i++) {
    if ((out >> i & 1) != 0) continue;
    out |= UINT32_C(1) << i;
    memory->handle = i;
    memory->mapped = pages[i];
    result = SLICEPOOL_OK;
    break;
  }
  board_interrupts_restore(before);
  return result;
}

static slicepool_result give_page_back(void *user_data, const slicepool_device_memory *memory) {
  (void)user_data;
  const uint32_t before = board_interrupts_off();
  out &= ~(UINT32_C(1) << memory->handle);
  board_interrupts_restore(before);
  return SLICEPOOL_OK;
}

void sram_device(slicepool_device *device) {
  const slicepool_device empty = SLICEPOOL_DEVICE_INIT;
  *device = empty;
  device->allocate = take_page;
  device->deallocate = give_page_back;
}

unsigned sram_pages_out(void) {
  unsigned count = 0;
  for (uint32_t left = out; left != 0; left &= left - 1) count++;
  return count;
}

/* slicepool holds one lock at a time and never takes one twice: one word remembers what was before. It is written with
 * interrupts off. */
static uint32_t before_lock;

static void lock(void *user_data) {
  (void)user_data;
  const uint32_t before = board_interrupts_off();
  before_lock = before;
}

static void unlock(void *user_data) {
  (void)user_data;
  board_interrupts_restore(before_lock);
}

void sram_host(slicepool_host *host) {
  const slicepool_host empty = SLICEPOOL_HOST_INIT;
  *host = empty;
  host->lock = lock;
  host->unlock = unlock;
}
