/* The smallest complete program: a device of your own, a few slices, a hole that is used again, a report.
 *
 *     make demo
 */
#include "slicepool.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* The device. In an engine these two call vkAllocateMemory, cuMemAlloc, a firmware heap ... */
typedef struct gpu {
  uint64_t next_handle;
  uint64_t pages;
} gpu;

static slicepool_result gpu_allocate(void *user_data, const slicepool_page_request *request,
                                     slicepool_device_memory *memory) {
  gpu *device = (gpu *)user_data;
  memory->handle = ++device->next_handle;
  device->pages++;
  printf("device: page %" PRIu64 " of %" PRIu64 " bytes taken\n", memory->handle, request->size);
  return SLICEPOOL_OK;
}

static slicepool_result gpu_deallocate(void *user_data, const slicepool_device_memory *memory) {
  gpu *device = (gpu *)user_data;
  device->pages--;
  printf("device: page %" PRIu64 " of %" PRIu64 " bytes given back\n", memory->handle, memory->size);
  return SLICEPOOL_OK;
}

static void check(slicepool_result result, const char *what) {
  if (result != SLICEPOOL_OK) {
    fprintf(stderr, "%s: %s\n", what, slicepool_result_string(result));
    exit(1);
  }
}

static slicepool_slice allocate(slicepool_allocator *allocator, uint64_t size, uint64_t alignment) {
  slicepool_request request = SLICEPOOL_REQUEST_INIT;
  slicepool_slice slice = SLICEPOOL_SLICE_INIT;
  request.size = size;
  request.alignment = alignment;
  check(slicepool_allocate(allocator, &request, &slice), "allocate");
  printf("slice:  %7" PRIu64 " bytes of page %" PRIu64 " at %7" PRIu64 "\n", slice.size, slice.memory, slice.offset);
  return slice;
}

int main(void) {
  gpu state = {0, 0};
  slicepool_device device = SLICEPOOL_DEVICE_INIT;
  slicepool_pool_options pool = SLICEPOOL_POOL_OPTIONS_INIT;
  slicepool_allocator_config config = SLICEPOOL_ALLOCATOR_CONFIG_INIT;
  slicepool_allocator *allocator = NULL;

  device.user_data = &state;
  device.allocate = gpu_allocate;
  device.deallocate = gpu_deallocate;
  pool.kind = SLICEPOOL_POOL_SLICED_PAGES;
  pool.page_size = 1024 * 1024;
  config.pools = &pool;
  config.pool_count = 1;
  check(slicepool_allocator_create(&device, &config, &allocator), "create");

  /* The first slice makes the device give a page; the next ones come out of the same page. */
  slicepool_slice vertices = allocate(allocator, 300000, 0);
  slicepool_slice texture = allocate(allocator, 262144, 4096);
  slicepool_slice uniforms = allocate(allocator, 1000, 0);

  /* A freed slice leaves a hole, and the next slice of that size fills it. */
  check(slicepool_free(allocator, texture.id), "free");
  slicepool_slice again = allocate(allocator, 262144, 4096);
  printf("reused: %s\n", again.offset == texture.offset ? "yes, the hole at the same offset" : "no");
  printf("stale:  freeing the old handle again: %s\n", slicepool_result_string(slicepool_free(allocator, texture.id)));

  /* What does not fit any more makes the device give another page. */
  slicepool_slice large = allocate(allocator, 900000, 0);

  const uint64_t ids[] = {vertices.id, uniforms.id, again.id, large.id};
  check(slicepool_free_many(allocator, ids, 4, NULL), "free_many");
  check(slicepool_cleanup(allocator, NULL), "cleanup");

  char report[4096];
  uint64_t needed = 0;
  check(slicepool_report_json(allocator, report, sizeof report, &needed), "report");
  printf("report: %s\n", needed <= sizeof report ? report : "too long for the buffer");

  check(slicepool_allocator_destroy(allocator, 0, NULL), "destroy");
  printf("end:    %" PRIu64 " pages still with us\n", state.pages);
  return state.pages == 0 && again.offset == texture.offset ? 0 : 1;
}
