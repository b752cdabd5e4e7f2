// Uses the installed library from C++: a space, and the C++ header where it is installed.
#include <slicepool.h>

#if defined(__has_include)
#if __has_include(<slicepool.hpp>)
#include <slicepool.hpp>
#endif
#endif

#include <iostream>

int main() {
  slicepool_space_config config = SLICEPOOL_SPACE_CONFIG_INIT;
  slicepool_space *space = nullptr;
  config.size = 4096;

  if (slicepool_version() != SLICEPOOL_VERSION_NUMBER) return 1;
  if (slicepool_space_create(&config, &space) != SLICEPOOL_OK) return 2;
  if (slicepool_space_destroy(space) != SLICEPOOL_OK) return 3;
  std::cout << "works in C++\n";
  return 0;
}
