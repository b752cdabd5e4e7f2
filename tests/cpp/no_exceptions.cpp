/* The header where there are no exceptions: -fno-exceptions -fno-rtti. */
#include "slicepool.hpp"

#include "../c/check.h"

#include <csignal>
#include <thread>

#ifndef SLICEPOOL_NO_EXCEPTIONS
#error "exceptions are on"
#endif

using namespace slicepool;

struct numbers {
  int *pages;
  int limit;
  result<slicepool_device_memory> allocate(const slicepool_page_request &) {
    if (*pages == limit) return failure(SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY, 42);
    return page(static_cast<std::uint64_t>(++*pages));
  }
  void deallocate(const slicepool_device_memory &) { --*pages; }
};

static void calls_answer_results() {
  int pages = 0;
  {
    result<Allocator> created = Allocator::try_create(numbers{&pages, 1});
    CHECK(created);
    Allocator allocator = std::move(*created);
    result<Slice> slice = allocator.try_allocate(1000, 4096);
    CHECK(slice && slice->offset() % 4096 == 0 && slice.value().size() >= 1000);
    const result<Slice> refused = allocator.try_allocate(64 << 20);
    CHECK_RESULT(refused.code(), SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY);
    CHECK_EQ(refused.error().details().device_code, 42);
    CHECK(refused.error().message().find("42") != std::string::npos);
    CHECK_RESULT(allocator.try_destroy().code(), SLICEPOOL_ERROR_BUSY);
    int shown = 0;
    CHECK(allocator.try_walk([&](const slicepool_range &) { shown++; }));
    CHECK_EQ(shown, 2);
    CHECK(allocator.try_report_json()->front() == '{');
    CHECK(slice->try_free_after({point(0, 1)}));
    CHECK(allocator.try_collect(0, 1));
    CHECK_EQ(allocator.try_statistics()->slices, 0);
  }
  CHECK_EQ(pages, 0);
}

static void buffers_and_spaces_answer_results() {
  result<BufferPool> pool = BufferPool::try_create(host_memory{});
  CHECK(pool);
  std::thread([&] {
    for (int i = 0; i < 100; i++) CHECK(pool->try_acquire(1000)->mapped() != nullptr);
    CHECK_EQ(pool->try_statistics()->caches, 1);
  }).join();
  CHECK_EQ(pool->try_statistics()->caches, 0);
  CHECK_RESULT(pool->try_acquire(UINT64_MAX).code(), SLICEPOOL_ERROR_OVERSIZED);
  result<BufferCache> cache = pool->try_cache();
  CHECK(cache && cache->try_acquire(1000));
  result<Space> space = Space::try_create(100);
  CHECK(space && space->try_allocate(10)->size == 10);
  CHECK_RESULT(space->try_allocate(100).code(), SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED);
}

static void containers_have_memory() {
  result<Allocator> allocator = Allocator::try_create(host_memory{});
  memory_resource resource(*allocator);
  std::pmr::vector<int> numbers(&resource);
  for (int i = 0; i < 10000; i++) numbers.push_back(i);
  CHECK_EQ(numbers[9999], 9999);
}

static void a_value_that_is_not_there_ends_the_process() {
  fflush(stdout);
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    CHECK(freopen("/dev/null", "w", stderr) != nullptr);
    const result<int> nothing = failure(SLICEPOOL_ERROR_BUSY);
    _exit(nothing.value());
  }
  CHECK(end_of_child(child) == -SIGABRT);
}

static const struct test tests[] = {
    TEST(calls_answer_results),
    TEST(buffers_and_spaces_answer_results),
    TEST(containers_have_memory),
    TEST(a_value_that_is_not_there_ends_the_process),
};

TEST_MAIN(tests)
