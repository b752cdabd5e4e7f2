/* Buffers for a DMA controller, in a block handed over as pointer and length: no device, no allocation after the start.
 *
 * The controller knows nothing but addresses. It fills a buffer while the program does something else, and an interrupt
 * says which handle is done: here the timer's, which stands for both.
 */
#include "board.h"
#include "sram.h"

#define BUFFERS 16
#define BUFFER_BYTES 512
#define TRANSFERS 500

/* Where the controller can write, in a linker section of its own on most chips. */
static _Alignas(BUFFER_BYTES) unsigned char reachable[BUFFERS * BUFFER_BYTES];
static uint64_t books[24576 / 8];
static slicepool_buffer_pool *pool;

/* The controller's queue of what to fill, and the program's of what is full. */
typedef struct queue {
  uint64_t ids[BUFFERS];
  uint32_t first, count;
} queue;

static queue empty, full;
static volatile uint32_t filled;
static int failed;

static void put(queue *it, uint64_t id) {
  const uint32_t before = board_interrupts_off();
  it->ids[(it->first + it->count++) % BUFFERS] = id;
  board_interrupts_restore(before);
}

static uint64_t take(queue *it) {
  uint64_t id = 0;
  const uint32_t before = board_interrupts_off();
  if (it->count != 0) {
    id = it->ids[it->first];
    it->first = (it->first + 1) % BUFFERS;
    it->count--;
  }
  board_interrupts_restore(before);
  return id;
}

/* A transfer is complete; and the interrupt posts another buffer by itself, from the same pool. */
void board_tick(void) {
  slicepool_buffer buffer = SLICEPOOL_BUFFER_INIT;
  const uint64_t id = take(&empty);
  if (id != 0) {
    failed |= slicepool_buffer_get(pool, id, &buffer) != SLICEPOOL_OK;
    unsigned char *bytes = (unsigned char *)buffer.mapped;
    for (uint32_t i = 0; i < BUFFER_BYTES; i++) bytes[i] = (unsigned char)filled;
    filled++;
    put(&full, id);
  }
  if (slicepool_buffer_acquire(pool, NULL, BUFFER_BYTES, 0, &buffer, NULL) == SLICEPOOL_OK) put(&empty, buffer.id);
}

int main(void) {
  slicepool_host host;
  sram_host(&host);
  slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
  slicepool_buffer_pool_config config = SLICEPOOL_BUFFER_POOL_CONFIG_INIT;
  config.memory = reachable;
  config.memory_bytes = sizeof reachable;
  config.host = &host;
  config.failure = &failure;
  if (slicepool_buffer_pool_config_with_size_class_range(&config, BUFFER_BYTES, BUFFER_BYTES, BUFFERS) != SLICEPOOL_OK) return 1;
  if (slicepool_buffer_pool_config_with_alignment(&config, 64) != SLICEPOOL_OK) return 1;
  if (slicepool_buffer_pool_create_in(NULL, &config, books, sizeof books, &pool) != SLICEPOOL_OK) {
    board_print(slicepool_result_string(failure.result));
    board_print("\n");
    return 2;
  }

  board_tick_every(20001);
  uint32_t right = 0;
  while (right < TRANSFERS && !failed) {
    const uint64_t id = take(&full);
    if (id == 0) continue;
    slicepool_buffer buffer = SLICEPOOL_BUFFER_INIT;
    if (slicepool_buffer_get(pool, id, &buffer) != SLICEPOOL_OK) return 3;
    const unsigned char *bytes = (const unsigned char *)buffer.mapped;
    if (bytes < reachable || bytes >= reachable + sizeof reachable) return 4;
    for (uint32_t i = 0; i < BUFFER_BYTES; i++) failed |= bytes[i] != (unsigned char)right;
    right++;
    if (slicepool_buffer_release(pool, NULL, id) != SLICEPOOL_OK) return 5;
  }
  board_tick_every(0);
  board_print_number("transfers", right);

  slicepool_buffer_pool_statistics figures = SLICEPOOL_BUFFER_POOL_STATISTICS_INIT;
  if (slicepool_buffer_pool_statistics_get(pool, &figures) != SLICEPOOL_OK) return 6;
  board_print_number("books", figures.metadata_bytes);
  for (uint64_t id; (id = take(&empty)) != 0;) failed |= slicepool_buffer_release(pool, NULL, id) != SLICEPOOL_OK;
  for (uint64_t id; (id = take(&full)) != 0;) failed |= slicepool_buffer_release(pool, NULL, id) != SLICEPOOL_OK;
  const slicepool_result result = slicepool_buffer_pool_destroy(pool, 0, NULL);
  board_print_number("stack", board_stack_used());
  board_print("end: ");
  board_print(slicepool_result_string(result));
  board_print("\n");
  return result == SLICEPOOL_OK && !failed ? 0 : 7;
}
