/* A device that lies whenever it can, calls back from within every callback, and fails the test when the library breaks
 * a rule of the callbacks all the same. For one thread. */
#ifndef LIAR_H
#define LIAR_H

#include "shorthand.h"

struct liar_page {
  uint64_t handle, address, size;
  void *context;
  bool is_out, is_leaving; /* leaving: `deallocate` runs, so that it may be given out again */
};

struct liar {
  uint64_t state;  /* of the random numbers */
  bool is_honest;
  bool maps_nothing; /* what it says of mapped memory is believed */
  int depth;       /* of callbacks that call back */
  slicepool_allocator *allocator;
  struct liar_page *pages;
  uint64_t page_count, page_room, out, lies;
  uint64_t next_address;
};

/* Whether it lies this time, in one of `ways` ways; 0 if it does not. */
static inline uint64_t lie(struct liar *liar, uint64_t ways) {
  if (liar->is_honest || random_between(&liar->state, 0, 1) == 0) return 0;
  liar->lies++;
  return random_between(&liar->state, 1, ways);
}

/* Never SLICEPOOL_OK. */
static inline slicepool_result any_code(struct liar *liar) {
  static const slicepool_result codes[] = { 1,  12345, INT32_MIN, INT32_MAX, -1,  -2,  -8,
                                            -9, -10,   -11,       -12,       -21, -22, -999 };
  return codes[random_between(&liar->state, 0, sizeof codes / sizeof *codes - 1)];
}

/* From within a callback: something with slices of its own, and an end that must be refused. */
static inline void call_back(struct liar *liar) {
  if (liar->is_honest || liar->allocator == NULL || liar->depth >= 2 || random_between(&liar->state, 0, 7) != 0) return;
  liar->depth++;
  slicepool_allocator *allocator = liar->allocator;
  slicepool_slice slice = SLICEPOOL_SLICE_INIT;
  switch (random_between(&liar->state, 0, 4)) {
    case 0:
      if (try_take_flagged(allocator, random_between(&liar->state, 1, 9000), 0, &slice, NULL) == SLICEPOOL_OK)
        OK(slicepool_free(allocator, slice.id));
      break;
    case 1: (void)slicepool_trim(allocator, 0, NULL); break;
    case 2: (void)slicepool_collect(allocator, (uint32_t)random_between(&liar->state, 0, 7), 3, NULL); break;
    case 3: check_sums(allocator); break;
    default:
      CHECK_RESULT(slicepool_allocator_destroy(allocator, SLICEPOOL_DESTROY_FORCE, NULL), SLICEPOOL_ERROR_BUSY);
      CHECK_RESULT(slicepool_allocator_abandon(allocator, 0), SLICEPOOL_ERROR_BUSY);
  }
  liar->depth--;
}

static inline struct liar_page *some_page_that_is_out(struct liar *liar) {
  for (uint64_t i = liar->page_count; i != 0; i--)
    if (liar->pages[i - 1].is_out && !liar->pages[i - 1].is_leaving) return &liar->pages[i - 1];
  return NULL;
}

/* What is handed over for good, or to be given back at once: the library has to do one of the two. */
static inline void hand_out(struct liar *liar, const slicepool_page_request *request, slicepool_device_memory *memory,
                     uint64_t misaligned_by) {
  if (liar->page_count == liar->page_room) {
    liar->page_room = liar->page_room == 0 ? 64 : liar->page_room * 2;
    liar->pages = realloc(liar->pages, liar->page_room * sizeof *liar->pages);
    CHECK(liar->pages != NULL);
  }
  const uint64_t address = (liar->next_address + request->alignment - 1) & ~(request->alignment - 1);
  liar->next_address = address + request->size + request->alignment;
  memory->handle = liar->page_count;
  memory->address = address + misaligned_by;
  memory->context = (void *)(uintptr_t)random_next(&liar->state);
  liar->pages[liar->page_count++] =
      (struct liar_page){ memory->handle, memory->address, request->size, memory->context, true, false };
  liar->out++;
}

static inline slicepool_result liar_allocate(void *user_data, const slicepool_page_request *request,
                                      slicepool_device_memory *memory) {
  struct liar *liar = user_data;
  call_back(liar);
  const struct liar_page *page = some_page_that_is_out(liar);
  switch (lie(liar, 8)) {
    case 1: return SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY;
    case 2: /* A page that nobody has been given. */
      memory->handle = UINT64_C(1) << 40;
      memory->device_code = 7;
      return any_code(liar);
    case 3: return SLICEPOOL_OK;
    case 4: /* What somebody has already. */
      if (page == NULL) return SLICEPOOL_OK;
      memory->handle = page->handle;
      memory->address = page->address;
      return SLICEPOOL_OK;
    case 5:
      hand_out(liar, request, memory, request->alignment / 2);
      return SLICEPOOL_OK;
    case 6: /* Rubbish wherever nothing is to be written. */
      memory->struct_size = (uint32_t)random_next(&liar->state);
      memory->size = random_next(&liar->state);
      memory->device_code = (int32_t)random_next(&liar->state);
      break;
    case 7: /* Whoever touches that crashes. */
      if (!liar->maps_nothing) memory->mapped = (void *)(uintptr_t)1;
      break;
    case 8: { /* It ends above the last address. */
      const uint64_t next = liar->next_address;
      liar->next_address = UINT64_MAX - request->size / 2;
      hand_out(liar, request, memory, UINT64_MAX - request->size + 2);
      liar->next_address = next;
      return SLICEPOOL_OK;
    }
    default: break;
  }
  hand_out(liar, request, memory, 0);
  return SLICEPOOL_OK;
}

static inline slicepool_result liar_deallocate(void *user_data, const slicepool_device_memory *memory) {
  struct liar *liar = user_data;
  CHECK(memory->handle < liar->page_count);
  const struct liar_page page = liar->pages[memory->handle];
  CHECK(page.is_out && memory->address == page.address && memory->size == page.size && memory->context == page.context);
  liar->pages[memory->handle].is_leaving = true;
  call_back(liar);
  liar->pages[memory->handle].is_leaving = false;
  if (lie(liar, 2) != 0) return any_code(liar);
  liar->pages[memory->handle].is_out = false;
  liar->out--;
  return SLICEPOOL_OK;
}

static inline slicepool_result liar_completed(void *user_data, uint32_t timeline, uint64_t *completed) {
  struct liar *liar = user_data;
  (void)timeline;
  call_back(liar);
  if (lie(liar, 1) == 0) return SLICEPOOL_ERROR_NOT_SUPPORTED;
  *completed = random_next(&liar->state) >> random_between(&liar->state, 0, 63);
  return random_between(&liar->state, 0, 1) == 0 ? SLICEPOOL_OK : any_code(liar);
}

static inline int32_t liar_out_of_memory(void *user_data, const slicepool_shortage *shortage) {
  struct liar *liar = user_data;
  CHECK(shortage->attempt < 8);
  call_back(liar);
  return lie(liar, 1) == 0 ? SLICEPOOL_SHORTAGE_REFUSE : (int32_t)random_between(&liar->state, 0, 3) - 1;
}

static inline slicepool_result liar_fill(void *user_data, const slicepool_fill_request *request,
                                         slicepool_point *point) {
  struct liar *liar = user_data;
  CHECK(request->memory < liar->page_count && liar->pages[request->memory].is_out);
  CHECK_LE(request->offset + request->size, liar->pages[request->memory].size);
  call_back(liar);
  const uint64_t way = lie(liar, 4);
  if (way == 1) return any_code(liar);
  if (way != 0) point->timeline = (uint32_t)random_between(&liar->state, 0, 7);
  if (way != 0) point->value = random_next(&liar->state) >> random_between(&liar->state, 0, 63);
  if (way == 3) point->reserved = (uint32_t)random_next(&liar->state);
  return way == 4 ? any_code(liar) : SLICEPOOL_OK;
}

static inline slicepool_result liar_heap_budget(void *user_data, uint32_t heap, slicepool_heap_budget *budget) {
  struct liar *liar = user_data;
  CHECK_EQ(heap, 0);
  call_back(liar);
  const uint64_t way = lie(liar, 3);
  if (way == 1) return any_code(liar);
  if (way == 2) budget->usage = budget->budget = UINT64_MAX;
  if (way == 3) memset(budget, (int)random_between(&liar->state, 0, 255), sizeof *budget);
  return SLICEPOOL_OK;
}

static inline slicepool_result liar_map(void *user_data, const slicepool_device_memory *memory, void **mapped) {
  struct liar *liar = user_data;
  CHECK(memory->handle < liar->page_count && liar->pages[memory->handle].is_out);
  call_back(liar);
  const uint64_t way = lie(liar, 3);
  if (way != 2) *mapped = (void *)(uintptr_t)(random_next(&liar->state) | 1);
  return way == 1 ? any_code(liar) : SLICEPOOL_OK;
}

static inline void liar_unmap(void *user_data, const slicepool_device_memory *memory) {
  struct liar *liar = user_data;
  CHECK(memory->handle < liar->page_count && liar->pages[memory->handle].is_out);
  call_back(liar);
}

static inline slicepool_result liar_cache(void *user_data, const slicepool_cache_range *range) {
  struct liar *liar = user_data;
  CHECK(range->memory < liar->page_count && liar->pages[range->memory].is_out);
  call_back(liar);
  return lie(liar, 1) == 0 ? SLICEPOOL_OK : any_code(liar);
}

static inline void liar_event(void *user_data, const slicepool_event *event) {
  (void)event;
  call_back(user_data);
}

static inline slicepool_device liar_table(struct liar *liar) {
  slicepool_device table = SLICEPOOL_DEVICE_INIT;
  table.user_data = liar;
  table.allocate = liar_allocate;
  table.deallocate = liar_deallocate;
  table.completed = liar_completed;
  table.out_of_memory = liar_out_of_memory;
  table.fill = liar_fill;
  table.heap_budget = liar_heap_budget;
  table.map = liar_map;
  table.unmap = liar_unmap;
  table.flush = table.invalidate = liar_cache;
  table.event = liar_event;
  return table;
}

/* Pools of every kind, and a limit of 1 MiB. */
static inline slicepool_allocator *create_over_liar(struct liar *liar) {
  const slicepool_device table = liar_table(liar);
  const slicepool_pool_options pools[] = { sliced(16 * KIB, 4 * KIB, 128 * KIB, 64), exclusive(8 * KIB, 64),
                                           growing(16 * KIB, 256 * KIB, 64), direct(64 * KIB, 64) };
  slicepool_memory_type type = SLICEPOOL_MEMORY_TYPE_INIT;
  type.non_coherent_atom = 64;
  type.properties = SLICEPOOL_MEMORY_TYPE_HOST_VISIBLE;
  slicepool_allocator_config config = config_for(pools, 4);
  config.memory_types = &type;
  config.memory_type_count = 1;
  config.max_bytes = MIB;
  config.flags = SLICEPOOL_ALLOCATOR_SLICE_EVENTS;
  return create_of(&table, config);
}

#endif
