/* The same with figures, and the report as JSON: what text costs. */
#include "board.h"
#include "sram.h"

static uint64_t books[16384 / 8];
static char report[8192];

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
  request.size = 1000;
  if (slicepool_allocate(allocator, &request, &slice) != SLICEPOOL_OK) return 2;

  uint64_t needed = 0;
  if (slicepool_report_json(allocator, report, sizeof report, &needed) != SLICEPOOL_OK) return 3;
  if (needed > sizeof report) return 4;
  board_print(report);
  board_print("\n");

  if (slicepool_free(allocator, slice.id) != SLICEPOOL_OK) return 5;
  return slicepool_allocator_destroy(allocator, 0, NULL) == SLICEPOOL_OK ? 0 : 6;
}
