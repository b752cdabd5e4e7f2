/* The churn through the shared library: a pool of one page, sizes and victims made by the caller. */
#include "library.h"

struct c_churn {
  slicepool_allocator *allocator;
  slicepool_result (*allocate)(slicepool_allocator *, const slicepool_request *, slicepool_slice *);
  slicepool_result (*free)(slicepool_allocator *, uint64_t);
  slicepool_result (*destroy)(slicepool_allocator *, uint32_t, slicepool_failure *);
  uint64_t *ids;
};

struct c_churn *c_churn_open(const char *path, uint64_t page, const uint64_t *sizes, uint32_t live);
void c_churn_pairs(struct c_churn *churn, const uint32_t *victims, const uint64_t *sizes, uint64_t count);
void c_churn_close(struct c_churn *churn);

static slicepool_result give(void *user_data, const slicepool_page_request *request, slicepool_device_memory *memory) {
  (void)user_data;
  (void)request;
  memory->handle = 1;
  return SLICEPOOL_OK;
}

static slicepool_result take_back(void *user_data, const slicepool_device_memory *memory) {
  (void)user_data;
  (void)memory;
  return SLICEPOOL_OK;
}

/* NULL if there is no library. */
struct c_churn *c_churn_open(const char *path, uint64_t page, const uint64_t *sizes, uint32_t live) {
  slicepool_result (*create)(const slicepool_device *, const slicepool_allocator_config *, slicepool_allocator **);
  slicepool_device device = SLICEPOOL_DEVICE_INIT;
  slicepool_pool_options pool = SLICEPOOL_POOL_OPTIONS_INIT;
  slicepool_allocator_config config = SLICEPOOL_ALLOCATOR_CONFIG_INIT;
  slicepool_request request = SLICEPOOL_REQUEST_INIT;
  slicepool_slice slice = SLICEPOOL_SLICE_INIT;
  struct c_churn *churn = malloc(sizeof *churn);
  void *library = open_library(path);
  if (library == NULL) {
    free(churn);
    return NULL;
  }
  need(churn != NULL, "host memory");
  churn->ids = malloc(live * sizeof *churn->ids);
  need(churn->ids != NULL, "host memory");
  FUNCTION(library, "slicepool_allocator_create", create);
  FUNCTION(library, "slicepool_allocator_destroy", churn->destroy);
  FUNCTION(library, "slicepool_allocate", churn->allocate);
  FUNCTION(library, "slicepool_free", churn->free);
  device.allocate = give;
  device.deallocate = take_back;
  pool.kind = SLICEPOOL_POOL_SLICED_PAGES;
  pool.page_size = page;
  pool.max_pool_size = page;
  config.pools = &pool;
  config.pool_count = 1;
  need(create(&device, &config, &churn->allocator) == SLICEPOOL_OK, "slicepool_allocator_create");
  for (uint32_t i = 0; i < live; i++) {
    request.size = sizes[i];
    need(churn->allocate(churn->allocator, &request, &slice) == SLICEPOOL_OK, "slicepool_allocate");
    churn->ids[i] = slice.id;
  }
  return churn;
}

/* Frees a victim and allocates another slice, again and again. */
void c_churn_pairs(struct c_churn *churn, const uint32_t *victims, const uint64_t *sizes, uint64_t count) {
  slicepool_request request = SLICEPOOL_REQUEST_INIT;
  slicepool_slice slice = SLICEPOOL_SLICE_INIT;
  for (uint64_t i = 0; i < count; i++) {
    uint64_t *const id = &churn->ids[victims[i]];
    if (churn->free(churn->allocator, *id) != SLICEPOOL_OK) need(0, "slicepool_free");
    request.size = sizes[i];
    if (churn->allocate(churn->allocator, &request, &slice) != SLICEPOOL_OK) need(0, "slicepool_allocate");
    *id = slice.id;
  }
}

void c_churn_close(struct c_churn *churn) {
  need(churn->destroy(churn->allocator, SLICEPOOL_DESTROY_FORCE, NULL) == SLICEPOOL_OK, "slicepool_allocator_destroy");
  free(churn->ids);
  free(churn);
}
