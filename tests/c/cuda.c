/* The adapter for CUDA: slices of device, pinned and managed memory, contexts, failures of the driver.
 *
 * Runs over the driver, or over cuda_double.c, whichever --library names. What can be seen with the double only is left
 * out over a driver: tests of that alone say so. */
#include "check.h"
#include "shorthand.h"

#define SLICEPOOL_CUDA_OPEN
#include "slicepool_cuda.h"

#include <pthread.h>

/* ---- the driver, or its double */

static slicepool_cuda_functions driver;
static void *library, *context;
static int device;

/* Functions that only tests need. */
static struct {
  slicepool_cuda_result (*ctx_create_v2)(void **created, unsigned int flags, int ordinal);
  slicepool_cuda_result (*ctx_create_v4)(void **created, void *parameters, unsigned int flags, int ordinal);
  slicepool_cuda_result (*ctx_destroy)(void *created);
  slicepool_cuda_result (*ctx_get_current)(void **current);
  slicepool_cuda_result (*mem_host_get_flags)(unsigned int *flags, void *memory);
  slicepool_cuda_result (*stream_create)(void **stream, unsigned int flags);
  slicepool_cuda_result (*stream_destroy)(void *stream);
} more;

/* What the double has besides; NULL with a driver. */
static struct {
  uint64_t (*pages)(void);
  uint64_t (*bytes)(void);
  uint64_t (*calls)(void);
  int64_t (*stacked)(void);
  void (*fail)(uint64_t call, int code);
  const char *(*failed)(void);
  void (*total)(uint64_t bytes, uint64_t of_others);
  void (*attribute)(int attribute, int value);
} twin;

enum { OUT_OF_MEMORY = 2, DEINITIALIZED = 4, INVALID_CONTEXT = 201, LAUNCH_FAILED = 719 };
/* More than devices have, and a page may have just as much. */
#define TOO_MUCH (1023 * GIB)

enum { INTEGRATED = 18, CAN_MAP_HOST_MEMORY = 19, MANAGED_MEMORY = 83, CONCURRENT_MANAGED_ACCESS = 89 };

#define CUDA(call)                                                            \
  do {                                                                        \
    slicepool_cuda_result cuda_code = (call);                                 \
    if (cuda_code != 0) FAIL("%s answers the CUresult %d", #call, cuda_code); \
  } while (0)

static void open_library(void) {
  const char *missing = "no such library";
  if (library != NULL) return;
  if (slicepool_cuda_open(&driver, library_path, &library, &missing) != SLICEPOOL_OK)
    FAIL("no CUDA driver: %s", missing == NULL ? "its library cannot be loaded" : missing);
  bool found = true;
#define FIND(field, name) found = slicepool_cuda_find_(slicepool_cuda_symbol_, library, name, &field) != 0 && found
  FIND(more.ctx_create_v2, "cuCtxCreate_v2");
  FIND(more.ctx_create_v4, "cuCtxCreate_v4");
  found = more.ctx_create_v2 != NULL || more.ctx_create_v4 != NULL; /* CUDA 13 has only the latter in its header */
  FIND(more.ctx_destroy, "cuCtxDestroy_v2");
  FIND(more.ctx_get_current, "cuCtxGetCurrent");
  FIND(more.mem_host_get_flags, "cuMemHostGetFlags");
  FIND(more.stream_create, "cuStreamCreate");
  FIND(more.stream_destroy, "cuStreamDestroy_v2");
  CHECK(found);
  FIND(twin.pages, "cuda_double_pages");
  FIND(twin.bytes, "cuda_double_bytes");
  FIND(twin.calls, "cuda_double_calls");
  FIND(twin.stacked, "cuda_double_stacked");
  FIND(twin.fail, "cuda_double_fail");
  FIND(twin.failed, "cuda_double_failed");
  FIND(twin.total, "cuda_double_total");
  FIND(twin.attribute, "cuda_double_attribute");
  CHECK(found || twin.pages == NULL); /* all or none */
}

/* The context that tests use: nothing is current before or after. */
static void start(void) {
  open_library();
  if (context != NULL) return;
  CUDA(driver.init(0));
  CUDA(driver.device_get(&device, 0));
  CUDA(driver.device_primary_ctx_retain(&context, device));
}

/* For tests that need to look into the driver, or to break it. */
static bool has_double(void) {
  start();
  if (twin.pages == NULL) puts("needs the double of the driver: nothing to see here");
  return twin.pages != NULL;
}

/* Another context on the same device; it is current. */
static void *create_context(void) {
  void *created = NULL;
  if (more.ctx_create_v2 != NULL) CUDA(more.ctx_create_v2(&created, 0, device));
  else CUDA(more.ctx_create_v4(&created, NULL, 0, device));
  return created;
}

static void *current(void) {
  void *now = NULL;
  CUDA(more.ctx_get_current(&now));
  return now;
}

static int attribute_of(int attribute) {
  int value = 0;
  CUDA(driver.device_get_attribute(&value, attribute, device));
  return value;
}

/* ---- allocators */

static const uint32_t all_kinds[] = { SLICEPOOL_CUDA_DEVICE, SLICEPOOL_CUDA_HOST, SLICEPOOL_CUDA_MANAGED };

static void init(slicepool_cuda *cuda, uint32_t kinds) {
  start();
  memset(cuda, 0, sizeof *cuda);
  OK(slicepool_cuda_init(cuda, &driver, context, kinds));
}

static slicepool_allocator *create_with(slicepool_cuda *cuda, slicepool_allocator_config config) {
  slicepool_device table = SLICEPOOL_DEVICE_INIT;
  slicepool_cuda_device(cuda, &table);
  slicepool_cuda_describe(cuda, &config);
  return create_of(&table, config);
}

/* With the pools that an allocator has by itself. */
static slicepool_allocator *create_plain(slicepool_cuda *cuda) {
  return create_with(cuda, config_for(NULL, 0));
}

/* With pages of 1 MiB for each memory type, whose number never changes by itself. */
static slicepool_allocator *create_fixed(slicepool_cuda *cuda) {
  slicepool_pool_options pools[3];
  for (uint32_t i = 0; i < cuda->type_count; i++) pools[i] = of_type(sliced(MIB, 0, 0, 256), i);
  return create_with(cuda, config_for(pools, cuda->type_count));
}

/* Everything goes back. */
static void finish_all(slicepool_allocator *allocator) {
  CHECK_EQ(figures_of(allocator).slices, 0);
  OK(slicepool_allocator_destroy(allocator, 0, NULL));
  if (twin.pages != NULL) CHECK_EQ(twin.pages(), 0);
}

static slicepool_result try_take_kind(slicepool_allocator *allocator, uint64_t size, uint32_t kind, uint32_t flags,
                                      slicepool_slice *slice, slicepool_failure *failure) {
  slicepool_request request = SLICEPOOL_REQUEST_INIT;
  request.size = size;
  request.required = kind;
  request.flags = flags;
  request.failure = failure;
  return slicepool_allocate(allocator, &request, slice);
}

static slicepool_slice take_kind(slicepool_allocator *allocator, uint64_t size, uint32_t kind, uint32_t flags) {
  slicepool_slice slice = SLICEPOOL_SLICE_INIT;
  slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
  slicepool_result result = try_take_kind(allocator, size, kind, flags, &slice, &failure);
  if (result != SLICEPOOL_OK) FAIL("%s, CUresult %d", slicepool_result_string(result), failure.device_code);
  return slice;
}

static uint32_t type_of(slicepool_allocator *allocator, const slicepool_slice *slice) {
  return find_in(allocator, slice->memory, slice->offset).memory_type;
}

/* ---- bytes, with the context current */

static void write_to(uint64_t address, const void *bytes, uint64_t size) {
  CUDA(driver.ctx_push_current(context));
  CUDA(driver.memcpy_htod(address, bytes, size));
  CUDA(driver.stream_synchronize(NULL)); /* the copy may still be under way, and the host may read there */
  CUDA(driver.ctx_pop_current(&(void *){ NULL }));
}

static void read_from(uint64_t address, void *bytes, uint64_t size) {
  CUDA(driver.ctx_push_current(context));
  CUDA(driver.memcpy_dtoh(bytes, address, size));
  CUDA(driver.ctx_pop_current(&(void *){ NULL }));
}

/* Writes words of its own to each slice, then counts the words that are wrong. `overlap`, if not negative, is a slice
 * that is written to as if it were one granule longer. */
static uint64_t wrong_words(const slicepool_slice *slices, int count, int overlap) {
  uint64_t wrong = 0;
  static uint32_t words[MIB / 4];
  for (int i = 0; i < count; i++) {
    const uint64_t size = slices[i].size + (i == overlap ? 256 : 0);
    CHECK_LE(size, sizeof words);
    for (uint32_t word = 0; word < size / 4; word++) words[word] = (uint32_t)i << 24 | word;
    write_to(slices[i].address, words, size);
  }
  for (int i = 0; i < count; i++) {
    read_from(slices[i].address, words, slices[i].size);
    for (uint32_t word = 0; word < slices[i].size / 4; word++) wrong += words[word] != ((uint32_t)i << 24 | word);
  }
  return wrong;
}

/* ---- loading */

static const char *const required[] = {
  "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2", "cuCtxGetDevice",  "cuDeviceGetAttribute",
  "cuDeviceTotalMem_v2", "cuMemGetInfo_v2",    "cuMemAlloc_v2",   "cuMemFree_v2",
  "cuMemHostAlloc",      "cuMemFreeHost",      "cuMemsetD8Async", "cuMemHostGetDevicePointer_v2",
  "cuMemAllocManaged",   "cuStreamSynchronize"
};

static const char *const optional[] = {
  "cuInit",         "cuDriverGetVersion",         "cuDeviceGet",
  "cuDeviceGetName", "cuDevicePrimaryCtxRetain",  "cuDevicePrimaryCtxRelease_v2",
  "cuGetErrorName", "cuMemcpyHtoD_v2",            "cuMemcpyDtoH_v2",
  "cuMemcpyDtoD_v2"
};

/* Does not find one name, nor its older form. */
static void *find_all_but(void *user_data, const char *name) {
  const char *absent = user_data;
  const size_t length = strlen(name);
  if (strncmp(name, absent, length) == 0 && (absent[length] == 0 || strcmp(absent + length, "_v2") == 0)) return NULL;
  return dlsym(library, name);
}

/* A driver from before the newer form of one function. */
static void *find_older(void *user_data, const char *name) {
  (void)user_data;
  if (strcmp(name, "cuDevicePrimaryCtxRelease_v2") == 0) return NULL;
  return dlsym(library, strcmp(name, "cuDevicePrimaryCtxRelease") == 0 ? "cuDevicePrimaryCtxRelease_v2" : name);
}

static void an_older_driver_will_do(void) {
  open_library();
  slicepool_cuda_functions functions;
  OK(slicepool_cuda_load(&functions, find_older, NULL, NULL));
  CHECK(memcmp(&functions, &driver, sizeof driver) == 0);
}

static void loading_tells_which_function_is_missing(void) {
  open_library();
  slicepool_cuda_functions before, functions;
  memset(&before, 0x5A, sizeof before);
  for (size_t i = 0; i < sizeof required / sizeof *required; i++) {
    functions = before;
    const char *missing = NULL;
    CHECK_RESULT(slicepool_cuda_load(&functions, find_all_but, (void *)(uintptr_t)required[i], &missing),
                 SLICEPOOL_ERROR_NOT_SUPPORTED);
    CHECK_TEXT(missing, required[i]);
    CHECK(memcmp(&functions, &before, sizeof before) == 0);
    CHECK_RESULT(slicepool_cuda_load(&functions, find_all_but, (void *)(uintptr_t)required[i], NULL),
                 SLICEPOOL_ERROR_NOT_SUPPORTED);
  }
  for (size_t i = 0; i < sizeof optional / sizeof *optional; i++) {
    const char *missing = "untouched";
    functions = before;
    OK(slicepool_cuda_load(&functions, find_all_but, (void *)(uintptr_t)optional[i], &missing));
    CHECK_TEXT(missing, "untouched");
    /* One pointer is NULL, and no other: it is the one of that name. */
    void *pointers[sizeof functions / sizeof(void *)], *whole[sizeof functions / sizeof(void *)];
    memcpy(pointers, &functions, sizeof functions);
    memcpy(whole, &driver, sizeof driver);
    size_t nulls = 0;
    for (size_t p = 0; p < sizeof pointers / sizeof *pointers; p++) {
      if (pointers[p] != NULL) CHECK(pointers[p] == whole[p]);
      else if (++nulls == 1) CHECK(whole[p] == dlsym(library, optional[i]));
    }
    CHECK_EQ(nulls, 1);
  }
  CHECK_EQ(sizeof functions / sizeof(void *), sizeof required / sizeof *required + sizeof optional / sizeof *optional);
  CHECK_RESULT(slicepool_cuda_load(NULL, find_all_but, NULL, NULL), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  CHECK_RESULT(slicepool_cuda_load(&functions, NULL, NULL, NULL), SLICEPOOL_ERROR_INVALID_ARGUMENT);
}

static void a_library_that_is_not_the_driver_is_refused(void) {
  slicepool_cuda_functions before, functions;
  memset(&before, 0x5A, sizeof before);
  functions = before;
  void *opened = &functions;
  const char *missing = "untouched";
  CHECK_RESULT(slicepool_cuda_open(&functions, "/nowhere/libcuda.so.1", &opened, &missing),
               SLICEPOOL_ERROR_NOT_SUPPORTED);
  CHECK(missing == NULL);
  CHECK_RESULT(slicepool_cuda_open(&functions, "libc.so.6", &opened, &missing), SLICEPOOL_ERROR_NOT_SUPPORTED);
  CHECK_TEXT(missing, "cuCtxPushCurrent_v2");
  CHECK_RESULT(slicepool_cuda_open(&functions, "libc.so.6", NULL, NULL), SLICEPOOL_ERROR_NOT_SUPPORTED);
  CHECK_RESULT(slicepool_cuda_open(NULL, NULL, &opened, &missing), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  CHECK(opened == &functions && memcmp(&functions, &before, sizeof before) == 0);
  OK(slicepool_cuda_open(&functions, library_path, &opened, &missing));
  CHECK(functions.mem_alloc != NULL && opened != NULL);
  slicepool_cuda_close(NULL);
  if (library_path != NULL) slicepool_cuda_close(opened); /* a driver is best left open */
}

/* ---- describing */

static void bad_arguments_change_nothing(void) {
  start();
  slicepool_cuda before, cuda;
  memset(&before, 0x5A, sizeof before);
  cuda = before;
  CHECK_RESULT(slicepool_cuda_init(NULL, &driver, context, 0), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  CHECK_RESULT(slicepool_cuda_init(&cuda, NULL, context, 0), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  CHECK_RESULT(slicepool_cuda_init(&cuda, &driver, NULL, 0), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  for (uint32_t kinds = 1; kinds != 0; kinds <<= 1) {
    if ((kinds & (SLICEPOOL_CUDA_DEVICE | SLICEPOOL_CUDA_HOST | SLICEPOOL_CUDA_MANAGED)) == 0)
      CHECK_RESULT(slicepool_cuda_init(&cuda, &driver, context, kinds | SLICEPOOL_CUDA_DEVICE),
                   SLICEPOOL_ERROR_INVALID_ARGUMENT);
  }
  /* Each of the required functions, which come first in the table. */
  for (size_t i = 0; i < sizeof required / sizeof *required; i++) {
    slicepool_cuda_functions functions = driver;
    memset((char *)&functions + i * sizeof(void *), 0, sizeof(void *));
    CHECK_RESULT(slicepool_cuda_init(&cuda, &functions, context, 0), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  }
  CHECK(memcmp(&cuda, &before, sizeof before) == 0);
  CHECK(current() == NULL);
  /* The others are not needed. */
  slicepool_cuda_functions functions = driver;
  const size_t needed = sizeof required / sizeof *required * sizeof(void *);
  memset((char *)&functions + needed, 0, sizeof functions - needed);
  OK(slicepool_cuda_init(&cuda, &functions, context, 0));
}

static void memory_is_described_as_the_driver_says(void) {
  slicepool_cuda cuda;
  init(&cuda, 0);
  size_t bytes = 0;
  CUDA(driver.device_total_mem(&bytes, device));
  const bool managed = attribute_of(MANAGED_MEMORY) != 0;
  CHECK_EQ(cuda.type_count, managed ? 3 : 2);
  CHECK_EQ(cuda.heap_count, attribute_of(INTEGRATED) ? 1 : 2);
  CHECK_EQ(cuda.heaps[0].size, bytes);
  CHECK_EQ(cuda.heaps[0].limit + cuda.heaps[1].limit + cuda.heaps[1].size, 0);
  CHECK_EQ(cuda.concurrent_managed, attribute_of(CONCURRENT_MANAGED_ACCESS));
  CHECK_EQ(cuda.device, device);
  CHECK_EQ(cuda.code, 0);
  CHECK(cuda.context == context && cuda.user_data == NULL && cuda.stream == NULL);
  for (uint32_t i = 0; i < cuda.type_count; i++) {
    const uint32_t host = i == 0 ? 0 : SLICEPOOL_MEMORY_TYPE_HOST_VISIBLE;
    CHECK_EQ(cuda.kinds[i], all_kinds[i]);
    CHECK_EQ(cuda.types[i].properties, all_kinds[i] | host);
    CHECK_EQ(cuda.types[i].flags, host);
    CHECK_EQ(cuda.types[i].heap, i == 1 ? cuda.heap_count - 1 : 0);
    CHECK_EQ(cuda.types[i].max_page, 0);
    CHECK_EQ(cuda.types[i].non_coherent_atom + cuda.types[i].granularity, 0);
  }
  /* As the header says: at least 256, and what textures need. */
  const uint64_t texture = (uint64_t)attribute_of(14);
  CHECK(cuda.types[0].page_alignment >= 256 && cuda.types[0].page_alignment % texture == 0);
  CHECK_EQ(cuda.types[0].page_alignment, texture > 256 ? texture : 256);
  CHECK_EQ(cuda.types[1].page_alignment, 256);
  CHECK(current() == NULL);
}

static void only_the_wanted_types_are_there(void) {
  slicepool_cuda cuda;
  init(&cuda, SLICEPOOL_CUDA_HOST);
  CHECK_EQ(cuda.type_count, 1);
  CHECK_EQ(cuda.kinds[0], SLICEPOOL_CUDA_HOST);
  slicepool_allocator *allocator = create_plain(&cuda);
  slicepool_slice slice = take(allocator, 1000); /* of no kind in particular */
  CHECK(slice.mapped != NULL);
  OK(slicepool_free(allocator, slice.id));
  CHECK_RESULT(try_take_kind(allocator, 1000, SLICEPOOL_CUDA_DEVICE, 0, &slice, NULL), SLICEPOOL_ERROR_NOT_SUPPORTED);
  finish_all(allocator);
  init(&cuda, SLICEPOOL_CUDA_DEVICE);
  allocator = create_plain(&cuda);
  slice = take(allocator, 1000);
  CHECK(slice.mapped == NULL && slice.address != 0);
  OK(slicepool_free(allocator, slice.id));
  finish_all(allocator);
}

static void what_a_device_lacks_is_left_out(void) {
  if (!has_double()) return;
  slicepool_cuda cuda;
  twin.attribute(MANAGED_MEMORY, 0);
  init(&cuda, 0);
  CHECK_EQ(cuda.type_count, 2);
  memset(&cuda, 0, sizeof cuda);
  CHECK_RESULT(slicepool_cuda_init(&cuda, &driver, context, SLICEPOOL_CUDA_MANAGED), SLICEPOOL_ERROR_NOT_SUPPORTED);
  CHECK(cuda.context == NULL && cuda.type_count == 0);
  twin.attribute(CAN_MAP_HOST_MEMORY, 0);
  init(&cuda, 0);
  CHECK_EQ(cuda.type_count, 1);
  twin.attribute(CAN_MAP_HOST_MEMORY, 1);
  twin.attribute(MANAGED_MEMORY, 1);
  twin.attribute(CONCURRENT_MANAGED_ACCESS, 0);
  twin.attribute(14, 4096);
  init(&cuda, 0);
  CHECK_EQ(cuda.concurrent_managed, 0);
  CHECK_EQ(cuda.types[0].page_alignment, 4096);
  twin.attribute(14, 32);
  init(&cuda, 0);
  CHECK_EQ(cuda.types[0].page_alignment, 256);
  twin.attribute(14, 512);
  twin.attribute(CONCURRENT_MANAGED_ACCESS, 1);
  CHECK(current() == NULL);
}

static void an_integrated_device_has_one_heap(void) {
  if (!has_double()) return;
  slicepool_cuda cuda;
  twin.attribute(INTEGRATED, 1);
  init(&cuda, 0);
  twin.attribute(INTEGRATED, 0);
  CHECK_EQ(cuda.heap_count, 1);
  slicepool_allocator *allocator = create_fixed(&cuda);
  uint64_t ids[3];
  for (uint32_t i = 0; i < 3; i++) ids[i] = take_kind(allocator, 1000, all_kinds[i], 0).id;
  slicepool_statistics figures = SLICEPOOL_STATISTICS_INIT;
  OK(slicepool_heap_statistics_get(allocator, 0, &figures, NULL));
  CHECK_EQ(figures.reserved_bytes, 3 * MIB);
  OK(slicepool_free_many(allocator, ids, 3, NULL));
  finish_all(allocator);
}

/* ---- slices */

static void types_are_chosen_by_their_properties(void) {
  slicepool_cuda cuda;
  init(&cuda, 0);
  slicepool_allocator *allocator = create_plain(&cuda);
  uint64_t ids[8];
  int count = 0;
  for (uint32_t i = 0; i < cuda.type_count; i++) {
    slicepool_slice slice = take_kind(allocator, 5000, all_kinds[i], 0);
    CHECK_EQ(type_of(allocator, &slice), i);
    ids[count++] = slice.id;
  }
  slicepool_slice slice = take(allocator, 5000);
  CHECK_EQ(type_of(allocator, &slice), 0);
  ids[count++] = slice.id;
  slice = take_kind(allocator, 5000, SLICEPOOL_MEMORY_TYPE_HOST_VISIBLE, 0);
  CHECK_EQ(type_of(allocator, &slice), 1);
  ids[count++] = slice.id;
  slicepool_request request = SLICEPOOL_REQUEST_INIT;
  request.size = 5000;
  request.preferred = SLICEPOOL_CUDA_MANAGED;
  request.forbidden = SLICEPOOL_CUDA_DEVICE;
  slice = (slicepool_slice)SLICEPOOL_SLICE_INIT;
  OK(slicepool_allocate(allocator, &request, &slice));
  CHECK_EQ(type_of(allocator, &slice), cuda.type_count - 1);
  ids[count++] = slice.id;
  OK(slicepool_free_many(allocator, ids, (uint32_t)count, NULL));
  finish_all(allocator);
}

static void device_memory_has_addresses_and_is_not_mapped(void) {
  slicepool_cuda cuda;
  init(&cuda, 0);
  slicepool_allocator *allocator = create_plain(&cuda);
  slicepool_slice slices[20];
  for (int i = 0; i < 20; i++) {
    slices[i] = take_kind(allocator, 1 + (uint64_t)i * 1000, SLICEPOOL_CUDA_DEVICE, 0);
    CHECK(slices[i].mapped == NULL);
    CHECK_EQ(slices[i].address, slices[i].memory + slices[i].offset);
    CHECK_EQ(slices[i].address % 256, 0);
  }
  void *mapped = NULL;
  CHECK_RESULT(slicepool_map(allocator, slices[0].id, &mapped, NULL), SLICEPOOL_ERROR_NOT_SUPPORTED);
  slicepool_slice aligned = SLICEPOOL_SLICE_INIT;
  OK(try_take(allocator, 3000, cuda.types[0].page_alignment, &aligned, NULL));
  CHECK_EQ(aligned.address % cuda.types[0].page_alignment, 0);
  OK(slicepool_free(allocator, aligned.id));
  for (int i = 0; i < 20; i++) OK(slicepool_free(allocator, slices[i].id));
  finish_all(allocator);
}

static void neighbours_keep_their_bytes(void) {
  slicepool_cuda cuda;
  init(&cuda, 0);
  slicepool_allocator *allocator = create_plain(&cuda);
  enum { COUNT = 120 };
  static slicepool_slice slices[COUNT];
  uint64_t state = 7;
  for (uint32_t kind = 0; kind < cuda.type_count; kind++) {
    /* Managed memory: hardly any is touched. */
    const uint64_t largest = all_kinds[kind] == SLICEPOOL_CUDA_MANAGED ? 4096 : 200000;
    const int count = COUNT;
    for (int i = 0; i < count; i++)
      slices[i] = take_kind(allocator, random_between(&state, 1, largest), all_kinds[kind], 0);
    CHECK_EQ(wrong_words(slices, count, -1), 0);
    /* Holes are filled, and their neighbours stay as they are. */
    for (int i = 0; i < count; i += 3) OK(slicepool_free(allocator, slices[i].id));
    for (int i = 0; i < count; i += 3)
      slices[i] = take_kind(allocator, random_between(&state, 1, largest), all_kinds[kind], 0);
    CHECK_EQ(wrong_words(slices, count, -1), 0);
    /* The check would see if a slice were one granule longer than it is. */
    int overlap = -1;
    for (int i = 0; i < count && overlap < 0; i++)
      for (int other = 0; other < i; other++)
        if (slices[other].address == slices[i].address + slices[i].size) overlap = i;
    CHECK(overlap > 0);
    CHECK_EQ(wrong_words(slices, count, overlap), 64);
    for (int i = 0; i < count; i++) OK(slicepool_free(allocator, slices[i].id));
  }
  finish_all(allocator);
}

static void pinned_memory_is_mapped_where_the_device_sees_it(void) {
  slicepool_cuda cuda;
  init(&cuda, 0);
  for (uint32_t flags = 0; flags <= SLICEPOOL_CUDA_HOST_WRITE_COMBINED; flags += SLICEPOOL_CUDA_HOST_WRITE_COMBINED) {
    cuda.host_flags = flags;
    slicepool_allocator *allocator = create_plain(&cuda);
    slicepool_slice first = take_kind(allocator, 10000, SLICEPOOL_CUDA_HOST, 0);
    slicepool_slice second = take_kind(allocator, 10000, SLICEPOOL_CUDA_HOST, 0);
    slicepool_slice target = take_kind(allocator, 10000, SLICEPOOL_CUDA_DEVICE, 0);
    CHECK(first.mapped != NULL && first.address != 0);
    CHECK_EQ((uint64_t)(uintptr_t)second.mapped, second.memory + second.offset);
    CHECK_EQ((uint64_t)(uintptr_t)second.mapped % 256, 0);
    /* Portable and mapped, always. */
    unsigned int told = 0;
    CUDA(slicepool_cuda_enter(&cuda));
    CUDA(more.mem_host_get_flags(&told, (void *)(uintptr_t)first.memory));
    CUDA(slicepool_cuda_leave(&cuda));
    CHECK_EQ(told & 7, flags | 3);
    memset(first.mapped, 0x11, 10000);
    memset(second.mapped, 0x22, 10000);
    unsigned char bytes[10000];
    CUDA(slicepool_cuda_enter(&cuda));
    CUDA(driver.memcpy_dtod(target.address, second.address, 10000));
    CUDA(driver.memcpy_dtoh(bytes, target.address, 10000));
    for (int i = 0; i < 10000; i++) CHECK_EQ(bytes[i], 0x22);
    CUDA(driver.memset_d8_async(target.address, 0x33, 10000, NULL));
    CUDA(driver.memcpy_dtod(first.address, target.address, 10000));
    CUDA(driver.stream_synchronize(NULL));
    CUDA(slicepool_cuda_leave(&cuda));
    for (int i = 0; i < 10000; i++)
      CHECK(((unsigned char *)first.mapped)[i] == 0x33 && ((unsigned char *)second.mapped)[i] == 0x22);
    void *mapped = NULL;
    OK(slicepool_map(allocator, first.id, &mapped, NULL));
    CHECK(mapped == first.mapped);
    OK(slicepool_unmap(allocator, first.id));
    const uint64_t ids[] = { first.id, second.id, target.id };
    OK(slicepool_free_many(allocator, ids, 3, NULL));
    finish_all(allocator);
  }
}

static void managed_memory_has_one_address_for_both_sides(void) {
  slicepool_cuda cuda;
  init(&cuda, 0);
  if (cuda.type_count < 3) {
    puts("this device has no managed memory");
    return;
  }
  slicepool_allocator *allocator = create_fixed(&cuda);
  slicepool_slice first = take_kind(allocator, 10000, SLICEPOOL_CUDA_MANAGED, 0);
  slicepool_slice second = take_kind(allocator, 10000, SLICEPOOL_CUDA_MANAGED, 0);
  CHECK_EQ(first.address, (uint64_t)(uintptr_t)first.mapped);
  CHECK_EQ(first.address, first.memory + first.offset);
  memset(first.mapped, 0x44, 10000);
  memset(second.mapped, 0x55, 10000);
  unsigned char bytes[10000];
  read_from(first.address, bytes, 10000);
  for (int i = 0; i < 10000; i++) CHECK_EQ(bytes[i], 0x44);
  memset(bytes, 0x66, 10000);
  write_to(first.address, bytes, 10000);
  for (int i = 0; i < 10000; i++)
    CHECK(((unsigned char *)first.mapped)[i] == 0x66 && ((unsigned char *)second.mapped)[i] == 0x55);
  OK(slicepool_free(allocator, first.id));
  OK(slicepool_free(allocator, second.id));
  finish_all(allocator);
}

static void zeros_are_there_when_a_request_returns(void) {
  slicepool_cuda cuda;
  init(&cuda, 0);
  for (int own_stream = 0; own_stream < 2; own_stream++) {
    if (own_stream) {
      CUDA(slicepool_cuda_enter(&cuda));
      CUDA(more.stream_create(&cuda.stream, 1)); /* CU_STREAM_NON_BLOCKING */
      CUDA(slicepool_cuda_leave(&cuda));
    }
    slicepool_allocator *allocator = create_fixed(&cuda);
    for (uint32_t kind = 0; kind < cuda.type_count; kind++) {
      static unsigned char bytes[256 * KIB];
      const uint64_t size = sizeof bytes;
      slicepool_slice before = take_kind(allocator, size, all_kinds[kind], 0);
      slicepool_slice slice = take_kind(allocator, size, all_kinds[kind], 0);
      slicepool_slice after = take_kind(allocator, size, all_kinds[kind], 0);
      memset(bytes, 0x77, size);
      write_to(before.address, bytes, size);
      write_to(slice.address, bytes, size);
      write_to(after.address, bytes, size);
      OK(slicepool_free(allocator, slice.id));
      const uint64_t address = slice.address;
      slice = take_kind(allocator, size, all_kinds[kind], SLICEPOOL_REQUEST_ZERO);
      CHECK_EQ(slice.address, address);
      if (slice.mapped != NULL) memcpy(bytes, slice.mapped, size); /* nothing else waits */
      else read_from(slice.address, bytes, size);
      for (uint64_t i = 0; i < size; i++) CHECK_EQ(bytes[i], 0);
      read_from(before.address, bytes, size);
      for (uint64_t i = 0; i < size; i++) CHECK_EQ(bytes[i], 0x77);
      read_from(after.address, bytes, size);
      for (uint64_t i = 0; i < size; i++) CHECK_EQ(bytes[i], 0x77);
      const uint64_t ids[] = { before.id, slice.id, after.id };
      OK(slicepool_free_many(allocator, ids, 3, NULL));
    }
    finish_all(allocator);
  }
  CUDA(slicepool_cuda_enter(&cuda));
  CUDA(more.stream_destroy(cuda.stream));
  CUDA(slicepool_cuda_leave(&cuda));
  CHECK(current() == NULL);
}

static void scrubbed_memory_is_overwritten_before_anybody_else_has_it(void) {
  slicepool_cuda cuda;
  init(&cuda, 0);
  slicepool_allocator *allocator = create_fixed(&cuda);
  for (uint32_t kind = 0; kind < cuda.type_count; kind++) {
    unsigned char bytes[5000];
    slicepool_slice slice = take_kind(allocator, sizeof bytes, all_kinds[kind], SLICEPOOL_REQUEST_SCRUB);
    memset(bytes, 0x77, sizeof bytes);
    write_to(slice.address, bytes, sizeof bytes);
    OK(slicepool_free(allocator, slice.id));
    slicepool_slice next = take_kind(allocator, sizeof bytes, all_kinds[kind], 0);
    CHECK_EQ(next.address, slice.address);
    read_from(next.address, bytes, sizeof bytes);
    for (size_t i = 0; i < sizeof bytes; i++) CHECK_EQ(bytes[i], 0);
    OK(slicepool_free(allocator, next.id));
  }
  finish_all(allocator);
}

static void without_waiting_zeros_are_written_by_the_stream(void) {
  if (!has_double()) return;
  slicepool_cuda cuda;
  init(&cuda, 0);
  cuda.flags = SLICEPOOL_CUDA_FILL_NO_WAIT;
  slicepool_allocator *allocator = create_fixed(&cuda);
  slicepool_slice slice = take_kind(allocator, 5000, SLICEPOOL_CUDA_HOST, 0);
  memset(slice.mapped, 0x77, 5000);
  OK(slicepool_free(allocator, slice.id));
  slice = take_kind(allocator, 5000, SLICEPOOL_CUDA_HOST, SLICEPOOL_REQUEST_ZERO);
  const unsigned char *bytes = slice.mapped;
  CHECK_EQ(bytes[4999], 0x77);
  CUDA(slicepool_cuda_enter(&cuda));
  CUDA(driver.stream_synchronize(NULL));
  CUDA(slicepool_cuda_leave(&cuda));
  for (int i = 0; i < 5000; i++) CHECK_EQ(bytes[i], 0);
  OK(slicepool_free(allocator, slice.id));
  finish_all(allocator);
}

static void the_budget_is_what_the_driver_says(void) {
  slicepool_cuda cuda;
  init(&cuda, 0);
  slicepool_allocator *allocator = create_fixed(&cuda);
  slicepool_slice slice = take_kind(allocator, MIB, SLICEPOOL_CUDA_DEVICE, 0);
  slicepool_heap_budget budget = SLICEPOOL_HEAP_BUDGET_INIT;
  slicepool_statistics figures = SLICEPOOL_STATISTICS_INIT;
  bool same = false;
  /* Other programs come and go. */
  for (int tries = 0; tries < 100 && !same; tries++) {
    size_t left = 0, total = 0;
    CUDA(slicepool_cuda_enter(&cuda));
    CUDA(driver.mem_get_info(&left, &total));
    CUDA(slicepool_cuda_leave(&cuda));
    OK(slicepool_heap_statistics_get(allocator, 0, &figures, &budget));
    same = budget.budget == total && budget.usage == total - left;
  }
  CHECK(same);
  CHECK(budget.usage >= MIB && budget.usage <= budget.budget);
  /* Nothing is known of the host's memory. */
  slicepool_heap_budget unknown = { (uint32_t)sizeof unknown, 0, 1, 2 };
  CHECK_RESULT(slicepool_cuda_heap_budget(&cuda, 1, &unknown), SLICEPOOL_ERROR_NOT_SUPPORTED);
  CHECK(unknown.usage == 1 && unknown.budget == 2);
  OK(slicepool_free(allocator, slice.id));
  finish_all(allocator);
}

static void a_request_stays_within_what_other_programs_leave(void) {
  if (!has_double()) return;
  slicepool_cuda cuda;
  init(&cuda, 0);
  slicepool_allocator *allocator = create_fixed(&cuda);
  slicepool_slice slice = SLICEPOOL_SLICE_INIT;
  twin.total(8 * GIB, 8 * GIB - MIB / 2);
  CHECK_RESULT(try_take_kind(allocator, 1000, SLICEPOOL_CUDA_DEVICE, SLICEPOOL_REQUEST_WITHIN_BUDGET, &slice, NULL),
               SLICEPOOL_ERROR_BUDGET_EXCEEDED);
  CHECK_EQ(twin.pages(), 0);
  twin.total(8 * GIB, 8 * GIB - MIB);
  OK(try_take_kind(allocator, 1000, SLICEPOOL_CUDA_DEVICE, SLICEPOOL_REQUEST_WITHIN_BUDGET, &slice, NULL));
  twin.total(8 * GIB, 0);
  OK(slicepool_free(allocator, slice.id));
  finish_all(allocator);
}

/* ---- contexts */

/* Uses everything; the thread's current context is the same all the time. */
static void use_all(slicepool_cuda *cuda, slicepool_allocator *allocator, uint64_t *state, void *expected) {
  slicepool_slice slices[3];
  for (uint32_t i = 0; i < cuda->type_count; i++) {
    slices[i] = take_kind(allocator, random_between(state, 1, 100000), all_kinds[i],
                          random_next(state) % 4 == 0 ? SLICEPOOL_REQUEST_ZERO : SLICEPOOL_REQUEST_SCRUB);
    CHECK(current() == expected);
  }
  slicepool_heap_budget budget = SLICEPOOL_HEAP_BUDGET_INIT;
  slicepool_statistics figures = SLICEPOOL_STATISTICS_INIT;
  OK(slicepool_heap_statistics_get(allocator, 0, &figures, &budget));
  CHECK(current() == expected);
  for (uint32_t i = 0; i < cuda->type_count; i++) {
    OK(slicepool_free(allocator, slices[i].id));
    CHECK(current() == expected);
  }
  if (random_next(state) % 4 == 0) OK(slicepool_trim(allocator, 0, NULL));
  CHECK(current() == expected);
}

static void the_current_context_stays_the_same(void) {
  start();
  void *const other = create_context();
  CHECK(current() == other);
  for (int with = 0; with < 3; with++) {
    /* None is current; another one; the adapter's own. */
    void *popped = NULL;
    if (with != 1) CUDA(driver.ctx_pop_current(&popped));
    if (with == 2) CUDA(driver.ctx_push_current(context));
    void *const expected = current();
    CHECK(expected == (with == 0 ? NULL : with == 1 ? other : context));
    slicepool_cuda cuda;
    init(&cuda, 0);
    cuda.heaps[0].size = 0;
    CHECK(current() == expected);
    slicepool_allocator *allocator = create_fixed(&cuda);
    uint64_t state = 3;
    for (int i = 0; i < 10; i++) use_all(&cuda, allocator, &state, expected);
    slicepool_slice slice = SLICEPOOL_SLICE_INIT;
    CHECK_RESULT(try_take_kind(allocator, TOO_MUCH, SLICEPOOL_CUDA_DEVICE, SLICEPOOL_REQUEST_DEDICATED, &slice, NULL),
                 SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY);
    CHECK(current() == expected);
    finish_all(allocator);
    CHECK(current() == expected);
    if (with == 2) CUDA(driver.ctx_pop_current(&popped));
    if (with != 1) CUDA(driver.ctx_push_current(other));
  }
  CUDA(more.ctx_destroy(other));
  CHECK(current() == NULL);
  if (twin.stacked != NULL) CHECK_EQ((uint64_t)twin.stacked(), 0);
}

struct worker {
  pthread_t thread;
  slicepool_cuda *cuda;
  slicepool_allocator *allocator;
  int number;
};

static void *work(void *argument) {
  const struct worker *worker = argument;
  /* Half of the threads have a context of their own. */
  void *const own = worker->number % 2 == 0 ? create_context() : NULL;
  uint64_t state = (uint64_t)worker->number;
  for (uint64_t i = 0; i < rounds(200); i++) use_all(worker->cuda, worker->allocator, &state, own);
  if (own != NULL) CUDA(more.ctx_destroy(own));
  CHECK(current() == NULL);
  return NULL;
}

static void four_threads_share_an_allocator_and_keep_their_contexts(void) {
  slicepool_cuda cuda;
  init(&cuda, 0);
  slicepool_allocator *allocator = create_fixed(&cuda);
  struct worker workers[4];
  for (int i = 0; i < 4; i++) {
    workers[i] = (struct worker){ .cuda = &cuda, .allocator = allocator, .number = i };
    CHECK(pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0);
  }
  for (int i = 0; i < 4; i++) CHECK(pthread_join(workers[i].thread, NULL) == 0);
  finish_all(allocator);
  if (twin.stacked != NULL) CHECK_EQ((uint64_t)twin.stacked(), 0);
}

/* ---- failures */

static void no_memory_left_is_told_with_the_drivers_code(void) {
  slicepool_cuda cuda;
  init(&cuda, 0);
  cuda.heaps[0].size = 0; /* or it would be too large from the start */
  slicepool_allocator *allocator = create_plain(&cuda);
  slicepool_slice kept = take_kind(allocator, 1000, SLICEPOOL_CUDA_DEVICE, 0);
  const uint64_t pages = twin.pages == NULL ? 0 : twin.pages();
  const slicepool_statistics before = figures_of(allocator);
  /* A driver is not asked for so much of other memory: it might try to find it. */
  for (uint32_t kind = 0; kind < (twin.pages == NULL ? 1 : 3); kind++) {
    slicepool_slice slice = SLICEPOOL_SLICE_INIT;
    slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
    CHECK_RESULT(try_take_kind(allocator, TOO_MUCH, all_kinds[kind], 0, &slice, &failure),
                 SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY);
    CHECK_EQ(failure.device_code, OUT_OF_MEMORY);
    CHECK_EQ(failure.size, TOO_MUCH);
    CHECK_EQ(slice.id, 0);
    const slicepool_statistics after = figures_of(allocator);
    CHECK_EQ(after.reserved_bytes, before.reserved_bytes);
    CHECK_EQ(after.pages, before.pages);
    CHECK_EQ(after.device_allocations, before.device_allocations);
    CHECK_EQ(after.slices, 1);
    CHECK(current() == NULL);
    if (twin.pages != NULL) CHECK_EQ(twin.pages(), pages);
  }
  /* There is memory all the same. */
  slicepool_slice small = take_kind(allocator, 1000, SLICEPOOL_CUDA_DEVICE, 0);
  CHECK_EQ(wrong_words((slicepool_slice[]){ kept, small }, 2, -1), 0);
  OK(slicepool_free(allocator, small.id));
  OK(slicepool_free(allocator, kept.id));
  finish_all(allocator);
}

static int32_t count_shortages(void *user_data, const slicepool_shortage *shortage) {
  const slicepool_cuda *cuda = user_data;
  CHECK_EQ(shortage->result, SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY);
  ++*(int *)cuda->user_data;
  return SLICEPOOL_SHORTAGE_REFUSE;
}

static void callbacks_of_the_program_find_their_data(void) {
  slicepool_cuda cuda;
  init(&cuda, 0);
  cuda.heaps[0].size = 0;
  int shortages = 0;
  cuda.user_data = &shortages;
  slicepool_device table = SLICEPOOL_DEVICE_INIT;
  slicepool_allocator_config config = SLICEPOOL_ALLOCATOR_CONFIG_INIT;
  slicepool_cuda_device(&cuda, &table);
  CHECK(table.user_data == &cuda && table.out_of_memory == NULL && table.map == NULL);
  table.out_of_memory = count_shortages;
  slicepool_cuda_describe(&cuda, &config);
  slicepool_allocator *allocator = create_of(&table, config);
  slicepool_slice slice = SLICEPOOL_SLICE_INIT;
  CHECK_RESULT(try_take_kind(allocator, TOO_MUCH, SLICEPOOL_CUDA_DEVICE, 0, &slice, NULL),
               SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY);
  CHECK_EQ(shortages, 1);
  finish_all(allocator);
}

/* Whether the driver's call that was to fail has been made. If so the thread's context is as it was; a call that should
 * have restored it and failed is made up for. */
static bool has_failed(const void *expected) {
  const char *name = twin.failed();
  twin.fail(0, 0);
  if (name == NULL) return false;
  if (strcmp(name, "cuCtxPopCurrent_v2") == 0) {
    CHECK(current() == context);
    CUDA(driver.ctx_pop_current(&(void *){ NULL }));
  }
  CHECK(current() == expected);
  return true;
}

static void every_failing_call_of_a_callback_is_reported(void) {
  if (!has_double()) return;
  static const int codes[] = { OUT_OF_MEMORY, INVALID_CONTEXT, LAUNCH_FAILED };
  for (int c = 0; c < 3; c++) {
    const int code = codes[c];
    const slicepool_result expected =
        code == OUT_OF_MEMORY ? SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY : SLICEPOOL_ERROR_DEVICE_FAILED;
    slicepool_cuda cuda;
    uint64_t call;

    for (call = 1;; call++) {
      slicepool_cuda broken;
      memset(&broken, 0, sizeof broken);
      slicepool_cuda before = broken;
      twin.fail(call, code);
      slicepool_result result = slicepool_cuda_init(&broken, &driver, context, 0);
      if (!has_failed(NULL)) break;
      CHECK_RESULT(result, SLICEPOOL_ERROR_DEVICE_FAILED);
      CHECK_EQ(broken.code, code);
      before.code = code;
      CHECK(memcmp(&broken, &before, sizeof before) == 0);
    }
    CHECK_EQ(call - 1, 9); /* push, device, bytes, five attributes, pop */
    init(&cuda, 0);

    for (uint32_t kind = 0; kind < 3; kind++) {
      slicepool_page_request request;
      memset(&request, 0, sizeof request);
      request.struct_size = sizeof request;
      request.size = MIB;
      request.alignment = 256;
      request.memory_type = kind;
      slicepool_device_memory memory = SLICEPOOL_DEVICE_MEMORY_INIT;
      memory.handle = UINT64_MAX;
      memory.size = MIB;
      const slicepool_device_memory empty = memory;
      for (call = 1;; call++) {
        twin.fail(call, code);
        slicepool_result result = slicepool_cuda_allocate_page(&cuda, &request, &memory);
        if (!has_failed(NULL)) {
          CHECK_RESULT(result, SLICEPOOL_OK);
          break;
        }
        CHECK_RESULT(result, expected);
        CHECK_EQ(memory.device_code, code);
        memory.device_code = 0;
        CHECK(memcmp(&memory, &empty, sizeof memory) == 0);
        CHECK_EQ(twin.pages(), 0);
      }
      CHECK_EQ(call - 1, all_kinds[kind] == SLICEPOOL_CUDA_HOST ? 4 : 3);
      CHECK_EQ(twin.pages(), 1);
      CHECK_EQ(memory.device_code, 0);

      slicepool_fill_request fill;
      memset(&fill, 0, sizeof fill);
      fill.struct_size = sizeof fill;
      fill.size = MIB;
      fill.address = memory.address;
      for (call = 1;; call++) {
        slicepool_point point = { 0, 0, 0 };
        twin.fail(call, code);
        slicepool_result result = slicepool_cuda_fill(&cuda, &fill, &point);
        CHECK_EQ(point.timeline + point.value, 0);
        if (!has_failed(NULL)) break;
        CHECK_RESULT(result, expected);
      }
      CHECK_EQ(call - 1, 4);

      for (call = 1; twin.pages() == 1; call++) {
        CHECK_LE(call, 3);
        twin.fail(call, code);
        slicepool_result result = slicepool_cuda_deallocate_page(&cuda, &memory);
        CHECK(has_failed(NULL));
        CHECK_RESULT(result, twin.pages() == 1 ? SLICEPOOL_ERROR_DEVICE_FAILED : SLICEPOOL_OK);
      }
      CHECK_EQ(call - 1, 3);
    }

    for (call = 1;; call++) {
      slicepool_heap_budget budget = { (uint32_t)sizeof budget, 0, 1, 2 };
      twin.fail(call, code);
      slicepool_result result = slicepool_cuda_heap_budget(&cuda, 0, &budget);
      if (!has_failed(NULL)) break;
      CHECK_RESULT(result, SLICEPOOL_ERROR_DEVICE_FAILED);
      CHECK(budget.usage == 1 && budget.budget == 2);
    }
    CHECK_EQ(call - 1, 3);
  }
  CHECK_EQ((uint64_t)twin.stacked(), 0);
}

/* A request. */
struct step {
  uint32_t kind, flags;
};

static void every_failing_call_leaves_the_allocator_as_it_was(void) {
  if (!has_double()) return;
  static const struct step steps[] = {
    { SLICEPOOL_CUDA_DEVICE, 0 },
    { SLICEPOOL_CUDA_DEVICE, SLICEPOOL_REQUEST_ZERO },
    { SLICEPOOL_CUDA_HOST, 0 },
    { SLICEPOOL_CUDA_HOST, SLICEPOOL_REQUEST_ZERO },
    { SLICEPOOL_CUDA_MANAGED, SLICEPOOL_REQUEST_ZERO },
  };
  static const int codes[] = { OUT_OF_MEMORY, LAUNCH_FAILED };
  for (int c = 0; c < 2; c++) {
    for (size_t s = 0; s < sizeof steps / sizeof *steps; s++) {
      uint64_t refusals = 0, call = 0;
      bool again = true;
      while (again) {
        slicepool_cuda cuda;
        init(&cuda, 0);
        slicepool_allocator *allocator = create_fixed(&cuda);
        slicepool_slice slice = SLICEPOOL_SLICE_INIT;
        slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
        twin.fail(++call, codes[c]);
        slicepool_result result = try_take_kind(allocator, MIB, steps[s].kind, steps[s].flags, &slice, &failure);
        again = has_failed(NULL);
        if (result != SLICEPOOL_OK) {
          refusals++;
          CHECK(again);
          CHECK_RESULT(result, codes[c] == OUT_OF_MEMORY ? SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY
                                                         : SLICEPOOL_ERROR_DEVICE_FAILED);
          CHECK_EQ(slice.id, 0);
          CHECK_EQ(figures_of(allocator).slices, 0);
          CHECK_EQ(figures_of(allocator).pages_stuck, 0);
          /* The calls that take a page; those that fill it with zeros have no place for a code. */
          if (call <= (steps[s].kind == SLICEPOOL_CUDA_HOST ? 4 : 3)) CHECK_EQ(failure.device_code, codes[c]);
        }
        /* No page is anywhere but in the books. */
        CHECK_EQ(twin.pages(), figures_of(allocator).pages);
        CHECK_EQ(twin.bytes(), figures_of(allocator).reserved_bytes);
        if (result != SLICEPOOL_OK) {
          /* After a refusal the device is asked again once the allocator was trimmed. */
          OK(slicepool_trim(allocator, 0, NULL));
          slice = take_kind(allocator, MIB, steps[s].kind, steps[s].flags);
        }
        OK(slicepool_free(allocator, slice.id));
        finish_all(allocator);
      }
      CHECK(refusals >= 3);
    }
  }
  CHECK_EQ((uint64_t)twin.stacked(), 0);
}

static void a_page_that_the_driver_keeps_is_asked_for_again(void) {
  if (!has_double()) return;
  slicepool_cuda cuda;
  init(&cuda, 0);
  slicepool_allocator *allocator = create_fixed(&cuda);
  for (uint32_t kind = 0; kind < 3; kind++) {
    OK(slicepool_free(allocator, take_kind(allocator, 1000, all_kinds[kind], 0).id));
    twin.fail(2, LAUNCH_FAILED); /* after cuCtxPushCurrent */
    slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
    CHECK_RESULT(slicepool_trim(allocator, 0, &failure), SLICEPOOL_ERROR_DEVICE_FAILED);
    CHECK(has_failed(NULL));
    CHECK_EQ(failure.device_fault, SLICEPOOL_DEVICE_FAULT_REFUSED);
    CHECK_EQ(figures_of(allocator).pages_stuck, 1);
    CHECK_EQ(twin.pages(), 1);
    OK(slicepool_trim(allocator, 0, NULL));
    CHECK_EQ(twin.pages(), 0);
    CHECK_EQ(figures_of(allocator).reserved_bytes, 0);
  }
  finish_all(allocator);
}

static void a_driver_that_shuts_down_takes_everything_with_it(void) {
  if (!has_double()) return;
  slicepool_cuda cuda;
  init(&cuda, 0);
  slicepool_allocator *allocator = create_fixed(&cuda);
  for (uint64_t call = 1; call <= 3; call++) {
    const slicepool_slice slice = take_kind(allocator, 1000, SLICEPOOL_CUDA_DEVICE, 0);
    OK(slicepool_free(allocator, slice.id));
    twin.fail(call, DEINITIALIZED);
    OK(slicepool_trim(allocator, 0, NULL));
    CHECK(has_failed(NULL));
    CHECK_EQ(figures_of(allocator).reserved_bytes, 0);
    /* The double still has it, unless cuMemFree was reached. */
    CHECK_EQ(twin.pages(), call < 3 ? 1 : 0);
    CUDA(slicepool_cuda_enter(&cuda));
    if (call < 3) CUDA(driver.mem_free(slice.memory));
    CUDA(slicepool_cuda_leave(&cuda));
  }
  finish_all(allocator);
}

static void a_larger_alignment_than_promised_is_checked(void) {
  if (!has_double()) return;
  slicepool_cuda cuda;
  init(&cuda, SLICEPOOL_CUDA_HOST);
  cuda.types[0].page_alignment = 4096; /* the double's host memory has 256 */
  slicepool_allocator *allocator = create_fixed(&cuda);
  slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
  slicepool_slice slice = SLICEPOOL_SLICE_INIT;
  slicepool_result result = try_take_kind(allocator, 1000, SLICEPOOL_CUDA_HOST, 0, &slice, &failure);
  CHECK_RESULT(result, SLICEPOOL_ERROR_DEVICE_FAILED);
  CHECK_EQ(failure.device_fault, SLICEPOOL_DEVICE_FAULT_MISALIGNED);
  CHECK_EQ(twin.pages(), 0);
  finish_all(allocator);
}

static void memory_of_the_program_is_adopted_and_given_back(void) {
  slicepool_cuda cuda;
  init(&cuda, 0);
  slicepool_allocator *allocator = create_fixed(&cuda);
  slicepool_cuda_pointer memory = 0;
  CUDA(slicepool_cuda_enter(&cuda));
  CUDA(driver.mem_alloc(&memory, MIB));
  CUDA(slicepool_cuda_leave(&cuda));
  slicepool_device_memory page = SLICEPOOL_DEVICE_MEMORY_INIT;
  page.handle = page.address = memory;
  page.size = MIB;
  page.context = (void *)(uintptr_t)SLICEPOOL_CUDA_DEVICE;
  OK(slicepool_adopt(allocator, 0, &page, NULL));
  slicepool_slice slice = take_kind(allocator, 1000, SLICEPOOL_CUDA_DEVICE, 0);
  CHECK_EQ(slice.memory, memory);
  CHECK_EQ(wrong_words(&slice, 1, -1), 0);
  OK(slicepool_free(allocator, slice.id));
  finish_all(allocator);
  /* Memory whose kind is not told is refused, not guessed at. */
  CUDA(slicepool_cuda_enter(&cuda));
  CUDA(driver.mem_alloc(&memory, MIB));
  page.handle = page.address = memory;
  page.context = NULL;
  CHECK_RESULT(slicepool_cuda_deallocate_page(&cuda, &page), SLICEPOOL_ERROR_DEVICE_FAILED);
  CUDA(driver.mem_free(memory));
  CUDA(slicepool_cuda_leave(&cuda));
  CHECK(current() == NULL);
}

static void destroying_gives_everything_back(void) {
  slicepool_cuda cuda;
  init(&cuda, 0);
  slicepool_allocator *allocator = create_plain(&cuda);
  for (uint32_t i = 0; i < cuda.type_count; i++) {
    for (int n = 0; n < 10; n++) take_kind(allocator, 100000, all_kinds[i], 0);
    take_kind(allocator, 9 * MIB, all_kinds[i], SLICEPOOL_REQUEST_DEDICATED);
    take_kind(allocator, 5000, all_kinds[i], SLICEPOOL_REQUEST_PERSISTENT);
  }
  if (twin.pages != NULL) {
    CHECK_EQ(twin.pages(), figures_of(allocator).pages);
    CHECK_EQ(twin.bytes(), figures_of(allocator).reserved_bytes);
  }
  CHECK_RESULT(slicepool_allocator_destroy(allocator, 0, NULL), SLICEPOOL_ERROR_BUSY);
  OK(slicepool_allocator_destroy(allocator, SLICEPOOL_DESTROY_FORCE, NULL));
  CHECK(current() == NULL);
  if (twin.pages != NULL) CHECK_EQ(twin.pages(), 0);
}

static void held_memory_serves_without_the_driver(void) {
  if (!has_double()) return;
  slicepool_cuda cuda;
  init(&cuda, 0);
  slicepool_allocator *allocator = create_plain(&cuda);
  slicepool_slice slice = take_kind(allocator, 50000, SLICEPOOL_CUDA_DEVICE, 0);
  OK(slicepool_free(allocator, slice.id));
  const uint64_t calls = twin.calls();
  for (int i = 0; i < 100; i++) {
    slice = take_kind(allocator, 50000, SLICEPOOL_CUDA_DEVICE, 0);
    OK(slicepool_free(allocator, slice.id));
  }
  CHECK_EQ(twin.calls(), calls);
  finish_all(allocator);
}

static const struct test tests[] = {
  TEST(loading_tells_which_function_is_missing),
  TEST(an_older_driver_will_do),
  TEST(a_library_that_is_not_the_driver_is_refused),
  TEST(bad_arguments_change_nothing),
  TEST(memory_is_described_as_the_driver_says),
  TEST(only_the_wanted_types_are_there),
  TEST(what_a_device_lacks_is_left_out),
  TEST(an_integrated_device_has_one_heap),
  TEST(types_are_chosen_by_their_properties),
  TEST(device_memory_has_addresses_and_is_not_mapped),
  TEST(neighbours_keep_their_bytes),
  TEST(pinned_memory_is_mapped_where_the_device_sees_it),
  TEST(managed_memory_has_one_address_for_both_sides),
  TEST(zeros_are_there_when_a_request_returns),
  TEST(scrubbed_memory_is_overwritten_before_anybody_else_has_it),
  TEST(without_waiting_zeros_are_written_by_the_stream),
  TEST(the_budget_is_what_the_driver_says),
  TEST(a_request_stays_within_what_other_programs_leave),
  TEST(the_current_context_stays_the_same),
  TEST(four_threads_share_an_allocator_and_keep_their_contexts),
  TEST(no_memory_left_is_told_with_the_drivers_code),
  TEST(callbacks_of_the_program_find_their_data),
  TEST(every_failing_call_of_a_callback_is_reported),
  TEST(every_failing_call_leaves_the_allocator_as_it_was),
  TEST(a_page_that_the_driver_keeps_is_asked_for_again),
  TEST(a_driver_that_shuts_down_takes_everything_with_it),
  TEST(a_larger_alignment_than_promised_is_checked),
  TEST(memory_of_the_program_is_adopted_and_given_back),
  TEST(destroying_gives_everything_back),
  TEST(held_memory_serves_without_the_driver),
};

TEST_MAIN(tests)
