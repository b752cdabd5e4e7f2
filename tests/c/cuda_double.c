/* A stand-in for the CUDA driver, as a shared object with its symbols: host memory that behaves as strictly as the
 * driver's documentation allows, counters, and calls that fail on demand.
 *
 * - Calls need cuInit(), and most of them a current context; every thread has a stack of contexts.
 * - Device pointers lie in a range of addresses where nothing can be read or written: the bytes are elsewhere. Pinned
 *   memory has a device pointer that is not its host pointer; managed memory has one address for both.
 * - Addresses are aligned as documented and no better: device memory to 512 bytes (its texture alignment), other memory
 *   to 256. New memory is full of garbage.
 * - cuMemsetD8Async() writes when its stream is waited for, not before. cuMemcpy...() and cuMemFree() wait for all.
 * - Memory is freed, filled and copied within the context that it was allocated in, and within its bounds.
 *
 * What tests ask and set has names that begin with cuda_double_. With CUDA_DOUBLE_PLAIN there is nothing of that, and
 * pinned memory has one address for both sides: as drivers are.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;

#define EXPORT __attribute__((visibility("default")))

enum {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_OUT_OF_MEMORY = 2,
  CUDA_ERROR_NOT_INITIALIZED = 3,
  CUDA_ERROR_INVALID_DEVICE = 101,
  CUDA_ERROR_INVALID_CONTEXT = 201,
  CUDA_ERROR_INVALID_HANDLE = 400,
  CUDA_ERROR_NOT_SUPPORTED = 801
};

enum kind { DEVICE = 1, HOST, MANAGED };

enum { STACK = 16, MEMORIES = 65536, FILLS = 256, CONTEXTS = 16, ATTRIBUTES = 128 };

#define GARBAGE 0xA5

struct CUctx_st {
  bool live, primary;
  uint32_t retained;
};

struct CUstream_st {
  CUcontext context;
};

struct memory {
  uint64_t address; /* as the device sees it */
  uint64_t size;
  unsigned char *bytes; /* where they are */
  void *block;          /* what is to be freed */
  enum kind kind;
  CUcontext context;
  unsigned int flags; /* of pinned memory */
};

struct fill {
  uint64_t address, size;
  unsigned char value;
  CUstream stream;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool initialized;
static uint64_t range, range_bytes; /* for device pointers */
static struct CUctx_st contexts[CONTEXTS];
static struct memory memories[MEMORIES]; /* sorted by address */
static size_t memory_count;
static struct fill fills[FILLS];
static size_t fill_count;
static uint64_t total = UINT64_C(8) << 30, used_by_others, calls, fail_in;
static int64_t stacked; /* contexts on the stacks of all threads */
static int fail_code;
static const char *failed;
static int attributes[ATTRIBUTES] = {
  [14] = 512, /* TEXTURE_ALIGNMENT */
  [19] = 1,   /* CAN_MAP_HOST_MEMORY */
  [41] = 1,   /* UNIFIED_ADDRESSING */
  [83] = 1,   /* MANAGED_MEMORY */
  [89] = 1,   /* CONCURRENT_MANAGED_ACCESS */
};

static __thread CUcontext stack[STACK];
static __thread int depth;

/* ---- what every call begins with */

/* Takes the lock, counts the call, and says whether it is to fail. */
static int begin(const char *name) {
  pthread_mutex_lock(&lock);
  calls++;
  if (fail_in != 0 && --fail_in == 0) {
    failed = name;
    return fail_code;
  }
  return initialized ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

static int begin_in_context(const char *name) {
  int code = begin(name);
  if (code != CUDA_SUCCESS) return code;
  return depth > 0 && stack[depth - 1]->live ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

static int end(int code) {
  pthread_mutex_unlock(&lock);
  return code;
}

/* ---- memory */

static uint64_t up(uint64_t value, uint64_t alignment) { return (value + alignment - 1) / alignment * alignment; }

static uint64_t used(void) {
  uint64_t bytes = used_by_others;
  for (size_t i = 0; i < memory_count; i++)
    if (memories[i].kind != HOST) bytes += memories[i].size;
  return bytes;
}

static void insert(struct memory memory) {
  size_t at = memory_count;
  while (at > 0 && memories[at - 1].address > memory.address) at--;
  memmove(&memories[at + 1], &memories[at], (memory_count - at) * sizeof *memories);
  memories[at] = memory;
  memory_count++;
}

/* The first gap of the range that is large enough, as drivers use addresses again. Neighbours may touch. */
static uint64_t find_address(uint64_t size) {
  uint64_t at = range + 512;
  for (size_t i = 0; i < memory_count; i++) {
    if (memories[i].address < range || memories[i].address >= range + range_bytes) continue;
    if (memories[i].address - at >= size && memories[i].address >= at) break;
    at = up(memories[i].address + memories[i].size, 512);
  }
  return at + size <= range + range_bytes ? at : 0;
}

/* The memory that has all of these bytes, in the current context. */
static struct memory *find(uint64_t address, uint64_t size) {
  for (size_t i = 0; i < memory_count; i++) {
    struct memory *memory = &memories[i];
    if (address >= memory->address && address - memory->address < memory->size)
      return size <= memory->size - (address - memory->address) && memory->context == stack[depth - 1] ? memory : NULL;
  }
  return NULL;
}

static unsigned char *bytes_at(uint64_t address, uint64_t size) {
  struct memory *memory = find(address, size);
  return memory == NULL ? NULL : memory->bytes + (address - memory->address);
}

static int take(enum kind kind, uint64_t size, unsigned int flags, struct memory *taken) {
  if (size == 0) return CUDA_ERROR_INVALID_VALUE;
  if (memory_count == MEMORIES || size > total) return CUDA_ERROR_OUT_OF_MEMORY;
  if (kind != HOST && used() + size > total) return CUDA_ERROR_OUT_OF_MEMORY;
  unsigned char *block = malloc(size + 768);
  if (block == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  /* At 256 bytes behind a multiple of 512. */
  unsigned char *bytes = (unsigned char *)(up((uintptr_t)block, 512) + 256);
#ifdef CUDA_DOUBLE_PLAIN
  const bool shared = kind != DEVICE;
#else
  const bool shared = kind == MANAGED;
#endif
  uint64_t address = shared ? (uintptr_t)bytes : find_address(size);
  if (address == 0) {
    free(block);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  memset(bytes, GARBAGE, size < 8u << 20 ? size : 8u << 20);
  struct memory memory = { address, size, bytes, block, kind, stack[depth - 1], flags };
  insert(memory);
  *taken = memory;
  return CUDA_SUCCESS;
}

/* Does what has been put off: of one stream, or of all. */
static void do_fills(bool all, CUstream stream) {
  size_t left = 0;
  for (size_t i = 0; i < fill_count; i++) {
    if (!all && fills[i].stream != stream) {
      fills[left++] = fills[i];
      continue;
    }
    for (size_t m = 0; m < memory_count; m++) {
      if (fills[i].address - memories[m].address < memories[m].size)
        memset(memories[m].bytes + (fills[i].address - memories[m].address), fills[i].value, fills[i].size);
    }
  }
  fill_count = left;
}

static void forget(size_t at) {
  free(memories[at].block);
  memory_count--;
  memmove(&memories[at], &memories[at + 1], (memory_count - at) * sizeof *memories);
}

static int give_back(uint64_t address, bool host) {
  for (size_t i = 0; i < memory_count; i++) {
    bool is_it = host ? (uintptr_t)memories[i].bytes == address : memories[i].address == address;
    if (!is_it || (memories[i].kind == HOST) != host || memories[i].context != stack[depth - 1]) continue;
    do_fills(true, NULL);
    forget(i);
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

/* ---- the driver: start, devices, contexts */

EXPORT CUresult cuInit(unsigned int flags) {
  int code = begin(__func__);
  if (code != CUDA_SUCCESS && code != CUDA_ERROR_NOT_INITIALIZED) return end(code);
  if (!initialized) {
    void *reserved = MAP_FAILED;
    range_bytes = UINT64_C(128) << 30;
    while (reserved == MAP_FAILED && range_bytes > 1u << 28) { /* Some tools leave programs less room. */
      range_bytes /= 2;
      reserved = mmap(NULL, range_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    }
    initialized = reserved != MAP_FAILED;
    range = (uintptr_t)reserved;
  }
  return end(flags == 0 && initialized ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

EXPORT CUresult cuDriverGetVersion(int *version) {
  *version = 12090;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal) {
  int code = begin(__func__);
  if (code == CUDA_SUCCESS) {
    if (ordinal == 0) *device = 0;
    else code = CUDA_ERROR_INVALID_DEVICE;
  }
  return end(code);
}

EXPORT CUresult cuDeviceGetName(char *name, int bytes, CUdevice device) {
  int code = begin(__func__);
  if (code == CUDA_SUCCESS) {
    if (device == 0 && bytes > 0) snprintf(name, (size_t)bytes, "%s", "no GPU: host memory that stands in for one");
    else code = CUDA_ERROR_INVALID_DEVICE;
  }
  return end(code);
}

EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
  int code = begin(__func__);
  if (code == CUDA_SUCCESS) {
    if (device == 0) *bytes = total;
    else code = CUDA_ERROR_INVALID_DEVICE;
  }
  return end(code);
}

EXPORT CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
  int code = begin(__func__);
  if (code == CUDA_SUCCESS) {
    if (device != 0) code = CUDA_ERROR_INVALID_DEVICE;
    else if (attribute < 0 || attribute >= ATTRIBUTES) code = CUDA_ERROR_INVALID_VALUE;
    else *value = attributes[attribute];
  }
  return end(code);
}

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
  int code = begin(__func__);
  if (code == CUDA_SUCCESS) {
    if (device != 0) {
      code = CUDA_ERROR_INVALID_DEVICE;
    } else {
      contexts[0].live = contexts[0].primary = true;
      contexts[0].retained++;
      *context = &contexts[0];
    }
  }
  return end(code);
}

/* Memory goes with its context. */
static void end_context(CUcontext context) {
  context->live = false;
  do_fills(true, NULL);
  for (size_t i = memory_count; i > 0; i--)
    if (memories[i - 1].context == context) forget(i - 1);
}

EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  int code = begin(__func__);
  if (code == CUDA_SUCCESS) {
    if (device != 0) code = CUDA_ERROR_INVALID_DEVICE;
    else if (contexts[0].retained == 0) code = CUDA_ERROR_INVALID_CONTEXT;
    else if (--contexts[0].retained == 0) end_context(&contexts[0]);
  }
  return end(code);
}

static int push(CUcontext context) {
  if (context < contexts || context >= contexts + CONTEXTS || !context->live) return CUDA_ERROR_INVALID_CONTEXT;
  if (depth == STACK) return CUDA_ERROR_INVALID_VALUE;
  stack[depth++] = context;
  stacked++;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device) {
  (void)flags;
  int code = begin(__func__);
  if (code == CUDA_SUCCESS) {
    size_t at = 1;
    while (at < CONTEXTS && contexts[at].live) at++;
    if (device != 0) {
      code = CUDA_ERROR_INVALID_DEVICE;
    } else if (at == CONTEXTS) {
      code = CUDA_ERROR_OUT_OF_MEMORY;
    } else {
      contexts[at].live = true;
      *context = &contexts[at];
      code = push(&contexts[at]);
    }
  }
  return end(code);
}

EXPORT CUresult cuCtxDestroy_v2(CUcontext context) {
  int code = begin(__func__);
  if (code == CUDA_SUCCESS) {
    if (context <= contexts || context >= contexts + CONTEXTS || !context->live) {
      code = CUDA_ERROR_INVALID_CONTEXT;
    } else {
      end_context(context);
      if (depth > 0 && stack[depth - 1] == context) {
        depth--;
        stacked--;
      }
    }
  }
  return end(code);
}

EXPORT CUresult cuCtxPushCurrent_v2(CUcontext context) {
  int code = begin(__func__);
  if (code == CUDA_SUCCESS) code = push(context);
  return end(code);
}

EXPORT CUresult cuCtxPopCurrent_v2(CUcontext *context) {
  int code = begin(__func__);
  if (code == CUDA_SUCCESS) {
    if (depth == 0) {
      code = CUDA_ERROR_INVALID_CONTEXT;
    } else {
      depth--;
      stacked--;
      if (context != NULL) *context = stack[depth];
    }
  }
  return end(code);
}

EXPORT CUresult cuCtxGetCurrent(CUcontext *context) {
  int code = begin(__func__);
  if (code == CUDA_SUCCESS) *context = depth == 0 ? NULL : stack[depth - 1];
  return end(code);
}

EXPORT CUresult cuCtxGetDevice(CUdevice *device) {
  int code = begin_in_context(__func__);
  if (code == CUDA_SUCCESS) *device = 0;
  return end(code);
}

EXPORT CUresult cuCtxSynchronize(void) {
  int code = begin_in_context(__func__);
  if (code == CUDA_SUCCESS) do_fills(true, NULL);
  return end(code);
}

EXPORT CUresult cuStreamCreate(CUstream *stream, unsigned int flags) {
  (void)flags;
  int code = begin_in_context(__func__);
  if (code == CUDA_SUCCESS) {
    *stream = malloc(sizeof **stream);
    if (*stream == NULL) code = CUDA_ERROR_OUT_OF_MEMORY;
    else (*stream)->context = stack[depth - 1];
  }
  return end(code);
}

EXPORT CUresult cuStreamDestroy_v2(CUstream stream) {
  int code = begin_in_context(__func__);
  if (code == CUDA_SUCCESS) {
    if (stream == NULL || stream->context != stack[depth - 1]) {
      code = CUDA_ERROR_INVALID_HANDLE;
    } else {
      do_fills(false, stream);
      free(stream);
    }
  }
  return end(code);
}

EXPORT CUresult cuStreamSynchronize(CUstream stream) {
  int code = begin_in_context(__func__);
  if (code == CUDA_SUCCESS) {
    if (stream != NULL && stream->context != stack[depth - 1]) code = CUDA_ERROR_INVALID_HANDLE;
    else do_fills(false, stream);
  }
  return end(code);
}

/* ---- the driver: memory */

EXPORT CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes) {
  int code = begin_in_context(__func__);
  if (code == CUDA_SUCCESS) {
    *free_bytes = used() < total ? total - used() : 0;
    *total_bytes = total;
  }
  return end(code);
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t size) {
  int code = begin_in_context(__func__);
  if (code == CUDA_SUCCESS) {
    struct memory memory;
    code = take(DEVICE, size, 0, &memory);
    if (code == CUDA_SUCCESS) *address = memory.address;
  }
  return end(code);
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr address) {
  int code = begin_in_context(__func__);
  if (code == CUDA_SUCCESS) code = give_back(address, false);
  return end(code);
}

EXPORT CUresult cuMemHostAlloc(void **host, size_t size, unsigned int flags) {
  int code = begin_in_context(__func__);
  if (code == CUDA_SUCCESS) {
    struct memory memory;
    /* Portable and mapped: others are of no use to the adapter. */
    code = (flags & ~4u) == 3 ? take(HOST, size, flags, &memory) : CUDA_ERROR_INVALID_VALUE;
    if (code == CUDA_SUCCESS) *host = memory.bytes;
  }
  return end(code);
}

EXPORT CUresult cuMemFreeHost(void *host) {
  int code = begin_in_context(__func__);
  if (code == CUDA_SUCCESS) code = give_back((uintptr_t)host, true);
  return end(code);
}

EXPORT CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *address, void *host, unsigned int flags) {
  int code = begin_in_context(__func__);
  if (code == CUDA_SUCCESS) {
    code = CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; flags == 0 && i < memory_count; i++) {
      if (memories[i].kind != HOST || memories[i].bytes != host) continue;
      *address = memories[i].address;
      code = CUDA_SUCCESS;
    }
  }
  return end(code);
}

EXPORT CUresult cuMemHostGetFlags(unsigned int *flags, void *host) {
  int code = begin_in_context(__func__);
  if (code == CUDA_SUCCESS) {
    code = CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < memory_count; i++) {
      if (memories[i].kind != HOST || memories[i].bytes != host) continue;
      *flags = memories[i].flags;
      code = CUDA_SUCCESS;
    }
  }
  return end(code);
}

EXPORT CUresult cuMemAllocManaged(CUdeviceptr *address, size_t size, unsigned int flags) {
  int code = begin_in_context(__func__);
  if (code == CUDA_SUCCESS) {
    struct memory memory;
    if (attributes[83] == 0) return end(CUDA_ERROR_NOT_SUPPORTED);
    code = flags == 1 ? take(MANAGED, size, 0, &memory) : CUDA_ERROR_INVALID_VALUE;
    if (code == CUDA_SUCCESS) *address = memory.address;
  }
  return end(code);
}

EXPORT CUresult cuMemsetD8Async(CUdeviceptr address, unsigned char value, size_t size, CUstream stream) {
  int code = begin_in_context(__func__);
  if (code == CUDA_SUCCESS) {
    if (bytes_at(address, size) == NULL) {
      code = CUDA_ERROR_INVALID_VALUE;
    } else if (stream != NULL && stream->context != stack[depth - 1]) {
      code = CUDA_ERROR_INVALID_HANDLE;
    } else {
      if (fill_count == FILLS) do_fills(true, NULL);
      struct fill fill = { address, size, value, stream };
      fills[fill_count++] = fill;
    }
  }
  return end(code);
}

EXPORT CUresult cuMemsetD8_v2(CUdeviceptr address, unsigned char value, size_t size) {
  return cuMemsetD8Async(address, value, size, NULL);
}

EXPORT CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t size) {
  int code = begin_in_context(__func__);
  if (code == CUDA_SUCCESS) {
    unsigned char *bytes = bytes_at(to, size);
    do_fills(true, NULL);
    if (bytes == NULL) code = CUDA_ERROR_INVALID_VALUE;
    else memcpy(bytes, from, size);
  }
  return end(code);
}

EXPORT CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t size) {
  int code = begin_in_context(__func__);
  if (code == CUDA_SUCCESS) {
    unsigned char *bytes = bytes_at(from, size);
    do_fills(true, NULL);
    if (bytes == NULL) code = CUDA_ERROR_INVALID_VALUE;
    else memcpy(to, bytes, size);
  }
  return end(code);
}

EXPORT CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t size) {
  int code = begin_in_context(__func__);
  if (code == CUDA_SUCCESS) {
    unsigned char *target = bytes_at(to, size);
    unsigned char *source = bytes_at(from, size);
    do_fills(true, NULL);
    if (target == NULL || source == NULL) code = CUDA_ERROR_INVALID_VALUE;
    else memmove(target, source, size);
  }
  return end(code);
}

EXPORT CUresult cuGetErrorName(CUresult code, const char **name) {
  static const struct {
    CUresult code;
    const char *name;
  } names[] = {
    { CUDA_SUCCESS, "CUDA_SUCCESS" },
    { CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE" },
    { CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY" },
    { CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED" },
    { CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT" },
  };
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    if (names[i].code != code) continue;
    *name = names[i].name;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

/* ---- for tests */

#ifndef CUDA_DOUBLE_PLAIN

EXPORT uint64_t cuda_double_pages(void);
EXPORT uint64_t cuda_double_bytes(void);
EXPORT uint64_t cuda_double_calls(void);
EXPORT int64_t cuda_double_stacked(void);
EXPORT void cuda_double_fail(uint64_t call, int code);
EXPORT const char *cuda_double_failed(void);
EXPORT void cuda_double_total(uint64_t bytes, uint64_t of_others);
EXPORT void cuda_double_attribute(int attribute, int value);

/* Allocations that are live. */
uint64_t cuda_double_pages(void) { return memory_count; }

/* Their bytes. */
uint64_t cuda_double_bytes(void) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < memory_count; i++) bytes += memories[i].size;
  return bytes;
}

/* Calls ever made. */
uint64_t cuda_double_calls(void) { return calls; }

/* Contexts on the stacks of all threads. */
int64_t cuda_double_stacked(void) { return stacked; }

/* The call with this number, counted from 1, fails with this code and does nothing; 0: none. */
void cuda_double_fail(uint64_t call, int code) {
  fail_in = call;
  fail_code = code;
  failed = NULL;
}

/* Name of the function that has failed since then; NULL if there have not been so many calls. */
const char *cuda_double_failed(void) { return failed; }

/* Bytes of the device, and those of them that others use. */
void cuda_double_total(uint64_t bytes, uint64_t of_others) {
  total = bytes;
  used_by_others = of_others;
}

void cuda_double_attribute(int attribute, int value) { attributes[attribute] = value; }

#endif
