/* The static library is linked in, and the shared one is loaded besides: neither notices the other. */
#include "check.h"
#include "shorthand.h"

#include <dlfcn.h>

struct other {
  __typeof__(slicepool_version) *version;
  __typeof__(slicepool_allocator_create) *allocator_create;
  __typeof__(slicepool_allocator_destroy) *allocator_destroy;
  __typeof__(slicepool_allocate) *allocate;
  __typeof__(slicepool_free) *free;
  __typeof__(slicepool_statistics_get) *statistics_get;
};

static void *find(void *handle, const char *name) {
  void *found = dlsym(handle, name);
  if (found == NULL) FAIL("%s", dlerror());
  return found;
}

#define FIND(field)                                                   \
  do {                                                                \
    void *found = find(handle, "slicepool_" #field);                  \
    memcpy(&other.field, &found, sizeof found);                       \
  } while (0)

static void a_static_and_a_shared_copy_work_side_by_side(void) {
  CHECK(library_path != NULL);
  void *handle = dlopen(library_path, RTLD_NOW | RTLD_LOCAL);
  if (handle == NULL) FAIL("%s", dlerror());
  struct other other;
  FIND(version);
  FIND(allocator_create);
  FIND(allocator_destroy);
  FIND(allocate);
  FIND(free);
  FIND(statistics_get);
  CHECK(other.version != slicepool_version);
  CHECK(other.allocate != slicepool_allocate);
  CHECK_EQ(other.version(), slicepool_version());

  struct mock_device device, other_device;
  mock_init(&device);
  mock_init(&other_device);
  slicepool_allocator *mine = create(&device, sliced(65536, 0, 0, 64));
  const slicepool_device table = mock_table(&other_device);
  const slicepool_pool_options pool = sliced(65536, 0, 0, 64);
  slicepool_allocator_config config = SLICEPOOL_ALLOCATOR_CONFIG_INIT;
  config.pools = &pool;
  config.pool_count = 1;
  slicepool_allocator *theirs = NULL;
  OK(other.allocator_create(&table, &config, &theirs));

  enum { SLOTS = 100 };
  struct {
    uint64_t mine, theirs;
  } ids[SLOTS];
  memset(ids, 0, sizeof ids);
  uint64_t state = 9;
  for (int i = 0; i < 20000; i++) {
    const uint64_t at = random_between(&state, 0, SLOTS - 1);
    OK(slicepool_free(mine, ids[at].mine));
    OK(other.free(theirs, ids[at].theirs));
    slicepool_request request = SLICEPOOL_REQUEST_INIT;
    request.size = random_between(&state, 1, 3000);
    slicepool_slice a = SLICEPOOL_SLICE_INIT, b = SLICEPOOL_SLICE_INIT;
    OK(slicepool_allocate(mine, &request, &a));
    OK(other.allocate(theirs, &request, &b));
    /* Both do the same: the same version, and no hidden state. */
    CHECK(a.offset == b.offset && a.size == b.size && a.memory == b.memory);
    ids[at].mine = a.id;
    ids[at].theirs = b.id;
  }
  slicepool_statistics figures = SLICEPOOL_STATISTICS_INIT;
  OK(other.statistics_get(theirs, &figures));
  CHECK_EQ(figures.in_use_bytes, figures_of(mine).in_use_bytes);
  for (int i = 0; i < SLOTS; i++) {
    OK(slicepool_free(mine, ids[i].mine));
    OK(other.free(theirs, ids[i].theirs));
  }
  OK(other.allocator_destroy(theirs, 0, NULL));
  mock_end(&other_device);
  CHECK(dlclose(handle) == 0);
  finish(mine, &device);
}

static const struct test tests[] = { TEST(a_static_and_a_shared_copy_work_side_by_side) };

TEST_MAIN(tests)
