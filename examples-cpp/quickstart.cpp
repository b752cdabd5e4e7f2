/* slicepool from C++: a device of one's own, slices that free themselves, what a failure says, buffers. */
#include "slicepool.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <new>

/* Stands for a GPU driver: 4 MiB of memory at most. What allocate() throws is thrown by the call that needed it. */
class device {
 public:
  slicepool_device_memory allocate(const slicepool_page_request &request) {
    if (used_ + request.size > (4u << 20)) throw std::bad_alloc();
    void *const memory = ::operator new(static_cast<std::size_t>(request.size), std::align_val_t(request.alignment));
    used_ += request.size;
    std::printf("device: %llu bytes given out\n", static_cast<unsigned long long>(request.size));
    return slicepool::page(reinterpret_cast<std::uintptr_t>(memory), memory);
  }

  void deallocate(const slicepool_device_memory &memory) {
    used_ -= memory.size;
    std::printf("device: %llu bytes given back\n", static_cast<unsigned long long>(memory.size));
    ::operator delete(memory.mapped, std::align_val_t(4096));
  }

 private:
  std::uint64_t used_ = 0;
};

int main() {
  auto pool = slicepool::sliced_pages(1 << 20);
  auto config = slicepool::allocator_config();
  config.pools = &pool;
  config.pool_count = 1;
  slicepool::Allocator allocator(device{}, config);

  {
    slicepool::Slice vertices = allocator.allocate(100000, 4096);
    std::fill(vertices.bytes().begin(), vertices.bytes().end(), std::byte{1});
    std::printf("slice: %llu bytes at %llu\n", static_cast<unsigned long long>(vertices.size()),
                static_cast<unsigned long long>(vertices.offset()));
  } /* freed */

  try {
    allocator.allocate(100 << 20);
    return 1;
  } catch (const slicepool::error &error) {
    std::printf("refused: %s\n", error.what());
    if (error.code() != SLICEPOOL_ERROR_TOO_LARGE) return 2;
  }

  /* Each thread that uses a pool gets a cache of its own, which goes back when the thread ends. */
  slicepool::BufferPool buffers(slicepool::host_memory{});
  slicepool::Buffer packet = buffers.acquire(1500);
  std::printf("buffer: room for %llu bytes\n", static_cast<unsigned long long>(packet.size()));
  return packet.size() >= 1500 ? EXIT_SUCCESS : EXIT_FAILURE;
}
