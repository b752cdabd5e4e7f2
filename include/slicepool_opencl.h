/*
 * slicepool for OpenCL: a device whose pages are buffers (cl_mem) or shared virtual memory of one OpenCL device.
 *
 * A page is one clCreateBuffer(), the ROOT buffer. A slice is a range of it: slice.memory names the root buffer and
 * slice.offset counts from its start. OpenCL has no sub-buffers of sub-buffers, so slices are none; a kernel gets a
 * slice in one of two ways:
 *
 * - slicepool_opencl_sub_buffer() makes a cl_mem of the slice, to be released before the slice is freed. The slice's
 *   offset has to be a multiple of the device's CL_DEVICE_MEM_BASE_ADDR_ALIGN, which slicepool_opencl_request() asks
 *   for.
 * - The kernel takes the root buffer and an offset, as copies, fills and reads do: clEnqueueReadBuffer(queue,
 *   slicepool_opencl_buffer(&slice), CL_TRUE, slice.offset, size, ...).
 *
 * @code
 * static slicepool_result run(cl_context context, cl_device_id id, cl_command_queue queue, cl_kernel kernel) {
 *   slicepool_opencl_functions functions;
 *   static slicepool_opencl opencl; // zero; stays where it is until the allocator is gone
 *   slicepool_device device = SLICEPOOL_DEVICE_INIT;
 *   slicepool_allocator_config config = SLICEPOOL_ALLOCATOR_CONFIG_INIT;
 *   slicepool_allocator *allocator = NULL;
 *   slicepool_request request = SLICEPOOL_REQUEST_INIT;
 *   slicepool_slice slice = SLICEPOOL_SLICE_INIT;
 *   cl_mem buffer = NULL;
 *   slicepool_result result;
 *   SLICEPOOL_OPENCL_LINKED(&functions); // or slicepool_opencl_load(&functions, getter, user)
 *   result = slicepool_opencl_init(&opencl, &functions, context, id, queue);
 *   if (result != SLICEPOOL_OK) return result; // opencl.code has OpenCL's own
 *   slicepool_opencl_device(&opencl, &device);
 *   slicepool_opencl_describe(&opencl, &config);
 *   result = slicepool_allocator_create(&device, &config, &allocator);
 *   if (result != SLICEPOOL_OK) return result;
 *   slicepool_opencl_request(&opencl, 1 << 20, SLICEPOOL_OPENCL_DEVICE, &request);
 *   result = slicepool_allocate(allocator, &request, &slice);
 *   if (result == SLICEPOOL_OK) result = slicepool_opencl_sub_buffer(&opencl, &slice, 0, &buffer, NULL);
 *   if (result == SLICEPOOL_OK) {
 *     clSetKernelArg(kernel, 0, sizeof buffer, &buffer);
 *     // ... enqueue, and wait until the device is done with the slice ...
 *     clReleaseMemObject(buffer);
 *   }
 *   slicepool_free(allocator, slice.id); // 0, if there is none, is ignored
 *   slicepool_allocator_destroy(allocator, 0, NULL);
 *   return result;
 * }
 * @endcode
 *
 * MEMORY TYPES, by position; requests choose by the SLICEPOOL_OPENCL_ properties:
 *
 *     0  buffers of the device                                DEVICE BUFFER
 *     1  buffers in memory that the host reaches              HOST BUFFER, and DEVICE if the host's memory is its own
 *        (CL_MEM_ALLOC_HOST_PTR)
 *     2  coarse-grain shared virtual memory                   HOST DEVICE SVM
 *     3  fine-grain shared virtual memory, mapped for good    HOST SVM MAPPED, and DEVICE as above
 *
 * Types 2 and 3 are there with SLICEPOOL_OPENCL_FLAG_SVM and a device that has them. A request that names no property
 * goes to type 0, and to the next ones where that has no memory left; slicepool_opencl_request() keeps those that want
 * buffers out of shared virtual memory, whose slices name no cl_mem.
 *
 * HEAPS. Heap 0 is the device's memory, of CL_DEVICE_GLOBAL_MEM_SIZE. Where the device does not share the host's memory
 * (CL_DEVICE_HOST_UNIFIED_MEMORY), types 1 and 3 are of heap 1, whose size OpenCL does not tell (0: not known).
 * CL_DEVICE_GLOBAL_MEM_SIZE is what the device has, not what is left: others use it too, and OpenCL 1.2 to 3.0 have no
 * query for that. Set `limit` or `size` of `heaps` before slicepool_opencl_describe() to hold less.
 *
 * MAPPING. slicepool_map() maps whole pages, for reading and writing. While a region is mapped, OpenCL leaves undefined
 * what a kernel or another command that writes there does, or that reads what the host may write: so until
 * slicepool_unmap() the device must use no slice of that page, and no request with SLICEPOOL_REQUEST_ZERO or
 * SLICEPOOL_REQUEST_SCRUB should come to the page (type 3 is free of all that). That fits staging memory with a pool of
 * its own, and one thread at a time: while another thread's mapping of the page lasts, slicepool_unmap() only counts.
 * To map one slice and leave its neighbours to the device, call clEnqueueMapBuffer() with the root buffer, slice.offset
 * and slice.size yourself, and clEnqueueUnmapMemObject(). Pages of type 0 can be mapped too, but then many drivers copy
 * them as a whole, to the host and back: clEnqueueReadBuffer() and clEnqueueWriteBuffer() copy what is needed.
 *
 * SHARED VIRTUAL MEMORY. The handle of a page is its pointer, and slice.address is where the slice lies, for host and
 * device: clSetKernelArgSVMPointer(kernel, 0, (void *)(uintptr_t)slice.address). A kernel that reaches a slice through
 * another pointer has to be told of its page (CL_KERNEL_EXEC_INFO_SVM_PTRS). There is no cl_mem: of several made with
 * CL_MEM_USE_HOST_PTR over one region OpenCL leaves the use undefined.
 *
 * ALIGNMENT. That of a request concerns the offset from the start of the root buffer. Where that lies nobody says: it
 * is aligned for every type of OpenCL C (128 bytes for a long16), and kernels may rely on no more, whatever the offset.
 * Shared virtual memory is aligned as asked, as far as its type allows: raise types[].page_alignment before
 * slicepool_opencl_describe() for more than the usual.
 *
 * OWNERSHIP. slicepool_opencl belongs to the caller, begins zeroed and stays where it is until the allocator is
 * destroyed. It retains neither context nor device nor queue: they outlive the allocator, and the library that the
 * functions are in stays loaded. The struct's layout does not depend on CL_TARGET_OPENCL_VERSION.
 *
 * THREADS. Callbacks only read slicepool_opencl and call what OpenCL lets any thread call. What is enqueued is waited
 * for: in a queue that keeps its order, behind everything that was enqueued before. Give the adapter a queue of its own
 * if that is too long, and always if commands in it wait for user events that the waiting thread sets.
 *
 * FREEING. clReleaseMemObject() lets commands that are under way finish, clSVMFree() does not; and slices of pages that
 * stay are used again at once in either case. Free what the device may still use with slicepool_free_after().
 *
 * LAZY DRIVERS take memory for a buffer when it is first used, so that running out of it shows there. With
 * SLICEPOOL_OPENCL_FLAG_RESIDENT a byte of each page is written before it counts as allocated.
 *
 * LEFT OUT: several devices of one context with different limits (set `alignment` to the largest, and max_page of the
 * types to the smallest); images; fine-grain system SVM, for which every host pointer will do; completed points, which
 * a program knows from its own events; slicepool_page_request.device_data, which is ignored.
 *
 * NEEDS OpenCL 1.2 or newer, at compile time and of the device. CL_TARGET_OPENCL_VERSION is yours to define; 300 if you
 * do not. Links with nothing.
 */

#ifndef SLICEPOOL_OPENCL_H
#define SLICEPOOL_OPENCL_H

#ifndef CL_TARGET_OPENCL_VERSION
#define CL_TARGET_OPENCL_VERSION 300
#endif

#ifdef __APPLE__
#include <OpenCL/cl.h>
#else
#include <CL/cl.h>
#endif

#ifndef CL_VERSION_1_2
#error "slicepool_opencl.h needs the headers of OpenCL 1.2, and a CL_TARGET_OPENCL_VERSION of at least 120"
#endif

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "slicepool.h"

#if defined(__cplusplus) && defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wold-style-cast"
#pragma GCC diagnostic ignored "-Wzero-as-null-pointer-constant"
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wuseless-cast" /* those that are useless on one machine */
#endif
#endif

/* ------------------------------------------------------------------------------------------------------------------
 * Entry points
 * ------------------------------------------------------------------------------------------------------------------ */

/**
 * OpenCL's entry points, by their names. Those of shared virtual memory may be NULL (OpenCL 1.2); without one of them
 * there is no such memory.
 */
typedef struct slicepool_opencl_functions {
  /** Required, as all up to clSVMAlloc. */
  cl_int(CL_API_CALL *clGetDeviceInfo)(cl_device_id, cl_device_info, size_t, void *, size_t *);
  cl_mem(CL_API_CALL *clCreateBuffer)(cl_context, cl_mem_flags, size_t, void *, cl_int *);
  cl_mem(CL_API_CALL *clCreateSubBuffer)(cl_mem, cl_mem_flags, cl_buffer_create_type, const void *, cl_int *);
  cl_int(CL_API_CALL *clReleaseMemObject)(cl_mem);
  void *(CL_API_CALL *clEnqueueMapBuffer)(cl_command_queue, cl_mem, cl_bool, cl_map_flags, size_t, size_t, cl_uint,
                                          const cl_event *, cl_event *, cl_int *);
  cl_int(CL_API_CALL *clEnqueueUnmapMemObject)(cl_command_queue, cl_mem, void *, cl_uint, const cl_event *, cl_event *);
  cl_int(CL_API_CALL *clEnqueueFillBuffer)(cl_command_queue, cl_mem, const void *, size_t, size_t, size_t, cl_uint,
                                           const cl_event *, cl_event *);
  cl_int(CL_API_CALL *clWaitForEvents)(cl_uint, const cl_event *);
  cl_int(CL_API_CALL *clGetEventInfo)(cl_event, cl_event_info, size_t, void *, size_t *);
  cl_int(CL_API_CALL *clReleaseEvent)(cl_event);
  /** May be NULL, as all from here on. Its flags are a cl_svm_mem_flags. */
  void *(CL_API_CALL *clSVMAlloc)(cl_context, cl_bitfield, size_t, cl_uint);
  void(CL_API_CALL *clSVMFree)(cl_context, void *);
  cl_int(CL_API_CALL *clEnqueueSVMMap)(cl_command_queue, cl_bool, cl_map_flags, void *, size_t, cl_uint,
                                       const cl_event *, cl_event *);
  cl_int(CL_API_CALL *clEnqueueSVMUnmap)(cl_command_queue, void *, cl_uint, const cl_event *, cl_event *);
  cl_int(CL_API_CALL *clEnqueueSVMMemFill)(cl_command_queue, void *, const void *, size_t, size_t, cl_uint,
                                           const cl_event *, cl_event *);
} slicepool_opencl_functions;

/** Finds a function by its name, as dlsym() does; NULL if there is none. */
typedef void *(*slicepool_opencl_getter_fn)(void *user_data, const char *name);

/** For programs that link with OpenCL: fills a table with what is linked. */
#define SLICEPOOL_OPENCL_LINKED(functions)                              \
  do {                                                                  \
    slicepool_opencl_functions *slicepool_opencl_table = (functions);   \
    memset(slicepool_opencl_table, 0, sizeof *slicepool_opencl_table);  \
    slicepool_opencl_table->clGetDeviceInfo = clGetDeviceInfo;          \
    slicepool_opencl_table->clCreateBuffer = clCreateBuffer;            \
    slicepool_opencl_table->clCreateSubBuffer = clCreateSubBuffer;      \
    slicepool_opencl_table->clReleaseMemObject = clReleaseMemObject;    \
    slicepool_opencl_table->clEnqueueMapBuffer = clEnqueueMapBuffer;    \
    slicepool_opencl_table->clEnqueueUnmapMemObject = clEnqueueUnmapMemObject; \
    slicepool_opencl_table->clEnqueueFillBuffer = clEnqueueFillBuffer;  \
    slicepool_opencl_table->clWaitForEvents = clWaitForEvents;          \
    slicepool_opencl_table->clGetEventInfo = clGetEventInfo;            \
    slicepool_opencl_table->clReleaseEvent = clReleaseEvent;            \
    SLICEPOOL_OPENCL_LINKED_SVM(slicepool_opencl_table);                \
  } while (0)

/** The part of SLICEPOOL_OPENCL_LINKED() that CL_TARGET_OPENCL_VERSION 120 leaves out. */
#ifdef CL_VERSION_2_0
#define SLICEPOOL_OPENCL_LINKED_SVM(table)              \
  do {                                                  \
    (table)->clSVMAlloc = clSVMAlloc;                   \
    (table)->clSVMFree = clSVMFree;                     \
    (table)->clEnqueueSVMMap = clEnqueueSVMMap;         \
    (table)->clEnqueueSVMUnmap = clEnqueueSVMUnmap;     \
    (table)->clEnqueueSVMMemFill = clEnqueueSVMMemFill; \
  } while (0)
#else
#define SLICEPOOL_OPENCL_LINKED_SVM(table) (void)(table)
#endif

/**
 * Puts a function into its place, in slicepool_opencl_functions or a table of the program's.
 *
 * @param place  of a pointer to the function: set, to NULL if there is none
 * @return 1, or 0 if there is none
 *
 * Threads: any. Cost: one call of the getter.
 */
static inline int slicepool_opencl_find(slicepool_opencl_getter_fn getter, void *user_data, const char *name,
                                        void *place) {
  /* Pointers to objects and to functions are of one size wherever there is something like dlsym(). */
  void *const found = getter(user_data, name);
  memcpy(place, &found, sizeof found);
  return found != NULL;
}

/* Whether all is there that is required. */
static inline int slicepool_opencl_is_complete(const slicepool_opencl_functions *functions) {
  return functions->clGetDeviceInfo != NULL && functions->clCreateBuffer != NULL &&
         functions->clCreateSubBuffer != NULL && functions->clReleaseMemObject != NULL &&
         functions->clEnqueueMapBuffer != NULL && functions->clEnqueueUnmapMemObject != NULL &&
         functions->clEnqueueFillBuffer != NULL && functions->clWaitForEvents != NULL &&
         functions->clGetEventInfo != NULL && functions->clReleaseEvent != NULL;
}

/**
 * For programs that open OpenCL when they run: fills a table through a function like dlsym().
 *
 * @param functions  set on success
 * @param getter     called with `user_data` and one name after the other
 * @return SLICEPOOL_ERROR_INVALID_ARGUMENT, SLICEPOOL_ERROR_NOT_SUPPORTED if a required function is missing
 *
 * Threads: any. Cost: fifteen calls of the getter.
 */
static inline slicepool_result slicepool_opencl_load(slicepool_opencl_functions *functions,
                                                     slicepool_opencl_getter_fn getter, void *user_data) {
  slicepool_opencl_functions found;
  if (functions == NULL || getter == NULL) return SLICEPOOL_ERROR_INVALID_ARGUMENT;
  memset(&found, 0, sizeof found);
  slicepool_opencl_find(getter, user_data, "clGetDeviceInfo", &found.clGetDeviceInfo);
  slicepool_opencl_find(getter, user_data, "clCreateBuffer", &found.clCreateBuffer);
  slicepool_opencl_find(getter, user_data, "clCreateSubBuffer", &found.clCreateSubBuffer);
  slicepool_opencl_find(getter, user_data, "clReleaseMemObject", &found.clReleaseMemObject);
  slicepool_opencl_find(getter, user_data, "clEnqueueMapBuffer", &found.clEnqueueMapBuffer);
  slicepool_opencl_find(getter, user_data, "clEnqueueUnmapMemObject", &found.clEnqueueUnmapMemObject);
  slicepool_opencl_find(getter, user_data, "clEnqueueFillBuffer", &found.clEnqueueFillBuffer);
  slicepool_opencl_find(getter, user_data, "clWaitForEvents", &found.clWaitForEvents);
  slicepool_opencl_find(getter, user_data, "clGetEventInfo", &found.clGetEventInfo);
  slicepool_opencl_find(getter, user_data, "clReleaseEvent", &found.clReleaseEvent);
  slicepool_opencl_find(getter, user_data, "clSVMAlloc", &found.clSVMAlloc);
  slicepool_opencl_find(getter, user_data, "clSVMFree", &found.clSVMFree);
  slicepool_opencl_find(getter, user_data, "clEnqueueSVMMap", &found.clEnqueueSVMMap);
  slicepool_opencl_find(getter, user_data, "clEnqueueSVMUnmap", &found.clEnqueueSVMUnmap);
  slicepool_opencl_find(getter, user_data, "clEnqueueSVMMemFill", &found.clEnqueueSVMMemFill);
  if (!slicepool_opencl_is_complete(&found)) return SLICEPOOL_ERROR_NOT_SUPPORTED;
  *functions = found;
  return SLICEPOOL_OK;
}

/* ------------------------------------------------------------------------------------------------------------------
 * The adapter
 * ------------------------------------------------------------------------------------------------------------------ */

/** Property of memory: the host reaches it where it lies, through slicepool_map() or always. */
#define SLICEPOOL_OPENCL_HOST 1u

/** Property of memory: it is the device's own, or moves there when it is used. */
#define SLICEPOOL_OPENCL_DEVICE 2u

/** Property of memory: pages are cl_mem, and slices have offsets in them but no address. */
#define SLICEPOOL_OPENCL_BUFFER 4u

/** Property of memory: shared virtual memory. Slices have addresses, and there is no cl_mem. */
#define SLICEPOOL_OPENCL_SVM 8u

/** Property of memory: the host sees it always, at slice.mapped. */
#define SLICEPOOL_OPENCL_MAPPED 16u

/** Position of the device's buffers. */
#define SLICEPOOL_OPENCL_TYPE_DEVICE 0u

/** Position of the buffers that the host reaches. */
#define SLICEPOOL_OPENCL_TYPE_HOST 1u

/** Position of coarse-grain shared virtual memory, if type_count is above it. */
#define SLICEPOOL_OPENCL_TYPE_COARSE 2u

/** Position of fine-grain shared virtual memory, if type_count is above it. */
#define SLICEPOOL_OPENCL_TYPE_FINE 3u

/** In slicepool_opencl.flags, before slicepool_opencl_init(): also shared virtual memory, where the device has it. */
#define SLICEPOOL_OPENCL_FLAG_SVM 1u

/**
 * In slicepool_opencl.flags: a byte of each page is written by the device before the page counts as allocated, so that
 * a driver which takes memory at its first use says here that there is none left. Needs a queue. Costs one fill, and
 * the wait for what is in the queue before it.
 */
#define SLICEPOOL_OPENCL_FLAG_RESIDENT 2u

/** Alignment that clSVMAlloc() has to know: the size of a long16. */
#define SLICEPOOL_OPENCL_SVM_ALIGNMENT 128u

/** Smallest page_alignment of buffers, and what the largest page of shared virtual memory leaves for alignment. */
#define SLICEPOOL_OPENCL_PAGE_ALIGNMENT 4096u

/** Between slicepool and OpenCL. Begins zeroed; see OWNERSHIP above. */
typedef struct slicepool_opencl {
  /** The program's own. Callbacks of its own, set after slicepool_opencl_device(), get this struct as user_data. */
  void *user_data;
  /** SLICEPOOL_OPENCL_FLAG_ flags, set before slicepool_opencl_init(). */
  uint32_t flags;
  /** OpenCL's code, if slicepool_opencl_init() has failed; otherwise CL_SUCCESS. */
  int32_t code;
  /* All below is filled in by slicepool_opencl_init(), and what is said to be may be changed after it, until the
   * allocator is made. */
  /** The entry points. */
  slicepool_opencl_functions functions;
  /** What pages are made in. */
  cl_context context;
  /** The device whose limits these are. */
  cl_device_id device;
  /** What mappings, fills and the byte of a resident page are enqueued in; NULL: none of these. */
  cl_command_queue queue;
  /**
   * What offset and sub-buffer have to do with each other: CL_DEVICE_MEM_BASE_ADDR_ALIGN, which counts bits, in bytes.
   * May be raised.
   */
  uint64_t alignment;
  /** CL_DEVICE_SVM_CAPABILITIES; 0 without SLICEPOOL_OPENCL_FLAG_SVM. */
  uint64_t svm_capabilities;
  /**
   * cl_mem_flags, of shared virtual memory cl_svm_mem_flags, that the pages of each type are made with. May be changed:
   * CL_MEM_HOST_NO_ACCESS for type 0, say, or CL_MEM_SVM_ATOMICS for type 3.
   */
  cl_bitfield memory_flags[4];
  /** The memory types. May be changed, but for the order and the SLICEPOOL_OPENCL_ properties. */
  slicepool_memory_type types[4];
  /** The heaps. May be changed. */
  slicepool_heap heaps[2];
  /** Number of memory types: 2, 3 or 4. */
  uint32_t type_count;
  /** Number of heaps: 1, or 2 if the device has memory of its own. */
  uint32_t heap_count;
} slicepool_opencl;

/**
 * What a code of OpenCL comes to: CL_MEM_OBJECT_ALLOCATION_FAILURE, CL_OUT_OF_RESOURCES, CL_OUT_OF_HOST_MEMORY and
 * CL_INVALID_BUFFER_SIZE (more than the device gives at once) are SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY, all others but
 * CL_SUCCESS SLICEPOOL_ERROR_DEVICE_FAILED. Some drivers answer CL_OUT_OF_RESOURCES after a kernel has crashed.
 *
 * Threads: any. Cost: constant.
 */
static inline slicepool_result slicepool_opencl_result(int32_t code) {
  switch (code) {
    case CL_SUCCESS: return SLICEPOOL_OK;
    case CL_MEM_OBJECT_ALLOCATION_FAILURE:
    case CL_OUT_OF_RESOURCES:
    case CL_OUT_OF_HOST_MEMORY:
    case CL_INVALID_BUFFER_SIZE: return SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY;
    default: return SLICEPOOL_ERROR_DEVICE_FAILED;
  }
}

/* Describes the memory type `index`. */
static inline void slicepool_opencl_add_type(slicepool_opencl *opencl, uint32_t index, uint32_t heap,
                                             uint64_t max_page, uint32_t properties, cl_bitfield memory_flags) {
  slicepool_memory_type type = SLICEPOOL_MEMORY_TYPE_INIT;
  const int is_svm = (properties & SLICEPOOL_OPENCL_SVM) != 0;
  type.heap = heap;
  type.max_page = max_page;
  type.page_alignment = SLICEPOOL_OPENCL_PAGE_ALIGNMENT;
  if (type.page_alignment < opencl->alignment) type.page_alignment = opencl->alignment;
  if (is_svm) {
    /* More can be had, at the price of larger pages. */
    type.page_alignment = SLICEPOOL_OPENCL_SVM_ALIGNMENT;
    if (max_page > SLICEPOOL_OPENCL_PAGE_ALIGNMENT) type.max_page = max_page - SLICEPOOL_OPENCL_PAGE_ALIGNMENT;
  }
  type.properties = properties;
  if ((properties & SLICEPOOL_OPENCL_HOST) != 0) type.flags = SLICEPOOL_MEMORY_TYPE_HOST_VISIBLE;
  opencl->types[index] = type;
  opencl->memory_flags[index] = memory_flags;
  opencl->type_count = index + 1;
}

/**
 * Asks the device for its limits and describes its memory. Reads `flags`, keeps `user_data`.
 *
 * @param opencl     begins zeroed; filled in on success, otherwise only its `code` changes
 * @param functions  copied
 * @param context    of `device`; not retained
 * @param device     whose limits are asked for
 * @param queue      of `context` and `device`; not retained; may be NULL: then pages cannot be mapped, and there is no
 *                   SLICEPOOL_REQUEST_ZERO or SLICEPOOL_REQUEST_SCRUB
 * @return SLICEPOOL_ERROR_INVALID_ARGUMENT (NULL, a required function that is missing, unknown flags,
 *         SLICEPOOL_OPENCL_FLAG_RESIDENT without a queue), SLICEPOOL_ERROR_DEVICE_FAILED with OpenCL's code in `code`;
 *         that is CL_INVALID_VALUE too for limits that no device can have
 *
 * Threads: one, for one slicepool_opencl. Cost: five queries.
 */
static inline slicepool_result slicepool_opencl_init(slicepool_opencl *opencl,
                                                     const slicepool_opencl_functions *functions, cl_context context,
                                                     cl_device_id device, cl_command_queue queue) {
  slicepool_opencl fresh;
  slicepool_heap heap = SLICEPOOL_HEAP_INIT;
  cl_uint align_bits = 0;
  cl_ulong global_size = 0, max_page = 0;
  cl_bool is_unified = CL_FALSE;
  cl_bitfield svm = 0;
  uint32_t host_heap, device_too;
  cl_int code;
  if (opencl == NULL) return SLICEPOOL_ERROR_INVALID_ARGUMENT;
  if (functions == NULL || !slicepool_opencl_is_complete(functions) || context == NULL || device == NULL ||
      (opencl->flags & ~(SLICEPOOL_OPENCL_FLAG_SVM | SLICEPOOL_OPENCL_FLAG_RESIDENT)) != 0 ||
      ((opencl->flags & SLICEPOOL_OPENCL_FLAG_RESIDENT) != 0 && queue == NULL)) {
    opencl->code = CL_SUCCESS;
    return SLICEPOOL_ERROR_INVALID_ARGUMENT;
  }
  code = functions->clGetDeviceInfo(device, CL_DEVICE_MEM_BASE_ADDR_ALIGN, sizeof align_bits, &align_bits, NULL);
  if (code == CL_SUCCESS) {
    code = functions->clGetDeviceInfo(device, CL_DEVICE_GLOBAL_MEM_SIZE, sizeof global_size, &global_size, NULL);
  }
  if (code == CL_SUCCESS) {
    code = functions->clGetDeviceInfo(device, CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof max_page, &max_page, NULL);
  }
  /* A query that is deprecated, and one that is new: a device need not know them. */
  if (code == CL_SUCCESS) {
    code = functions->clGetDeviceInfo(device, 0x1035 /* CL_DEVICE_HOST_UNIFIED_MEMORY */, sizeof is_unified,
                                      &is_unified, NULL);
    if (code == CL_INVALID_VALUE) code = CL_SUCCESS;
  }
  if (code == CL_SUCCESS && (opencl->flags & SLICEPOOL_OPENCL_FLAG_SVM) != 0 && functions->clSVMAlloc != NULL &&
      functions->clSVMFree != NULL && functions->clEnqueueSVMMap != NULL && functions->clEnqueueSVMUnmap != NULL &&
      functions->clEnqueueSVMMemFill != NULL) {
    code = functions->clGetDeviceInfo(device, 0x1053 /* CL_DEVICE_SVM_CAPABILITIES */, sizeof svm, &svm, NULL);
    if (code == CL_INVALID_VALUE) {
      svm = 0;
      code = CL_SUCCESS;
    }
  }
  if (code == CL_SUCCESS && (align_bits < 8 || (align_bits & (align_bits - 1)) != 0)) code = CL_INVALID_VALUE;
  opencl->code = code;
  if (code != CL_SUCCESS) return SLICEPOOL_ERROR_DEVICE_FAILED;

  memset(&fresh, 0, sizeof fresh);
  fresh.user_data = opencl->user_data;
  fresh.flags = opencl->flags;
  fresh.functions = *functions;
  fresh.context = context;
  fresh.device = device;
  fresh.queue = queue;
  fresh.alignment = align_bits / 8;
  fresh.svm_capabilities = svm;
  heap.size = global_size;
  fresh.heaps[0] = heap;
  heap.size = 0;
  fresh.heaps[1] = heap;
  fresh.heap_count = is_unified != CL_FALSE ? 1 : 2;
  host_heap = fresh.heap_count - 1;
  device_too = is_unified != CL_FALSE ? SLICEPOOL_OPENCL_DEVICE : 0;
  slicepool_opencl_add_type(&fresh, SLICEPOOL_OPENCL_TYPE_DEVICE, 0, max_page,
                            SLICEPOOL_OPENCL_DEVICE | SLICEPOOL_OPENCL_BUFFER, CL_MEM_READ_WRITE);
  slicepool_opencl_add_type(&fresh, SLICEPOOL_OPENCL_TYPE_HOST, host_heap, max_page,
                            SLICEPOOL_OPENCL_HOST | SLICEPOOL_OPENCL_BUFFER | device_too,
                            CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR);
  if ((svm & 1 /* CL_DEVICE_SVM_COARSE_GRAIN_BUFFER */) != 0) {
    slicepool_opencl_add_type(&fresh, SLICEPOOL_OPENCL_TYPE_COARSE, 0, max_page,
                              SLICEPOOL_OPENCL_HOST | SLICEPOOL_OPENCL_DEVICE | SLICEPOOL_OPENCL_SVM,
                              CL_MEM_READ_WRITE);
    if ((svm & 2 /* CL_DEVICE_SVM_FINE_GRAIN_BUFFER */) != 0) {
      slicepool_opencl_add_type(&fresh, SLICEPOOL_OPENCL_TYPE_FINE, host_heap, max_page,
                                SLICEPOOL_OPENCL_HOST | SLICEPOOL_OPENCL_SVM | SLICEPOOL_OPENCL_MAPPED | device_too,
                                CL_MEM_READ_WRITE | (1u << 10) /* CL_MEM_SVM_FINE_GRAIN_BUFFER */);
    }
  }
  *opencl = fresh;
  return SLICEPOOL_OK;
}

/* ------------------------------------------------------------------------------------------------------------------
 * Callbacks
 * ------------------------------------------------------------------------------------------------------------------ */

/* Waits for what was enqueued with `code`; the code of what went wrong, if anything did. */
static inline cl_int slicepool_opencl_wait(const slicepool_opencl *opencl, cl_int code, cl_event event) {
  cl_int status = CL_SUCCESS;
  if (code != CL_SUCCESS) return code;
  code = opencl->functions.clWaitForEvents(1, &event);
  /* That says only that something did. */
  if (code == CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST &&
      opencl->functions.clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL) ==
          CL_SUCCESS &&
      status < 0) {
    code = status;
  }
  opencl->functions.clReleaseEvent(event);
  return code;
}

/* Writes zeros and waits: `size` bytes at `offset` of `buffer`, or at `address` if there is one. */
static inline cl_int slicepool_opencl_fill_range(const slicepool_opencl *opencl, cl_mem buffer, uint64_t offset,
                                                 uint64_t address, uint64_t size) {
  const cl_uint zero = 0;
  /* Patterns have to fit in a whole number of times, from a multiple of their size on. */
  const size_t pattern = ((offset | address | size) & 3) == 0 ? 4 : 1;
  cl_event event = NULL;
  cl_int code;
  if (opencl->queue == NULL) return CL_INVALID_COMMAND_QUEUE;
  if (address != 0) {
    code = opencl->functions.clEnqueueSVMMemFill(opencl->queue, (void *)(uintptr_t)address, &zero, pattern,
                                                 (size_t)size, 0, NULL, &event);
  } else {
    code = opencl->functions.clEnqueueFillBuffer(opencl->queue, buffer, &zero, pattern, (size_t)offset, (size_t)size, 0,
                                                 NULL, &event);
  }
  return slicepool_opencl_wait(opencl, code, event);
}

/* A page of type 0 or 1. */
static inline cl_int slicepool_opencl_create_buffer(const slicepool_opencl *opencl, uint32_t type, size_t size,
                                                    slicepool_device_memory *memory) {
  cl_int code = CL_SUCCESS;
  const cl_mem buffer =
      opencl->functions.clCreateBuffer(opencl->context, opencl->memory_flags[type], size, NULL, &code);
  if (code != CL_SUCCESS) return code;
  if ((opencl->flags & SLICEPOOL_OPENCL_FLAG_RESIDENT) != 0) {
    code = slicepool_opencl_fill_range(opencl, buffer, 0, 0, 1);
    if (code != CL_SUCCESS) {
      opencl->functions.clReleaseMemObject(buffer);
      return code;
    }
  }
  memory->handle = (uint64_t)(uintptr_t)buffer;
  return CL_SUCCESS;
}

/* A page of type 2 or 3. */
static inline cl_int slicepool_opencl_create_svm(const slicepool_opencl *opencl, uint32_t type, size_t size,
                                                 size_t alignment, slicepool_device_memory *memory) {
  const cl_bitfield flags = opencl->memory_flags[type];
  cl_int code = CL_SUCCESS;
  uintptr_t begin;
  void *svm = opencl->functions.clSVMAlloc(opencl->context, flags, size, (cl_uint)alignment);
  if (svm == NULL && alignment > SLICEPOOL_OPENCL_SVM_ALIGNMENT) {
    /* It need not know such an alignment, and does not say whether that was it. */
    const size_t more = alignment - SLICEPOOL_OPENCL_SVM_ALIGNMENT;
    if (size > SIZE_MAX - more) return CL_INVALID_BUFFER_SIZE;
    svm = opencl->functions.clSVMAlloc(opencl->context, flags, size + more, SLICEPOOL_OPENCL_SVM_ALIGNMENT);
  }
  if (svm == NULL) return CL_MEM_OBJECT_ALLOCATION_FAILURE;
  begin = ((uintptr_t)svm + alignment - 1) & ~(uintptr_t)(alignment - 1);
  if ((opencl->flags & SLICEPOOL_OPENCL_FLAG_RESIDENT) != 0) {
    code = slicepool_opencl_fill_range(opencl, NULL, 0, begin, 1);
    if (code != CL_SUCCESS) {
      opencl->functions.clSVMFree(opencl->context, svm);
      return code;
    }
  }
  memory->handle = begin;
  memory->address = begin;
  if ((opencl->types[type].properties & SLICEPOOL_OPENCL_MAPPED) != 0) memory->mapped = (void *)begin;
  memory->context = svm;
  return CL_SUCCESS;
}

/**
 * slicepool_device.allocate: makes a buffer, or shared virtual memory, whose `context` is what clSVMAlloc() gave.
 *
 * Pages that you adopt (slicepool_adopt()) are released in the end like the others: a cl_mem as `handle`; or what
 * clSVMAlloc() gave as `handle`, `address` and `context`, and as `mapped` too for type 3.
 *
 * @param user_data  a slicepool_opencl, as for all callbacks
 * @param memory     its device_code has OpenCL's code on failure; clSVMAlloc() gives none, which is
 *                   CL_MEM_OBJECT_ALLOCATION_FAILURE here
 * @return as slicepool_opencl_result()
 *
 * Threads: any. Cost: one device call; with SLICEPOOL_OPENCL_FLAG_RESIDENT as long as the queue needs; a second device
 * call for SVM with an alignment above 128 that the driver does not know, and as many bytes more.
 */
static inline slicepool_result slicepool_opencl_allocate_page(void *user_data, const slicepool_page_request *request,
                                                              slicepool_device_memory *memory) {
  const slicepool_opencl *opencl = (const slicepool_opencl *)user_data;
  const size_t size = (size_t)request->size, alignment = (size_t)request->alignment;
  cl_int code;
  if (request->memory_type >= opencl->type_count) {
    code = CL_INVALID_VALUE;
  } else if (size != request->size) {
    code = CL_INVALID_BUFFER_SIZE; /* on machines with 32 bits */
  } else if ((opencl->types[request->memory_type].properties & SLICEPOOL_OPENCL_SVM) == 0) {
    code = slicepool_opencl_create_buffer(opencl, request->memory_type, size, memory);
  } else if (alignment != request->alignment || alignment != (cl_uint)alignment) {
    code = CL_INVALID_VALUE;
  } else {
    code = slicepool_opencl_create_svm(opencl, request->memory_type, size, alignment, memory);
  }
  memory->device_code = code;
  return slicepool_opencl_result(code);
}

/**
 * slicepool_device.deallocate: releases a buffer, or frees shared virtual memory.
 *
 * @return SLICEPOOL_ERROR_DEVICE_FAILED if the buffer cannot be released
 *
 * Threads: any. Cost: one device call.
 */
static inline slicepool_result slicepool_opencl_deallocate_page(void *user_data,
                                                                const slicepool_device_memory *memory) {
  const slicepool_opencl *opencl = (const slicepool_opencl *)user_data;
  if (memory->address != 0) {
    opencl->functions.clSVMFree(opencl->context, memory->context);
    return SLICEPOOL_OK;
  }
  return opencl->functions.clReleaseMemObject((cl_mem)(uintptr_t)memory->handle) == CL_SUCCESS
             ? SLICEPOOL_OK
             : SLICEPOOL_ERROR_DEVICE_FAILED;
}

/**
 * slicepool_device.map: maps a page for reading and writing, and waits for it. See MAPPING above.
 *
 * @param mapped  set on success
 * @return as slicepool_opencl_result(); SLICEPOOL_ERROR_DEVICE_FAILED without a queue
 *
 * Threads: any. Cost: one device call, and as long as the queue needs.
 */
static inline slicepool_result slicepool_opencl_map_page(void *user_data, const slicepool_device_memory *memory,
                                                         void **mapped) {
  const slicepool_opencl *opencl = (const slicepool_opencl *)user_data;
  const cl_map_flags flags = CL_MAP_READ | CL_MAP_WRITE;
  const size_t size = (size_t)memory->size;
  void *at = (void *)(uintptr_t)memory->address;
  cl_int code = CL_SUCCESS;
  if (opencl->queue == NULL) return SLICEPOOL_ERROR_DEVICE_FAILED;
  if (at != NULL) {
    code = opencl->functions.clEnqueueSVMMap(opencl->queue, CL_TRUE, flags, at, size, 0, NULL, NULL);
  } else {
    at = opencl->functions.clEnqueueMapBuffer(opencl->queue, (cl_mem)(uintptr_t)memory->handle, CL_TRUE, flags, 0, size,
                                              0, NULL, NULL, &code);
  }
  if (code == CL_SUCCESS) *mapped = at;
  return slicepool_opencl_result(code);
}

/**
 * slicepool_device.unmap: ends what slicepool_opencl_map_page() began, and waits for it. There is nobody to tell of a
 * failure.
 *
 * Threads: any. Cost: as slicepool_opencl_map_page().
 */
static inline void slicepool_opencl_unmap_page(void *user_data, const slicepool_device_memory *memory) {
  const slicepool_opencl *opencl = (const slicepool_opencl *)user_data;
  cl_event event = NULL;
  cl_int code;
  if (memory->address != 0) {
    code = opencl->functions.clEnqueueSVMUnmap(opencl->queue, (void *)(uintptr_t)memory->address, 0, NULL, &event);
  } else {
    code = opencl->functions.clEnqueueUnmapMemObject(opencl->queue, (cl_mem)(uintptr_t)memory->handle, memory->mapped,
                                                     0, NULL, &event);
  }
  slicepool_opencl_wait(opencl, code, event);
}

/**
 * slicepool_device.fill: has the device write zeros, and waits for it.
 *
 * @param point  left alone
 * @return as slicepool_opencl_result(); SLICEPOOL_ERROR_DEVICE_FAILED without a queue
 *
 * Threads: any. Cost: one device call, and as long as the queue needs.
 */
static inline slicepool_result slicepool_opencl_fill(void *user_data, const slicepool_fill_request *request,
                                                     slicepool_point *point) {
  const slicepool_opencl *opencl = (const slicepool_opencl *)user_data;
  (void)point;
  return slicepool_opencl_result(slicepool_opencl_fill_range(opencl, (cl_mem)(uintptr_t)request->memory,
                                                             request->offset, request->address, request->size));
}

/**
 * Fills in the callbacks, with `opencl` as their user_data; `map`, `unmap` and `fill` only if it has a queue. More may
 * be set after this; they find their own data in opencl->user_data.
 *
 * @param opencl  after slicepool_opencl_init()
 * @param device  set as a whole
 *
 * Threads: any. Cost: constant.
 */
static inline void slicepool_opencl_device(slicepool_opencl *opencl, slicepool_device *device) {
  const slicepool_device empty = SLICEPOOL_DEVICE_INIT;
  *device = empty;
  device->user_data = opencl;
  device->allocate = slicepool_opencl_allocate_page;
  device->deallocate = slicepool_opencl_deallocate_page;
  if (opencl->queue != NULL) {
    device->map = slicepool_opencl_map_page;
    device->unmap = slicepool_opencl_unmap_page;
    device->fill = slicepool_opencl_fill;
  }
}

/**
 * Puts the memory types and heaps into a config, which points into `opencl` then.
 *
 * @param config  its memory_types, memory_type_count, heaps and heap_count are set
 *
 * Threads: any. Cost: constant.
 */
static inline void slicepool_opencl_describe(const slicepool_opencl *opencl, slicepool_allocator_config *config) {
  config->memory_types = opencl->types;
  config->memory_type_count = opencl->type_count;
  config->heaps = opencl->heaps;
  config->heap_count = opencl->heap_count;
}

/* ------------------------------------------------------------------------------------------------------------------
 * Requests and slices
 * ------------------------------------------------------------------------------------------------------------------ */

/**
 * A request for memory with these properties, of which slicepool_opencl_sub_buffer() can make a sub-buffer: aligned to
 * opencl->alignment. Without SLICEPOOL_OPENCL_SVM among the properties SLICEPOOL_OPENCL_BUFFER is added; with it the
 * alignment is left to the pool.
 *
 * Pools whose granule is a multiple of opencl->alignment (slicepool_layout_properties.alignment) pad nothing.
 *
 * @param required  SLICEPOOL_OPENCL_ properties
 * @param request   set as a whole; all else in it may be set after this
 *
 * Threads: any. Cost: constant.
 */
static inline void slicepool_opencl_request(const slicepool_opencl *opencl, uint64_t size, uint32_t required,
                                            slicepool_request *request) {
  const slicepool_request empty = SLICEPOOL_REQUEST_INIT;
  *request = empty;
  request->size = size;
  request->required = required;
  if ((required & SLICEPOOL_OPENCL_SVM) == 0) {
    request->required |= SLICEPOOL_OPENCL_BUFFER;
    request->alignment = opencl->alignment;
  }
}

/**
 * The root buffer that a slice lies in, at slice->offset. It belongs to the allocator: do not release it, and use it no
 * longer than the slice.
 *
 * @return NULL for shared virtual memory, and in a dry run until slicepool_resolve()
 *
 * Threads: any. Cost: constant.
 */
static inline cl_mem slicepool_opencl_buffer(const slicepool_slice *slice) {
  if (slice->address != 0 || slice->memory == UINT64_MAX) return NULL;
  return (cl_mem)(uintptr_t)slice->memory;
}

/**
 * Makes a cl_mem of a slice: a sub-buffer of its root buffer, of all slice->size bytes.
 *
 * To be released with clReleaseMemObject() before the slice is freed: it keeps the root buffer alive, with its memory,
 * even when the page has been given back. OpenCL leaves undefined what commands do that use a sub-buffer and its root
 * buffer, or two sub-buffers that overlap, at the same time and write; slices do not overlap.
 *
 * @param flags   cl_mem_flags as for clCreateSubBuffer(): CL_MEM_READ_ONLY, say; 0: those of the page
 * @param buffer  set on success
 * @param code    set to OpenCL's code, whatever it is; may be NULL
 * @return SLICEPOOL_ERROR_INVALID_ARGUMENT (NULL; an offset that is no multiple of opencl->alignment, with the code
 *         CL_MISALIGNED_SUB_BUFFER_OFFSET), SLICEPOOL_ERROR_NOT_SUPPORTED for a slice that has no root buffer;
 *         otherwise as slicepool_opencl_result()
 *
 * Threads: any. Cost: one call of OpenCL.
 */
static inline slicepool_result slicepool_opencl_sub_buffer(const slicepool_opencl *opencl,
                                                           const slicepool_slice *slice, cl_mem_flags flags,
                                                           cl_mem *buffer, int32_t *code) {
  slicepool_result result = SLICEPOOL_ERROR_INVALID_ARGUMENT;
  cl_int said = CL_SUCCESS;
  if (opencl != NULL && slice != NULL && buffer != NULL) {
    const cl_mem root = slicepool_opencl_buffer(slice);
    if (root == NULL) {
      result = SLICEPOOL_ERROR_NOT_SUPPORTED;
    } else if ((slice->offset & (opencl->alignment - 1)) != 0) {
      said = CL_MISALIGNED_SUB_BUFFER_OFFSET;
    } else {
      cl_buffer_region region;
      cl_mem made;
      region.origin = (size_t)slice->offset;
      region.size = (size_t)slice->size;
      made = opencl->functions.clCreateSubBuffer(root, flags, CL_BUFFER_CREATE_TYPE_REGION, &region, &said);
      if (said == CL_SUCCESS) *buffer = made;
      result = slicepool_opencl_result(said);
    }
  }
  if (code != NULL) *code = said;
  return result;
}

#if defined(__cplusplus) && defined(__GNUC__)
#pragma GCC diagnostic pop
#endif

#endif /* SLICEPOOL_OPENCL_H */
