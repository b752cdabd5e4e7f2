// Uses the installed library from C++: a slice that frees itself.
#include <slicepool.hpp>

#include <iostream>

int main() {
  if (slicepool_version() != SLICEPOOL_VERSION_NUMBER) return 1;
  slicepool::Allocator allocator(slicepool::host_memory{});
  const slicepool::Slice slice = allocator.allocate(4096);
  if (slice.size() < 4096 || slice.mapped() == nullptr) return 2;
  std::cout << "works in C++\n";
  return 0;
}
