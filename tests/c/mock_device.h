/* A device that gives out addresses without memory behind them, counts, refuses on demand, and fails the test when the
 * library breaks a rule of the callbacks. */
#ifndef MOCK_DEVICE_H
#define MOCK_DEVICE_H

#include "check.h"

#include <pthread.h>

struct mock_page {
  uint64_t address;
  uint64_t size;
  uint32_t memory_type;
  bool live;
  bool mapped; /* by `map` */
};

struct mock_device {
  pthread_mutex_t mutex;
  /* How it behaves. */
  uint64_t capacity;       /* bytes it can give out, 0: no limit */
  uint64_t fail_at;        /* the how-manieth call of allocate fails, 0: none */
  bool fail_from_then_on;  /* and all calls after it */
  slicepool_result failure;
  int32_t device_code;
  uint64_t refusals;       /* so many calls of deallocate are refused */
  slicepool_result refusal;
  uint64_t misalign_by;    /* pages begin so much behind an aligned address */
  void (*in_allocate)(struct mock_device *device);
  void (*in_deallocate)(struct mock_device *device);
  void *hook_data;
  /* What the other callbacks do; mock_table() leaves those out that are NULL. */
  slicepool_result (*on_completed)(struct mock_device *device, uint32_t timeline, uint64_t *completed);
  int32_t (*on_shortage)(struct mock_device *device, const slicepool_shortage *shortage);
  slicepool_result (*on_fill)(struct mock_device *device, const slicepool_fill_request *request,
                              slicepool_point *point);
  slicepool_result (*on_budget)(struct mock_device *device, uint32_t heap, slicepool_heap_budget *budget);
  slicepool_result (*on_map)(struct mock_device *device, const slicepool_device_memory *memory, void **mapped);
  void (*on_unmap)(struct mock_device *device, const slicepool_device_memory *memory);
  slicepool_result (*on_flush)(struct mock_device *device, const slicepool_cache_range *range);
  slicepool_result (*on_invalidate)(struct mock_device *device, const slicepool_cache_range *range);
  void (*on_event)(struct mock_device *device, const slicepool_event *event);
  /* What it has seen. */
  uint64_t allocate_calls, deallocate_calls;
  uint64_t given, taken;
  uint64_t bytes, bytes_peak;
  uint64_t live, live_peak;
  uint64_t last_size, last_alignment;
  uint64_t sizes[64]; /* of the last calls of allocate: that of call n, which counts from 0, at n % 64 */
  uint32_t last_pool, last_type, last_flags;
  void *last_data;
  uint64_t completed_calls, shortage_calls, fill_calls;
  uint64_t budget_calls, map_calls, unmap_calls, flush_calls, invalidate_calls, events;
  /* Its pages: handle - MOCK_FIRST_HANDLE is the place here. */
  struct mock_page *pages;
  uint64_t page_count, page_room;
  uint64_t next_address;
};

#define MOCK_FIRST_HANDLE UINT64_C(7000)

static inline void mock_init(struct mock_device *device) {
  memset(device, 0, sizeof *device);
  CHECK(pthread_mutex_init(&device->mutex, NULL) == 0);
  device->failure = SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY;
  device->refusal = SLICEPOOL_ERROR_DEVICE_FAILED;
  /* Beyond any real memory: whoever touches it crashes. */
  device->next_address = UINT64_C(1) << 52;
}

static inline slicepool_result mock_allocate(void *user_data, const slicepool_page_request *request,
                                             slicepool_device_memory *memory) {
  struct mock_device *device = user_data;
  CHECK_EQ(request->struct_size, sizeof *request);
  CHECK(request->size != 0);
  CHECK(request->alignment != 0 && (request->alignment & (request->alignment - 1)) == 0);
  CHECK_EQ(memory->struct_size, sizeof *memory);
  CHECK_EQ(memory->device_code, 0);
  CHECK_EQ(memory->handle, UINT64_MAX);
  CHECK_EQ(memory->address, 0);
  CHECK_EQ(memory->size, request->size);
  CHECK(memory->mapped == NULL && memory->context == NULL);
  CHECK(request->reserved == NULL && request->flags <= SLICEPOOL_PAGE_DEDICATED);
  if (device->in_allocate != NULL) device->in_allocate(device);
  CHECK(pthread_mutex_lock(&device->mutex) == 0);
  device->sizes[device->allocate_calls++ % 64] = request->size;
  device->last_size = request->size;
  device->last_alignment = request->alignment;
  device->last_pool = request->pool;
  device->last_type = request->memory_type;
  device->last_flags = request->flags;
  device->last_data = request->device_data;
  bool fails = device->fail_at != 0 && (device->fail_from_then_on ? device->allocate_calls >= device->fail_at
                                                                   : device->allocate_calls == device->fail_at);
  bool full = device->capacity != 0 && device->bytes + request->size > device->capacity;
  if (fails || full) {
    memory->device_code = device->device_code;
    CHECK(pthread_mutex_unlock(&device->mutex) == 0);
    return fails ? device->failure : SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY;
  }
  if (device->page_count == device->page_room) {
    device->page_room = device->page_room == 0 ? 64 : device->page_room * 2;
    device->pages = realloc(device->pages, device->page_room * sizeof *device->pages);
    CHECK(device->pages != NULL);
  }
  uint64_t place = device->page_count++;
  uint64_t address = (device->next_address + request->alignment - 1) & ~(request->alignment - 1);
  if (address < device->next_address || address + request->size < address ||
      address + request->size + request->alignment < address) {
    /* There is no place for so much: memory that is known by its handle alone. */
    address = 0;
  } else {
    device->next_address = address + request->size + request->alignment;
    address += device->misalign_by;
  }
  device->pages[place] = (struct mock_page){ address, request->size, request->memory_type, true, false };
  device->given++;
  device->live++;
  device->bytes += request->size;
  if (device->live > device->live_peak) device->live_peak = device->live;
  if (device->bytes > device->bytes_peak) device->bytes_peak = device->bytes;
  memory->handle = MOCK_FIRST_HANDLE + place;
  memory->address = address;
  memory->context = (void *)(uintptr_t)(place + 1);
  /* The library knows what it asked for: what is written here must not matter. */
  memory->size = 1;
  memory->struct_size = 0;
  CHECK(pthread_mutex_unlock(&device->mutex) == 0);
  return SLICEPOOL_OK;
}

/* What names a page names one that is live, as it was given out. */
static inline void mock_check_memory(const struct mock_device *device, const slicepool_device_memory *memory) {
  const uint64_t place = memory->handle - MOCK_FIRST_HANDLE;
  CHECK_EQ(memory->struct_size, sizeof *memory);
  CHECK_EQ(memory->device_code, 0);
  CHECK(place < device->page_count);
  CHECK(device->pages[place].live);
  CHECK_EQ(memory->size, device->pages[place].size);
  CHECK_EQ(memory->address, device->pages[place].address);
  CHECK_EQ((uintptr_t)memory->context, place + 1);
}

static inline slicepool_result mock_deallocate(void *user_data, const slicepool_device_memory *memory) {
  struct mock_device *device = user_data;
  CHECK(memory->mapped == NULL);
  if (device->in_deallocate != NULL) device->in_deallocate(device);
  CHECK(pthread_mutex_lock(&device->mutex) == 0);
  device->deallocate_calls++;
  uint64_t place = memory->handle - MOCK_FIRST_HANDLE;
  CHECK(place < device->page_count);
  struct mock_page *page = &device->pages[place];
  mock_check_memory(device, memory);
  CHECK(!page->mapped);
  slicepool_result answer = SLICEPOOL_OK;
  if (device->refusals != 0) {
    device->refusals--;
    answer = device->refusal;
  } else {
    page->live = false;
    device->taken++;
    device->live--;
    device->bytes -= page->size;
  }
  CHECK(pthread_mutex_unlock(&device->mutex) == 0);
  return answer;
}

static inline slicepool_result mock_completed(void *user_data, uint32_t timeline, uint64_t *completed) {
  struct mock_device *device = user_data;
  CHECK(completed != NULL);
  __atomic_fetch_add(&device->completed_calls, 1, __ATOMIC_RELAXED);
  return device->on_completed(device, timeline, completed);
}

static inline int32_t mock_out_of_memory(void *user_data, const slicepool_shortage *shortage) {
  struct mock_device *device = user_data;
  CHECK_EQ(shortage->struct_size, sizeof *shortage);
  CHECK_EQ(shortage->reserved, 0);
  CHECK(shortage->attempt < 8);
  CHECK(shortage->result < 0 && shortage->size != 0);
  __atomic_fetch_add(&device->shortage_calls, 1, __ATOMIC_RELAXED);
  return device->on_shortage(device, shortage);
}

static inline slicepool_result mock_fill(void *user_data, const slicepool_fill_request *request,
                                         slicepool_point *point) {
  struct mock_device *device = user_data;
  CHECK_EQ(request->struct_size, sizeof *request);
  CHECK(request->reason == SLICEPOOL_FILL_ZERO || request->reason == SLICEPOOL_FILL_SCRUB);
  CHECK(request->mapped == NULL && request->size != 0);
  CHECK(point->timeline == 0 && point->reserved == 0 && point->value == 0);
  /* It lies within a page that is live, and everything that names the page is right. */
  CHECK(pthread_mutex_lock(&device->mutex) == 0);
  const uint64_t place = request->memory - MOCK_FIRST_HANDLE;
  CHECK(place < device->page_count);
  const struct mock_page *page = &device->pages[place];
  CHECK(page->live);
  CHECK(request->offset <= page->size && request->size <= page->size - request->offset);
  CHECK_EQ(request->address, page->address + request->offset);
  CHECK_EQ((uintptr_t)request->context, place + 1);
  device->fill_calls++;
  CHECK(pthread_mutex_unlock(&device->mutex) == 0);
  return device->on_fill(device, request, point);
}

static inline slicepool_result mock_heap_budget(void *user_data, uint32_t heap, slicepool_heap_budget *budget) {
  struct mock_device *device = user_data;
  CHECK_EQ(budget->struct_size, sizeof *budget);
  CHECK(budget->reserved == 0 && budget->usage == 0 && budget->budget == UINT64_MAX);
  __atomic_fetch_add(&device->budget_calls, 1, __ATOMIC_RELAXED);
  return device->on_budget(device, heap, budget);
}

/* Pages are mapped while they are live, and once. */
static inline slicepool_result mock_map(void *user_data, const slicepool_device_memory *memory, void **mapped) {
  struct mock_device *device = user_data;
  CHECK(mapped != NULL && *mapped == NULL && memory->mapped == NULL);
  CHECK(pthread_mutex_lock(&device->mutex) == 0);
  mock_check_memory(device, memory);
  bool *is_mapped = &device->pages[memory->handle - MOCK_FIRST_HANDLE].mapped;
  CHECK(!*is_mapped);
  *is_mapped = true;
  device->map_calls++;
  CHECK(pthread_mutex_unlock(&device->mutex) == 0);
  slicepool_result result = device->on_map(device, memory, mapped);
  if (result != SLICEPOOL_OK || *mapped == NULL) {
    CHECK(pthread_mutex_lock(&device->mutex) == 0);
    device->pages[memory->handle - MOCK_FIRST_HANDLE].mapped = false;
    CHECK(pthread_mutex_unlock(&device->mutex) == 0);
  }
  return result;
}

static inline void mock_unmap(void *user_data, const slicepool_device_memory *memory) {
  struct mock_device *device = user_data;
  if (device->on_unmap != NULL) device->on_unmap(device, memory);
  CHECK(pthread_mutex_lock(&device->mutex) == 0);
  mock_check_memory(device, memory);
  bool *is_mapped = &device->pages[memory->handle - MOCK_FIRST_HANDLE].mapped;
  CHECK(*is_mapped);
  *is_mapped = false;
  device->unmap_calls++;
  CHECK(pthread_mutex_unlock(&device->mutex) == 0);
}

static inline void mock_check_range(struct mock_device *device, const slicepool_cache_range *range) {
  CHECK_EQ(range->struct_size, sizeof *range);
  CHECK_EQ(range->reserved, 0);
  CHECK(pthread_mutex_lock(&device->mutex) == 0);
  const uint64_t place = range->memory - MOCK_FIRST_HANDLE;
  CHECK(place < device->page_count && device->pages[place].live);
  CHECK_EQ((uintptr_t)range->context, place + 1);
  CHECK(range->mapped == NULL && range->size != 0);
  CHECK(range->offset < device->pages[place].size && range->size <= device->pages[place].size - range->offset);
  CHECK(pthread_mutex_unlock(&device->mutex) == 0);
}

static inline slicepool_result mock_flush(void *user_data, const slicepool_cache_range *range) {
  struct mock_device *device = user_data;
  mock_check_range(device, range);
  __atomic_fetch_add(&device->flush_calls, 1, __ATOMIC_RELAXED);
  return device->on_flush(device, range);
}

static inline slicepool_result mock_invalidate(void *user_data, const slicepool_cache_range *range) {
  struct mock_device *device = user_data;
  mock_check_range(device, range);
  __atomic_fetch_add(&device->invalidate_calls, 1, __ATOMIC_RELAXED);
  return device->on_invalidate(device, range);
}

static inline void mock_event(void *user_data, const slicepool_event *event) {
  struct mock_device *device = user_data;
  CHECK_EQ(event->struct_size, sizeof *event);
  CHECK(event->kind >= SLICEPOOL_EVENT_PAGE_ALLOCATED && event->kind <= SLICEPOOL_EVENT_SIZE_ROUNDED);
  CHECK(event->reserved == 0 && event->name != NULL);
  CHECK(memchr(event->name, 0, SLICEPOOL_MAX_NAME + 1) != NULL);
  __atomic_fetch_add(&device->events, 1, __ATOMIC_RELAXED);
  device->on_event(device, event);
}

static inline slicepool_device mock_table(struct mock_device *device) {
  slicepool_device table = SLICEPOOL_DEVICE_INIT;
  table.user_data = device;
  table.allocate = mock_allocate;
  table.deallocate = mock_deallocate;
  table.completed = device->on_completed == NULL ? NULL : mock_completed;
  table.out_of_memory = device->on_shortage == NULL ? NULL : mock_out_of_memory;
  table.fill = device->on_fill == NULL ? NULL : mock_fill;
  table.heap_budget = device->on_budget == NULL ? NULL : mock_heap_budget;
  table.map = device->on_map == NULL ? NULL : mock_map;
  table.unmap = device->on_map == NULL ? NULL : mock_unmap;
  table.flush = device->on_flush == NULL ? NULL : mock_flush;
  table.invalidate = device->on_invalidate == NULL ? NULL : mock_invalidate;
  table.event = device->on_event == NULL ? NULL : mock_event;
  return table;
}

static inline uint64_t mock_calls(const struct mock_device *device) {
  return device->allocate_calls + device->deallocate_calls;
}

/* Every page came back exactly once. */
static inline void mock_end(struct mock_device *device) {
  CHECK_EQ(device->live, 0);
  CHECK_EQ(device->bytes, 0);
  CHECK_EQ(device->given, device->taken);
  for (uint64_t i = 0; i < device->page_count; i++) CHECK(!device->pages[i].live);
  free(device->pages);
  device->pages = NULL;
  CHECK(pthread_mutex_destroy(&device->mutex) == 0);
}

#endif
