/* Loading the shared library, using it and unloading it, again and again. Not linked with it. */
#include "check.h"
#include "mock_device.h"

#include <dlfcn.h>
#include <malloc.h>

/* What is needed of a library that is loaded. */
struct loaded {
  void *handle;
  __typeof__(slicepool_version) *version;
  __typeof__(slicepool_result_string) *result_string;
  __typeof__(slicepool_allocator_create) *allocator_create;
  __typeof__(slicepool_allocator_destroy) *allocator_destroy;
  __typeof__(slicepool_allocate) *allocate;
  __typeof__(slicepool_free) *free;
  __typeof__(slicepool_space_create) *space_create;
  __typeof__(slicepool_space_allocate) *space_allocate;
  __typeof__(slicepool_space_destroy) *space_destroy;
};

#define FIND(loaded, name)                                                    \
  do {                                                                        \
    void *found = dlsym((loaded)->handle, "slicepool_" #name);                \
    if (found == NULL) FAIL("slicepool_" #name " is missing: %s", dlerror()); \
    memcpy(&(loaded)->name, &found, sizeof found);                            \
  } while (0)

static void load(struct loaded *loaded) {
  CHECK(library_path != NULL);
  loaded->handle = dlopen(library_path, RTLD_NOW | RTLD_LOCAL);
  if (loaded->handle == NULL) FAIL("%s", dlerror());
  FIND(loaded, version);
  FIND(loaded, result_string);
  FIND(loaded, allocator_create);
  FIND(loaded, allocator_destroy);
  FIND(loaded, allocate);
  FIND(loaded, free);
  FIND(loaded, space_create);
  FIND(loaded, space_allocate);
  FIND(loaded, space_destroy);
}

static void unload(struct loaded *loaded) { CHECK(dlclose(loaded->handle) == 0); }

static void use(const struct loaded *loaded) {
  CHECK_EQ(loaded->version(), SLICEPOOL_VERSION_NUMBER);
  CHECK(strcmp(loaded->result_string(SLICEPOOL_OK), "success") == 0);
  struct mock_device device;
  mock_init(&device);
  const slicepool_device table = mock_table(&device);
  slicepool_pool_options pool = SLICEPOOL_POOL_OPTIONS_INIT;
  pool.kind = SLICEPOOL_POOL_SLICED_PAGES;
  pool.page_size = 65536;
  slicepool_allocator_config config = SLICEPOOL_ALLOCATOR_CONFIG_INIT;
  config.pools = &pool;
  config.pool_count = 1;
  slicepool_allocator *allocator = NULL;
  CHECK(loaded->allocator_create(&table, &config, &allocator) == SLICEPOOL_OK);
  slicepool_slice slices[50];
  for (int i = 0; i < 50; i++) {
    slices[i] = (slicepool_slice)SLICEPOOL_SLICE_INIT;
    slicepool_request request = SLICEPOOL_REQUEST_INIT;
    request.size = 5000;
    CHECK(loaded->allocate(allocator, &request, &slices[i]) == SLICEPOOL_OK);
  }
  for (int i = 0; i < 50; i++) CHECK(loaded->free(allocator, slices[i].id) == SLICEPOOL_OK);
  CHECK(loaded->free(allocator, slices[7].id) == SLICEPOOL_ERROR_STALE_HANDLE);
  CHECK(loaded->allocator_destroy(allocator, 0, NULL) == SLICEPOOL_OK);
  mock_end(&device);

  slicepool_space_config space_config = SLICEPOOL_SPACE_CONFIG_INIT;
  space_config.size = 1000;
  slicepool_space *space = NULL;
  slicepool_space_slice piece = SLICEPOOL_SPACE_SLICE_INIT;
  CHECK(loaded->space_create(&space_config, &space) == SLICEPOOL_OK);
  CHECK(loaded->space_allocate(space, 100, 1, &piece, NULL) == SLICEPOOL_OK);
  CHECK(loaded->space_destroy(space) == SLICEPOOL_OK);
}

static uint64_t mappings(void) {
  FILE *maps = fopen("/proc/self/maps", "r");
  CHECK(maps != NULL);
  uint64_t lines = 0;
  int c;
  while ((c = fgetc(maps)) != EOF) lines += c == '\n';
  fclose(maps);
  return lines;
}

static void the_library_is_loaded_used_and_unloaded_again_and_again(void) {
  uint64_t mappings_before = 0, bytes_before = 0;
  for (uint64_t round = 0; round < 2000; round++) {
    struct loaded loaded;
    load(&loaded);
    use(&loaded);
    unload(&loaded);
    CHECK(dlopen(library_path, RTLD_NOW | RTLD_NOLOAD) == NULL);
    /* The C library's own caches are full by then. */
    if (round == 100) {
      mappings_before = mappings();
      bytes_before = mallinfo2().uordblks;
    }
  }
  CHECK_LE(mappings(), mappings_before);
  CHECK_LE(mallinfo2().uordblks, bytes_before + 4096);
}

static void *load_use_and_unload(void *argument) {
  (void)argument;
  struct loaded loaded;
  load(&loaded);
  use(&loaded);
  unload(&loaded);
  return NULL;
}

static void threads_load_use_and_unload_the_library_and_end(void) {
  for (int round = 0; round < 200; round++) {
    pthread_t threads[3];
    for (int t = 0; t < 3; t++) CHECK(pthread_create(&threads[t], NULL, load_use_and_unload, NULL) == 0);
    for (int t = 0; t < 3; t++) CHECK(pthread_join(threads[t], NULL) == 0);
    CHECK(dlopen(library_path, RTLD_NOW | RTLD_NOLOAD) == NULL);
  }
}

/* The library is unloaded by a thread that has never used it, while the one that has is still there. */
static struct loaded kept;
static pthread_barrier_t steps;

static void *use_and_wait(void *argument) {
  (void)argument;
  use(&kept);
  pthread_barrier_wait(&steps);
  pthread_barrier_wait(&steps);
  return NULL;
}

static void a_thread_that_has_used_the_library_ends_after_it_is_unloaded(void) {
  CHECK(pthread_barrier_init(&steps, NULL, 2) == 0);
  for (int round = 0; round < 100; round++) {
    load(&kept);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, use_and_wait, NULL) == 0);
    pthread_barrier_wait(&steps);
    unload(&kept);
    CHECK(dlopen(library_path, RTLD_NOW | RTLD_NOLOAD) == NULL);
    pthread_barrier_wait(&steps);
    CHECK(pthread_join(thread, NULL) == 0);
  }
  CHECK(pthread_barrier_destroy(&steps) == 0);
}

static const struct test tests[] = {
  TEST(the_library_is_loaded_used_and_unloaded_again_and_again),
  TEST(threads_load_use_and_unload_the_library_and_end),
  TEST(a_thread_that_has_used_the_library_ends_after_it_is_unloaded),
};

TEST_MAIN(tests)
