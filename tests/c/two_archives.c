/* Two static libraries made by Rust in one program. The functions of the second are renamed: other_slicepool_... */
#include "slicepool.h"

uint32_t other_slicepool_version(void);
slicepool_result other_slicepool_host_device(slicepool_device *device);
slicepool_result other_slicepool_allocator_create(const slicepool_device *device,
                                                  const slicepool_allocator_config *config,
                                                  slicepool_allocator **allocator);
slicepool_result other_slicepool_allocate(slicepool_allocator *allocator, const slicepool_request *request,
                                          slicepool_slice *slice);
slicepool_result other_slicepool_allocator_destroy(slicepool_allocator *allocator, uint32_t flags,
                                                   slicepool_failure *failure);

int main(void) {
  slicepool_device device = SLICEPOOL_DEVICE_INIT, other_device = SLICEPOOL_DEVICE_INIT;
  slicepool_allocator *allocator = NULL, *other_allocator = NULL;
  slicepool_request request = SLICEPOOL_REQUEST_INIT;
  slicepool_slice slice = SLICEPOOL_SLICE_INIT, other_slice = SLICEPOOL_SLICE_INIT;
  request.size = 1000;
  if (slicepool_version() != other_slicepool_version()) return 1;
  if (slicepool_host_device(&device) != SLICEPOOL_OK) return 2;
  if (other_slicepool_host_device(&other_device) != SLICEPOOL_OK) return 3;
  if (device.allocate == other_device.allocate) return 4;
  if (slicepool_allocator_create(&device, NULL, &allocator) != SLICEPOOL_OK) return 5;
  if (other_slicepool_allocator_create(&other_device, NULL, &other_allocator) != SLICEPOOL_OK) return 6;
  if (slicepool_allocate(allocator, &request, &slice) != SLICEPOOL_OK) return 7;
  if (other_slicepool_allocate(other_allocator, &request, &other_slice) != SLICEPOOL_OK) return 8;
  if (slice.address == other_slice.address) return 9;
  if (slicepool_allocator_destroy(allocator, SLICEPOOL_DESTROY_FORCE, NULL) != SLICEPOOL_OK) return 10;
  if (other_slicepool_allocator_destroy(other_allocator, SLICEPOOL_DESTROY_FORCE, NULL) != SLICEPOOL_OK) return 11;
  return 0;
}
