/* How much memory does a workload need, when the machine at hand has not that much?
 *
 * A training step of a large model is played through in a dry run: everything is placed and counted as it would be, but
 * the device is never asked. The report of that is a plan, which says how large each pool has to be. The same calls then
 * fit into pools of exactly that size, at the first try, because the same calls give the same placements.
 */
#include "slicepool.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define MIB (UINT64_C(1024) * 1024)
#define GIB (UINT64_C(1024) * MIB)

#define LAYERS 96
enum { SMALL, LARGE, POOLS };

/* A machine of the future. Its memory is numbers; it gives out no more than it has. */
typedef struct machine {
  uint64_t bytes;
  uint64_t limit;
  uint64_t pages;
  uint64_t calls;
} machine;

static slicepool_result machine_allocate(void *user_data, const slicepool_page_request *request,
                                         slicepool_device_memory *memory) {
  machine *it = (machine *)user_data;
  it->calls++;
  if (request->size > it->limit - it->bytes) {
    return SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY;
  }
  it->bytes += request->size;
  memory->handle = ++it->pages;
  return SLICEPOOL_OK;
}

static slicepool_result machine_deallocate(void *user_data, const slicepool_device_memory *memory) {
  machine *it = (machine *)user_data;
  it->calls++;
  it->bytes -= memory->size;
  return SLICEPOOL_OK;
}

static void check(slicepool_result result, const char *what) {
  if (result != SLICEPOOL_OK) {
    fprintf(stderr, "%s: %s\n", what, slicepool_result_string(result));
    exit(1);
  }
}

static uint64_t take(slicepool_allocator *allocator, uint64_t size) {
  slicepool_request request = SLICEPOOL_REQUEST_INIT;
  slicepool_slice slice = SLICEPOOL_SLICE_INIT;
  request.size = size;
  request.flags = SLICEPOOL_REQUEST_IN_POOL;
  request.pool = size <= 16 * MIB ? SMALL : LARGE;
  check(slicepool_allocate(allocator, &request, &slice), "allocate");
  return slice.id;
}

static void give(slicepool_allocator *allocator, uint64_t id) { check(slicepool_free(allocator, id), "free"); }

/* One step: weights stay; forward keeps one activation per layer and needs scratch; backward frees them in reverse. */
static void train(slicepool_allocator *allocator) {
  uint64_t weights[LAYERS], kept[LAYERS];
  for (int i = 0; i < LAYERS; i++) {
    weights[i] = take(allocator, 7 * GIB + (uint64_t)(i % 5) * 96 * MIB);
  }
  for (int i = 0; i < LAYERS; i++) {
    uint64_t scratch = take(allocator, 3 * GIB);
    uint64_t small[4];
    for (int k = 0; k < 4; k++) {
      small[k] = take(allocator, (uint64_t)(k + 3) * 3 * MIB / 2 + (uint64_t)i * 4096);
    }
    kept[i] = take(allocator, 2 * GIB + (uint64_t)(i % 7) * 64 * MIB);
    for (int k = 0; k < 4; k++) {
      give(allocator, small[k]);
    }
    give(allocator, scratch);
  }
  for (int i = LAYERS - 1; i >= 0; i--) {
    uint64_t gradient = take(allocator, 5 * GIB);
    give(allocator, kept[i]);
    give(allocator, gradient);
  }
  for (int i = 0; i < LAYERS; i++) {
    give(allocator, weights[i]);
  }
}

/* Pools without a cap: small slices from pages of 64 MiB, the others from pages of 16 GiB. */
static void describe(slicepool_pool_options pools[POOLS]) {
  pools[SMALL] = (slicepool_pool_options)SLICEPOOL_POOL_OPTIONS_INIT;
  pools[SMALL].kind = SLICEPOOL_POOL_SLICED_PAGES;
  pools[SMALL].page_size = 64 * MIB;
  pools[SMALL].max_slice_size = 16 * MIB;
  pools[LARGE] = (slicepool_pool_options)SLICEPOOL_POOL_OPTIONS_INIT;
  pools[LARGE].kind = SLICEPOOL_POOL_SLICED_PAGES;
  pools[LARGE].page_size = 16 * GIB;
}

static slicepool_allocator *create(machine *it, const slicepool_pool_options *pools, uint32_t flags) {
  slicepool_device device = SLICEPOOL_DEVICE_INIT;
  slicepool_allocator_config config = SLICEPOOL_ALLOCATOR_CONFIG_INIT;
  slicepool_allocator *allocator = NULL;
  device.user_data = it;
  device.allocate = machine_allocate;
  device.deallocate = machine_deallocate;
  config.flags = flags;
  config.pools = pools;
  config.pool_count = POOLS;
  check(slicepool_allocator_create(&device, &config, &allocator), "create");
  return allocator;
}

int main(void) {
  machine it = {0, 0, 0, 0};
  slicepool_pool_options pools[POOLS], plan[POOLS];
  slicepool_statistics measured = SLICEPOOL_STATISTICS_INIT, now = SLICEPOOL_STATISTICS_INIT;
  slicepool_slice slice = SLICEPOOL_SLICE_INIT;
  slicepool_allocator *allocator;
  uint64_t id;
  uint32_t count = 0;

  /* Measure. The machine has no memory at all at this time. */
  describe(pools);
  allocator = create(&it, pools, SLICEPOOL_ALLOCATOR_DRY_RUN);
  train(allocator);
  check(slicepool_statistics_get(allocator, &measured), "statistics");
  plan[0] = (slicepool_pool_options)SLICEPOOL_POOL_OPTIONS_INIT;
  check(slicepool_plan(allocator, plan, POOLS, &count), "plan");
  printf("measured: %" PRIu64 " GiB in %u pages, %" PRIu64 " device calls\n", measured.reserved_peak_bytes / GIB,
         measured.pages_peak, it.calls);
  for (uint32_t i = 0; i < count; i++) {
    printf("pool %u: at most %" PRIu64 " MiB in pages of %" PRIu64 " MiB\n", i, plan[i].max_pool_size / MIB,
           plan[i].page_size / MIB);
  }
  /* A slice of a dry run gets its memory when it is asked for, and this machine has none. */
  id = take(allocator, GIB);
  printf("resolve: %s\n", slicepool_result_string(slicepool_resolve(allocator, id, &slice, NULL)));
  give(allocator, id);
  check(slicepool_allocator_destroy(allocator, 0, NULL), "destroy");

  /* Run as planned, on a machine that has exactly this much. */
  it.limit = measured.reserved_peak_bytes;
  allocator = create(&it, plan, 0);
  train(allocator);
  check(slicepool_statistics_get(allocator, &now), "statistics");
  printf("run: %" PRIu64 " GiB in %u pages, %" PRIu64 " device calls\n", now.reserved_peak_bytes / GIB, now.pages_peak,
         it.calls);
  check(slicepool_allocator_destroy(allocator, 0, NULL), "destroy");
  printf("end: %" PRIu64 " bytes still with us\n", it.bytes);
  return 0;
}
