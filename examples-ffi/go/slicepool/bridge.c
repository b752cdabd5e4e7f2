#include "bridge.h"

#include "_cgo_export.h"

/* Callbacks run on the thread of the call that needs them, and Go stays on it, so a variable of the thread will do. */
static _Thread_local uintptr_t kept;

uintptr_t bridge_keep_cause(uintptr_t cause) {
  uintptr_t before = kept;
  kept = cause;
  return before;
}

/* A callback may make calls of its own, so what was kept by the outer call is put aside and comes back. */
#define WITH_CAUSE(call)                 \
  uintptr_t outer = bridge_keep_cause(0); \
  slicepool_result result = (call);      \
  *cause = bridge_keep_cause(outer);     \
  return result

slicepool_result bridge_create(uintptr_t device, uint64_t max_bytes, slicepool_allocator **allocator,
                               slicepool_failure *failure, uintptr_t *cause) {
  slicepool_device callbacks = SLICEPOOL_DEVICE_INIT;
  slicepool_allocator_config config = SLICEPOOL_ALLOCATOR_CONFIG_INIT;
  callbacks.user_data = (void *)device;
  callbacks.allocate = slicepoolGoAllocate;
  callbacks.deallocate = slicepoolGoDeallocate;
  config.max_bytes = max_bytes;
  config.failure = failure;
  WITH_CAUSE(slicepool_allocator_create(&callbacks, &config, allocator));
}

slicepool_result bridge_allocate(slicepool_allocator *allocator, uint64_t size, uint64_t alignment,
                                 slicepool_slice *slice, slicepool_failure *failure, uintptr_t *cause) {
  slicepool_request request = SLICEPOOL_REQUEST_INIT;
  request.size = size;
  request.alignment = alignment;
  request.failure = failure;
  WITH_CAUSE(slicepool_allocate(allocator, &request, slice));
}

slicepool_result bridge_trim(slicepool_allocator *allocator, uint64_t min_keep_bytes, slicepool_failure *failure,
                             uintptr_t *cause) {
  WITH_CAUSE(slicepool_trim(allocator, min_keep_bytes, failure));
}

slicepool_result bridge_destroy(slicepool_allocator *allocator, slicepool_failure *failure, uintptr_t *cause) {
  WITH_CAUSE(slicepool_allocator_destroy(allocator, 0, failure));
}
