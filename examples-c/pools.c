/* One allocator, three pools: small slices cut from small pages, large ones from pages that grow with what is held, and
 * render targets with a page each, which only targets of the same size use again.
 *
 * A request goes to the first pool that takes it and has room, and only if none has, to a new page of the first that
 * takes it. So small requests would fill the holes between textures: a flag sends constants and targets to the pool
 * meant for them. At the end the report of each pool is printed as a table.
 */
#include "slicepool.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define KIB 1024ull
#define MIB (1024ull * KIB)

enum { SMALL, LARGE, TARGETS, POOLS };

#define FRAMES 300
#define TEXTURES 120
#define CONSTANTS 50
#define TARGET_COUNT 4

/* The device. In an engine these two call vkAllocateMemory or the like. */
typedef struct gpu {
  uint64_t next_handle;
  uint64_t bytes;
} gpu;

static slicepool_result gpu_allocate(void *user_data, const slicepool_page_request *request,
                                     slicepool_device_memory *memory) {
  gpu *device = (gpu *)user_data;
  memory->handle = ++device->next_handle;
  device->bytes += request->size;
  return SLICEPOOL_OK;
}

static slicepool_result gpu_deallocate(void *user_data, const slicepool_device_memory *memory) {
  gpu *device = (gpu *)user_data;
  device->bytes -= memory->size;
  return SLICEPOOL_OK;
}

static void check(slicepool_result result, const char *what) {
  if (result != SLICEPOOL_OK) {
    fprintf(stderr, "%s: %s\n", what, slicepool_result_string(result));
    exit(1);
  }
}

/* From any pool that takes it; or, with pool < POOLS, from that one only. */
static uint64_t allocate(slicepool_allocator *allocator, uint64_t size, uint32_t pool) {
  slicepool_request request = SLICEPOOL_REQUEST_INIT;
  slicepool_slice slice = SLICEPOOL_SLICE_INIT;
  request.size = size;
  if (pool < POOLS) {
    request.flags = SLICEPOOL_REQUEST_IN_POOL;
    request.pool = pool;
  }
  check(slicepool_allocate(allocator, &request, &slice), "allocate");
  return slice.id;
}

/* The same numbers in every run. */
static uint64_t next_random(uint64_t *state) {
  *state = *state * 6364136223846793005ull + 1442695040888963407ull;
  return *state >> 33;
}

static slicepool_allocator *create(gpu *state) {
  slicepool_device device = SLICEPOOL_DEVICE_INIT;
  slicepool_allocator_config config = SLICEPOOL_ALLOCATOR_CONFIG_INIT;
  slicepool_pool_options init = SLICEPOOL_POOL_OPTIONS_INIT;
  slicepool_pool_options pools[POOLS] = {init, init, init};
  slicepool_allocator *allocator = NULL;

  device.user_data = state;
  device.allocate = gpu_allocate;
  device.deallocate = gpu_deallocate;

  pools[SMALL].kind = SLICEPOOL_POOL_SLICED_PAGES;
  pools[SMALL].page_size = 1 * MIB;
  pools[SMALL].max_slice_size = 16 * KIB;
  pools[SMALL].near_page = SLICEPOOL_NEAR_PAGE_NEVER;

  pools[LARGE].kind = SLICEPOOL_POOL_SLICED_PAGES;
  pools[LARGE].page_size = 16 * MIB;
  pools[LARGE].max_page_size = 128 * MIB;
  pools[LARGE].dealloc_period = 5000;

  pools[TARGETS].kind = SLICEPOOL_POOL_DIRECT;
  pools[TARGETS].reclaim_at = 128 * MIB;

  config.pools = pools;
  config.pool_count = POOLS;
  check(slicepool_allocator_create(&device, &config, &allocator), "create");
  return allocator;
}

static void print_table(slicepool_allocator *allocator) {
  static const char *const names[POOLS] = {"small", "large", "targets"};
  static const char *const kinds[] = {"", "exclusive", "direct", "sliced"};
  printf("%-8s %-8s %12s %12s %10s %12s %6s %6s %12s %7s\n", "pool", "kind", "reserved", "in use", "padding", "free",
         "pages", "peak", "largest", "device");
  for (uint32_t i = 0; i < POOLS; i++) {
    slicepool_pool_options options = SLICEPOOL_POOL_OPTIONS_INIT;
    slicepool_statistics figures = SLICEPOOL_STATISTICS_INIT;
    check(slicepool_pool_options_get(allocator, i, &options), "options");
    check(slicepool_pool_statistics_get(allocator, i, &figures), "statistics");
    printf("%-8s %-8s %12" PRIu64 " %12" PRIu64 " %10" PRIu64 " %12" PRIu64 " %6" PRIu32 " %6" PRIu32 " %12" PRIu64
           " %7" PRIu64 "\n",
           names[i], kinds[options.kind], figures.reserved_bytes, figures.in_use_bytes, figures.padding_bytes,
           figures.free_bytes, figures.pages, figures.pages_peak, figures.largest_allocation_bytes,
           figures.device_allocations + figures.device_deallocations);
  }
}

int main(void) {
  gpu state = {0, 0};
  slicepool_allocator *allocator = create(&state);
  uint64_t random = 1;
  uint64_t textures[TEXTURES] = {0}, constants[CONSTANTS] = {0}, targets[TARGET_COUNT] = {0};

  for (int frame = 0; frame < FRAMES; frame++) {
    /* The window gets larger twice: targets of the old size are freed, and give way when their pool is above its mark. */
    if (frame % 100 == 0) {
      const uint64_t pixels = (1280ull + 320 * (uint64_t)frame / 100) * (720ull + 180 * (uint64_t)frame / 100);
      check(slicepool_free_many(allocator, targets, TARGET_COUNT, NULL), "free targets");
      for (int i = 0; i < TARGET_COUNT; i++) targets[i] = allocate(allocator, pixels * (i == 0 ? 16 : 8), TARGETS);
    }
    /* A texture is streamed in, in place of another, to any pool that takes it. */
    uint64_t *texture = &textures[next_random(&random) % TEXTURES];
    check(slicepool_free(allocator, *texture), "free texture");
    *texture = allocate(allocator, (64 * KIB) << (next_random(&random) % 8), POOLS);
    /* Constants live for one frame. */
    for (int i = 0; i < CONSTANTS; i++) constants[i] = allocate(allocator, 64 + next_random(&random) % 8000, SMALL);
    check(slicepool_free_many(allocator, constants, CONSTANTS, NULL), "free constants");
  }

  print_table(allocator);
  const uint64_t held = state.bytes;
  check(slicepool_free_many(allocator, textures, TEXTURES, NULL), "free textures");
  check(slicepool_free_many(allocator, targets, TARGET_COUNT, NULL), "free targets");
  check(slicepool_allocator_destroy(allocator, 0, NULL), "destroy");
  printf("held: %" PRIu64 " bytes, at the end %" PRIu64 "\n", held, state.bytes);
  return state.bytes == 0 ? 0 : 1;
}
