/* A renderer's loop with three frames in flight.
 *
 * Every frame takes memory for its targets, constants and uploads, and frees it at once: the device still works on it, so
 * each slice waits for the value that its queue signals when it is done with the frame. Two queues mean two timelines;
 * what both use waits for both. Whatever the device has completed is collected once a frame, and its memory serves the
 * next frame. There is no list of things to delete anywhere in this program.
 *
 * Textures come and go now and then, and are freed in the same way. Every hundred frames, and then every thousand, a line
 * says what is held, how much of it is in use or pending, and how often the device has been called since the last line.
 */
#include "slicepool.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define KIB UINT64_C(1024)
#define MIB (1024 * KIB)

#define FRAMES 11000
#define WARM_UP 1000
#define IN_FLIGHT 3
#define TEXTURES 160

/* One timeline for each queue of the device. A frame signals its number on both. */
enum { GRAPHICS, COMPUTE };

typedef struct renderer {
  slicepool_allocator *allocator;
  uint64_t textures[TEXTURES];
  uint64_t frame; /* the one that is being recorded, from 1 on */
  uint64_t done;  /* the last one that the device has completed, on both queues */
  uint64_t pages; /* handles of pages */
  uint64_t calls; /* of the device */
} renderer;

static void check(slicepool_result result, const char *what) {
  if (result != SLICEPOOL_OK) {
    fprintf(stderr, "%s: %s\n", what, slicepool_result_string(result));
    exit(1);
  }
}

/* ---- the device: in an engine, vkAllocateMemory, vkFreeMemory and vkGetSemaphoreCounterValue */

static slicepool_result gpu_allocate(void *user_data, const slicepool_page_request *request,
                                     slicepool_device_memory *memory) {
  renderer *it = (renderer *)user_data;
  (void)request;
  memory->handle = ++it->pages;
  it->calls++;
  return SLICEPOOL_OK;
}

static slicepool_result gpu_deallocate(void *user_data, const slicepool_device_memory *memory) {
  (void)memory;
  ((renderer *)user_data)->calls++;
  return SLICEPOOL_OK;
}

/* Asked before more memory is taken: perhaps the device is done with some that is held. */
static slicepool_result gpu_completed(void *user_data, uint32_t timeline, uint64_t *completed) {
  (void)timeline;
  *completed = ((renderer *)user_data)->done;
  return SLICEPOOL_OK;
}

/* ---- the frame */

static uint64_t take(renderer *it, uint64_t size, uint64_t alignment) {
  slicepool_request request = SLICEPOOL_REQUEST_INIT;
  slicepool_slice slice = SLICEPOOL_SLICE_INIT;
  request.size = size;
  request.alignment = alignment;
  check(slicepool_allocate(it->allocator, &request, &slice), "allocate");
  return slice.id;
}

/* Takes back what this frame uses, or the frames before it still do. */
static void drop(renderer *it, const uint64_t *ids, uint32_t count, int on_compute_too) {
  slicepool_point points[2] = {{GRAPHICS, 0, 0}, {COMPUTE, 0, 0}};
  points[GRAPHICS].value = points[COMPUTE].value = it->frame;
  check(slicepool_free_after_many(it->allocator, ids, count, points, on_compute_too ? 2 : 1, NULL), "free after");
}

static void render(renderer *it) {
  const uint64_t frame = it->frame;
  uint64_t ids[32];
  uint32_t count = 0;

  /* Wait for the frame that is as far back as frames may be in flight, as an engine waits for its fence. */
  if (frame > IN_FLIGHT) {
    it->done = frame - IN_FLIGHT;
    check(slicepool_collect(it->allocator, GRAPHICS, it->done, NULL), "collect");
    check(slicepool_collect(it->allocator, COMPUTE, it->done, NULL), "collect");
  }

  /* Targets that both queues use: full size, half size, and a shadow map in every second frame. */
  ids[count++] = take(it, 1920 * 1080 * 8, 64 * KIB);
  ids[count++] = take(it, 1920 * 1080 * 4, 64 * KIB);
  ids[count++] = take(it, 960 * 540 * 8, 64 * KIB);
  if (frame % 2 == 0) {
    ids[count++] = take(it, 2048 * 2048 * 2, 64 * KIB);
  }
  drop(it, ids, count, 1);

  /* Constants, vertices and uploads of all sizes, which graphics alone uses. */
  count = 0;
  for (uint64_t i = 0; i < 24; i++) {
    ids[count++] = take(it, 2 * KIB + (frame * 7 + i * 13) % 60 * 4 * KIB, 0);
  }
  drop(it, ids, count, 0);

  /* A texture makes room for another, whose frames may still be drawn. */
  if (frame % 4 == 0) {
    uint64_t *texture = &it->textures[frame / 4 % TEXTURES];
    drop(it, texture, 1, 0);
    *texture = take(it, 256 * KIB << (frame / 4 % 3), 64 * KIB);
  }
}

int main(void) {
  renderer it = {0};
  slicepool_device device = SLICEPOOL_DEVICE_INIT;
  slicepool_allocator_config config = SLICEPOOL_ALLOCATOR_CONFIG_INIT;
  slicepool_pool_options pools[2] = {SLICEPOOL_POOL_OPTIONS_INIT};
  uint64_t calls_before = 0, calls_after_warm_up = 0, peak = 0, reserved = 0;

  device.user_data = &it;
  device.allocate = gpu_allocate;
  device.deallocate = gpu_deallocate;
  device.completed = gpu_completed;
  /* The usual pools, but for pages that go back by age: a renderer wants no device calls while it runs. */
  check(slicepool_layout_adaptive(NULL, pools, 2, &config.pool_count), "layout");
  for (uint32_t i = 0; i < config.pool_count; i++) {
    pools[i].dealloc_period = 0;
  }
  config.pools = pools;
  config.page_alignment = 64 * KIB; /* what images want; slices cannot be aligned to more than their page */
  check(slicepool_allocator_create(&device, &config, &it.allocator), "create");

  for (uint64_t i = 0; i < TEXTURES; i++) {
    it.textures[i] = take(&it, 256 * KIB << (i % 3), 64 * KIB);
  }
  printf("%8s %14s %14s %14s %14s\n", "frame", "reserved MiB", "in use MiB", "pending MiB", "device calls");
  for (it.frame = 1; it.frame <= FRAMES; it.frame++) {
    slicepool_statistics now = SLICEPOOL_STATISTICS_INIT;
    render(&it);
    check(slicepool_statistics_get(it.allocator, &now), "statistics");
    if (now.in_use_bytes + now.pending_bytes > peak) {
      peak = now.in_use_bytes + now.pending_bytes;
    }
    reserved = now.reserved_peak_bytes;
    if (it.frame == WARM_UP) {
      calls_after_warm_up = it.calls;
    }
    if (it.frame % (it.frame <= 1000 ? 100 : 1000) == 0) {
      printf("%8" PRIu64 " %14.1f %14.1f %14.1f %14" PRIu64 "\n", it.frame, (double)now.reserved_bytes / (double)MIB,
             (double)now.in_use_bytes / (double)MIB, (double)now.pending_bytes / (double)MIB, it.calls - calls_before);
      calls_before = it.calls;
    }
  }
  printf("device calls after the warm-up: %" PRIu64 "\n", it.calls - calls_after_warm_up);
  printf("held at most: %.2f times the most that was in use or pending\n", (double)reserved / (double)peak);

  /* The end: the device is idle, so nothing is waited for any more. */
  for (uint64_t i = 0; i < TEXTURES; i++) {
    check(slicepool_free(it.allocator, it.textures[i]), "free");
  }
  check(slicepool_collect(it.allocator, GRAPHICS, FRAMES, NULL), "collect");
  check(slicepool_collect(it.allocator, COMPUTE, FRAMES, NULL), "collect");
  check(slicepool_allocator_destroy(it.allocator, 0, NULL), "destroy");
  return 0;
}
