/* CUDA memory from pools: device memory is filled and copied, slice by slice, and read back through pinned memory,
 * where every byte is checked. Needs the driver to run, and nothing of CUDA to compile.
 *
 *     cc -Iinclude examples-c/cuda.c -lslicepool -ldl -o cuda && ./cuda
 *
 * Kernels would use slice.address as they use what cuMemAlloc or cudaMalloc returns.
 */
#define SLICEPOOL_CUDA_OPEN /* for slicepool_cuda_open() */
#include "slicepool_cuda.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLICES 64

static slicepool_cuda_functions driver;

static void check(slicepool_result result, const char *what) {
  if (result != SLICEPOOL_OK) {
    fprintf(stderr, "%s: %s\n", what, slicepool_result_string(result));
    exit(1);
  }
}

static void check_cuda(slicepool_cuda_result code, const char *what) {
  if (code != SLICEPOOL_CUDA_SUCCESS) {
    const char *name = NULL;
    if (driver.get_error_name != NULL) driver.get_error_name(code, &name);
    fprintf(stderr, "%s: %s (%d)\n", what, name == NULL ? "?" : name, code);
    exit(1);
  }
}

/* The first device's primary context, which the runtime API uses too; NULL if there is no CUDA here. */
static void *open_device(int *device) {
  char name[128] = "";
  int version = 0;
  void *context = NULL;
  /* NULL: the driver's own library. */
  if (slicepool_cuda_open(&driver, getenv("SLICEPOOL_CUDA_LIBRARY"), NULL, NULL) != SLICEPOOL_OK) return NULL;
  if (driver.init(0) != SLICEPOOL_CUDA_SUCCESS) return NULL;
  check_cuda(driver.device_get(device, 0), "cuDeviceGet");
  check_cuda(driver.device_get_name(name, (int)sizeof name, *device), "cuDeviceGetName");
  check_cuda(driver.driver_get_version(&version), "cuDriverGetVersion");
  check_cuda(driver.device_primary_ctx_retain(&context, *device), "cuDevicePrimaryCtxRetain");
  printf("device: %s, CUDA %d.%d\n", name, version / 1000, version % 1000 / 10);
  return context;
}

static slicepool_allocator *create(slicepool_cuda *cuda) {
  slicepool_device device = SLICEPOOL_DEVICE_INIT;
  slicepool_allocator_config config = SLICEPOOL_ALLOCATOR_CONFIG_INIT;
  slicepool_allocator *allocator = NULL;
  slicepool_cuda_device(cuda, &device);
  slicepool_cuda_describe(cuda, &config);
  check(slicepool_allocator_create(&device, &config, &allocator), "create");
  return allocator;
}

/* Of one kind of memory: SLICEPOOL_CUDA_DEVICE, SLICEPOOL_CUDA_HOST or SLICEPOOL_CUDA_MANAGED. */
static slicepool_slice allocate(slicepool_allocator *allocator, uint64_t size, uint32_t kind, uint32_t flags) {
  slicepool_request request = SLICEPOOL_REQUEST_INIT;
  slicepool_slice slice = SLICEPOOL_SLICE_INIT;
  request.size = size;
  request.required = kind;
  request.flags = flags;
  check(slicepool_allocate(allocator, &request, &slice), "allocate");
  return slice;
}

/* What a byte of a slice is to be: different in every slice and in neighbouring bytes. */
static unsigned char pattern(uint32_t slice, uint64_t byte) {
  return (unsigned char)(slice * 37 + byte % 251 + byte / 4096);
}

static uint64_t size_of(uint32_t slice) { return 1000 + slice * UINT64_C(3331); }

int main(void) {
  slicepool_cuda cuda;
  slicepool_slice slices[SLICES], copies[SLICES];
  uint64_t bytes = 0, wrong = 0, not_zero = 0;
  int device = 0;
  void *context = open_device(&device);
  if (context == NULL) {
    puts("SKIPPED: no CUDA driver");
    return 0;
  }
  memset(&cuda, 0, sizeof cuda);
  check(slicepool_cuda_init(&cuda, &driver, context, 0), "init");
  slicepool_allocator *allocator = create(&cuda);

  /* The allocator needs no current context; copies and kernels do. */
  check_cuda(slicepool_cuda_enter(&cuda), "cuCtxPushCurrent");

  /* Pinned memory: the host writes a pattern, the device copies it to device memory, and again from there. */
  const slicepool_slice staging = allocate(allocator, size_of(SLICES), SLICEPOOL_CUDA_HOST, 0);
  unsigned char *const host = (unsigned char *)staging.mapped;
  for (uint32_t i = 0; i < SLICES; i++) {
    slices[i] = allocate(allocator, size_of(i), SLICEPOOL_CUDA_DEVICE, 0);
    copies[i] = allocate(allocator, size_of(i), SLICEPOOL_CUDA_DEVICE, SLICEPOOL_REQUEST_ZERO);
    for (uint64_t byte = 0; byte < size_of(i); byte++) host[byte] = pattern(i, byte);
    check_cuda(driver.memcpy_htod(slices[i].address, host, size_of(i)), "cuMemcpyHtoD");
  }

  /* Those that were to be zeros are, although their neighbours have been written to. */
  for (uint32_t i = 0; i < SLICES; i++) {
    check_cuda(driver.memcpy_dtoh(host, copies[i].address, size_of(i)), "cuMemcpyDtoH");
    for (uint64_t byte = 0; byte < size_of(i); byte++) not_zero += host[byte] != 0;
    check_cuda(driver.memcpy_dtod(copies[i].address, slices[i].address, size_of(i)), "cuMemcpyDtoD");
  }

  /* Half of the slices are filled again. The copies keep what they have. */
  for (uint32_t i = 0; i < SLICES; i += 2) {
    check_cuda(driver.memset_d8_async(slices[i].address, 0xEE, size_of(i), NULL), "cuMemsetD8Async");
  }
  for (uint32_t i = 0; i < SLICES; i++) {
    check_cuda(driver.memcpy_dtoh(host, slices[i].address, size_of(i)), "cuMemcpyDtoH");
    for (uint64_t byte = 0; byte < size_of(i); byte++) wrong += host[byte] != (i % 2 == 0 ? 0xEE : pattern(i, byte));
    check_cuda(driver.memcpy_dtoh(host, copies[i].address, size_of(i)), "cuMemcpyDtoH");
    for (uint64_t byte = 0; byte < size_of(i); byte++) wrong += host[byte] != pattern(i, byte);
    bytes += 2 * size_of(i);
  }
  printf("slices: %d of device memory, %" PRIu64 " of %" PRIu64 " bytes wrong, %" PRIu64 " not zero\n", 2 * SLICES,
         wrong, bytes, not_zero);

  slicepool_statistics figures = SLICEPOOL_STATISTICS_INIT;
  slicepool_heap_budget budget = SLICEPOOL_HEAP_BUDGET_INIT;
  check(slicepool_heap_statistics_get(allocator, 0, &figures, &budget), "heap");
  printf("device memory: %" PRIu64 " bytes in use of %" PRIu64 " reserved, in %" PRIu32 " pages\n",
         figures.in_use_bytes, figures.reserved_bytes, figures.pages);
  printf("all programs: %" PRIu64 " of %" PRIu64 " MiB\n", budget.usage >> 20, budget.budget >> 20);

  for (uint32_t i = 0; i < SLICES; i++) {
    check(slicepool_free(allocator, slices[i].id), "free");
    check(slicepool_free(allocator, copies[i].id), "free");
  }
  check(slicepool_free(allocator, staging.id), "free");
  check_cuda(slicepool_cuda_leave(&cuda), "cuCtxPopCurrent");
  check(slicepool_allocator_destroy(allocator, 0, NULL), "destroy");
  check_cuda(driver.device_primary_ctx_release(device), "cuDevicePrimaryCtxRelease");
  puts("end: everything given back");
  return wrong == 0 && not_zero == 0 ? 0 : 1;
}
