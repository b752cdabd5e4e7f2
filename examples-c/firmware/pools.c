/* The least: an allocator in a block, with one pool over static memory. */
#include "board.h"
#include "sram.h"

/* slicepool_allocator_bytes_needed() says how much; see interrupts.c. */
#ifndef BOOKS_BYTES
#define BOOKS_BYTES 8192
#endif

static uint64_t books[BOOKS_BYTES / 8];

int main(void) {
  slicepool_device device;
  slicepool_host host;
  sram_device(&device);
  sram_host(&host);

  slicepool_pool_options pool = SLICEPOOL_POOL_OPTIONS_INIT;
  pool.kind = SLICEPOOL_POOL_SLICED_PAGES;
  pool.page_size = SRAM_PAGE_BYTES;
  pool.granule = 64;

  slicepool_allocator_config config = SLICEPOOL_ALLOCATOR_CONFIG_INIT;
  config.page_alignment = SRAM_ALIGNMENT;
  config.pool_count = 1;
  config.pools = &pool;
  config.host = &host;

  slicepool_allocator *allocator = NULL;
  if (slicepool_allocator_create_in(&device, &config, books, sizeof books, &allocator) != SLICEPOOL_OK) return 1;

  slicepool_request request = SLICEPOOL_REQUEST_INIT;
  slicepool_slice slice = SLICEPOOL_SLICE_INIT;
  request.size = 300;
  if (slicepool_allocate(allocator, &request, &slice) != SLICEPOOL_OK) return 2;
  if (slice.mapped == NULL || slice.size != 320) return 3;
  if (slicepool_free(allocator, slice.id) != SLICEPOOL_OK) return 4;
  if (slicepool_allocator_destroy(allocator, 0, NULL) != SLICEPOOL_OK) return 5;
  return sram_pages_out() == 0 ? 0 : 6;
}
