/*
 * slicepool over CUDA: device memory, pinned host memory and managed memory of one CUDA context, as memory types of an
 * allocator.
 *
 * Everything here is inline. Of the CUDA driver nothing is needed to compile or link: no cuda.h, no libcuda. Its
 * functions come in a table, slicepool_cuda_functions, which slicepool_cuda_load() fills from wherever the program has
 * them; slicepool_cuda_open(), for those who define SLICEPOOL_CUDA_OPEN, from the driver's shared library. A program
 * may include cuda.h and link with the driver all the same, before or after, and may use the runtime API beside it:
 * memory of a device's primary context is memory for both.
 *
 * @code
 * #define SLICEPOOL_CUDA_OPEN // for slicepool_cuda_open(), which needs <dlfcn.h>, or <windows.h>
 * #include "slicepool_cuda.h"
 * #include <string.h>
 *
 * int main(void) {
 *   slicepool_cuda cuda;
 *   slicepool_cuda_functions driver;
 *   slicepool_device device = SLICEPOOL_DEVICE_INIT;
 *   slicepool_allocator_config config = SLICEPOOL_ALLOCATOR_CONFIG_INIT;
 *   slicepool_request request = SLICEPOOL_REQUEST_INIT;
 *   slicepool_slice slice = SLICEPOOL_SLICE_INIT;
 *   slicepool_allocator *allocator = NULL;
 *   void *context = NULL;
 *   int ordinal = 0;
 *   memset(&cuda, 0, sizeof cuda);
 *   if (slicepool_cuda_open(&driver, NULL, NULL, NULL) != SLICEPOOL_OK) return 1; // no driver here
 *   if (driver.init(0) != 0 || driver.device_get(&ordinal, 0) != 0) return 2;
 *   if (driver.device_primary_ctx_retain(&context, ordinal) != 0) return 3;
 *
 *   if (slicepool_cuda_init(&cuda, &driver, context, 0) != SLICEPOOL_OK) return 4; // cuda.code has the CUresult
 *   slicepool_cuda_device(&cuda, &device);
 *   slicepool_cuda_describe(&cuda, &config);
 *   if (slicepool_allocator_create(&device, &config, &allocator) != SLICEPOOL_OK) return 5;
 *
 *   request.size = 1 << 20;
 *   request.required = SLICEPOOL_CUDA_DEVICE; // without this, pinned memory serves when the device is full
 *   if (slicepool_allocate(allocator, &request, &slice) != SLICEPOOL_OK) return 6;
 *   // slice.address is a CUdeviceptr: for kernels, cuMemcpy, cuMemset.
 *   if (slicepool_free(allocator, slice.id) != SLICEPOOL_OK) return 7; // slicepool_free_after() while it is in use
 *   if (slicepool_allocator_destroy(allocator, 0, NULL) != SLICEPOOL_OK) return 8;
 *   return driver.device_primary_ctx_release(ordinal) == 0 ? 0 : 9;
 * }
 * @endcode
 *
 * MEMORY. What a slice's fields are, and what its page comes from:
 *
 *     SLICEPOOL_CUDA_DEVICE   cuMemAlloc         address, memory: CUdeviceptr   mapped: NULL
 *     SLICEPOOL_CUDA_HOST     cuMemHostAlloc     address: CUdeviceptr           mapped, memory: where the host sees it
 *     SLICEPOOL_CUDA_MANAGED  cuMemAllocManaged  address, memory: CUdeviceptr   mapped: the same number
 *
 * `memory` is that of the page, the others those of the slice. These three are also the properties by which requests
 * choose (`required`, `preferred`, `forbidden`); host and managed memory have SLICEPOOL_MEMORY_TYPE_HOST_VISIBLE
 * besides. A request that says nothing goes to device memory first, then to the others. Not all devices have managed
 * memory. Where slicepool_cuda.concurrent_managed is 0, the host must not touch any of it while the device runs
 * anything; SLICEPOOL_ALLOCATOR_DEBUG_FILL and debug_margin do.
 *
 * HEAPS. The first is the device's memory, of cuDeviceTotalMem() bytes; cuMemGetInfo() tells its budget, of all
 * processes together. Managed memory counts there, so that nobody takes more of it than the device has by accident; a
 * program that means to sets slicepool_cuda.types[...].heap to 1. The second is host memory, of unknown size: pinned
 * memory is taken from the whole system, so give it a `limit`. Integrated devices, which have no memory of their own,
 * have the first only.
 *
 * ALIGNMENT. Pages are at multiples of 256 bytes, as CUDA promises for all its allocations, device memory also at
 * multiples of the device's texture alignment (512 bytes, mostly). Drivers give large allocations at multiples of much
 * more, but nowhere promise to. A program that wants larger alignments raises slicepool_cuda.types[...].page_alignment
 * before slicepool_cuda_describe(): a page that does not have it then is given back, and the request fails with
 * SLICEPOOL_DEVICE_FAULT_MISALIGNED.
 *
 * CONTEXTS. Each thread has a current CUDA context, or none. Every callback makes the adapter's context current on the
 * thread that it runs on, and then again the one that was, also if it fails: threads need none of their own to allocate
 * or free. The context has to live until the allocator is gone.
 *
 * ERRORS. CUDA_ERROR_OUT_OF_MEMORY (2) becomes SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY, everything else
 * SLICEPOOL_ERROR_DEVICE_FAILED; slicepool_failure.device_code has the CUresult that a page was refused with, and none
 * of a request whose zeros have failed. Calls of the driver also report failures of kernels that were launched before.
 * After one that ends the context (an illegal address, say) every call fails: leave the allocator with
 * slicepool_allocator_abandon(), then destroy the context, whose memory goes with it. A driver that is shutting down
 * (4, at the end of the process) has taken all memory back, so giving pages back succeeds.
 *
 * WHAT THE DEVICE STILL USES must not be freed with slicepool_free(), which hands the memory to the next request at
 * once: slicepool_free_after() lets a slice wait, for an event behind the kernel that used it. cuMemFree() may wait for
 * the whole device; since pages are seldom given back, this is seldom felt.
 *
 * ZEROS. Requests with SLICEPOOL_REQUEST_ZERO or SLICEPOOL_REQUEST_SCRUB are filled on slicepool_cuda.stream, and
 * waited for: all streams see the zeros.
 *
 * THREADS. The callbacks may run on any threads at once. A slicepool_cuda must not be changed or moved while its
 * allocator lives. A forked child cannot use its parent's contexts: it may only abandon the allocator, as ever.
 *
 * CAPTURES. While a stream is being captured into a graph, the driver may refuse to allocate or to wait, and end the
 * capture. Take what is needed before: slicepool_prefill(), SLICEPOOL_REQUEST_NEVER_GROW.
 *
 * LEFT OUT: stream-ordered allocation (cuMemAllocAsync) and pages that grow in reserved address ranges (cuMemMap),
 * since neither could be tried on hardware; sharing with other processes and peer access, which are the program's to
 * arrange for the pages it has.
 *
 * SECTIONS, in this order: Driver; Adapter; Callbacks; Opening the driver.
 */

#ifndef SLICEPOOL_CUDA_H
#define SLICEPOOL_CUDA_H

#include "slicepool.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Casts and null pointers that are clean in C and in C++. */
#ifdef __cplusplus
#define SLICEPOOL_CUDA_NULL_ nullptr
#define SLICEPOOL_CUDA_CAST_(type, value) static_cast<type>(value)
#define SLICEPOOL_CUDA_BITS_(type, value) reinterpret_cast<type>(value)
#else
#define SLICEPOOL_CUDA_NULL_ NULL
#define SLICEPOOL_CUDA_CAST_(type, value) ((type)(value))
#define SLICEPOOL_CUDA_BITS_(type, value) ((type)(value))
#endif

/* ------------------------------------------------------------------------------------------------------------------
 * Driver
 * ------------------------------------------------------------------------------------------------------------------ */

/** How the driver's functions are called: CUDAAPI. */
#ifdef _WIN32
#define SLICEPOOL_CUDA_API __stdcall
#else
#define SLICEPOOL_CUDA_API
#endif

/** CUresult. */
typedef int slicepool_cuda_result;

/** CUdeviceptr, which has the size of a pointer. */
#if defined(_WIN64) || defined(__LP64__)
typedef unsigned long long slicepool_cuda_pointer;
#else
typedef unsigned int slicepool_cuda_pointer;
#endif

/** CUDA_SUCCESS. */
#define SLICEPOOL_CUDA_SUCCESS 0

/** CUDA_ERROR_INVALID_VALUE. */
#define SLICEPOOL_CUDA_ERROR_INVALID_VALUE 1

/** CUDA_ERROR_OUT_OF_MEMORY. */
#define SLICEPOOL_CUDA_ERROR_OUT_OF_MEMORY 2

/** CUDA_ERROR_DEINITIALIZED: the driver is shutting down. */
#define SLICEPOOL_CUDA_ERROR_DEINITIALIZED 4

/** CU_MEMHOSTALLOC_WRITECOMBINED, for slicepool_cuda.host_flags. */
#define SLICEPOOL_CUDA_HOST_WRITE_COMBINED 4

/**
 * Functions of the CUDA driver, each with the name under which its library exports it. Contexts and streams are
 * CUcontext and CUstream, devices CUdevice.
 *
 * Fill it with slicepool_cuda_load(), or one by one; in the latter case set all to NULL first.
 */
typedef struct slicepool_cuda_functions {
  /** cuCtxPushCurrent_v2. This and all up to stream_synchronize are required. */
  slicepool_cuda_result(SLICEPOOL_CUDA_API *ctx_push_current)(void *context);
  /** cuCtxPopCurrent_v2 */
  slicepool_cuda_result(SLICEPOOL_CUDA_API *ctx_pop_current)(void **context);
  /** cuCtxGetDevice */
  slicepool_cuda_result(SLICEPOOL_CUDA_API *ctx_get_device)(int *device);
  /** cuDeviceGetAttribute */
  slicepool_cuda_result(SLICEPOOL_CUDA_API *device_get_attribute)(int *value, int attribute, int device);
  /** cuDeviceTotalMem_v2 */
  slicepool_cuda_result(SLICEPOOL_CUDA_API *device_total_mem)(size_t *bytes, int device);
  /** cuMemGetInfo_v2 */
  slicepool_cuda_result(SLICEPOOL_CUDA_API *mem_get_info)(size_t *free_bytes, size_t *total_bytes);
  /** cuMemAlloc_v2 */
  slicepool_cuda_result(SLICEPOOL_CUDA_API *mem_alloc)(slicepool_cuda_pointer *memory, size_t bytes);
  /** cuMemFree_v2 */
  slicepool_cuda_result(SLICEPOOL_CUDA_API *mem_free)(slicepool_cuda_pointer memory);
  /** cuMemHostAlloc */
  slicepool_cuda_result(SLICEPOOL_CUDA_API *mem_host_alloc)(void **memory, size_t bytes, unsigned int flags);
  /** cuMemFreeHost */
  slicepool_cuda_result(SLICEPOOL_CUDA_API *mem_free_host)(void *memory);
  /** cuMemHostGetDevicePointer_v2 */
  slicepool_cuda_result(SLICEPOOL_CUDA_API *mem_host_get_device_pointer)(slicepool_cuda_pointer *address, void *memory,
                                                                         unsigned int flags);
  /** cuMemAllocManaged */
  slicepool_cuda_result(SLICEPOOL_CUDA_API *mem_alloc_managed)(slicepool_cuda_pointer *memory, size_t bytes,
                                                               unsigned int flags);
  /** cuMemsetD8Async */
  slicepool_cuda_result(SLICEPOOL_CUDA_API *memset_d8_async)(slicepool_cuda_pointer address, unsigned char value,
                                                             size_t bytes, void *stream);
  /** cuStreamSynchronize */
  slicepool_cuda_result(SLICEPOOL_CUDA_API *stream_synchronize)(void *stream);
  /**
   * cuInit. This and those below are not called by the adapter: they bring a program that has no cuda.h as far as a
   * context, and move its bytes. NULL where the driver has no such function.
   */
  slicepool_cuda_result(SLICEPOOL_CUDA_API *init)(unsigned int flags);
  /** cuDriverGetVersion */
  slicepool_cuda_result(SLICEPOOL_CUDA_API *driver_get_version)(int *version);
  /** cuDeviceGet */
  slicepool_cuda_result(SLICEPOOL_CUDA_API *device_get)(int *device, int ordinal);
  /** cuDeviceGetName */
  slicepool_cuda_result(SLICEPOOL_CUDA_API *device_get_name)(char *name, int bytes, int device);
  /** cuDevicePrimaryCtxRetain */
  slicepool_cuda_result(SLICEPOOL_CUDA_API *device_primary_ctx_retain)(void **context, int device);
  /** cuDevicePrimaryCtxRelease_v2; cuDevicePrimaryCtxRelease of drivers before CUDA 11 */
  slicepool_cuda_result(SLICEPOOL_CUDA_API *device_primary_ctx_release)(int device);
  /** cuGetErrorName */
  slicepool_cuda_result(SLICEPOOL_CUDA_API *get_error_name)(slicepool_cuda_result code, const char **name);
  /** cuMemcpyHtoD_v2 */
  slicepool_cuda_result(SLICEPOOL_CUDA_API *memcpy_htod)(slicepool_cuda_pointer to, const void *from, size_t bytes);
  /** cuMemcpyDtoH_v2 */
  slicepool_cuda_result(SLICEPOOL_CUDA_API *memcpy_dtoh)(void *to, slicepool_cuda_pointer from, size_t bytes);
  /** cuMemcpyDtoD_v2 */
  slicepool_cuda_result(SLICEPOOL_CUDA_API *memcpy_dtod)(slicepool_cuda_pointer to, slicepool_cuda_pointer from,
                                                         size_t bytes);
} slicepool_cuda_functions;

/** Finds a function of the driver by the name under which its library exports it, as dlsym() does; NULL: not there. */
typedef void *(*slicepool_cuda_getter)(void *user_data, const char *name);

/* Puts the function of a name where `function`, the address of a function pointer, points to; 0 if there is none. */
static inline int slicepool_cuda_find_(slicepool_cuda_getter getter, void *user_data, const char *name,
                                       void *function) {
  void *found = getter(user_data, name);
  /* Pointers to objects cannot be cast to pointers to functions, though they have the same bits wherever CUDA runs. */
  memcpy(function, &found, sizeof found);
  return found ? 1 : 0;
}

/**
 * Fills a table with the driver's functions.
 *
 * @param functions  filled in on success
 * @param getter     called once or twice for each
 * @param user_data  first argument of `getter`
 * @param missing    set to the name of the first required function that is not there, a static string, if that is so;
 *                   may be NULL
 * @return SLICEPOOL_ERROR_NOT_SUPPORTED if a required function is not there; SLICEPOOL_ERROR_INVALID_ARGUMENT
 *
 * Threads: any. Cost: some 25 calls of `getter`.
 */
static inline slicepool_result slicepool_cuda_load(slicepool_cuda_functions *functions, slicepool_cuda_getter getter,
                                                   void *user_data, const char **missing) {
  slicepool_cuda_functions found;
  const char *absent = SLICEPOOL_CUDA_NULL_;
  if (!functions || !getter) return SLICEPOOL_ERROR_INVALID_ARGUMENT;
#define SLICEPOOL_CUDA_REQUIRE_(field, name) \
  if (!slicepool_cuda_find_(getter, user_data, name, &found.field) && !absent) absent = name
  SLICEPOOL_CUDA_REQUIRE_(ctx_push_current, "cuCtxPushCurrent_v2");
  SLICEPOOL_CUDA_REQUIRE_(ctx_pop_current, "cuCtxPopCurrent_v2");
  SLICEPOOL_CUDA_REQUIRE_(ctx_get_device, "cuCtxGetDevice");
  SLICEPOOL_CUDA_REQUIRE_(device_get_attribute, "cuDeviceGetAttribute");
  SLICEPOOL_CUDA_REQUIRE_(device_total_mem, "cuDeviceTotalMem_v2");
  SLICEPOOL_CUDA_REQUIRE_(mem_get_info, "cuMemGetInfo_v2");
  SLICEPOOL_CUDA_REQUIRE_(mem_alloc, "cuMemAlloc_v2");
  SLICEPOOL_CUDA_REQUIRE_(mem_free, "cuMemFree_v2");
  SLICEPOOL_CUDA_REQUIRE_(mem_host_alloc, "cuMemHostAlloc");
  SLICEPOOL_CUDA_REQUIRE_(mem_free_host, "cuMemFreeHost");
  SLICEPOOL_CUDA_REQUIRE_(mem_host_get_device_pointer, "cuMemHostGetDevicePointer_v2");
  SLICEPOOL_CUDA_REQUIRE_(mem_alloc_managed, "cuMemAllocManaged");
  SLICEPOOL_CUDA_REQUIRE_(memset_d8_async, "cuMemsetD8Async");
  SLICEPOOL_CUDA_REQUIRE_(stream_synchronize, "cuStreamSynchronize");
#undef SLICEPOOL_CUDA_REQUIRE_
  slicepool_cuda_find_(getter, user_data, "cuInit", &found.init);
  slicepool_cuda_find_(getter, user_data, "cuDriverGetVersion", &found.driver_get_version);
  slicepool_cuda_find_(getter, user_data, "cuDeviceGet", &found.device_get);
  slicepool_cuda_find_(getter, user_data, "cuDeviceGetName", &found.device_get_name);
  slicepool_cuda_find_(getter, user_data, "cuDevicePrimaryCtxRetain", &found.device_primary_ctx_retain);
  if (!slicepool_cuda_find_(getter, user_data, "cuDevicePrimaryCtxRelease_v2", &found.device_primary_ctx_release))
    slicepool_cuda_find_(getter, user_data, "cuDevicePrimaryCtxRelease", &found.device_primary_ctx_release);
  slicepool_cuda_find_(getter, user_data, "cuGetErrorName", &found.get_error_name);
  slicepool_cuda_find_(getter, user_data, "cuMemcpyHtoD_v2", &found.memcpy_htod);
  slicepool_cuda_find_(getter, user_data, "cuMemcpyDtoH_v2", &found.memcpy_dtoh);
  slicepool_cuda_find_(getter, user_data, "cuMemcpyDtoD_v2", &found.memcpy_dtod);
  if (absent) {
    if (missing) *missing = absent;
    return SLICEPOOL_ERROR_NOT_SUPPORTED;
  }
  *functions = found;
  return SLICEPOOL_OK;
}

/* ------------------------------------------------------------------------------------------------------------------
 * Adapter
 * ------------------------------------------------------------------------------------------------------------------ */

/** Device memory. These bits are properties of memory types, and name the types for slicepool_cuda_init(). */
#define SLICEPOOL_CUDA_DEVICE 2

/** Pinned host memory, which the device sees too. */
#define SLICEPOOL_CUDA_HOST 4

/** Managed memory, which moves to whoever uses it. */
#define SLICEPOOL_CUDA_MANAGED 8

/**
 * In slicepool_cuda.flags: zeros are written by `stream`, and not waited for. Right where everything that uses such
 * slices runs on that stream, or waits for it: a slice with SLICEPOOL_REQUEST_SCRUB may be somebody else's before it
 * has been overwritten.
 */
#define SLICEPOOL_CUDA_FILL_NO_WAIT 1

/**
 * One CUDA context as a device of slicepool: `user_data` of the callbacks. Belongs to the caller, who sets it to all 0
 * before slicepool_cuda_init(), and keeps it where it is until the allocator is gone.
 */
typedef struct slicepool_cuda {
  /** The caller's. A callback that the program adds to the slicepool_device finds it here. */
  void *user_data;
  /**
   * The CUstream that writes zeros; NULL: the legacy default stream, which runs after everything that was launched
   * before on streams that are not CU_STREAM_NON_BLOCKING, and before everything that is launched on them later.
   */
  void *stream;
  /** SLICEPOOL_CUDA_FILL_ flags. */
  uint32_t flags;
  /**
   * Flags for cuMemHostAlloc() beside CU_MEMHOSTALLOC_PORTABLE and CU_MEMHOSTALLOC_DEVICEMAP:
   * SLICEPOOL_CUDA_HOST_WRITE_COMBINED or 0.
   */
  uint32_t host_flags;
  /**
   * The memory types, by positions; filled in by slicepool_cuda_init(), and read by slicepool_cuda_describe(): heap,
   * alignment, largest page, further properties may be changed between the two, the order may not.
   */
  slicepool_memory_type types[3];
  /** The heaps; likewise. `limit` is the caller's to set. */
  slicepool_heap heaps[2];
  /** What each of `types` is: SLICEPOOL_CUDA_DEVICE, HOST or MANAGED. */
  uint32_t kinds[3];
  /** Number of memory types. */
  uint32_t type_count;
  /** Number of heaps. */
  uint32_t heap_count;
  /** After slicepool_cuda_init() has failed with SLICEPOOL_ERROR_DEVICE_FAILED: the CUresult. */
  int32_t code;
  /** The context's CUdevice. */
  int device;
  /** 1 if the host may touch managed memory while the device runs something; otherwise 0. */
  uint32_t concurrent_managed;
  /** The CUcontext. */
  void *context;
  /** Copied from the caller. */
  slicepool_cuda_functions functions;
} slicepool_cuda;

/**
 * Makes the adapter's context current on this thread, above the one that is. What the callbacks below begin with; a
 * program may use it around calls of its own.
 *
 * @return a CUresult; if it is not 0, slicepool_cuda_leave() must not follow
 *
 * Threads: any. Cost: one call of the driver.
 */
static inline slicepool_cuda_result slicepool_cuda_enter(const slicepool_cuda *cuda) {
  return cuda->functions.ctx_push_current(cuda->context);
}

/**
 * Makes the context current again that was so before slicepool_cuda_enter().
 *
 * @return a CUresult
 *
 * Threads: that which entered. Cost: one call of the driver.
 */
static inline slicepool_cuda_result slicepool_cuda_leave(const slicepool_cuda *cuda) {
  void *context = SLICEPOOL_CUDA_NULL_;
  return cuda->functions.ctx_pop_current(&context);
}

/* What slicepool makes of a CUresult. */
static inline slicepool_result slicepool_cuda_result_(slicepool_cuda_result code) {
  if (code == SLICEPOOL_CUDA_SUCCESS) return SLICEPOOL_OK;
  if (code == SLICEPOOL_CUDA_ERROR_OUT_OF_MEMORY) return SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY;
  return SLICEPOOL_ERROR_DEVICE_FAILED;
}

/* Whether all required functions are there. */
static inline int slicepool_cuda_is_complete_(const slicepool_cuda_functions *f) {
  return f->ctx_push_current && f->ctx_pop_current && f->ctx_get_device && f->device_get_attribute &&
         f->device_total_mem && f->mem_get_info && f->mem_alloc && f->mem_free && f->mem_host_alloc &&
         f->mem_free_host && f->mem_host_get_device_pointer && f->mem_alloc_managed && f->memset_d8_async &&
         f->stream_synchronize;
}

/* What slicepool_cuda_init() asks the driver. */
typedef struct slicepool_cuda_facts_ {
  size_t bytes;
  int device;
  int texture_alignment;
  int integrated;
  int has_host;
  int has_managed;
  int concurrent_managed;
} slicepool_cuda_facts_;

/* Asks the device of the current context. */
static inline slicepool_cuda_result slicepool_cuda_ask_(const slicepool_cuda_functions *functions,
                                                        slicepool_cuda_facts_ *facts) {
  /* TEXTURE_ALIGNMENT, INTEGRATED, CAN_MAP_HOST_MEMORY, MANAGED_MEMORY, CONCURRENT_MANAGED_ACCESS */
  const int attributes[5] = {14, 18, 19, 83, 89};
  int values[5] = {0, 0, 0, 0, 0};
  slicepool_cuda_result code = functions->ctx_get_device(&facts->device);
  int i;
  if (code == SLICEPOOL_CUDA_SUCCESS) code = functions->device_total_mem(&facts->bytes, facts->device);
  for (i = 0; i < 5 && code == SLICEPOOL_CUDA_SUCCESS; i++)
    code = functions->device_get_attribute(&values[i], attributes[i], facts->device);
  facts->texture_alignment = values[0];
  facts->integrated = values[1];
  facts->has_host = values[2];
  facts->has_managed = values[3];
  facts->concurrent_managed = values[4];
  return code;
}

/* Appends a memory type. */
static inline void slicepool_cuda_add_type_(slicepool_cuda *cuda, uint32_t kind, uint32_t heap,
                                            int page_alignment) {
  const uint32_t host_visible = kind == SLICEPOOL_CUDA_DEVICE ? 0 : SLICEPOOL_MEMORY_TYPE_HOST_VISIBLE;
  slicepool_memory_type type;
  memset(&type, 0, sizeof type);
  type.struct_size = sizeof type;
  type.heap = heap;
  /* Where pointers have 32 bits, so have sizes. */
  type.max_page = sizeof(size_t) < 8 ? SIZE_MAX : 0;
  type.page_alignment = SLICEPOOL_CUDA_CAST_(uint64_t, page_alignment);
  type.properties = kind | host_visible;
  type.flags = host_visible;
  cuda->types[cuda->type_count] = type;
  cuda->kinds[cuda->type_count] = kind;
  cuda->type_count++;
}

/**
 * Describes a context's memory.
 *
 * @param cuda       all 0, but for what its first four fields may have; filled in on success
 * @param functions  copied
 * @param context    a CUcontext, of cuDevicePrimaryCtxRetain() or cuCtxCreate(); not the adapter's to destroy
 * @param kinds      the memory types that are wanted: SLICEPOOL_CUDA_DEVICE, HOST, MANAGED; 0: all. Those that the
 *                   device does not have are left out. In this order they are types 0, 1, 2
 * @return SLICEPOOL_ERROR_INVALID_ARGUMENT (NULL, unknown kinds, required functions that are NULL);
 *         SLICEPOOL_ERROR_NOT_SUPPORTED if the device has none of the types; SLICEPOOL_ERROR_DEVICE_FAILED: `code` has
 *         the CUresult, and nothing else has changed
 *
 * Threads: any. Cost: nine calls of the driver.
 */
static inline slicepool_result slicepool_cuda_init(slicepool_cuda *cuda, const slicepool_cuda_functions *functions,
                                                   void *context, uint32_t kinds) {
  const uint32_t all = SLICEPOOL_CUDA_DEVICE | SLICEPOOL_CUDA_HOST | SLICEPOOL_CUDA_MANAGED;
  slicepool_cuda_facts_ facts = {0, 0, 0, 0, 0, 0, 0};
  slicepool_cuda_result code, left;
  uint32_t host_heap;
  int alignment = 256;
  void *popped = SLICEPOOL_CUDA_NULL_;
  if (!cuda || !functions || !context || (kinds & ~all) != 0) return SLICEPOOL_ERROR_INVALID_ARGUMENT;
  if (!slicepool_cuda_is_complete_(functions)) return SLICEPOOL_ERROR_INVALID_ARGUMENT;
  code = functions->ctx_push_current(context);
  if (code == SLICEPOOL_CUDA_SUCCESS) {
    code = slicepool_cuda_ask_(functions, &facts);
    left = functions->ctx_pop_current(&popped);
    if (code == SLICEPOOL_CUDA_SUCCESS) code = left;
  }
  if (code != SLICEPOOL_CUDA_SUCCESS) {
    cuda->code = code;
    return SLICEPOOL_ERROR_DEVICE_FAILED;
  }
  if (kinds == 0) kinds = all;
  if (!facts.has_host) kinds &= ~SLICEPOOL_CUDA_CAST_(uint32_t, SLICEPOOL_CUDA_HOST);
  if (!facts.has_managed) kinds &= ~SLICEPOOL_CUDA_CAST_(uint32_t, SLICEPOOL_CUDA_MANAGED);
  if (kinds == 0) return SLICEPOOL_ERROR_NOT_SUPPORTED;

  cuda->functions = *functions;
  cuda->context = context;
  cuda->device = facts.device;
  cuda->concurrent_managed = facts.concurrent_managed != 0 ? 1 : 0;
  cuda->code = SLICEPOOL_CUDA_SUCCESS;
  memset(cuda->heaps, 0, sizeof cuda->heaps);
  cuda->heaps[0].struct_size = cuda->heaps[1].struct_size = sizeof cuda->heaps[0];
  cuda->heaps[0].size = facts.bytes;
  cuda->heap_count = facts.integrated ? 1 : 2;
  cuda->type_count = 0;
  /* What cuMemAlloc() gives may be bound to a texture where it begins: cuTexRefSetAddress() says so. */
  while (alignment < 65536 && alignment < facts.texture_alignment) alignment *= 2;
  host_heap = cuda->heap_count - 1;
  if (kinds & SLICEPOOL_CUDA_DEVICE) slicepool_cuda_add_type_(cuda, SLICEPOOL_CUDA_DEVICE, 0, alignment);
  if (kinds & SLICEPOOL_CUDA_HOST) slicepool_cuda_add_type_(cuda, SLICEPOOL_CUDA_HOST, host_heap, 256);
  if (kinds & SLICEPOOL_CUDA_MANAGED) slicepool_cuda_add_type_(cuda, SLICEPOOL_CUDA_MANAGED, 0, 256);
  return SLICEPOOL_OK;
}

/**
 * Sets memory_types, memory_type_count, heaps and heap_count of a config, which point into `cuda`.
 *
 * Threads: any. Cost: constant.
 */
static inline void slicepool_cuda_describe(const slicepool_cuda *cuda, slicepool_allocator_config *config) {
  config->memory_types = cuda->types;
  config->memory_type_count = cuda->type_count;
  config->heaps = cuda->heaps;
  config->heap_count = cuda->heap_count;
}

/* ------------------------------------------------------------------------------------------------------------------
 * Callbacks
 * ------------------------------------------------------------------------------------------------------------------ */

/* Gives memory of a kind back, with the context current. */
static inline slicepool_cuda_result slicepool_cuda_release_(const slicepool_cuda *cuda, uintptr_t kind,
                                                            uint64_t handle) {
  if (kind == SLICEPOOL_CUDA_HOST)
    return cuda->functions.mem_free_host(SLICEPOOL_CUDA_BITS_(void *, SLICEPOOL_CUDA_CAST_(uintptr_t, handle)));
  if (kind == SLICEPOOL_CUDA_DEVICE || kind == SLICEPOOL_CUDA_MANAGED)
    return cuda->functions.mem_free(SLICEPOOL_CUDA_CAST_(slicepool_cuda_pointer, handle));
  return SLICEPOOL_CUDA_ERROR_INVALID_VALUE;
}

/* Takes memory of a kind, with the context current. */
static inline slicepool_cuda_result slicepool_cuda_take_(const slicepool_cuda *cuda, uint32_t kind, size_t bytes,
                                                         slicepool_device_memory *memory) {
  slicepool_cuda_pointer address = 0;
  slicepool_cuda_result code = SLICEPOOL_CUDA_ERROR_INVALID_VALUE;
  void *mapped = SLICEPOOL_CUDA_NULL_;
  if (kind == SLICEPOOL_CUDA_DEVICE) {
    code = cuda->functions.mem_alloc(&address, bytes);
  } else if (kind == SLICEPOOL_CUDA_MANAGED) {
    code = cuda->functions.mem_alloc_managed(&address, bytes, 1); /* CU_MEM_ATTACH_GLOBAL */
    mapped = SLICEPOOL_CUDA_BITS_(void *, SLICEPOOL_CUDA_CAST_(uintptr_t, address));
  } else if (kind == SLICEPOOL_CUDA_HOST) {
    /* CU_MEMHOSTALLOC_PORTABLE, CU_MEMHOSTALLOC_DEVICEMAP */
    code = cuda->functions.mem_host_alloc(&mapped, bytes, 1u | 2u | cuda->host_flags);
    if (code == SLICEPOOL_CUDA_SUCCESS) {
      code = cuda->functions.mem_host_get_device_pointer(&address, mapped, 0);
      if (code != SLICEPOOL_CUDA_SUCCESS) cuda->functions.mem_free_host(mapped);
    }
  }
  if (code != SLICEPOOL_CUDA_SUCCESS) return code;
  memory->handle = kind == SLICEPOOL_CUDA_HOST ? SLICEPOOL_CUDA_BITS_(uintptr_t, mapped) : address;
  memory->address = address;
  memory->mapped = mapped;
  memory->context = SLICEPOOL_CUDA_BITS_(void *, SLICEPOOL_CUDA_CAST_(uintptr_t, kind));
  return SLICEPOOL_CUDA_SUCCESS;
}

/**
 * The callback `allocate`: takes a page of the memory type.
 *
 * `context` of the page becomes its kind, SLICEPOOL_CUDA_DEVICE, HOST or MANAGED, as a pointer. Memory of the program's
 * own that is adopted (slicepool_adopt()) goes back to the driver like any other if its context is that.
 *
 * @param user_data  the slicepool_cuda
 * @param request    what is asked for
 * @param memory     filled in on success; otherwise its device_code
 * @return SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY, SLICEPOOL_ERROR_DEVICE_FAILED
 *
 * Threads: any. Cost: three or four calls of the driver.
 */
static inline slicepool_result slicepool_cuda_allocate_page(void *user_data, const slicepool_page_request *request,
                                                            slicepool_device_memory *memory) {
  const slicepool_cuda *cuda = SLICEPOOL_CUDA_CAST_(const slicepool_cuda *, user_data);
  slicepool_device_memory taken = *memory;
  slicepool_cuda_result code, left;
  uint32_t kind;
  if (request->memory_type >= cuda->type_count) return SLICEPOOL_ERROR_DEVICE_FAILED;
  kind = cuda->kinds[request->memory_type];
  if (request->size > SIZE_MAX) {
    memory->device_code = SLICEPOOL_CUDA_ERROR_OUT_OF_MEMORY;
    return SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY;
  }
  code = slicepool_cuda_enter(cuda);
  if (code == SLICEPOOL_CUDA_SUCCESS) {
    code = slicepool_cuda_take_(cuda, kind, SLICEPOOL_CUDA_CAST_(size_t, request->size), &taken);
    left = slicepool_cuda_leave(cuda);
    if (code == SLICEPOOL_CUDA_SUCCESS && left != SLICEPOOL_CUDA_SUCCESS) {
      /* The driver is at its end: the thread is still in the context. */
      slicepool_cuda_release_(cuda, kind, taken.handle);
      code = left;
    }
  }
  if (code != SLICEPOOL_CUDA_SUCCESS) {
    memory->device_code = code;
    return slicepool_cuda_result_(code);
  }
  *memory = taken;
  return SLICEPOOL_OK;
}

/**
 * The callback `deallocate`: gives a page back.
 *
 * @param user_data  the slicepool_cuda
 * @param memory     what slicepool_cuda_allocate_page() filled in
 * @return SLICEPOOL_ERROR_DEVICE_FAILED: the driver has refused, and keeps the page
 *
 * Threads: any. Cost: three calls of the driver, one of which may wait for all that the device is doing.
 */
static inline slicepool_result slicepool_cuda_deallocate_page(void *user_data, const slicepool_device_memory *memory) {
  const slicepool_cuda *cuda = SLICEPOOL_CUDA_CAST_(const slicepool_cuda *, user_data);
  const uintptr_t kind = SLICEPOOL_CUDA_BITS_(uintptr_t, memory->context);
  slicepool_cuda_result code = slicepool_cuda_enter(cuda);
  if (code == SLICEPOOL_CUDA_SUCCESS) {
    code = slicepool_cuda_release_(cuda, kind, memory->handle);
    /* If this fails, the page is gone all the same. */
    slicepool_cuda_leave(cuda);
  }
  if (code == SLICEPOOL_CUDA_SUCCESS || code == SLICEPOOL_CUDA_ERROR_DEINITIALIZED) return SLICEPOOL_OK;
  return SLICEPOOL_ERROR_DEVICE_FAILED;
}

/**
 * The callback `fill`: writes zeros, of whatever memory type, and waits for that unless SLICEPOOL_CUDA_FILL_NO_WAIT.
 *
 * @param user_data  the slicepool_cuda
 * @param request    what is to be filled
 * @param point      stays as it is
 * @return SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY, SLICEPOOL_ERROR_DEVICE_FAILED
 *
 * Threads: any. Cost: four calls of the driver, one of which waits for the stream.
 */
static inline slicepool_result slicepool_cuda_fill(void *user_data, const slicepool_fill_request *request,
                                                   slicepool_point *point) {
  const slicepool_cuda *cuda = SLICEPOOL_CUDA_CAST_(const slicepool_cuda *, user_data);
  const slicepool_cuda_pointer address = SLICEPOOL_CUDA_CAST_(slicepool_cuda_pointer, request->address);
  slicepool_cuda_result code = slicepool_cuda_enter(cuda);
  slicepool_cuda_result left;
  (void)point;
  if (code != SLICEPOOL_CUDA_SUCCESS) return slicepool_cuda_result_(code);
  code = cuda->functions.memset_d8_async(address, 0, SLICEPOOL_CUDA_CAST_(size_t, request->size), cuda->stream);
  if (code == SLICEPOOL_CUDA_SUCCESS && (cuda->flags & SLICEPOOL_CUDA_FILL_NO_WAIT) == 0)
    code = cuda->functions.stream_synchronize(cuda->stream);
  left = slicepool_cuda_leave(cuda);
  return slicepool_cuda_result_(code != SLICEPOOL_CUDA_SUCCESS ? code : left);
}

/**
 * The callback `heap_budget`: of the device's memory, what of it is in use by all processes, and all there is. Of other
 * heaps nothing is known.
 *
 * @param user_data  the slicepool_cuda
 * @param heap       position of the heap
 * @param budget     filled in on success
 * @return SLICEPOOL_ERROR_NOT_SUPPORTED, SLICEPOOL_ERROR_DEVICE_FAILED
 *
 * Threads: any. Cost: three calls of the driver.
 */
static inline slicepool_result slicepool_cuda_heap_budget(void *user_data, uint32_t heap,
                                                          slicepool_heap_budget *budget) {
  const slicepool_cuda *cuda = SLICEPOOL_CUDA_CAST_(const slicepool_cuda *, user_data);
  size_t free_bytes = 0, total_bytes = 0;
  slicepool_cuda_result code, left;
  if (heap != 0) return SLICEPOOL_ERROR_NOT_SUPPORTED;
  code = slicepool_cuda_enter(cuda);
  if (code != SLICEPOOL_CUDA_SUCCESS) return SLICEPOOL_ERROR_DEVICE_FAILED;
  code = cuda->functions.mem_get_info(&free_bytes, &total_bytes);
  left = slicepool_cuda_leave(cuda);
  if (code != SLICEPOOL_CUDA_SUCCESS || left != SLICEPOOL_CUDA_SUCCESS) return SLICEPOOL_ERROR_DEVICE_FAILED;
  budget->usage = free_bytes < total_bytes ? total_bytes - free_bytes : 0;
  budget->budget = total_bytes;
  return SLICEPOOL_OK;
}

/**
 * Fills in a device with these callbacks: allocate, deallocate, fill, heap_budget. The others are NULL, and may be set
 * afterwards: `completed` by programs that free with slicepool_free_after(). Memory that the host sees comes mapped,
 * and is coherent.
 *
 * @param cuda    of slicepool_cuda_init(); becomes `user_data` of the device
 * @param device  filled in
 *
 * Threads: any. Cost: constant.
 */
static inline void slicepool_cuda_device(slicepool_cuda *cuda, slicepool_device *device) {
  memset(device, 0, sizeof *device);
  device->struct_size = sizeof *device;
  device->user_data = cuda;
  device->allocate = slicepool_cuda_allocate_page;
  device->deallocate = slicepool_cuda_deallocate_page;
  device->fill = slicepool_cuda_fill;
  device->heap_budget = slicepool_cuda_heap_budget;
}

#endif /* SLICEPOOL_CUDA_H */

/* ------------------------------------------------------------------------------------------------------------------
 * Opening the driver
 * ------------------------------------------------------------------------------------------------------------------ */

/*
 * Where SLICEPOOL_CUDA_OPEN is defined: not everybody wants <windows.h>, or to link with -ldl where the C library is
 * old. It may be defined for a later inclusion of this file than the first.
 */
#if defined(SLICEPOOL_CUDA_OPEN) && !defined(SLICEPOOL_CUDA_OPEN_H)
#define SLICEPOOL_CUDA_OPEN_H

#ifdef _WIN32
#include <windows.h>
#else
#include <dlfcn.h>
#endif

/* Finds a function in a library that is open. */
static inline void *slicepool_cuda_symbol_(void *library, const char *name) {
#ifdef _WIN32
  const FARPROC function = GetProcAddress(SLICEPOOL_CUDA_CAST_(HMODULE, library), name);
  void *found = SLICEPOOL_CUDA_NULL_;
  memcpy(&found, &function, sizeof found);
  return found;
#else
  return dlsym(library, name);
#endif
}

/**
 * Ends the use of a library. No function of its table may be called any more. The driver is best left open until the
 * process ends.
 *
 * @param library  of slicepool_cuda_open(); NULL is ignored
 *
 * Threads: any. Cost: one call of the loader.
 */
static inline void slicepool_cuda_close(void *library) {
  if (!library) return;
#ifdef _WIN32
  FreeLibrary(SLICEPOOL_CUDA_CAST_(HMODULE, library));
#else
  dlclose(library);
#endif
}

/**
 * Opens the driver's shared library and fills a table with its functions.
 *
 * @param functions  filled in on success
 * @param path       of the library; NULL: libcuda.so.1, or nvcuda.dll from the system's folder
 * @param library    set on success, for slicepool_cuda_close(); may be NULL: it stays open
 * @param missing    set to the name of a required function that the library does not have; to NULL if there is no such
 *                   library; otherwise left as it is; may be NULL
 * @return SLICEPOOL_ERROR_NOT_SUPPORTED if there is no such library, or a function is missing;
 *         SLICEPOOL_ERROR_INVALID_ARGUMENT
 *
 * Threads: any. Cost: loading the driver, which may take tenths of a second.
 */
static inline slicepool_result slicepool_cuda_open(slicepool_cuda_functions *functions, const char *path,
                                                   void **library, const char **missing) {
  slicepool_result result;
  void *opened;
  if (!functions) return SLICEPOOL_ERROR_INVALID_ARGUMENT;
#ifdef _WIN32
  /* LOAD_LIBRARY_SEARCH_SYSTEM32: not from wherever the program happens to be. */
  opened = !path ? LoadLibraryExA("nvcuda.dll", SLICEPOOL_CUDA_NULL_, 0x00000800) : LoadLibraryA(path);
#else
  opened = dlopen(!path ? "libcuda.so.1" : path, RTLD_NOW | RTLD_LOCAL);
#endif
  if (!opened) {
    if (missing) *missing = SLICEPOOL_CUDA_NULL_;
    return SLICEPOOL_ERROR_NOT_SUPPORTED;
  }
  result = slicepool_cuda_load(functions, slicepool_cuda_symbol_, opened, missing);
  if (result != SLICEPOOL_OK) {
    slicepool_cuda_close(opened);
  } else if (library) {
    *library = opened;
  }
  return result;
}

#endif /* SLICEPOOL_CUDA_OPEN */
