/* OpenCL, opened when the test runs, under watch: what is created, mapped and enqueued is counted until it is released,
 * and any one call can be made to fail. */
#ifndef WATCHED_OPENCL_H
#define WATCHED_OPENCL_H

#include "check.h"
#include "shorthand.h"
#include "slicepool_opencl.h"

#include <CL/cl_icd.h>
#include <dlfcn.h>

/* ---- OpenCL itself */

#define FUNCTIONS(X)                                                                                           \
  X(clGetPlatformIDs) X(clGetPlatformInfo) X(clGetDeviceIDs) X(clGetDeviceInfo) X(clCreateContext)              \
  X(clReleaseContext)                                                                                           \
  X(clCreateCommandQueue) X(clReleaseCommandQueue) X(clCreateProgramWithSource) X(clReleaseProgram)             \
  X(clBuildProgram) X(clCreateKernel) X(clReleaseKernel) X(clSetKernelArg) X(clSetKernelArgSVMPointer)          \
  X(clEnqueueNDRangeKernel) X(clEnqueueReadBuffer) X(clEnqueueWriteBuffer) X(clEnqueueFillBuffer) X(clFinish)   \
  X(clCreateBuffer) X(clReleaseMemObject) X(clGetMemObjectInfo) X(clEnqueueMapBuffer) X(clEnqueueUnmapMemObject)

static struct {
#define DECLARE(name) cl_api_##name name;
  FUNCTIONS(DECLARE)
#undef DECLARE
} cl;

static void *library = NULL;

static void *find_in_library(void *handle, const char *name) { return dlsym(handle, name); }

/* A device of PoCL, which has every kind of memory, or of the platform that SLICEPOOL_OPENCL_PLATFORM names a part of.
 * NULL if there is one, otherwise why there is none. */
static const char *open_opencl(slicepool_opencl_functions *functions, cl_device_id *device) {
  library = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) return "there is no libOpenCL.so.1";
#define FIND(name) \
  if (!slicepool_opencl_find(find_in_library, library, #name, &cl.name)) return "libOpenCL.so.1 has no " #name;
  FUNCTIONS(FIND)
#undef FIND
  if (slicepool_opencl_load(functions, find_in_library, library) != SLICEPOOL_OK) return "a function is missing";
  cl_platform_id platforms[16];
  cl_uint count = 0;
  if (cl.clGetPlatformIDs(16, platforms, &count) != CL_SUCCESS || count == 0) return "there is no platform";
  const char *wanted = getenv("SLICEPOOL_OPENCL_PLATFORM");
  if (wanted == NULL) wanted = "Portable Computing Language";
  for (cl_uint i = 0; i < count && i < 16; i++) {
    char name[256] = "";
    cl_uint devices = 0;
    if (cl.clGetPlatformInfo(platforms[i], CL_PLATFORM_NAME, sizeof name, name, NULL) != CL_SUCCESS) continue;
    if (strstr(name, wanted) == NULL) continue;
    if (cl.clGetDeviceIDs(platforms[i], CL_DEVICE_TYPE_ALL, 1, device, &devices) == CL_SUCCESS && devices != 0)
      return NULL;
  }
  return "there is no device of PoCL";
}

#define CL(call)                                                    \
  do {                                                              \
    const cl_int cl_code = (call);                                  \
    if (cl_code != CL_SUCCESS) FAIL("%s answers %d", #call, cl_code); \
  } while (0)

/* ---- the watch; counters may be changed by several threads */

#define COUNT_UP(counter) __atomic_add_fetch(&(counter), 1, __ATOMIC_RELAXED)
#define COUNT_DOWN(counter) __atomic_sub_fetch(&(counter), 1, __ATOMIC_RELAXED)

#define SET(field, value) __atomic_store_n(&(field), (value), __ATOMIC_RELAXED)

enum { SVM_PAGES = 64 };

static struct {
  slicepool_opencl_functions real;
  /* How it behaves. */
  uint64_t fail_at;   /* the how-manieth call fails, 0: none */
  cl_int fail_code;   /* with this */
  const char *fail_name; /* calls of this function fail; NULL: none */
  const char *failed; /* the last that was made to fail */
  bool is_discrete;   /* the device says that it does not share the host's memory */
  cl_device_info unknown; /* a query that the device does not know */
  cl_bitfield less_svm;   /* what it does not have of shared virtual memory */
  cl_uint align_bits; /* what the device says, 0: the truth */
  size_t move_map_by; /* mappings are so much further than they are */
  /* What it has seen. */
  uint64_t calls, failures, buffers_made, creations, svm_made, fills;
  uint64_t last_size;     /* of a buffer */
  cl_bitfield last_flags; /* of a page */
  uint64_t last_mapped;   /* bytes */
  /* What is out. */
  int64_t buffers, svm, mapped, events;
  void *svm_pages[SVM_PAGES];
} watch;

/* Whether this call is to fail. */
static bool fails(const char *name) {
  const bool by_name = watch.fail_name != NULL && strcmp(watch.fail_name, name) == 0;
  if (COUNT_UP(watch.calls) != watch.fail_at && !by_name) return false;
  COUNT_UP(watch.failures);
  SET(watch.failed, name);
  return true;
}

static cl_int CL_API_CALL watched_get_device_info(cl_device_id device, cl_device_info what, size_t size, void *value,
                                                  size_t *needed) {
  if (fails("clGetDeviceInfo")) return watch.fail_code;
  if (what == watch.unknown) return CL_INVALID_VALUE;
  const cl_int code = watch.real.clGetDeviceInfo(device, what, size, value, needed);
  if (what == CL_DEVICE_HOST_UNIFIED_MEMORY && watch.is_discrete) *(cl_bool *)value = CL_FALSE;
  if (what == CL_DEVICE_SVM_CAPABILITIES) *(cl_bitfield *)value &= ~watch.less_svm;
  if (what == CL_DEVICE_MEM_BASE_ADDR_ALIGN && watch.align_bits != 0) *(cl_uint *)value = watch.align_bits;
  return code;
}

static cl_mem CL_API_CALL watched_create_buffer(cl_context context, cl_mem_flags flags, size_t size, void *host,
                                                cl_int *code) {
  COUNT_UP(watch.creations);
  SET(watch.last_size, size);
  SET(watch.last_flags, flags);
  if (fails("clCreateBuffer")) {
    *code = watch.fail_code;
    return NULL;
  }
  const cl_mem made = watch.real.clCreateBuffer(context, flags, size, host, code);
  if (*code == CL_SUCCESS) {
    COUNT_UP(watch.buffers);
    COUNT_UP(watch.buffers_made);
  }
  return made;
}

static cl_mem CL_API_CALL watched_create_sub_buffer(cl_mem root, cl_mem_flags flags, cl_buffer_create_type type,
                                                    const void *region, cl_int *code) {
  if (fails("clCreateSubBuffer")) {
    *code = watch.fail_code;
    return NULL;
  }
  const cl_mem made = watch.real.clCreateSubBuffer(root, flags, type, region, code);
  if (*code == CL_SUCCESS) COUNT_UP(watch.buffers);
  return made;
}

/* Fails by name only: what a release that failed means nobody says. */
static cl_int CL_API_CALL watched_release_mem_object(cl_mem buffer) {
  if (watch.fail_name != NULL && strcmp(watch.fail_name, "clReleaseMemObject") == 0) return watch.fail_code;
  const cl_int code = watch.real.clReleaseMemObject(buffer);
  if (code == CL_SUCCESS) COUNT_DOWN(watch.buffers);
  return code;
}

static void *CL_API_CALL watched_map(cl_command_queue queue, cl_mem buffer, cl_bool blocking, cl_map_flags flags,
                                     size_t offset, size_t size, cl_uint count, const cl_event *list, cl_event *event,
                                     cl_int *code) {
  CHECK(event == NULL && blocking == CL_TRUE && flags == (CL_MAP_READ | CL_MAP_WRITE));
  if (fails("clEnqueueMapBuffer")) {
    *code = watch.fail_code;
    return NULL;
  }
  char *mapped = watch.real.clEnqueueMapBuffer(queue, buffer, blocking, flags, offset, size, count, list, event, code);
  if (*code != CL_SUCCESS) return NULL;
  SET(watch.last_mapped, size);
  CHECK_EQ(offset, 0);
  COUNT_UP(watch.mapped);
  return mapped + watch.move_map_by;
}

static cl_int CL_API_CALL watched_unmap(cl_command_queue queue, cl_mem buffer, void *mapped, cl_uint count,
                                        const cl_event *list, cl_event *event) {
  if (fails("clEnqueueUnmapMemObject")) return watch.fail_code;
  mapped = (char *)mapped - watch.move_map_by;
  const cl_int code = watch.real.clEnqueueUnmapMemObject(queue, buffer, mapped, count, list, event);
  if (code == CL_SUCCESS) {
    COUNT_DOWN(watch.mapped);
    COUNT_UP(watch.events);
  }
  return code;
}

static cl_int CL_API_CALL watched_fill(cl_command_queue queue, cl_mem buffer, const void *pattern, size_t pattern_size,
                                       size_t offset, size_t size, cl_uint count, const cl_event *list,
                                       cl_event *event) {
  if (fails("clEnqueueFillBuffer")) return watch.fail_code;
  COUNT_UP(watch.fills);
  const cl_int code =
      watch.real.clEnqueueFillBuffer(queue, buffer, pattern, pattern_size, offset, size, count, list, event);
  if (code == CL_SUCCESS) COUNT_UP(watch.events);
  return code;
}

/* What fails is the command that is waited for, here by this thread. */
static _Thread_local bool command_failed = false;

static cl_int CL_API_CALL watched_wait(cl_uint count, const cl_event *list) {
  const cl_int code = watch.real.clWaitForEvents(count, list);
  command_failed = fails("clWaitForEvents");
  return command_failed ? CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST : code;
}

static cl_int CL_API_CALL watched_get_event_info(cl_event event, cl_event_info what, size_t size, void *value,
                                                 size_t *needed) {
  CHECK(command_failed);
  CHECK_EQ(what, CL_EVENT_COMMAND_EXECUTION_STATUS);
  CHECK_EQ(size, sizeof(cl_int));
  if (fails("clGetEventInfo")) return CL_INVALID_EVENT;
  (void)event;
  (void)needed;
  *(cl_int *)value = watch.fail_code;
  return CL_SUCCESS;
}

static cl_int CL_API_CALL watched_release_event(cl_event event) {
  COUNT_DOWN(watch.events);
  return watch.real.clReleaseEvent(event);
}

static void *CL_API_CALL watched_svm_alloc(cl_context context, cl_bitfield flags, size_t size, cl_uint alignment) {
  SET(watch.last_flags, flags);
  if (fails("clSVMAlloc")) return NULL;
  void *svm = watch.real.clSVMAlloc(context, flags, size, alignment);
  if (svm == NULL) return NULL;
  int place = 0;
  while (watch.svm_pages[place] != NULL) CHECK(++place < SVM_PAGES);
  watch.svm_pages[place] = svm;
  COUNT_UP(watch.svm);
  COUNT_UP(watch.svm_made);
  return svm;
}

static void CL_API_CALL watched_svm_free(cl_context context, void *svm) {
  int place = 0;
  while (watch.svm_pages[place] != svm) CHECK(++place < SVM_PAGES);
  watch.svm_pages[place] = NULL;
  COUNT_DOWN(watch.svm);
  watch.real.clSVMFree(context, svm);
}

static cl_int CL_API_CALL watched_svm_map(cl_command_queue queue, cl_bool blocking, cl_map_flags flags, void *svm,
                                          size_t size, cl_uint count, const cl_event *list, cl_event *event) {
  CHECK(event == NULL && blocking == CL_TRUE && flags == (CL_MAP_READ | CL_MAP_WRITE));
  if (fails("clEnqueueSVMMap")) return watch.fail_code;
  const cl_int code = watch.real.clEnqueueSVMMap(queue, blocking, flags, svm, size, count, list, event);
  if (code != CL_SUCCESS) return code;
  SET(watch.last_mapped, size);
  COUNT_UP(watch.mapped);
  return code;
}

static cl_int CL_API_CALL watched_svm_unmap(cl_command_queue queue, void *svm, cl_uint count, const cl_event *list,
                                            cl_event *event) {
  if (fails("clEnqueueSVMUnmap")) return watch.fail_code;
  const cl_int code = watch.real.clEnqueueSVMUnmap(queue, svm, count, list, event);
  if (code == CL_SUCCESS) {
    COUNT_DOWN(watch.mapped);
    COUNT_UP(watch.events);
  }
  return code;
}

static cl_int CL_API_CALL watched_svm_fill(cl_command_queue queue, void *svm, const void *pattern, size_t pattern_size,
                                           size_t size, cl_uint count, const cl_event *list, cl_event *event) {
  if (fails("clEnqueueSVMMemFill")) return watch.fail_code;
  COUNT_UP(watch.fills);
  const cl_int code = watch.real.clEnqueueSVMMemFill(queue, svm, pattern, pattern_size, size, count, list, event);
  if (code == CL_SUCCESS) COUNT_UP(watch.events);
  return code;
}

static const slicepool_opencl_functions watched_functions = {
  watched_get_device_info, watched_create_buffer, watched_create_sub_buffer, watched_release_mem_object,
  watched_map,             watched_unmap,         watched_fill,              watched_wait,
  watched_get_event_info,  watched_release_event, watched_svm_alloc,         watched_svm_free,
  watched_svm_map,         watched_svm_unmap,     watched_svm_fill,
};

/* ---- a device, a queue, an allocator over them */

struct scene {
  cl_device_id id;
  cl_context context;
  cl_command_queue queue;
  cl_program program;
  cl_kernel kernel; /* NULL until it is needed */
  slicepool_opencl opencl;
  slicepool_device device;
  slicepool_allocator *allocator;
};

/* OpenCL with a context and a queue. */
static inline void open_scene(struct scene *scene) {
  memset(scene, 0, sizeof *scene);
  memset(&watch, 0, sizeof watch);
  const char *why = open_opencl(&watch.real, &scene->id);
  if (why != NULL) FAIL("%s", why);
  cl_int code = CL_SUCCESS;
  scene->context = cl.clCreateContext(NULL, 1, &scene->id, NULL, NULL, &code);
  CL(code);
  scene->queue = cl.clCreateCommandQueue(scene->context, scene->id, 0, &code);
  CL(code);
}

/* The adapter, without an allocator. */
static inline void init_scene(struct scene *scene, uint32_t flags) {
  open_scene(scene);
  scene->opencl.flags = flags;
  OK(slicepool_opencl_init(&scene->opencl, &watched_functions, scene->context, scene->id, scene->queue));
  slicepool_opencl_device(&scene->opencl, &scene->device);
}

/* An allocator of these pools, or the default ones if there are none. */
static inline void create_allocator(struct scene *scene, const slicepool_pool_options *pools, uint32_t count) {
  slicepool_allocator_config config = config_for(pools, count);
  slicepool_opencl_describe(&scene->opencl, &config);
  scene->allocator = create_of(&scene->device, config);
}

static inline void begin_scene(struct scene *scene, uint32_t flags) {
  init_scene(scene, flags);
  create_allocator(scene, NULL, 0);
}

/* Nothing is out any more. */
static inline void check_nothing_is_out(void) {
  CHECK_EQ(watch.buffers, 0);
  CHECK_EQ(watch.svm, 0);
  CHECK_EQ(watch.mapped, 0);
  CHECK_EQ(watch.events, 0);
}

static inline void close_scene(struct scene *scene) {
  check_nothing_is_out();
  if (scene->kernel != NULL) {
    CL(cl.clReleaseKernel(scene->kernel));
    CL(cl.clReleaseProgram(scene->program));
  }
  CL(cl.clReleaseCommandQueue(scene->queue));
  CL(cl.clReleaseContext(scene->context));
}

static inline void end_scene(struct scene *scene) {
  check_books(scene->allocator, NULL);
  CHECK_EQ(figures_of(scene->allocator).slices, 0);
  OK(slicepool_allocator_destroy(scene->allocator, 0, NULL));
  close_scene(scene);
}

/* ---- slices */

/* Properties that only one memory type has. */
#define SVM_COARSE (SLICEPOOL_OPENCL_SVM | SLICEPOOL_OPENCL_DEVICE)
#define SVM_FINE (SLICEPOOL_OPENCL_SVM | SLICEPOOL_OPENCL_MAPPED)

static inline slicepool_slice take_of(struct scene *scene, uint64_t size, uint32_t properties, uint32_t flags) {
  slicepool_request request;
  slicepool_slice slice = SLICEPOOL_SLICE_INIT;
  slicepool_opencl_request(&scene->opencl, size, properties, &request);
  request.flags |= flags;
  OK(slicepool_allocate(scene->allocator, &request, &slice));
  CHECK(slice.size >= size);
  CHECK_EQ(slice.address != 0, (properties & SLICEPOOL_OPENCL_SVM) != 0);
  return slice;
}

static inline void give_back(struct scene *scene, const slicepool_slice *slice) {
  OK(slicepool_free(scene->allocator, slice->id));
}

static inline uint32_t type_of(struct scene *scene, const slicepool_slice *slice) {
  slicepool_range range = SLICEPOOL_RANGE_INIT;
  OK(slicepool_find(scene->allocator, slice->memory, slice->offset, &range));
  return range.memory_type;
}

/* ---- words: the i-th word of a pattern is pattern + i */

static const char *const kernel_source =
    "kernel void write(global uint *memory, ulong first, uint pattern) {\n"
    "  size_t i = get_global_id(0);\n"
    "  memory[first + i] = pattern + (uint)i;\n"
    "}\n";

static inline cl_kernel kernel_of(struct scene *scene) {
  if (scene->kernel != NULL) return scene->kernel;
  cl_int code = CL_SUCCESS;
  const char *source = kernel_source;
  scene->program = cl.clCreateProgramWithSource(scene->context, 1, &source, NULL, &code);
  CL(code);
  CL(cl.clBuildProgram(scene->program, 1, &scene->id, "", NULL, NULL));
  scene->kernel = cl.clCreateKernel(scene->program, "write", &code);
  CL(code);
  return scene->kernel;
}

static inline void run_kernel(struct scene *scene, uint64_t offset, uint64_t size, uint32_t pattern) {
  const cl_ulong first = offset / 4;
  const size_t words = (size_t)size / 4;
  CL(cl.clSetKernelArg(scene->kernel, 1, sizeof first, &first));
  CL(cl.clSetKernelArg(scene->kernel, 2, sizeof pattern, &pattern));
  CL(cl.clEnqueueNDRangeKernel(scene->queue, scene->kernel, 1, NULL, &words, NULL, 0, NULL, NULL));
}

/* Writes a pattern to `size` bytes of a buffer by a kernel. */
static inline void write_words(struct scene *scene, cl_mem buffer, uint64_t offset, uint64_t size, uint32_t pattern) {
  CL(cl.clSetKernelArg(kernel_of(scene), 0, sizeof buffer, &buffer));
  run_kernel(scene, offset, size, pattern);
}

/* The same to a slice, through a sub-buffer. */
static inline void write_slice(struct scene *scene, const slicepool_slice *slice, uint32_t pattern) {
  cl_mem buffer = NULL;
  int32_t code = 1;
  OK(slicepool_opencl_sub_buffer(&scene->opencl, slice, 0, &buffer, &code));
  CHECK(buffer != NULL && code == CL_SUCCESS);
  write_words(scene, buffer, 0, slice->size, pattern);
  CL(watched_functions.clReleaseMemObject(buffer));
}

/* The same to shared virtual memory. */
static inline void write_svm(struct scene *scene, uint64_t address, uint64_t size, uint32_t pattern) {
  CL(cl.clSetKernelArgSVMPointer(kernel_of(scene), 0, (void *)(uintptr_t)address));
  run_kernel(scene, 0, size, pattern);
  CL(cl.clFinish(scene->queue));
}

static inline uint64_t wrong_among(const uint32_t *words, uint64_t size, uint32_t pattern) {
  uint64_t wrong = 0;
  for (uint32_t i = 0; i < size / 4; i++) wrong += words[i] != pattern + i;
  return wrong;
}

static inline void read_bytes(struct scene *scene, cl_mem buffer, uint64_t offset, uint64_t size, void *to) {
  CL(cl.clEnqueueReadBuffer(scene->queue, buffer, CL_TRUE, (size_t)offset, (size_t)size, to, 0, NULL, NULL));
}

/* Words of a slice that are not those of the pattern, read back from the root buffer. */
static inline uint64_t wrong_words(struct scene *scene, const slicepool_slice *slice, uint32_t pattern) {
  uint32_t *words = malloc((size_t)slice->size);
  CHECK(words != NULL);
  read_bytes(scene, slicepool_opencl_buffer(slice), slice->offset, slice->size, words);
  const uint64_t wrong = wrong_among(words, slice->size, pattern);
  free(words);
  return wrong;
}

/* Bytes of a root buffer that are not this one. */
static inline uint64_t other_bytes(struct scene *scene, cl_mem buffer, uint64_t offset, uint64_t size,
                                   unsigned char byte) {
  unsigned char *bytes = malloc((size_t)size);
  uint64_t others = 0;
  CHECK(bytes != NULL);
  read_bytes(scene, buffer, offset, size, bytes);
  for (uint64_t i = 0; i < size; i++) others += bytes[i] != byte;
  free(bytes);
  return others;
}

#endif
