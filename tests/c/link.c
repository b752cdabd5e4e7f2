/* The smallest program that needs most of the library: it is linked in every way that users link. */
#include "slicepool.h"

int main(void) {
  slicepool_device device = SLICEPOOL_DEVICE_INIT;
  slicepool_allocator *allocator = NULL;
  slicepool_request request = SLICEPOOL_REQUEST_INIT;
  slicepool_slice slice = SLICEPOOL_SLICE_INIT;
  slicepool_space_config config = SLICEPOOL_SPACE_CONFIG_INIT;
  slicepool_space *space = NULL;
  request.size = 1000;
  config.size = 1000;
  if (slicepool_version() != SLICEPOOL_VERSION_NUMBER) return 1;
  if (slicepool_host_device(&device) != SLICEPOOL_OK) return 2;
  if (slicepool_allocator_create(&device, NULL, &allocator) != SLICEPOOL_OK) return 3;
  if (slicepool_allocate(allocator, &request, &slice) != SLICEPOOL_OK) return 4;
  ((char *)slice.mapped)[999] = 1;
  if (slicepool_free(allocator, slice.id) != SLICEPOOL_OK) return 5;
  if (slicepool_allocator_destroy(allocator, 0, NULL) != SLICEPOOL_OK) return 6;
  if (slicepool_space_create(&config, &space) != SLICEPOOL_OK) return 7;
  if (slicepool_space_destroy(space) != SLICEPOOL_OK) return 8;
  return 0;
}
