/*
 * slicepool: memory pools for memory that the CPU may not be able to touch.
 *
 * A device (a GPU driver, a firmware heap, pinned host memory, a file mapping) gives out large PAGES through callbacks
 * that you provide. slicepool cuts them into SLICES, joins freed slices again, and keeps its books elsewhere: no byte
 * of the library's bookkeeping ever lies in device memory.
 *
 *     your engine --slicepool_allocate()--> POOL --your callback--> device
 *
 *     page 1  [ slice | slice |  free   | slice |   untouched tail    ]
 *     page 2  [ slice |           free                                ]
 *
 * Beside allocators there are SPACES, which cut any range of numbers, and BUFFER POOLS, which hand out buffers of a
 * few sizes again and again, for I/O, DMA and registered memory.
 *
 * Freeing, and allocating where a size class serves the request, take constant time however many slices and pages there
 * are; each function says what else it may cost.
 *
 * RESULTS. Functions answer SLICEPOOL_OK (0) or a negative SLICEPOOL_ERROR_ code. A function that fails has changed
 * nothing and has not touched its out-parameters, unless its comment says otherwise. NULL where an object, a struct or
 * an out-parameter is expected is an error, not a crash. Details (sizes, limits, the device's own code) go into a
 * slicepool_failure where you pass one, if the struct that holds the pointer to it is well-formed.
 *
 * STRUCTS begin with `struct_size`, which the caller sets: initialise them with the SLICEPOOL_..._INIT macros (or
 * slicepool_struct_default()), also those that a function fills in. Zero in a field is its default, where the field is
 * not required. Unknown flags and non-zero reserved fields of what you pass in are refused, so that they can get a
 * meaning later.
 *
 * OWNERSHIP. The library copies what it is given and frees what it allocates; you never free() anything it returns.
 * Slices and buffers are named by 64-bit handles: 0 means none, and a handle that was freed is never accepted again. A
 * handle of another pool, space or class of buffers is told apart with certainty among the first 65,536 of them in a
 * process, with high probability later. Size 0 is an error for slices, unless a pool takes it; a buffer of size 0 is
 * an empty one with id 0. A buffer pool holds its device's memory until it is closed and the last buffer is back; it
 * cannot be destroyed before its caches.
 *
 * THREADS. Every function may be called by any thread at any time, except: destroying, abandoning and installing other
 * pools, which nobody else may be racing with, slicepool_space_ functions, which one thread at a time may call on one
 * space, and calls with a slicepool_buffer_cache, which one thread at a time may use: make one for each thread. Any
 * thread may release a buffer that another acquired. Not from signal or interrupt handlers that may have interrupted a
 * call on the same allocator or buffer pool (unless your lock hooks turn interrupts off). After fork() the child may
 * only abandon allocators and buffer pools of its parent.
 *
 * CALLBACKS get your `user_data` first. No lock is held while one runs, so it may be slow and may call back into the
 * same allocator or buffer pool (one that allocates in `allocate` has to end its own recursion). It must not throw,
 * longjmp or unwind.
 *
 * THE DEVICE may still use what is freed: slicepool_free_after() lets a slice wait for points on timelines, which are
 * numbers of yours for queues, streams or frames, and slicepool_collect() says how far they are.
 *
 * MEMORY TYPES. A device with one kind of memory needs no word about it. One with several describes its types and
 * heaps in the config; requests then say which types they can use and which properties, in bits of yours, the memory
 * must have, should have and must not have.
 *
 * VERSIONS. Compare SLICEPOOL_VERSION_NUMBER with slicepool_version(). Structs grow at their end only, and codes are
 * never reused; both sides may be older or newer than the other.
 *
 * PARTS. Everything here is there unless the library was built without it, for small firmware: what is missing then is
 * refused with SLICEPOOL_ERROR_NOT_SUPPORTED, or by the linker. docs/firmware.md tells what can be left out.
 *
 * ABORTING. The library never ends the process, short of a bug inside it.
 *
 * SECTIONS, in this order:
 *
 *     Version
 *     Results
 *     Pages
 *     Events
 *     Device
 *     Host
 *     Memory: types, heaps, sizes of blocks
 *     Pools
 *     Budgets: limits that allocators share
 *     Allocator
 *     Requests
 *     Slices
 *     Names and user data
 *     Mapping and caches
 *     Frees that wait for the device
 *     Dry runs and plans
 *     Statistics
 *     Space: the slicer alone, for any index space
 *     Buffer pools: configuration
 *     Buffer pools: what a configuration comes to
 *     Buffer pools
 *     Buffer caches: buffers that one thread keeps for itself
 *     Buffers
 *     Buffer pools: figures and regions
 *     For bindings
 */

#ifndef SLICEPOOL_H
#define SLICEPOOL_H

/* Generated from capi/src; do not edit: `make bless`. */

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------------------------------------------------------
 * Version
 * ------------------------------------------------------------------------------------------------------------------ */

/** The interface described by this header, part by part. Before 1.0, a new minor version may break programs. */
#define SLICEPOOL_VERSION_MAJOR 0

/** See SLICEPOOL_VERSION_MAJOR. */
#define SLICEPOOL_VERSION_MINOR 1

/** See SLICEPOOL_VERSION_MAJOR. */
#define SLICEPOOL_VERSION_PATCH 0

/** The same as one number: major * 1000000 + minor * 1000 + patch. */
#define SLICEPOOL_VERSION_NUMBER 1000

/**
 * The library's SLICEPOOL_VERSION_NUMBER: compare with that of the header the program was compiled with.
 *
 * @return the number; there is no failure
 *
 * Threads: any. Cost: constant.
 */
uint32_t slicepool_version(void);

/* ------------------------------------------------------------------------------------------------------------------
 * Results
 * ------------------------------------------------------------------------------------------------------------------ */

/** Success. */
#define SLICEPOOL_OK 0

/** An argument is NULL or outside its bounds; nothing has changed. */
#define SLICEPOOL_ERROR_INVALID_ARGUMENT (-1)

/** The handle's slice has been freed, or its buffer released. */
#define SLICEPOOL_ERROR_STALE_HANDLE (-2)

/** The handle was never given out by this allocator, space or buffer pool. */
#define SLICEPOOL_ERROR_FOREIGN_HANDLE (-3)

/** More than the pools take; `limit` is the most they take below that. */
#define SLICEPOOL_ERROR_TOO_LARGE (-4)

/**
 * The pool is at its cap, or the space is full. Freeing may help; and if slicepool_failure.in_flight is not 0, so may
 * trying again: pages are just being taken from the device or given back.
 */
#define SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED (-5)

/** A page would take the allocator, or those that share its budget, or a heap, above the bytes they may hold. */
#define SLICEPOOL_ERROR_BUDGET_EXCEEDED (-6)

/** As many pages are held as the allocator, or those that share its budget, may hold. */
#define SLICEPOOL_ERROR_PAGE_COUNT_EXCEEDED (-7)

/** The device has no memory left. Also what a device callback answers to say so. */
#define SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY (-8)

/** The device failed, or broke a rule of its callbacks. Also what a device callback answers to say so. */
#define SLICEPOOL_ERROR_DEVICE_FAILED (-9)

/** The host has no memory left for bookkeeping. */
#define SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY (-10)

/**
 * Slices are live or wait for the device, buffers are out, there are caches, or a callback is running: the object
 * cannot go away now.
 */
#define SLICEPOOL_ERROR_BUSY (-11)

/** The device lacks the callback that is needed, or the library does not do what was asked. */
#define SLICEPOOL_ERROR_NOT_SUPPORTED (-12)

/** A struct uses fields that this version of the library does not know. */
#define SLICEPOOL_ERROR_VERSION_MISMATCH (-13)

/** The device has no memory for a page of a dry run: the plan is larger than the device. */
#define SLICEPOOL_ERROR_MAPPING_FAILED (-14)

/** The pools hold slices, so others cannot take their place. */
#define SLICEPOOL_ERROR_POOLS_IN_USE (-15)

/**
 * All slots of a pool are taken: there are 13.6 million for its slices and the holes between them, and 16.7 million
 * for the buffers of a class.
 */
#define SLICEPOOL_ERROR_TOO_MANY_SLICES (-16)

/**
 * All buffers of the class are out or in caches, or just being taken from the device. Releasing one helps. If
 * slicepool_failure.in_flight is not 0, so may trying again; and if `pending` is not 0, trying again after the caches'
 * owners have used them: each has been told to give back what it holds of the class.
 */
#define SLICEPOOL_ERROR_EXHAUSTED (-17)

/** The request is larger than the buffers of the largest class. */
#define SLICEPOOL_ERROR_OVERSIZED (-18)

/** The buffer pool is closed: it hands out nothing any more. */
#define SLICEPOOL_ERROR_CLOSED (-19)

/** A slice cannot grow where it lies: what follows it is in use. */
#define SLICEPOOL_ERROR_NO_ROOM (-20)

/** Something was written behind the end of a slice, to its margin: see slicepool_allocator_config.debug_margin. */
#define SLICEPOOL_ERROR_MARGIN_DAMAGED (-21)

/** In `slicepool_failure.device_fault`: the device is not to blame. */
#define SLICEPOOL_DEVICE_FAULT_NONE 0

/** The device reported a failure. */
#define SLICEPOOL_DEVICE_FAULT_REPORTED 1

/** A callback answered a result that does not exist; `device_code` has it. */
#define SLICEPOOL_DEVICE_FAULT_UNKNOWN_RESULT 2

/** `allocate` answered SLICEPOOL_OK without filling in a handle. */
#define SLICEPOOL_DEVICE_FAULT_NOT_FILLED 3

/** The page's address, or where it has none its mapping, is not aligned as asked; the page was given back. */
#define SLICEPOOL_DEVICE_FAULT_MISALIGNED 4

/** The device gave out memory that is live already; it was not given back. */
#define SLICEPOOL_DEVICE_FAULT_DUPLICATE 5

/** The device refused to take memory back. */
#define SLICEPOOL_DEVICE_FAULT_REFUSED 6

/** The page, or where the CPU sees it, would end above the last address there is; the page was given back. */
#define SLICEPOOL_DEVICE_FAULT_OUT_OF_RANGE 7

/** What a function came to: SLICEPOOL_OK, or one of the negative codes below. Codes are never reused. */
typedef int32_t slicepool_result;

/**
 * Details of a failure. Written only when a call fails that was given one; fields that say nothing about the
 * failure at hand are 0. One whose `result` was 0 before, and still is, was not written to.
 */
typedef struct slicepool_failure {
  /** sizeof(slicepool_failure), set by the caller. */
  uint32_t struct_size;
  /** The result of the call. */
  int32_t result;
  /**
   * Bytes asked for: by the request, or from the device for its page, or from the host. Bytes of the buffers of the
   * class at hand, for SLICEPOOL_ERROR_EXHAUSTED and for a buffer pool's config.
   */
  uint64_t size;
  /**
   * The most that could have been asked for: the cap of the pool, the limit of a request, the room of a slice; or
   * held: the bytes or pages of a budget, the buffers of a class. For a buffer pool's config the bound that was
   * passed.
   */
  uint64_t limit;
  /** Requested bytes of live slices; bytes that are held, for SLICEPOOL_ERROR_BUDGET_EXCEEDED. */
  uint64_t in_use;
  /**
   * Bytes of slices that were freed but wait for the device; for SLICEPOOL_ERROR_BUSY their number. For
   * SLICEPOOL_ERROR_EXHAUSTED the number of buffers that were in caches at that moment.
   */
  uint64_t pending;
  /** A free range of at least this many bytes exists; slicepool_largest_free() is exact. */
  uint64_t largest_free;
  /**
   * The value that was refused, for SLICEPOOL_ERROR_INVALID_ARGUMENT; the position of the heap, for
   * SLICEPOOL_ERROR_BUDGET_EXCEEDED with the field "heap"; where the damage begins, from the start of the page,
   * for SLICEPOOL_ERROR_MARGIN_DAMAGED; with the field "prefill", bytes of the buffers that could not be created.
   */
  uint64_t value;
  /** Handle of the page, for SLICEPOOL_ERROR_MARGIN_DAMAGED. */
  uint64_t memory;
  /** Live slices, or buffers that are out, for SLICEPOOL_ERROR_BUSY. */
  uint64_t live;
  /**
   * Pages being taken from the device or given back, or callbacks running, at that moment; for SLICEPOOL_ERROR_BUSY
   * of a buffer pool its caches count too.
   */
  uint32_t in_flight;
  /** Position of the element that was refused, in calls with many. */
  uint32_t index;
  /**
   * The device's own code, if it gave one, as `allocate` does; for a result that does not exist, or a page that the
   * device refused to take back, what its callback answered.
   */
  int32_t device_code;
  /** A SLICEPOOL_DEVICE_FAULT_ code. */
  uint32_t device_fault;
  /**
   * Why each memory type that was tried did not serve the request, by its position: results, 0 for types that were
   * not tried. Of allocators with several memory types.
   */
  int32_t type_results[32];
  /**
   * Name of the argument or field that was refused, or of what is not supported, or "heap", or "prefill" where a
   * buffer pool could not create its buffers beforehand: a static string, or NULL.
   */
  const char *field;
  /** NULL. */
  void *reserved;
} slicepool_failure;

/**
 * A short English text for any result, also for numbers that are none.
 *
 * @return a static string, never NULL
 *
 * Threads: any. Cost: constant.
 */
const char *slicepool_result_string(slicepool_result result);

/** sizeof(slicepool_failure) as the library sees it, for bindings. */
uint32_t slicepool_sizeof_failure(void);

/* ------------------------------------------------------------------------------------------------------------------
 * Pages
 * ------------------------------------------------------------------------------------------------------------------ */

/** In `slicepool_page_request.flags`: the page will only ever hold one slice at a time. */
#define SLICEPOOL_PAGE_DEDICATED 1

/** What a device is asked for. */
typedef struct slicepool_page_request {
  /** sizeof(slicepool_page_request) as the library knows it. */
  uint32_t struct_size;
  /** Position of the pool that grows, or what slicepool_own_pool() says. */
  uint32_t pool;
  /** Bytes, never 0. */
  uint64_t size;
  /**
   * The page's address, or where it has none what `allocate` puts into `mapped`, must be a multiple of this, a power
   * of two; see SLICEPOOL_MEMORY_TYPE_MAPPED_ANYWHERE.
   */
  uint64_t alignment;
  /** Position of the memory type. */
  uint32_t memory_type;
  /** SLICEPOOL_PAGE_ flags. */
  uint32_t flags;
  /** What slicepool_request.device_data was, otherwise NULL. */
  void *device_data;
  /** NULL. */
  void *reserved;
} slicepool_page_request;

/**
 * A page: memory that a device has given out.
 *
 * `handle` and `address` together must differ between pages that are live at the same time.
 */
typedef struct slicepool_device_memory {
  /** sizeof(slicepool_device_memory) as the library knows it. */
  uint32_t struct_size;
  /** On failure: the device's own code (a VkResult, a CUresult), which comes back in slicepool_failure.device_code. */
  int32_t device_code;
  /**
   * The device's own name for the memory: a VkDeviceMemory, an address, a file offset. Any value but UINT64_MAX,
   * which is what the library puts here before it calls.
   */
  uint64_t handle;
  /** Address as the device sees it, 0 if it has none. */
  uint64_t address;
  /** Bytes, filled in by the library: what was asked for. */
  uint64_t size;
  /**
   * Where the CPU sees the memory, NULL if it does not. The library never reads or writes there, unless the
   * allocator is made with SLICEPOOL_ALLOCATOR_DEBUG_FILL or debug_margin, or a buffer is taken with zeros.
   */
  void *mapped;
  /** For the device's own use: comes back in `deallocate`. */
  void *context;
} slicepool_device_memory;

/**
 * Takes a page from the device. Fills in `memory` and answers SLICEPOOL_OK, or answers
 * SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY or SLICEPOOL_ERROR_DEVICE_FAILED. Anything else counts as the latter.
 *
 * One request may call it several times: after either refusal smaller pages and other memory types are tried.
 */
typedef slicepool_result (*slicepool_device_allocate_fn)(void *user_data,
                                                         const struct slicepool_page_request *request,
                                                         struct slicepool_device_memory *memory);

/**
 * Takes a page back: exactly what `allocate` filled in. Any answer but SLICEPOOL_OK means that the device keeps the
 * page as it is; it is asked again at the next trim and when the allocator is destroyed.
 */
typedef slicepool_result (*slicepool_device_deallocate_fn)(void *user_data,
                                                           const struct slicepool_device_memory *memory);

/**
 * Makes a page visible to the CPU that is not: sets `mapped` to where it lies. Asked once until the page is unmapped
 * again.
 */
typedef slicepool_result (*slicepool_device_map_fn)(void *user_data,
                                                    const struct slicepool_device_memory *memory,
                                                    void **mapped);

/** Ends what `map` began: memory->mapped is where that has put the page. */
typedef void (*slicepool_device_unmap_fn)(void *user_data,
                                          const struct slicepool_device_memory *memory);

/**
 * Bytes of a page that the CPU has written or is about to read: multiples of the memory type's non_coherent_atom, as
 * far as the page's end allows.
 */
typedef struct slicepool_cache_range {
  /** sizeof(slicepool_cache_range) as the library knows it. */
  uint32_t struct_size;
  /** 0. */
  uint32_t reserved;
  /** Handle of the page. */
  uint64_t memory;
  /** Bytes from the start of the page. */
  uint64_t offset;
  /** Bytes. */
  uint64_t size;
  /** Where the device has mapped the page for good, NULL if it has not. */
  void *mapped;
  /** The device's own field of the page. */
  void *context;
} slicepool_cache_range;

/** Makes what the CPU has written visible to the device (`flush`), or the other way round (`invalidate`). */
typedef slicepool_result (*slicepool_device_cache_fn)(void *user_data,
                                                      const struct slicepool_cache_range *range);

/** sizeof(slicepool_device_memory) as the library sees it, for bindings. */
uint32_t slicepool_sizeof_device_memory(void);

/** sizeof(slicepool_page_request) as the library sees it, for bindings. */
uint32_t slicepool_sizeof_page_request(void);

/** sizeof(slicepool_cache_range) as the library sees it, for bindings. */
uint32_t slicepool_sizeof_cache_range(void);

/* ------------------------------------------------------------------------------------------------------------------
 * Events
 * ------------------------------------------------------------------------------------------------------------------ */

/** A page was taken from the device. */
#define SLICEPOOL_EVENT_PAGE_ALLOCATED 1

/** A page that the program owned was taken over: slicepool_adopt(). */
#define SLICEPOOL_EVENT_PAGE_ADOPTED 2

/** A page that holds nothing serves another pool from now on, the one that is named. */
#define SLICEPOOL_EVENT_PAGE_MOVED 3

/** A page was given back to the device. Its number is that of the moment in which it began to leave. */
#define SLICEPOOL_EVENT_PAGE_RETURNED 4

/** The device has refused to take a page back. */
#define SLICEPOOL_EVENT_PAGE_REFUSED 5

/** A slice was handed out. This and the next three are told with SLICEPOOL_ALLOCATOR_SLICE_EVENTS only. */
#define SLICEPOOL_EVENT_SLICE_ALLOCATED 6

/** A slice has another size where it lies. */
#define SLICEPOOL_EVENT_SLICE_RESIZED 7

/**
 * A slice was freed but waits for the device. Told once more if it waits for something else after that, or if
 * overwriting it has failed.
 */
#define SLICEPOOL_EVENT_SLICE_PENDING 8

/** A slice's memory is free. */
#define SLICEPOOL_EVENT_SLICE_FREED 9

/**
 * A request was refused with SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY, BUDGET_EXCEEDED, PAGE_COUNT_EXCEEDED or
 * POOL_CAPACITY_EXCEEDED.
 */
#define SLICEPOOL_EVENT_OUT_OF_MEMORY 10

/** A slice is live although the allocator is to be destroyed: told for each, whether that is refused or forced. */
#define SLICEPOOL_EVENT_SLICE_LEAKED 11

/** A size of slicepool_allocator_config.blocks was no multiple of 4 MiB and has been rounded up, to `size`. */
#define SLICEPOOL_EVENT_SIZE_ROUNDED 12

/** Something that has happened. Fields that say nothing about it are 0. */
typedef struct slicepool_event {
  /** sizeof(slicepool_event) as the library knows it. */
  uint32_t struct_size;
  /** A SLICEPOOL_EVENT_ kind. */
  uint32_t kind;
  /**
   * Rises with everything that happens to an allocator; some numbers are never used. 0 for SIZE_ROUNDED, which is
   * told while it is made. Events of several threads may arrive in another order: a log that is sorted by it
   * replays. Has 32 bits, and wraps, where the processor has no atomic numbers of 64.
   */
  uint64_t sequence;
  /** Of slices: the handle. */
  uint64_t id;
  /** Handle of the page; for OUT_OF_MEMORY UINT64_MAX. */
  uint64_t memory;
  /** Bytes from the start of the page. */
  uint64_t offset;
  /** Bytes of the slice or page, or those that were asked for. */
  uint64_t size;
  /** Bytes that were asked for, of slices that are handed out, resized or leaked; for SIZE_ROUNDED the size before. */
  uint64_t requested;
  /** Position of the pool; see slicepool_own_pool(). */
  uint32_t pool;
  /** Position of the memory type; for OUT_OF_MEMORY the first that suited. */
  uint32_t memory_type;
  /** Why, for OUT_OF_MEMORY and PAGE_REFUSED. */
  slicepool_result result;
  /** 0. */
  uint32_t reserved;
  /** The slice's name, NUL-terminated, empty if it has none. Valid during the call. */
  const char *name;
  /** The slice's user data. */
  void *user_data;
} slicepool_event;

/** Is told what has happened; for logs and traces. */
typedef void (*slicepool_device_event_fn)(void *user_data, const struct slicepool_event *event);

/** sizeof(slicepool_event) as the library sees it, for bindings. */
uint32_t slicepool_sizeof_event(void);

/* ------------------------------------------------------------------------------------------------------------------
 * Device
 * ------------------------------------------------------------------------------------------------------------------ */

/*
 * Two callbacks are a device; the others may be NULL. Pages are asked for in MiB, so a callback need not be fast.
 *
 * @code
 * static slicepool_result take(void *user_data, const slicepool_page_request *request,
 *                              slicepool_device_memory *memory) {
 *   void *page = aligned_alloc((size_t)request->alignment, (size_t)request->size);
 *   (void)user_data;
 *   if (page == NULL) return SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY;
 *   memory->handle = (uint64_t)(uintptr_t)page; // what slices carry: a VkDeviceMemory, a cl_mem, a file offset
 *   memory->mapped = page;                      // if the CPU sees it
 *   return SLICEPOOL_OK;
 * }
 *
 * static slicepool_result give_back(void *user_data, const slicepool_device_memory *memory) {
 *   (void)user_data;
 *   free(memory->mapped);
 *   return SLICEPOOL_OK;
 * }
 *
 * int main(void) {
 *   slicepool_device device = SLICEPOOL_DEVICE_INIT;
 *   slicepool_allocator *allocator = NULL;
 *   slicepool_request request = SLICEPOOL_REQUEST_INIT;
 *   slicepool_slice slice = SLICEPOOL_SLICE_INIT;
 *   device.allocate = take;
 *   device.deallocate = give_back;
 *   if (slicepool_allocator_create(&device, NULL, &allocator) != SLICEPOOL_OK) return 1;
 *   request.size = 4096;
 *   if (slicepool_allocate(allocator, &request, &slice) != SLICEPOOL_OK) return 2;
 *   memset(slice.mapped, 0, (size_t)slice.size);
 *   if (slicepool_free(allocator, slice.id) != SLICEPOOL_OK) return 3;
 *   return slicepool_allocator_destroy(allocator, 0, NULL) == SLICEPOOL_OK ? 0 : 4;
 * }
 * @endcode
 *
 * A device with queues has `completed`, or the program calls slicepool_collect(). Memory that is not coherent with the
 * CPU's caches needs `flush` and `invalidate`; `heap_budget` tells how much of a heap others have left.
 */

/** In answers of `out_of_memory`: refuse the request. */
#define SLICEPOOL_SHORTAGE_REFUSE 0

/** Something was freed, here or elsewhere on the device: try again. */
#define SLICEPOOL_SHORTAGE_RETRY 1

/** In `slicepool_fill_request.reason`: the slice has just been allocated with SLICEPOOL_REQUEST_ZERO. */
#define SLICEPOOL_FILL_ZERO 1

/** The slice was allocated with SLICEPOOL_REQUEST_SCRUB and has been freed. */
#define SLICEPOOL_FILL_SCRUB 2

/**
 * Says what a timeline has completed: sets `completed` and answers SLICEPOOL_OK. Any other answer means that it is not
 * known. Asked before an allocator that holds slices which wait for it takes more memory.
 */
typedef slicepool_result (*slicepool_device_completed_fn)(void *user_data,
                                                          uint32_t timeline,
                                                          uint64_t *completed);

/** A request that cannot be served. */
typedef struct slicepool_shortage {
  /** sizeof(slicepool_shortage) as the library knows it. */
  uint32_t struct_size;
  /** How often this request has been told of before. */
  uint32_t attempt;
  /** Bytes asked for. */
  uint64_t size;
  /** Alignment asked for, 1 if none. */
  uint64_t alignment;
  /** What the request will be refused with. */
  slicepool_result result;
  /** 0. */
  uint32_t reserved;
} slicepool_shortage;

/**
 * Is told of a request that cannot be served; may free or evict something, and answers SLICEPOOL_SHORTAGE_RETRY, or
 * anything else to have it refused. Called up to 8 times for a request; half as often for each such call that is
 * running already, of whatever thread, so that one which allocates comes to an end: beside four others, not at all.
 */
typedef int32_t (*slicepool_device_out_of_memory_fn)(void *user_data,
                                                     const struct slicepool_shortage *shortage);

/** Memory that is to be filled with zeros: a slice. */
typedef struct slicepool_fill_request {
  /** sizeof(slicepool_fill_request) as the library knows it. */
  uint32_t struct_size;
  /** A SLICEPOOL_FILL_ reason. */
  uint32_t reason;
  /** Handle of the page. */
  uint64_t memory;
  /** Bytes from the start of the page. */
  uint64_t offset;
  /** Bytes. */
  uint64_t size;
  /** Address of the slice as the device sees it, 0 if the device gives none. */
  uint64_t address;
  /** Where the CPU sees the slice, NULL if it does not. */
  void *mapped;
  /** The device's own field of the page. */
  void *context;
} slicepool_fill_request;

/**
 * A place on a timeline of the device's work: a queue, a stream, a frame loop, numbered as the program likes. What
 * waits for it may be reused once the timeline has completed that value. Timelines begin at 0, which is completed from
 * the start, and rise. This struct will not grow.
 */
typedef struct slicepool_point {
  /** Number of the timeline. */
  uint32_t timeline;
  /** 0. */
  uint32_t reserved;
  /** The value. */
  uint64_t value;
} slicepool_point;

/**
 * Fills memory with zeros. SLICEPOOL_OK: done, or ordered before everything that the program does with the memory from
 * now on; if `point`, which is all 0 before, was set: under way until that has been passed, for which the slice waits.
 * A point is for SLICEPOOL_FILL_SCRUB only; for SLICEPOOL_FILL_ZERO it counts as a failure. Anything else: not done. A
 * new slice is freed again then and its request refused; a freed one stays pending, and is tried again by the next
 * slicepool_collect(), slicepool_trim() or free of many, but for those that are called while slices are being filled.
 * Without host memory for a point, a freed slice is not filled before there is some.
 */
typedef slicepool_result (*slicepool_device_fill_fn)(void *user_data,
                                                     const struct slicepool_fill_request *request,
                                                     struct slicepool_point *point);

/** What a device says of a heap, as VK_EXT_memory_budget and cuMemGetInfo do. */
typedef struct slicepool_heap_budget {
  /** sizeof(slicepool_heap_budget): set by the library for the callback, otherwise by the caller. */
  uint32_t struct_size;
  /** 0. */
  uint32_t reserved;
  /** Bytes in use, by this program as far as the device knows. */
  uint64_t usage;
  /** Bytes that this program can use without trouble. */
  uint64_t budget;
} slicepool_heap_budget;

/**
 * Says how much of a heap is used and may be: fills in `budget` and answers SLICEPOOL_OK. Any other answer means that
 * it is not known. Asked when memory is about to be taken for a request with SLICEPOOL_REQUEST_WITHIN_BUDGET, and never
 * else but for slicepool_heap_statistics_get() and reports.
 */
typedef slicepool_result (*slicepool_device_heap_budget_fn)(void *user_data,
                                                            uint32_t heap,
                                                            struct slicepool_heap_budget *budget);

/**
 * What gives out memory. Copied when an allocator is created.
 *
 * The callbacks run on the thread whose call needs them, with no lock held: they may be slow, and may call back into
 * the allocator (where destroying it answers SLICEPOOL_ERROR_BUSY). They must not throw, longjmp or unwind.
 */
typedef struct slicepool_device {
  /** sizeof(slicepool_device), set by the caller. */
  uint32_t struct_size;
  /** 0. */
  uint32_t reserved;
  /** First argument of every callback. */
  void *user_data;
  /** Required. */
  slicepool_device_allocate_fn allocate;
  /** Required. */
  slicepool_device_deallocate_fn deallocate;
  /** May be NULL. */
  slicepool_device_completed_fn completed;
  /** May be NULL. */
  slicepool_device_out_of_memory_fn out_of_memory;
  /** May be NULL: then requests with SLICEPOOL_REQUEST_ZERO or SLICEPOOL_REQUEST_SCRUB are not supported. */
  slicepool_device_fill_fn fill;
  /** May be NULL: then the budget of a heap is its limit, or its size. */
  slicepool_device_heap_budget_fn heap_budget;
  /** May be NULL, together with `unmap`: then only pages that come mapped can be. */
  slicepool_device_map_fn map;
  /** May be NULL, together with `map`. */
  slicepool_device_unmap_fn unmap;
  /** May be NULL, together with `invalidate`. */
  slicepool_device_cache_fn flush;
  /** May be NULL, together with `flush`. */
  slicepool_device_cache_fn invalidate;
  /** May be NULL. */
  slicepool_device_event_fn event;
} slicepool_device;

/**
 * Fills in a device whose pages are host memory of the C library: for staging memory, tests and first steps.
 *
 * Handle and address of its pages are their address; they are mapped where they lie, and it fills them for ZERO and
 * SCRUB.
 *
 * @param device  filled in; its struct_size must be set
 * @return SLICEPOOL_ERROR_INVALID_ARGUMENT
 *
 * Threads: any. Cost: constant.
 */
slicepool_result slicepool_host_device(struct slicepool_device *device);

/** sizeof(slicepool_heap_budget) as the library sees it, for bindings. */
uint32_t slicepool_sizeof_heap_budget(void);

/** sizeof(slicepool_point) as the library sees it, for bindings. */
uint32_t slicepool_sizeof_point(void);

/** sizeof(slicepool_shortage) as the library sees it, for bindings. */
uint32_t slicepool_sizeof_shortage(void);

/** sizeof(slicepool_fill_request) as the library sees it, for bindings. */
uint32_t slicepool_sizeof_fill_request(void);

/** sizeof(slicepool_device) as the library sees it, for bindings. */
uint32_t slicepool_sizeof_device(void);

/* ------------------------------------------------------------------------------------------------------------------
 * Host
 * ------------------------------------------------------------------------------------------------------------------ */

/**
 * Gives `size` bytes at a multiple of `alignment`, a power of two; NULL if there is none. Memory that is not aligned
 * as asked is given back and counts as none.
 */
typedef void *(*slicepool_host_allocate_fn)(void *user_data, uint64_t size, uint64_t alignment);

/** Takes back what `allocate` gave, with the same size and alignment. */
typedef void (*slicepool_host_deallocate_fn)(void *user_data,
                                             void *memory,
                                             uint64_t size,
                                             uint64_t alignment);

/** Takes or gives up a lock. */
typedef void (*slicepool_host_lock_fn)(void *user_data);

/** Waits a little between two tries for the spin lock; `attempt` counts from 0. */
typedef void (*slicepool_host_wait_fn)(void *user_data, uint32_t attempt);

/**
 * The host side of one allocator, space, budget or buffer pool: all optional, NULL means the default. Copied at
 * creation.
 *
 * None of these functions may call slicepool, throw, longjmp or unwind. Any thread that uses the object calls them.
 */
typedef struct slicepool_host {
  /** sizeof(slicepool_host), set by the caller. */
  uint32_t struct_size;
  /** 0. */
  uint32_t reserved;
  /** First argument of every function. */
  void *user_data;
  /**
   * Memory for bookkeeping; never called with a lock held. Both or neither. Default: the C library's; without an
   * operating system there is none.
   */
  slicepool_host_allocate_fn allocate;
  /** See `allocate`. */
  slicepool_host_deallocate_fn deallocate;
  /**
   * A lock instead of the spin lock: a mutex, or interrupts off. A plain one will do: it is never taken twice by
   * one thread, nor held across a callback. Both or neither. Not used by spaces.
   */
  slicepool_host_lock_fn lock;
  /** See `lock`. */
  slicepool_host_lock_fn unlock;
  /** What to do between two tries for the spin lock. Default: growing pauses, then the CPU is given up. */
  slicepool_host_wait_fn wait;
} slicepool_host;

/** sizeof(slicepool_host) as the library sees it, for bindings. */
uint32_t slicepool_sizeof_host(void);

/* ------------------------------------------------------------------------------------------------------------------
 * Memory: types, heaps, sizes of blocks
 * ------------------------------------------------------------------------------------------------------------------ */

/*
 * A device with several kinds of memory describes them once; a request says what its memory must and should be.
 *
 * @code
 * enum { DEVICE_LOCAL = 2 }; // properties are bits of your own, besides SLICEPOOL_MEMORY_TYPE_HOST_VISIBLE
 * slicepool_heap heaps[2] = {SLICEPOOL_HEAP_INIT, SLICEPOOL_HEAP_INIT};
 * slicepool_memory_type types[2] = {SLICEPOOL_MEMORY_TYPE_INIT, SLICEPOOL_MEMORY_TYPE_INIT};
 * slicepool_allocation_sizes sizes = SLICEPOOL_ALLOCATION_SIZES_INIT; // 256 MiB; 64 MiB where the host sees them
 * slicepool_allocator_config config = SLICEPOOL_ALLOCATOR_CONFIG_INIT;
 * slicepool_allocator *typed = NULL;
 * slicepool_request request = SLICEPOOL_REQUEST_INIT;
 * slicepool_slice slice = SLICEPOOL_SLICE_INIT;
 * heaps[0].size = 8ull << 30;
 * heaps[1].size = 16ull << 30;
 * types[0].properties = DEVICE_LOCAL;
 * types[1].properties = SLICEPOOL_MEMORY_TYPE_HOST_VISIBLE;
 * types[1].heap = 1;
 * sizes.min_host_memblock_size = 4 << 20;  // doubles with each block ...
 * sizes.max_host_memblock_size = 64 << 20; // ... up to this
 * config.memory_types = types;
 * config.memory_type_count = 2;
 * config.heaps = heaps;
 * config.heap_count = 2;
 * config.blocks = &sizes;
 * if (slicepool_allocator_create(&device, &config, &typed) != SLICEPOOL_OK) return 1;
 * request.size = 65536;
 * request.required = SLICEPOOL_MEMORY_TYPE_HOST_VISIBLE;
 * request.preferred = DEVICE_LOCAL; // a type with both would come first
 * if (slicepool_allocate(typed, &request, &slice) != SLICEPOOL_OK) return 2;
 * if (slicepool_free(typed, slice.id) != SLICEPOOL_OK) return 3;
 * if (slicepool_allocator_destroy(typed, 0, NULL) != SLICEPOOL_OK) return 4;
 * @endcode
 */

/** The host sees the memory. */
#define SLICEPOOL_MEMORY_TYPE_HOST_VISIBLE 1

/**
 * The CPU may see a page at any address, which says nothing of how the page is aligned for the device (Vulkan).
 * Otherwise `mapped` of a page without an address has to be aligned as the page was asked for.
 */
#define SLICEPOOL_MEMORY_TYPE_MAPPED_ANYWHERE 2

/**
 * The sizes of shared memory blocks: of each memory type the first block has the smallest, and the next has twice that
 * for every block that the type has at that time, up to seven times and to the maximum.
 *
 * Sizes are clamped to 4 MiB and 256 MiB, and then rounded up to a multiple of 4 MiB. They are what is asked for;
 * slicepool_allocation_sizes_adjust() tells what is used.
 */
typedef struct slicepool_allocation_sizes {
  /** sizeof(slicepool_allocation_sizes), set by the caller. */
  uint32_t struct_size;
  /** 0. */
  uint32_t reserved;
  /** The smallest block of memory that the host does not see; 0: 256 MiB. */
  uint64_t min_device_memblock_size;
  /** The largest; 0: the same. */
  uint64_t max_device_memblock_size;
  /** The smallest block of memory that the host sees; 0: 64 MiB. */
  uint64_t min_host_memblock_size;
  /** The largest; 0: the same. */
  uint64_t max_host_memblock_size;
} slicepool_allocation_sizes;

/** One kind of memory of a device. All zero but `struct_size` is a good start. */
typedef struct slicepool_memory_type {
  /** sizeof(slicepool_memory_type), set by the caller. */
  uint32_t struct_size;
  /** Position of the heap that the memory is taken from. */
  uint32_t heap;
  /** The largest page the device gives out; 0: no limit. */
  uint64_t max_page;
  /**
   * Every page is asked for at a multiple of this power of two, which is also the largest alignment a request may
   * have (unless a pool's granule is larger); 0: 4096.
   */
  uint64_t page_alignment;
  /**
   * Linear and optimal resources never share a range of this many bytes at a multiple of it (Vulkan's
   * bufferImageGranularity): a power of two of at most 2^32; 0: 1. Above a pool's granule, the two kinds have pages
   * of their own if there are pools for each (slicepool_pool_options.kinds); in a pool for both it takes the
   * granule's place.
   */
  uint64_t granularity;
  /**
   * What is flushed and invalidated are multiples of this many bytes, a power of two of at most 2^32; 0 and 1: the
   * memory is coherent, and nothing has to be. No pool has a smaller granule, so that nobody flushes another's
   * bytes.
   */
  uint64_t non_coherent_atom;
  /** What the memory is like, in bits of the program's own (VkMemoryPropertyFlags, say), which requests select by. */
  uint32_t properties;
  /** SLICEPOOL_MEMORY_TYPE_ flags. */
  uint32_t flags;
} slicepool_memory_type;

/** What several memory types share: the memory they are taken from. */
typedef struct slicepool_heap {
  /** sizeof(slicepool_heap), set by the caller. */
  uint32_t struct_size;
  /** 0. */
  uint32_t reserved;
  /**
   * Bytes; 0: not known. A request above it is too large, and blocks are an eighth of it at most, but not below 4
   * MiB.
   */
  uint64_t size;
  /** Bytes that the allocator may hold of it; 0: as many as the device gives. */
  uint64_t limit;
} slicepool_heap;

/**
 * What is used of the sizes that are asked for: clamped, rounded, and with their defaults.
 *
 * @param asked  read only; may be NULL for the defaults
 * @param used   filled in; its struct_size must be set; may be `asked`
 * @return SLICEPOOL_ERROR_INVALID_ARGUMENT, SLICEPOOL_ERROR_VERSION_MISMATCH
 *
 * Threads: any. Cost: constant.
 */
slicepool_result slicepool_allocation_sizes_adjust(const struct slicepool_allocation_sizes *asked,
                                                   struct slicepool_allocation_sizes *used);

/**
 * Bytes of the next block of a memory type.
 *
 * @param sizes    read only; may be NULL for the defaults
 * @param is_host  1 if the host sees the memory, otherwise 0
 * @param count    shared blocks that the type has
 * @param bytes    set on success
 * @return SLICEPOOL_ERROR_INVALID_ARGUMENT, SLICEPOOL_ERROR_VERSION_MISMATCH
 *
 * Threads: any. Cost: constant.
 */
slicepool_result slicepool_memblock_size(const struct slicepool_allocation_sizes *sizes,
                                         uint32_t is_host,
                                         uint32_t count,
                                         uint64_t *bytes);

/** sizeof(slicepool_memory_type) as the library sees it, for bindings. */
uint32_t slicepool_sizeof_memory_type(void);

/** sizeof(slicepool_heap) as the library sees it, for bindings. */
uint32_t slicepool_sizeof_heap(void);

/** sizeof(slicepool_allocation_sizes) as the library sees it, for bindings. */
uint32_t slicepool_sizeof_allocation_sizes(void);

/* ------------------------------------------------------------------------------------------------------------------
 * Pools
 * ------------------------------------------------------------------------------------------------------------------ */

/*
 * An allocator has a list of pools; the first that takes a request serves it. Start without a list, or with one that a
 * function below makes, and change it when slicepool_report_json() shows that something else would do better.
 *
 * @code
 * slicepool_pool_options pools[2] = {SLICEPOOL_POOL_OPTIONS_INIT, SLICEPOOL_POOL_OPTIONS_INIT};
 * slicepool_allocator_config config = SLICEPOOL_ALLOCATOR_CONFIG_INIT;
 * slicepool_allocator *engine = NULL;
 * pools[0].kind = SLICEPOOL_POOL_SLICED_PAGES; // small slices share pages of 2 MiB ...
 * pools[0].page_size = 2 << 20;
 * pools[0].max_slice_size = 256 << 10;
 * pools[1].kind = SLICEPOOL_POOL_EXCLUSIVE_PAGES; // ... and large ones have a page each
 * pools[1].max_alloc_size = 1 << 30;
 * pools[1].dealloc_period = 10000;
 * config.pools = pools;
 * config.pool_count = 2;
 * if (slicepool_allocator_create(&device, &config, &engine) != SLICEPOOL_OK) return 1;
 * if (slicepool_allocator_destroy(engine, 0, NULL) != SLICEPOOL_OK) return 2;
 * @endcode
 */

/** Every slice has a page of its own, of about its size, which near sizes share one after the other. */
#define SLICEPOOL_POOL_EXCLUSIVE_PAGES 1

/** Every slice has a page of its own, of exactly its size rounded up to the granule, which serves that size only. */
#define SLICEPOOL_POOL_DIRECT 2

/** Slices are cut from larger pages. */
#define SLICEPOOL_POOL_SLICED_PAGES 3

/** Requests above `max_slice_size` that fill more than four fifths of a page: taken if the pool has no cap. */
#define SLICEPOOL_NEAR_PAGE_WHEN_UNCAPPED 0

/** Such requests are always taken. */
#define SLICEPOOL_NEAR_PAGE_ALWAYS 1

/** Such requests are never taken. */
#define SLICEPOOL_NEAR_PAGE_NEVER 2

/**
 * The next page has an eighth of what the pool holds up to 16 times page_size, and a sixty-fourth beyond; at least
 * page_size and at most max_page_size. Of that it has as much as whole slices of the request's size fill, in steps of
 * a sixteenth of page_size. A request of 4 times page_size, or larger than such a page, gets a page for itself. Before
 * a page is taken, as many bytes go back in pages that hold nothing, if there are any: those idle the longest first.
 * They are gone even if the device then gives no page.
 */
#define SLICEPOOL_PAGE_GROWTH_SHARE 0

/**
 * The next page has twice page_size for every page that the pools with this rule hold of the memory type, up to seven
 * times and to max_page_size. If that is too small for the request, the first such size that is not. Pages that hold
 * nothing stay until they are too old.
 */
#define SLICEPOOL_PAGE_GROWTH_DOUBLING 1

/** Linear and optimal resources; the granule is at least the memory type's granularity. */
#define SLICEPOOL_KINDS_BOTH 0

/** Linear resources: requests without SLICEPOOL_REQUEST_OPTIMAL. */
#define SLICEPOOL_KINDS_LINEAR 1

/** Optimal resources: requests with SLICEPOOL_REQUEST_OPTIMAL. */
#define SLICEPOOL_KINDS_OPTIMAL 2

/** What a list of pools depends on. All zero but `struct_size` is a good start. */
typedef struct slicepool_layout_properties {
  /** sizeof(slicepool_layout_properties), set by the caller. */
  uint32_t struct_size;
  /** 0. */
  uint32_t reserved;
  /** Bytes of the largest page the device gives out; 0: no limit. */
  uint64_t max_page;
  /** What slices are aligned to, a power of two: the granule of the pools; 0: 256. */
  uint64_t alignment;
  /** Bytes of the heap that the pages come from; 0: not known. */
  uint64_t heap_size;
} slicepool_layout_properties;

/** A pool of an allocator. Sizes are bytes. Fields of other kinds than the pool's own are 0. */
typedef struct slicepool_pool_options {
  /** sizeof(slicepool_pool_options), set by the caller. */
  uint32_t struct_size;
  /** A SLICEPOOL_POOL_ kind. Required. */
  uint32_t kind;
  /**
   * Sliced pages: size of every page, or with max_page_size of the first, rounded up to the granule. Required. Above
   * max_page of the config it is refused.
   */
  uint64_t page_size;
  /** Sliced pages: the largest slice the pool takes; 0: as large as a page can be. */
  uint64_t max_slice_size;
  /**
   * Sliced pages: cap on all pages together: as many whole pages as it can pay for; 0: none. If it cannot pay for
   * one page, pages are as small as it is, and if not even for a granule, the pool serves nothing. Of pages that
   * grow the last one before the cap has what is left. The cap belongs to this pool of this allocator: with an
   * allocator per stream there is one per stream.
   */
  uint64_t max_pool_size;
  /** Sliced pages: 0: all pages are equal. Otherwise they grow up to this, as page_growth says. */
  uint64_t max_page_size;
  /**
   * Exclusive pages: the largest request the pool takes. A pool with 0 takes requests of size 0, and nothing else.
   *
   * A page has the request's size, rounded up by at most an eighth. One that is free serves again: the smallest that
   * fits, but none of more than twice the request as long as the device gives another.
   */
  uint64_t max_alloc_size;
  /**
   * Direct: when no free page has the size, free pages go back, lowest index first, until this many bytes hold the
   * new page too, or none is free; 0: no such watermark.
   */
  uint64_t reclaim_at;
  /** Every offset and size is a multiple of this power of two, at most 2^32; 0: 256. A page has at most 2^32 - 1. */
  uint64_t granule;
  /**
   * Pages that hold nothing go back after about this many allocations of the allocator; 0: never by themselves.
   *
   * A page has a count of staleness, which begins at 4. Using the page again after it held nothing takes 1 off.
   * Every dealloc_period / 5 allocations add 1 to each page that holds nothing; at 5 it goes, at most four in one
   * call. So a page that was never used again goes at the first check, one that was used again and again after a
   * whole period. Periods below 10 mean a check with every allocation.
   */
  uint64_t dealloc_period;
  /**
   * Bytes that the pool keeps whatever their age. Ageing alone heeds this. The page that is due first decides: if it
   * is too large to go, younger ones stay too.
   */
  uint64_t keep_bytes;
  /** Sliced pages: a SLICEPOOL_NEAR_PAGE_ rule. */
  uint32_t near_page;
  /** Sliced pages with max_page_size: a SLICEPOOL_PAGE_GROWTH_ rule. */
  uint32_t page_growth;
  /** Position of the memory type that the pages are taken from. */
  uint32_t memory_type;
  /** Sliced pages: which resources are taken, SLICEPOOL_KINDS_. */
  uint32_t kinds;
  /**
   * Sliced pages: how many are taken when the allocator is made, or the pool installed. Like others, they go back
   * when they are too old; keep_bytes keeps them.
   */
  uint32_t min_pages;
  /** 0. */
  uint32_t reserved;
} slicepool_pool_options;

/**
 * Two pools for programs of any size, which an allocator gets by default: pages of 4 MiB for requests up to 64 KiB,
 * and pages that grow with what is held, from 4 MiB to the smaller of 256 MiB and an eighth of the heap, for the
 * others. Pages that hold nothing go back after some thousand allocations: more than a frame or a training step has,
 * so that a program which repeats itself keeps what it needs. A program that allocates one byte takes 4 MiB.
 *
 * @param properties  may be NULL for the defaults
 * @param pools       `capacity` structs, of which the first has its struct_size set; written only if the whole list
 *                    fits; may be NULL if capacity is 0. Change them as you like and pass them to
 *                    slicepool_allocator_create(), with the same max_page in the config
 * @param count       set to the number of pools of the list, at most 32: if it is above capacity, nothing was written
 * @return SLICEPOOL_ERROR_INVALID_ARGUMENT (an alignment that is no power of two, or larger than max_page),
 *         SLICEPOOL_ERROR_VERSION_MISMATCH
 *
 * Threads: any. Cost: constant.
 */
slicepool_result slicepool_layout_adaptive(const struct slicepool_layout_properties *properties,
                                           struct slicepool_pool_options *pools,
                                           uint32_t capacity,
                                           uint32_t *count);

/**
 * A few pools of sliced pages, from max_page / 4 down to 32 MiB / 4 in steps of four, for slices of half a page, a
 * quarter and so on; an exclusive page for each larger request, which goes back when it was not used for 5,000
 * allocations and as many more for each GiB of max_page; and a pool for requests of size 0. Needs max_page to make
 * sense. As slicepool_layout_adaptive() in all else.
 *
 * @return as slicepool_layout_adaptive()
 *
 * Threads: any. Cost: constant.
 */
slicepool_result slicepool_layout_sub_slices(const struct slicepool_layout_properties *properties,
                                             struct slicepool_pool_options *pools,
                                             uint32_t capacity,
                                             uint32_t *count);

/**
 * A page for each slice, in up to 24 pools whose sizes form a geometric series from 32 KiB to max_page, which has to
 * be given to make sense. Pages go back when they were not used for 5,000 allocations and as many more for each GiB of
 * the pool's size. As slicepool_layout_adaptive() in all else.
 *
 * @return as slicepool_layout_adaptive()
 *
 * Threads: any. Cost: constant.
 */
slicepool_result slicepool_layout_exclusive_pages(const struct slicepool_layout_properties *properties,
                                                  struct slicepool_pool_options *pools,
                                                  uint32_t capacity,
                                                  uint32_t *count);

/** sizeof(slicepool_pool_options) as the library sees it, for bindings. */
uint32_t slicepool_sizeof_pool_options(void);

/** sizeof(slicepool_layout_properties) as the library sees it, for bindings. */
uint32_t slicepool_sizeof_layout_properties(void);

/* ------------------------------------------------------------------------------------------------------------------
 * Budgets: limits that allocators share
 * ------------------------------------------------------------------------------------------------------------------ */

/*
 * @code
 * slicepool_budget_config limits = SLICEPOOL_BUDGET_CONFIG_INIT;
 * slicepool_allocator_config config = SLICEPOOL_ALLOCATOR_CONFIG_INIT;
 * slicepool_allocator *streams[2] = {NULL, NULL};
 * limits.max_bytes = 256 << 20; // for both streams together
 * if (slicepool_budget_create(&limits, &config.budget) != SLICEPOOL_OK) return 1;
 * if (slicepool_allocator_create(&device, &config, &streams[0]) != SLICEPOOL_OK) return 2;
 * if (slicepool_allocator_create(&device, &config, &streams[1]) != SLICEPOOL_OK) return 3;
 * if (slicepool_budget_release(config.budget) != SLICEPOOL_OK) return 4; // the allocators keep it
 * if (slicepool_allocator_destroy(streams[0], 0, NULL) != SLICEPOOL_OK) return 5;
 * if (slicepool_allocator_destroy(streams[1], 0, NULL) != SLICEPOOL_OK) return 6;
 * @endcode
 */

/**
 * Limits on bytes and pages that several allocators share: one per stream over one device, one per memory type of a
 * heap.
 *
 * Every page counts from before the device is asked for it until the device has taken it back, those it refuses to
 * take included. A reservation that is refused although the limits allow for it raises the budget's pressure: each
 * allocator that shares it gives pages that hold nothing back when it allocates, frees or collects the next time,
 * until what was refused would fit. An allocator that has gone leaves nothing reserved, even if its device kept a
 * page.
 *
 * Counts its owners: the caller of slicepool_budget_create() is one, and so is each allocator.
 */
typedef struct slicepool_budget slicepool_budget;

/** A budget's limits. All zero but `struct_size` is a good start. */
typedef struct slicepool_budget_config {
  /** sizeof(slicepool_budget_config), set by the caller. */
  uint32_t struct_size;
  /** Pages that may be held; 0: any number. */
  uint32_t max_pages;
  /** Bytes that may be held; 0: any number. */
  uint64_t max_bytes;
  /**
   * Where the budget lives and how threads are kept apart; NULL: the C library's memory, and a spin lock that
   * yields.
   */
  const slicepool_host *host;
  /** Where the details of a failed creation go; may be NULL. */
  slicepool_failure *failure;
} slicepool_budget_config;

/** What of a budget is used, at one instant. */
typedef struct slicepool_budget_statistics {
  /** sizeof(slicepool_budget_statistics), set by the caller. */
  uint32_t struct_size;
  /**
   * Reservations that were refused although the limits allow for them, and limits that were set below what is held.
   * Wraps.
   */
  uint32_t pressure;
  /** Bytes that may be held; UINT64_MAX: any number. */
  uint64_t max_bytes;
  /** Bytes that are held, or just being taken. */
  uint64_t bytes;
  /** The most `bytes` has been. */
  uint64_t bytes_peak;
  /** Pages that may be held; UINT32_MAX: any number. */
  uint32_t max_pages;
  /** Pages that are held, or just being taken. */
  uint32_t pages;
  /** The most `pages` has been. */
  uint32_t pages_peak;
  /** 0. */
  uint32_t reserved;
} slicepool_budget_statistics;

/**
 * Creates a budget.
 *
 * @param config  copied; NULL: a budget without limits, which counts
 * @param budget  set on success; to be released by the caller
 * @return SLICEPOOL_ERROR_INVALID_ARGUMENT, SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY, SLICEPOOL_ERROR_VERSION_MISMATCH
 *
 * Threads: any. Cost: one host allocation.
 */
slicepool_result slicepool_budget_create(const struct slicepool_budget_config *config,
                                         struct slicepool_budget **budget);

/**
 * Makes one owner more, who has to release it too.
 *
 * @return SLICEPOOL_ERROR_INVALID_ARGUMENT
 *
 * Threads: any. Cost: constant.
 */
slicepool_result slicepool_budget_retain(struct slicepool_budget *budget);

/**
 * Makes one owner less. With the last, which may be an allocator, the budget goes.
 *
 * @param budget  not used by this owner any more; NULL is ignored
 * @return SLICEPOOL_OK
 *
 * Threads: any. Cost: constant.
 */
slicepool_result slicepool_budget_release(struct slicepool_budget *budget);

/**
 * Changes the limits. Pages that are held above them stay; none are taken until enough have gone, and pages that hold
 * nothing go as if a reservation had been refused.
 *
 * @param max_bytes  0: any number
 * @param max_pages  0: any number
 * @return SLICEPOOL_ERROR_INVALID_ARGUMENT
 *
 * Threads: any. Cost: constant.
 */
slicepool_result slicepool_budget_limits_set(struct slicepool_budget *budget,
                                             uint64_t max_bytes,
                                             uint32_t max_pages);

/**
 * What of a budget is used.
 *
 * @param statistics  filled in; its struct_size must be set
 * @return SLICEPOOL_ERROR_INVALID_ARGUMENT
 *
 * Threads: any. Cost: constant.
 */
slicepool_result slicepool_budget_statistics_get(struct slicepool_budget *budget,
                                                 struct slicepool_budget_statistics *statistics);

/** sizeof(slicepool_budget_config) as the library sees it, for bindings. */
uint32_t slicepool_sizeof_budget_config(void);

/** sizeof(slicepool_budget_statistics) as the library sees it, for bindings. */
uint32_t slicepool_sizeof_budget_statistics(void);

/* ------------------------------------------------------------------------------------------------------------------
 * Allocator
 * ------------------------------------------------------------------------------------------------------------------ */

/** The caller lets one thread at a time into the allocator: no lock is taken. */
#define SLICEPOOL_ALLOCATOR_EXTERNALLY_SYNCHRONIZED 1

/**
 * Pool options that would be adjusted are refused: pages that are no multiple of the granule, slices larger than a
 * page or than all pages may be, pages larger than the cap, a max_alloc_size or max_page_size above max_page or what a
 * page can have.
 */
#define SLICEPOOL_ALLOCATOR_VALIDATE 2

/**
 * Everything is placed and counted as always, but the device gives no memory before slicepool_resolve() asks for a
 * slice's. For measuring what a program needs. Caps of pools hold; the other limits count only what has been resolved.
 */
#define SLICEPOOL_ALLOCATOR_DRY_RUN 4

/**
 * Slices that the CPU sees are filled with the byte 0xDC when they are handed out, and with 0xEF when they are freed,
 * or when what they waited for has passed; not those with device data. For finding programs' faults; slow.
 */
#define SLICEPOOL_ALLOCATOR_DEBUG_FILL 8

/**
 * Requests that no pool takes, of the memory type that they come to, because they are too large for all of them or
 * there is none for their kind, have a page of their own, as if they had SLICEPOOL_REQUEST_DEDICATED. Always so with
 * `blocks`.
 */
#define SLICEPOOL_ALLOCATOR_DEDICATED_WHEN_TOO_LARGE 16

/** The callback `event` hears of every slice too. Slow: each is looked after by hand. */
#define SLICEPOOL_ALLOCATOR_SLICE_EVENTS 32

/**
 * Destroy although slices are live or pending. Those with SLICEPOOL_REQUEST_SCRUB are overwritten if that works at
 * once.
 */
#define SLICEPOOL_DESTROY_FORCE 1

/**
 * Abandon in a forked child, which may release its parent's budgets besides: callbacks that the parent's threads were
 * running at the fork do not count.
 */
#define SLICEPOOL_ABANDON_FORKED 1

/** Pools over one device. */
typedef struct slicepool_allocator slicepool_allocator;

/** How an allocator is made. All zero but `struct_size` is a good start. */
typedef struct slicepool_allocator_config {
  /** sizeof(slicepool_allocator_config), set by the caller. */
  uint32_t struct_size;
  /** SLICEPOOL_ALLOCATOR_ flags. */
  uint32_t flags;
  /**
   * The largest page the device gives out; 0: no limit. This and the next two describe a device with memory of one
   * kind, and are 0 where memory_types do.
   */
  uint64_t max_page;
  /**
   * Every page is asked for at a multiple of this power of two, which is also the largest alignment a request may
   * have (unless a pool's granule is larger); 0: 4096. Say what the device really guarantees.
   */
  uint64_t page_alignment;
  /** Bytes of the heap that pages come from; 0: not known. A request above it is too large. */
  uint64_t heap_size;
  /**
   * Bytes that the allocator may hold from the device, pages that are just being taken and those that the device
   * does not take back included; 0: as many as it gives.
   */
  uint64_t max_bytes;
  /**
   * Granule of the pool of slices with SLICEPOOL_REQUEST_PERSISTENT; 0: 256, and slicepool_allocator_bytes_needed()
   * does not count on there being any.
   */
  uint64_t persistent_granule;
  /**
   * Bytes behind each slice that belong to nobody, at most 1 MiB, rounded up to the granule, which may be 1 MiB too
   * then; 0: none. Where the CPU sees them they are filled with the byte 0xFD, and looked at when the slice is freed
   * and by slicepool_check_margins(). They count as padding, and slices that fill a page are as much smaller. Slices
   * with device data have none. For finding programs' faults; slow.
   */
  uint64_t debug_margin;
  /**
   * Pages of slices with SLICEPOOL_REQUEST_DEDICATED that hold nothing go back after about this many allocations, as
   * with slicepool_pool_options.dealloc_period; 0: 1024; UINT64_MAX: never by themselves.
   */
  uint64_t dedicated_period;
  /**
   * Number of pools, at most 256; 0: those that `blocks` asks for, or those of slicepool_layout_adaptive() for each
   * memory type.
   */
  uint32_t pool_count;
  /**
   * A request that would fit into a page which another call is just getting waits for it this many back-off steps
   * before it gets its own, or is refused at the cap; 0: 32. A step is what the spin lock does between two tries:
   * some microseconds at most, or giving up the CPU once. A device that takes longer is not waited for to the end.
   */
  uint32_t growth_wait_steps;
  /** Pages that the allocator may hold, counted as for max_bytes; 0: any number. */
  uint32_t max_pages;
  /** Number of memory types, at most 32; 0: one, as described above. */
  uint32_t memory_type_count;
  /** Number of heaps, at most 32; 0: one of unknown size. */
  uint32_t heap_count;
  /** 0. */
  uint32_t reserved;
  /** The memory types, by whose positions pools and requests name them. */
  const slicepool_memory_type *memory_types;
  /** The heaps, by whose positions memory types name them. */
  const slicepool_heap *heaps;
  /**
   * Instead of pools: shared blocks of these sizes in each memory type, and pages of their own for larger requests;
   * NULL: not so. No block is larger than an eighth of its heap, or 4 MiB if that is more; blocks that hold nothing
   * go back after about 1,024 allocations.
   */
  const slicepool_allocation_sizes *blocks;
  /** The pools, in the order in which they are tried. */
  const slicepool_pool_options *pools;
  /** Host memory and lock; NULL: the C library's memory, and a spin lock that yields. */
  const slicepool_host *host;
  /** Limits shared with other allocators; NULL: none. The allocator becomes one of its owners. */
  slicepool_budget *budget;
  /** Where the details of a failed creation go; may be NULL. */
  slicepool_failure *failure;
  /** A name for reports, NUL-terminated UTF-8, of which SLICEPOOL_MAX_NAME bytes are kept; may be NULL. */
  const char *name;
  /** Anything that the program wants to keep with the allocator: slicepool_allocator_user_data_get(). */
  void *user_data;
  /** NULL. */
  void *reserved_pointer;
} slicepool_allocator_config;

/**
 * Creates an allocator. Takes nothing from the device yet, unless pools have min_pages.
 *
 * @param device     copied; its user_data must stay valid until the allocator is gone
 * @param config     copied with all it points to; may be NULL for the defaults
 * @param allocator  set on success; to be destroyed or abandoned by the caller
 * @return SLICEPOOL_ERROR_INVALID_ARGUMENT (config->failure names the field), SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY,
 *         SLICEPOOL_ERROR_VERSION_MISMATCH; those of slicepool_prefill() for min_pages, of which the device has all
 *         back then
 *
 * Threads: any. Cost: a few host allocations per pool.
 */
slicepool_result slicepool_allocator_create(const slicepool_device *device,
                                            const struct slicepool_allocator_config *config,
                                            struct slicepool_allocator **allocator);

/**
 * Creates an allocator all of whose bookkeeping, and itself, lives in a block of memory that the caller provides. It
 * never asks for more: when the block is full, calls answer SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY until something is
 * freed. How much has to be freed depends: cutting a slice wants some slots to spare whether it needs them or not. A
 * block of slicepool_allocator_bytes_needed() is never full, unless with what that does not count.
 *
 * @param device     as for slicepool_allocator_create()
 * @param config     as for slicepool_allocator_create(); its host must not have `allocate`
 * @param memory     at any address; the library's own until the allocator is destroyed or abandoned, then the caller's
 *                   again
 * @param bytes      of the block; see slicepool_allocator_bytes_needed()
 * @param allocator  set on success; lies in the block
 * @return as slicepool_allocator_create(); SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY if the block is too small even for that
 *
 * Threads: any. Cost: no host allocations.
 */
slicepool_result slicepool_allocator_create_in(const slicepool_device *device,
                                               const struct slicepool_allocator_config *config,
                                               void *memory,
                                               uint64_t bytes,
                                               struct slicepool_allocator **allocator);

/**
 * Bytes of a block for slicepool_allocator_create_in() in which an allocator of this config always has room for its
 * books, as far as they are counted.
 *
 * An upper bound, whichever pools the slices and pages are in and in whatever order they come and go. Not counted:
 * names and user data; pools of slices with pages of their own (DEDICATED, device_data, PERSISTENT), unless the config
 * has SLICEPOOL_ALLOCATOR_DEDICATED_WHEN_TOO_LARGE or a persistent_granule; 64 bytes for each slice of a
 * slicepool_allocate_many() while that runs; and one slot of 32 bytes that wears out with every 16.7 million frees of
 * it.
 *
 * @param config  as for slicepool_allocator_create_in(); may be NULL
 * @param slices  the most slices that are live or pending at a time
 * @param pages   the most pages that are held at a time, of all pools together, those being taken included
 * @param timelines  the most timelines that slices have waited for, and that are not forgotten. Not counted: 32 bytes
 *                   for each point of slices that wait for several; other pools beside those there are, while
 *                   slicepool_install_pools() puts them in their place
 * @param bytes   set on success
 * @return as slicepool_allocator_create(); SLICEPOOL_ERROR_TOO_MANY_SLICES above the slots a pool
 *         can have
 *
 * Threads: any. Cost: constant per pool.
 */
slicepool_result slicepool_allocator_bytes_needed(const struct slicepool_allocator_config *config,
                                                  uint32_t slices,
                                                  uint32_t pages,
                                                  uint32_t timelines,
                                                  uint64_t *bytes);

/**
 * Gives every page back to the device and frees the allocator. No callback comes after this returns.
 *
 * @param allocator  not used by anybody else any more, unless the call fails
 * @param flags      SLICEPOOL_DESTROY_FORCE: also if slices are live or the device refuses a page
 * @param failure    may be NULL
 * @return SLICEPOOL_ERROR_BUSY while slices are live or pending, or a callback of this allocator is running (so from
 *         within one, FORCE or not); SLICEPOOL_ERROR_DEVICE_FAILED if the device refuses to take a page back. The
 *         allocator and its slices are as usable as before then; a refused page counts as stuck.
 *
 * Threads: exclusive. Cost: one device call a page.
 */
slicepool_result slicepool_allocator_destroy(struct slicepool_allocator *allocator,
                                             uint32_t flags,
                                             slicepool_failure *failure);

/**
 * Frees the allocator's host memory without a word to the device: for process exit, a lost device, or a forked
 * child, which may call nothing else of its parent's allocators.
 *
 * @param allocator  not used by anybody else any more, unless the call fails
 * @param flags      SLICEPOOL_ABANDON_FORKED in a forked child
 * @return SLICEPOOL_ERROR_BUSY while a callback of this allocator is running, unless forked
 *
 * Threads: exclusive. Cost: a few host deallocations.
 */
slicepool_result slicepool_allocator_abandon(struct slicepool_allocator *allocator,
                                             uint32_t flags);

/**
 * Gives pages that hold nothing back to the device, those of all pools that have held nothing the longest first, while
 * at least `min_keep_bytes` stay reserved; asks again for pages that the device has refused to take back.
 *
 * Of each pool the page that has held nothing the longest is looked at: where that one is too large to go, others of
 * its pool stay too. Pages of persistent slices are neither given back nor counted.
 *
 * @param failure  may be NULL
 * @return SLICEPOOL_ERROR_DEVICE_FAILED if the device refuses a page: the others have been given back, that one is
 *         kept and counted as stuck; as slicepool_collect() for slices that are still to be overwritten
 *
 * Threads: any. Cost: one device call a page, and a look at every pool.
 */
slicepool_result slicepool_trim(struct slicepool_allocator *allocator,
                                uint64_t min_keep_bytes,
                                slicepool_failure *failure);

/**
 * Gives every page that holds nothing back to the device, those of persistent slices too. Handles of live slices stay
 * valid.
 *
 * @param failure  may be NULL
 * @return as slicepool_trim()
 *
 * Threads: any. Cost: one device call a page.
 */
slicepool_result slicepool_cleanup(struct slicepool_allocator *allocator,
                                   slicepool_failure *failure);

/**
 * Makes memory that the program owns a page of a pool, as if the device had just given it out: slices are cut from it,
 * and it goes back to the callback `deallocate` like any other, where `context` can tell it apart.
 *
 * @param pool     position in the list of pools
 * @param memory   as `allocate` fills it in, and its size: of pools whose pages are equal it must be theirs, of
 *                 exclusive pages one that the pool takes itself, otherwise a multiple of the granule; device_code 0
 * @param failure  may be NULL
 * @return SLICEPOOL_ERROR_INVALID_ARGUMENT (no such pool, a size that it cannot use, the handle UINT64_MAX),
 *         SLICEPOOL_ERROR_DEVICE_FAILED (not aligned; live already), SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED,
 *         SLICEPOOL_ERROR_BUDGET_EXCEEDED, SLICEPOOL_ERROR_PAGE_COUNT_EXCEEDED, SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY,
 *         SLICEPOOL_ERROR_NOT_SUPPORTED in a dry run, SLICEPOOL_ERROR_BUSY while the allocator is being destroyed. The
 *         memory is still the program's then
 *
 * Threads: any. Cost: constant.
 */
slicepool_result slicepool_adopt(struct slicepool_allocator *allocator,
                                 uint32_t pool,
                                 const slicepool_device_memory *memory,
                                 slicepool_failure *failure);

/**
 * Takes pages from the device that hold nothing yet, until a pool of sliced pages holds as many.
 *
 * @param pool     position in the list of pools
 * @param failure  may be NULL
 * @return SLICEPOOL_ERROR_INVALID_ARGUMENT (no such pool, or not of sliced pages); otherwise as slicepool_allocate().
 *         Pages that were taken stay
 *
 * Threads: any. Cost: one device call a page.
 */
slicepool_result slicepool_prefill(struct slicepool_allocator *allocator,
                                   uint32_t pool,
                                   uint32_t pages,
                                   slicepool_failure *failure);

/**
 * The pools that an allocator of this config would have, as slicepool_pool_options_get() tells: those of `blocks`, or
 * adaptive ones for each memory type, or those it names. Change them as you like and name them in its stead.
 *
 * @param config  as for slicepool_allocator_create()
 * @param pools   `capacity` structs, of which the first has its struct_size set; written only if the whole list fits;
 *                may be NULL if capacity is 0
 * @param count   set to the number of pools: if it is above capacity, nothing was written
 * @return as slicepool_allocator_create()
 *
 * Threads: any. Cost: constant per pool.
 */
slicepool_result slicepool_config_pools(const struct slicepool_allocator_config *config,
                                        slicepool_pool_options *pools,
                                        uint32_t capacity,
                                        uint32_t *count);

/** sizeof(slicepool_allocator_config) as the library sees it, for bindings. */
uint32_t slicepool_sizeof_allocator_config(void);

/* ------------------------------------------------------------------------------------------------------------------
 * Requests
 * ------------------------------------------------------------------------------------------------------------------ */

/** Only the pool of the request's `pool` may serve it. */
#define SLICEPOOL_REQUEST_IN_POOL 1

/**
 * For what lives as long as the program: a device allocation of its own of this size, rounded up to the granule, so
 * that no page of other slices is kept by it. Not for size 0. Freed, it serves requests of the same size with this
 * flag, and only slicepool_cleanup() gives it back. Not together with SLICEPOOL_REQUEST_IN_POOL.
 */
#define SLICEPOOL_REQUEST_PERSISTENT 2

/** The device fills the slice with zeros before it is handed out. Needs the callback `fill`. */
#define SLICEPOOL_REQUEST_ZERO 4

/**
 * The device overwrites the slice with zeros after it was freed, before anything else is placed there. Needs the
 * callback `fill`. What fails to be overwritten stays pending, and is tried again by slicepool_collect() and
 * slicepool_trim().
 */
#define SLICEPOOL_REQUEST_SCRUB 8

/**
 * A page for itself, of the request's size rounded up to the granule. Freed, it serves requests of the same size with
 * this flag, until it is too old (slicepool_allocator_config.dedicated_period) or trimmed. Not together with
 * SLICEPOOL_REQUEST_IN_POOL.
 */
#define SLICEPOOL_REQUEST_DEDICATED 16

/**
 * From memory that is held already: no callback is called for that, `completed` neither; nothing ages, nothing goes
 * back. (What fills a slice, or hears of events, is called all the same, and so is the host's memory if the books need
 * some.)
 */
#define SLICEPOOL_REQUEST_NEVER_GROW 32

/** Without taking a page that would take the heap above its budget: see slicepool_device.heap_budget. */
#define SLICEPOOL_REQUEST_WITHIN_BUDGET 64

/**
 * For an optimal resource, an image that the device lays out as it likes; otherwise for a linear one. See
 * slicepool_memory_type.granularity.
 */
#define SLICEPOOL_REQUEST_OPTIMAL 128

/** search_depth counts. */
#define SLICEPOOL_REQUEST_SEARCH_DEPTH 256

/**
 * In place of a pool's position: the pool of slices with SLICEPOOL_REQUEST_PERSISTENT of the first memory type. See
 * slicepool_own_pool().
 */
#define SLICEPOOL_PERSISTENT_POOL 4294967295

/** What a slice must be like. All zero but `struct_size` and `size` is a good start. */
typedef struct slicepool_request {
  /** sizeof(slicepool_request), set by the caller. */
  uint32_t struct_size;
  /** SLICEPOOL_REQUEST_ flags. */
  uint32_t flags;
  /** Bytes. 0 is refused unless the allocator has a pool of exclusive pages with max_alloc_size 0. */
  uint64_t size;
  /**
   * The slice's offset, and its address where it has one, will be a multiple of this power of two; 0: the pool's
   * granule. At most the page alignment.
   */
  uint64_t alignment;
  /** With SLICEPOOL_REQUEST_IN_POOL: position of that pool in the list of pools; otherwise 0. */
  uint32_t pool;
  /**
   * With SLICEPOOL_REQUEST_SEARCH_DEPTH: so many holes of the request's own size class are looked at before a larger
   * hole is broken or a page taken, and after that only what is found in constant time; more packs better and takes
   * longer. Otherwise 0: 2, then 64 before a page is taken, then all before the request is refused.
   */
  uint32_t search_depth;
  /** Bit i: memory type i may be used; 0: any may. */
  uint32_t memory_types;
  /** Properties (slicepool_memory_type.properties) that the memory must have, all of them. */
  uint32_t required;
  /**
   * Properties that it should have: types that lack the fewest are tried first, of equal ones that of the lowest
   * position.
   */
  uint32_t preferred;
  /** Properties of which it must have none. */
  uint32_t forbidden;
  /**
   * A page for itself, for which this is handed to the device as slicepool_page_request.device_data: what an image
   * must be bound to, a handle to import. It serves once: after the slice was freed it goes back with the next
   * allocation, at most four with each, or a trim. Not together with SLICEPOOL_REQUEST_IN_POOL. NULL: not so.
   */
  void *device_data;
  /** A name for the slice: slicepool_name_set(). NULL: none. */
  const char *name;
  /** A pointer for the slice: slicepool_user_data_set(). */
  void *user_data;
  /** Where the details of a failure go; may be NULL. */
  slicepool_failure *failure;
} slicepool_request;

/** sizeof(slicepool_request) as the library sees it, for bindings. */
uint32_t slicepool_sizeof_request(void);

/* ------------------------------------------------------------------------------------------------------------------
 * Slices
 * ------------------------------------------------------------------------------------------------------------------ */

/*
 * @code
 * slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
 * slicepool_request request = SLICEPOOL_REQUEST_INIT;
 * slicepool_slice slice = SLICEPOOL_SLICE_INIT;
 * slicepool_result result;
 * request.size = 100000;
 * request.alignment = 4096;
 * request.name = "vertices";
 * request.failure = &failure;
 * result = slicepool_allocate(allocator, &request, &slice);
 * if (result != SLICEPOOL_OK) {
 *   printf("%s: %llu bytes, device code %d\n", slicepool_result_string(result), (unsigned long long)failure.size,
 *          (int)failure.device_code);
 *   return 1;
 * }
 * // Bind it: [slice.offset, slice.offset + slice.size) of the memory slice.memory. Keep slice.id.
 * if (slice.offset % 4096 != 0) return 2;
 * if (slicepool_free(allocator, slice.id) != SLICEPOOL_OK) return 3;
 * if (slicepool_free(allocator, slice.id) != SLICEPOOL_ERROR_STALE_HANDLE) return 4; // a handle is good once
 * @endcode
 */

/**
 * A piece of a page: [offset, offset + size) of the device memory named `memory`. Copy it freely; only `id` is ever
 * trusted.
 */
typedef struct slicepool_slice {
  /** sizeof(slicepool_slice), set by the caller. */
  uint32_t struct_size;
  /** 0. */
  uint32_t reserved;
  /** What frees the slice; never 0, never given out again. */
  uint64_t id;
  /** Handle of the page, as the device filled it in; UINT64_MAX in a dry run until slicepool_resolve(). */
  uint64_t memory;
  /** Bytes from the start of the page. */
  uint64_t offset;
  /** Usable bytes: those asked for, rounded up to the granule, or the whole page where every slice has its own. */
  uint64_t size;
  /** Address of the slice as the device sees it, 0 if the device gives none. */
  uint64_t address;
  /** Where the CPU sees the slice, NULL if the device has not mapped the page for good; see slicepool_map(). */
  void *mapped;
  /** What was attached to the slice, a pointer of the program's; NULL if nothing was. */
  void *user_data;
} slicepool_slice;

/**
 * Hands out a slice.
 *
 * @param request  read only; request->failure gets the details of a failure
 * @param slice    filled in on success; its struct_size must be set
 * @return SLICEPOOL_ERROR_INVALID_ARGUMENT (size 0 where no pool takes it; an alignment that is no power of two or
 *         above the page alignment; a pool that does not exist; NULL; unknown flags), SLICEPOOL_ERROR_TOO_LARGE,
 *         SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED, SLICEPOOL_ERROR_BUDGET_EXCEEDED,
 *         SLICEPOOL_ERROR_PAGE_COUNT_EXCEEDED, SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY, SLICEPOOL_ERROR_DEVICE_FAILED,
 *         SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY, SLICEPOOL_ERROR_TOO_MANY_SLICES, SLICEPOOL_ERROR_NOT_SUPPORTED (ZERO or
 *         SCRUB without `fill`; no memory type or pool suits), SLICEPOOL_ERROR_VERSION_MISMATCH, SLICEPOOL_ERROR_BUSY
 *         (from a callback while the allocator is being destroyed). Where several pools refuse, the first of: host
 *         memory, device, budget, page count, pool capacity, too large
 *
 * When memory that is held does not serve the request, these help, in this order: what the device says it is done with
 * (`completed`); a page from the device, in pools whose pages grow also a smaller one; a look at every free range that
 * could hold it; giving back pages that hold nothing, of any pool but that of persistent slices, those idle the
 * longest first; the callback `out_of_memory`. After the device has had no memory for a page, it is not asked for one
 * as large again for 64 requests that fail, twice as many after the next refusal, unless a page was given back or the
 * allocator trimmed.
 *
 * Threads: any. Cost: constant if memory that is held serves the request by its size class; otherwise a look at 64
 * free ranges and one device call; and where no page can be had, a look at every free range that could hold it, 64 to
 * 1,024 of them per lock hold. Where pages age, at most four that are too old are given back. Callbacks run on the
 * calling thread.
 */
slicepool_result slicepool_allocate(slicepool_allocator *allocator,
                                    const slicepool_request *request,
                                    struct slicepool_slice *slice);

/**
 * Hands out a slice for each request, or none at all.
 *
 * If one is refused, the slices placed before it are freed again, and the pages taken from the device for them are
 * given back; peaks in the statistics stay.
 *
 * @param requests  `count` structs, all with the struct_size of the first
 * @param count     0 is fine
 * @param slices    `count` structs, all with the struct_size of the first; filled in on success
 * @return as slicepool_allocate(); the details go to the failure of the request that was refused, or else of the
 *         first
 *
 * Threads: any; others see the slices come one by one. Cost: that of the single calls, and two host allocations.
 */
slicepool_result slicepool_allocate_many(slicepool_allocator *allocator,
                                         const slicepool_request *requests,
                                         uint32_t count,
                                         struct slicepool_slice *slices);

/**
 * Takes a slice back. Its page stays with the allocator until it is trimmed, too old, or wanted: pages that hold
 * nothing go back here only if another allocator that shares the budget wants memory. Any thread may free what another
 * allocated.
 *
 * @param id  of a live slice; 0 is ignored
 * @return SLICEPOOL_ERROR_STALE_HANDLE if it has been freed before, SLICEPOOL_ERROR_FOREIGN_HANDLE if it was never
 *         this allocator's; nothing changes then. SLICEPOOL_ERROR_MARGIN_DAMAGED: the slice is live, its margin
 *         mended, and the next free succeeds
 *
 * Threads: any. Cost: constant.
 */
slicepool_result slicepool_free(slicepool_allocator *allocator,
                                uint64_t id);

/**
 * Takes slices back: all of them, or none if one handle is refused. Another free of one of them is refused as stale
 * while this call runs, even if it is refused in the end.
 *
 * @param ids      `count` handles; zeros are ignored; a handle that occurs twice is stale
 * @param failure  may be NULL; `index` tells which handle was refused
 * @return as slicepool_free()
 *
 * Threads: any; others see the slices go one by one. Cost: that of the single calls, with fewer locks taken.
 */
slicepool_result slicepool_free_many(slicepool_allocator *allocator,
                                     const uint64_t *ids,
                                     uint32_t count,
                                     slicepool_failure *failure);

/**
 * The slice of a handle, as it was handed out or last resized.
 *
 * @param slice  filled in on success; its struct_size must be set
 * @return SLICEPOOL_ERROR_STALE_HANDLE, SLICEPOOL_ERROR_FOREIGN_HANDLE, SLICEPOOL_ERROR_INVALID_ARGUMENT (id 0)
 *
 * Threads: any. Cost: constant.
 */
slicepool_result slicepool_slice_get(slicepool_allocator *allocator,
                                     uint64_t id,
                                     struct slicepool_slice *slice);

/**
 * Gives a slice another size where it lies. Never moves it, never calls the device. What a slice with
 * SLICEPOOL_REQUEST_ZERO grows by is not zeroed.
 *
 * @param size     bytes that the pool takes: at least 1, but for pools that take 0
 * @param slice    filled in on success with the slice as it is then; its struct_size must be set
 * @param failure  may be NULL; `limit` tells for NO_ROOM how much room there is where the slice lies, for TOO_LARGE
 *                 how much the pool takes
 * @return SLICEPOOL_ERROR_NO_ROOM if what follows it is in use; SLICEPOOL_ERROR_STALE_HANDLE;
 *         SLICEPOOL_ERROR_FOREIGN_HANDLE; SLICEPOOL_ERROR_INVALID_ARGUMENT; SLICEPOOL_ERROR_TOO_LARGE;
 *         SLICEPOOL_ERROR_NOT_SUPPORTED for slices with SLICEPOOL_REQUEST_SCRUB; SLICEPOOL_ERROR_MARGIN_DAMAGED;
 *         SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY; the slice is unchanged then
 *
 * Threads: any. Cost: constant.
 */
slicepool_result slicepool_try_resize(slicepool_allocator *allocator,
                                      uint64_t id,
                                      uint64_t size,
                                      struct slicepool_slice *slice,
                                      slicepool_failure *failure);

/**
 * Whether memory that is held would serve a request now, without the device and without doing it. True at that instant
 * only, and exact with SLICEPOOL_REQUEST_NEVER_GROW; other requests may take a page all the same if finding the range
 * takes a long look, or if an exclusive page would serve that is more than twice as large.
 *
 * @param would_fit  set to 1 or 0
 * @return as slicepool_allocate() for requests that could never be served
 *
 * Threads: any. Cost: at most one look at every free range that could hold the request.
 */
slicepool_result slicepool_would_fit(slicepool_allocator *allocator,
                                     const slicepool_request *request,
                                     uint32_t *would_fit);

/**
 * Whether serving a request would take memory from the device: slicepool_would_fit(), the other way round. Whether the
 * device or a limit would refuse it, only trying tells.
 *
 * @param would_grow  set to 1 or 0
 * @return as slicepool_would_fit()
 *
 * Threads: any. Cost: as slicepool_would_fit().
 */
slicepool_result slicepool_would_grow(slicepool_allocator *allocator,
                                      const slicepool_request *request,
                                      uint32_t *would_grow);

/**
 * The largest free range of any page, exactly.
 *
 * @param largest_free  set to its bytes, 0 if nothing is free
 * @return SLICEPOOL_ERROR_INVALID_ARGUMENT
 *
 * Threads: any. Cost: a walk through one size class of each pool.
 */
slicepool_result slicepool_largest_free(slicepool_allocator *allocator, uint64_t *largest_free);

/** sizeof(slicepool_slice) as the library sees it, for bindings. */
uint32_t slicepool_sizeof_slice(void);

/* ------------------------------------------------------------------------------------------------------------------
 * Names and user data
 * ------------------------------------------------------------------------------------------------------------------ */

/**
 * The longest name of a slice or allocator, in bytes of UTF-8 without the NUL. What is longer is cut, between two
 * characters.
 */
#define SLICEPOOL_MAX_NAME 55

/**
 * Gives a slice a name, for reports and events. It is copied, and goes with the slice.
 *
 * @param name  NUL-terminated UTF-8, of which at most SLICEPOOL_MAX_NAME bytes are kept; NULL or empty: none
 * @return SLICEPOOL_ERROR_STALE_HANDLE, SLICEPOOL_ERROR_FOREIGN_HANDLE, SLICEPOOL_ERROR_INVALID_ARGUMENT (id 0; no
 *         UTF-8), SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY; nothing has changed then
 *
 * Threads: any. Cost: constant; the first name or user data of a pool gets host memory in proportion to its slots.
 */
slicepool_result slicepool_name_set(slicepool_allocator *allocator,
                                    uint64_t id,
                                    const char *name);

/**
 * The name of a slice.
 *
 * @param name      gets the name, NUL-terminated, empty if there is none; SLICEPOOL_MAX_NAME + 1 bytes are always
 *                  enough
 * @param capacity  bytes of `name`
 * @return as slicepool_slice_get(); SLICEPOOL_ERROR_INVALID_ARGUMENT if capacity is too small
 *
 * Threads: any. Cost: constant.
 */
slicepool_result slicepool_name_get(slicepool_allocator *allocator,
                                    uint64_t id,
                                    char *name,
                                    uint32_t capacity);

/**
 * Attaches a pointer to a slice, which slicepool_slice_get() and events tell from then on. The library never looks at
 * what it points to.
 *
 * @return as slicepool_name_set()
 *
 * Threads: any. Cost: as slicepool_name_set().
 */
slicepool_result slicepool_user_data_set(slicepool_allocator *allocator,
                                         uint64_t id,
                                         void *user_data);

/**
 * The pointer that slicepool_allocator_config.user_data has attached to an allocator.
 *
 * @param user_data  set on success
 * @return SLICEPOOL_ERROR_INVALID_ARGUMENT
 *
 * Threads: any. Cost: constant.
 */
slicepool_result slicepool_allocator_user_data_get(slicepool_allocator *allocator,
                                                   void **user_data);

/* ------------------------------------------------------------------------------------------------------------------
 * Mapping and caches
 * ------------------------------------------------------------------------------------------------------------------ */

/**
 * Makes a slice visible to the CPU. Pages are mapped as a whole, counted, and mapped only once: each slicepool_map()
 * needs a slicepool_unmap(), and the last one unmaps the page. Where the device maps its pages for good, this only
 * counts. A slice that is freed without leaves its count to the page, which is unmapped when it goes back.
 *
 * @param mapped   set to where the slice lies
 * @param failure  may be NULL
 * @return SLICEPOOL_ERROR_STALE_HANDLE, SLICEPOOL_ERROR_FOREIGN_HANDLE, SLICEPOOL_ERROR_INVALID_ARGUMENT,
 *         SLICEPOOL_ERROR_NOT_SUPPORTED if the device cannot map, SLICEPOOL_ERROR_DEVICE_FAILED,
 *         SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY, SLICEPOOL_ERROR_MAPPING_FAILED for a slice of a dry run that has not
 *         been resolved, SLICEPOOL_ERROR_BUSY if the mapping of the same page takes too long, as from within it. The
 *         count is as before then
 *
 * Threads: any; one that maps or unmaps the same page is waited for, some tenths of a second at most. Cost: constant,
 * or one device call.
 */
slicepool_result slicepool_map(slicepool_allocator *allocator,
                               uint64_t id,
                               void **mapped,
                               slicepool_failure *failure);

/**
 * Ends what one slicepool_map() of a slice of the same page began.
 *
 * @return SLICEPOOL_ERROR_STALE_HANDLE, SLICEPOOL_ERROR_FOREIGN_HANDLE, SLICEPOOL_ERROR_INVALID_ARGUMENT (also if the
 *         page is not mapped), SLICEPOOL_ERROR_BUSY from within the mapping of the same page
 *
 * Threads: as slicepool_map(). Cost: constant, or one device call.
 */
slicepool_result slicepool_unmap(slicepool_allocator *allocator,
                                 uint64_t id);

/**
 * Makes what the CPU has written to a slice visible to the device. Calls the device with that range, widened to
 * multiples of the memory type's non_coherent_atom as far as the page's end allows; not at all where the memory is
 * coherent. The slice must not be freed meanwhile, and be mapped if the device wants that (Vulkan does).
 *
 * @param offset   of the first byte, from the start of the slice
 * @param size     bytes; UINT64_MAX: all from there
 * @param failure  may be NULL
 * @return SLICEPOOL_ERROR_STALE_HANDLE, SLICEPOOL_ERROR_FOREIGN_HANDLE, SLICEPOOL_ERROR_INVALID_ARGUMENT (not all of
 *         it in the slice), SLICEPOOL_ERROR_NOT_SUPPORTED if the device cannot, SLICEPOOL_ERROR_DEVICE_FAILED,
 *         SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY
 *
 * Threads: any. Cost: one device call at most.
 */
slicepool_result slicepool_flush(slicepool_allocator *allocator,
                                 uint64_t id,
                                 uint64_t offset,
                                 uint64_t size,
                                 slicepool_failure *failure);

/**
 * Makes what the device has written to a slice visible to the CPU. Otherwise as slicepool_flush().
 *
 * @return as slicepool_flush()
 *
 * Threads: any. Cost: one device call at most.
 */
slicepool_result slicepool_invalidate(slicepool_allocator *allocator,
                                      uint64_t id,
                                      uint64_t offset,
                                      uint64_t size,
                                      slicepool_failure *failure);

/* ------------------------------------------------------------------------------------------------------------------
 * Frees that wait for the device
 * ------------------------------------------------------------------------------------------------------------------ */

/*
 * @code
 * enum { GRAPHICS, TRANSFER };                               // timelines are numbers of your own
 * slicepool_point last_use[2] = {{GRAPHICS, 0, 7}, {TRANSFER, 0, 12}}; // frame 7, upload 12
 * slicepool_request request = SLICEPOOL_REQUEST_INIT;
 * slicepool_slice slice = SLICEPOOL_SLICE_INIT;
 * request.size = 65536;
 * if (slicepool_allocate(allocator, &request, &slice) != SLICEPOOL_OK) return 1;
 * if (slicepool_free_after(allocator, slice.id, last_use, 2, NULL) != SLICEPOOL_OK) return 2;
 * // When a fence or semaphore has passed, say so: what waits for nothing else is free then.
 * if (slicepool_collect(allocator, GRAPHICS, 7, NULL) != SLICEPOOL_OK) return 3;
 * if (slicepool_collect(allocator, TRANSFER, 12, NULL) != SLICEPOOL_OK) return 4;
 * @endcode
 */

/**
 * Takes a slice back that the device still uses. Its memory is free once all points have been passed, as
 * slicepool_collect() says. Until then the slice is pending: its handle is stale, its memory serves nothing and its
 * page stays. If all have been passed already, or there are none, this is slicepool_free().
 *
 * Of several points on one timeline the one with the largest value counts. Values that fall on a timeline are safe:
 * the slice is released with those that were freed before it, which is late, but never early.
 *
 * @param id           of a live slice; 0 is ignored
 * @param points       `point_count` points, in any order
 * @param point_count  at most 64
 * @param failure      may be NULL
 * @return as slicepool_free(); SLICEPOOL_ERROR_INVALID_ARGUMENT; SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY and
 *         SLICEPOOL_ERROR_TOO_MANY_SLICES only for the first point ever on a timeline, and for slices that wait for
 *         several, which need 32 bytes a point. The slice is live then
 *
 * Threads: any. Cost: constant per point.
 */
slicepool_result slicepool_free_after(slicepool_allocator *allocator,
                                      uint64_t id,
                                      const slicepool_point *points,
                                      uint32_t point_count,
                                      slicepool_failure *failure);

/**
 * Takes slices back that all wait for the same points: all of them, or none if one handle is refused. Another free of
 * one of them is refused as stale while this call runs, even if it is refused in the end.
 *
 * @param ids          `count` handles; zeros are ignored; a handle that occurs twice is stale
 * @param points       as for slicepool_free_after()
 * @param point_count  as for slicepool_free_after()
 * @param failure      may be NULL; `index` tells which handle was refused
 * @return as slicepool_free_after()
 *
 * Threads: any; others see the slices go one by one. Cost: that of the single calls, with fewer locks taken.
 */
slicepool_result slicepool_free_after_many(slicepool_allocator *allocator,
                                           const uint64_t *ids,
                                           uint32_t count,
                                           const slicepool_point *points,
                                           uint32_t point_count,
                                           slicepool_failure *failure);

/**
 * Says that the device has completed everything up to a value on a timeline: what waited for that is free now, unless
 * it waits for other timelines too. The allocator remembers the value, which does not fall.
 *
 * @param completed  UINT64_MAX: nothing will ever be waited for on this timeline, since its device is lost
 * @param failure    may be NULL
 * @return SLICEPOOL_ERROR_DEVICE_FAILED or SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY, as the device says, if it did not
 *         overwrite a slice with SLICEPOOL_REQUEST_SCRUB, which stays pending and is tried again next time;
 *         SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY if the value cannot be remembered where nothing has ever waited on this
 *         timeline. Whatever is due has been released all the same
 *
 * Threads: any. Cost: constant for each slice that is released, at most 64 of them per lock hold; a look at every
 * pool.
 */
slicepool_result slicepool_collect(slicepool_allocator *allocator,
                                   uint32_t timeline,
                                   uint64_t completed,
                                   slicepool_failure *failure);

/**
 * Forgets a timeline that will not be used again, so that its number can stand for another, which begins at 0.
 *
 * A callback `completed` that is running meanwhile is not heard: its answer would be that of the old timeline.
 *
 * @return SLICEPOOL_ERROR_BUSY while a slice waits for it; nothing has changed then
 *
 * Threads: any. Cost: a look at every pool.
 */
slicepool_result slicepool_timeline_forget(slicepool_allocator *allocator,
                                           uint32_t timeline);

/* ------------------------------------------------------------------------------------------------------------------
 * Dry runs and plans
 * ------------------------------------------------------------------------------------------------------------------ */

/*
 * A dry run measures what a program needs, without a device; pools with exactly that come of it.
 *
 * @code
 * slicepool_allocator_config config = SLICEPOOL_ALLOCATOR_CONFIG_INIT;
 * slicepool_allocator *trial = NULL;
 * slicepool_pool_options pools[32];
 * slicepool_request request = SLICEPOOL_REQUEST_INIT;
 * slicepool_slice slice = SLICEPOOL_SLICE_INIT;
 * uint32_t count = 0;
 * config.flags = SLICEPOOL_ALLOCATOR_DRY_RUN; // the device is not called
 * if (slicepool_allocator_create(&device, &config, &trial) != SLICEPOOL_OK) return 1;
 * request.size = 3 << 20; // ... the program's calls
 * if (slicepool_allocate(trial, &request, &slice) != SLICEPOOL_OK) return 2;
 * pools[0].struct_size = (uint32_t)sizeof pools[0];
 * if (slicepool_plan(trial, pools, 32, &count) != SLICEPOOL_OK || count > 32) return 3;
 * if (slicepool_allocator_destroy(trial, SLICEPOOL_DESTROY_FORCE, NULL) != SLICEPOOL_OK) return 4;
 * if (slicepool_install_pools(allocator, pools, count, NULL) != SLICEPOOL_OK) return 5; // the same calls fit in these
 * if (slicepool_allocate(allocator, &request, &slice) != SLICEPOOL_OK) return 6;
 * if (slicepool_free(allocator, slice.id) != SLICEPOOL_OK) return 7;
 * @endcode
 */

/**
 * Gets the memory of a slice of a dry run from the device, and the whole of its page with it. Of a slice that has its
 * memory, as it is in every other allocator, this is slicepool_slice_get().
 *
 * Of threads that resolve one page at the same time one gets its memory, the others give theirs back. The memory is as
 * the device gives it, also for requests with SLICEPOOL_REQUEST_ZERO.
 *
 * @param slice    filled in on success with the slice as it is then; its struct_size must be set
 * @param failure  may be NULL
 * @return SLICEPOOL_ERROR_MAPPING_FAILED if the device has no memory for the page, even after pages that hold nothing
 *         were given back; SLICEPOOL_ERROR_BUDGET_EXCEEDED; SLICEPOOL_ERROR_PAGE_COUNT_EXCEEDED;
 *         SLICEPOOL_ERROR_DEVICE_FAILED; SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY; SLICEPOOL_ERROR_STALE_HANDLE, also if the
 *         slice is freed meanwhile; SLICEPOOL_ERROR_FOREIGN_HANDLE; SLICEPOOL_ERROR_INVALID_ARGUMENT;
 *         SLICEPOOL_ERROR_BUSY while the allocator is being destroyed. Nothing has changed then
 *
 * Threads: any. Cost: one device call for each page; otherwise constant.
 */
slicepool_result slicepool_resolve(slicepool_allocator *allocator,
                                   uint64_t id,
                                   slicepool_slice *slice,
                                   slicepool_failure *failure);

/**
 * The pools of an allocator as its peaks have shown that they have to be: each pool of sliced pages with a cap of what
 * it held at most; of one page if it held nothing. One thread that makes the same calls again finds that everything
 * fits, if nothing was refused before. Other pools have no cap.
 *
 * @param pools     `capacity` structs, of which the first has its struct_size set; written only if the whole list
 *                  fits; may be NULL if capacity is 0
 * @param count     set to the number of pools: if it is above capacity, nothing was written
 * @return SLICEPOOL_ERROR_INVALID_ARGUMENT
 *
 * Threads: any. Cost: constant per pool.
 */
slicepool_result slicepool_plan(slicepool_allocator *allocator,
                                slicepool_pool_options *pools,
                                uint32_t capacity,
                                uint32_t *count);

/**
 * Puts other pools in place of those an allocator has, whose pages go back to the device. Figures and peaks begin
 * anew; persistent slices stay, and so do the limits. All older handles of the pools are foreign from then on.
 *
 * @param pools       as in slicepool_allocator_config
 * @param pool_count  at least 1, at most 256
 * @param failure     may be NULL; for POOLS_IN_USE its in_use has the bytes of the slices
 * @return SLICEPOOL_ERROR_POOLS_IN_USE while the pools hold slices that are live or pending, slices of no bytes among
 *         them; SLICEPOOL_ERROR_BUSY while a callback of this allocator is running, so from within one;
 *         SLICEPOOL_ERROR_INVALID_ARGUMENT; SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY; SLICEPOOL_ERROR_DEVICE_FAILED if the
 *         device refuses to take a page back. The pools stay as they are then, but for pages that held nothing; those
 *         of slicepool_prefill() if min_pages cannot be had: the new pools are in place then, with the pages they got
 *
 * Threads: exclusive. Cost: one device call a page.
 */
slicepool_result slicepool_install_pools(slicepool_allocator *allocator,
                                         const slicepool_pool_options *pools,
                                         uint32_t pool_count,
                                         slicepool_failure *failure);

/* ------------------------------------------------------------------------------------------------------------------
 * Statistics
 * ------------------------------------------------------------------------------------------------------------------ */

/*
 * @code
 * slicepool_statistics figures = SLICEPOOL_STATISTICS_INIT;
 * uint64_t needed = 0;
 * char *report;
 * if (slicepool_statistics_get(allocator, &figures) != SLICEPOOL_OK) return 1;
 * printf("%llu of %llu bytes in use\n", (unsigned long long)figures.in_use_bytes,
 *        (unsigned long long)figures.reserved_bytes);
 * if (slicepool_report_json(allocator, NULL, 0, &needed) != SLICEPOOL_OK) return 2;
 * report = (char *)malloc((size_t)needed + 256); // figures may grow meanwhile
 * if (report == NULL) return 3;
 * if (slicepool_report_json(allocator, report, needed + 256, &needed) != SLICEPOOL_OK) return 4;
 * puts(report);
 * free(report);
 * @endcode
 */

/** In `slicepool_range.kind`: free memory. */
#define SLICEPOOL_RANGE_FREE 0

/** A live slice. */
#define SLICEPOOL_RANGE_SLICE 1

/** A slice that was freed but waits for the device. */
#define SLICEPOOL_RANGE_PENDING 2

/** Nothing of this allocator: an answer of slicepool_find(). */
#define SLICEPOOL_RANGE_NONE 3

/** Slices with SLICEPOOL_REQUEST_PERSISTENT. */
#define SLICEPOOL_OWN_PAGES_PERSISTENT 0

/** Slices with SLICEPOOL_REQUEST_DEDICATED, and those that are too large for other pools. */
#define SLICEPOOL_OWN_PAGES_DEDICATED 1

/** Slices with device_data, whose pages serve once. */
#define SLICEPOOL_OWN_PAGES_ONCE 2

/** In answers of walk callbacks: go on. */
#define SLICEPOOL_WALK_CONTINUE 0

/** Show nothing more. So does any other answer but SLICEPOOL_WALK_CONTINUE. */
#define SLICEPOOL_WALK_STOP 1

/**
 * Figures of a pool or of a whole allocator at one instant. Sizes are bytes.
 *
 * Always: reserved == in_use + padding + pending + free + leaving + stuck.
 */
typedef struct slicepool_statistics {
  /** sizeof(slicepool_statistics), set by the caller. */
  uint32_t struct_size;
  /** Pools of the allocator; 1 in the figures of a pool. */
  uint32_t pools;
  /** Held from the device, or planned in a dry run. */
  uint64_t reserved_bytes;
  /** Asked for by live slices. */
  uint64_t in_use_bytes;
  /** Added to that by rounding to the granule, or to the page where every slice has its own. */
  uint64_t padding_bytes;
  /** In slices that were freed but wait for the device, rounding included. */
  uint64_t pending_bytes;
  /** In free ranges. */
  uint64_t free_bytes;
  /** In pages that are on their way back to the device. */
  uint64_t leaving_bytes;
  /** In pages that the device has refused to take back. */
  uint64_t stuck_bytes;
  /** Part of reserved_bytes that a dry run has not got from the device. */
  uint64_t unmapped_bytes;
  /** The most reserved_bytes has been. */
  uint64_t reserved_peak_bytes;
  /** The most in_use_bytes has been. Of an allocator: the sum over its pools. */
  uint64_t in_use_peak_bytes;
  /** The largest request that was ever served. */
  uint64_t largest_allocation_bytes;
  /** A free range of at least this size exists; slicepool_largest_free() is exact. */
  uint64_t largest_free_bound_bytes;
  /**
   * Host memory held for slices and pages; of an allocator also what its pools share. Never given back before the
   * end.
   */
  uint64_t metadata_bytes;
  /** Pages ever taken from the device, or adopted: by the pool that did so, whichever they have served since. */
  uint64_t device_allocations;
  /** Pages ever given back, by the pool that did so. */
  uint64_t device_deallocations;
  /** Live slices. */
  uint32_t slices;
  /** Slices that were freed but wait for the device. */
  uint32_t slices_pending;
  /** Free ranges. */
  uint32_t free_ranges;
  /** Pages held, those leaving or stuck apart. */
  uint32_t pages;
  /** Pages among them that hold no slice. */
  uint32_t pages_idle;
  /** Pages that the device has refused to take back. */
  uint32_t pages_stuck;
  /** Pages of a dry run that it has not got from the device. */
  uint32_t pages_unmapped;
  /** The most `pages` has been. */
  uint32_t pages_peak;
  /** Pages being taken from the device. */
  uint32_t growths_in_flight;
  /** 0. */
  uint32_t reserved;
} slicepool_statistics;

/** A range that slicepool_walk() shows: a slice, or free memory. */
typedef struct slicepool_range {
  /** sizeof(slicepool_range) as the library knows it. */
  uint32_t struct_size;
  /** A SLICEPOOL_RANGE_ kind. */
  uint32_t kind;
  /** Handle of the slice; 0 for free memory, and for a slice that waits for the device. */
  uint64_t id;
  /** Handle of the page. */
  uint64_t memory;
  /** Bytes from the start of the page. */
  uint64_t offset;
  /** Bytes of the range. */
  uint64_t size;
  /** Bytes asked for by a live slice, otherwise 0. */
  uint64_t requested;
  /** Address of the range as the device sees it, 0 if the device gives none. */
  uint64_t address;
  /** Position of the pool, or what slicepool_own_pool() says. */
  uint32_t pool;
  /** Position of the memory type. */
  uint32_t memory_type;
} slicepool_range;

/**
 * Is shown one range; answers SLICEPOOL_WALK_CONTINUE or SLICEPOOL_WALK_STOP. Runs with no lock held and may call
 * back into the allocator, where destroying it answers SLICEPOOL_ERROR_BUSY. Must not throw, longjmp or unwind.
 */
typedef int32_t (*slicepool_walk_fn)(void *user_data, const struct slicepool_range *range);

/**
 * What stands in place of a pool's position for slices with pages of their own, which each memory type has a pool for
 * as soon as there is such a slice: UINT32_MAX - (3 * memory_type + own_pages).
 *
 * @param own_pages  SLICEPOOL_OWN_PAGES_
 * @return the number, also for arguments that stand for nothing
 *
 * Threads: any. Cost: constant.
 */
uint32_t slicepool_own_pool(uint32_t own_pages,
                            uint32_t memory_type);

/**
 * Figures of all pools together.
 *
 * @param statistics  filled in; its struct_size must be set
 * @return SLICEPOOL_ERROR_INVALID_ARGUMENT
 *
 * Threads: any; each pool's figures are of one instant. Cost: constant per pool.
 */
slicepool_result slicepool_statistics_get(slicepool_allocator *allocator,
                                          struct slicepool_statistics *statistics);

/**
 * Figures of one pool at one instant.
 *
 * @param pool        position in the list of pools, or what slicepool_own_pool() says, once there has been such a
 *                    slice
 * @param statistics  filled in; its struct_size must be set
 * @return SLICEPOOL_ERROR_INVALID_ARGUMENT
 *
 * Threads: any. Cost: constant.
 */
slicepool_result slicepool_pool_statistics_get(slicepool_allocator *allocator,
                                               uint32_t pool,
                                               struct slicepool_statistics *statistics);

/**
 * Figures of all pools of a memory type.
 *
 * @param memory_type  position of the memory type
 * @param statistics   filled in; its struct_size must be set
 * @return SLICEPOOL_ERROR_INVALID_ARGUMENT
 *
 * Threads: any; each pool's figures are of one instant. Cost: constant per pool.
 */
slicepool_result slicepool_type_statistics_get(slicepool_allocator *allocator,
                                               uint32_t memory_type,
                                               struct slicepool_statistics *statistics);

/**
 * Figures of all pools whose memory types are taken from a heap, and what the device says of the heap.
 *
 * @param heap        position of the heap
 * @param statistics  filled in, its struct_size must be set; `pools` is 0
 * @param budget      filled in, its struct_size must be set: with 0 and UINT64_MAX if the device says nothing; may be
 *                    NULL
 * @return SLICEPOOL_ERROR_INVALID_ARGUMENT
 *
 * Threads: any; each pool's figures are of one instant. Cost: constant per pool, and a call of `heap_budget`.
 */
slicepool_result slicepool_heap_statistics_get(slicepool_allocator *allocator,
                                               uint32_t heap,
                                               struct slicepool_statistics *statistics,
                                               slicepool_heap_budget *budget);

/**
 * The slice, or the free range, or the slice that waits for the device, that a place in device memory belongs to: for
 * what a device reports as a fault.
 *
 * @param memory  handle of the page
 * @param offset  bytes from the start of the page
 * @param range   filled in, its struct_size must be set; its kind is SLICEPOOL_RANGE_NONE if there is nothing
 * @return SLICEPOOL_ERROR_INVALID_ARGUMENT
 *
 * Threads: any. Cost: as slicepool_walk().
 */
slicepool_result slicepool_find(slicepool_allocator *allocator,
                                uint64_t memory,
                                uint64_t offset,
                                struct slicepool_range *range);

/**
 * slicepool_find() by an address as the device sees it, where it gives addresses.
 *
 * @param range  filled in, its struct_size must be set; its kind is SLICEPOOL_RANGE_NONE if there is nothing
 * @return SLICEPOOL_ERROR_INVALID_ARGUMENT
 *
 * Threads: any. Cost: as slicepool_walk().
 */
slicepool_result slicepool_find_address(slicepool_allocator *allocator,
                                        uint64_t address,
                                        struct slicepool_range *range);

/**
 * A pool's configuration as it is in effect: after rounding, clamping and defaults.
 *
 * @param pool     as for slicepool_pool_statistics_get()
 * @param options  filled in; its struct_size must be set
 * @return SLICEPOOL_ERROR_INVALID_ARGUMENT
 *
 * Threads: any. Cost: constant.
 */
slicepool_result slicepool_pool_options_get(slicepool_allocator *allocator,
                                            uint32_t pool,
                                            slicepool_pool_options *options);

/**
 * Shows every slice and every free range, pool by pool, in no particular order.
 *
 * What changes during the walk may be shown or not; everything else is shown exactly once.
 *
 * @param visit      called for each range
 * @param user_data  its first argument
 * @return SLICEPOOL_ERROR_INVALID_ARGUMENT
 *
 * Threads: any. Cost: in proportion to the slots used; a few of them per lock hold.
 */
slicepool_result slicepool_walk(slicepool_allocator *allocator,
                                slicepool_walk_fn visit,
                                void *user_data);

/**
 * Writes a report as one JSON object, NUL-terminated, into the caller's buffer: the allocator's figures, those of
 * heaps and memory types, and each pool's configuration and figures. docs/report.schema.json in the repository
 * describes it.
 *
 * @param buffer    written only if the whole report fits; may be NULL if capacity is 0
 * @param capacity  bytes of the buffer
 * @param needed    set to the bytes of the report, its NUL included: call with capacity 0 first, and leave some room
 *                  for figures that grow meanwhile
 * @return SLICEPOOL_ERROR_INVALID_ARGUMENT
 *
 * Threads: any; each pool's figures are of one instant. Cost: constant per pool.
 */
slicepool_result slicepool_report_json(slicepool_allocator *allocator,
                                       char *buffer,
                                       uint64_t capacity,
                                       uint64_t *needed);

/**
 * Looks whether anything was written to the margins behind slices, where the CPU sees them: see
 * slicepool_allocator_config.debug_margin.
 *
 * @param failure  may be NULL; memory and value tell where
 * @return SLICEPOOL_ERROR_MARGIN_DAMAGED for the first that was, which is mended, so that the next call tells of the
 *         next; SLICEPOOL_ERROR_INVALID_ARGUMENT
 *
 * Threads: any. Cost: in proportion to the slices; one of them per lock hold.
 */
slicepool_result slicepool_check_margins(slicepool_allocator *allocator,
                                         slicepool_failure *failure);

/** sizeof(slicepool_statistics) as the library sees it, for bindings. */
uint32_t slicepool_sizeof_statistics(void);

/** sizeof(slicepool_range) as the library sees it, for bindings. */
uint32_t slicepool_sizeof_range(void);

/* ------------------------------------------------------------------------------------------------------------------
 * Space: the slicer alone, for any index space
 * ------------------------------------------------------------------------------------------------------------------ */

/*
 * @code
 * slicepool_space_config config = SLICEPOOL_SPACE_CONFIG_INIT;
 * slicepool_space_slice range = SLICEPOOL_SPACE_SLICE_INIT;
 * slicepool_space *descriptors = NULL;
 * config.size = 500000; // a table of half a million descriptors
 * if (slicepool_space_create(&config, &descriptors) != SLICEPOOL_OK) return 1;
 * if (slicepool_space_allocate(descriptors, 16, 0, &range, NULL) != SLICEPOOL_OK) return 2; // 16 from range.offset on
 * if (slicepool_space_free(descriptors, range.id) != SLICEPOOL_OK) return 3;
 * if (slicepool_space_destroy(descriptors) != SLICEPOOL_OK) return 4;
 * @endcode
 */

/** Cuts a space of indices into slices. No device, no lock: one thread at a time. */
typedef struct slicepool_space slicepool_space;

/** How a space is made. */
typedef struct slicepool_space_config {
  /** sizeof(slicepool_space_config), set by the caller. */
  uint32_t struct_size;
  /** 0: there are no flags yet. */
  uint32_t flags;
  /** Units of the space: bytes, descriptors, texels. What is above a multiple of the granule is not used. */
  uint64_t size;
  /** The smallest piece that is cut, a power of two of at most 2^32; 0: 1. A space has at most 2^32 - 1 granules. */
  uint64_t granule;
  /** Host memory; its lock is not used. NULL: the C library's memory. */
  const slicepool_host *host;
  /** Where the details of a failed creation go; may be NULL. */
  slicepool_failure *failure;
} slicepool_space_config;

/** A piece of a space. */
typedef struct slicepool_space_slice {
  /** sizeof(slicepool_space_slice), set by the caller. */
  uint32_t struct_size;
  /** 0. */
  uint32_t reserved;
  /** What frees the slice. 0 for the free pieces that slicepool_space_walk() shows. */
  uint64_t id;
  /** First unit. */
  uint64_t offset;
  /** Units: those asked for, rounded up to the granule. */
  uint64_t size;
} slicepool_space_slice;

/** Figures of a space, in units. */
typedef struct slicepool_space_statistics {
  /** sizeof(slicepool_space_statistics), set by the caller. */
  uint32_t struct_size;
  /** 0. */
  uint32_t reserved;
  /** Usable units: the size rounded down to the granule. */
  uint64_t size;
  /** Asked for by live slices. */
  uint64_t in_use;
  /** Added to that by rounding to the granule. */
  uint64_t padding;
  /** In free pieces. */
  uint64_t free;
  /** The most in_use has been. */
  uint64_t in_use_peak;
  /** A free piece of at least this size exists; slicepool_space_largest_free() is exact. */
  uint64_t largest_free_bound;
  /** Bytes of host memory held. */
  uint64_t metadata_bytes;
  /** Live slices. */
  uint32_t slices;
  /** Free pieces. */
  uint32_t free_ranges;
} slicepool_space_statistics;

/**
 * Is shown one piece of a space; answers SLICEPOOL_WALK_CONTINUE or SLICEPOOL_WALK_STOP. May call back into the
 * space, where destroying it answers SLICEPOOL_ERROR_BUSY. Must not throw, longjmp or unwind.
 */
typedef int32_t (*slicepool_space_walk_fn)(void *user_data,
                                           const struct slicepool_space_slice *piece);

/**
 * Creates a space with nothing in it.
 *
 * @param config  copied
 * @param space   set on success; to be destroyed by the caller
 * @return SLICEPOOL_ERROR_INVALID_ARGUMENT (less than a granule, more than 2^32 - 1 granules, a granule that is no
 *         power of two), SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY, SLICEPOOL_ERROR_VERSION_MISMATCH
 *
 * Threads: any. Cost: three host allocations.
 */
slicepool_result slicepool_space_create(const struct slicepool_space_config *config,
                                        struct slicepool_space **space);

/**
 * Frees a space, whatever is in it. NULL is an error.
 *
 * @return SLICEPOOL_ERROR_BUSY from within one of its walk callbacks
 *
 * Threads: exclusive. Cost: a few host deallocations.
 */
slicepool_result slicepool_space_destroy(struct slicepool_space *space);

/**
 * Takes `size` units at a multiple of `alignment`.
 *
 * @param alignment  a power of two; 0: the granule
 * @param slice      filled in on success; its struct_size must be set
 * @param failure    may be NULL
 * @return SLICEPOOL_ERROR_INVALID_ARGUMENT, SLICEPOOL_ERROR_TOO_LARGE, SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED if no
 *         free piece holds it, SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY, SLICEPOOL_ERROR_TOO_MANY_SLICES
 *
 * Threads: one at a time. Cost: constant; before a refusal, a look at every free piece that could hold it.
 */
slicepool_result slicepool_space_allocate(struct slicepool_space *space,
                                          uint64_t size,
                                          uint64_t alignment,
                                          struct slicepool_space_slice *slice,
                                          slicepool_failure *failure);

/**
 * Takes a slice back.
 *
 * @param id  of a live slice; 0 is ignored
 * @return SLICEPOOL_ERROR_STALE_HANDLE, SLICEPOOL_ERROR_FOREIGN_HANDLE; nothing changes then
 *
 * Threads: one at a time. Cost: constant.
 */
slicepool_result slicepool_space_free(struct slicepool_space *space, uint64_t id);

/**
 * The slice of a handle, as it was handed out or last resized.
 *
 * @param slice  filled in on success; its struct_size must be set
 * @return SLICEPOOL_ERROR_STALE_HANDLE, SLICEPOOL_ERROR_FOREIGN_HANDLE, SLICEPOOL_ERROR_INVALID_ARGUMENT (id 0)
 *
 * Threads: one at a time. Cost: constant.
 */
slicepool_result slicepool_space_slice_get(struct slicepool_space *space,
                                           uint64_t id,
                                           struct slicepool_space_slice *slice);

/**
 * Gives a slice another size where it lies.
 *
 * @param slice    filled in on success with the slice as it is then; its struct_size must be set
 * @param failure  may be NULL; `limit` tells how large the slice could be where it lies
 * @return SLICEPOOL_ERROR_NO_ROOM if what follows it is in use; otherwise as slicepool_space_slice_get() and
 *         slicepool_space_allocate(); the slice is unchanged then
 *
 * Threads: one at a time. Cost: constant.
 */
slicepool_result slicepool_space_try_resize(struct slicepool_space *space,
                                            uint64_t id,
                                            uint64_t size,
                                            struct slicepool_space_slice *slice,
                                            slicepool_failure *failure);

/**
 * Makes the space larger at its end. What is there stays as it is.
 *
 * @param additional  units, a multiple of the granule
 * @return SLICEPOOL_ERROR_INVALID_ARGUMENT (also above 2^32 - 1 granules), SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY
 *
 * Threads: one at a time. Cost: constant, or a copy of the table of size classes if that grows.
 */
slicepool_result slicepool_space_grow(struct slicepool_space *space,
                                      uint64_t additional);

/**
 * Frees everything at once. Every handle is stale from now on.
 *
 * @return SLICEPOOL_ERROR_INVALID_ARGUMENT
 *
 * Threads: one at a time. Cost: in proportion to the slots used.
 */
slicepool_result slicepool_space_clear(struct slicepool_space *space);

/**
 * The largest free piece, exactly.
 *
 * @param largest_free  set to its units, 0 if nothing is free
 * @return SLICEPOOL_ERROR_INVALID_ARGUMENT
 *
 * Threads: one at a time. Cost: a walk through one size class.
 */
slicepool_result slicepool_space_largest_free(struct slicepool_space *space,
                                              uint64_t *largest_free);

/**
 * Figures of a space.
 *
 * @param statistics  filled in; its struct_size must be set
 * @return SLICEPOOL_ERROR_INVALID_ARGUMENT
 *
 * Threads: one at a time. Cost: constant.
 */
slicepool_result slicepool_space_statistics_get(struct slicepool_space *space,
                                                struct slicepool_space_statistics *statistics);

/**
 * Shows every slice and every free piece, in no particular order.
 *
 * What changes during the walk may be shown or not; everything else is shown exactly once.
 *
 * @param visit      called for each piece
 * @param user_data  its first argument
 * @return SLICEPOOL_ERROR_INVALID_ARGUMENT
 *
 * Threads: one at a time. Cost: in proportion to the slots used.
 */
slicepool_result slicepool_space_walk(struct slicepool_space *space,
                                      slicepool_space_walk_fn visit,
                                      void *user_data);

/** sizeof(slicepool_space_config) as the library sees it, for bindings. */
uint32_t slicepool_sizeof_space_config(void);

/** sizeof(slicepool_space_slice) as the library sees it, for bindings. */
uint32_t slicepool_sizeof_space_slice(void);

/** sizeof(slicepool_space_statistics) as the library sees it, for bindings. */
uint32_t slicepool_sizeof_space_statistics(void);

/* ------------------------------------------------------------------------------------------------------------------
 * Buffer pools: configuration
 * ------------------------------------------------------------------------------------------------------------------ */

/*
 * @code
 * slicepool_buffer_pool_config config = SLICEPOOL_BUFFER_POOL_CONFIG_INIT;
 * slicepool_buffer_pool *pool = NULL;
 * slicepool_buffer_cache *cache = NULL; // one for each thread
 * slicepool_buffer buffer = SLICEPOOL_BUFFER_INIT;
 * if (slicepool_buffer_pool_config_for_storage(&config) != SLICEPOOL_OK) return 1;
 * if (slicepool_buffer_pool_config_with_budget_bytes(&config, 64 << 20) != SLICEPOOL_OK) return 2;
 * if (slicepool_buffer_pool_config_with_parallelism(&config, 8) != SLICEPOOL_OK) return 3;
 * if (slicepool_buffer_pool_create(NULL, &config, &pool) != SLICEPOOL_OK) return 4; // NULL: in host memory
 * if (slicepool_buffer_cache_create(pool, &cache) != SLICEPOOL_OK) return 5;
 * if (slicepool_buffer_acquire(pool, cache, 5000, 0, &buffer, NULL) != SLICEPOOL_OK) return 6;
 * memset(buffer.mapped, 0, (size_t)buffer.size); // as many bytes as its class has
 * if (slicepool_buffer_release(pool, cache, buffer.id) != SLICEPOOL_OK) return 7;
 * if (slicepool_buffer_cache_destroy(cache) != SLICEPOOL_OK) return 8;
 * if (slicepool_buffer_pool_destroy(pool, 0, NULL) != SLICEPOOL_OK) return 9;
 * @endcode
 */

/** Every buffer is created when the pool is, those of a class in one piece. If that fails, nothing has been taken. */
#define SLICEPOOL_BUFFER_POOL_PREFILL 1

/** The caller lets one thread at a time into the pool and all its caches: no lock is taken. */
#define SLICEPOOL_BUFFER_POOL_EXTERNALLY_SYNCHRONIZED 2

/**
 * How a buffer pool is made: size classes, a limit for each, and how threads share the buffers. All zero but
 * `struct_size` is a good start.
 *
 * Classes have powers of two as sizes and need not be contiguous; a request goes to the smallest that fits. Fill in
 * the fields, or have the functions below do it: each changes a config in place, those that fail leave it as it is,
 * and the details of a failure go to `failure`. Those that shape the classes take them as the one before left them, so
 * their order matters.
 */
typedef struct slicepool_buffer_pool_config {
  /** sizeof(slicepool_buffer_pool_config), set by the caller. */
  uint32_t struct_size;
  /** SLICEPOOL_BUFFER_POOL_ flags. */
  uint32_t flags;
  /**
   * Requests of fewer bytes do not use the classes if they have SLICEPOOL_BUFFER_UNTRACKED. At most the smallest
   * class.
   */
  uint64_t pool_min_size;
  /** Every buffer lies at a multiple of this power of two, at most the smallest class; 0: 1. */
  uint64_t alignment;
  /**
   * Threads that are expected to use the pool at a time, which set the stripes of its freelists and the capacity of
   * automatic caches; 0: 1.
   */
  uint64_t parallelism;
  /**
   * Free buffers of each class that a cache keeps at most, or all that a smaller class has. 0: half of the class,
   * divided by parallelism; UINT64_MAX: none.
   */
  uint64_t max_thread_cache_capacity;
  /** The largest page the device gives out; 0: no limit. */
  uint64_t max_page;
  /**
   * Every page is asked for at a multiple of this power of two, or of `alignment` if that is more; 0: 4096, or 64
   * for host memory.
   */
  uint64_t page_alignment;
  /** Bytes that the pool may hold from the device, pages that are just being taken included; 0: as many as it gives. */
  uint64_t max_bytes;
  /** Bytes of `memory`; otherwise 0. */
  uint64_t memory_bytes;
  /**
   * `limits[i]`: how many buffers of 2^i bytes there may be at a time; 0: the class is not enabled. If none is, the
   * classes are those of slicepool_buffer_pool_config_for_network().
   */
  uint32_t limits[64];
  /** Pages that the pool may hold, counted as for max_bytes; 0: any number. */
  uint32_t max_pages;
  /**
   * Back-off steps for which a request waits for a page that another call is just getting, before it gets its own;
   * 0: 32. As slicepool_allocator_config.growth_wait_steps.
   */
  uint32_t growth_wait_steps;
  /**
   * The block of memory that buffers lie in, at any address: a static array, a registered region. The pool's own
   * until it is destroyed or abandoned; fewer than 300 bytes at its start are not used for buffers. NULL: buffers
   * lie in memory of the device.
   */
  void *memory;
  /** Host memory for the books, and lock; NULL: the C library's memory, and a spin lock that yields. */
  const slicepool_host *host;
  /** Limits shared with allocators and other pools; NULL: none. The pool becomes one of its owners. */
  slicepool_budget *budget;
  /** Where the details of a failed creation, or of a failed change of the config, go; may be NULL. */
  slicepool_failure *failure;
  /** A name for events, NUL-terminated UTF-8, of which SLICEPOOL_MAX_NAME bytes are kept; may be NULL. */
  const char *name;
  /** Anything that the program wants to keep with the pool: slicepool_buffer_pool_user_data_get(). */
  void *user_data;
} slicepool_buffer_pool_config;

/**
 * For network traffic: classes of 1 KiB to 128 KiB with 4,096 buffers each. Not prefilled, alignment 1, parallelism 1,
 * automatic caches, requests of any size use the classes. What else there is in a config stays.
 *
 * @return SLICEPOOL_ERROR_INVALID_ARGUMENT, SLICEPOOL_ERROR_VERSION_MISMATCH
 *
 * Threads: one at a time per config. Cost: constant.
 */
slicepool_result slicepool_buffer_pool_config_for_network(struct slicepool_buffer_pool_config *config);

/**
 * For storage: classes from one page of the machine's memory (4 KiB where that is not known) to 8 MiB with 64 buffers
 * each; otherwise like slicepool_buffer_pool_config_for_network().
 *
 * @return as slicepool_buffer_pool_config_for_network()
 *
 * Threads: one at a time per config. Cost: constant.
 */
slicepool_result slicepool_buffer_pool_config_for_storage(struct slicepool_buffer_pool_config *config);

/**
 * The same for pages of another size.
 *
 * @param page_size  a power of two of at most 8 MiB
 * @return SLICEPOOL_ERROR_INVALID_ARGUMENT also for another page_size; `limit` is 8 MiB then
 *
 * Threads: one at a time per config. Cost: constant.
 */
slicepool_result slicepool_buffer_pool_config_for_storage_with_page_size(struct slicepool_buffer_pool_config *config,
                                                                         uint64_t page_size);

/**
 * Sets pool_min_size: requests of fewer bytes do not use the classes if they have SLICEPOOL_BUFFER_UNTRACKED.
 *
 * @param pool_min_size  bytes; creating a pool refuses more than the smallest class has
 * @return as slicepool_buffer_pool_config_for_network()
 *
 * Threads: one at a time per config. Cost: constant.
 */
slicepool_result slicepool_buffer_pool_config_with_pool_min_size(struct slicepool_buffer_pool_config *config,
                                                                 uint64_t pool_min_size);

/**
 * Makes every power of two in a range a class, and nothing else.
 *
 * @param min_size     bytes of the smallest class, a power of two
 * @param max_size     bytes of the largest class, a power of two, not below min_size
 * @param max_buffers  limit of each; not 0
 * @return SLICEPOOL_ERROR_INVALID_ARGUMENT with the field "size" for a size that is none (`limit` is the largest there
 *         is, if it is too large), "max_size" for a range that is reversed (`limit` is min_size), "max_buffers"
 *
 * Threads: one at a time per config. Cost: constant.
 */
slicepool_result slicepool_buffer_pool_config_with_size_class_range(struct slicepool_buffer_pool_config *config,
                                                                    uint64_t min_size,
                                                                    uint64_t max_size,
                                                                    uint32_t max_buffers);

/**
 * Makes these the classes, and nothing else.
 *
 * @param sizes        `count` numbers of bytes in any order, powers of two, each of them once
 * @param max_buffers  `count` limits, none of them 0
 * @param count        at least 1
 * @return SLICEPOOL_ERROR_INVALID_ARGUMENT with the field "size" for a size that is none or occurs twice,
 *         "max_buffers", or "classes" if there is none; `index` tells which class is to blame
 *
 * Threads: one at a time per config. Cost: one look at each class.
 */
slicepool_result slicepool_buffer_pool_config_with_size_classes(struct slicepool_buffer_pool_config *config,
                                                                const uint64_t *sizes,
                                                                const uint32_t *max_buffers,
                                                                uint32_t count);

/**
 * Adds a class, or gives one that there is another limit.
 *
 * @param size         bytes, a power of two
 * @param max_buffers  not 0
 * @return SLICEPOOL_ERROR_INVALID_ARGUMENT with the field "size" or "max_buffers"
 *
 * Threads: one at a time per config. Cost: constant.
 */
slicepool_result slicepool_buffer_pool_config_with_size_class(struct slicepool_buffer_pool_config *config,
                                                              uint64_t size,
                                                              uint32_t max_buffers);

/**
 * Removes a class: the next larger one serves its requests.
 *
 * @param size  bytes, a power of two
 * @return SLICEPOOL_ERROR_INVALID_ARGUMENT with the field "size", also if there is no such class or no other one
 *
 * Threads: one at a time per config. Cost: constant.
 */
slicepool_result slicepool_buffer_pool_config_without_size_class(struct slicepool_buffer_pool_config *config,
                                                                 uint64_t size);

/**
 * Gives every class this limit.
 *
 * @param max_buffers  not 0
 * @return SLICEPOOL_ERROR_INVALID_ARGUMENT
 *
 * Threads: one at a time per config. Cost: constant.
 */
slicepool_result slicepool_buffer_pool_config_with_max_per_class(struct slicepool_buffer_pool_config *config,
                                                                 uint32_t max_buffers);

/**
 * Gives every class about as many bytes: bytes / size buffers, rounded down, and at least one. The bytes are not
 * remembered.
 *
 * @param bytes  not 0
 * @return SLICEPOOL_ERROR_INVALID_ARGUMENT with the field "bytes"; if they are more than 2^32 - 1 buffers of a class,
 *         `size` is that of the smallest one and `limit` is 2^32 - 1
 *
 * Threads: one at a time per config. Cost: constant.
 */
slicepool_result slicepool_buffer_pool_config_with_bytes_per_class(struct slicepool_buffer_pool_config *config,
                                                                   uint64_t bytes);

/**
 * Scales all limits by one factor, up or down: the greatest for which slicepool_buffer_pool_config_max_tracked_bytes()
 * stays within the budget.
 *
 * A limit becomes what it was times the factor, rounded down, and at least 1: no class is lost, and limits that step
 * together may leave some of the budget unused. The budget is not remembered; asked again, it scales the scaled
 * limits, which may differ.
 *
 * @param budget  bytes
 * @return SLICEPOOL_ERROR_INVALID_ARGUMENT with the field "budget". If that is less than one buffer of every class,
 *         `limit` is the least that would do, and so above `value`. If it has room for more than 2^32 - 1 buffers of a
 *         class, `size` is that of the class and `limit` is 2^32 - 1, below `value`
 *
 * Threads: one at a time per config. Cost: at most 32 steps for each two classes.
 */
slicepool_result slicepool_buffer_pool_config_with_budget_bytes(struct slicepool_buffer_pool_config *config,
                                                                uint64_t budget);

/**
 * Sets parallelism: the threads that are expected to use the pool at a time.
 *
 * @param parallelism  not 0
 * @return SLICEPOOL_ERROR_INVALID_ARGUMENT
 *
 * Threads: one at a time per config. Cost: constant.
 */
slicepool_result slicepool_buffer_pool_config_with_parallelism(struct slicepool_buffer_pool_config *config,
                                                               uint64_t parallelism);

/**
 * Sets max_thread_cache_capacity: free buffers of each class that a cache keeps at most, or all that a smaller class
 * has.
 *
 * Buffers in a cache serve its own thread only, until they spill or the cache is flushed: a large one favours reuse by
 * the same thread, a small one other threads and less memory.
 *
 * @param capacity  not 0
 * @return SLICEPOOL_ERROR_INVALID_ARGUMENT
 *
 * Threads: one at a time per config. Cost: constant.
 */
slicepool_result slicepool_buffer_pool_config_with_max_thread_cache_capacity(struct slicepool_buffer_pool_config *config,
                                                                             uint64_t capacity);

/**
 * Sets max_thread_cache_capacity so that caches keep nothing: every buffer goes through the freelists of its class.
 *
 * @return SLICEPOOL_ERROR_INVALID_ARGUMENT
 *
 * Threads: one at a time per config. Cost: constant.
 */
slicepool_result slicepool_buffer_pool_config_with_thread_cache_disabled(struct slicepool_buffer_pool_config *config);

/**
 * Sets SLICEPOOL_BUFFER_POOL_PREFILL, or takes it away.
 *
 * @param prefill  1 or 0
 * @return SLICEPOOL_ERROR_INVALID_ARGUMENT
 *
 * Threads: one at a time per config. Cost: constant.
 */
slicepool_result slicepool_buffer_pool_config_with_prefill(struct slicepool_buffer_pool_config *config,
                                                           uint32_t prefill);

/**
 * Sets alignment: every buffer lies at a multiple of it.
 *
 * @param alignment  bytes, not 0; creating a pool refuses what is no power of two, or more than the smallest class has
 * @return SLICEPOOL_ERROR_INVALID_ARGUMENT
 *
 * Threads: one at a time per config. Cost: constant.
 */
slicepool_result slicepool_buffer_pool_config_with_alignment(struct slicepool_buffer_pool_config *config,
                                                             uint64_t alignment);

/** sizeof(slicepool_buffer_pool_config) as the library sees it, for bindings. */
uint32_t slicepool_sizeof_buffer_pool_config(void);

/* ------------------------------------------------------------------------------------------------------------------
 * Buffer pools: what a configuration comes to
 * ------------------------------------------------------------------------------------------------------------------ */

/**
 * What creating a pool checks of classes, alignment and pool_min_size, which may be set in any order.
 *
 * @return SLICEPOOL_ERROR_INVALID_ARGUMENT with the first of the fields "alignment" (no power of two: `limit` is 0;
 *         above the smallest class: `limit` is that) and "pool_min_size" (above the smallest class, which `limit`
 *         tells); or "size" for a class that cannot be addressed
 *
 * Threads: any, while none changes the config. Cost: constant.
 */
slicepool_result slicepool_buffer_pool_config_check(const slicepool_buffer_pool_config *config);

/**
 * Number of classes.
 *
 * @param count  set on success
 * @return SLICEPOOL_ERROR_INVALID_ARGUMENT
 *
 * Threads: any, while none changes the config. Cost: constant.
 */
slicepool_result slicepool_buffer_pool_config_class_count(const slicepool_buffer_pool_config *config,
                                                          uint32_t *count);

/**
 * A class by its position.
 *
 * @param index        in ascending order of size
 * @param size         set to the bytes of its buffers
 * @param max_buffers  set to its limit
 * @return SLICEPOOL_ERROR_INVALID_ARGUMENT with the field "index" if there are not so many
 *
 * Threads: any, while none changes the config. Cost: constant.
 */
slicepool_result slicepool_buffer_pool_config_class_get(const slicepool_buffer_pool_config *config,
                                                        uint32_t index,
                                                        uint64_t *size,
                                                        uint32_t *max_buffers);

/**
 * The class that serves a request: the smallest that fits, whatever pool_min_size says.
 *
 * @param request_size  bytes
 * @param size          set to the bytes of the class's buffers
 * @param max_buffers   set to its limit
 * @return SLICEPOOL_ERROR_OVERSIZED above the largest class, which `limit` tells
 *
 * Threads: any, while none changes the config. Cost: constant.
 */
slicepool_result slicepool_buffer_pool_config_class_for(const slicepool_buffer_pool_config *config,
                                                        uint64_t request_size,
                                                        uint64_t *size,
                                                        uint32_t *max_buffers);

/**
 * Bytes of the smallest class.
 *
 * @param min_size  set on success
 * @return SLICEPOOL_ERROR_INVALID_ARGUMENT
 *
 * Threads: any, while none changes the config. Cost: constant.
 */
slicepool_result slicepool_buffer_pool_config_min_size(const slicepool_buffer_pool_config *config,
                                                       uint64_t *min_size);

/**
 * Bytes of the largest class.
 *
 * @param max_size  set on success
 * @return SLICEPOOL_ERROR_INVALID_ARGUMENT
 *
 * Threads: any, while none changes the config. Cost: constant.
 */
slicepool_result slicepool_buffer_pool_config_max_size(const slicepool_buffer_pool_config *config,
                                                       uint64_t *max_size);

/**
 * Bytes of all buffers that the pool may create: neither its books nor what goes beyond the ceiling.
 *
 * @param bytes  set on success; UINT64_MAX if they are more
 * @return SLICEPOOL_ERROR_INVALID_ARGUMENT
 *
 * Threads: any, while none changes the config. Cost: constant.
 */
slicepool_result slicepool_buffer_pool_config_max_tracked_bytes(const slicepool_buffer_pool_config *config,
                                                                uint64_t *bytes);

/**
 * How many free buffers a cache keeps of a class with this limit.
 *
 * @param max_buffers  the limit; not 0
 * @param capacity     set on success
 * @return SLICEPOOL_ERROR_INVALID_ARGUMENT
 *
 * Threads: any, while none changes the config. Cost: constant.
 */
slicepool_result slicepool_buffer_pool_config_cache_capacity(const slicepool_buffer_pool_config *config,
                                                             uint32_t max_buffers,
                                                             uint32_t *capacity);

/**
 * Stripes of the freelist of a class with this limit: one for each expected thread and at least 8, but no more than
 * 4,096 or than there are buffers, and a power of two.
 *
 * @param max_buffers  the limit; not 0
 * @param stripes      set on success
 * @return SLICEPOOL_ERROR_INVALID_ARGUMENT
 *
 * Threads: any, while none changes the config. Cost: constant.
 */
slicepool_result slicepool_buffer_pool_config_stripes(const slicepool_buffer_pool_config *config,
                                                      uint32_t max_buffers,
                                                      uint32_t *stripes);

/* ------------------------------------------------------------------------------------------------------------------
 * Buffer pools
 * ------------------------------------------------------------------------------------------------------------------ */

/**
 * A fixed-capacity pool of aligned, recyclable buffers with a hard ceiling, for I/O, DMA and registered memory.
 *
 * It has classes of power-of-two sizes, each with its own limit. A request is served by the smallest class that fits,
 * and by no other. Memory comes from the device in slabs of at most 256 KiB, or one buffer if that is larger, as
 * buffers are first needed, or all at once (SLICEPOOL_BUFFER_POOL_PREFILL), and stays until the pool is closed.
 * Nothing lies in that memory but buffers. The books grow with the buffers that were created, not with the limits.
 */
typedef struct slicepool_buffer_pool slicepool_buffer_pool;

/**
 * Creates a buffer pool. Takes nothing from the device yet, unless it is prefilled.
 *
 * @param device  copied; its user_data must stay valid until the pool is gone. NULL: buffers lie in config->memory or,
 *                without that, in the C library's memory
 * @param config  copied with all it points to; may be NULL for the defaults
 * @param pool    set on success; to be destroyed or abandoned by the caller
 * @return SLICEPOOL_ERROR_INVALID_ARGUMENT (config->failure names the field, as slicepool_buffer_pool_config_check()
 *         does; "memory" for a block beside a device; "size" for a class whose buffers are larger than max_page),
 *         SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY, SLICEPOOL_ERROR_VERSION_MISMATCH. If it is to be prefilled, what
 *         slicepool_buffer_acquire() answers where a buffer has to be created, with the field "prefill" and the bytes
 *         of the class's buffers as `value`; the device and the host have everything back then
 *
 * Threads: any. Cost: a few host allocations per class; prefilled, one device call and a look at each buffer besides.
 */
slicepool_result slicepool_buffer_pool_create(const slicepool_device *device,
                                              const slicepool_buffer_pool_config *config,
                                              struct slicepool_buffer_pool **pool);

/**
 * Creates a buffer pool all of whose bookkeeping, that of its caches, and itself, lives in a block of memory that the
 * caller provides. It never asks for more: when the block is full, calls answer SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY.
 * Buffers do not lie in that block: for them there is config->memory.
 *
 * What a pool needs depends on its classes, their stripes and its caches, some KiB for each, and grows with the
 * buffers it creates, by about 40 bytes for each; slicepool_buffer_pool_statistics.metadata_bytes tells, and a block
 * wants some more than that.
 *
 * @param device  as for slicepool_buffer_pool_create()
 * @param config  as for slicepool_buffer_pool_create(); its host must not have `allocate`
 * @param memory  at any address; the library's own until the pool is destroyed or abandoned, then the caller's again
 * @param bytes   of the block
 * @param pool    set on success; lies in the block
 * @return as slicepool_buffer_pool_create(); SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY if the block is too small even for
 *         that
 *
 * Threads: any. Cost: as slicepool_buffer_pool_create(), without host allocations.
 */
slicepool_result slicepool_buffer_pool_create_in(const slicepool_device *device,
                                                 const slicepool_buffer_pool_config *config,
                                                 void *memory,
                                                 uint64_t bytes,
                                                 struct slicepool_buffer_pool **pool);

/**
 * Hands out nothing any more. Caches give back what they hold the next time they are used, or when they are destroyed.
 * When the last buffer is back, the device gets all memory back, from the thread that brought it, also long after this
 * has returned. Buffers that are out stay as they are. Closing a pool twice is no error. It is still to be destroyed.
 *
 * @return SLICEPOOL_ERROR_INVALID_ARGUMENT
 *
 * Threads: any. Cost: a look at each stripe of each class; one device call a slab if nothing is out.
 */
slicepool_result slicepool_buffer_pool_close(struct slicepool_buffer_pool *pool);

/**
 * Closes the pool, gives all memory back to the device and frees the pool. No callback comes after this returns.
 *
 * @param pool     not used by anybody else any more, unless the call fails
 * @param flags    SLICEPOOL_DESTROY_FORCE: also if buffers are out, which nobody may use any more, or the device
 *                 refuses to take memory back
 * @param failure  may be NULL; `live` tells how many buffers are out, `in_flight` how many caches there are
 * @return SLICEPOOL_ERROR_BUSY while buffers are out or there are caches (with FORCE only the caches count), or a
 *         callback of this pool is running (so from within one, FORCE or not); nothing has changed then.
 *         SLICEPOOL_ERROR_DEVICE_FAILED if the device refuses to take memory back: the pool is closed then, and can be
 *         destroyed again
 *
 * Threads: exclusive. Cost: one device call a slab.
 */
slicepool_result slicepool_buffer_pool_destroy(struct slicepool_buffer_pool *pool,
                                               uint32_t flags,
                                               slicepool_failure *failure);

/**
 * Frees the pool's host memory without a word to the device: for process exit, a lost device, or a forked child, which
 * may call nothing else of its parent's pools.
 *
 * @param pool   not used by anybody else any more, and neither are its buffers, unless the call fails
 * @param flags  SLICEPOOL_ABANDON_FORKED in a forked child, where host memory of the pool's caches is lost
 * @return SLICEPOOL_ERROR_BUSY while there are caches or a callback of this pool is running, unless forked
 *
 * Threads: exclusive. Cost: a few host deallocations per class.
 */
slicepool_result slicepool_buffer_pool_abandon(struct slicepool_buffer_pool *pool,
                                               uint32_t flags);

/**
 * What slicepool_buffer_pool_config.user_data was.
 *
 * @param user_data  set on success
 * @return SLICEPOOL_ERROR_INVALID_ARGUMENT
 *
 * Threads: any. Cost: constant.
 */
slicepool_result slicepool_buffer_pool_user_data_get(struct slicepool_buffer_pool *pool,
                                                     void **user_data);

/* ------------------------------------------------------------------------------------------------------------------
 * Buffer caches: buffers that one thread keeps for itself
 * ------------------------------------------------------------------------------------------------------------------ */

/**
 * Buffers that one thread keeps for itself: what it releases is what it gets next, without a lock.
 *
 * Made for a thread, a task or a core, which alone uses it. When it has no buffer of a class, it gets half its
 * capacity from the class at once; when it is full, half of it goes back. Others cannot have meanwhile what it holds;
 * a request that finds its class exhausted has every cache give back what it holds of the class the next time it is
 * used.
 */
typedef struct slicepool_buffer_cache slicepool_buffer_cache;

/**
 * Creates a cache for one thread. It holds nothing yet.
 *
 * @param cache  set on success; to be destroyed by the caller, before the pool
 * @return SLICEPOOL_ERROR_INVALID_ARGUMENT, SLICEPOOL_ERROR_CLOSED, SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY
 *
 * Threads: any. Cost: three host allocations.
 */
slicepool_result slicepool_buffer_cache_create(slicepool_buffer_pool *pool,
                                               struct slicepool_buffer_cache **cache);

/**
 * Gives back all buffers that the cache holds.
 *
 * @return SLICEPOOL_ERROR_INVALID_ARGUMENT
 *
 * Threads: one at a time per cache. Cost: in proportion to the buffers; if the pool is closed and nothing else is out,
 * one device call a slab.
 */
slicepool_result slicepool_buffer_cache_flush(struct slicepool_buffer_cache *cache);

/**
 * Gives back all buffers that the cache holds, and frees it. Its pool may have been closed. NULL is an error.
 *
 * @return SLICEPOOL_ERROR_BUSY from within a callback that a call with this cache runs;
 *         SLICEPOOL_ERROR_INVALID_ARGUMENT
 *
 * Threads: exclusive. Cost: as slicepool_buffer_cache_flush(), and three host deallocations.
 */
slicepool_result slicepool_buffer_cache_destroy(struct slicepool_buffer_cache *cache);

/* ------------------------------------------------------------------------------------------------------------------
 * Buffers
 * ------------------------------------------------------------------------------------------------------------------ */

/**
 * The bytes asked for are zero; what is behind them is not looked at. Where the CPU sees the memory it is filled by
 * the CPU, otherwise by the device's callback `fill`, which gets a size that is a multiple of 4 (but for buffers of 1
 * and 2 bytes), and must be done when it returns.
 */
#define SLICEPOOL_BUFFER_ZERO 1

/**
 * If the classes refuse, or the request is below pool_min_size: a buffer of exactly that many bytes that belongs to no
 * class. It is a page of the device's of its own, beyond the pool's ceiling, and goes back when it is released.
 */
#define SLICEPOOL_BUFFER_UNTRACKED 2

/** A buffer: [offset, offset + size) of the device memory named `memory`. Copy it freely; only `id` is ever trusted. */
typedef struct slicepool_buffer {
  /** sizeof(slicepool_buffer), set by the caller. */
  uint32_t struct_size;
  /** 0. */
  uint32_t reserved;
  /** What releases the buffer; never given out again. 0 for an empty buffer, of which everything is 0. */
  uint64_t id;
  /** Handle of the device memory that it lies in, as the device filled it in. */
  uint64_t memory;
  /** Bytes from the start of that memory. */
  uint64_t offset;
  /** Bytes that it has room for: those of its class, or those asked for if it belongs to none. */
  uint64_t size;
  /** Address of the buffer as the device sees it, 0 if the device gives none. */
  uint64_t address;
  /** Where the CPU sees the buffer, NULL if the device has not mapped its memory for good. */
  void *mapped;
  /** NULL. */
  void *reserved_pointer;
} slicepool_buffer;

/**
 * Hands out a buffer of at least `size` bytes, whatever it contains.
 *
 * A request of 0 bytes succeeds with an empty buffer, which takes nothing from the pool, and whose id 0 may be
 * released like any other. (Slices of size 0 are an error, unless there is a pool that takes them.)
 *
 * @param cache    one of the pool's, or NULL: the freelists that all threads share
 * @param size     bytes
 * @param flags    SLICEPOOL_BUFFER_ flags
 * @param buffer   filled in on success; its struct_size must be set
 * @param failure  may be NULL
 * @return SLICEPOOL_ERROR_OVERSIZED above the largest class (`limit`); SLICEPOOL_ERROR_EXHAUSTED if all buffers of the
 *         class are out or in caches (`size` of the class, `limit`, `pending`: in caches, `in_flight`: slabs just
 *         being taken); SLICEPOOL_ERROR_CLOSED; SLICEPOOL_ERROR_INVALID_ARGUMENT (NULL; unknown flags; "cache" for one
 *         of another pool); and where a buffer has to be created or SLICEPOOL_BUFFER_UNTRACKED leads to the device,
 *         SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY, SLICEPOOL_ERROR_DEVICE_FAILED, SLICEPOOL_ERROR_BUDGET_EXCEEDED,
 *         SLICEPOOL_ERROR_PAGE_COUNT_EXCEEDED, SLICEPOOL_ERROR_TOO_LARGE, SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY,
 *         SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED (pages that add up to more than 2^64 bytes),
 *         SLICEPOOL_ERROR_TOO_MANY_SLICES, SLICEPOOL_ERROR_BUSY; SLICEPOOL_ERROR_NOT_SUPPORTED for
 *         SLICEPOOL_BUFFER_ZERO if the CPU does not see the memory and the device has no `fill`
 *
 * After the device has had no memory, it is not asked for a page as large again for a while, as with
 * slicepool_allocate().
 *
 * Threads: any without a cache; otherwise one at a time per cache. Cost: constant, whatever the limits, and no lock
 * where the cache has a buffer; one device call where a slab is taken; before SLICEPOOL_ERROR_EXHAUSTED a look at
 * every cache. Callbacks run on the calling thread.
 */
slicepool_result slicepool_buffer_acquire(slicepool_buffer_pool *pool,
                                          slicepool_buffer_cache *cache,
                                          uint64_t size,
                                          uint32_t flags,
                                          struct slicepool_buffer *buffer,
                                          slicepool_failure *failure);

/**
 * slicepool_buffer_acquire() with SLICEPOOL_BUFFER_ZERO.
 *
 * @param flags  other SLICEPOOL_BUFFER_ flags
 * @return as slicepool_buffer_acquire()
 *
 * Threads: as slicepool_buffer_acquire(). Cost: that of slicepool_buffer_acquire(), and of filling `size` bytes.
 */
slicepool_result slicepool_buffer_acquire_zeroed(slicepool_buffer_pool *pool,
                                                 slicepool_buffer_cache *cache,
                                                 uint64_t size,
                                                 uint32_t flags,
                                                 struct slicepool_buffer *buffer,
                                                 slicepool_failure *failure);

/**
 * Takes a buffer back. Any thread may release what another acquired, with a cache or without. Of several threads with
 * one id, one succeeds.
 *
 * @param cache  one of the pool's, which keeps the buffer if it has room; or NULL: the freelists that all threads
 *               share
 * @param id     of a buffer that is out; 0 is ignored
 * @return SLICEPOOL_ERROR_STALE_HANDLE if it has been released before, SLICEPOOL_ERROR_FOREIGN_HANDLE if it was never
 *         this pool's, SLICEPOOL_ERROR_INVALID_ARGUMENT ("cache" for one of another pool); nothing changes then
 *
 * Threads: any without a cache; otherwise one at a time per cache. Cost: constant, and no lock where the cache has
 * room; one device call for a buffer that belongs to no class; one a slab for the last buffer of a pool that is
 * closed.
 */
slicepool_result slicepool_buffer_release(slicepool_buffer_pool *pool,
                                          slicepool_buffer_cache *cache,
                                          uint64_t id);

/**
 * The buffer of a handle, as it was handed out.
 *
 * @param buffer  filled in on success; its struct_size must be set
 * @return SLICEPOOL_ERROR_STALE_HANDLE, SLICEPOOL_ERROR_FOREIGN_HANDLE, SLICEPOOL_ERROR_INVALID_ARGUMENT (id 0)
 *
 * Threads: any. Cost: constant.
 */
slicepool_result slicepool_buffer_get(slicepool_buffer_pool *pool,
                                      uint64_t id,
                                      struct slicepool_buffer *buffer);

/** sizeof(slicepool_buffer) as the library sees it, for bindings. */
uint32_t slicepool_sizeof_buffer(void);

/* ------------------------------------------------------------------------------------------------------------------
 * Buffer pools: figures and regions
 * ------------------------------------------------------------------------------------------------------------------ */

/** Figures of a buffer pool. Each is right by itself; those of a pool in use may belong to different instants. */
typedef struct slicepool_buffer_pool_statistics {
  /** sizeof(slicepool_buffer_pool_statistics), set by the caller. */
  uint32_t struct_size;
  /** Classes. */
  uint32_t classes;
  /** Requests above the largest class. */
  uint64_t oversized;
  /** Requests below pool_min_size that went past the classes. */
  uint64_t bypassed;
  /** Bytes held from the device. */
  uint64_t reserved_bytes;
  /** Bytes of host memory that the books take. */
  uint64_t metadata_bytes;
  /** Caches there are. */
  uint32_t caches;
  /** Buffers out that belong to no class. */
  uint32_t untracked;
  /** 1 if the pool has been closed, otherwise 0. */
  uint32_t closed;
  /** 0. */
  uint32_t reserved;
} slicepool_buffer_pool_statistics;

/** Figures of one class. Each is right by itself; those of a pool in use may belong to different instants. */
typedef struct slicepool_buffer_class_statistics {
  /** sizeof(slicepool_buffer_class_statistics), set by the caller. */
  uint32_t struct_size;
  /** Buffers that the class may have. */
  uint32_t limit;
  /** Bytes of each buffer. */
  uint64_t size;
  /** Requests that a cache has served. */
  uint64_t hits;
  /** Times that a cache was empty and got buffers from the freelist. */
  uint64_t refills;
  /** Times that a cache was full and gave half its buffers to the freelist. */
  uint64_t spills;
  /** Requests that found no buffer. */
  uint64_t exhausted;
  /** Buffers that the class has had from the device. They stay until the pool is closed. */
  uint32_t created;
  /** Buffers in users' hands. */
  uint32_t in_use;
  /** Buffers in caches. */
  uint32_t cached;
  /** Buffers in the freelist. */
  uint32_t free;
  /** Buffers that will not be handed out again: each after more than 2^34 handles. */
  uint32_t retired;
  /** Stripes of the freelist. */
  uint32_t stripes;
  /** Buffers that a cache keeps at most. */
  uint32_t cache_capacity;
  /** 0. */
  uint32_t reserved;
} slicepool_buffer_class_statistics;

/** One piece of the device's memory that buffers of a class lie in, one behind the other from its start. */
typedef struct slicepool_buffer_region {
  /** sizeof(slicepool_buffer_region), set by the caller. */
  uint32_t struct_size;
  /** 0. */
  uint32_t reserved;
  /** Bytes of each buffer. */
  uint64_t buffer_size;
  /** Handle of the device memory. */
  uint64_t memory;
  /** Bytes from the start of that memory. */
  uint64_t base;
  /** Bytes of the region. */
  uint64_t bytes;
  /** Address as the device sees it, 0 if the device gives none. */
  uint64_t address;
  /** Where the CPU sees it, NULL if the device has not mapped the memory for good. */
  void *mapped;
  /** NULL. */
  void *reserved_pointer;
} slicepool_buffer_region;

/**
 * Figures of a buffer pool.
 *
 * @param statistics  filled in; its struct_size must be set
 * @return SLICEPOOL_ERROR_INVALID_ARGUMENT
 *
 * Threads: any. Cost: a look at each stripe of each class.
 */
slicepool_result slicepool_buffer_pool_statistics_get(slicepool_buffer_pool *pool,
                                                      struct slicepool_buffer_pool_statistics *statistics);

/**
 * Figures of one class.
 *
 * @param index       position of the class in ascending order of size, as in slicepool_buffer_pool_config_class_get()
 * @param statistics  filled in on success; its struct_size must be set
 * @return SLICEPOOL_ERROR_INVALID_ARGUMENT, also if there are not so many
 *
 * Threads: any. Cost: a look at each stripe of the class and at each cache.
 */
slicepool_result slicepool_buffer_class_statistics_get(slicepool_buffer_pool *pool,
                                                       uint32_t index,
                                                       struct slicepool_buffer_class_statistics *statistics);

/**
 * The memory that buffers lie in, class by class in ascending order of size: for registering it with whoever is to
 * access it.
 *
 * With SLICEPOOL_BUFFER_POOL_PREFILL there is one region for each class, and they never change; otherwise regions are
 * added as buffers are created. Buffers that belong to no class are not in them.
 *
 * @param regions   `capacity` structs, of which the first has its struct_size set; may be NULL if capacity is 0
 * @param count     set to the number of regions: if it is above capacity, only the first were written
 * @return SLICEPOOL_ERROR_INVALID_ARGUMENT
 *
 * Threads: any. Cost: one look at each region.
 */
slicepool_result slicepool_buffer_pool_regions(slicepool_buffer_pool *pool,
                                               struct slicepool_buffer_region *regions,
                                               uint32_t capacity,
                                               uint32_t *count);

/** sizeof(slicepool_buffer_pool_statistics) as the library sees it, for bindings. */
uint32_t slicepool_sizeof_buffer_pool_statistics(void);

/** sizeof(slicepool_buffer_class_statistics) as the library sees it, for bindings. */
uint32_t slicepool_sizeof_buffer_class_statistics(void);

/** sizeof(slicepool_buffer_region) as the library sees it, for bindings. */
uint32_t slicepool_sizeof_buffer_region(void);

/* ------------------------------------------------------------------------------------------------------------------
 * For bindings
 * ------------------------------------------------------------------------------------------------------------------ */

/**
 * Fills any struct of this header with its defaults: every field zero, and `struct_size` as given. The same as the
 * SLICEPOOL_..._INIT macros, for languages without them.
 *
 * @param object       the struct
 * @param struct_size  its size as the program was compiled: sizeof, or slicepool_sizeof_...()
 * @return SLICEPOOL_ERROR_INVALID_ARGUMENT if object is NULL or struct_size is no multiple of 8 or 0
 *
 * Threads: one at a time per struct. Cost: in proportion to its size.
 */
slicepool_result slicepool_struct_default(void *object,
                                          uint32_t struct_size);

/* Defaults of the structs of this header: every field zero, struct_size set. */
#define SLICEPOOL_FAILURE_INIT \
  { (uint32_t)sizeof(slicepool_failure), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, { 0 }, NULL, NULL }
#define SLICEPOOL_DEVICE_MEMORY_INIT \
  { (uint32_t)sizeof(slicepool_device_memory), 0, 0, 0, 0, NULL, NULL }
#define SLICEPOOL_HEAP_BUDGET_INIT \
  { (uint32_t)sizeof(slicepool_heap_budget), 0, 0, 0 }
#define SLICEPOOL_DEVICE_INIT \
  { (uint32_t)sizeof(slicepool_device), 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL }
#define SLICEPOOL_HOST_INIT \
  { (uint32_t)sizeof(slicepool_host), 0, NULL, NULL, NULL, NULL, NULL, NULL }
#define SLICEPOOL_MEMORY_TYPE_INIT \
  { (uint32_t)sizeof(slicepool_memory_type), 0, 0, 0, 0, 0, 0, 0 }
#define SLICEPOOL_HEAP_INIT \
  { (uint32_t)sizeof(slicepool_heap), 0, 0, 0 }
#define SLICEPOOL_ALLOCATION_SIZES_INIT \
  { (uint32_t)sizeof(slicepool_allocation_sizes), 0, 0, 0, 0, 0 }
#define SLICEPOOL_POOL_OPTIONS_INIT \
  { (uint32_t)sizeof(slicepool_pool_options), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
#define SLICEPOOL_LAYOUT_PROPERTIES_INIT \
  { (uint32_t)sizeof(slicepool_layout_properties), 0, 0, 0, 0 }
#define SLICEPOOL_BUDGET_CONFIG_INIT \
  { (uint32_t)sizeof(slicepool_budget_config), 0, 0, NULL, NULL }
#define SLICEPOOL_BUDGET_STATISTICS_INIT \
  { (uint32_t)sizeof(slicepool_budget_statistics), 0, 0, 0, 0, 0, 0, 0, 0 }
#define SLICEPOOL_ALLOCATOR_CONFIG_INIT \
  { (uint32_t)sizeof(slicepool_allocator_config), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL, \
    NULL, NULL, NULL, NULL, NULL, NULL, NULL }
#define SLICEPOOL_REQUEST_INIT \
  { (uint32_t)sizeof(slicepool_request), 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL }
#define SLICEPOOL_SLICE_INIT \
  { (uint32_t)sizeof(slicepool_slice), 0, 0, 0, 0, 0, 0, NULL, NULL }
#define SLICEPOOL_RANGE_INIT \
  { (uint32_t)sizeof(slicepool_range), 0, 0, 0, 0, 0, 0, 0, 0, 0 }
#define SLICEPOOL_STATISTICS_INIT \
  { (uint32_t)sizeof(slicepool_statistics), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, \
    0, 0, 0, 0 }
#define SLICEPOOL_SPACE_CONFIG_INIT \
  { (uint32_t)sizeof(slicepool_space_config), 0, 0, 0, NULL, NULL }
#define SLICEPOOL_SPACE_SLICE_INIT \
  { (uint32_t)sizeof(slicepool_space_slice), 0, 0, 0, 0 }
#define SLICEPOOL_SPACE_STATISTICS_INIT \
  { (uint32_t)sizeof(slicepool_space_statistics), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
#define SLICEPOOL_BUFFER_POOL_CONFIG_INIT \
  { (uint32_t)sizeof(slicepool_buffer_pool_config), 0, 0, 0, 0, 0, 0, 0, 0, 0, { 0 }, 0, 0, NULL, NULL, NULL, NULL, NULL, \
    NULL }
#define SLICEPOOL_BUFFER_INIT \
  { (uint32_t)sizeof(slicepool_buffer), 0, 0, 0, 0, 0, 0, NULL, NULL }
#define SLICEPOOL_BUFFER_POOL_STATISTICS_INIT \
  { (uint32_t)sizeof(slicepool_buffer_pool_statistics), 0, 0, 0, 0, 0, 0, 0, 0, 0 }
#define SLICEPOOL_BUFFER_CLASS_STATISTICS_INIT \
  { (uint32_t)sizeof(slicepool_buffer_class_statistics), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
#define SLICEPOOL_BUFFER_REGION_INIT \
  { (uint32_t)sizeof(slicepool_buffer_region), 0, 0, 0, 0, 0, 0, NULL, NULL }

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* SLICEPOOL_H */
