/* Prints the report of an allocator in a known state, for the driver to read. */
#include "check.h"
#include "shorthand.h"

static slicepool_result on_budget(struct mock_device *device, uint32_t heap, slicepool_heap_budget *budget) {
  CHECK_EQ(heap, 0);
  budget->usage = device->bytes;
  budget->budget = 300 * MIB;
  return SLICEPOOL_OK;
}

int main(void) {
  struct mock_device device;
  mock_init(&device);
  device.on_budget = on_budget;
  const slicepool_device table = mock_table(&device);
  const slicepool_pool_options pools[5] = { sliced(4096, 1024, 8192, 64), sliced(65536, 0, 0, 256),
                                            ageing(exclusive(1000, 32), 77), direct(5000, 32),
                                            growing(4096, 8192, 32) };
  slicepool_memory_type type = SLICEPOOL_MEMORY_TYPE_INIT;
  type.page_alignment = 4096;
  type.properties = 9;
  type.flags = SLICEPOOL_MEMORY_TYPE_HOST_VISIBLE;
  slicepool_heap heap = SLICEPOOL_HEAP_INIT;
  heap.size = GIB;
  heap.limit = 512 * MIB;
  slicepool_allocator_config config = config_for(pools, 5);
  config.memory_types = &type;
  config.memory_type_count = 1;
  config.heaps = &heap;
  config.heap_count = 1;
  config.name = "the \"first\" of two\nlines \\ \xC3\xA4";
  slicepool_allocator *allocator = create_of(&table, config);
  take(allocator, 1000);
  take(allocator, 1000);
  take(allocator, 60000);
  /* In the pool of the first two, whose page has room; and one of no pool. */
  free_at(allocator, take(allocator, 500).id, 1, 1);
  take_flagged(allocator, 700, SLICEPOOL_REQUEST_PERSISTENT);
  uint64_t needed = 0, written = 0;
  OK(slicepool_report_json(allocator, NULL, 0, &needed));
  char *report = malloc(needed);
  CHECK(report != NULL);
  OK(slicepool_report_json(allocator, report, needed, &written));
  CHECK_EQ(written, needed);
  CHECK_EQ(strlen(report) + 1, needed);
  puts(report);
  free(report);
  OK(slicepool_allocator_destroy(allocator, SLICEPOOL_DESTROY_FORCE, NULL));
  mock_end(&device);
  return 0;
}
