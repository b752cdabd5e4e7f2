/* An interrupt that allocates and frees through the allocator it has interrupted.
 *
 * The lock hooks of sram.c turn interrupts off for as long as slicepool touches its books: some hundred instructions at a
 * time. Without them an interrupt finds half-done work; -DUNLOCKED shows it.
 */
#include "board.h"
#include "sram.h"

/* Slices that each of the two keeps. */
#ifndef SLOTS
#define SLOTS 12
#endif
#define TICKS 500 /* interrupts to wait for */
#define CYCLES 20001 /* of the CPU between two interrupts */
#define SLICES (2 * SLOTS)

/* For SLICES slices in SRAM_PAGES pages; the program says how much it needs. */
#ifndef BOOKS_BYTES
#define BOOKS_BYTES 8192
#endif

static uint64_t books[BOOKS_BYTES / 8];
static slicepool_allocator *allocator;

/* What one of the two keeps, and the stamps in it. */
typedef struct owner {
  slicepool_slice slices[SLOTS];
  uint32_t random, stamp, served, refused;
  int failed;
} owner;

static owner program = { .random = 1, .stamp = 0x11111111 };
static owner interrupt = { .random = 2, .stamp = 0x22222222 };
static volatile uint32_t ticks;

static uint32_t next(owner *it) {
  it->random = it->random * UINT32_C(1664525) + UINT32_C(1013904223);
  return it->random >> 16;
}

/* Frees a slice that is still stamped as it was left, or takes another and stamps it. */
static void step(owner *it) {
  slicepool_slice *slice = &it->slices[next(it) % SLOTS];
  if (slice->id != 0) {
    const uint32_t *words = (const uint32_t *)slice->mapped;
    for (uint32_t i = 0; i < slice->size / 4; i++) it->failed |= words[i] != (it->stamp ^ (uint32_t)slice->id);
    it->failed |= slicepool_free(allocator, slice->id) != SLICEPOOL_OK;
    slice->id = 0;
    return;
  }
  slicepool_request request = SLICEPOOL_REQUEST_INIT;
  request.size = 16 + next(it) % 400;
  slice->struct_size = sizeof *slice;
  const slicepool_result result = slicepool_allocate(allocator, &request, slice);
  if (result == SLICEPOOL_OK) {
    uint32_t *words = (uint32_t *)slice->mapped;
    for (uint32_t i = 0; i < slice->size / 4; i++) words[i] = it->stamp ^ (uint32_t)slice->id;
    it->served++;
  } else {
    slice->id = 0;
    it->refused++;
    it->failed |= result != SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY;
  }
}

/* The interrupt. */
void board_tick(void) {
  step(&interrupt);
  ticks++;
  if (interrupt.failed) board_tick_every(0);
}

static int free_all(owner *it) {
  int failed = it->failed;
  for (uint32_t i = 0; i < SLOTS; i++) {
    if (it->slices[i].id != 0) failed |= slicepool_free(allocator, it->slices[i].id) != SLICEPOOL_OK;
  }
  return failed;
}

int main(void) {
  slicepool_device device;
  slicepool_host host;
  sram_device(&device);
  sram_host(&host);

  slicepool_pool_options pool = SLICEPOOL_POOL_OPTIONS_INIT;
  pool.kind = SLICEPOOL_POOL_SLICED_PAGES;
  pool.page_size = SRAM_PAGE_BYTES;
  pool.granule = 16;

  slicepool_allocator_config config = SLICEPOOL_ALLOCATOR_CONFIG_INIT;
  config.page_alignment = SRAM_ALIGNMENT;
  config.pool_count = 1;
  config.pools = &pool;
  config.host = &host;
#ifdef UNLOCKED
  config.flags = SLICEPOOL_ALLOCATOR_EXTERNALLY_SYNCHRONIZED;
#endif

  uint64_t needed = 0;
  if (slicepool_allocator_bytes_needed(&config, SLICES, SRAM_PAGES, 0, &needed) != SLICEPOOL_OK) return 1;
  board_print_number("books needed", needed);
  board_print_number("books", sizeof books);
  if (slicepool_allocator_create_in(&device, &config, books, sizeof books, &allocator) != SLICEPOOL_OK) return 2;

  board_tick_every(CYCLES);
  while (ticks < TICKS && !program.failed && !interrupt.failed) step(&program);
  board_tick_every(0);

  board_print_number("interrupts", ticks);
  board_print_number("served in interrupts", interrupt.served);
  board_print_number("served outside", program.served);
  board_print_number("refused", program.refused + interrupt.refused);
  if (interrupt.served == 0 || program.served == 0) return 3;
  if (free_all(&program) || free_all(&interrupt)) return 4;
  const slicepool_result result = slicepool_allocator_destroy(allocator, 0, NULL);
  board_print_number("stack", board_stack_used());
  board_print("end: ");
  board_print(slicepool_result_string(result));
  board_print("\n");
  return result == SLICEPOOL_OK && sram_pages_out() == 0 ? 0 : 5;
}
