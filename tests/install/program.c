/* Uses the installed library from C: allocates, frees, and compares the header's version with the library's. */
#include <slicepool.h>

#include <stdio.h>

int main(void) {
  slicepool_device device = SLICEPOOL_DEVICE_INIT;
  slicepool_request request = SLICEPOOL_REQUEST_INIT;
  slicepool_slice slice = SLICEPOOL_SLICE_INIT;
  slicepool_allocator *allocator = NULL;

  if (slicepool_version() != SLICEPOOL_VERSION_NUMBER) return 1;
  if (slicepool_host_device(&device) != SLICEPOOL_OK) return 2;
  if (slicepool_allocator_create(&device, NULL, &allocator) != SLICEPOOL_OK) return 3;
  request.size = 1000;
  if (slicepool_allocate(allocator, &request, &slice) != SLICEPOOL_OK || slice.size < 1000) return 4;
  if (slicepool_free(allocator, slice.id) != SLICEPOOL_OK) return 5;
  if (slicepool_allocator_destroy(allocator, 0, NULL) != SLICEPOOL_OK) return 6;
  puts("works in C");
  return 0;
}
