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
 * ABORTING. The library never ends the process, short of a bug inside it.
 */
