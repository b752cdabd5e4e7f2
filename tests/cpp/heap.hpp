/* Devices of host memory that count, and a failure handler that remembers. */
#ifndef HEAP_HPP
#define HEAP_HPP

#include "slicepool.hpp"

#include "../c/check.h"

#include <atomic>
#include <mutex>
#include <new>
#include <string>
#include <vector>

/* Pages of host memory. What it counts lies outside, so that it can be handed over. */
struct counts {
  std::atomic<int> pages{0};
  std::atomic<int> allocations{0};
  std::atomic<int> destroyed{0};
};

class heap {
 public:
  explicit heap(counts &at) noexcept : counts_(&at) {}
  heap(heap &&other) noexcept : counts_(std::exchange(other.counts_, nullptr)) {}
  heap &operator=(heap &&) = delete;
  ~heap() {
    if (counts_ != nullptr) counts_->destroyed++;
  }

  slicepool_device_memory allocate(const slicepool_page_request &request) {
    void *const memory = ::operator new(static_cast<std::size_t>(request.size), std::align_val_t(request.alignment));
    counts_->pages++;
    counts_->allocations++;
    const auto address = reinterpret_cast<std::uintptr_t>(memory);
    return slicepool::page(address, memory, address, reinterpret_cast<void *>(static_cast<std::uintptr_t>(request.alignment)));
  }

  void deallocate(const slicepool_device_memory &memory) {
    ::operator delete(memory.mapped, std::align_val_t(reinterpret_cast<std::uintptr_t>(memory.context)));
    counts_->pages--;
  }

 private:
  counts *counts_;
};

/* While it lives, what the failure handler is told. */
class reports {
 public:
  reports() : before_(slicepool::set_failure_handler(take)) { list().clear(); }
  ~reports() { slicepool::set_failure_handler(before_); }

  std::vector<std::string> where() const {
    const std::lock_guard<std::mutex> lock(mutex());
    std::vector<std::string> names;
    for (const auto &one : list()) names.push_back(one.where);
    return names;
  }
  std::size_t count() const { return where().size(); }
  const slicepool::failure &last() const { return list().back().why; }

 private:
  struct told {
    std::string where;
    slicepool::failure why;
  };

  static std::vector<told> &list() {
    static std::vector<told> all;
    return all;
  }
  static std::mutex &mutex() {
    static std::mutex one;
    return one;
  }
  static void take(const char *where, const slicepool::failure &why) {
    const std::lock_guard<std::mutex> lock(mutex());
    list().push_back({where, why});
  }

  slicepool::failure_handler before_;
};

/* A config with one pool of equal pages. The array of pools has to live as long as the config is used. */
inline slicepool_allocator_config config_of(const slicepool_pool_options &pool) {
  auto config = slicepool::allocator_config();
  config.pools = &pool;
  config.pool_count = 1;
  return config;
}

#endif
