/* Memory resources under containers of the standard library. */
#include "heap.hpp"

#include <cstring>
#include <map>
#include <memory>
#include <memory_resource>
#include <string>
#include <thread>

using namespace slicepool;

template <class Resource>
static void fill_and_check(Resource &resource, unsigned seed, std::uint64_t elements) {
  std::pmr::vector<std::uint64_t> numbers(&resource);
  std::pmr::map<std::uint64_t, std::pmr::string> words(&resource);
  std::uint64_t state = seed;
  for (std::uint64_t i = 0; i < elements; i++) {
    numbers.push_back(i * seed);
    words.emplace(random_next(&state) % 500, std::pmr::string(30 + i % 40, static_cast<char>('a' + i % 26)));
    if (i % 3 == 0) words.erase(words.begin());
  }
  for (std::uint64_t i = 0; i < elements; i++) CHECK_EQ(numbers[i], i * seed);
  for (const auto &word : words) CHECK(word.second.find_first_not_of(word.second[0]) == std::pmr::string::npos);
}

static void containers_live_in_slices() {
  counts counted;
  {
    Allocator allocator{heap(counted)};
    memory_resource resource(allocator);
    fill_and_check(resource, 3, rounds(40000));
    CHECK_EQ(allocator.statistics().slices, 0);
    CHECK(allocator.statistics().in_use_peak_bytes > 0);
    CHECK(resource.is_equal(resource));
    memory_resource other(allocator);
    CHECK(!resource.is_equal(other) && resource != *std::pmr::new_delete_resource());
  }
  CHECK_EQ(counted.pages, 0);
}

static void four_threads_share_a_resource() {
  Allocator allocator(host_memory{});
  memory_resource resource(allocator);
  std::vector<std::thread> threads;
  for (unsigned t = 1; t <= 4; t++) threads.emplace_back([&resource, t] { fill_and_check(resource, t, rounds(20000)); });
  for (std::thread &thread : threads) thread.join();
  CHECK_EQ(allocator.statistics().slices, 0);
}

static bool is_aligned(const void *memory, std::size_t alignment) {
  return reinterpret_cast<std::uintptr_t>(memory) % alignment == 0;
}

template <class Resource>
static void every_alignment_is_met(Resource &resource, std::size_t largest) {
  for (std::size_t alignment = 1; alignment <= largest; alignment *= 2) {
    void *const one = resource.allocate(100, alignment);
    void *const none = resource.allocate(0, alignment);
    CHECK(is_aligned(one, alignment) && is_aligned(none, alignment) && one != none && none != nullptr);
    std::memset(one, 0x55, 100);
    resource.deallocate(one, 100, alignment);
    resource.deallocate(none, 0, alignment);
  }
}

/* The CPU sees its pages 16 bytes behind where the device aligns them. */
struct askew : heap {
  using heap::heap;
  explicit askew(counts &counted) : heap(counted) {}
  slicepool_device_memory allocate(const slicepool_page_request &request) {
    slicepool_page_request larger = request;
    larger.size += 16;
    slicepool_device_memory memory = heap::allocate(larger);
    memory.mapped = static_cast<char *>(memory.mapped) + 16;
    return memory;
  }
  void deallocate(const slicepool_device_memory &memory) {
    slicepool_device_memory whole = memory;
    whole.mapped = static_cast<char *>(memory.mapped) - 16;
    heap::deallocate(whole);
  }
};

static void blocks_are_aligned_as_asked_whatever_the_device_does() {
  counts counted;
  {
    Allocator straight{heap(counted)}, aslant{askew(counted)};
    memory_resource first(straight), second(aslant);
    every_alignment_is_met(first, 1 << 20);
    every_alignment_is_met(second, 1 << 20);
    CHECK(straight.statistics().slices == 0 && aslant.statistics().slices == 0);
    BufferPool pool{heap(counted)};
    buffer_memory_resource third(pool);
    every_alignment_is_met(third, 64 * 1024);
    CHECK_EQ(pool.class_statistics(0).in_use, 0);
  }
  CHECK_EQ(counted.pages, 0);
}

template <class Resource>
static bool throws_bad_alloc(Resource &resource, std::size_t bytes, std::size_t alignment = 8) {
  try {
    static_cast<void>(resource.allocate(bytes, alignment));
    return false;
  } catch (const std::bad_alloc &) {
    return true;
  }
}

struct without_host : heap {
  using heap::heap;
  explicit without_host(counts &counted) : heap(counted) {}
  void *hidden = nullptr;
  slicepool_device_memory allocate(const slicepool_page_request &request) {
    slicepool_device_memory memory = heap::allocate(request);
    hidden = std::exchange(memory.mapped, nullptr);
    return memory;
  }
  void deallocate(const slicepool_device_memory &memory) {
    slicepool_device_memory seen = memory;
    seen.mapped = hidden;
    heap::deallocate(seen);
  }
};

static void memory_that_cannot_be_had_is_bad_alloc() {
  counts counted;
  const slicepool_pool_options pool = sliced_pages(65536, 65536);
  Allocator allocator(heap(counted), config_of(pool));
  memory_resource resource(allocator);
  CHECK(throws_bad_alloc(resource, 1 << 20));
  CHECK(throws_bad_alloc(resource, SIZE_MAX, 4096));
  CHECK(throws_bad_alloc(resource, SIZE_MAX - 8, SIZE_MAX / 2 + 1));
  std::pmr::vector<std::byte> bytes(&resource);
  bool caught = false;
  try {
    for (;;) bytes.push_back(std::byte{1});
  } catch (const std::bad_alloc &) {
    caught = bytes.size() >= 16384;
  }
  CHECK(caught);
  Allocator blind{without_host(counted)};
  memory_resource nowhere(blind);
  CHECK(throws_bad_alloc(nowhere, 100));
  CHECK_EQ(blind.statistics().slices, 0);
  BufferPool names{heap(counted)};
  buffer_memory_resource buffers(names);
  CHECK(throws_bad_alloc(buffers, 1 << 20));
  buffer_memory_resource larger(names, SLICEPOOL_BUFFER_UNTRACKED);
  larger.deallocate(larger.allocate(1 << 20), 1 << 20);
}

static void a_resource_frees_what_was_not_given_back() {
  counts counted;
  reports told;
  Allocator allocator{heap(counted)};
  BufferPool pool{heap(counted)};
  {
    memory_resource resource(allocator);
    buffer_memory_resource buffers(pool);
    for (int i = 0; i < 100; i++) {
      static_cast<void>(resource.allocate(1000));
      static_cast<void>(buffers.allocate(1000));
    }
    CHECK_EQ(allocator.statistics().slices, 100);
    resource.release();
    CHECK_EQ(allocator.statistics().slices, 0);
    static_cast<void>(resource.allocate(1000));
    /* What never came from it is refused and told. */
    int elsewhere = 0;
    resource.deallocate(&elsewhere, 4);
    CHECK(told.count() == 1 && told.where()[0] == "slicepool::memory_resource");
    buffers.deallocate(&elsewhere, 4);
    CHECK_EQ(told.count(), 2);
  }
  CHECK_EQ(allocator.statistics().slices, 0);
  CHECK_EQ(pool.class_statistics(0).in_use, 0);
  /* One that outlives its allocator does nothing. */
  memory_resource late(allocator);
  void *const block = late.allocate(1000);
  allocator = Allocator();
  CHECK_EQ(told.count(), 3);
  late.deallocate(block, 1000);
  CHECK(throws_bad_alloc(late, 100));
  CHECK_EQ(told.count(), 3);
}

static void containers_live_in_buffers() {
  BufferPool pool(host_memory{});
  buffer_memory_resource resource(pool, SLICEPOOL_BUFFER_UNTRACKED);
  std::vector<std::thread> threads;
  for (unsigned t = 1; t <= 4; t++) threads.emplace_back([&resource, t] { fill_and_check(resource, t, rounds(20000)); });
  for (std::thread &thread : threads) thread.join();
  CHECK_EQ(pool.class_statistics(0).in_use, 0);
  CHECK_EQ(pool.statistics().untracked, 0);
}

static void requests_of_a_resource_are_like_the_one_it_was_given() {
  const slicepool_pool_options pools[] = {sliced_pages(65536), sliced_pages(1 << 20)};
  auto config = slicepool::allocator_config();
  config.pools = pools;
  config.pool_count = 2;
  Allocator allocator(host_memory{}, config);
  slicepool_request like = request(0, 0, SLICEPOOL_REQUEST_IN_POOL);
  like.pool = 1;
  memory_resource resource(allocator, like);
  const std::pmr::vector<int> numbers(100, 7, &resource);
  CHECK(allocator.pool_statistics(0).slices == 0 && allocator.pool_statistics(1).slices == 1);
}

static void a_block_that_was_written_beyond_its_end_is_reported_and_freed() {
  auto config = allocator_config();
  config.debug_margin = 64;
  Allocator allocator(host_memory{}, config);
  memory_resource resource(allocator);
  for (const bool by_release : {false, true}) {
    reports told;
    void *const memory = resource.allocate(1000, 8);
    /* The compiler would see that it is wrong. */
    char *const volatile end = static_cast<char *>(memory) + 1024;
    std::memset(end, 1, 8);
    if (by_release) {
      resource.release();
    } else {
      resource.deallocate(memory, 1000, 8);
    }
    CHECK_EQ(told.count(), 1);
    CHECK_RESULT(told.last().code(), SLICEPOOL_ERROR_MARGIN_DAMAGED);
    CHECK_EQ(allocator.statistics().slices, 0);
  }
}

static void what_is_given_back_after_the_pool_has_gone_is_no_failure() {
  counts counted;
  reports told;
  auto pool = std::make_unique<BufferPool>(heap(counted));
  buffer_memory_resource resource(*pool);
  void *const memory = resource.allocate(1000, 8);
  pool.reset();
  CHECK_EQ(told.count(), 1); /* of the buffer that was out */
  BufferPool next{heap(counted)}; /* perhaps in the same place */
  resource.deallocate(memory, 1000, 8);
  resource.release();
  CHECK_EQ(told.count(), 1);
  try {
    static_cast<void>(resource.allocate(1000, 8));
    FAIL("memory of a pool that has gone");
  } catch (const std::bad_alloc &) {
  }
}

static const struct test tests[] = {
    TEST(containers_live_in_slices),
    TEST(four_threads_share_a_resource),
    TEST(blocks_are_aligned_as_asked_whatever_the_device_does),
    TEST(memory_that_cannot_be_had_is_bad_alloc),
    TEST(a_resource_frees_what_was_not_given_back),
    TEST(containers_live_in_buffers),
    TEST(requests_of_a_resource_are_like_the_one_it_was_given),
    TEST(a_block_that_was_written_beyond_its_end_is_reported_and_freed),
    TEST(what_is_given_back_after_the_pool_has_gone_is_no_failure),
};

TEST_MAIN(tests)
