/* What a renderer does on a discrete GPU: three memory types over two heaps, textures and buffers that may not share a
 * granularity page, uploads through memory that is always mapped, a readback through memory that is mapped for a moment
 * and not coherent, pages of their own for what is too large, another type where the best one is full, and a list of what
 * was forgotten at the end.
 *
 * The device below is a mock of the size and shape of such a card. In an engine its callbacks call vkAllocateMemory,
 * vkMapMemory and so on with the same numbers.
 */
#include "slicepool.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KIB 1024ull
#define MIB (1024ull * KIB)
#define GIB (1024ull * MIB)

/* Properties: bits of our own, as VkMemoryPropertyFlags would be. */
#define DEVICE_LOCAL 1u
#define HOST_VISIBLE 2u
#define HOST_COHERENT 4u
#define HOST_CACHED 8u

enum { VIDEO, UPLOAD, READBACK, TYPES };
enum { VIDEO_HEAP, SYSTEM_HEAP, HEAPS };
enum { GRAPHICS_QUEUE = 1 };

#define TEXTURES 24
#define BUFFERS 40
#define DEVICE_PAGES 4096u

static const char *const type_names[TYPES] = {"video", "upload", "readback"};

/* ---- the device */

typedef struct gpu {
  uint64_t bytes[HEAPS];
  uint32_t pages;
  uint32_t maps, flushes, leaks;
} gpu;

typedef struct gpu_page {
  uint32_t memory_type;
  unsigned char *bytes;
} gpu_page;

static uint32_t heap_of(uint32_t memory_type) { return memory_type == VIDEO ? VIDEO_HEAP : SYSTEM_HEAP; }

static slicepool_result gpu_allocate(void *user_data, const slicepool_page_request *request,
                                     slicepool_device_memory *memory) {
  gpu *device = (gpu *)user_data;
  gpu_page *page = (gpu_page *)malloc(sizeof *page);
  if (page == NULL || device->pages == DEVICE_PAGES) {
    free(page);
    return SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY;
  }
  page->memory_type = request->memory_type;
  /* Host memory that is not touched costs nothing, so this serves for video memory too. */
  page->bytes = (unsigned char *)malloc((size_t)request->size + 4096);
  if (page->bytes == NULL) {
    free(page);
    return SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY;
  }
  unsigned char *aligned = page->bytes + (4096 - (uintptr_t)page->bytes % 4096);
  memory->handle = (uint64_t)(uintptr_t)aligned;
  memory->context = page;
  /* The upload type is mapped for good, as engines do; the readback type when it is asked for. */
  if (request->memory_type == UPLOAD) memory->mapped = aligned;
  device->pages++;
  device->bytes[heap_of(request->memory_type)] += request->size;
  return SLICEPOOL_OK;
}

static slicepool_result gpu_deallocate(void *user_data, const slicepool_device_memory *memory) {
  gpu *device = (gpu *)user_data;
  gpu_page *page = (gpu_page *)memory->context;
  device->pages--;
  device->bytes[heap_of(page->memory_type)] -= memory->size;
  free(page->bytes);
  free(page);
  return SLICEPOOL_OK;
}

static slicepool_result gpu_map(void *user_data, const slicepool_device_memory *memory, void **mapped) {
  ((gpu *)user_data)->maps++;
  *mapped = (void *)(uintptr_t)memory->handle;
  return SLICEPOOL_OK;
}

static void gpu_unmap(void *user_data, const slicepool_device_memory *memory) {
  (void)user_data;
  (void)memory;
}

static slicepool_result gpu_flush(void *user_data, const slicepool_cache_range *range) {
  ((gpu *)user_data)->flushes++;
  return range->offset % 64 == 0 ? SLICEPOOL_OK : SLICEPOOL_ERROR_DEVICE_FAILED;
}

static slicepool_result gpu_budget(void *user_data, uint32_t heap, slicepool_heap_budget *budget) {
  budget->usage = ((gpu *)user_data)->bytes[heap];
  budget->budget = heap == VIDEO_HEAP ? 3 * GIB : 12 * GIB;
  return SLICEPOOL_OK;
}

static void gpu_event(void *user_data, const slicepool_event *event) {
  if (event->kind == SLICEPOOL_EVENT_SLICE_LEAKED) {
    ((gpu *)user_data)->leaks++;
    printf("leaked: %s, %" PRIu64 " bytes of %s memory\n", event->name, event->requested,
           type_names[event->memory_type]);
  }
}

/* What the GPU's copy engine would do. */
static void gpu_copy(const slicepool_slice *to, const slicepool_slice *from, uint64_t size) {
  memcpy((unsigned char *)(uintptr_t)to->memory + to->offset, (unsigned char *)(uintptr_t)from->memory + from->offset,
         (size_t)size);
}

/* ---- the renderer */

static void check(slicepool_result result, const char *what) {
  if (result != SLICEPOOL_OK) {
    fprintf(stderr, "%s: %s\n", what, slicepool_result_string(result));
    exit(1);
  }
}

static slicepool_allocator *create(gpu *state) {
  slicepool_device device = SLICEPOOL_DEVICE_INIT;
  device.user_data = state;
  device.allocate = gpu_allocate;
  device.deallocate = gpu_deallocate;
  device.map = gpu_map;
  device.unmap = gpu_unmap;
  device.flush = gpu_flush;
  device.invalidate = gpu_flush;
  device.heap_budget = gpu_budget;
  device.event = gpu_event;

  slicepool_heap heaps[HEAPS] = {SLICEPOOL_HEAP_INIT, SLICEPOOL_HEAP_INIT};
  heaps[VIDEO_HEAP].size = 4 * GIB;
  heaps[VIDEO_HEAP].limit = 512 * MIB; /* the rest is for others */
  heaps[SYSTEM_HEAP].size = 16 * GIB;

  slicepool_memory_type types[TYPES] = {SLICEPOOL_MEMORY_TYPE_INIT, SLICEPOOL_MEMORY_TYPE_INIT,
                                        SLICEPOOL_MEMORY_TYPE_INIT};
  const uint32_t properties[TYPES] = {DEVICE_LOCAL, HOST_VISIBLE | HOST_COHERENT, HOST_VISIBLE | HOST_CACHED};
  for (uint32_t i = 0; i < TYPES; i++) {
    types[i].heap = heap_of(i);
    types[i].properties = properties[i];
    types[i].granularity = 1024; /* bufferImageGranularity */
    types[i].flags = i == VIDEO ? 0 : SLICEPOOL_MEMORY_TYPE_HOST_VISIBLE;
  }
  types[READBACK].non_coherent_atom = 64; /* nonCoherentAtomSize */

  slicepool_allocation_sizes sizes = SLICEPOOL_ALLOCATION_SIZES_INIT;
  sizes.min_device_memblock_size = 8 * MIB;
  sizes.max_device_memblock_size = 64 * MIB;
  sizes.min_host_memblock_size = 4 * MIB;
  sizes.max_host_memblock_size = 16 * MIB;

  slicepool_allocator_config config = SLICEPOOL_ALLOCATOR_CONFIG_INIT;
  slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
  slicepool_allocator *allocator = NULL;
  config.memory_types = types;
  config.memory_type_count = TYPES;
  config.heaps = heaps;
  config.heap_count = HEAPS;
  config.blocks = &sizes;
  config.max_pages = DEVICE_PAGES;
  config.name = "renderer";
  config.failure = &failure;
  if (slicepool_allocator_create(&device, &config, &allocator) != SLICEPOOL_OK) {
    fprintf(stderr, "create: %s: %s\n", slicepool_result_string(failure.result), failure.field ? failure.field : "");
    exit(1);
  }
  return allocator;
}

/* A slice of memory with all of `required` and as much as possible of `preferred`. */
static slicepool_slice allocate(slicepool_allocator *allocator, uint64_t size, uint32_t flags, uint32_t required,
                                uint32_t preferred, const char *name) {
  slicepool_request request = SLICEPOOL_REQUEST_INIT;
  slicepool_slice slice = SLICEPOOL_SLICE_INIT;
  request.size = size;
  request.flags = flags;
  request.required = required;
  request.preferred = preferred;
  request.name = name;
  check(slicepool_allocate(allocator, &request, &slice), name);
  return slice;
}

/* Through memory that the CPU sees. The staging slice is free again when the queue has passed `value`. */
static void upload(slicepool_allocator *allocator, const slicepool_slice *to, unsigned char byte, uint64_t size,
                   uint64_t value) {
  slicepool_slice staging = allocate(allocator, size, 0, HOST_VISIBLE | HOST_COHERENT, 0, "staging");
  slicepool_point point = {GRAPHICS_QUEUE, 0, value};
  memset(staging.mapped, byte, (size_t)size);
  gpu_copy(to, &staging, size);
  check(slicepool_free_after(allocator, staging.id, &point, 1, NULL), "free staging");
}

/* The other way round, through memory that has to be mapped and invalidated. */
static unsigned char read_back(slicepool_allocator *allocator, const slicepool_slice *from, uint64_t size) {
  slicepool_slice slice = allocate(allocator, size, 0, HOST_CACHED, 0, "readback");
  void *mapped = NULL;
  gpu_copy(&slice, from, size);
  check(slicepool_map(allocator, slice.id, &mapped, NULL), "map");
  check(slicepool_invalidate(allocator, slice.id, 0, UINT64_MAX, NULL), "invalidate");
  const unsigned char last = ((unsigned char *)mapped)[size - 1];
  check(slicepool_unmap(allocator, slice.id), "unmap");
  check(slicepool_free(allocator, slice.id), "free readback");
  return last;
}

static uint32_t type_of(slicepool_allocator *allocator, const slicepool_slice *slice) {
  slicepool_range range = SLICEPOOL_RANGE_INIT;
  check(slicepool_find(allocator, slice->memory, slice->offset, &range), "find");
  return range.memory_type;
}

static void print_report(slicepool_allocator *allocator) {
  printf("%-9s %12s %12s %12s %6s %7s\n", "type", "reserved", "in use", "free", "pages", "slices");
  for (uint32_t i = 0; i < TYPES; i++) {
    slicepool_statistics figures = SLICEPOOL_STATISTICS_INIT;
    check(slicepool_type_statistics_get(allocator, i, &figures), "statistics");
    printf("%-9s %12" PRIu64 " %12" PRIu64 " %12" PRIu64 " %6" PRIu32 " %7" PRIu32 "\n", type_names[i],
           figures.reserved_bytes, figures.in_use_bytes, figures.free_bytes, figures.pages, figures.slices);
  }
  for (uint32_t i = 0; i < HEAPS; i++) {
    slicepool_statistics figures = SLICEPOOL_STATISTICS_INIT;
    slicepool_heap_budget budget = SLICEPOOL_HEAP_BUDGET_INIT;
    check(slicepool_heap_statistics_get(allocator, i, &figures, &budget), "heap");
    printf("heap %" PRIu32 ": reserved %" PRIu64 ", the device says %" PRIu64 " of %" PRIu64 "\n", i,
           figures.reserved_bytes, budget.usage, budget.budget);
  }
  uint64_t needed = 0;
  check(slicepool_report_json(allocator, NULL, 0, &needed), "report");
  char *report = (char *)malloc((size_t)needed);
  if (report != NULL && slicepool_report_json(allocator, report, needed, &needed) == SLICEPOOL_OK) {
    printf("report: %s\n", report);
  }
  free(report);
}

int main(void) {
  gpu state = {{0, 0}, 0, 0, 0, 0};
  slicepool_allocator *allocator = create(&state);
  slicepool_slice textures[TEXTURES], buffers[BUFFERS];

  /* A level is loaded: textures and vertex buffers, in turns. They never share a page of 1024 bytes. */
  for (uint32_t i = 0; i < BUFFERS; i++) {
    buffers[i] = allocate(allocator, (i + 1) * 5000ull, 0, DEVICE_LOCAL, 0, "vertices");
    upload(allocator, &buffers[i], (unsigned char)i, (i + 1) * 5000ull, i + 1);
    if (i < TEXTURES) {
      textures[i] = allocate(allocator, (256 * KIB) << (i % 4), SLICEPOOL_REQUEST_OPTIMAL, DEVICE_LOCAL, 0, "texture");
      upload(allocator, &textures[i], (unsigned char)(100 + i), 4096, i + 1);
    }
  }
  check(slicepool_collect(allocator, GRAPHICS_QUEUE, BUFFERS, NULL), "collect");
  const int right = read_back(allocator, &buffers[7], 8 * 5000ull) == 7 && read_back(allocator, &textures[3], 4096) == 103;
  printf("readback: %s\n", right ? "right" : "wrong");

  /* Larger than any block: a page for itself. */
  slicepool_slice target = allocate(allocator, 100 * MIB, SLICEPOOL_REQUEST_OPTIMAL, DEVICE_LOCAL, 0, "render target");
  slicepool_range range = SLICEPOOL_RANGE_INIT;
  check(slicepool_find(allocator, target.memory, 0, &range), "find");
  const int dedicated = range.pool == slicepool_own_pool(SLICEPOOL_OWN_PAGES_DEDICATED, VIDEO);
  printf("render target: %s, at %" PRIu64 "\n", dedicated ? "a page for itself" : "shared", target.offset);

  /* Video memory is preferred, but there is not so much left of what we may hold: it lands in the next best type. */
  slicepool_slice cache = allocate(allocator, 450 * MIB, 0, 0, DEVICE_LOCAL, "streaming cache");
  printf("streaming cache: in %s memory\n", type_names[type_of(allocator, &cache)]);

  /* It must be video memory: refused, and the failure says why, type by type. */
  slicepool_request request = SLICEPOOL_REQUEST_INIT;
  slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
  slicepool_slice none = SLICEPOOL_SLICE_INIT;
  request.size = 450 * MIB;
  request.required = DEVICE_LOCAL;
  request.failure = &failure;
  const slicepool_result refused = slicepool_allocate(allocator, &request, &none);
  printf("video memory only: %s (video: %s)\n", slicepool_result_string(refused),
         slicepool_result_string(failure.type_results[VIDEO]));

  /* For a real-time thread: what is held already, or nothing. */
  uint32_t would_grow = 0;
  request.flags = SLICEPOOL_REQUEST_NEVER_GROW;
  request.size = 64 * KIB;
  check(slicepool_would_grow(allocator, &request, &would_grow), "would grow");
  const uint32_t pages = state.pages;
  check(slicepool_allocate(allocator, &request, &none), "never grow");
  printf("never grow: %s, %" PRIu32 " pages more\n", would_grow ? "would" : "fits", state.pages - pages);
  check(slicepool_free(allocator, none.id), "free");

  print_report(allocator);

  for (uint32_t i = 0; i < BUFFERS; i++) check(slicepool_free(allocator, buffers[i].id), "free buffer");
  for (uint32_t i = 0; i < TEXTURES; i++) check(slicepool_free(allocator, textures[i].id), "free texture");
  check(slicepool_free(allocator, target.id), "free target");
  /* The cache has been forgotten: the allocator does not go, and says what is left. */
  const slicepool_result busy = slicepool_allocator_destroy(allocator, 0, NULL);
  printf("destroy: %s\n", slicepool_result_string(busy));
  check(slicepool_free(allocator, cache.id), "free cache");
  check(slicepool_allocator_destroy(allocator, 0, NULL), "destroy");
  printf("end: %" PRIu32 " pages with us, %" PRIu32 " maps, %" PRIu32 " invalidations\n", state.pages, state.maps,
         state.flushes);
  return state.pages == 0 && right && dedicated && busy == SLICEPOOL_ERROR_BUSY && state.leaks == 1 ? 0 : 1;
}
