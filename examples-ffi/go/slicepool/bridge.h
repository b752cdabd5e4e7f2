/* What Go cannot say itself: a device whose callbacks are Go functions, and calls that tell why a callback failed. */

#ifndef BRIDGE_H
#define BRIDGE_H

#include <slicepool.h>

/* cgo drops `const`; by these names it keeps it, and the exported functions have the callbacks' types. */
typedef const slicepool_page_request bridge_const_page_request;
typedef const slicepool_device_memory bridge_const_device_memory;

/*
 * Go must not leave pointers of its own in C, so user_data is a cgo.Handle, a number. Made here, as Go's vet is right
 * to warn of numbers that become pointers.
 *
 * `cause`, in all of these: a cgo.Handle of the error with which a callback failed during the call, 0 if none did.
 */
slicepool_result bridge_create(uintptr_t device, uint64_t max_bytes, slicepool_allocator **allocator,
                               slicepool_failure *failure, uintptr_t *cause);
slicepool_result bridge_allocate(slicepool_allocator *allocator, uint64_t size, uint64_t alignment,
                                 slicepool_slice *slice, slicepool_failure *failure, uintptr_t *cause);
slicepool_result bridge_trim(slicepool_allocator *allocator, uint64_t min_keep_bytes, slicepool_failure *failure,
                             uintptr_t *cause);
slicepool_result bridge_destroy(slicepool_allocator *allocator, slicepool_failure *failure, uintptr_t *cause);

/* For callbacks: keeps the error for whoever made the call, and returns what was kept before. */
uintptr_t bridge_keep_cause(uintptr_t cause);

#endif
